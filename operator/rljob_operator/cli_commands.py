"""The subcommands of `rljob`: their arguments, and what each prints."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from rljob_core.errors import EXIT_INVALID_INPUT, InvalidInputError
from rljob_operator import cli_exit_codes


def run_command(argv: Sequence[str]) -> int:
    """Exit code of the subcommand that argv names."""
    args = _parser().parse_args(argv)
    try:
        code: int = args.handler(args)
    except InvalidInputError as error:
        print(error, file=sys.stderr)
        return EXIT_INVALID_INPUT
    return code


class _Parser(argparse.ArgumentParser):
    """A wrong command line is invalid input, like a wrong file."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(EXIT_INVALID_INPUT, f"{self.prog}: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="rljob", description="Reinforcement-learning post-training, one RLJob a run.")
    parser.add_argument("--version", action="version", version=f"rljob {version('rljob')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    raw = argparse.RawDescriptionHelpFormatter
    codes = _exit_codes(cli_exit_codes.RUN)
    run = commands.add_parser(
        "run", help="run an RLJob on this machine, without a cluster", epilog=codes, formatter_class=raw
    )
    run.add_argument("file", type=Path, help="YAML file with one RLJob")
    run.add_argument("--runs", type=Path, default=Path("runs"), help="folder of run directories (default: runs)")
    run.add_argument("--quiet", action="store_true", help="print warnings and the summary only")
    run.add_argument("--fresh", action="store_true", help="keep an earlier run under another name and begin anew")
    run.set_defaults(handler=_run)

    codes = _exit_codes(cli_exit_codes.VALIDATE)
    what = "check RLJob files as the API server and the workers would"
    validate = commands.add_parser("validate", help=what, epilog=codes, formatter_class=raw)
    validate.add_argument("files", type=Path, nargs="+", metavar="FILE")
    validate.set_defaults(handler=_validate)

    for name, what, file in (
        ("crd", "the CustomResourceDefinition", Path("crds/rljobs.yaml")),
        ("reference", "the reference of all fields", Path("docs/reference.md")),
    ):
        generated = commands.add_parser(name, help=f"print {what}")
        stale = f"print nothing; exit 1 when FILE (default: {file}) is stale"
        generated.add_argument("--check", type=Path, nargs="?", const=file, metavar="FILE", help=stale)
        generated.set_defaults(handler=_generated, name=name)
    return parser


def _exit_codes(codes: Mapping[int, str]) -> str:
    """Wrapped to the terminal, as argparse wraps the rest."""
    width = max(40, shutil.get_terminal_size().columns - 2)
    lines = [
        textwrap.fill(meaning, width, initial_indent=f"  {code:<5}", subsequent_indent=" " * 7)
        for code, meaning in codes.items()
    ]
    return "\n".join(["exit codes:", *lines])


def _run(args: argparse.Namespace) -> int:
    from rljob_operator.embedded.run import main as run

    return run(args)


def _validate(args: argparse.Namespace) -> int:
    """One line a problem: FILE:LINE: field: value, problem and remedy. No line where another file is at fault."""
    from rljob_operator.validation import check_file

    refused = False
    for path in args.files:
        try:
            verdicts = check_file(path, python_path=os.environ.get("PYTHONPATH", ""))
        except InvalidInputError as error:
            print(error)
            refused = True
            continue
        for verdict in verdicts:
            for problem in verdict.problems:
                line = f":{verdict.line_of(problem)}" if problem.path else ""
                print(f"{path}{line}: {problem}")
            refused |= bool(verdict.problems)
            for unchecked in verdict.unchecked:
                print(f"{path}: not checked, cannot be read here: {unchecked}")
            if verdict.job is not None:
                print(f"{path}: RLJob {verdict.job.metadata.name} is valid")
    return EXIT_INVALID_INPUT if refused else 0


def _generated(args: argparse.Namespace) -> int:
    from rljob_operator.crd import definition_yaml, reference

    text = definition_yaml() if args.name == "crd" else reference()
    if args.check is None:
        print(text, end="")
        return 0
    current = args.check.read_text(encoding="utf-8") if args.check.exists() else ""
    if current == text:
        return 0
    print(f"{args.check} is stale: run `rljob {args.name} > {args.check}`", file=sys.stderr)
    return 1
