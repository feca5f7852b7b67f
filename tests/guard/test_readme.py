"""Every command of the README is run by a test or by CI: the file named here holds the call."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import readme

from rljob_operator.validation import admit
from rljob_operator.yaml_loader import load_file

ROOT = Path(__file__).resolve().parents[2]
CLUSTER_BLOCK = "make cluster-up"
INLINE = re.compile(r"`((?:make|kubectl|rljob|\.venv/bin/rljob) [^`]+)`")
YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)

RUN_BY = [
    (r"make (check|test|e2e)", ".ci/run", "\nmake {0}"),
    (r"make bench", "tests/guard/test_benchmarks.py", '"bench/render.py"'),
    (r"make demo", "e2e/test_demo.py", '"make", "--silent", "demo"'),
    (r"make demo ARGUMENTS=(--fresh)", "tests/controller/test_embedded_cli.py", '"{0}"'),
    (r"(?:\.venv/bin/)?rljob (validate|run)(?: manifests/samples/jsonl-checkpoint\.yaml)?", "e2e/test_demo.py",
     '[rljob, "{0}", str(second)'),
    (r"make cluster-up", "e2e/test_readme_cluster.py", f'block_with("{CLUSTER_BLOCK}")'),
    (r"make cluster-(down)", "e2e/conftest.py", '_cluster("{0}"'),
    (r"make demo-cluster", "e2e/test_readme_cluster.py", "make demo-cluster SAMPLE="),
    (r"kubectl delete rljob reverse-digits", "e2e/test_deleted.py", '"delete", "rljob"'),
]  # fmt: skip
"""Pattern of a command, the file that runs it, and the text of the call; {0} is the pattern's group."""


def commands() -> list[str]:
    """Lines of all shell blocks but the one that a test runs as a whole, and commands named in the text."""
    whole = readme.block_with(CLUSTER_BLOCK)
    lines = [line for block in readme.blocks() if block != whole for line in block.splitlines()]
    return sorted({*lines, *INLINE.findall(readme.SHELL.sub("", readme.TEXT))})


def test_there_are_commands() -> None:
    assert {"make demo", "make e2e", "make demo-cluster"} <= set(commands())


@pytest.mark.parametrize("command", commands())
def test_a_command_is_run_somewhere(command: str) -> None:
    found = [(match, *where) for pattern, *where in RUN_BY if (match := re.fullmatch(pattern, command))]
    assert len(found) == 1, f"name the test that runs {command!r}"
    match, file, call = found[0]
    assert call.format(*match.groups()) in (ROOT / file).read_text(), f"{file} does not run {command!r}"


def test_the_cluster_block_is_run_as_a_whole() -> None:
    test = (ROOT / "e2e/test_readme_cluster.py").read_text()
    assert f'readme.block_with("{CLUSTER_BLOCK}")' in test
    assert subprocess.run(["bash", "-n", "-c", readme.block_with(CLUSTER_BLOCK)], check=False).returncode == 0


@pytest.mark.parametrize("target", sorted({c.split()[1] for c in commands() if c.startswith("make ")}))
def test_a_make_target_exists(target: str) -> None:
    assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("block", YAML.findall(readme.TEXT), ids=lambda block: block.splitlines()[0])
def test_an_example_is_admitted(block: str, tmp_path: Path) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(block)
    (document,) = load_file(file)
    assert [str(problem) for problem in admit(document.body).problems] == []
