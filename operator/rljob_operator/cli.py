"""The `rljob` command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rljob_core.errors import EXIT_INVALID_INPUT, InvalidInputError

EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand; its exit code. 0: fine. 1: a generated file is stale. 64: the user's input is wrong.
    130: Ctrl-C."""
    args = _parser().parse_args(argv)
    try:
        code: int = args.handler(args)
    except InvalidInputError as error:
        print(error, file=sys.stderr)
        return EXIT_INVALID_INPUT
    except KeyboardInterrupt:  # before a run has begun, or once it is over: between the two it drains
        return EXIT_INTERRUPTED
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rljob", description="Reinforcement-learning post-training, one RLJob a run.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run an RLJob on this machine, without a cluster")
    run.add_argument("file", type=Path, help="YAML file with one RLJob")
    run.add_argument("--runs", type=Path, default=Path("runs"), help="folder of run directories (default: runs)")
    run.add_argument("--quiet", action="store_true", help="print warnings and the summary only")
    run.add_argument("--fresh", action="store_true", help="keep an earlier run under another name and begin anew")
    run.set_defaults(handler=_run)

    validate = commands.add_parser("validate", help="check RLJob files as the API server and the workers would")
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


def _run(args: argparse.Namespace) -> int:
    from rljob_operator.embedded.run import main as run

    return run(args)


def _validate(args: argparse.Namespace) -> int:
    """One line a problem: FILE:LINE: field: value, problem and remedy. No line where another file is at fault."""
    from rljob_operator.validation import check_file

    refused = False
    for path in args.files:
        try:
            reports = check_file(path)
        except InvalidInputError as error:
            print(error)
            refused = True
            continue
        for report in reports:
            for problem in report.problems:
                line = f":{report.line_of(problem)}" if problem.path else ""
                print(f"{path}{line}: {problem}")
            refused |= bool(report.problems)
            for unchecked in report.unchecked:
                print(f"{path}: not checked, cannot be read here: {unchecked}")
            if report.job is not None:
                print(f"{path}: RLJob {report.job.metadata.name} is valid")
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


if __name__ == "__main__":
    sys.exit(main())
