"""`rljob run` before any process is started: refusals, finished, failed and foreign run directories."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys

import pytest

from rljob_core.api import RLJob
from rljob_core.api.report import Report
from rljob_core.api.status import FirstCause, Phase, Restarts, RLJobStatus
from rljob_core.errors import InvalidInputError
from rljob_core.lifecycle.model import Ending, Event, GangMember, Memory
from rljob_operator.cli import main
from rljob_operator.embedded.earlier import go_on
from rljob_operator.embedded.inputs import changed_fields, load_job
from rljob_operator.embedded.memory_use import command_started_at, descendants, summed_pss
from rljob_operator.embedded.rundir import Identity, RunDirectory
from rljob_operator.embedded.stores import FileEvents, FileMemory, FileStatus
from rljob_operator.embedded.summary import merged

SPEC = """
apiVersion: rljob.dev/v1alpha1
kind: RLJob
metadata: {name: tiny}
spec:
  model:
    init:
      config: {model_type: qwen3_moe, vocab_size: 16, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2,
               num_key_value_heads: 1, head_dim: 8, num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 16,
               max_position_embeddings: 64}
    tokenizer: {characters: "0123456789="}
  data: {generator: {task: reverse-digits}, maxPromptTokens: 8}
  reward: {perPosition: {}}
  rollout: {sampling: {maxResponseTokens: 6}}
  algorithm: {steps: 4}
"""

JOB = RLJob.from_object({"metadata": {"name": "a"}, "spec": {"model": {}, "data": {}, "reward": {}, "algorithm": {}}})


@pytest.fixture
def rljob(tmp_path, monkeypatch):
    """Run the command on a spec; exit code."""
    monkeypatch.chdir(tmp_path)

    def run(spec=SPEC, *options):
        (tmp_path / "job.yaml").write_text(spec)
        return main(["run", "job.yaml", *options])

    return run


def began(folder, status=None, **changes):
    """A run directory as an earlier command left it."""
    run = RunDirectory(folder / "runs" / "tiny")
    run.path.mkdir(parents=True)
    job = load_job(folder / "job.yaml")
    metadata = job.metadata.model_copy(update={"uid": "u1"})
    run.begin(Identity(job=job.model_copy(update={"metadata": metadata} | changes), created_at=5.0))
    if status is not None:
        run.status_file.write_text(json.dumps(status.to_wire()))
    return run


def test_invalid_file_is_refused_with_line_and_remedy(rljob, tmp_path, capsys):
    assert rljob(SPEC.replace("steps: 4", "steps: 0")) == 64
    assert "job.yaml:" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("generator: {task: reverse-digits}", "configMap: {name: c}"), "spec.data.configMap"),
        (
            ("algorithm:", "checkpoint: {volume: {persistentVolumeClaim: {name: c}}}\n  algorithm:"),
            "spec.checkpoint.volume.persistentVolumeClaim",
        ),
    ],
)
def test_what_only_a_cluster_has_is_refused(rljob, capsys, change, words):
    assert rljob(SPEC.replace(*change)) == 64
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("summary", [None, {"steps": 4, "eval_exact_match": 0.5}])
def test_a_run_that_succeeded_stays_as_it_is_and_shows_its_figures(rljob, tmp_path, capsys, summary):
    (tmp_path / "job.yaml").write_text(SPEC)
    run = began(tmp_path, RLJobStatus(phase=Phase.SUCCEEDED, message="so it was"))
    if summary is not None:
        run.summary_file.write_text(json.dumps(summary))
    assert rljob() == 0
    out = capsys.readouterr().out
    assert "has already ended: Succeeded (so it was)" in out
    assert ("steps 4, held-out exact match 0.5" in out) is (summary is not None)
    assert "report       runs/tiny/report.html" in out
    assert "to train again, run with --fresh" in out
    assert json.loads(run.status_file.read_text())["message"] == "so it was"


def test_a_run_that_succeeded_is_not_what_a_changed_file_asks_for(rljob, tmp_path, capsys):
    (tmp_path / "job.yaml").write_text(SPEC)
    began(tmp_path, RLJobStatus(phase=Phase.SUCCEEDED, message="so it was"))
    assert rljob(SPEC.replace("steps: 4", "steps: 5")) == 64
    err = capsys.readouterr().err
    assert "algorithm.steps" in err
    assert "that run has succeeded; run with --fresh" in err


def failed_run(folder, checkpoint=None):
    """A run directory whose job ended Failed in its second attempt."""
    (folder / "job.yaml").write_text(SPEC)
    cause = FirstCause(pod="tiny-trainer-0", role="trainer", exit_code=1)
    restarts = Restarts(counted=3, uncounted=1)
    failed = {"reason": "BackoffLimitExceeded", "attempt": 1, "restarts": restarts, "first_cause": cause}
    run = began(folder, RLJobStatus(phase=Phase.FAILED, **failed))
    ending = Ending(phase=Phase.FAILED, reason="BackoffLimitExceeded")
    memory = Memory(attempt=1, counted_restarts=3, uncounted_restarts=1, start_time=5.0, ending=ending)
    run.memory_file.write_text(memory.model_dump_json(by_alias=True))
    if checkpoint is not None:
        (run.path / f"checkpoints/step-{checkpoint}").mkdir(parents=True)
    return run


def gone_on(run, spec=SPEC):
    """What `rljob run` makes of it before any process is started: (identity, what it said)."""
    (run.path.parents[1] / "job.yaml").write_text(spec)
    said = []
    job = load_job(run.path.parents[1] / "job.yaml")
    return go_on(run, run.identity(), job, run.path.parents[1], said.append, 9.0), said


@pytest.mark.parametrize(("step", "start"), [(None, "the beginning"), (4, "the checkpoint of step 4")])
async def test_a_failed_run_is_tried_again_and_says_so(tmp_path, step, start):
    run = failed_run(tmp_path, step)
    identity, said = await asyncio.to_thread(gone_on, run)
    assert said == [
        f"tiny ended Failed (BackoffLimitExceeded): trying again from {start}, with 3 restarts"
        " (spec.lifecycle.backoffLimit)"
    ]
    assert (identity.job.metadata.uid, identity.created_at) == ("u1", 5.0)
    memory = await FileMemory(run).load(identity.job)
    assert (memory.attempt, memory.counted_restarts, memory.ending) == (2, 0, None)
    status = FileStatus(run).current
    assert (status.phase, status.attempt, status.first_cause) == (Phase.PENDING, 2, None)


def test_a_failed_run_takes_a_corrected_spec_while_it_has_no_checkpoint(tmp_path):
    corrected = SPEC.replace("steps: 4", "steps: 5")
    run = failed_run(tmp_path)
    identity, _ = gone_on(run, corrected)
    assert identity.job.spec.algorithm.steps == 5
    assert run.identity() == identity
    (run.path / "checkpoints/step-2").mkdir(parents=True)
    run.status_file.write_text(json.dumps(RLJobStatus(phase=Phase.FAILED).to_wire()))
    with pytest.raises(InvalidInputError, match=r"spec.algorithm.steps: 5 -> 4"):
        gone_on(run, SPEC)


def test_how_long_to_try_may_change_at_any_time(tmp_path):
    run = failed_run(tmp_path, checkpoint=2)
    identity, (said,) = gone_on(run, SPEC.replace("algorithm:", "lifecycle: {backoffLimit: 9}\n  algorithm:"))
    assert "with 9 restarts" in said
    assert run.identity() == identity


def test_another_spec_does_not_resume(rljob, tmp_path, capsys):
    (tmp_path / "job.yaml").write_text(SPEC)
    began(tmp_path)
    assert rljob(SPEC.replace("steps: 4", "steps: 5")) == 64
    err = capsys.readouterr().err
    assert "'spec.algorithm.steps: 4 -> 5' cannot change on an existing run yet" in err
    assert "--fresh" in err


def test_one_supervisor_a_run_directory(rljob, tmp_path, capsys):
    with RunDirectory(tmp_path / "runs" / "tiny").locked():
        assert rljob() == 64
    assert f"in use by process {os.getpid()}" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["job.json", "memory.json", "status.json"])
@pytest.mark.parametrize("text", ["", '{"broken', "[]", '{"phase": 5, "metadata": {}, "attempt": "x"}'])
def test_a_damaged_run_directory_is_named_with_the_way_out(rljob, tmp_path, capsys, name, text):
    (tmp_path / "job.yaml").write_text(SPEC)
    run = began(tmp_path)
    (run.path / name).write_text(text)
    assert rljob() == 64
    err = capsys.readouterr().err
    assert name in err
    assert "--fresh" in err
    assert run.move_aside() == run.path.with_name("tiny.1")


def test_runs_that_cannot_be_written_are_refused(rljob, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert rljob(SPEC, "--runs", "file/runs") == 64
    assert "cannot be written (Not a directory); choose another --runs" in capsys.readouterr().err


def test_a_checkpoint_directory_that_cannot_be_written_is_refused_before_the_run_begins(rljob, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    volume = f"checkpoint: {{volume: {{hostPath: {{path: {tmp_path}/file}}}}}}\n  algorithm:"
    assert rljob(SPEC.replace("algorithm:", volume)) == 64
    assert "spec.checkpoint.volume.hostPath.path" in capsys.readouterr().err
    assert not (tmp_path / "runs/tiny/job.json").exists(), "a corrected file is not another spec"


def test_ctrl_c_before_the_run_has_begun_is_no_traceback(rljob, tmp_path, monkeypatch):
    def interrupted(path, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("rljob_operator.embedded.inputs.check_file", interrupted)
    assert rljob() == 130
    assert not (tmp_path / "runs").exists()


def test_fresh_refuses_a_directory_that_would_be_resumed(rljob, tmp_path, capsys):
    volume = f"checkpoint: {{volume: {{hostPath: {{path: {tmp_path}/kept}}}}}}\n  algorithm:"
    (tmp_path / "kept" / "default.other" / "step-4").mkdir(parents=True)
    run = RunDirectory(tmp_path / "runs" / "tiny")
    (tmp_path / "job.yaml").write_text(SPEC.replace("algorithm:", volume))
    job = load_job(tmp_path / "job.yaml")
    assert run.newest_checkpoint(job, tmp_path) is None, "another job's, in the same volume"
    (tmp_path / "kept" / "default.tiny" / "step-4").mkdir(parents=True)
    assert run.newest_checkpoint(job, tmp_path) == 4
    assert rljob(SPEC.replace("algorithm:", volume), "--fresh") == 64
    assert "hostPath" in capsys.readouterr().err


def test_move_aside_keeps_every_earlier_run(tmp_path):
    (tmp_path / "job.yaml").write_text(SPEC)
    assert began(tmp_path).move_aside().name == "tiny.1"
    assert began(tmp_path).move_aside().name == "tiny.2"
    assert RunDirectory(tmp_path / "runs" / "tiny").move_aside() is None


def test_relative_paths_are_relative_to_the_file(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1=", "answer": "1"}\n')
    spec = SPEC.replace("generator: {task: reverse-digits}", "jsonLines: {path: rows.jsonl}", 1)
    (tmp_path / "job.yaml").write_text(spec)
    job = load_job(tmp_path / "job.yaml")
    assert job.spec.data.json_lines.path == str(tmp_path / "rows.jsonl")


def test_changed_fields_name_path_and_values():
    base = {"model": {"path": "/m"}, "data": {}, "reward": {}, "algorithm": {"steps": 1}}
    one = RLJob.from_object({"metadata": {"name": "a"}, "spec": base})
    two = RLJob.from_object({"metadata": {"name": "a"}, "spec": base | {"algorithm": {"steps": 2}}})
    assert changed_fields(one.spec, two.spec) == ["spec.algorithm.steps: 1 -> 2"]
    assert changed_fields(one.spec, one.spec) == []


async def test_memory_and_status_survive(tmp_path):
    run = RunDirectory(tmp_path)
    job = JOB
    assert await FileMemory(run).load(job) == Memory()
    memory = Memory(attempt=2, gang=[GangMember(name="a-trainer-0", uid="u")], final_report=Report(sequence=4))
    await FileMemory(run).save(job, memory)
    assert await FileMemory(run).load(job) == memory
    status = RLJobStatus(phase=Phase.RUNNING, step=3)
    await FileStatus(run).write(job, status)
    assert FileStatus(run).current == status
    heard = []
    await FileEvents(run, lambda: 0.0, heard.append).post(job, Event(type="Normal", reason="Running", message="m"))
    assert json.loads(run.events_file.read_text())["reason"] == "Running"
    assert heard


def test_token_is_readable_by_its_owner_only(tmp_path):
    run = RunDirectory(tmp_path)
    run.write_token(tmp_path / "token", "one")
    run.write_token(tmp_path / "token", "two")
    assert (tmp_path / "token").read_text() == "two"
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


def test_lock_names_its_owner(tmp_path):
    first, second = RunDirectory(tmp_path / "r"), RunDirectory(tmp_path / "r")
    with first.locked(), pytest.raises(InvalidInputError, match=str(os.getpid())), second.locked():
        pass
    with second.locked():
        pass


def test_summary_prefers_the_coordinators_figures_and_its_own_times():
    report = Report(sequence=1, step=4, first_token_at=112.0)
    out = merged(
        {"steps": 5, "seconds": 1, "kv": {"hits": 3}},
        report,
        RLJobStatus(phase=Phase.SUCCEEDED),
        created_at=100.0,
        started_at=100.0,
        ended_at=130.0,
        peak_pss_bytes=7,
    )
    assert (out["steps"], out["seconds"], out["startup_seconds"], out["phase"]) == (5, 30.0, 12.0, "Succeeded")
    assert (out["kv"], out["peak_pss_bytes"], out["restarts"]) == ({"hits": 3}, 7, 0)


def test_startup_of_a_resumed_run_stays_that_of_its_first_command():
    report = Report(sequence=1, first_token_at=50.0)
    out = merged({}, report, RLJobStatus(), created_at=40.0, started_at=100.0, ended_at=130.0, peak_pss_bytes=0)
    assert (out["startup_seconds"], out["seconds"]) == (10.0, 30.0)


def test_pss_counts_children_too():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in descendants(os.getpid())
        assert summed_pss(os.getpid()) > 1 << 20
        child.stdin.close()


def test_command_start_lies_in_the_past():
    import time

    assert 0.0 < time.time() - command_started_at(time.time()) < 24 * 3600
