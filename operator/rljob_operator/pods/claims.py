"""One volume for each claim of a pod. Pure.

A pod that names one claim in two volumes never starts: the kubelet mounts it under one of the names and waits for the
other (kubernetes/kubernetes issues 82526, 132921). Data, evaluation, checkpoints and a template's files may well lie on
one claim.
"""

from __future__ import annotations

from typing import Any

CLAIM = "persistentVolumeClaim"


def share_claims(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod with every claim in one volume: of several the last stays, a template's before ours. A mount may write
    where the volume it named might. What has a wrong type travels on, for the server to name."""
    spec = pod["spec"]
    if not isinstance(spec, dict):
        return pod
    found = [volume for volume in _list(spec.get("volumes")) if _claim(volume)]
    last = {_claim(volume): volume["name"] for volume in found}
    if len(last) == len(found):
        return pod
    writable = {_claim(volume) for volume in found if not volume[CLAIM].get("readOnly")}
    kept = [
        volume | {CLAIM: volume[CLAIM] | {"readOnly": _claim(volume) not in writable}} if volume in found else volume
        for volume in spec["volumes"]
        if volume not in found or volume["name"] == last[_claim(volume)]
    ]
    stays = {volume["name"]: last[_claim(volume)] for volume in found}
    read_only = {volume["name"] for volume in found if volume[CLAIM].get("readOnly")}
    containers = {
        kind: [_renamed(container, stays, read_only) for container in spec[kind]]
        for kind in ("containers", "initContainers")
        if isinstance(spec.get(kind), list)
    }
    return pod | {"spec": spec | {"volumes": kept} | containers}


def _claim(volume: Any) -> str:
    """Name of the claim; empty for anything else."""
    if not isinstance(volume, dict) or not isinstance(volume.get("name"), str):
        return ""
    source = volume.get(CLAIM)
    return str(source.get("claimName") or "") if isinstance(source, dict) else ""


def _renamed(container: Any, stays: dict[str, str], read_only: set[str]) -> Any:
    """The container, its mounts on the volumes that stay."""
    if not isinstance(container, dict) or not isinstance(container.get("volumeMounts"), list):
        return container
    return container | {"volumeMounts": [_moved(mount, stays, read_only) for mount in container["volumeMounts"]]}


def _moved(mount: Any, stays: dict[str, str], read_only: set[str]) -> Any:
    name = mount.get("name") if isinstance(mount, dict) else None
    if not isinstance(name, str) or name not in stays:
        return mount
    return mount | {"name": stays[name]} | ({"readOnly": True} if name in read_only else {})


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
