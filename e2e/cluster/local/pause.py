"""The sandbox image of every pod: one static binary, packed by hand, since nothing can be pulled."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from pathlib import Path

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def pause_archive(binary: Path, name: str, target: Path) -> None:
    """Write a Docker archive with one layer that holds `/pause`."""
    layer = _tar({"pause": (binary.read_bytes(), 0o755)})
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    files = {config_name: config, "layer.tar": layer, "manifest.json": manifest}
    target.write_bytes(_tar({path: (content, 0o644) for path, content in files.items()}))


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, (content, mode) in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
