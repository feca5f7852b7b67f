"""The user's reward function in a process of its own: a call that hangs is ended at its deadline."""

from __future__ import annotations

import importlib
import math
import multiprocessing
import os
import traceback
from collections.abc import Callable
from enum import StrEnum
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from numbers import Real
from pathlib import Path
from typing import Any

from rljob_core import names
from rljob_core.errors import InvalidInputError
from rljob_core.inputs.rewards import ENTRY_POINT_FIELD, split_entry_point
from rljob_workers.parent import die_with_parent

SIGNATURE = "f(prompt: str, response: str, answer: str, fields: dict) -> float"


class _Reply(StrEnum):
    """First part of what the process sends back."""

    READY = "ready"
    VALUE = "value"
    IMPORT = "import"
    RAISED = "raised"
    ERROR = "error"


class FunctionProcess:
    """Calls `package.module:function` with a deadline (seconds); a process that was ended is started again."""

    def __init__(self, entry_point: str, timeout_s: float) -> None:
        split_entry_point(entry_point)
        self._entry_point, self._timeout_s = entry_point, timeout_s
        self._process, self._pipe = self._start()

    def call(self, prompt: str, response: str, answer: str, fields: dict[str, Any]) -> float | None:
        """The reward; None when the deadline passed. InvalidInputError for an exception, or for anything but a finite
        number."""
        self._pipe.send((prompt, response, answer, fields))
        if not self._pipe.poll(self._timeout_s):
            self.close()
            self._process, self._pipe = self._start()
            return None
        kind, value = self._receive()
        if kind is _Reply.RAISED:
            remedy = f"correct it (called as {SIGNATURE}); its traceback is in the log"
            raise InvalidInputError(ENTRY_POINT_FIELD, self._entry_point, value, remedy)
        if kind is _Reply.ERROR:
            raise self._invalid(value)
        return float(value)

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _start(self) -> tuple[BaseProcess, Connection]:
        """A fresh process, its import done: that takes what it takes, the deadline is for calls."""
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(self._entry_point, theirs, os.getpid()), daemon=True)
        process.start()
        theirs.close()
        self._process, self._pipe = process, ours
        kind, value = self._receive()
        if kind is _Reply.IMPORT:
            raise InvalidInputError(
                ENTRY_POINT_FIELD,
                self._entry_point,
                f"cannot be imported ({value})",
                "correct it, or put its module on PYTHONPATH or in the image",
            )
        return process, ours

    def _receive(self) -> tuple[_Reply, Any]:
        try:
            kind, value = self._pipe.recv()
        except EOFError as error:
            self._process.join()
            raise self._invalid(f"ended its process with exit code {self._process.exitcode}") from error
        return _Reply(kind), value

    def _invalid(self, problem: str) -> InvalidInputError:
        return InvalidInputError(ENTRY_POINT_FIELD, self._entry_point, problem, f"it must be {SIGNATURE}")


def _serve(entry_point: str, pipe: Connection, parent: int) -> None:
    """The process: import once, then answer calls until the pipe closes."""
    die_with_parent({names.ENV_PARENT_PID: str(parent)})
    try:
        function = _load(entry_point)
    except Exception as error:  # whatever the user's module raises at import
        pipe.send((str(_Reply.IMPORT), f"{type(error).__name__}: {error}"))
        return
    pipe.send((str(_Reply.READY), None))
    while True:
        try:
            arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(_answer(function, arguments))


def _load(entry_point: str) -> Callable[..., Any]:
    module, name = split_entry_point(entry_point)
    function = getattr(importlib.import_module(module), name)
    if not callable(function):
        raise TypeError(f"{name} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def _answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        value = function(*arguments)
    except Exception as error:  # the user's code: its error ends the job with its own words
        traceback.print_exc()
        return str(_Reply.RAISED), f"raised {type(error).__name__}: {error} ({_place(error)})"
    if not isinstance(value, Real):
        return str(_Reply.ERROR), f"returned a {type(value).__name__}"
    if not math.isfinite(value):
        return str(_Reply.ERROR), f"returned {value}"
    return str(_Reply.VALUE), float(value)


def _place(error: Exception) -> str:
    """File and line where it was raised; of the call itself when that did not fit the function."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}, line {frame.lineno}"
