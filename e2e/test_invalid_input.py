"""What only data or model can show ends a job as Failed, without retries; the pods' logs stay."""

import pytest
import timeouts
from live import Body, Namespace
from sample_jobs import short_job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

LINES = '{"prompt": "12=", "answer": "21"}\n{"prompt": "34=", "answer": "43"}\n{"prompt": "56=", "answer"\n'


def test_a_malformed_line_is_named_by_its_number(namespace: Namespace) -> None:
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "prompts"}}
    namespace.apply(config_map | {"data": {"data.jsonl": LINES}})
    data = {"generator": None, "configMap": {"name": "prompts"}}
    status = _failed(namespace, short_job("malformed", data=data))
    assert "line 3" in status["message"]


def test_experts_that_do_not_divide_are_named(namespace: Namespace) -> None:
    config = {"num_experts": 7}
    status = _failed(namespace, short_job("undivided", model={"init": {"config": config}}))
    assert "spec.trainer.layout.ep" in status["message"]
    assert "7 experts" in status["message"]


def _failed(namespace: Namespace, body: Body) -> Body:
    """Status of a job that must fail by its input, its pods' logs still there."""
    name = body["metadata"]["name"]
    namespace.apply(body)
    status = namespace.wait_phase(name, "Failed", timeouts.FAILED_S)
    assert status["reason"] == "InvalidInput"
    assert status["restarts"] == {"counted": 0, "uncounted": 0}
    cause = status["firstCause"]
    assert cause["exitCode"] == 64
    assert namespace.kubectl("logs", cause["pod"]).strip()
    return status
