"""The pod's process: one child a device, one end, no survivors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rljob_core import names
from rljob_core.api.report import TerminationMessage
from rljob_workers.__main__ import THREAD_VARIABLES
from rljob_workers.last_words import LIMIT_BYTES, encode

pytestmark = pytest.mark.processes
LAUNCH = (
    "import os, sys; from rljob_workers.launcher import launch;"
    "sys.exit(launch(os.environ, [sys.executable, '-c', sys.argv[1]]))"
)
RANK = "import os, sys, time; rank = int(os.environ['RLJOB_LOCAL_RANK']); "


def launch(tmp_path: Path, child: str, devices: int = 2, pod_index: int = 0) -> subprocess.Popen[bytes]:
    env = dict(os.environ) | {
        names.ENV_DEVICES_PER_POD: str(devices),
        names.ENV_POD_INDEX: str(pod_index),
        names.ENV_TERMINATION_LOG: str(tmp_path / "words.json"),
    }
    return subprocess.Popen([sys.executable, "-c", LAUNCH, RANK + child], env=env, stderr=subprocess.DEVNULL)


def words(tmp_path: Path) -> TerminationMessage:
    return TerminationMessage.model_validate_json((tmp_path / "words.json").read_bytes())


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_all_devices_done_is_exit_code_zero(tmp_path: Path) -> None:
    child = f"open({str(tmp_path)!r} + f'/{{rank}}', 'w').close()"
    assert launch(tmp_path, child, devices=3).wait(30) == 0
    assert {"0", "1", "2"} <= {p.name for p in tmp_path.iterdir()}


def test_first_failing_rank_decides_code_and_words_and_ends_the_others(tmp_path: Path) -> None:
    started = time.monotonic()
    child = "sys.exit(3) if rank == 1 else time.sleep(60)"
    assert launch(tmp_path, child, pod_index=2).wait(30) == 3
    assert time.monotonic() - started < 20
    assert (words(tmp_path).rank, words(tmp_path).exit_code) == (5, 3)


def test_last_words_of_the_failing_child_are_passed_on(tmp_path: Path) -> None:
    text = json.dumps({"rank": 1, "message": "experts do not divide", "invalidInput": True})
    child = (
        f"rank == 1 and (open(os.environ['RLJOB_TERMINATION_LOG'], 'w').write({text!r}), sys.exit(64)); time.sleep(60)"
    )
    assert launch(tmp_path, child).wait(30) == 64
    assert words(tmp_path).message == "experts do not divide"
    assert words(tmp_path).invalid_input


def test_killed_child_counts_as_128_plus_signal(tmp_path: Path) -> None:
    assert launch(tmp_path, "os.kill(os.getpid(), 9) if rank == 0 else time.sleep(60)").wait(30) == 137
    assert "SIGKILL" in words(tmp_path).message


def test_signals_reach_the_children(tmp_path: Path) -> None:
    ready = [tmp_path / f"ready-{rank}" for rank in range(2)]
    child = (
        "import signal; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0));"
        f"open({str(tmp_path)!r} + f'/ready-{{rank}}', 'w').close(); time.sleep(60)"
    )
    process = launch(tmp_path, child)
    assert wait_until(lambda: all(p.exists() for p in ready), 20)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def test_nothing_survives_a_killed_supervisor(tmp_path: Path) -> None:
    """Supervisor, launcher (its own session), two children that wait for a coordinator: all gone within 5 s."""
    (tmp_path / "job.json").write_text(
        json.dumps({"metadata": {"name": "j"}, "spec": {"model": {}, "data": {}, "reward": {}, "algorithm": {}}})
    )
    supervisor = (
        "import subprocess, sys, time;"
        "p = subprocess.Popen([sys.executable, '-m', 'rljob_workers'], start_new_session=True);"
        "print(p.pid, flush=True); time.sleep(60)"
    )
    env = dict(os.environ) | {
        names.ENV_ROLE: "trainer",
        names.ENV_DEVICES_PER_POD: "2",
        names.ENV_JOB_FILE: str(tmp_path / "job.json"),
        names.ENV_COORDINATOR: "127.0.0.1:9",
        names.ENV_CHECKPOINT_DIR: str(tmp_path),
        names.ENV_TERMINATION_LOG: str(tmp_path / "words.json"),
    }
    process = subprocess.Popen(
        [sys.executable, "-c", supervisor], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    launcher = int(process.stdout.readline())
    children = Path(f"/proc/{launcher}/task/{launcher}/children")
    assert wait_until(lambda: len(children.read_text().split()) == 2, 20)
    pids = [launcher, *map(int, children.read_text().split())]
    process.kill()
    process.wait()
    process.stdout.close()
    assert wait_until(lambda: not any(alive(pid) for pid in pids), 5)


def test_failing_role_leaves_its_error_as_last_words(tmp_path: Path) -> None:
    env = {
        "PATH": os.environ["PATH"],
        names.ENV_ROLE: "coordinator",
        names.ENV_JOB_FILE: str(tmp_path / "absent.json"),
        names.ENV_TERMINATION_LOG: str(tmp_path / "words.json"),
    }
    done = subprocess.run([sys.executable, "-m", "rljob_workers"], env=env, capture_output=True, timeout=60)
    assert done.returncode == 64
    assert words(tmp_path).invalid_input
    assert "absent.json" in words(tmp_path).message


def test_threads_are_set_before_numpy_and_roles_import_what_they_need() -> None:
    """Light roles no torch; no role transformers, which is not installed with the workers."""
    check = (
        "import os, sys; from rljob_workers import __main__ as m; m._set_threads('3'); import rljob_workers.launcher;"
        "assert not {'numpy', 'torch', 'pydantic'} & set(sys.modules), sorted(sys.modules);"
        "import rljob_workers.coordinator.main;"
        "assert not {'torch', 'mooncake'} & set(sys.modules);"
        "import rljob_workers.trainer.main, rljob_workers.rollout.main;"
        "assert 'torch' in sys.modules and 'transformers' not in sys.modules;"
        f"assert {{os.environ[v] for v in {THREAD_VARIABLES!r}}} == {{'3'}}"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("character", ["x", "é", "\U0001f600", '"', "\0", "\ud800"])
def test_last_words_fit_a_termination_log(character: str) -> None:
    from rljob_core.api.report import Outcome, Report, StageTime

    stages = [StageTime(role="trainer", stage="train", seconds=i) for i in range(64)]
    report = Report(sequence=1, outcome=Outcome.FAILED, outcome_message=character * 5000, stages=stages, step=7)
    message = TerminationMessage(message=character * 9000, report=report)
    data = encode(message)
    assert len(data) <= LIMIT_BYTES
    kept = TerminationMessage.model_validate_json(data)
    assert kept.report is not None
    assert (kept.report.step, kept.report.outcome) == (7, Outcome.FAILED)
