"""Hugging Face tokenizers of a spec, as far as this machine can see them: prompts are counted in their tokens."""

from __future__ import annotations

import importlib

from rljob_core.api.inputs import Model
from rljob_core.errors import InvalidInputError
from rljob_core.inputs import Encoder, Reader, tokenizer_directory, tokenizer_field


class _Ids:
    def __init__(self, tokenizer: object) -> None:
        self._encode = tokenizer.encode  # type: ignore[attr-defined]

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._encode(text).ids
        return ids


def open_encoder(model: Model, read: Reader) -> Encoder | None:
    """The tokenizer in the model's tokenizer directory, by the library that workers use; None where only a pod sees it.
    Raises InvalidInputError for a file that holds none."""
    directory = tokenizer_directory(model)
    assert directory is not None, "a character tokenizer needs no library"
    path = f"{directory}/tokenizer.json"
    text = read(path)
    if text is None:
        return None
    library = importlib.import_module("tokenizers")  # here: the operator itself never opens one
    try:
        return _Ids(library.Tokenizer.from_str(text))
    except Exception as error:  # the library raises nothing narrower
        raise InvalidInputError(
            tokenizer_field(model), path, f"holds no tokenizer ({error})", "save the tokenizer again"
        ) from error
