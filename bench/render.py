"""Runs every benchmark of this folder and writes a page of their results; exit 1 when a claim does not hold.

python bench/render.py docs/benchmarks.md
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
HELPERS = ("harness", "render", "plain_loop")


def benchmarks() -> list[Path]:
    return sorted(path for path in HERE.glob("*.py") if path.stem not in HELPERS)


def run(path: Path) -> dict[str, Any]:
    """The result of one benchmark: its last line. What it says before goes to our stdout."""
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        last = ""
        for last in process.stdout:
            print(last, end="", flush=True)
    try:
        result: dict[str, Any] = json.loads(last)
    except ValueError:
        sys.exit(f"{path.name} ended with {process.returncode} and without a result")
    return result


def page(results: list[dict[str, Any]]) -> str:
    """Markdown: what must hold, then the medians of ours and of the peers, and the machine."""
    out = ["# Benchmarks", "", "Written by `make bench`; each benchmark's file says what it measures.", ""]
    for result in results:
        out += [f"## {result['bench']}", "", "| claim | limit | measured | holds |", "|---|---|---|---|"]
        for claim in result["must"]:
            holds = "yes" if claim["holds"] else "**no**"
            out.append(f"| {claim['claim']} | {claim['limit']} | {_number(claim['measured'])} | {holds} |")
        out += [
            "",
            "| figure | ours | " + " | ".join(result["peers"]) + " |",
            "|---" * (2 + len(result["peers"])) + "|",
        ]
        for name in scalars(result["metrics"]):
            sides = [result["metrics"], *result["peers"].values()]
            out.append(
                f"| {name} | " + " | ".join(_number(side[name]) if name in side else "" for side in sides) + " |"
            )
        out += ["", ", ".join(f"{key} {value}" for key, value in result["machine"].items() if value), ""]
    return "\n".join(out)


def scalars(figures: dict[str, Any]) -> list[str]:
    """Names of the figures that are one number."""
    return [name for name, value in figures.items() if value is None or isinstance(value, int | float)]


def _number(value: float | None) -> str:
    return "never" if value is None else f"{value:.3g}"


def main() -> int:
    results = [run(path) for path in benchmarks()]
    Path(sys.argv[1]).write_text(page(results))
    return 0 if all(claim["holds"] for result in results for claim in result["must"]) else 1


if __name__ == "__main__":
    sys.exit(main())
