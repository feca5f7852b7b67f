"""The install key, from which every job's token is derived.

It is a file mounted from an optional Secret. On a fresh cluster the Secret does not exist: the first operator makes
the key, creates the Secret and goes on with the key it made. Whoever finds it created meanwhile waits for its own
mount to fill. Secrets are created and never read.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from pathlib import Path

from rljob_operator.cluster.api import SECRETS, ApiError, KubeApi
from rljob_operator.cluster.config import INSTALL_KEY_ENTRY, INSTALL_KEY_SECRET

POLL_S = 1.0

logger = logging.getLogger(__name__)


async def install_key(api: KubeApi, file: Path, namespace: str) -> bytes:
    """The key; waits while the Secret exists but is not mounted yet (the kubelet takes up to about a minute)."""
    if not _read(file):
        key = secrets.token_hex(32)
        if await _create(api, namespace, key):
            return key.encode()
        logger.info("secret %s/%s exists; waiting for %s", namespace, INSTALL_KEY_SECRET, file)
    while True:
        if key_bytes := _read(file):
            return key_bytes
        await asyncio.sleep(POLL_S)


def _read(file: Path) -> bytes:
    """Empty while there is none."""
    return file.read_bytes().strip() if file.is_file() else b""


async def _create(api: KubeApi, namespace: str, key: str) -> bool:
    """False: there is one already."""
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": {"name": INSTALL_KEY_SECRET, "namespace": namespace},
        "stringData": {INSTALL_KEY_ENTRY: key},
    }
    try:
        await api.create(SECRETS, namespace, body)
    except ApiError as error:
        if error.conflict:
            return False
        raise
    return True
