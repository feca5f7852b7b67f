"""Prompts of a job as the session reads them: text, answer and token ids by position."""

from __future__ import annotations

from rljob_core.api.spec import RLJobSpec
from rljob_core.errors import InvalidInputError
from rljob_core.inputs import Codec, PromptRow, Streams, check_all, open_streams
from rljob_core.session import Prompt
from rljob_workers.text import load_tokenizer, read_text


class JobPrompts:
    """Implements `PromptSource`. Prompts over the limit were refused or left out when the streams were opened."""

    def __init__(self, streams: Streams, codec: Codec) -> None:
        self._streams, self._codec = streams, codec

    @classmethod
    def open(cls, spec: RLJobSpec) -> JobPrompts:
        """Read and check model config, tokenizer and data; InvalidInputError for what is wrong with them."""
        codec = load_tokenizer(spec.model)
        check_all(spec, read_text, lambda _: codec)
        return cls(open_streams(spec, read_text, codec), codec)

    @property
    def dropped(self) -> int:
        """Training prompts left out because they are over the limit."""
        return self._streams.training.dropped

    def training(self, prompt_id: int) -> Prompt:
        return self._prompt(prompt_id, self._streams.training.row(prompt_id))

    @property
    def held_out(self) -> int | None:
        return None if self._streams.evaluation is None else self._streams.evaluation.size

    def evaluation(self, index: int) -> Prompt:
        if self._streams.evaluation is None:
            raise InvalidInputError("spec.evaluation", None, "is absent", "add an evaluation group")
        return self._prompt(index, self._streams.evaluation.row(index))

    def _prompt(self, prompt_id: int, row: PromptRow) -> Prompt:
        return Prompt(
            prompt_id=prompt_id,
            text=row.prompt,
            answer=row.answer,
            fields=row.fields,
            token_ids=self._codec.encode(row.prompt),
        )
