"""One cluster, both images and one operator for all tests; a namespace for each.

RLJOB_CLUSTER chooses the provider (kind, local, existing), RLJOB_E2E_KEEP=1 keeps the cluster. A cluster that was up
before is used and left up.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import timeouts
from live import ROOT, KubectlError, Namespace, kubectl
from volumes import CheckpointVolume

CLUSTER = [sys.executable, str(ROOT / "e2e/cluster")]
OPERATOR = ("--namespace", "rljob-system")
_numbers = itertools.count(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that cannot run is a failure: nothing is skipped silently."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
    return report


@pytest.fixture(scope="session")
def kubeconfig() -> Iterator[Path]:
    """An administrator's, of a cluster with our images and the operator of manifests/base."""
    path = Path(_cluster("kubeconfig", timeouts.GONE_S).strip())
    was_up = _answers(path)
    try:
        _cluster("up", timeouts.CLUSTER_UP_S)
        _cluster("images", timeouts.IMAGES_S)
        kubectl(path, "apply", "-k", "manifests/base")
        if was_up:  # same tag, perhaps another image
            kubectl(path, *OPERATOR, "rollout", "restart", "deployment/rljob-operator")
        ready = f"--timeout={timeouts.OPERATOR_READY_S}s"
        kubectl(path, *OPERATOR, "rollout", "status", "deployment/rljob-operator", ready)
        yield path
    finally:
        if not was_up and os.environ.get("RLJOB_E2E_KEEP") != "1":
            _cluster("down", timeouts.GONE_S)


@pytest.fixture(scope="session")
def leaving(kubeconfig: Path) -> Iterator[list[str]]:
    """Namespaces on their way out: that takes 5 to 10 s each, and is waited for once, at the end."""
    names: list[str] = []
    yield names
    if names:
        kubectl(kubeconfig, "delete", "namespace", *names, "--ignore-not-found", f"--timeout={timeouts.GONE_S}s")


@pytest.fixture
def namespace(kubeconfig: Path, leaving: list[str]) -> Iterator[Namespace]:
    """An empty namespace; it goes, with all in it, after the test."""
    name = f"e2e-{os.getpid()}-{next(_numbers)}"
    kubectl(kubeconfig, "create", "namespace", name)
    yield Namespace(kubeconfig, name)
    kubectl(kubeconfig, "delete", "namespace", name, "--wait=false")
    leaving.append(name)


@pytest.fixture
def checkpoints(namespace: Namespace) -> Iterator[CheckpointVolume]:
    """A shared volume; its folder is removed at the end."""
    volume = CheckpointVolume(namespace)
    volume.create()
    yield volume
    volume.remove()


def _cluster(command: str, seconds: float) -> str:
    """stdout of `python e2e/cluster COMMAND`; its progress goes to our stderr."""
    return subprocess.run(
        [*CLUSTER, command], stdout=subprocess.PIPE, text=True, check=True, timeout=seconds, cwd=ROOT
    ).stdout


def _answers(path: Path) -> bool:
    try:
        kubectl(path, "get", "--raw", "/readyz", "--request-timeout=5s")
    except KubectlError:
        return False
    return True
