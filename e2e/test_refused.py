"""A job that can never run is refused, or says why in a condition, before any pod exists."""

import pytest
import timeouts
from live import KubectlError, Namespace, until
from sample_jobs import short_job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_an_invalid_job_is_refused_with_field_value_and_remedy(namespace: Namespace) -> None:
    body = short_job("refused", rollout={"groups": 0})
    with pytest.raises(KubectlError, match=r"spec\.rollout\.groups.*0"):
        namespace.apply(body)
    namespace.wait_only()


def test_an_unknown_field_is_refused(namespace: Namespace) -> None:
    body = short_job("refused", rollout={"gruops": 2})
    with pytest.raises(KubectlError, match=r"spec\.rollout\.gruops"):
        namespace.apply(body)
    namespace.wait_only()


def test_a_misspelt_pod_template_field_ends_in_a_condition(namespace: Namespace) -> None:
    template = {"spec": {"nodeSelectr": {"zone": "a"}}}
    namespace.apply(short_job("misspelt", rollout={"template": template}))

    def refusal() -> str | None:
        condition = namespace.condition("misspelt", "PodsCreated")
        return condition["message"] if condition.get("reason") == "InvalidTemplate" else None

    message = until(refusal, "InvalidTemplate", timeouts.STATUS_S, lambda: namespace.account("misspelt"))
    assert "spec.rollout.template.spec.nodeSelectr" in message
    assert namespace.pods("misspelt") == {}, "checked before the first pod"
