"""The same manifest applied again changes nothing, while the job runs and after it ended."""

import time

import pytest
import timeouts
from live import Namespace
from sample_jobs import short_job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def test_applying_again_changes_nothing(namespace: Namespace) -> None:
    body = short_job("again", steps=30)
    namespace.apply(body)
    namespace.wait_running("again")
    before, job = namespace.objects(), namespace.get("rljobs", "again")
    assert "unchanged" in namespace.apply(body)
    time.sleep(timeouts.SETTLED_S)
    after = namespace.get("rljobs", "again")
    assert after["spec"] == job["spec"]
    assert after["metadata"]["generation"] == job["metadata"]["generation"]
    now = namespace.objects()
    assert {key: uid for key, (uid, _) in now.items()}.items() <= {key: uid for key, (uid, _) in before.items()}.items()

    namespace.wait_phase("again", "Succeeded", timeouts.SHORT_JOB_S)
    namespace.wait_pods("again", {"again-coordinator-0", "again-trainer-0"})
    finished = namespace.settled()
    assert "unchanged" in namespace.apply(body)
    time.sleep(timeouts.SETTLED_S)
    assert namespace.objects() == finished, "same uid and resourceVersion everywhere"
