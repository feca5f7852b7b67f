"""A world for decide(): pods that obey plans, and the mishaps a test wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rljob_core.api import RLJob
from rljob_core.api.report import Outcome, Report, TerminationMessage
from rljob_core.api.status import Condition, RLJobStatus
from rljob_core.lifecycle.decide import decide
from rljob_core.lifecycle.model import ApplyError, Memory, Observed, ObservedWorkload, Plan, WorkloadPhase
from rljob_core.names import Role

START = 1_000_000.0


def make_job(**spec: Any) -> RLJob:
    body = {
        "metadata": {"name": "demo", "uid": "uid-1"},
        "spec": {
            "model": {"init": {"config": {"model_type": "qwen3_moe"}}},
            "data": {"generator": {"task": "reverse-digits"}},
            "reward": {"perPosition": {}},
            "algorithm": {"steps": 10},
            "trainer": {"replicas": 2, "layout": {"dp": 2}},
            "rollout": {"groups": 2},
        }
        | spec,
    }
    return RLJob.from_object(body)


@dataclass
class World:
    job: RLJob = field(default_factory=make_job)
    now: float = START
    memory: Memory = field(default_factory=Memory)
    status: RLJobStatus = field(default_factory=RLJobStatus)
    pods: dict[str, ObservedWorkload] = field(default_factory=dict)
    report: Report | None = None
    errors: tuple[ApplyError, ...] = ()
    drain: bool = False
    durable: bool = True
    units: str = "pods"
    seen: set[str] = field(default_factory=set)
    events: list[str] = field(default_factory=list)
    obeys_deletes: bool = True

    def observed(self) -> Observed:
        return Observed(
            workloads=tuple(self.pods.values()),
            report=self.report,
            errors=self.errors,
            status=self.status,
            drain_requested=self.drain,
            durable_checkpoints=self.durable,
            created_at=START,
            units=self.units,
        )

    def step(self, seconds: float = 0.0) -> Plan:
        """One pass; the world does what the plan says."""
        self.now += seconds
        self.seen |= set(self.pods)
        plan = decide(self.job, self.observed(), self.memory, self.now)
        self.errors = ()
        self.memory, self.status = plan.memory, plan.status
        self.events += [event.reason for event in plan.events]
        for name in plan.delete:
            if self.obeys_deletes:
                del self.pods[name]
            else:
                self.pods[name] = replace(self.pods[name], deleting=True)
        for w in plan.create:
            assert w.name not in self.seen, f"{w.name} existed before"
            self.pods[w.name] = ObservedWorkload(
                name=w.name,
                role=w.role,
                index=w.index,
                attempt=w.attempt,
                uid=f"u-{w.name}",
                phase=WorkloadPhase.PENDING,
            )
        return plan

    def change(self, name: str, **fields: Any) -> None:
        self.pods[name] = replace(self.pods[name], **fields)

    def ready(self) -> None:
        for name, pod in self.pods.items():
            if pod.live:
                self.change(name, phase=WorkloadPhase.RUNNING, ready=True)

    def fail(self, name: str, code: int = 1, **fields: Any) -> None:
        self.change(name, phase=WorkloadPhase.FAILED, ready=False, exit_code=code, **fields)

    def succeed(self, *roles: Role, words: TerminationMessage | None = None) -> None:
        for name, pod in self.pods.items():
            if pod.role in roles:
                last = words if pod.role is Role.COORDINATOR else None
                self.change(name, phase=WorkloadPhase.SUCCEEDED, ready=False, exit_code=0, last_words=last)

    def run(self) -> None:
        """Bring it to Running."""
        self.step()
        self.ready()
        self.report = Report(sequence=1)
        self.step()

    def condition(self, kind: str) -> Condition:
        return next(c for c in self.status.conditions if c.type == kind)

    def names(self, *roles: Role) -> list[str]:
        return sorted(pod.name for pod in self.pods.values() if pod.role in roles)


DONE = Report(sequence=9, outcome=Outcome.STEPS_DONE, step=10, total_steps=10, policy_version=10)


@pytest.fixture(scope="session")
def new_world() -> Callable[..., World]:
    return World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture(scope="session")
def new_job() -> Callable[..., RLJob]:
    return make_job


@pytest.fixture(scope="session")
def done_report() -> Report:
    return DONE
