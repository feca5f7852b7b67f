"""A user's own prompts, model and reward on a cluster: a claim, ConfigMaps and the pod templates bring them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import timeouts
from live import Body, Namespace
from sample_jobs import mounting, small_job
from volumes import CLAIM, CheckpointVolume

from rljob_core.api.report import Report, TerminationMessage
from rljob_core.names import checkpoint_folder
from rljob_workers.model import initial_tensors, write_directory
from rljob_workers.text import Characters

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

STEPS, PROMPTS = 4, 16
MODEL = {
    "model_type": "qwen3_moe",
    "vocab_size": 16,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "max_position_embeddings": 64,
}
TRAINING_BASE, HELD_OUT_BASE = 40, 20
REWARDS = """
def score(prompt, response, answer, fields):
    return fields["base"] + 0.5 * (response == answer)
"""
"""What no built-in reward gives, and only with the further field of each set's lines."""


def lines(base: int) -> str:
    """Prompts under a user's own field names."""
    rows = [{"question": f"{n:02}=", "solution": f"{n:02}"[::-1], "base": base} for n in range(PROMPTS)]
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def own_files(checkpoints: CheckpointVolume, namespace: Namespace, tmp_path: Path) -> None:
    """On the claim `model`, a Hugging Face directory, and `prompts/train.jsonl`; ConfigMaps `held-out`, `rewards`."""
    files = Characters("0123456789=").files()
    write_directory(tmp_path / "model", MODEL, initial_tensors(MODEL, seed=0), files, eos_ids=[1], pad_id=0)
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    (prompts / "train.jsonl").write_text(lines(TRAINING_BASE))
    checkpoints.write(tmp_path)
    namespace.config_map("held-out", {"data.jsonl": lines(HELD_OUT_BASE)})
    namespace.config_map("rewards", {"my_rewards.py": REWARDS})


@pytest.mark.usefixtures("own_files")
def test_own_prompts_model_and_reward_are_used(namespace: Namespace, checkpoints: CheckpointVolume) -> None:
    namespace.apply(own_job("own"))
    status = namespace.wait_phase("own", "Succeeded", timeouts.SHORT_JOB_S)
    assert (status["step"], status["attempt"]) == (STEPS, 0)
    assert TRAINING_BASE <= float(status["reward"]) <= TRAINING_BASE + 0.5, "scored by the function"
    assert 0 <= float(status["evalExactMatch"]) <= 1

    report = final_report(namespace, "own")
    assert TRAINING_BASE <= report.reward_mean <= TRAINING_BASE + 0.5
    assert report.eval_step == STEPS
    assert report.eval_mean_reward is not None
    assert HELD_OUT_BASE <= report.eval_mean_reward <= HELD_OUT_BASE + 0.5, "evaluated on its own set"
    assert report.kv.hits > 10 * report.kv.misses
    assert report.reward_timeouts == 0
    trained = json.loads(checkpoints.read(f"{checkpoint_folder(namespace.name, 'own')}/latest/model/config.json"))
    assert MODEL.items() <= trained.items()


def own_job(name: str) -> Body:
    """Model, prompts and checkpoints on one claim: pods name it three times over."""
    model = {"/own": {"persistentVolumeClaim": {"claimName": CLAIM, "readOnly": True}}}
    code = {"/code": {"configMap": {"name": "rewards"}}}
    fields = {"promptField": "question", "answerField": "solution"}
    return small_job(
        name,
        STEPS,
        model={"init": None, "tokenizer": None, "path": "/own/model"},
        data={"generator": None, "persistentVolumeClaim": {"name": CLAIM, "path": "prompts/train.jsonl", **fields}},
        evaluation={"configMap": {"name": "held-out", **fields}, "prompts": PROMPTS, "everySteps": 2},
        algorithm={"promptsPerStep": 8, "groupSize": 4, "minibatches": 1},
        checkpoint=CheckpointVolume.spec,
        coordinator=mounting(model),
        trainer=mounting(model),
        rollout=mounting(model),
        reward={
            "perPosition": None,
            "function": {"entryPoint": "my_rewards:score"},
            **mounting(model | code, env=[{"name": "PYTHONPATH", "value": "/code"}]),
        },
    )


def final_report(namespace: Namespace, job: str) -> Report:
    """The coordinator's last words: figures that the status does not show."""
    pod = namespace.get("pods", f"{job}-coordinator-0")
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    report = TerminationMessage.model_validate_json(ended["message"]).report
    assert report is not None
    return report
