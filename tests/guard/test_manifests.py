"""Every YAML in manifests/ and crds/ parses; every RLJob in them is valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from rljob_operator.validation import check_file
from rljob_operator.yaml_loader import load_file

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for folder in ("manifests", "crds") for path in (ROOT / folder).rglob("*.yaml"))
SAMPLES = sorted((ROOT / "manifests/samples").glob("*.yaml"))

MADE_BY_ANOTHER_RUN = "spec.model.path"
"""A sample may go on from what another sample leaves in runs/."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_object_names_its_kind(path: Path) -> None:
    documents = load_file(path)
    assert documents
    assert all({"apiVersion", "kind"} <= document.body.keys() for document in documents)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_sample_is_valid(path: Path) -> None:
    reports = check_file(path)
    assert reports
    problems = [problem for report in reports for problem in report.problems]
    assert [str(problem) for problem in problems if problem.field != MADE_BY_ANOTHER_RUN] == []
