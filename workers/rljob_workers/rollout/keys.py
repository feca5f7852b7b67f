"""Names of prefill KV in the store: the same from every process that asks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np


def kv_key(version: int, prompt: Sequence[int]) -> str:
    """Key of a prompt's prefill KV: `kv/<version>/<hash>`. The version is hashed too, so that no other version's
    entry can ever be taken for it (rl.md 5, 6)."""
    canonical = np.asarray([version, *prompt], dtype="<i8").tobytes()
    return f"kv/{version}/{hashlib.sha256(canonical).hexdigest()}"
