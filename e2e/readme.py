"""The README's shell blocks, as a reader pastes them."""

from __future__ import annotations

import re

from live import ROOT

TEXT = (ROOT / "README.md").read_text()
SHELL = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks() -> list[str]:
    return SHELL.findall(TEXT)


def block_with(command: str) -> str:
    """The one block that holds this line."""
    (found,) = [block for block in blocks() if command in block.splitlines()]
    return found
