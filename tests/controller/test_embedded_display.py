"""What the person in front of `rljob run` sees: panel, lines, and the last lines."""

from __future__ import annotations

import os

from rich.console import Console

from rljob_core.api import RLJob
from rljob_core.api.report import Report
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


def test_last_lines_of_a_drain_say_how_to_go_on(tmp_path):
    status = RLJobStatus(phase=Phase.PENDING, reason="Drained")
    result = Result(status=status, report=None, peak_pss_bytes=0, killed=False)
    (tmp_path / "checkpoints" / "step-2").mkdir(parents=True)
    (tmp_path / "checkpoints" / "step-12.tmp").mkdir()
    text = "\n".join(ending.lines(RunDirectory(tmp_path), JOB, tmp_path, result, {"seconds": 3.0, "steps": 2}))
    assert "Drained after 3 s" in text
    assert "run the same command again to resume from the checkpoint of step 2" in text
