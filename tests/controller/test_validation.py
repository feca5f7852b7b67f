"""`rljob validate`: samples, bad samples, files that can and cannot be seen, and what the command prints."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from rljob_core.api import RLJob
from rljob_core.errors import InvalidInputError
from rljob_operator.cli import main
from rljob_operator.validation import FileReader, admit, check_file, validate, with_absolute_paths
from rljob_operator.validation.rules import evaluate, format_string
from rljob_operator.yaml_loader import load_file
from rljob_workers.text import Characters

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "manifests/samples").glob("*.yaml"))
BAD = sorted((ROOT / "tests/samples/bad").glob("*.yaml"))
UNFIT = sorted((ROOT / "tests/samples/unfit").glob("*.yaml"))


def expected_fields(path: Path) -> list[str]:
    return re.findall(r"^# refused: (.+)$", path.read_text(), re.MULTILINE)


def smallest(**spec: Any) -> dict[str, Any]:
    body = load_file(ROOT / "manifests/samples/smallest.yaml")[0].body
    return body | {"spec": body["spec"] | spec}


def safetensors(data: bytes) -> bytes:
    header = json.dumps({"t": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}).encode()
    return len(header).to_bytes(8, "little") + header + data


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """A copy of the samples beside the checkpoint that the demo would have left."""
    folder = shutil.copytree(ROOT / "manifests/samples", tmp_path / "manifests/samples")
    demo = load_file(folder / "reverse-digits.yaml")[0].body["spec"]
    model = demo["model"]
    checkpoint = tmp_path / "runs/reverse-digits/checkpoints/latest/model"
    checkpoint.mkdir(parents=True)
    (checkpoint / "config.json").write_text(json.dumps(model["init"]["config"]))
    for name, content in Characters(model["tokenizer"]["characters"]).files().items():
        (checkpoint / name).write_bytes(content)
    (checkpoint / "model.safetensors").write_bytes(safetensors(data=b""))
    return folder


@pytest.mark.parametrize("name", [path.name for path in SAMPLES])
def test_every_sample_is_valid(samples: Path, name: str) -> None:
    """kubernetes.md B59: a sample that its own validation rejects."""
    (report,) = check_file(samples / name)
    assert report.problems == ()
    assert report.job is not None
    assert report.job.metadata.name == name.removesuffix(".yaml")


def test_the_smallest_useful_job_is_under_20_lines() -> None:
    assert len((ROOT / "manifests/samples/smallest.yaml").read_text().splitlines()) < 20


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_samples_name_their_fields(path: Path) -> None:
    (report,) = check_file(path)
    assert [p.field for p in report.problems] == expected_fields(path)


@pytest.mark.parametrize("path", UNFIT, ids=lambda path: path.stem)
def test_what_only_model_or_data_can_show(path: Path) -> None:
    assert admit(load_file(path)[0].body).problems == ()
    (report,) = check_file(path)
    assert [p.field for p in report.problems] == expected_fields(path)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_models_never_accept_less_than_the_crd(path: Path) -> None:
    """What passes the structural steps is a job to pydantic, too: one truth about names and types."""
    body = admit(load_file(path)[0].body).body
    structural = re.compile(r"is not a field|is required|; write|; use one of")
    if not any(structural.search(p.message) for p in admit(body).problems):
        RLJob.from_object(body)


def test_defaults_of_the_crd_are_the_defaults_of_the_models() -> None:
    admitted = admit(smallest()).body
    templates = {"trainer", "rollout", "reward", "coordinator"}
    ours = RLJob.from_object(smallest()).to_wire()["spec"]
    for group in templates:
        ours[group].pop("template")
    assert ours == admitted["spec"] | {"coordinator": {}}


def test_a_message_has_value_and_remedy_and_the_line_is_known() -> None:
    path = ROOT / "tests/samples/bad/layout-ep-not-a-divisor.yaml"
    (report,) = check_file(path)
    (problem,) = report.problems
    assert problem.message == "ep is 3, which does not divide dp x tp = 4: use a divisor of it"
    assert path.read_text().splitlines()[report.line_of(problem) - 1].strip() == "ep: 3"


def test_a_reserved_key_of_a_pod_template_is_found_by_its_line() -> None:
    """The operator's own check before the first pod; CEL cannot look into a template."""
    path = ROOT / "tests/samples/unfit/template-sets-a-reserved-key.yaml"
    (report,) = check_file(path)
    (problem,) = report.problems
    assert problem.message == "'trainer' is set by the operator; remove it from the template"
    assert "rljob.dev/role" in path.read_text().splitlines()[report.line_of(problem) - 1]


def test_a_misspelt_field_is_answered_with_the_right_one() -> None:
    (problem,) = validate(smallest(rollot={}))
    assert str(problem) == "spec.rollot: is not a field; write rollout"


def test_a_rule_that_cannot_be_evaluated_refuses_at_its_node() -> None:
    big = 2**62
    problems = validate(smallest(trainer={"replicas": big, "devicesPerPod": 4}))
    assert ("spec.trainer", True) in [(p.field, "evaluating rule" in p.message) for p in problems]


def test_labels_must_be_strings() -> None:
    body = smallest()
    body["metadata"] = {"name": "a", "labels": {"step": 3}}
    assert [p.field for p in validate(body)] == ["metadata.labels.step"]


@pytest.mark.parametrize("metadata", [{}, {"name": None}, {"name": ""}], ids=str)
def test_a_job_needs_a_name(metadata: dict[str, Any]) -> None:
    assert [p.field for p in validate(smallest() | {"metadata": metadata})] == ["metadata.name"]


def test_another_version_is_not_ours() -> None:
    assert [p.field for p in validate(smallest() | {"apiVersion": "rljob.dev/v9"})] == ["apiVersion"]


def test_nulls_are_absent_and_what_lies_below_free_form_maps_stays_as_it_is() -> None:
    template = {"a": None, "b": {"c": None, "d": 1.0}}
    body = smallest(trainer={"replicas": None, "template": template}, evaluation=None)
    trainer = admit(body).body["spec"]["trainer"]
    assert trainer["replicas"] == 1
    assert trainer["template"] == {"b": {"c": None, "d": 1.0}}
    assert body["spec"]["trainer"]["replicas"] is None, "the caller's object is left alone"


def test_files_elsewhere_are_said_to_be_unchecked(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    body = smallest(model={"path": "/models/x"}, data={"configMap": {"name": "p"}})
    path.write_text(json.dumps(body))
    (report,) = check_file(path)
    assert report.problems == ()
    assert [Path(u).name for u in report.unchecked] == ["config.json", "tokenizer.json", "data.jsonl"]


@pytest.mark.parametrize("namespace", ["a/b", "../../out", "Upper", "a" * 64])
def test_a_namespace_no_cluster_could_have_is_refused(namespace: str) -> None:
    """Embedded it is part of a path: checkpoints stay inside their volume."""
    body = smallest()
    body["metadata"]["namespace"] = namespace
    assert [problem.field for problem in validate(body)] == ["metadata.namespace"]


def test_where_the_job_runs_here_an_absolute_path_must_exist(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(smallest(data={"jsonLines": {"path": str(tmp_path / "absent.jsonl")}})))
    assert check_file(path)[0].problems == ()
    (problem,) = check_file(path, here=True)[0].problems
    assert "does not exist" in problem.message


def test_relative_paths_follow_the_file(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(smallest(data={"jsonLines": {"path": "d/data.jsonl"}})))
    (tmp_path / "d").mkdir()
    (tmp_path / "d/data.jsonl").write_text('{"prompt": "1=", "answer": "1"}\n')
    (report,) = check_file(path)
    assert report.problems == ()
    assert report.job is not None
    moved = with_absolute_paths(report.job, tmp_path)
    assert moved.spec.data.json_lines is not None
    assert moved.spec.data.json_lines.path == str(tmp_path / "d/data.jsonl")
    assert moved.spec.model == report.job.spec.model


def test_absolute_paths_for_model_tokenizer_and_evaluation(tmp_path: Path) -> None:
    source = {"jsonLines": {"path": "e.jsonl"}}
    body = smallest(model={"path": "m", "tokenizer": {"path": "/t"}}, evaluation=source)
    spec = with_absolute_paths(admit(body).job(), tmp_path).spec
    assert spec.model.path == str(tmp_path / "m")
    assert spec.model.tokenizer is not None
    assert spec.model.tokenizer.path == "/t"
    assert spec.evaluation is not None
    assert spec.evaluation.json_lines is not None
    assert spec.evaluation.json_lines.path == str(tmp_path / "e.jsonl")
    assert spec.data.generator is not None


def test_a_reader_without_a_folder_sees_no_relative_path() -> None:
    reader = FileReader(None)
    assert reader("a.jsonl") is None
    assert reader("a.jsonl") is None
    assert reader.unseen == ["a.jsonl"]


@pytest.mark.parametrize(
    ("template", "values", "text"),
    [
        ("%d of %s", [3, "x"], "3 of x"),
        ("100%% %s", [True], "100% true"),
        ("%s", [0.1], "0.1"),
        ("%s", [2.0], "2"),
        ("%s", [1e-7], "1e-07"),
    ],
)
def test_format(template: str, values: list[Any], text: str) -> None:
    assert format_string(template, values) == text
    assert evaluate("self.t.format(self.v)", {"t": template, "v": values}) == text


def test_format_refuses_verbs_it_does_not_have() -> None:
    with pytest.raises(ValueError, match="%x"):
        format_string("%x", [3])


def test_a_file_without_a_job_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text("apiVersion: v1\nkind: Pod\n")
    with pytest.raises(InvalidInputError, match="holds no RLJob"):
        check_file(path)


def test_command_for_a_valid_file_among_other_objects(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "both.yaml"
    path.write_text(f"apiVersion: v1\nkind: ConfigMap\n---\n{json.dumps(smallest())}\n")
    assert main(["validate", str(path)]) == 0
    out = capsys.readouterr().out
    assert out == f"{path}: not checked, cannot be read here: line 1: ConfigMap\n{path}: RLJob smallest is valid\n"


def test_command_for_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad, unfit = ROOT / "tests/samples/bad/zero-steps.yaml", ROOT / "tests/samples/unfit/malformed-line.yaml"
    assert main(["validate", str(bad), str(tmp_path / "absent.yaml"), str(unfit)]) == 64
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == f"{bad}:15: spec.algorithm.steps: steps is 0: use 1 to 10000000"
    assert "absent.yaml" in second
    where = f"{unfit}:14: spec.data.jsonLines.path: 'data/malformed.jsonl' line 3 is not JSON "
    assert third.startswith(where)
    assert third.endswith("; write one JSON object a line")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "does not exist"),
        (b"", "cut short"),
        (safetensors(b"12345678")[:20], "cut short"),
        (safetensors(b"12345678")[:-3], "where its header says"),
        (b"<html>not found</html>", "no safetensors file"),
    ],
)
def test_weights_that_are_missing_or_cut_short_are_seen_beforehand(
    samples: Path, content: bytes | None, says: str
) -> None:
    """A download that broke off: `rljob validate` says so, before processes start."""
    (weights,) = samples.parent.parent.glob("runs/*/checkpoints/*/model/model.safetensors")
    weights.unlink()
    if content is not None:
        weights.write_bytes(content)
    (report,) = check_file(samples / "jsonl-checkpoint.yaml")
    (problem,) = report.problems
    assert problem.field == "spec.model.path"
    assert "model.safetensors" in problem.message
    assert says in problem.message


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        (5, "metadata"),
        ([], "metadata"),
        ("job", "metadata"),
        ({"name": "a", "namespace": 5}, "metadata.namespace"),
        ({"name": "a", "labels": 5}, "metadata.labels"),
        ({"name": "a", "annotations": ["x"]}, "metadata.annotations"),
    ],
)
def test_metadata_of_wrong_types_is_named(metadata: Any, field: str) -> None:
    (problem,) = validate(smallest() | {"metadata": metadata})
    assert problem.field == field
    assert "; write a " in problem.message


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def reward(p, r, a, f):\n    return 1.0\n", ""),
        ("try:\n    from fast import reward\nexcept ImportError:\n    reward = len\n", ""),
        ("from mine import *\n", ""),
        ("def other(p, r, a, f):\n    return reward\n", "does not define"),
        ("def reward(:\n", "invalid syntax"),
    ],
)
def test_an_unknown_reward_beside_the_file_is_seen_beforehand(tmp_path: Path, source: str, says: str) -> None:
    """The module's text is read, never run."""
    (tmp_path / "mine.py").write_text(f"{source}\n[][0]\n")
    body = smallest(reward={"function": {"entryPoint": "mine:reward"}})
    problems = validate(body, FileReader(tmp_path, here=True))
    assert [problem.field for problem in problems] == ["spec.reward.function.entryPoint"] * bool(says)
    assert all(says in problem.message for problem in problems)


def test_a_reward_module_of_the_image_alone_is_refused_only_where_the_job_runs(tmp_path: Path) -> None:
    body = smallest(reward={"function": {"entryPoint": "nowhere.at_all:reward"}})
    elsewhere = FileReader(tmp_path)
    assert validate(body, elsewhere) == []
    (unseen,) = elsewhere.unseen
    assert unseen.startswith("module nowhere.at_all of spec.reward.function.entryPoint: on this machine neither in ")
    (problem,) = validate(body, FileReader(tmp_path, here=True))
    assert f"neither in {tmp_path} nor installed" in problem.message


@pytest.mark.parametrize("here", [False, True])
@pytest.mark.parametrize(
    ("entry_point", "says"),
    [
        ("mine.rewards:score", ""),
        ("mine.rewards:other", "/lib/mine/rewards.py does not define"),
        ("json.decoder:JSONDecoder", ""),
        ("json.decoder:reward", "decoder.py does not define"),
        ("twice:on_the_path", ""),
        ("twice:beside_the_file", "/lib/twice.py does not define"),
    ],
)
def test_a_reward_module_is_found_where_the_reward_process_finds_it(
    tmp_path: Path, here: bool, entry_point: str, says: str
) -> None:
    """PYTHONPATH first, then the RLJob's folder, then what is installed; no package is imported for it."""
    package, beside = tmp_path / "lib/mine", tmp_path / "job"
    package.mkdir(parents=True)
    beside.mkdir()
    (package / "__init__.py").write_text("[][0]\n")
    (package / "rewards.py").write_text("def score(p, r, a, f):\n    return 1.0\n\n[][0]\n")
    (tmp_path / "lib/twice.py").write_text("on_the_path = len\n")
    (beside / "twice.py").write_text("beside_the_file = len\n")
    reader = FileReader(beside, here=here, python_path=f"/nowhere:{tmp_path / 'lib'}")
    problems = validate(smallest(reward={"function": {"entryPoint": entry_point}}), reader)
    assert [problem.field for problem in problems] == ["spec.reward.function.entryPoint"] * bool(says)
    assert all(says in problem.message for problem in problems)
    assert reader.unseen == []


def test_the_command_looks_on_its_pythonpath(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/mine.py").write_text("def score(p, r, a, f):\n    return 1.0\n")
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(smallest(reward={"function": {"entryPoint": "mine:scores"}})))
    assert main(["validate", str(path)]) == 0
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    assert main(["validate", str(path)]) == 64
