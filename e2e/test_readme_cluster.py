"""The README's way to a cluster, as written: in a shell without KUBECONFIG, and all of it by `make demo-cluster`."""

import json
import os
import subprocess
from pathlib import Path

import pytest
import readme
import timeouts
from live import ROOT, Namespace
from sample_jobs import short_job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

SAMPLE = "manifests/samples/reverse-digits.yaml"
WATCH = "kubectl get rljobs -w"
WATCHED_S = 10


@pytest.fixture
def default(kubeconfig: Path) -> Namespace:
    """Where a job goes that is applied as the README says; the cluster is up and has the images."""
    return Namespace(kubeconfig, "default")


def short_sample(folder: Path, name: str) -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(short_job(name, steps=3)))
    return file


def shell(script: str) -> str:
    """stdout of a shell that knows the cluster only by what the script says."""
    environ = dict(os.environ)
    if environ.get("RLJOB_CLUSTER") != "existing":
        environ.pop("KUBECONFIG", None)
    command = ["bash", "-e", "-o", "pipefail", "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def removed(namespace: Namespace, job: str) -> None:
    namespace.kubectl("delete", "rljob", job, "--timeout=60s")
    namespace.wait_pods(job, set())


def test_the_cluster_block_works_as_written(default: Namespace, tmp_path: Path) -> None:
    block = readme.block_with("make cluster-up")
    assert SAMPLE in block
    assert WATCH in block.splitlines()
    watched = f"timeout {WATCHED_S} {WATCH} || [ $? -eq 124 ]"
    script = block.replace(SAMPLE, str(short_sample(tmp_path, "as-written"))).replace(WATCH, watched)
    try:
        assert "as-written" in shell(script)
    finally:
        removed(default, "as-written")


def test_make_demo_cluster_ends_with_the_job(default: Namespace, tmp_path: Path) -> None:
    try:
        said = shell(f"make demo-cluster SAMPLE={short_sample(tmp_path, 'in-one-go')}")
        assert ["in-one-go", "Succeeded"] in [line.split()[:2] for line in said.splitlines()]
        assert default.status("in-one-go")["step"] == 3
        default.wait_phase("in-one-go", "Succeeded", timeouts.STATUS_S)
    finally:
        removed(default, "in-one-go")
