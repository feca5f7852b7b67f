"""Cluster components from Go modules, kept in a cache keyed by what they are built from."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import needs
from commands import CommandError, run, say

MODULES = Path(__file__).parent / "gomod"
KUBERNETES_VERSION = "v1.34.4"
_VERSION_PACKAGE = "k8s.io/component-base/version"
# Without these the API server reports v0.0.0, and clients complain.
_VERSION_FLAGS = " ".join(
    f"-X {_VERSION_PACKAGE}.{key}={value}"
    for key, value in (
        ("gitVersion", KUBERNETES_VERSION),
        ("gitMajor", "1"),
        ("gitMinor", "34"),
        ("gitTreeState", "clean"),
    )
)


class Module(NamedTuple):
    """One Go module (requirements of different components clash) and the commands built in it."""

    name: str
    packages: dict[str, str]
    ldflags: str = "-s -w"


PAUSE = Module("pause", {"pause": "."})
ETCD = Module("etcd", {"etcd": "go.etcd.io/etcd/server/v3"})
COREDNS = Module("coredns", {"coredns": "github.com/coredns/coredns"})
KUBERNETES = Module(
    "kubernetes",
    {
        name: f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
    },
    f"-s -w {_VERSION_FLAGS}",
)
ALL = (PAUSE, ETCD, COREDNS, KUBERNETES)


def cache_dir() -> Path:
    """Where built things are kept between runs: RLJOB_CACHE, else ~/.cache/rljob."""
    return Path(os.environ.get("RLJOB_CACHE") or Path.home() / ".cache" / "rljob")


def folder(module: Module) -> Path:
    """Cache folder of a module: changes with its files, the Go version and the flags."""
    digest = hashlib.sha256()
    for path in sorted((MODULES / module.name).iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(run(["go", "version"], cwd=MODULES / module.name).encode())
    digest.update(repr(module).encode())
    return cache_dir() / "bin" / f"{module.name}-{digest.hexdigest()[:16]}"


def build(module: Module) -> Path:
    """Build what the cache lacks; returns the folder of the binaries."""
    target = folder(module)
    target.mkdir(parents=True, exist_ok=True)
    for name, package in module.packages.items():
        if (target / name).exists():
            continue
        say(f"building {name} from {package}")
        with tempfile.TemporaryDirectory(dir=target) as scratch:
            built = Path(scratch) / name
            run(
                ["go", "build", "-trimpath", "-ldflags", module.ldflags, "-o", built, package],
                cwd=MODULES / module.name,
                env={"CGO_ENABLED": "0"},
            )
            built.rename(target / name)
    return target


def build_all() -> Path:
    """Build everything; returns the one folder where every component is found under its name."""
    if shutil.which("go") is None:
        raise CommandError(f"install {needs.BY_HAND['go']}: clusters and API servers are built from Go modules")
    current = cache_dir() / "bin" / "current"
    current.mkdir(parents=True, exist_ok=True)
    for module in ALL:
        target = build(module)
        for name in module.packages:
            link = current / f".{name}.new"
            link.unlink(missing_ok=True)
            link.symlink_to(target / name)
            link.rename(current / name)
    return current
