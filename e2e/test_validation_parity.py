"""`rljob validate` and a real API server agree: accepted or refused, and which fields.

Runs on the cluster of $KUBECONFIG, else on a bare API server of its own. Nothing is stored: dry run on the server.
"""

import copy
import json
import os
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import ApiServer, find_binaries
from kubernetes.client import ApiException, CustomObjectsApi
from kubernetes.config import new_client_from_config
from rule_samples import TABLE, patched

from rljob_core import names
from rljob_operator.crd import definition_yaml, object_schema
from rljob_operator.validation import admit
from rljob_operator.yaml_loader import AmbiguousWord, load_file

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[1]
BAD = sorted((ROOT / "tests/samples/bad").glob("*.yaml"))
GOOD = sorted((ROOT / "manifests/samples").glob("*.yaml")) + sorted((ROOT / "tests/samples/unfit").glob("*.yaml"))

CAUSE = re.compile(r"(?:^\* |is invalid: )([\w.\[\]]+): ", re.MULTILINE)
STRICT = re.compile(r'unknown field "([^"]+)"')


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster that serves our CRD."""
    given = os.environ.get("KUBECONFIG")
    if given:
        yield _with_definition(given)
        return
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no KUBECONFIG, and no etcd and kube-apiserver binaries")
    with ApiServer(binaries, tmp_path_factory.mktemp("apiserver")) as server:
        yield _with_definition(str(server.kubeconfig))


def _with_definition(kubeconfig: str) -> str:
    applied = _kubectl(kubeconfig, "apply", "-f", "-", text=definition_yaml())
    assert applied.returncode == 0, applied.stderr
    _kubectl(kubeconfig, "wait", "--for=condition=Established", "crd/rljobs.rljob.dev", "--timeout=30s")
    return kubeconfig


def _kubectl(kubeconfig: str, *args: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = ["kubectl", f"--kubeconfig={kubeconfig}", *args]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def refused_by_server(kubeconfig: str, text: str) -> set[str]:
    """Fields the API server names; empty when it accepts."""
    done = _kubectl(kubeconfig, "apply", "--dry-run=server", "-f", "-", text=text)
    if done.returncode == 0:
        return set()
    fields = set(STRICT.findall(done.stderr)) or set(CAUSE.findall(done.stderr))
    assert fields, f"refused, but no field found in: {done.stderr}"
    return fields


def refused_by_us(body: dict[str, Any]) -> set[str]:
    return {problem.field for problem in admit(body).problems}


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_samples_are_refused_alike(kubeconfig: str, path: Path) -> None:
    text = path.read_text()
    expected = set(re.findall(r"^# refused: (\S+)$", text, re.MULTILINE))
    assert refused_by_server(kubeconfig, text) == refused_by_us(load_file(path)[0].body) == expected


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_samples_are_accepted_alike_and_stored_as_we_store_them(kubeconfig: str, path: Path) -> None:
    done = _kubectl(kubeconfig, "apply", "--dry-run=server", "-o", "json", "-f", str(path))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["spec"] == admit(load_file(path)[0].body).body["spec"]


@pytest.fixture(scope="module")
def api(kubeconfig: str) -> Iterator[CustomObjectsApi]:
    with new_client_from_config(kubeconfig) as client:
        yield CustomObjectsApi(client)


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: ",".join(f"{k}={v}" for k, v in case["set"].items()))
def test_every_rule_gives_the_same_verdict(api: CustomObjectsApi, case: dict[str, Any]) -> None:
    body = patched(case["set"])
    theirs = causes_on_create(api, _as_kubectl_reads(body))
    ours = admit(body).problems
    assert {field for field, _ in theirs} == {p.field for p in ours} == set(case.get("refused", ()))
    for field, message in theirs:
        if message.startswith("Invalid value") and "in body must be of type" not in message:
            assert any(message.endswith(p.message) for p in ours if p.field == field), "same words from the same rule"


def causes_on_create(api: CustomObjectsApi, body: dict[str, Any]) -> list[tuple[str, str]]:
    """Field and message of each cause a create request meets; nearer to the server than kubectl, which drops nulls."""
    try:
        api.create_namespaced_custom_object(
            names.GROUP, names.VERSION, "default", names.PLURAL, body, dry_run="All", field_validation="Strict"
        )
    except ApiException as error:
        status = json.loads(error.body or "{}")
        causes = [(cause["field"], cause["message"]) for cause in status.get("details", {}).get("causes", ())]
        causes += [(field, "unknown field") for field in STRICT.findall(status["message"])]
        return [cause for cause in causes if cause[0] != "<nil>"]
    return []


@pytest.mark.parametrize("seed", range(200))
def test_random_objects_get_the_same_verdict(api: CustomObjectsApi, seed: int) -> None:
    body = random_object(random.Random(seed))
    theirs = {field for field, _ in causes_on_create(api, body)}
    assert theirs == {p.field for p in admit(body).problems}, body["spec"]


def random_object(rng: random.Random) -> dict[str, Any]:
    """The base object with one to three fields, known or misspelt, set to something more or less fitting."""
    body: dict[str, Any] = copy.deepcopy(TABLE["base"])
    for _ in range(rng.randint(1, 3)):
        path, schema = rng.choice(FIELDS)
        *parents, last = path
        node = body
        for key in parents:
            if not isinstance(node.get(key), dict):
                node[key] = {}
            node = node[key]
        fitting = schema.get("enum") or [v for v in VALUES if JSON_TYPES.get(type(v)) == schema["type"]] or VALUES
        node[last if rng.random() < 0.95 else f"{last}x"] = copy.deepcopy(rng.choice(fitting + VALUES))
    return body


def _fields(schema: dict[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    for key, child in schema.get("properties", {}).items():
        yield (*path, key), child
        yield from _fields(child, (*path, key))


FIELDS = list(_fields(object_schema()["properties"]["spec"], ("spec",)))
JSON_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean", dict: "object"}
VALUES = [
    *(0, -1, 1, 2, 3, 4, 8, 10_000, 2**62, -(2**63), 2**63, 10**30, 0.5, 1.0, 1.5, 1e-9, 1e300),
    *("", " ", "a", "a/b", "..", "/", "/..", "a..b", "ä😀", "A" * 300, "x" * 2000, "h:1", "h:99999", "a.b:c"),
    *("a\n", "/a\n"),
    *(True, False, None, [], [1], {}, {"a": None}, {"x": {"y": [1]}}),
]  # fmt: skip


def _as_kubectl_reads(value: Any) -> Any:
    match value:
        case dict():
            return {key: _as_kubectl_reads(child) for key, child in value.items()}
        case list():
            return [_as_kubectl_reads(item) for item in value]
        case AmbiguousWord():
            return value.boolean
        case _:
            return value
