"""Tokenizers: what checks and workers need to know of one, and the one-token-a-character tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rljob_core.errors import InvalidInputError

PAD_TOKEN, EOS_TOKEN = "<pad>", "<eos>"
UNREADABLE = "\N{REPLACEMENT CHARACTER}"
"""What an id without a character decodes to: it keeps its place, so no reward overlooks it."""


class Encoder(Protocol):
    """Text to token ids."""

    def encode(self, text: str) -> list[int]: ...


class Codec(Encoder, Protocol):
    """Text to token ids and back."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every id that ends a response (several are usual)."""
        ...

    @property
    def pad_id(self) -> int:
        """Filler; never told apart by value (it may equal an EOS id)."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text up to the first EOS id."""
        ...


class CharacterTokenizer:
    """One token a character, in the order given, after `<pad>` (0) and `<eos>` (1)."""

    pad_id = 0
    eos_ids: tuple[int, ...] = (1,)

    def __init__(self, characters: str) -> None:
        repeated = sorted({c for c in characters if characters.count(c) > 1})
        field = "spec.model.tokenizer.characters"
        if repeated:
            raise InvalidInputError(field, characters, f"holds {''.join(repeated)!r} twice", "list each once")
        if not characters:
            raise InvalidInputError(field, characters, "is empty", "list every character of prompts and answers")
        self.characters = characters
        self._ids = {c: i for i, c in enumerate(characters, start=2)}

    @property
    def vocab_size(self) -> int:
        return len(self.characters) + 2

    def encode(self, text: str) -> list[int]:
        """Raises InvalidInputError for a character outside the vocabulary."""
        try:
            return [self._ids[c] for c in text]
        except KeyError as error:
            raise InvalidInputError(
                "spec.model.tokenizer.characters",
                self.characters,
                f"lacks {error.args[0]!r}, which {text!r} holds",
                "add it, or change the data",
            ) from error

    def decode(self, ids: Sequence[int]) -> str:
        """Text up to the first EOS; padding and ids beyond the vocabulary become U+FFFD."""
        out = []
        for token in ids:
            if token in self.eos_ids:
                break
            out.append(self.characters[token - 2] if 2 <= token < self.vocab_size else UNREADABLE)
        return "".join(out)
