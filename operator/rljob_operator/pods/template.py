"""Merge of a user's pod template over a generated pod, and the way back from a server's field path to the RLJob path.

Maps merge key by key. Lists whose entries have a natural key merge by it, the template's entry winning: `containers`
and `initContainers` by name (deep), `env`, `volumes`, `imagePullSecrets` by name, `volumeMounts` by mountPath, `ports`
by containerPort. Tolerations are appended. Any other list is replaced. Unknown keys travel on, so that the API server
names them.
"""

from __future__ import annotations

import re
from typing import Any

from rljob_core.api.spec import RLJob
from rljob_core.errors import InvalidInputError
from rljob_core.names import GROUP, LABEL_MANAGED_BY, WORKER_CONTAINER, Role

TEMPLATE_PATH = {
    Role.COORDINATOR: "spec.coordinator.template",
    Role.TRAINER: "spec.trainer.template",
    Role.ROLLOUT: "spec.rollout.template",
    Role.REWARD: "spec.reward.template",
    Role.STORE_MASTER: "spec.kvStore.managed.template",
    Role.STORE: "spec.kvStore.managed.template",
}
"""Where the RLJob has the template of a role."""

_DEEP_KEYS = {"containers": "name", "initContainers": "name"}
_ENTRY_KEYS = {
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
}
_APPENDED = {"tolerations"}
_OWN_METADATA = ("name", "generateName", "namespace", "ownerReferences", "finalizers")
_OWN_SPEC = ("restartPolicy", "hostname", "subdomain")
_OWN_ENV_PREFIX = "RLJOB_"


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """A new map: `over` laid over `base` by the rules above."""
    out = dict(base)
    for key, value in over.items():
        out[key] = _merge_value(key, out[key], value) if key in out else value
    return out


def _merge_value(key: str, base: Any, over: Any) -> Any:
    if isinstance(base, dict) and isinstance(over, dict):
        return merge(base, over)
    if isinstance(base, list) and isinstance(over, list):
        if key in _APPENDED:
            return base + over
        if key in _DEEP_KEYS or key in _ENTRY_KEYS:
            return _merge_list(key, base, over)
    return over


def _merge_list(key: str, base: list[Any], over: list[Any]) -> list[Any]:
    deep = key in _DEEP_KEYS
    by = _DEEP_KEYS[key] if deep else _ENTRY_KEYS[key]
    out = list(base)
    places = {entry.get(by): i for i, entry in enumerate(out)}
    for entry in over:
        named = entry.get(by) if isinstance(entry, dict) else None
        place = places.get(named) if isinstance(named, str | int) else None
        if place is None:
            out.append(entry)
        else:
            out[place] = merge(out[place], entry) if deep else entry
    return out


def role_template(job: RLJob, role: Role) -> dict[str, Any]:
    """The user's pod template of a role; store master and segments share one."""
    spec = job.spec
    managed = spec.kv_store.managed_store
    store = managed.template if managed else {}
    return {
        Role.COORDINATOR: spec.coordinator.template,
        Role.TRAINER: spec.trainer.template,
        Role.ROLLOUT: spec.rollout.template,
        Role.REWARD: spec.reward.template,
        Role.STORE_MASTER: store,
        Role.STORE: store,
    }[role]


def check_templates(job: RLJob) -> None:
    """`check_reserved` for every role."""
    for role in Role:
        check_reserved(role, role_template(job, role))


def check_reserved(role: Role, template: dict[str, Any]) -> None:
    """Raise InvalidInputError where a template sets what the operator owns: identity, `RLJOB_*`, restart policy."""
    root = TEMPLATE_PATH[role]
    metadata, spec = _mapping(template.get("metadata")), _mapping(template.get("spec"))
    for key in _OWN_METADATA:
        if key in metadata:
            raise _reserved(f"{root}.metadata.{key}", metadata[key])
    for kind in ("labels", "annotations"):
        for key, value in _mapping(metadata.get(kind)).items():
            if key == LABEL_MANAGED_BY or key.startswith(f"{GROUP}/"):
                raise _reserved(f"{root}.metadata.{kind}[{key}]", value)
    for key in _OWN_SPEC:
        if key in spec:
            raise _reserved(f"{root}.spec.{key}", spec[key])
    for i, container in enumerate(_list(spec.get("containers"))):
        for j, entry in enumerate(_list(_mapping(container).get("env"))):
            name = str(_mapping(entry).get("name", ""))
            if name.startswith(_OWN_ENV_PREFIX) and _mapping(container).get("name") == WORKER_CONTAINER:
                raise _reserved(f"{root}.spec.containers[{i}].env[{j}]", name)


def rljob_path(role: Role, template: dict[str, Any], pod: dict[str, Any], field: str) -> str:
    """The RLJob path of a field the API server complains about, e.g. `spec.nodeSelectr` of a rollout pod.

    template: what the user wrote; pod: the merged pod that was sent. Entries of merged lists are found again by
    their name; a field the template does not hold keeps the template's root.
    """
    wanted = re.findall(r"([^.\[\]]+)|\[([^\]]*)\]", field)
    path = TEMPLATE_PATH[role]
    theirs: Any = template
    sent: Any = pod
    for key, index in wanted:
        if key:
            if not isinstance(theirs, dict) or key not in theirs:
                return path
            path, theirs, sent = f"{path}.{key}", theirs[key], _mapping(sent).get(key)
        elif index.isdigit() and isinstance(theirs, list) and isinstance(sent, list) and int(index) < len(sent):
            place = _place(theirs, sent[int(index)])
            if place is None:
                return path
            path, theirs, sent = f"{path}[{place}]", theirs[place], sent[int(index)]
        else:
            return f"{path}[{index}]"
    return path


def _place(theirs: list[Any], entry: Any) -> int | None:
    """Index in the template's list of the entry that ended up in the pod."""
    for key in ("name", "mountPath", "containerPort"):
        if isinstance(entry, dict) and key in entry:
            return next((i for i, t in enumerate(theirs) if _mapping(t).get(key) == entry[key]), None)
    return next((i for i, t in enumerate(theirs) if t == entry), None)


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _reserved(path: str, value: Any) -> InvalidInputError:
    return InvalidInputError(path, value, "is set by the operator", "remove it from the template")
