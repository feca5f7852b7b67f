"""A name that two processes must agree on is typed once."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = [path for folder in ("core", "operator", "workers") for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ('"RLJOB_PARENT_PID"', "core/rljob_core/names.py"),
        ('"rljob.dev', "core/rljob_core/names.py"),
        ('"v1alpha1"', "core/rljob_core/names.py"),
        ('"OMP_NUM_THREADS"', "workers/rljob_workers/__main__.py"),
        ('"spec.reward.function.entryPoint"', "core/rljob_core/inputs/rewards.py"),
        ('"spec.model.init.config"', "core/rljob_core/models/config.py"),
    ],
)
def test_typed_once(text: str, file: str) -> None:
    assert [str(path.relative_to(ROOT)) for path in SOURCES if text in path.read_text()] == [file]
