"""The process substrate with small real processes in place of workers."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time

import pytest

from rljob_core.api import RLJob
from rljob_core.lifecycle.model import Workload, WorkloadPhase
from rljob_core.names import Role
from rljob_operator.substrates.ports import FIRST, LAST, Ports
from rljob_operator.substrates.processes import Places, ProcessSubstrate

pytestmark = pytest.mark.processes

JOB = RLJob.from_object(
    {
        "metadata": {"name": "demo", "uid": "u1"},
        "spec": {"model": {"path": "/m"}, "data": {}, "reward": {}, "algorithm": {}, "rollout": {"groups": 2}},
    }
)
TRAINER = Workload(name="demo-trainer-0", role=Role.TRAINER, index=0, attempt=0, devices=1)


@pytest.fixture
def start(tmp_path):
    """Substrate whose workers run the given Python code."""
    started = []

    def make(code):
        places = Places(
            run=tmp_path,
            checkpoints=tmp_path / "checkpoints",
            logs=tmp_path / "logs",
            words=tmp_path / "words",
            job_file=tmp_path / "job.json",
            token_file=tmp_path / "token",
            code=tmp_path / "code",
        )
        substrate = ProcessSubstrate(
            places=places,
            environ=dict(os.environ) | {"RLJOB_ROLE": "none of this is inherited"},
            parent_pid=os.getpid(),
            started_at=1.0,
            clock=time.time,
            wake=lambda: None,
            rng=random.Random(),
            command=(sys.executable, "-c", code),
        )
        started.append(substrate)
        return substrate

    return make


async def run(substrate, workload=TRAINER):
    assert await substrate.prepare(JOB) == ()
    assert await substrate.create(JOB, workload) is None
    return await ended(substrate)


async def ended(substrate):
    async with asyncio.timeout(20):
        while substrate.pids():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return await substrate.observe(JOB)


async def test_exit_code_and_log(start):
    substrate = start("import os; print('hello from', os.environ['RLJOB_POD_NAME'])")
    (seen,) = await run(substrate)
    assert (seen.phase, seen.exit_code, seen.role) == (WorkloadPhase.SUCCEEDED, 0, Role.TRAINER)
    assert "hello from demo-trainer-0" in substrate.log("demo-trainer-0").read_text()


async def test_last_words_are_read(start):
    code = """
import os, pathlib
pathlib.Path(os.environ["RLJOB_TERMINATION_LOG"]).write_text('{"invalidInput": true, "rank": 3, "message": "bad row"}')
raise SystemExit(64)
"""
    (seen,) = await run(start(code))
    assert (seen.phase, seen.exit_code) == (WorkloadPhase.FAILED, 64)
    assert (seen.last_words.invalid_input, seen.last_words.rank, seen.message) == (True, 3, "bad row")


async def test_without_last_words_the_end_of_the_log_speaks(start):
    (seen,) = await run(start("raise RuntimeError('boom')"))
    assert seen.exit_code == 1
    assert "RuntimeError: boom" in seen.message


async def test_death_by_signal(start):
    (seen,) = await run(start("import os; os.kill(os.getpid(), 9)"))
    assert (seen.exit_code, seen.reason) == (137, "SIGKILL")


async def test_delete_asks_then_the_process_is_forgotten(start):
    substrate = start("import time; time.sleep(60)")
    await substrate.prepare(JOB)
    await substrate.create(JOB, TRAINER)
    (seen,) = await substrate.observe(JOB)
    assert (seen.phase, seen.ready) == (WorkloadPhase.RUNNING, True)
    await substrate.delete(JOB, TRAINER.name, 10.0)
    await ended(substrate)
    assert await substrate.observe(JOB) == ()
    assert await substrate.delete(JOB, TRAINER.name, 10.0) is None
    assert substrate.log(TRAINER.name).exists()


async def test_delete_kills_what_does_not_listen_and_its_children(start, tmp_path):
    code = f"""
import signal, subprocess, sys, time, pathlib
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path({str(tmp_path / "child")!r}).write_text(str(child.pid))
time.sleep(60)
"""
    substrate = start(code)
    await substrate.prepare(JOB)
    await substrate.create(JOB, TRAINER)
    async with asyncio.timeout(20):
        while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await substrate.delete(JOB, TRAINER.name, 0.1)
    await ended(substrate)
    child = int((tmp_path / "child").read_text())
    async with asyncio.timeout(5):
        while _runs(child):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_creating_what_exists_is_success(start):
    substrate = start("import time; time.sleep(60)")
    await substrate.prepare(JOB)
    await substrate.create(JOB, TRAINER)
    (pid,) = substrate.pids()
    assert await substrate.create(JOB, TRAINER) is None
    assert substrate.pids() == [pid]
    await substrate.kill()
    assert substrate.pids() == []


async def test_a_refusal_of_the_machine_is_an_error_not_an_exception(start):
    substrate = start("")
    substrate._command = ("/no/such/program",)
    await substrate.prepare(JOB)
    error = await substrate.create(JOB, TRAINER)
    assert (error.reason, error.name) == ("CreateFailed", TRAINER.name)


async def test_environment(start, tmp_path):
    substrate = start("import os, json; print(json.dumps(dict(os.environ)))")
    await run(substrate, Workload(name="demo-rollout-1", role=Role.ROLLOUT, index=1, attempt=2, devices=1))
    env = json.loads(substrate.log("demo-rollout-1").read_text())
    assert env["RLJOB_ROLE"] == "rollout"
    assert env["RLJOB_ATTEMPT"] == "2"
    assert env["RLJOB_THREADS"] == "1"
    assert env["RLJOB_PARENT_PID"] == str(os.getpid())
    assert env["RLJOB_POD_IP"] == "127.0.0.1"
    assert env["RLJOB_CHECKPOINT_DIR"] == str(tmp_path / "checkpoints")
    assert env["RLJOB_CHECKPOINT_DURABLE"] == "true"
    assert substrate.coordinator_url(JOB) == f"http://{env['RLJOB_COORDINATOR']}"


async def test_a_relative_pythonpath_still_holds_where_the_reward_process_starts(start, tmp_path):
    substrate = start("import os; print(os.environ['PYTHONPATH'])")
    substrate._environ = substrate._environ | {"PYTHONPATH": f"mine{os.pathsep}{os.pathsep}/abs"}
    await run(substrate, Workload(name="demo-reward-0", role=Role.REWARD, index=0, attempt=0))
    folders = substrate.log("demo-reward-0").read_text().strip().split(os.pathsep)
    assert folders == [os.path.abspath("mine"), "/abs", str(tmp_path / "code")]


def test_ports_are_stable_distinct_and_below_the_ephemeral_range():
    ports = Ports(random.Random(1))
    chosen = {purpose: ports.of(purpose) for purpose in map(str, range(50))}
    assert len(set(chosen.values())) == 50
    assert all(FIRST <= port < LAST for port in chosen.values())
    assert ports.of("7") == chosen["7"]
