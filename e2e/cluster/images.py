"""Builds the operator and worker images without a registry, cached by what they are made of.

With a Docker engine: `docker build` on the Dockerfile's own base image. Without: buildah, on a root filesystem made
from Debian packages (nothing can be pulled), with the pip settings of this environment.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from commands import CommandError, docker_answers, run, say
from local.binaries import cache_dir

ROOT = Path(__file__).resolve().parents[2]


class Image(NamedTuple):
    """One image: its name in the cluster, its Dockerfile, and the folders its content comes from.

    A name below `localhost/` is complete as it is: no runtime puts a registry of its own before it.
    """

    name: str
    dockerfile: str
    sources: tuple[str, ...]
    build_args: tuple[str, ...] = ()


SHARED = ("pyproject.toml", "README.md", ".dockerignore", "core")
OPERATOR = Image("localhost/rljob-operator:0.1.0", "operator/Dockerfile", (*SHARED, "operator"))
WORKER = Image("localhost/rljob-worker:0.1.0", "workers/Dockerfile", (*SHARED, "workers"), ("EXTRA=cpu",))
IMAGES = (OPERATOR, WORKER)

BASE_SUITE = "bookworm"
# Python, and the libraries that the Mooncake wheel links to.
BASE_PACKAGES = ("ca-certificates", "libcurl4", "libibverbs1", "libnuma1", "python3", "python3-venv")

_PIP_CONFIG = "/etc/pip.conf"
_INSIDE = "/run/rljob-build"
_KEPT_ARCHIVES = 2


def archive(image: Image) -> Path:
    """Path of the image's archive, built when the cache lacks it."""
    folder = cache_dir() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    stem = image.name.partition(":")[0].rpartition("/")[2]
    target = folder / f"{stem}-{content_key(image)}.tar"
    if target.exists():
        target.touch()
        return target
    started = time.monotonic()
    say(f"building {image.name}")
    for stale in folder.glob("build-*"):
        shutil.rmtree(stale)
    with tempfile.TemporaryDirectory(dir=folder, prefix="build-") as scratch:
        built = Path(scratch) / "image.tar"
        if docker_answers():
            _docker(image, built)
        else:
            _buildah(image, built, Path(scratch))
        built.rename(target)
    for old in sorted(folder.glob(f"{stem}-*.tar"), key=lambda path: path.stat().st_mtime)[:-_KEPT_ARCHIVES]:
        old.unlink()
    say(f"built {image.name} in {time.monotonic() - started:.0f} s")
    return target


def content_key(image: Image) -> str:
    """Hash of everything the image is made of."""
    digest = hashlib.sha256(repr((image, BASE_SUITE, BASE_PACKAGES, docker_answers())).encode())
    for name in (image.dockerfile, *image.sources):
        for path in _files(ROOT / name):
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for entry in sorted(path.rglob("*")):
        if entry.is_file() and "__pycache__" not in entry.parts:
            yield entry


def _arguments(values: tuple[str, ...]) -> list[str]:
    return [word for value in values for word in ("--build-arg", value)]


def _docker(image: Image, target: Path) -> None:
    run(
        [
            "docker",
            "build",
            "--tag",
            image.name,
            "--file",
            ROOT / image.dockerfile,
            *_arguments(image.build_args),
            ROOT,
        ],
        show=True,
    )
    run(["docker", "save", "--output", target, image.name])


def _buildah(image: Image, target: Path, scratch: Path) -> None:
    build = ["bud", "--isolation", "chroot", "--network", "host", "--layers", "--tag", image.name]
    buildah("rm", "--all")  # what a killed build left
    base = (f"BASE={_base_image()}", *image.build_args)
    buildah(*build, *_arguments(base), *_pip_volumes(scratch), "--file", str(ROOT / image.dockerfile), str(ROOT))
    buildah("push", "--quiet", image.name, f"oci-archive:{target}:{image.name}")
    buildah("rmi", "--prune")  # earlier images that this one took the name of; layers in use stay


def buildah(*arguments: str) -> str:
    """buildah on a store of its own: images of the machine's user are neither touched nor added to."""
    store = cache_dir() / "buildah"
    return run(
        ["buildah", "--root", store / "root", "--runroot", store / "run", "--storage-driver", "overlay", *arguments]
    )


def _base_image() -> str:
    """A small Debian with Python, imported once as an image of buildah's."""
    packages = ",".join(BASE_PACKAGES)
    key = hashlib.sha256(f"{BASE_SUITE} {packages}".encode()).hexdigest()[:16]
    name = f"localhost/rljob-base:{key}"
    if buildah("images", "--quiet", "--filter", f"reference={name}").strip():
        return name
    tarball = cache_dir() / "images" / f"base-{key}.tar"
    if not tarball.exists():
        say("making a Debian root filesystem")
        part = tarball.with_suffix(".part.tar")
        run(["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}", BASE_SUITE, part])
        part.rename(tarball)
    container = buildah("from", "scratch").strip()
    buildah("add", "--quiet", container, str(tarball), "/")
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    buildah("config", "--env", path, container)
    buildah("commit", "--quiet", "--rm", container, name)
    return name


def _pip_volumes(scratch: Path) -> list[str]:
    """pip's settings here as a file mounted for the build only; files and folders they name are mounted beside it."""
    lines, volumes = ["[global]"], [(scratch / "pip.conf", _PIP_CONFIG)]
    for setting, value in _pip_settings().items():
        words = []
        for number, word in enumerate(value.split()):
            path = Path(word)
            if path.is_absolute() and path.exists():
                inside = f"{_INSIDE}/{setting}-{number}" + ("" if path.is_dir() else path.suffix)
                volumes.append((path.resolve(), inside))
                word = inside
            words.append(word)
        lines.append(f"{setting} = {' '.join(words)}")
    (scratch / "pip.conf").write_text("\n".join(lines) + "\n")
    return [word for source, inside in volumes for word in ("--volume", f"{source}:{inside}:ro")]


def _pip_settings() -> dict[str, str]:
    """`pip config list`, the environment's word last: name (without its section) to value."""
    settings: dict[str, str] = {}
    try:
        listed = run([sys.executable, "-m", "pip", "config", "list"])
    except CommandError:  # a Python without pip has no settings of its own
        listed = ""
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2]] = value.strip("'\"")
    return settings | {
        key[4:].lower().replace("_", "-"): value for key, value in os.environ.items() if key.startswith("PIP_")
    }


def build_all() -> list[Path]:
    """Archives of both images."""
    for image in IMAGES:
        if not (ROOT / image.dockerfile).is_file():
            raise CommandError(f"{image.dockerfile} is missing")
    return [archive(image) for image in IMAGES]
