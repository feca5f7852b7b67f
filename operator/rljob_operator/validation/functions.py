"""The user's reward function, as far as its source lies on this machine. Nothing of it is imported or run here."""

from __future__ import annotations

from importlib.machinery import PathFinder

from rljob_core.api.inputs import Reward
from rljob_core.errors import InvalidInputError
from rljob_core.inputs import split_entry_point
from rljob_core.inputs.function_source import FIELD, check_function_source
from rljob_operator.validation.files import FileReader


def check_function(reward: Reward, reader: FileReader) -> None:
    """A module beside the RLJob's file is read; another one can only be told from the workers' Python.

    InvalidInputError: no such function in the file, or (`reader.here`) no such module on this machine.
    """
    if reward.function is None or reader.folder is None:
        return
    entry_point = reward.function.entry_point
    module, function = split_entry_point(entry_point)
    base = module.replace(".", "/")
    for path in (f"{base}.py", f"{base}/__init__.py"):
        try:
            source = reader(path)
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(FIELD, entry_point, f"cannot be read ({error})", f"correct {path}") from error
        if source is not None:
            check_function_source(entry_point, function, source, path)
        return
    if not reader.here:
        reader.unseen.append(f"module {module} of {FIELD}")
    elif _absent(module.partition(".")[0], reader):
        raise InvalidInputError(
            FIELD, entry_point, f"names a module that is neither in {reader.folder} nor installed",
            "put the module beside the RLJob's file, or correct its name",
        )  # fmt: skip


def _absent(package: str, reader: FileReader) -> bool:
    return PathFinder.find_spec(package) is None and PathFinder.find_spec(package, [str(reader.folder)]) is None
