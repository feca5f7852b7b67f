"""Pod template merge, reserved keys, and field paths back to the RLJob."""

from __future__ import annotations

from typing import Any

import pytest

from rljob_core.errors import InvalidInputError
from rljob_core.names import Role
from rljob_operator.pods.template import check_reserved, merge, rljob_path


@pytest.mark.parametrize(
    ("base", "over", "merged"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"labels": {"a": "1", "b": "2"}}, {"labels": {"b": "3"}}, {"labels": {"a": "1", "b": "3"}}),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": [{"name": "B", "valueFrom": {}}, {"name": "C", "value": "3"}]},
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {}}, {"name": "C", "value": "3"}]},
        ),
        (
            {"volumes": [{"name": "checkpoint", "emptyDir": {}}]},
            {"volumes": [{"name": "checkpoint", "nfs": {"path": "/x"}}]},
            {"volumes": [{"name": "checkpoint", "nfs": {"path": "/x"}}]},
        ),
        (
            {"volumeMounts": [{"name": "a", "mountPath": "/a"}]},
            {"volumeMounts": [{"name": "b", "mountPath": "/a"}, {"name": "b", "mountPath": "/b"}]},
            {"volumeMounts": [{"name": "b", "mountPath": "/a"}, {"name": "b", "mountPath": "/b"}]},
        ),
        (
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}]},
            {"tolerations": [{"key": "a"}, {"key": "b"}]},
        ),
        ({"command": ["a", "b"]}, {"command": ["c"]}, {"command": ["c"]}),
        (
            {"containers": [{"name": "worker", "image": "x", "resources": {"requests": {"cpu": "1"}}}]},
            {"containers": [{"name": "side"}, {"name": "worker", "resources": {"limits": {"cpu": "2"}}}]},
            {
                "containers": [
                    {"name": "worker", "image": "x", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}},
                    {"name": "side"},
                ]
            },
        ),
        ({"spec": {}}, {"nodeSelectr": {"a": "b"}}, {"spec": {}, "nodeSelectr": {"a": "b"}}),
    ],
)
def test_merge(base: dict[str, Any], over: dict[str, Any], merged: dict[str, Any]) -> None:
    assert merge(base, over) == merged


def test_merge_leaves_its_arguments_alone() -> None:
    base = {"containers": [{"name": "worker", "env": [{"name": "A"}]}]}
    merge(base, {"containers": [{"name": "worker", "env": [{"name": "B"}]}]})
    assert base == {"containers": [{"name": "worker", "env": [{"name": "A"}]}]}


@pytest.mark.parametrize(
    ("template", "field"),
    [
        ({"metadata": {"name": "x"}}, "spec.reward.template.metadata.name"),
        ({"metadata": {"labels": {"rljob.dev/role": "x"}}}, "spec.reward.template.metadata.labels[rljob.dev/role]"),
        ({"spec": {"restartPolicy": "Always"}}, "spec.reward.template.spec.restartPolicy"),
        (
            {"spec": {"containers": [{"name": "worker", "env": [{"name": "RLJOB_ROLE", "value": "x"}]}]}},
            "spec.reward.template.spec.containers[0].env[0]",
        ),
    ],
)
def test_what_the_operator_owns_is_refused(template: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInputError, match="is set by the operator") as caught:
        check_reserved(Role.REWARD, template)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "template",
    [
        {"spec": 5},
        {"metadata": 5},
        {"spec": {"containers": 5}},
        {"spec": {"containers": [{"name": "worker", "env": 5}]}},
    ],
)
def test_a_template_of_wrong_types_travels_on_to_the_server_that_names_them(template: dict[str, Any]) -> None:
    check_reserved(Role.REWARD, template)
    generated = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "worker", "env": [{"name": "A"}]}]}}
    sent = merge(generated, template)
    assert sent != generated
    assert rljob_path(Role.REWARD, template, sent, next(iter(template))).startswith("spec.reward.template.")


def test_a_template_may_set_everything_else() -> None:
    env = [{"name": "HF_HOME", "value": "/tmp"}]
    labels = {"team": "a"}
    spec = {"containers": [{"name": "worker", "env": env}, {"name": "side", "env": [{"name": "RLJOB_X"}]}]}
    check_reserved(Role.TRAINER, {"metadata": {"labels": labels}, "spec": spec})


@pytest.mark.parametrize(
    ("template", "field", "path"),
    [
        ({"spec": {"nodeSelectr": {"a": "b"}}}, "spec.nodeSelectr", "spec.rollout.template.spec.nodeSelectr"),
        ({"nodeSelectr": {}}, "nodeSelectr", "spec.rollout.template.nodeSelectr"),
        (
            {"spec": {"containers": [{"name": "side", "imag": "x"}]}},
            "spec.containers[1].imag",
            "spec.rollout.template.spec.containers[0].imag",
        ),
        (
            {"spec": {"containers": [{"name": "worker", "env": [{"name": "A", "valu": "x"}]}]}},
            "spec.containers[0].env[2].valu",
            "spec.rollout.template.spec.containers[0].env[0].valu",
        ),
        ({"spec": {"hostNetwork": True}}, "spec.containers[0].image", "spec.rollout.template.spec"),
        (
            {"spec": {"nodeSelector": {"a b": "c"}}},
            "spec.nodeSelector[a b]",
            "spec.rollout.template.spec.nodeSelector[a b]",
        ),
    ],
)
def test_field_paths_lead_to_the_rljob(template: dict[str, Any], field: str, path: str) -> None:
    generated = {"spec": {"containers": [{"name": "worker", "env": [{"name": "RLJOB_ROLE"}, {"name": "RLJOB_X"}]}]}}
    assert rljob_path(Role.ROLLOUT, template, merge(generated, template), field) == path
