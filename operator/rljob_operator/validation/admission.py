"""The steps of a validation, in the order the API server takes them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rljob_core import names
from rljob_core.api import RLJob
from rljob_core.api.rules import DNS_LABEL
from rljob_core.errors import InvalidInputError
from rljob_core.inputs import check_all, check_weight_files
from rljob_operator.crd import object_schema
from rljob_operator.pods.template import check_templates
from rljob_operator.validation.encoders import open_encoder
from rljob_operator.validation.files import FileReader
from rljob_operator.validation.functions import check_function
from rljob_operator.validation.problem import Problem, undotted
from rljob_operator.validation.rules import broken_rules
from rljob_operator.validation.structural import Findings, typed, unknown_fields, with_defaults
from rljob_operator.yaml_loader import LoadedDocument, load_file

_METADATA = {"namespace": {"type": "string"}, "labels": {"type": "object"}, "annotations": {"type": "object"}}
"""What a person writes there beside the name."""


@dataclass(frozen=True, kw_only=True)
class Admission:
    """body: as the API server would store it, defaults applied; meaningful only without problems."""

    body: dict[str, Any]
    problems: tuple[Problem, ...] = ()

    def job(self) -> RLJob:
        assert not self.problems, "a refused object is not a job"
        return RLJob.from_object(self.body)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Verdict on one document of a file. unchecked: what could not be read from here."""

    document: LoadedDocument
    problems: tuple[Problem, ...] = ()
    unchecked: tuple[str, ...] = field(default=())
    job: RLJob | None = None
    """The job, defaults applied; None for other kinds and where there are problems."""

    def line_of(self, problem: Problem) -> int:
        return self.document.line_of(problem.path)


def admit(body: dict[str, Any]) -> Admission:
    """The API server's verdict on a create request under strict field validation."""
    schema = object_schema()
    problems = [*_identity(body), *unknown_fields(body, schema)]
    if problems:
        return Admission(body=body, problems=tuple(problems))
    findings = Findings()
    body = typed(with_defaults(body, schema), schema, findings)
    _check_metadata(body.get("metadata", {}), findings)
    if not findings.blocking:
        findings.problems += broken_rules(body, schema)
    return Admission(body=body, problems=tuple(findings.problems))


def validate(body: dict[str, Any], reader: FileReader | None = None) -> list[Problem]:
    """`admit`, then what the operator checks before the first pod, then model, data and reward as far as reader sees
    files (default: what lies on this machine)."""
    admission = admit(body)
    if admission.problems:
        return list(admission.problems)
    job, reader = admission.job(), reader or FileReader(None)
    spec = job.spec
    try:
        check_templates(job)
        check_all(spec, reader, lambda model: open_encoder(model, reader))
        if spec.model.path is not None and reader.sees(spec.model.path):
            check_weight_files(spec.model.path, reader.peek, "spec.model.path")
        check_function(spec.reward, reader)
    except InvalidInputError as error:
        return [_input_problem(error)]
    return []


def check_file(path: Path, *, here: bool = False, python_path: str = "") -> list[Verdict]:
    """Verdict on every document of a file. here: the job is to run on this machine. python_path: PYTHONPATH of the
    command. Raises InvalidInputError when the file itself cannot be read, or holds no RLJob."""
    verdicts = []
    for document in load_file(path):
        if document.body.get("kind") != names.KIND:
            kind = document.body.get("kind", "an object without kind")
            verdicts.append(Verdict(document=document, unchecked=(f"line {document.line}: {kind}",)))
            continue
        reader = FileReader(path.parent, here=here, python_path=python_path)
        problems = tuple(validate(document.body, reader))
        job = None if problems else admit(document.body).job()
        verdicts.append(Verdict(document=document, problems=problems, unchecked=tuple(reader.unseen), job=job))
    if not any(verdict.document.body.get("kind") == names.KIND for verdict in verdicts):
        raise InvalidInputError(str(path), path.name, "holds no RLJob", f"start with kind: {names.KIND}")
    return verdicts


def _identity(body: dict[str, Any]) -> list[Problem]:
    out = []
    for key, wanted in (("apiVersion", names.API_VERSION), ("kind", names.KIND)):
        if body.get(key) != wanted:
            out.append(Problem(field=key, message=f"is {body.get(key)!r}; write {wanted}", path=(key,)))
    return out


def _check_metadata(metadata: Any, findings: Findings) -> None:
    """What the API server's own metadata checks refuse; the shape of the name is a rule of ours."""
    if not isinstance(metadata, dict):
        return  # the schema has said so
    for key, schema in _METADATA.items():
        if key in metadata:
            typed(metadata[key], schema, findings, ("metadata", key))
    namespace = metadata.get("namespace") or "default"
    if isinstance(namespace, str) and not (len(namespace) <= 63 and re.fullmatch(DNS_LABEL, namespace)):
        findings.add(("metadata", "namespace"), f"is {namespace!r}; write a DNS label of at most 63 characters")
    if not metadata.get("name"):
        findings.add(("metadata", "name"), "is required, but absent; name the job", blocks=True)
    for group in ("labels", "annotations"):
        values = metadata.get(group)
        for key, value in values.items() if isinstance(values, dict) else ():
            if type(value) is not str:
                findings.add(("metadata", group, key), f"is {value!r}; write a string, in quotes", blocks=True)


def _input_problem(error: InvalidInputError) -> Problem:
    """Fields of the spec keep their path; files are named as they are."""
    dotted = error.field.split(" ")[0]
    path = undotted(dotted) if dotted.startswith("spec.") else ()
    return Problem(field=error.field, message=f"{error.value!r} {error.problem}; {error.remedy}", path=path)
