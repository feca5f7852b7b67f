"""Tokenizers of workers. transformers is never imported: it takes seconds, and only its file format is needed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer as FastTokenizer

from rljob_core.api.inputs import Model
from rljob_core.errors import InvalidInputError
from rljob_core.inputs import CharacterTokenizer, Codec, tokenizer_directory, tokenizer_field
from rljob_core.inputs.hugging_face import tokenizer_facts
from rljob_core.inputs.tokenizer import EOS_TOKEN, PAD_TOKEN, UNREADABLE

COPIED_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
)
"""What makes up a tokenizer in a Hugging Face directory, where present."""


class Tokenizer(Codec, Protocol):
    """Text to ids and back, and the files that let `AutoTokenizer` do the same."""

    def files(self) -> dict[str, bytes]:
        """File name -> content, to write beside a checkpoint's weights."""
        ...


def read_text(path: str) -> str:
    """The `Reader` of workers: they see every path of the job. Raises OSError."""
    return Path(path).read_text(encoding="utf-8")


def load_tokenizer(model: Model) -> Tokenizer:
    """The job's tokenizer. Raises InvalidInputError for missing files or a tokenizer that has no EOS."""
    directory = tokenizer_directory(model)
    if directory is not None:
        return DirectoryTokenizer(Path(directory), tokenizer_field(model))
    assert model.tokenizer is not None
    assert model.tokenizer.characters is not None
    return Characters(model.tokenizer.characters)


class Characters(CharacterTokenizer):
    """The character tokenizer with its Hugging Face files."""

    def files(self) -> dict[str, bytes]:
        specials = [
            {
                "id": i,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i, token in enumerate((PAD_TOKEN, EOS_TOKEN))
        ]
        vocabulary = {PAD_TOKEN: 0, EOS_TOKEN: 1} | {c: i for i, c in enumerate(self.characters, start=2)}
        tokenizer = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": specials,
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": r"[\s\S]"},
                "behavior": "Isolated",
                "invert": False,
            },
            "post_processor": None,
            "decoder": {"type": "Fuse"},
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": PAD_TOKEN},
        }
        special = {"eos_token": EOS_TOKEN, "pad_token": PAD_TOKEN}
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in specials},
            **special,
        }
        return {
            "tokenizer.json": _json(tokenizer),
            "tokenizer_config.json": _json(config),
            "special_tokens_map.json": _json(special),
        }


class DirectoryTokenizer:
    """A Hugging Face tokenizer directory, read by the `tokenizers` library. field: of the spec, where it is named."""

    def __init__(self, directory: Path, field: str) -> None:
        facts = tokenizer_facts(read_text, str(directory), field)
        assert facts is not None, "workers see every path"
        if not facts.eos_ids:
            raise InvalidInputError(field, str(directory), "has no eos_token", "set eos_token in tokenizer_config.json")
        self._directory, self._facts = directory, facts
        path = directory / "tokenizer.json"
        try:
            self._tokenizer = FastTokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise InvalidInputError(
                field, str(path), f"holds no tokenizer ({error})", "save the tokenizer again"
            ) from error

    @property
    def vocab_size(self) -> int:
        return self._facts.vocab_size

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return self._facts.eos_ids

    @property
    def pad_id(self) -> int:
        return self._facts.pad_id

    def encode(self, text: str) -> list[int]:
        """Ids as `AutoTokenizer` gives them, with the special tokens its post-processor adds."""
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text up to the first EOS; other special tokens are shown, and ids without a token are U+FFFD, so no response
        can hide one from a reward."""
        end = next((i for i, token in enumerate(ids) if token in self._facts.eos_ids), len(ids))
        return "".join(
            self._tokenizer.decode(list(some), skip_special_tokens=False) if readable else UNREADABLE * len(list(some))
            for readable, some in groupby(ids[:end], key=self._readable)
        )

    def _readable(self, token: int) -> bool:
        return self._tokenizer.id_to_token(token) is not None

    def files(self) -> dict[str, bytes]:
        return {n: (self._directory / n).read_bytes() for n in COPIED_FILES if (self._directory / n).is_file()}


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=2).encode()
