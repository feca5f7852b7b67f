"""Start to end of the operator process: probes, CRD, install key, Lease, caches, then RLJobs; and back down."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import aiohttp
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from rljob_operator.cluster import rljobs
from rljob_operator.cluster.api import RLJOBS, ApiError, KubeApi
from rljob_operator.cluster.children import Children
from rljob_operator.cluster.config import LEASE_NAME, OperatorConfig
from rljob_operator.cluster.controller import Jobs, Parts
from rljob_operator.cluster.health import Health, probes
from rljob_operator.cluster.install_key import install_key
from rljob_operator.cluster.lease import Lease
from rljob_operator.cluster.store import ClusterEvents, ConfigMapMemories, StatusPatcher
from rljob_operator.links import JobLinks
from rljob_operator.reconcile import Reconciler
from rljob_operator.substrates.kubernetes import KubernetesSubstrate

CRD_POLL_S = 2.0
RETRY_S = 2.0
T = TypeVar("T")

logger = logging.getLogger(__name__)


async def connect() -> ApiClient:
    """A client from the pod's service account, or from the kubeconfig outside a cluster."""
    configuration = Configuration()
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        kubernetes_config.load_incluster_config(client_configuration=configuration)
    else:
        await kubernetes_config.load_kube_config(client_configuration=configuration)
    return ApiClient(configuration)


async def run(config: OperatorConfig, client: ApiClient) -> int:
    """Exit code: 0 when told to stop, 1 when the Lease was lost or a part ended by itself."""
    _stop_on_signal()
    health = Health(time.monotonic, config.patience.limit_s)
    async with probes(health, config.probe_port), await connect() as of_lease:
        api = KubeApi(client)
        await _patiently(lambda: _crd_served(api))
        key = await _patiently(lambda: install_key(api, config.install_key_file, config.pod_namespace))
        # A connection of its own: a renewal waits for no other request, and meets one dead connection at most.
        lease = Lease(KubeApi(of_lease), config.pod_namespace, LEASE_NAME, config.pod_name, time.monotonic)
        health.ready = lease.standby.is_set
        await lease.acquire()
        try:
            return await _lead(config, client, health, lease, key)
        finally:
            await lease.release()


async def _lead(config: OperatorConfig, client: ApiClient, health: Health, lease: Lease, key: bytes) -> int:
    """Act until told to stop, or until the Lease is lost. Nothing acts any more when it returns."""
    api = KubeApi(client, may_write=lease.held)
    jobs = Jobs(config.concurrency, time.time)
    scopes: tuple[str | None, ...] = config.namespaces or (None,)
    children = {
        scope: Children(api, scope, jobs.wake, _beat(health, f"pods {scope or ''}".strip()), config.patience)
        for scope in scopes
    }

    async with aiohttp.ClientSession() as session:
        links = JobLinks(session, key, jobs.wake)
        jobs.parts = make_parts(config, api, children, jobs, links, key)

        async def stop() -> None:
            await jobs.close()
            await links.close()

        async def serve() -> None:
            for cache in children.values():
                await cache.synced.wait()
            health.ready = lambda: True
            await rljobs.serve(
                client,
                config.namespaces,
                seen=jobs.seen,
                gone=jobs.gone,
                beat=_beat(health, "rljobs"),
                patience=config.patience,
                stop=stop,
            )

        try:
            ended = await _first(serve(), lease.keep(), *(cache.run() for cache in children.values()))
        finally:
            await stop()
    return 0 if ended == 0 else 1


def make_parts(
    config: OperatorConfig,
    api: KubeApi,
    children: dict[str | None, Children],
    jobs: Jobs,
    links: JobLinks,
    key: bytes,
) -> Parts:
    """What passes are made of, on this cluster."""
    substrate = KubernetesSubstrate(api, children, image=config.worker_image, install_key=key)
    memories = ConfigMapMemories(api)
    statuses = StatusPatcher(api, jobs.status, jobs.wrote)
    reconciler = Reconciler(
        substrate=substrate,
        memories=memories,
        statuses=statuses,
        events=ClusterEvents(api, config.pod_name),
        links=links,
        clock=time.time,
    )
    return Parts(reconciler=reconciler, substrate=substrate, memories=memories, statuses=statuses, links=links)


def _beat(health: Health, watch: str) -> Callable[[], None]:
    """Announce a watch to the probes; the result is its sign of life."""
    health.beat(watch)
    return lambda: health.beat(watch)


async def _crd_served(api: KubeApi) -> None:
    """Wait for the CRD: kopf does not see one that is made after its start."""
    while not await api.served(RLJOBS):
        logger.warning("%s is not served; apply the CRD", RLJOBS)
        await asyncio.sleep(CRD_POLL_S)


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until the API server grants it."""
    while True:
        try:
            return await call()
        except ApiError as error:
            logger.warning("%s", error)
        await asyncio.sleep(RETRY_S)


async def _first(*coroutines: Coroutine[Any, Any, None]) -> int:
    """Run all until one ends, then cancel and await the others. Which one it was; its error is raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    ended = next(task for task in tasks if task in done)
    ended.result()
    return tasks.index(ended)


def _stop_on_signal() -> None:
    """End this task on SIGTERM and SIGINT, until kopf takes both over for itself."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
