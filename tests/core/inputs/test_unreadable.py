"""A data file that cannot be read is named, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rljob_core.api.spec import RLJobSpec
from rljob_core.errors import InvalidInputError
from rljob_core.inputs import CharacterTokenizer
from rljob_core.inputs.job_inputs import open_streams


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("absent", "does not exist; correct the path", id="absent"),
        pytest.param("", r"cannot be read \(Is a directory\); make it", id="a-directory"),
        pytest.param("latin-1", r"is not UTF-8 \(byte 0\); save it", id="not-utf-8"),
        pytest.param("null\0byte", r"cannot be read \(.*null byte\); correct the path", id="no-path-at-all"),
    ],
)
def test_a_data_file_that_cannot_be_read(name: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "latin-1").write_bytes(b"\xe9")
    spec = RLJobSpec.model_validate(
        {
            "model": {"path": "/m"},
            "data": {"jsonLines": {"path": f"{tmp_path}/{name}"}},
            "reward": {"exactMatch": {}},
            "algorithm": {"steps": 1},
        }
    )
    with pytest.raises(InvalidInputError, match=rf"^spec\.data\.jsonLines\.path: .* {problem}"):
        open_streams(spec, lambda path: Path(path).read_text(encoding="utf-8"), CharacterTokenizer("0"))
