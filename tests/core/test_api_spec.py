"""The spec models: wire names, what they refuse, and the choices they make for the reader."""

from typing import Any

import pytest
from pydantic import ValidationError

from rljob_core.api import RLJob
from rljob_core.api.placement import ExternalStore, KVStore, ManagedStore
from rljob_core.api.rules import at_most_one, between, exactly_one, filled, ratio, shaped


def body(**spec: Any) -> dict[str, Any]:
    required = {"model": {"path": "m"}, "data": {"generator": {"task": "copy-digits"}}, "reward": {"exactMatch": {}}}
    return {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "RLJob",
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "managedFields": []},
        "spec": required | {"algorithm": {}} | spec,
    }


def test_an_object_of_the_api_server_is_read_and_written_back() -> None:
    job = RLJob.from_object(body(algorithm={"promptsPerStep": 32, "steps": None}) | {"status": {"phase": "Running"}})
    assert (job.spec.algorithm.prompts_per_step, job.spec.algorithm.steps) == (32, 100)
    assert job.metadata.uid == "u"
    assert RLJob.from_object(job.to_wire()) == job
    assert "evaluation" not in job.to_wire()["spec"], "absent, never null"


@pytest.mark.parametrize("spec", [{"rollot": {}}, {"trainer": {"replica": 1}}, {"algorithm": {"name": "PPO"}}], ids=str)
def test_what_is_not_in_the_models_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RLJob.from_object(body(**spec))


def test_a_job_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        RLJob.from_object(body()).spec.algorithm.steps = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("store", "managed"),
    [
        (KVStore(), ManagedStore()),
        (KVStore(managed=ManagedStore(segments=2)), ManagedStore(segments=2)),
        (KVStore(external=ExternalStore(master_address="s:1")), None),
    ],
    ids=["neither", "managed", "external"],
)
def test_which_store_is_deployed(store: KVStore, managed: ManagedStore | None) -> None:
    assert store.managed_store == managed


def test_messages_name_field_value_and_remedy() -> None:
    assert between("n", 1, 3, why="but so").message == "'n is %d, but so: use 1 to 3'.format([self.n])"
    assert ratio("r", 0, 1, low_open=True).message == "'r is %s: use a number above 0 and at most 1'.format([self.r])"
    assert shaped("s", "a+", "write a").message == "'s is \"%s\": write a'.format([self.s])"


def test_optional_fields_are_tested_only_where_they_are_set() -> None:
    assert between("n", 1, 3, optional=True).rule == "!has(self.n) || self.n >= 1 && self.n <= 3"
    assert ratio("r", 0, 1, optional=True).rule.startswith("!has(self.r) || ")
    assert shaped("s", "a", "write a", optional=True).rule.startswith("!has(self.s) || ")
    assert filled("s", "write a", optional=True).rule.startswith("!has(self.s) || ")


def test_choices_sit_on_their_node() -> None:
    assert (exactly_one("a", "b").field, at_most_one("a", "b").field) == ("", "")
    assert exactly_one("a", "b", "c").message.startswith("'%d of a, b and c are set: set exactly one'")
