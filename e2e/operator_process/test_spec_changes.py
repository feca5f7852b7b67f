"""What an update of an existing RLJob may change: the API server refuses the rest, whoever asks and however."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from operator_fixtures import Cluster, Start
from operator_jobs import Job, sample
from rule_samples import CHANGES, SAMPLES, patched

from rljob_core.api.changes import FIXED
from rljob_operator.cluster.api import RLJOBS, ApiError, KubeApi, Object
from rljob_operator.yaml_loader import load_file

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

MESSAGES = {f"spec{rule.field}": rule.message for rule in FIXED}
GOOD = [*(SAMPLES.parents[1] / "manifests/samples").glob("*.yaml"), *(SAMPLES / "unfit").glob("*.yaml")]
GITOPS = {"labels": {"app.kubernetes.io/instance": "a"}, "annotations": {"argocd.argoproj.io/tracking-id": "a"}}
APPLY = ["apply", "apply --server-side"]


@pytest.mark.parametrize("case", CHANGES, ids=lambda case: f"{case.get('from', '')}->{case['to']}")
async def test_an_update_gets_the_verdict_of_the_table(api: KubeApi, namespace: str, case: dict[str, Any]) -> None:
    before = patched(case.get("from", {}))
    stored = await api.create(RLJOBS, namespace, before)
    update = patched(case["to"], before)
    update["metadata"]["resourceVersion"] = stored["metadata"]["resourceVersion"]
    causes: list[Object] = []
    try:
        now = await api.replace(RLJOBS, namespace, update)
    except ApiError as error:
        causes = error.causes
        now = await api.get(RLJOBS, namespace, "base")
        assert now == stored
    assert sorted(cause["field"] for cause in causes) == sorted(case.get("refused", ()))
    said = {cause["field"]: cause["message"] for cause in causes if cause["field"] in MESSAGES}
    assert all(words.endswith(MESSAGES[field]) for field, words in said.items())
    if not any(path.startswith("spec.lifecycle") for path in case["to"]):
        assert now["metadata"]["generation"] == stored["metadata"]["generation"]


@pytest.mark.parametrize("command", APPLY)
async def test_kubectl_apply_is_told_what_to_do_instead(
    cluster: Cluster, api: KubeApi, namespace: str, tmp_path: Path, command: str
) -> None:
    body = sample("changed", namespace)
    _kubectl(cluster, command, tmp_path, body)
    body["spec"]["rollout"]["groups"] += 1
    with pytest.raises(subprocess.CalledProcessError) as caught:
        _kubectl(cluster, command, tmp_path, body)
    assert f'spec.rollout: Invalid value: "object": {MESSAGES["spec.rollout"]}' in caught.value.stderr
    body["spec"]["rollout"]["groups"] -= 1
    body["spec"]["lifecycle"] = {"backoffLimit": 9, "activeDeadlineSeconds": 999}
    _kubectl(cluster, command, tmp_path, body)
    lifecycle = (await api.get(RLJOBS, namespace, "changed"))["spec"]["lifecycle"]
    assert (lifecycle["backoffLimit"], lifecycle["activeDeadlineSeconds"]) == (9, 999)


@pytest.mark.parametrize("command", APPLY)
@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
async def test_the_same_manifest_and_new_metadata_pass(
    cluster: Cluster, api: KubeApi, namespace: str, tmp_path: Path, path: Path, command: str
) -> None:
    body: Object = load_file(path)[0].body
    body["metadata"] = {"name": "again", "namespace": namespace}
    _kubectl(cluster, command, tmp_path, body)
    before = await api.get(RLJOBS, namespace, "again")
    _kubectl(cluster, command, tmp_path, body)
    assert await api.get(RLJOBS, namespace, "again") == before
    body["metadata"] |= GITOPS
    _kubectl(cluster, command, tmp_path, body)
    after = await api.get(RLJOBS, namespace, "again")
    assert after["metadata"]["labels"] == GITOPS["labels"]
    assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], 1)


async def test_a_running_job_keeps_to_a_new_deadline(api: KubeApi, namespace: str, start: Start) -> None:
    await start(namespaces=namespace)
    job = Job(api, namespace)
    created = await job.create()
    await job.all_created()
    assert "activeDeadlineSeconds" not in created["spec"]["lifecycle"]
    change = {"spec": {"lifecycle": {"activeDeadlineSeconds": 1}}}
    await api.merge_patch(RLJOBS, namespace, job.name, change)
    status = await job.phase("Failed")
    assert status["reason"] == "DeadlineExceeded"
    assert status["observedGeneration"] == 2


def _kubectl(cluster: Cluster, command: str, folder: Path, body: Object) -> None:
    file = folder / "job.json"
    file.write_text(json.dumps(body))
    cluster.kubectl(*command.split(), "-f", str(file))
