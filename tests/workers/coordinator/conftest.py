"""A real coordinator on loopback with stub workers: threads with real links, no torch, a store in memory."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from rljob_core.api.messages import (
    Ack,
    CheckpointDone,
    Committed,
    CompletePrefill,
    CompleteReward,
    CompleteRollout,
    Published,
    Pulled,
    RewardWork,
    RolloutWork,
    StepDone,
    TakeReward,
    TakeRollout,
    TakeTrain,
    TrainCommand,
    TrainWork,
    WorkKind,
)
from rljob_core.api.report import Report
from rljob_core.api.roles import TrainerLayout
from rljob_core.api.spec import RLJob
from rljob_core.names import Role
from rljob_core.session import Settings
from rljob_workers import checkpoints
from rljob_workers.context import Context
from rljob_workers.coordinator.main import serve
from rljob_workers.coordinator.prompts import JobPrompts
from rljob_workers.kv_store.memory import MemoryPool, MemoryStore
from rljob_workers.link import CoordinatorLink, register_message
from rljob_workers.packs import Sample, pack

TOKEN = "a-token"
BUDGETS = {"kv": 1 << 24, "queue": 1 << 24, "weights": 1 << 24}

CONFIG = {
    "model_type": "qwen3_moe",
    "vocab_size": 16,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_experts": 2,
    "num_experts_per_tok": 1,
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def job(**algorithm: Any) -> RLJob:
    spec = {
        "model": {"init": {"config": CONFIG}, "tokenizer": {"characters": "0123456789="}},
        "data": {"generator": {"task": "reverse-digits", "digits": 4}, "maxPromptTokens": 8},
        "reward": {"perPosition": {}},
        "evaluation": {"generator": {"task": "reverse-digits", "digits": 4}, "prompts": 4, "everySteps": 2},
        "algorithm": {"steps": 3, "promptsPerStep": 4, "groupSize": 2, **algorithm},
        "rollout": {"groups": 2, "maxSequences": 8, "sampling": {"maxResponseTokens": 6}},
        "checkpoint": {"everySteps": 2},
    }
    return RLJob.from_object({"metadata": {"name": "stub", "uid": "uid"}, "spec": spec})


@dataclass
class Stage:
    """One job directory: coordinators and workers come and go, store and files stay."""

    path: Path
    job: RLJob
    pool: MemoryPool = field(default_factory=MemoryPool)
    lags: list[int] = field(default_factory=list)
    trained: list[int] = field(default_factory=list)
    refused: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port = free_port()

    def context(self, role: Role, index: int = 0, incarnation: int = 0) -> Context:
        return Context(
            job=self.job,
            role=role,
            pod_name=f"stub-{role}-{index}",
            pod_uid=f"{role}-{index}-{incarnation}",
            pod_index=index,
            token=TOKEN,
            coordinator=f"127.0.0.1:{self.port}",
            listen=f"127.0.0.1:{self.port}",
            run_dir=self.path / "run",
            checkpoint_dir=self.path / "checkpoints",
            checkpoint_durable=True,
            termination_log=self.path / f"{role}-{index}.json",
            started_at=1.0,
        )

    def link(self, role: Role, index: int = 0, incarnation: int = 0) -> CoordinatorLink:
        return CoordinatorLink(self.context(role, index, incarnation), connect_s=10.0, reconnect_s=2.0)

    def store(self) -> MemoryStore:
        return MemoryStore(budgets=BUDGETS, pool=self.pool)

    # Stub workers: blocking functions, each in a thread.

    def trainer(self) -> None:
        context = self.context(Role.TRAINER)
        checkpoint = checkpoints.newest(self.path / "checkpoints")
        step, version = (checkpoint.meta.step if checkpoint else 0), -1
        with self.link(Role.TRAINER) as link:
            link.start(register_message(context, resumed_step=step or -1))
            while True:
                work = link.call(TakeTrain(), TrainWork)
                if work.command is TrainCommand.STOP:
                    return
                if work.command is TrainCommand.TRAIN:
                    self.lags += [version - v for v in work.first_versions]
                    self.trained += work.prompt_ids[:: self.job.spec.algorithm.group_size]
                    step = work.step
                    done = StepDone(step=step, metrics={"loss": 1.5}, expert_counts=[[3, 1]])
                    link.call(done, Ack)
                if work.command in (TrainCommand.TRAIN, TrainCommand.PUBLISH):
                    version = work.version
                    link.call(Published(version=version, bytes=8, seconds=0.01), Ack)
                if work.checkpoint_after or work.command is TrainCommand.CHECKPOINT:
                    self._checkpoint(work, version)
                    link.call(CheckpointDone(step=work.step), Ack)

    def _checkpoint(self, work: TrainWork, version: int) -> None:
        building = checkpoints.begin(self.path / "checkpoints", work.step)
        checkpoints.write_file(building / checkpoints.COORDINATOR, json.dumps(work.coordinator_state).encode())
        meta = checkpoints.CheckpointMeta(step=work.step, version=version, world=1, layout=TrainerLayout(), seed=0)
        checkpoints.finish(building, meta)

    def rollout(self, group: int, incarnation: int = 0, die_after: int = -1) -> None:
        """die_after: decode batches after which the link breaks without a goodbye, work in hand."""
        store, version, decoded = self.store(), -1, 0
        link = self.link(Role.ROLLOUT, group, incarnation)
        link.start(register_message(self.context(Role.ROLLOUT, group, incarnation)))
        while True:
            work = link.call(TakeRollout(version=version, free_sequences=8, in_flight=0), RolloutWork)
            if work.kind is WorkKind.PULL:
                version = work.version
                link.call(Pulled(version=version, bytes=8, seconds=0.01), Ack)
            elif work.kind is WorkKind.PREFILL:
                keys = [f"kv/{version}/{'-'.join(map(str, tokens))}" for tokens in work.prompts]
                store.put(dict.fromkeys(keys, b"kv"))
                link.call(self.prefilled(work, keys), Ack)
            elif work.kind is WorkKind.DECODE:
                if decoded == die_after:
                    link.close()
                    return
                decoded += 1
                done = self.decoded(work)
                store.put({done.pack_key: self.packed(work)})
                self.refused += [not a for a in link.call(done, Committed).accepted]
            elif work.kind is WorkKind.STOP:
                link.goodbye()
                link.close()
                return

    @staticmethod
    def prefilled(work: RolloutWork, keys: list[str]) -> CompletePrefill:
        return CompletePrefill(
            version=work.version, rows=work.rows, attempts=work.attempts, kv_keys=keys, kv_bytes=[2] * len(keys)
        )

    @staticmethod
    def packed(work: RolloutWork) -> bytes:
        responses = np.array([3, 4, 5, 1], np.int32)
        return pack(
            [Sample(prompt_ids=np.array(p, np.int32), response_ids=responses, logprobs=np.zeros(4, np.float32))
             for p in work.prompts]
        )  # fmt: skip

    @staticmethod
    def decoded(work: RolloutWork) -> CompleteRollout:
        n = len(work.rows)
        return CompleteRollout(
            table=work.table, rows=work.rows, attempts=work.attempts,
            pack_key=f"queue/{work.table}/{work.rows[0]}.{work.attempts[0]}", pack_bytes=4 * n,
            first_versions=[work.version] * n, last_versions=[work.version] * n, prompt_lengths=[5] * n,
            response_lengths=[4] * n, finish_reasons=["eos"] * n, kv_hits=n, first_token_at=2.0,
        )  # fmt: skip

    def reward(self) -> None:
        with self.link(Role.REWARD) as link:
            link.start(register_message(self.context(Role.REWARD)))
            while True:
                work = link.call(TakeReward(max_rows=64), RewardWork)
                if work.kind is WorkKind.STOP:
                    return
                if work.kind is WorkKind.DECODE:
                    n = len(work.rows)
                    done = CompleteReward(
                        rows=work.rows, attempts=work.attempts, rewards=[0.5] * n, exact=[False] * n,
                        responses=work.answers,
                    )  # fmt: skip
                    link.call(done, Committed)

    # The coordinator and its clients.

    @asynccontextmanager
    async def coordinator(self) -> AsyncIterator[asyncio.Task[int]]:
        """Up and serving; the task's result is its exit code."""
        context = self.context(Role.COORDINATOR)
        prompts = JobPrompts.open(self.job.spec)
        task = asyncio.create_task(serve(context, Settings.of(self.job.spec), prompts, self.store()))
        try:
            for _ in range(500):
                if task.done() or (await self.get("/healthz", token=""))[0] == 200:
                    break
                await asyncio.sleep(0.02)
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def get(self, path: str, token: str = TOKEN) -> tuple[int, str]:
        return await self._request("GET", path, token)

    async def put(self, path: str, body: bytes, token: str = TOKEN) -> tuple[int, str]:
        return await self._request("PUT", path, token, body)

    async def report(self, query: str = "") -> Report:
        status, body = await self.get(f"/v1/report{query}")
        assert status == 200, body
        return Report.model_validate_json(body)

    async def direct(self, revision: int, **more: Any) -> tuple[int, str]:
        body = {"protocolMajor": 1, "revision": revision, "staleSync": {"maxVersionLag": 1}, **more}
        return await self.put("/v1/directive", json.dumps(body).encode())

    async def _request(self, method: str, path: str, token: str, body: bytes | None = None) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with aiohttp.ClientSession() as session:
            try:
                url = f"http://127.0.0.1:{self.port}{path}"
                async with session.request(method, url, headers=headers, data=body) as response:
                    return response.status, await response.text()
            except aiohttp.ClientConnectorError:
                return 0, ""

    async def run_workers(self, coordinator: asyncio.Task[int], *extra: Awaitable[Any]) -> int:
        """All workers until the job is over; the coordinator's exit code."""
        workers = [self.trainer, self.reward, lambda: self.rollout(0), lambda: self.rollout(1)]
        await asyncio.gather(*(asyncio.to_thread(w) for w in workers), *extra)
        return await coordinator


@pytest.fixture
def stage(tmp_path: Path) -> Callable[..., Stage]:
    """`stage(steps=5, ...)`: a job directory; arguments change spec.algorithm."""

    def make(max_version_lag: int = 1, **algorithm: Any) -> Stage:
        made = job(**algorithm)
        spec = made.spec.model_copy(
            update={"stale_sync": made.spec.stale_sync.model_copy(update={"max_version_lag": max_version_lag})}
        )
        return Stage(tmp_path, made.model_copy(update={"spec": spec}))

    return make
