"""The `rljob` command. Importing it imports next to nothing: a Ctrl-C that comes sooner than `main` is a traceback."""

from __future__ import annotations

import os
import sys

from rljob_core.errors import EXIT_INTERRUPTED


def main(argv: list[str] | None = None) -> int:
    """Run a subcommand; its exit code, see `cli_exit_codes`. argv: None when this process is the command."""
    if argv is None:
        return _whole_process()
    return _command(argv)


def _whole_process() -> int:
    """The whole process: a Ctrl-C ends it in silence until a run has begun, and does nothing once its end is decided.

    KeyboardInterrupt will not do: raised inside an import it can surface as another error.
    """
    try:
        # Not `signal`, which takes 20 ms to import.
        from _signal import SIG_IGN, SIGINT, signal  # type: ignore[import-not-found]

        signal(SIGINT, _leave)
        code = _command(sys.argv[1:])
        signal(SIGINT, SIG_IGN)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


def _leave(number: int, frame: object) -> None:
    os._exit(EXIT_INTERRUPTED)


def _command(argv: list[str]) -> int:
    try:
        from rljob_operator.cli_commands import run_command

        return run_command(argv)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
