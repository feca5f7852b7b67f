"""Unknown fields of an RLJob: refused, except that a client side that turns validation off gets them pruned."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from operator_fixtures import Cluster
from operator_jobs import sample

from rljob_operator.cluster.api import RLJOBS, ApiError, KubeApi, Object

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

NAME = "misspelt"


@pytest.fixture
def body(namespace: str) -> Object:
    """The sample with one misspelt field beside the right ones."""
    misspelt = sample(NAME, namespace)
    misspelt["spec"]["rollout"]["gruops"] = 3
    return misspelt


@pytest.fixture
def file(body: Object, tmp_path: Path) -> Path:
    written = tmp_path / "job.json"
    written.write_text(json.dumps(body))
    return written


UNKNOWN = 'unknown field "spec.rollout.gruops"'
UNDECLARED = ".spec.rollout.gruops: field not declared in schema"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("apply", UNKNOWN),
        ("create", UNKNOWN),
        ("apply --server-side", UNDECLARED),
        ("apply --server-side --validate=false", UNDECLARED),
    ],
)
async def test_kubectl_refuses_and_stores_nothing(
    cluster: Cluster, api: KubeApi, namespace: str, file: Path, command: str, words: str
) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        cluster.kubectl(*command.split(), "-f", str(file))
    assert words in caught.value.stderr
    with pytest.raises(ApiError) as absent:
        await api.get(RLJOBS, namespace, NAME)
    assert absent.value.not_found


@pytest.mark.parametrize("command", ["apply", "create"])
async def test_a_client_that_turns_validation_off_gets_it_pruned(
    cluster: Cluster, api: KubeApi, namespace: str, body: Object, file: Path, command: str
) -> None:
    cluster.kubectl(command, "--validate=false", "-f", str(file))
    rollout = (await api.get(RLJOBS, namespace, NAME))["spec"]["rollout"]
    assert "gruops" not in rollout
    assert rollout["groups"] == body["spec"]["rollout"]["groups"]
