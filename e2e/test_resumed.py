"""A trainer pod dies after a checkpoint on a volume: the next attempt goes on from there, each prompt trained once."""

import pytest
import timeouts
from live import Namespace, until
from sample_jobs import short_job
from volumes import CheckpointVolume

from rljob_core.journal import lineage_prompts, replay

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

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
    assert status["attempt"] == 1
    assert status["step"] == STEPS
    assert "phoenix-trainer-0-r1" in namespace.pods("phoenix")

    journal = checkpoints.read("journal.jsonl")
    assert journal.count('"kind":"start"') == 2
    assert lineage_prompts(replay(journal.encode())) == list(range(STEPS * PROMPTS)), "each prompt once, in order"

    namespace.kubectl("delete", "rljob", "phoenix")
    namespace.wait_only(*checkpoints.objects)
    assert f"step-{STEPS}" in checkpoints.listing(), "the volume outlives the job"
