"""The operator's pod is killed while a job trains: the job does not notice."""

import pytest
import timeouts
from live import Namespace, alive, kubectl, until
from sample_jobs import short_job

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

OPERATOR = ("--namespace", "rljob-system")
OPERATOR_LABEL = "app.kubernetes.io/name=rljob-operator"


def test_a_job_goes_on_while_the_operator_is_replaced(namespace: Namespace) -> None:
    namespace.apply(short_job("orphan"))
    namespace.wait_running("orphan")
    before = {name: pod["metadata"]["uid"] for name, pod in namespace.pods("orphan").items()}

    kill = ("delete", "pod", "-l", OPERATOR_LABEL, "--force", "--grace-period=0")
    kubectl(namespace.kubeconfig, *OPERATOR, *kill)
    assert alive(namespace.pods("orphan")["orphan-coordinator-0"]), "the operator was killed in the middle"

    status = namespace.wait_phase("orphan", "Succeeded", timeouts.SHORT_JOB_S)
    assert status["step"] == 10
    assert status["attempt"] == 0
    assert status["restarts"] == {"counted": 0, "uncounted": 0}
    namespace.wait_pods("orphan", {"orphan-coordinator-0", "orphan-trainer-0"})
    after = {name: pod["metadata"]["uid"] for name, pod in namespace.pods("orphan").items()}
    assert after.items() <= before.items(), "no pod was made anew"


def test_the_operator_stays_ready(namespace: Namespace) -> None:
    """Its probes and exactly the rights of the manifests carry it: no restart of its container."""

    def ready() -> bool:
        path = "jsonpath={.items[*].status.containerStatuses[*].ready}"
        return "true" in kubectl(namespace.kubeconfig, *OPERATOR, "get", "pods", "-l", OPERATOR_LABEL, "-o", path)

    until(ready, "operator ready", timeouts.OPERATOR_READY_S)
    path = "jsonpath={.items[*].status.containerStatuses[*].restartCount}"
    assert kubectl(namespace.kubeconfig, *OPERATOR, "get", "pods", "-l", OPERATOR_LABEL, "-o", path) == "0"
    log = kubectl(namespace.kubeconfig, *OPERATOR, "logs", "deployment/rljob-operator")
    assert "cannot " not in log, "refused by RBAC"
    assert "Traceback" not in log
