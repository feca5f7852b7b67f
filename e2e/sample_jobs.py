"""RLJobs for tests: the sample, made short."""

from __future__ import annotations

import copy
from typing import Any

from live import ROOT, Body

from rljob_operator.yaml_loader import load_file

SAMPLE = ROOT / "manifests/samples/reverse-digits.yaml"
ONE_RANK: Body = {"trainer": {"devicesPerPod": 1, "layout": {"dp": 1, "ep": 1}}, "rollout": {"groups": 1}}


def short_job(name: str, steps: int = 10, **groups: Body) -> Body:
    """The sample with `steps` steps and no evaluation. groups: spec groups, laid over the sample's key by key."""
    body: Body = copy.deepcopy(load_file(SAMPLE)[0].body)
    body["metadata"] = {"name": name}
    del body["spec"]["evaluation"]
    merge(body["spec"], {"algorithm": {"steps": steps}, **groups})
    return body


def small_job(name: str, steps: int = 10, **groups: Body) -> Body:
    """A short job with one process a role, for what ranks make no difference to."""
    body = short_job(name, steps, **ONE_RANK)
    merge(body["spec"], groups)
    return body


def merge(base: Body, over: dict[str, Any]) -> None:
    """Lay `over` upon `base`: maps key by key, anything else in place of what was there; None removes."""
    for key, value in over.items():
        if value is None:
            base.pop(key, None)
        elif isinstance(value, dict) and isinstance(base.get(key), dict):
            merge(base[key], value)
        else:
            base[key] = value


def mounting(volumes: dict[str, Body], **container: Any) -> Body:
    """A role's group whose pod template mounts volumes, by path, read-only. container: further keys of the worker's."""
    names = {path: f"own-{number}" for number, path in enumerate(volumes)}
    mounts = [{"name": name, "mountPath": path, "readOnly": True} for path, name in names.items()]
    worker = {"name": "worker", "volumeMounts": mounts, **container}
    sources = [{"name": name, **volumes[path]} for path, name in names.items()]
    return {"template": {"spec": {"containers": [worker], "volumes": sources}}}
