"""Whether a Python file defines the function a spec names: told from its text, nothing is run."""

from __future__ import annotations

import symtable

from rljob_core.errors import InvalidInputError
from rljob_core.inputs.rewards import ENTRY_POINT_FIELD


def check_function_source(entry_point: str, function: str, source: str, path: str) -> None:
    """InvalidInputError for a syntax error, or when nothing in the file binds the name at its top level.

    A file that may make names as it is imported (`import *`, `__getattr__`, `globals()`) passes: only an import tells.
    """
    try:
        top = symtable.symtable(source, path, "exec")
    except (SyntaxError, ValueError) as error:
        raise InvalidInputError(
            ENTRY_POINT_FIELD, entry_point, f"cannot be imported ({error})", f"correct {path}"
        ) from error
    if any(word in source for word in ("import *", "__getattr__", "globals(")):
        return
    if function not in top.get_identifiers() or not _bound(top.lookup(function)):
        raise InvalidInputError(
            ENTRY_POINT_FIELD,
            entry_point,
            f"names a function that {path} does not define",
            "correct the name, or define it",
        )


def _bound(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
