"""A static hostPath volume for checkpoints and a user's own files, shared by all pods of the one node."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import timeouts
from live import Body, Namespace, kubectl

from rljob_operator.pods.builder import USER_ID

IMAGE = "localhost/rljob-worker:0.1.0"
CLAIM = "checkpoints"
FOLDERS = "/var/lib/rljob-e2e/volumes"
"""On the node; below the local cluster's own folder, which `down` removes."""
ARGUMENT_BYTES = 128_000
"""Of one argument of a command, a little less than Linux takes."""


class CheckpointVolume:
    """PersistentVolume and claim on a folder that the pods' unprivileged user, and nobody else, may write."""

    objects = (f"persistentvolumeclaims/{CLAIM}",)
    spec: Body = {"volume": {"persistentVolumeClaim": {"name": CLAIM}}}

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self.name = f"{namespace.name}-{CLAIM}"
        self.folder = f"{FOLDERS}/{self.name}"

    def create(self) -> None:
        folder = f"/volumes/{self.name}"
        self._as_root("make", f"mkdir -p {folder} && chown {USER_ID}:{USER_ID} {folder} && chmod 0700 {folder}")
        capacity: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": self.name},
            "spec": capacity
            | {
                "capacity": {"storage": "1Gi"},
                "hostPath": {"path": self.folder},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        }
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM},
            "spec": capacity | {"volumeName": self.name, "resources": {"requests": {"storage": "1Gi"}}},
        }
        self._namespace.apply(volume)
        self._namespace.apply(claim)

    def write(self, folder: Path) -> None:
        """Copy what a folder holds into the volume, for the pods' user. Small files: they travel in a command line."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            archive.add(folder, ".", filter=_owned)
        text = base64.b64encode(packed.getvalue()).decode()
        assert len(text) < ARGUMENT_BYTES, f"{folder} holds too much"
        self._as_root("write", f"echo {text} | base64 -d | tar -xz -C /volumes/{self.name}")

    def read(self, path: str) -> str:
        """Content of a file in the volume."""
        return self._as_root("read", f"cat /volumes/{self.name}/{path}")

    def listing(self, path: str = "") -> list[str]:
        return self._as_root("list", f"ls /volumes/{self.name}/{path}").split()

    def remove(self) -> None:
        self._as_root("remove", f"rm -rf /volumes/{self.name}")
        self._namespace.kubectl("delete", "pvc", CLAIM, "--ignore-not-found", "--wait=false")
        kubectl(self._namespace.kubeconfig, "delete", "pv", self.name, "--ignore-not-found", "--wait=false")

    def _as_root(self, name: str, script: str) -> str:
        """Output of a shell script in a pod of its own that sees the node's folder as /volumes."""
        container = {
            "name": "shell",
            "image": IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-ec", script],
            "securityContext": {"runAsUser": 0},
            "volumeMounts": [{"name": "volumes", "mountPath": "/volumes"}],
        }
        volume = {"name": "volumes", "hostPath": {"path": FOLDERS, "type": "DirectoryOrCreate"}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{CLAIM}"},
            "spec": {"restartPolicy": "Never", "containers": [container], "volumes": [volume]},
        }
        pod = f"{name}-{CLAIM}"
        self._namespace.kubectl("create", "-f", "-", text=json.dumps(body))
        ended = ("--for=jsonpath={.status.phase}=Succeeded", f"--timeout={timeouts.STATUS_S}s")
        self._namespace.kubectl("wait", f"pod/{pod}", *ended)
        out = self._namespace.kubectl("logs", pod)
        self._namespace.kubectl("delete", "pod", pod)
        return out


def _owned(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Of the pods' user, and of nobody else."""
    entry.uid, entry.gid, entry.uname, entry.gname = USER_ID, USER_ID, "", ""  # a name would come before the number
    entry.mode = 0o700 if entry.isdir() else 0o600
    return entry
