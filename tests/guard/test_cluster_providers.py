"""`python e2e/cluster` picks kind where Docker answers, and takes a cluster that is there as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

CLUSTER = Path(__file__).resolve().parents[2] / "e2e/cluster"


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """File that lists the calls of docker, kind and kubectl, stand-ins that succeed and say nothing."""
    log = tmp_path / "called"
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("docker", "kind", "kubectl", "load"):
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {log}\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("RLJOB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RLJOB_CLUSTER", raising=False)
    return log


def cluster(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(CLUSTER), *arguments], capture_output=True, text=True, check=False)


def test_kind_where_docker_answers(called: Path, tmp_path: Path) -> None:
    done = cluster("up")
    kubeconfig = tmp_path / "cache/kind.kubeconfig"
    assert (done.returncode, done.stdout) == (0, f"export KUBECONFIG={kubeconfig}\n")
    assert cluster("load-image", "image.tar").returncode == 0
    assert cluster("down").returncode == 0
    assert [line for line in called.read_text().splitlines() if line.startswith("kind")] == [
        "kind get clusters",
        f"kind create cluster --name rljob-e2e --kubeconfig {kubeconfig} --wait 180s",
        f"kind export kubeconfig --name rljob-e2e --kubeconfig {kubeconfig}",
        "kind load image-archive image.tar --name rljob-e2e",
        "kind delete cluster --name rljob-e2e",
    ]


def test_an_existing_cluster_is_only_used(called: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").touch()
    monkeypatch.setenv("RLJOB_CLUSTER", "existing")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setenv("RLJOB_LOAD_COMMAND", "load --into-nodes")
    for command in (("up",), ("load-image", "image.tar"), ("down",)):
        assert cluster(*command).returncode == 0
    assert called.read_text().splitlines() == [
        f"kubectl --kubeconfig {tmp_path}/config get --raw /readyz",
        "load --into-nodes image.tar",
    ]


def test_a_cluster_that_is_not_there_is_said_so(called: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    done = cluster("--provider", "existing", "up")
    assert done.returncode == 1
    assert "KUBECONFIG ('/nowhere') is not a file" in done.stderr


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of stand-ins that is the whole PATH; at first it holds what nobody installs for you."""
    folder = tmp_path / "bare"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("RLJOB_CLUSTER", raising=False)
    for name in ("go", "kubectl"):
        stand_in(folder, name)
    return folder


def stand_in(folder: Path, name: str) -> None:
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


NODE_PACKAGES = {"conntrack", "containerd", "iproute2", "iptables", "runc"}
IMAGE_PACKAGES = {"buildah", "mmdebstrap"}


def test_without_docker_a_node_and_image_builders_are_needed(bare: Path) -> None:
    assert cluster("provider").stdout == "local\n"
    needed = set(cluster("needs").stdout.split())
    assert needed >= NODE_PACKAGES | IMAGE_PACKAGES | {"openssl", "util-linux"}
    stand_in(bare, "runc")
    assert needed - set(cluster("needs").stdout.split()) == {"runc"}


def test_docker_without_kind_builds_images_for_a_local_node(bare: Path) -> None:
    stand_in(bare, "docker")
    assert cluster("provider").stdout == "local\n"
    needed = set(cluster("needs").stdout.split())
    assert needed >= NODE_PACKAGES
    assert not needed & IMAGE_PACKAGES


def test_with_docker_and_kind_no_node_is_needed(bare: Path) -> None:
    for name in ("docker", "kind"):
        stand_in(bare, name)
    assert cluster("provider").stdout == "kind\n"
    needed = set(cluster("needs").stdout.split())
    assert not needed & (NODE_PACKAGES | IMAGE_PACKAGES)
    assert needed >= {"openssl", "util-linux"}, "of the API server that some tests start themselves"


def test_what_debian_lacks_is_named_at_once(bare: Path) -> None:
    (bare / "go").unlink()
    done = cluster("needs")
    assert (done.returncode, done.stdout) == (1, "")
    assert "install go 1.21 or newer" in done.stderr
    assert "kubectl" not in done.stderr
