"""The user's reward function, as far as its source lies on this machine. Nothing of it is imported or run here."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from rljob_core.api.inputs import Reward
from rljob_core.errors import InvalidInputError
from rljob_core.inputs import split_entry_point
from rljob_core.inputs.function_source import check_function_source
from rljob_core.inputs.rewards import ENTRY_POINT_FIELD
from rljob_operator.reward_path import reward_python_path
from rljob_operator.validation.files import FileReader


def check_function(reward: Reward, reader: FileReader) -> None:
    """The module is looked for where the reward process will: PYTHONPATH, beside the RLJob's file, among what is
    installed. Another one can only be told from the workers' image.

    InvalidInputError: no such function in the module, or (`reader.here`) no such module on this machine.
    """
    if reward.function is None or reader.folder is None:
        return
    entry_point = reward.function.entry_point
    module, function = split_entry_point(entry_point)
    own = reward_python_path(reader.python_path, reader.folder)
    found = _find(module, [*own, *_interpreter_path()])
    if found is not None and found.origin is not None and found.origin.endswith(".py"):
        check_function_source(entry_point, function, _source(found.origin, entry_point), found.origin)
    elif found is not None or importlib.util.find_spec(module.partition(".")[0]) is not None:
        reader.unseen.append(f"module {module} of {ENTRY_POINT_FIELD}: no Python source")
    elif not reader.here:
        reader.unseen.append(
            f"module {module} of {ENTRY_POINT_FIELD}: on this machine neither in {', '.join(own)} nor installed"
        )
    else:
        raise InvalidInputError(
            ENTRY_POINT_FIELD,
            entry_point,
            f"names a module that is neither in {', '.join(own)} nor installed",
            "put the module beside the RLJob's file or on PYTHONPATH, or correct its name",
        )


def _find(module: str, folders: Sequence[str]) -> ModuleSpec | None:
    """As an import would, package by package, but nothing is run."""
    name, where, found = "", list(folders), None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        found = PathFinder.find_spec(name, where)
        if found is None:
            return None
        where = list(found.submodule_search_locations or ())
    return found


def _interpreter_path() -> list[str]:
    """Without the folder of this command's script: a reward process is started with -P."""
    return sys.path if sys.flags.safe_path else sys.path[1:]


def _source(path: str, entry_point: str) -> str:
    try:
        return importlib.util.decode_source(Path(path).read_bytes())
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            ENTRY_POINT_FIELD, entry_point, f"cannot be read ({error})", f"correct {path}"
        ) from error
