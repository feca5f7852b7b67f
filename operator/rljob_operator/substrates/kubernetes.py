"""The Kubernetes substrate: workloads are pods, seen through a cache, made by plain creates.

What pods lean on is applied server-side under one field manager, and only where the object is ours by its owner's
uid; someone else's object under our name is reported, never forced over. Tokens are created and never read.
"""

from __future__ import annotations

import re

from rljob_core.api.spec import RLJob
from rljob_core.api.status import Reason
from rljob_core.errors import InvalidInputError, RLJobError
from rljob_core.lifecycle.desired import devices, replicas
from rljob_core.lifecycle.model import ApplyError, ObservedWorkload, Workload, WorkloadPhase
from rljob_core.names import PORT_COORDINATOR, Role
from rljob_core.tokens import job_token
from rljob_operator.cluster.api import CONFIG_MAPS, PODS, RLJOBS, SECRETS, SERVICES, ApiError, KubeApi, Object, Resource
from rljob_operator.cluster.children import Child, Children
from rljob_operator.pods import objects
from rljob_operator.pods.builder import build_pod
from rljob_operator.pods.template import TEMPLATE_PATH, rljob_path, role_template

_UNKNOWN_FIELD = re.compile(r'(?:unknown|duplicate) field "([^"]+)"')
_MALFORMED = (400, 422)


class JobGoneError(RLJobError):
    """The RLJob was deleted, is being deleted, or was made anew under its name: nothing is created for it."""


class KubernetesSubstrate:
    """children: caches by namespace, or one under None."""

    def __init__(
        self,
        api: KubeApi,
        children: dict[str | None, Children],
        *,
        image: str,
        install_key: bytes,
    ) -> None:
        self._api, self._children = api, children
        self._image, self._install_key = image, install_key
        self._checked: dict[str, int] = {}
        """Generation of each job whose templates passed the dry run."""

    async def observe(self, job: RLJob) -> tuple[ObservedWorkload, ...]:
        """The job's pods, from the cache, by name."""
        return tuple(child.workload for _, child in sorted(self._of(job).items()))

    async def prepare(self, job: RLJob) -> tuple[ApplyError, ...]:
        """Services, job document and token; one pod of each role is first tried in a strict dry run.

        Raises JobGoneError when the RLJob went away while nobody looked.
        """
        await self._check_exists(job)
        if error := self._earlier(job):
            return (error,)
        uid, generation = job.metadata.uid, job.metadata.generation
        if self._checked.get(uid) != generation:
            if error := await self._dry_run(job):
                return (error,)
            self._checked[uid] = generation
        error = await self._apply_all(job)
        return (error,) if error else ()

    async def create(self, job: RLJob, workload: Workload) -> ApplyError | None:
        """POST one pod. 409: the pod is there; it is a success when its owner is this very job (B38)."""
        pod = self._pod(job, workload)
        try:
            self._cache(job).put(await self._api.create(PODS, job.metadata.namespace, pod))
        except ApiError as error:
            if error.conflict:
                return await self._adopt(job, workload.name)
            return _refused(job, workload, pod, error)
        return None

    async def delete(self, job: RLJob, name: str, grace_s: float) -> ApplyError | None:
        """Delete the pod the cache knows under this name, by uid; it being gone is success."""
        child = self._of(job).get(name)
        if child is None:
            return None
        try:
            uid = child.workload.uid
            await self._api.delete(PODS, job.metadata.namespace, name, uid=uid, grace_s=grace_s)
        except ApiError as error:
            if error.not_found or error.conflict:
                return None
            return ApplyError(action="delete", name=name, reason=Reason.CREATE_FAILED, message=str(error))
        return None

    def coordinator_url(self, job: RLJob) -> str | None:
        """By address, not by name: no DNS between operator and coordinator, and never an older attempt's."""
        pods = [c for c in self._of(job).values() if c.workload.role is Role.COORDINATOR and _reachable(c)]
        if not pods:
            return None
        ip = max(pods, key=lambda child: child.workload.attempt).ip
        return f"http://[{ip}]:{PORT_COORDINATOR}" if ":" in ip else f"http://{ip}:{PORT_COORDINATOR}"

    def forget(self, job_uid: str) -> None:
        """The job is gone."""
        self._checked.pop(job_uid, None)

    def _cache(self, job: RLJob) -> Children:
        return self._children.get(job.metadata.namespace) or self._children[None]

    def _of(self, job: RLJob) -> dict[str, Child]:
        return self._cache(job).of(job.metadata.uid)

    def _pod(self, job: RLJob, workload: Workload) -> Object:
        return build_pod(job, workload, image=self._image)

    async def _check_exists(self, job: RLJob) -> None:
        there = await self._get(RLJOBS, job.metadata.namespace, job.metadata.name)
        if there is None or there["metadata"]["uid"] != job.metadata.uid or "deletionTimestamp" in there["metadata"]:
            raise JobGoneError(f"RLJob {job.metadata.namespace}/{job.metadata.name} is gone")

    def _earlier(self, job: RLJob) -> ApplyError | None:
        """Pods of a deleted RLJob of this name may still write to the checkpoint directory that is now this job's."""
        namespace, name = job.metadata.namespace, job.metadata.name
        still = self._cache(job).of_earlier(namespace, name, job.metadata.uid)
        if not still:
            return None
        message = (
            f"pods of an earlier RLJob {namespace}/{name} still run ({', '.join(still[:3])}): "
            "they are waited for; delete them where nothing removes them"
        )
        return ApplyError(action="create", name=still[0], reason=Reason.NAME_TAKEN, message=message)

    async def _apply_all(self, job: RLJob) -> ApplyError | None:
        managed_store = Role.STORE_MASTER in replicas(job)
        bodies = [(SERVICES, body) for body in objects.services(job, managed_store)]
        bodies.append((CONFIG_MAPS, objects.job_config(job)))
        for resource, body in bodies:
            if error := await self._apply(job, resource, body):
                return error
        return await self._create_token(job)

    async def _apply(self, job: RLJob, resource: Resource, body: Object) -> ApplyError | None:
        namespace, name = job.metadata.namespace, body["metadata"]["name"]
        try:
            there = await self._get(resource, namespace, name)
            if there is not None and (foreign := _foreign(job, resource, there)):
                return foreign
            await self._api.apply(resource, namespace, body, force=there is not None)
        except ApiError as error:
            return _trouble("apply", name, error)
        return None

    async def _create_token(self, job: RLJob) -> ApplyError | None:
        body = objects.token_secret(job, job_token(self._install_key, job.metadata.uid))
        try:
            await self._api.create(SECRETS, job.metadata.namespace, body)
        except ApiError as error:
            if not error.conflict:
                return _trouble("create", body["metadata"]["name"], error)
        return None

    async def _dry_run(self, job: RLJob) -> ApplyError | None:
        """The server's own check of every template before the first pod exists."""
        for role in replicas(job):
            workload = Workload(
                name=f"{job.metadata.name}-{role}-check", role=role, index=0, attempt=0, devices=devices(job, role)
            )
            try:
                pod = self._pod(job, workload)
            except InvalidInputError as error:
                return _invalid("check", workload.name, error.field, str(error))
            try:
                await self._api.create(PODS, job.metadata.namespace, pod, dry_run=True)
            except ApiError as error:
                return _refused(job, workload, pod, error)
        return None

    async def _adopt(self, job: RLJob, name: str) -> ApplyError | None:
        """What already has the pod's name: ours, or in the way."""
        try:
            there = await self._get(PODS, job.metadata.namespace, name)
        except ApiError as error:
            return _trouble("get", name, error)
        if there is None:
            return ApplyError(
                action="create", name=name, reason=Reason.CREATE_FAILED, message="the name was just freed"
            )
        if foreign := _foreign(job, PODS, there):
            return foreign
        self._cache(job).put(there)
        return None

    async def _get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        try:
            return await self._api.get(resource, namespace, name)
        except ApiError as error:
            if error.not_found:
                return None
            raise


def _reachable(child: Child) -> bool:
    return bool(child.ip) and child.workload.phase is WorkloadPhase.RUNNING


def _foreign(job: RLJob, resource: Resource, there: Object) -> ApplyError | None:
    """NameTaken unless this job's uid owns the object."""
    if objects.owner_uid(there) == job.metadata.uid:
        return None
    name = there["metadata"]["name"]
    if "deletionTimestamp" in there["metadata"]:
        why = "is still being removed"
    elif objects.owner_uid(there):
        why = "belongs to another owner, perhaps an earlier RLJob of this name that is being removed"
    else:
        why = "was made by someone else; delete it or choose another name for the RLJob"
    message = f"{resource} {job.metadata.namespace}/{name} {why}"
    return ApplyError(action="create", name=name, reason=Reason.NAME_TAKEN, message=message)


def _refused(job: RLJob, workload: Workload, pod: Object, error: ApiError) -> ApplyError:
    """A pod the API server did not take: the template's fault where it says so."""
    if error.status not in _MALFORMED:
        return _trouble("create", workload.name, error)
    unknown = _UNKNOWN_FIELD.findall(error.message)
    fields = unknown or [str(cause["field"]) for cause in error.causes if cause.get("field")]
    template = role_template(job, workload.role)
    paths = [rljob_path(workload.role, template, pod, name) for name in fields]
    path = next((p for p in paths if p != TEMPLATE_PATH[workload.role]), TEMPLATE_PATH[workload.role])
    message = f"unknown field {', '.join(unknown)}" if unknown else error.message
    return _invalid("create", workload.name, path, message)


def _invalid(action: str, name: str, path: str, message: str) -> ApplyError:
    return ApplyError(action=action, name=name, reason=Reason.INVALID_TEMPLATE, message=message, field=path)


def _trouble(action: str, name: str, error: ApiError) -> ApplyError:
    """A refusal that may pass: quota, admission, RBAC (verb and resource named, B60), or an API that is away."""
    reason = Reason.QUOTA_EXCEEDED if error.quota else Reason.CREATE_FAILED
    if error.verb_forbidden:
        message = f"the operator may not {error.verb} {error.resource}: {error.message}"
    else:
        message = error.message or str(error)
    return ApplyError(action=action, name=name, reason=reason, message=message)
