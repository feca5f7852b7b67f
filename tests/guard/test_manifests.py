"""Every YAML in manifests/ and crds/ parses; every RLJob in them is valid."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from rljob_operator.validation import check_file
from rljob_operator.yaml_loader import load_file

ROOT = Path(__file__).resolve().parents[2]
KUSTOMIZE_CONFIG = "kustomizeconfig.yaml"
"""Not an object: says where kustomize finds image names."""
YAMLS = [path for folder in ("manifests", "crds") for path in (ROOT / folder).rglob("*.yaml")]
FILES = sorted(path for path in YAMLS if path.name != KUSTOMIZE_CONFIG)
SAMPLES = sorted((ROOT / "manifests/samples").glob("*.yaml"))

NAMES = ("operator", "worker")
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


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kustomize comes with kubectl")
def test_an_overlay_chooses_both_images(tmp_path: Path) -> None:
    images = [{"name": f"localhost/rljob-{name}", "newName": f"mine/{name}", "newTag": "7"} for name in NAMES]
    base = tmp_path / "repository/manifests/base"  # kustomize refuses absolute paths
    shutil.copytree(ROOT / "manifests/base", base)
    shutil.copytree(ROOT / "crds", tmp_path / "repository/crds")
    overlay = {"resources": ["repository/manifests/base"], "images": images}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    built = subprocess.run(["kubectl", "kustomize", tmp_path], capture_output=True, text=True, check=True).stdout
    deployment = next(body for body in yaml.safe_load_all(built) if body["kind"] == "Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    env = {entry["name"]: entry.get("value") for entry in container["env"]}
    assert (container["image"], env["RLJOB_WORKER_IMAGE"]) == ("mine/operator:7", "mine/worker:7")
