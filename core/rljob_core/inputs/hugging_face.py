"""What a Hugging Face tokenizer directory says about itself, read from its JSON files alone.

`rljob validate` and the workers both ask here: neither transformers nor tokenizers is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rljob_core.errors import InvalidInputError

Reader = Callable[[str], str | None]
"""Path -> text; None where this machine cannot see the path. Raises FileNotFoundError where it can, and it is not."""


@dataclass(frozen=True, kw_only=True)
class TokenizerFacts:
    """vocab_size: highest token id + 1. eos_ids: every id that ends a response, empty when none is known."""

    vocab_size: int
    eos_ids: tuple[int, ...]
    pad_id: int


def read_json(read: Reader, path: str, field: str) -> dict[str, Any] | None:
    """A JSON object from a file that must exist; None where the path cannot be seen from here."""
    try:
        text = read(path)
    except FileNotFoundError as error:
        raise InvalidInputError(field, path, "does not exist", "correct the path, or mount the volume") from error
    except OSError as error:
        raise InvalidInputError(field, path, f"cannot be read ({error.strerror})", "make it a readable file") from error
    if text is None:
        return None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidInputError(field, path, f"is not JSON ({error})", "save the directory again") from error
    if not isinstance(value, dict):
        raise InvalidInputError(field, path, "does not hold a JSON object", "save the directory again")
    return value


def tokenizer_facts(read: Reader, directory: str, field: str) -> TokenizerFacts | None:
    """Facts of the tokenizer in a directory; None where it cannot be seen from here.

    EOS ids: the tokenizer's `eos_token` and `eos_token_id` (one or a list) of generation_config.json, else of
    config.json.
    """
    tokenizer = read_json(read, f"{directory}/tokenizer.json", field)
    if tokenizer is None:
        return None
    ids = _ids(tokenizer)
    settings = _optional(read, f"{directory}/tokenizer_config.json", field)
    eos = _token_id(settings, "eos_token", ids)
    generation = _id_list(_optional(read, f"{directory}/generation_config.json", field))
    eos_ids = (*eos, *generation) or _id_list(_optional(read, f"{directory}/config.json", field))
    pad = _token_id(settings, "pad_token", ids) or eos_ids or (0,)
    return TokenizerFacts(
        vocab_size=max(ids.values(), default=-1) + 1, eos_ids=tuple(dict.fromkeys(eos_ids)), pad_id=pad[0]
    )


def _optional(read: Reader, path: str, field: str) -> dict[str, Any]:
    try:
        return read_json(read, path, field) or {}
    except InvalidInputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return {}
        raise


def _ids(tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Token -> id of a tokenizer.json: a map (BPE, WordPiece, WordLevel) or a list of pairs (Unigram)."""
    vocabulary = tokenizer.get("model", {}).get("vocab", {})
    if isinstance(vocabulary, list):
        ids = {token: i for i, (token, _score) in enumerate(vocabulary)}
    else:
        ids = dict(vocabulary)
    return ids | {added["content"]: added["id"] for added in tokenizer.get("added_tokens") or []}


def _token_id(settings: Mapping[str, Any], key: str, ids: Mapping[str, int]) -> tuple[int, ...]:
    """Id of a special token written as text, or as an object with `content`."""
    token = settings.get(key)
    text = token.get("content") if isinstance(token, dict) else token
    return (ids[text],) if isinstance(text, str) and text in ids else ()


def _id_list(config: Mapping[str, Any]) -> tuple[int, ...]:
    value = config.get("eos_token_id")
    return tuple(value) if isinstance(value, list) else () if value is None else (value,)
