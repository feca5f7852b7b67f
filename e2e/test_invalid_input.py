"""What only data, model or reward can show ends a job as Failed, without retries; the pods' logs stay."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import timeouts
from live import ROOT, Body, Namespace, alive, until
from sample_jobs import mounting, small_job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

FILES = "files"
NO_END = (ROOT / "tests/samples/unfit/data/tokenizer/tokenizer.json").read_text()
PROMPTS: Body = {"generator": None, "configMap": {"name": FILES, "key": "prompts"}}
TOKENIZER = mounting({"/tokenizer": {"configMap": {"name": FILES}}})


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """spec: groups laid over a small job. files: of a ConfigMap. says: field, problem and remedy."""

    spec: Body
    files: dict[str, str] = field(default_factory=dict)
    says: tuple[str, str, str]


CASES = {
    "malformed-line": Wrong(
        spec={"data": PROMPTS},
        files={"prompts": '{"prompt": "12=", "answer": "21"}\n{"prompt": "34=", "answer": "43"}\n{"prompt": "56="\n'},
        says=("spec.data.configMap.key", "line 3 is not JSON", "write one JSON object a line"),
    ),
    "missing-file": Wrong(
        spec={"data": {"generator": None, "jsonLines": {"path": "/data/nowhere.jsonl"}}},
        says=("spec.data.jsonLines.path", "'/data/nowhere.jsonl' does not exist", "mount the volume"),
    ),
    "prompt-over-the-limit": Wrong(
        spec={"data": PROMPTS},
        files={"prompts": '{"prompt": "12=", "answer": "21"}\n{"prompt": "12345678=", "answer": "87654321"}\n'},
        says=("spec.data.configMap.key", "line 2 holds a prompt of 9 tokens", "set spec.data.longPrompt to Drop"),
    ),
    "experts-not-divided": Wrong(
        spec={
            "model": {"init": {"config": {"num_experts": 7}}},
            "trainer": {"devicesPerPod": 2, "layout": {"dp": 2, "ep": 2}},
        },
        says=("spec.trainer.layout.ep", "does not divide the model's 7 experts", "use a divisor of num_experts"),
    ),
    "no-end-of-sequence": Wrong(
        spec={
            "model": {"tokenizer": {"characters": None, "path": "/tokenizer"}},
            "coordinator": TOKENIZER,
            "trainer": TOKENIZER,
            "rollout": TOKENIZER,
            "reward": TOKENIZER,
        },
        files={"tokenizer.json": NO_END},
        says=("spec.model.tokenizer.path", "eos_token", "tokenizer_config.json"),
    ),
    "reward-without-module": Wrong(
        spec={"reward": {"perPosition": None, "function": {"entryPoint": "nowhere:score"}}},
        says=("spec.reward.function.entryPoint", "No module named 'nowhere'", "PYTHONPATH"),
    ),
    "reward-without-function": Wrong(
        spec={"reward": {"perPosition": None, "function": {"entryPoint": "json:score"}}},
        says=("spec.reward.function.entryPoint", "'json' has no attribute 'score'", "correct it"),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_wrong_input_ends_the_job_and_names_field_and_remedy(namespace: Namespace, name: str) -> None:
    wrong = CASES[name]
    namespace.config_map(FILES, wrong.files)
    namespace.apply(small_job(name, **wrong.spec))

    status = namespace.wait_phase(name, "Failed", timeouts.FAILED_S)
    assert status["reason"] == "InvalidInput"
    for part in wrong.says:
        assert part in status["message"]
    cause = status["firstCause"]
    assert cause["exitCode"] == 64

    def ended() -> bool:
        return not any(alive(pod) for pod in namespace.pods(name).values())

    until(ended, "all pods ended", timeouts.GONE_S, lambda: namespace.account(name))
    status = namespace.status(name)
    assert (status["attempt"], status["restarts"]) == (0, {"counted": 0, "uncounted": 0}), "not tried again"
    assert wrong.says[1] in namespace.kubectl("logs", cause["pod"]), "the log of the pod that found it is kept"
