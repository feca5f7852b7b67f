"""Promises about the files themselves."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = ("core", "operator", "workers")
LINES = 500


def tracked(*patterns: str) -> list[Path]:
    """Files of the working tree that git knows or would add."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [ROOT / name for name in sorted(set(names)) if (ROOT / name).is_file()]


def test_no_source_file_is_too_long() -> None:
    """One reason to change each; 300 lines is the soft limit."""
    sources = [path for path in tracked("*.py", "*.sh", "*.go") if ROOT / "tests" not in path.parents]
    assert len(sources) > 50
    too_long = {str(path.relative_to(ROOT)) for path in sources if len(path.read_text().splitlines()) > LINES}
    assert not too_long


@pytest.mark.parametrize("folder", ["operator", "workers", "core", "tests", "e2e", "bench"])
def test_folders_are_not_packages(folder: str) -> None:
    """`operator/__init__.py` would shadow the standard library (style.md, section 4)."""
    assert not (ROOT / folder / "__init__.py").exists()
    if folder in CODE:
        assert not list((ROOT / folder).glob("*.py"))


def test_test_folders_are_not_packages() -> None:
    assert tracked("tests/**/__init__.py") == []


@pytest.mark.parametrize(
    ("module", "file"),
    [("mooncake", "workers/rljob_workers/kv_store/mooncake.py"), ("torch_npu", "workers/rljob_workers/device.py")],
)
def test_a_vendor_module_is_imported_in_one_place(module: str, file: str) -> None:
    importers = {
        str(path.relative_to(ROOT)) for path in tracked(*(f"{f}/**.py" for f in CODE)) if module in imports(path)
    }
    assert importers == {file}


def test_one_loader_reads_yaml() -> None:
    """PyYAML's own takes `1e-3` for a string and `Off` for false, kubectl the other way round."""
    loader = ROOT / "operator/rljob_operator/yaml_loader.py"
    calls = re.compile(r"\byaml\.(safe_|full_|unsafe_)?load\(")
    assert [path for path in tracked("*.py") if path != loader and calls.search(path.read_text())] == []


def imports(path: Path) -> set[str]:
    """Top-level modules a file imports, by statement or by `import_module("...")`."""
    return {name.partition(".")[0] for name in _imported(ast.parse(path.read_text()))}


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module)), *_]):
                yield module
