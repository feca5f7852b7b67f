"""Where a reward process looks for the user's module: the order is written once, for starting it and for checks."""

from __future__ import annotations

import os
from pathlib import Path


def reward_python_path(inherited: str, code: Path) -> list[str]:
    """Folders before those of the interpreter. inherited: PYTHONPATH of the command. code: folder of the RLJob file.

    Absolute: the process starts in another folder.
    """
    return [*(os.path.abspath(folder) for folder in inherited.split(os.pathsep) if folder), str(code.resolve())]
