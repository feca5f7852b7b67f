"""The first sample, as a user applies it: to a real Succeeded, seen through `kubectl get rljobs`."""

import pytest
import timeouts
from live import Namespace
from sample_jobs import SAMPLE

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]

COLUMNS = ["NAME", "PHASE", "STEP", "REWARD", "LAG", "TOK/S", "READY", "AGE"]
KEPT = {"reverse-digits-coordinator-0", "reverse-digits-trainer-0"}


def test_the_sample_learns_and_succeeds(namespace: Namespace) -> None:
    namespace.kubectl("apply", "-f", str(SAMPLE))
    namespace.wait_running("reverse-digits")
    running = _row(namespace)
    assert running["PHASE"] == "Running"
    assert running["READY"].split("/")[1] == "7"

    status = namespace.wait_phase("reverse-digits", "Succeeded", timeouts.SAMPLE_JOB_S)
    assert float(status["evalExactMatch"]) >= 0.9
    assert 0 < status["step"] <= status["totalSteps"], "it may reach evaluation.targetExactMatch before its last step"
    assert status["restarts"] == {"counted": 0, "uncounted": 0}
    finished = _row(namespace)
    assert finished["PHASE"] == "Succeeded"
    assert finished["STEP"] == f"{status['step']}/{status['totalSteps']}"
    assert int(finished["LAG"]) <= 1
    assert float(finished["REWARD"]) > 0.8
    assert float(finished["TOK/S"]) > 0
    assert finished["READY"] == "-"

    namespace.wait_pods("reverse-digits", KEPT)
    for name, pod in namespace.pods("reverse-digits").items():
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        assert ended["exitCode"] == 0, name
        assert namespace.kubectl("logs", name), f"the log of {name} is kept"

    namespace.kubectl("delete", "-f", str(SAMPLE))
    namespace.wait_only()


def _row(namespace: Namespace) -> dict[str, str]:
    """The job's line of `kubectl get rljobs`, by column; a column may still be empty."""
    header, row = namespace.kubectl("get", "rljobs").splitlines()
    assert header.split() == COLUMNS
    starts = [header.index(column) for column in COLUMNS]
    ends = [*starts[1:], None]
    return {column: row[a:b].strip() for column, a, b in zip(COLUMNS, starts, ends, strict=True)}
