"""Start-up configuration of the operator, read once from the environment."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rljob_core.errors import InvalidInputError
from rljob_operator.cluster.health import Patience

LEASE_NAME = "rljob-operator"
INSTALL_KEY_SECRET = "rljob-install-key"
INSTALL_KEY_ENTRY = "key"


@dataclass(frozen=True, kw_only=True)
class OperatorConfig:
    """What an installation decides."""

    worker_image: str
    """Image of all roles where `scheduling.image` is absent."""
    namespaces: tuple[str, ...]
    """Namespaces whose RLJobs are served; empty: all."""
    install_key_file: Path
    """Mounted key from which job tokens are derived."""
    pod_name: str
    """Identity in the Lease."""
    pod_namespace: str
    """Namespace of the Lease and of the install key."""
    probe_port: int = 8081
    """Port of /healthz and /readyz."""
    concurrency: int = 16
    """Passes that may run at once."""
    patience: Patience = field(default_factory=Patience)
    """With watches. A proxy that cuts idle connections sooner than a stream ends calls for shorter ones."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> OperatorConfig:
        """Read `RLJOB_*`, `POD_NAME` and `POD_NAMESPACE`; only the worker image has no default."""
        image = environ.get("RLJOB_WORKER_IMAGE", "")
        if not image:
            raise InvalidInputError("RLJOB_WORKER_IMAGE", image, "is empty", "set the image of the worker pods")
        return cls(
            worker_image=image,
            namespaces=tuple(filter(None, environ.get("RLJOB_NAMESPACES", "").replace(",", " ").split())),
            install_key_file=Path(environ.get("RLJOB_INSTALL_KEY_FILE", "/var/run/rljob/install-key/key")),
            pod_name=environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
            pod_namespace=environ.get("POD_NAMESPACE", "rljob-system"),
            probe_port=_integer(environ, "RLJOB_PROBE_PORT", 8081),
            concurrency=_integer(environ, "RLJOB_CONCURRENCY", 16),
            patience=Patience(stream_s=_integer(environ, "RLJOB_WATCH_SECONDS", 60)),
        )


def _integer(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, str(default))
    if not text.isdigit() or not int(text):
        raise InvalidInputError(name, text, "is not a positive whole number", f"unset it for {default}")
    return int(text)
