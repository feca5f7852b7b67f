"""Checkpoints on a volume: a killed trainer's job goes on from there, and so does a job made again under its name."""

import pytest
import timeouts
from live import Namespace, until
from sample_jobs import short_job, small_job
from volumes import CheckpointVolume

from rljob_core.journal import lineage_prompts, replay
from rljob_core.names import checkpoint_folder

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]

STEPS, PROMPTS = 40, 64


def test_a_killed_trainer_is_resumed_from_the_checkpoint(namespace: Namespace, checkpoints: CheckpointVolume) -> None:
    body = short_job("phoenix", steps=STEPS, checkpoint={"everySteps": 5} | checkpoints.spec)
    namespace.apply(body)
    namespace.wait_running("phoenix")
    assert namespace.condition("phoenix", "Resumable")["status"] == "True"
    until(
        lambda: namespace.status("phoenix").get("lastCheckpointStep"),
        "a checkpoint",
        timeouts.SHORT_JOB_S,
        lambda: namespace.account("phoenix"),
    )
    victim = namespace.pod("phoenix", "trainer")
    namespace.kubectl("delete", "pod", victim, "--force", "--grace-period=0")

    status = namespace.wait_phase("phoenix", "Succeeded", timeouts.SHORT_JOB_S)
    assert (status["attempt"], status["step"]) == (1, STEPS)
    assert "phoenix-trainer-0-r1" in namespace.pods("phoenix")
    assert status["resumedStep"] % 5 == 0
    said = f"resumed from step {status['resumedStep']}"
    assert said in namespace.condition("phoenix", "Resumable")["message"]
    assert _resumptions(namespace, "phoenix") == [f"resumed from the checkpoint of step {status['resumedStep']}"]

    own = checkpoint_folder(namespace.name, "phoenix")
    journal = checkpoints.read(f"{own}/journal.jsonl")
    assert journal.count('"kind":"start"') == 2
    assert lineage_prompts(replay(journal.encode())) == list(range(STEPS * PROMPTS)), "each prompt once, in order"

    namespace.kubectl("delete", "rljob", "phoenix")
    namespace.wait_only(*checkpoints.objects)
    assert f"step-{STEPS}" in checkpoints.listing(own), "the volume outlives the job"


def test_jobs_share_a_volume_and_resume_by_name(namespace: Namespace, checkpoints: CheckpointVolume) -> None:
    both = {"first": 10, "second": 5}
    for name, steps in both.items():
        namespace.apply(small_job(name, steps=steps, checkpoint=checkpoints.spec))
    for name, steps in both.items():
        status = namespace.wait_phase(name, "Succeeded", timeouts.SHORT_JOB_S)
        assert (status["step"], "resumedStep" in status) == (steps, False), "nothing of another job is gone on from"
    own = [checkpoint_folder(namespace.name, name) for name in both]
    assert sorted(checkpoints.listing()) == own

    namespace.kubectl("delete", "rljob", "first")
    namespace.apply(small_job("first", steps=15, checkpoint=checkpoints.spec))
    status = namespace.wait_phase("first", "Succeeded", timeouts.SHORT_JOB_S)
    assert (status["attempt"], status["step"], status["resumedStep"]) == (0, 15, 10)
    assert _resumptions(namespace, "first") == ["resumed from the checkpoint of step 10"]
    assert "step-5" in checkpoints.listing(own[1]), "the other's are as they were"


def _resumptions(namespace: Namespace, job: str) -> list[str]:
    """Messages of the job's events that tell of a resume."""
    found = [e for e in namespace.items("events") if e["involvedObject"]["name"] == job and e["reason"] == "Resumed"]
    return [event["message"] for event in found]
