"""What the person in front of `rljob run` sees: panel, lines, and the last lines."""

from __future__ import annotations

import os

import pytest
from rich.console import Console

from rljob_core.api import RLJob
from rljob_core.api.report import Outcome, Report
from rljob_core.api.status import FirstCause, Phase, RLJobStatus
from rljob_operator.embedded import ending
from rljob_operator.embedded.display import LivePanel, PlainLines
from rljob_operator.embedded.rundir import RunDirectory
from rljob_operator.embedded.stages import RoleStages
from rljob_operator.embedded.supervisor import Result

JOB = RLJob.from_object({"metadata": {"name": "a"}, "spec": {"model": {}, "data": {}, "reward": {}, "algorithm": {}}})


def test_stage_of_a_role_is_where_its_time_went_since_the_last_report():
    stages = RoleStages()

    def report(sequence, train, publish):
        spent = [
            {"role": "trainer", "stage": "train", "seconds": train},
            {"role": "trainer", "stage": "publish", "seconds": publish},
            {"role": "trainer", "stage": "idle", "seconds": 100.0},
        ]
        return Report(sequence=sequence, stages=spent)

    stages.see(report(1, 5.0, 1.0))
    assert stages.now == {"trainer": "train"}
    stages.see(report(2, 5.1, 3.0))
    assert stages.now == {"trainer": "publish"}
    stages.see(report(2, 9.9, 3.0))
    assert stages.now == {"trainer": "publish"}


def test_plain_lines_are_few():
    now = [0.0]
    console = Console(width=200, force_terminal=False, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with PlainLines(console, lambda: now[0]) as lines:
        for step in range(1, 11):
            now[0] += 1.0
            lines.update(RLJobStatus(), Report(sequence=step, step=step, total_steps=10, reward_mean=0.5))
    console.file.close()
    text = console.export_text()
    assert text.count("reward 0.5") == 3
    assert "step 10/10" in text


def test_panel_shows_figures_and_roles():
    console = Console(width=100, force_terminal=True, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    panel = LivePanel(console, lambda: 0.0)
    status = RLJobStatus(phase=Phase.RUNNING, roles={"trainer": {"ready": 1, "wanted": 2}})
    panel.update(status, Report(sequence=1, step=3, total_steps=9, reward_mean=0.25, eval_exact_match=0.5))
    console.print(panel._panel())
    console.file.close()
    text = console.export_text()
    for words in ("Running", "3/9", "0.25", "trainer", "1/2", "exact match"):
        assert words in text


def shown(status, report=None):
    """Text of the panel."""
    console = Console(width=100, force_terminal=True, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    panel = LivePanel(console, lambda: 0.0)
    panel.update(status, report)
    console.print(panel._panel())
    console.file.close()
    return console.export_text()


ROLES = {"trainer": {"ready": 1, "wanted": 1}, "rollout": {"ready": 1, "wanted": 1}}
WORKERS = [{"role": "trainer", "registered": 1, "wanted": 1}, {"role": "rollout", "registered": 0, "wanted": 1}]


def test_a_role_that_has_not_registered_is_loading():
    report = Report(sequence=1, workers=WORKERS)
    lines = shown(RLJobStatus(phase=Phase.RUNNING, roles=ROLES), report).splitlines()
    assert [("loading" in line) for line in lines if "1/1" in line] == [False, True]
    over = report.model_copy(update={"outcome": Outcome.STEPS_DONE})
    assert "loading" not in shown(RLJobStatus(phase=Phase.RUNNING, roles=ROLES), over), "it has left"
    console = Console(width=200, force_terminal=False, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    plain = PlainLines(console, lambda: 0.0)
    for _ in range(2):
        plain.update(RLJobStatus(phase=Phase.RUNNING), report)
    console.file.close()
    assert console.export_text() == "loading: rollout\n"


@pytest.mark.parametrize(
    ("status", "words", "hint"),
    [
        ({"phase": "Running"}, "Running", "Ctrl-C: checkpoint and stop"),
        ({"phase": "Pending", "reason": "Draining"}, "Draining", "Ctrl-C again: kill at once"),
        ({"phase": "Succeeded"}, "Succeeded", None),
    ],
)
def test_the_panel_says_what_ctrl_c_does_now(status, words, hint):
    text = shown(RLJobStatus(**status, message="m"))
    assert words in text
    assert "Pending" not in text
    assert ("Ctrl-C" in text) is (hint is not None)
    assert (hint or "") in text


def test_a_role_is_not_busy_once_the_job_has_ended():
    spent = [{"role": "trainer", "stage": "train", "seconds": 5.0}]
    report = Report(sequence=1, stages=spent)
    assert "train " in shown(RLJobStatus(phase=Phase.RUNNING, roles=ROLES), report).replace("trainer", "")
    assert "train " not in shown(RLJobStatus(phase=Phase.SUCCEEDED, roles=ROLES), report).replace("trainer", "")


def test_last_lines_of_a_failure_show_the_log(tmp_path):
    run = RunDirectory(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a-trainer-0.log").write_text("boom\n")
    cause = FirstCause(pod="a-trainer-0", role="trainer", exit_code=1, reason="Error", message="boom")
    status = RLJobStatus(phase=Phase.FAILED, reason="InvalidInput", message="bad", first_cause=cause)
    result = Result(status=status, report=None, peak_pss_bytes=0, killed=False)
    text = "\n".join(ending.lines(run, JOB, tmp_path, result, {"seconds": 3.0}))
    assert "Failed after 3 s: bad" in text
    assert "run the same command again to try once more from the beginning, or with --fresh anew" in text
    assert "first cause: trainer a-trainer-0 failed with exit code 1 (Error): boom" in text
    assert text.count("boom") == 2


@pytest.mark.parametrize(("reached", "said"), [(0.7, True), (0.75, False), (None, True)])
def test_last_lines_say_when_the_target_was_missed(tmp_path, reached, said):
    evaluation = {"generator": {"task": "reverse-digits"}, "targetExactMatch": 0.75}
    spec = {"model": {}, "data": {}, "reward": {}, "algorithm": {}, "evaluation": evaluation}
    job = RLJob.from_object({"metadata": {"name": "a"}, "spec": spec})
    status = RLJobStatus(phase=Phase.SUCCEEDED, message="all 4 steps are done")
    result = Result(status=status, report=None, peak_pss_bytes=0, killed=False)
    figures = {"seconds": 3.0, "steps": 4} | ({} if reached is None else {"eval_exact_match": reached})
    text = "\n".join(ending.lines(RunDirectory(tmp_path), job, tmp_path, result, figures))
    assert ("evaluation.targetExactMatch 0.75 was not reached" in text) is said


def test_last_lines_of_a_killed_run_say_nothing_of_what_it_was_about_to_do(tmp_path):
    status = RLJobStatus(phase=Phase.PENDING, reason="Draining", message="processes still stopping: 6")
    result = Result(status=status, report=None, peak_pss_bytes=0, killed=True)
    text = ending.lines(
        RunDirectory(tmp_path), JOB, tmp_path, result, {"seconds": 3.0, "steps": 0, "tokens_per_second": 0}
    )
    assert text == [f"{tmp_path.name}: Killed after 3 s", "  run the same command again to resume from the beginning"]


def test_last_lines_of_a_drain_say_how_to_go_on(tmp_path):
    status = RLJobStatus(phase=Phase.PENDING, reason="Drained")
    result = Result(status=status, report=None, peak_pss_bytes=0, killed=False)
    (tmp_path / "checkpoints" / "step-2").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-12.tmp").mkdir()
    text = "\n".join(ending.lines(RunDirectory(tmp_path), JOB, tmp_path, result, {"seconds": 3.0, "steps": 2}))
    assert "Drained after 3 s" in text
    assert "run the same command again to resume from the checkpoint of step 2" in text
