"""Texts of unknown length and content inside documents that have a size limit."""

from __future__ import annotations

import json

MESSAGE_BYTES = 1024


def bounded(text: str, limit: int = MESSAGE_BYTES) -> str:
    """The longest beginning that takes at most `limit` bytes in a JSON string, escapes included; what UTF-8 cannot
    hold becomes a question mark."""
    text = text.encode(errors="replace").decode()
    taken = 0
    for place, character in enumerate(text):
        taken += len(json.dumps(character, ensure_ascii=False).encode()) - 2
        if taken > limit:
            return text[:place]
    return text
