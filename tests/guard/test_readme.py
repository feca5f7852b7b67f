"""Every command of the README is run by a test or by CI, or is marked as needing Docker or an NPU."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)

RUN_BY = {
    r"make (test|check|e2e)": ".ci/run",
    r"make demo": "e2e/test_demo.py",
    r"make (cluster-up|cluster-down|images|demo-cluster)": "e2e/conftest.py",
    r"make bench(-[a-z-]+)?": "Makefile",
    r"kubectl apply -k manifests/base": "e2e/conftest.py",
    r"kubectl apply -f manifests/samples/reverse-digits\.yaml": "e2e/test_sample_succeeds.py",
    r"kubectl get rljobs( -w)?( reverse-digits)?( -o wide)?": "e2e/test_sample_succeeds.py",
    r"kubectl delete rljob reverse-digits": "e2e/test_sample_succeeds.py",
    r"(\.venv/bin/)?rljob validate \S+": "tests/guard/test_manifests.py",
    r"(\.venv/bin/)?rljob run \S+": "e2e/test_demo.py",
    r"git clone \S+( && cd \S+)?": ".ci/run",
    r"cd \S+": ".ci/run",
}
"""Pattern of a command to the file that runs it, or what it runs."""
MARK = re.compile(r"#.*\b(docker|npu)\b", re.IGNORECASE)


def commands() -> list[str]:
    """Command lines of all shell blocks; `$ ` prompts are dropped, output lines of console blocks too."""
    out = []
    for block in BLOCK.findall(README):
        lines = block.replace("\\\n", " ").splitlines()
        prompted = any(line.startswith("$ ") for line in lines)
        wanted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ") or not prompted]
        out += [line for line in wanted if line.strip() and not line.lstrip().startswith("#")]
    return out


def test_there_are_commands() -> None:
    assert any(command.startswith("make demo") for command in commands())


@pytest.mark.parametrize("command", commands())
def test_a_command_is_run_somewhere(command: str) -> None:
    assert subprocess.run(["bash", "-n", "-c", command], check=False).returncode == 0
    if MARK.search(command):
        return
    bare = re.sub(r"\s+#.*$", "", command).strip()
    where = [file for pattern, file in RUN_BY.items() if re.fullmatch(pattern, bare)]
    assert where, f"no test runs {bare!r}"
    assert (ROOT / where[0]).is_file()


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("make ")])
def test_a_make_target_exists(command: str) -> None:
    target = command.split()[1]
    assert re.search(rf"^({re.escape(target)}|bench-%):", (ROOT / "Makefile").read_text(), re.MULTILINE)
