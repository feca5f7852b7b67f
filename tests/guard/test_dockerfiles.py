"""The Dockerfiles suit arm64 and any base image: parsed, not built, here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILES = [ROOT / "operator/Dockerfile", ROOT / "workers/Dockerfile"]
INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "LABEL", "RUN", "USER", "WORKDIR"}
ONE_ARCHITECTURE = re.compile(r"x86[-_]64|amd64|i[36]86|\bx64\b|manylinux", re.IGNORECASE)


def instructions(path: Path) -> list[tuple[str, str]]:
    """(INSTRUCTION, arguments) with continued lines joined and comments dropped."""
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    pairs = (line.split(maxsplit=1) for line in joined.splitlines() if line.strip())
    return [(pair[0], pair[1]) for pair in pairs]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_nothing_is_tied_to_one_architecture(path: Path) -> None:
    parsed = instructions(path)
    assert {name for name, _ in parsed} <= INSTRUCTIONS
    assert [arguments for _, arguments in parsed if ONE_ARCHITECTURE.search(arguments)] == []


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_the_base_image_is_a_build_argument(path: Path) -> None:
    parsed = instructions(path)
    assert parsed[0][0] == "ARG"
    assert parsed[0][1].startswith("BASE=")
    assert [arguments for name, arguments in parsed if name == "FROM"] == ["${BASE}"]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_the_user_is_a_number_other_than_root(path: Path) -> None:
    """The kubelet can prove runAsNonRoot only of a number."""
    users = [arguments for name, arguments in instructions(path) if name == "USER"]
    assert re.fullmatch(r"[1-9]\d*(:[1-9]\d*)?", users[-1])


def test_the_device_extra_is_a_build_argument() -> None:
    assert ("ARG", "EXTRA=cpu") in instructions(ROOT / "workers/Dockerfile")
