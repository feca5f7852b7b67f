"""`kubectl delete rljob` leaves nothing: no finalizer holds it, the garbage collector takes the children."""

import pytest
from live import Namespace
from sample_jobs import short_job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_a_job_deleted_in_the_middle_leaves_nothing(namespace: Namespace) -> None:
    namespace.apply(short_job("gone", steps=1000))
    namespace.wait_running("gone")
    assert len(namespace.objects()) > 8
    namespace.kubectl("delete", "rljob", "gone", "--timeout=30s")
    namespace.wait_only()


def test_a_job_deleted_before_its_pods_run_leaves_nothing(namespace: Namespace) -> None:
    namespace.apply(short_job("early"))
    namespace.kubectl("delete", "rljob", "early", "--timeout=30s")
    namespace.wait_only()
