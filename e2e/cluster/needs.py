"""What clusters, images and tests need of this machine, and the Debian package that brings each."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from commands import docker_answers

NODE = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "openssl": "openssl",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
"""Of the local provider."""
IMAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}
"""Where no Docker engine builds them."""
API_SERVER = {"openssl": "openssl", "setpriv": "util-linux"}
"""Of the one without a node, which some tests use whatever the provider."""
MOONCAKE = {"libcurl.so.4": "libcurl4", "libibverbs.so.1": "libibverbs1", "libnuma.so.1": "libnuma1"}
"""Libraries that the Mooncake wheel links to."""
CERTIFICATES = {"/etc/ssl/certs/ca-certificates.crt": "ca-certificates"}
BY_HAND = {
    "go": "go 1.21 or newer, which fetches the toolchain that e2e/cluster/local/gomod names",
    "kubectl": "kubectl 1.25 or newer",
}
"""Debian 12 has them too old."""


def packages(provider: str) -> list[str]:
    """Debian packages to install for `make cluster-up`, `make images` and `make e2e`."""
    wanted: dict[str, str] = {**API_SERVER, **MOONCAKE, **CERTIFICATES}
    if provider == "local":
        wanted |= NODE
    if not docker_answers():
        wanted |= IMAGES
    return sorted({wanted[thing] for thing in absent(wanted)})


def by_hand() -> list[str]:
    """What nobody installs for you, in words."""
    return [BY_HAND[tool] for tool in absent(BY_HAND)]


def absent(wanted: Mapping[str, str]) -> Iterator[str]:
    """Those of these tools, files and shared libraries that are not there."""
    return (thing for thing in wanted if not _there(thing))


def _there(thing: str) -> bool:
    if thing.startswith("/"):
        return Path(thing).exists()
    if ".so" not in thing:
        return shutil.which(thing) is not None
    try:
        ctypes.CDLL(thing)
    except OSError:
        return False
    return True
