"""Paths that documents, manifests and build files name are there: a page that names a file goes stale with it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LISTED = ("*.md", "manifests", "crds", "Makefile", ".ci/run", "*Dockerfile", "pyproject.toml", ".dockerignore")
FROM_THE_ROOT = re.compile(
    r"(?<![\w/.@-])((?:core|operator|workers|crds|manifests|tests|e2e|bench|docs|tools)/[\w./-]*\w)"
)
A_FILE = re.compile(r"(?<![\w/.<>$-])([\w./-]*\w\.(?:py|md|ya?ml|sh|toml))\b")


def tracked(*patterns: str) -> list[str]:
    """Files of the working tree that git knows or would add."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted({name for name in names if (ROOT / name).is_file()})


ALL = tracked()


def missing(text: str) -> set[str]:
    """Names in a text that lead nowhere: paths from the root, and files by the end of their path."""
    absent = {path for path in FROM_THE_ROOT.findall(text) if not (ROOT / path).exists()}
    return absent | {file for file in A_FILE.findall(text) if not any(f"/{name}".endswith(f"/{file}") for name in ALL)}


@pytest.mark.parametrize("file", [name for name in tracked(*LISTED) if not name.endswith((".png", ".jsonl"))])
def test_what_a_document_names_is_there(file: str) -> None:
    assert missing((ROOT / file).read_text()) == set()


def test_a_name_that_leads_nowhere_is_found() -> None:
    text = "# see e2e/test_gone.py, `gone.md`, tools/gone, `cluster/lease.py` and tests/guard/test_paths.py"
    assert missing(text) == {"e2e/test_gone.py", "gone.md", "tools/gone"}
