"""The JSON lines file behind a data source: where it lies, which spec field names it, and errors that say both."""

from __future__ import annotations

from dataclasses import dataclass

from rljob_core.api.inputs import ConfigMapFile, DataSource, JsonLines, VolumeFile
from rljob_core.errors import InvalidInputError


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file of prompts.

    path: as it is read. field: of the spec, the one that names the file. prompt_key, answer_key: in each line.
    """

    path: str
    field: str
    prompt_key: str = "prompt"
    answer_key: str = "answer"

    def invalid(self, problem: str, remedy: str, *, line: int = 0) -> InvalidInputError:
        """An error to raise. line: the one at fault, 0 for the whole file."""
        return InvalidInputError(self.field, self.path, f"line {line} {problem}" if line else problem, remedy)

    def setting(self, key: str) -> str:
        """Spec path of a field beside the one that names the file."""
        return f"{self.field.rpartition('.')[0]}.{key}"


def data_file(source: DataSource, mount: str, field: str) -> DataFile | None:
    """The file of a source; None for a generator.

    mount: where a ConfigMap or claim is mounted. field: of the spec, the one that holds the source.
    """
    lines, config_map, claim = source.json_lines, source.config_map, source.persistent_volume_claim
    if lines is not None:
        return _file(lines, lines.path, f"{field}.jsonLines.path")
    if config_map is not None:
        return _file(config_map, f"{mount}/{config_map.key}", f"{field}.configMap.key")
    if claim is not None:
        return _file(claim, f"{mount}/{claim.path.lstrip('/')}", f"{field}.persistentVolumeClaim.path")
    return None


def _file(named: JsonLines | ConfigMapFile | VolumeFile, path: str, field: str) -> DataFile:
    return DataFile(path=path, field=field, prompt_key=named.prompt_field, answer_key=named.answer_field)
