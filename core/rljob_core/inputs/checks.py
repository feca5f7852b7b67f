"""What only model or data can show: the same checks for `rljob validate` and for the workers.

Each raises InvalidInputError naming field, value and remedy, and returns nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rljob_core.api.inputs import DataSource, LongPrompt, Model
from rljob_core.api.spec import RLJobSpec
from rljob_core.errors import InvalidInputError
from rljob_core.inputs.data_file import DataFile
from rljob_core.inputs.generators import Split, characters, generate
from rljob_core.inputs.rows import PromptRow
from rljob_core.inputs.tokenizer import Encoder
from rljob_core.layouts import Layout
from rljob_core.models import CONFIG_FIELD, check_layout, key_path, parse_config


def config_field(model: Model) -> str:
    """How errors call the model config: the spec path, or the file."""
    return f"{model.path}/config.json" if model.path is not None else CONFIG_FIELD


def check_model_config(spec: RLJobSpec, config: Mapping[str, Any]) -> None:
    """Family and shapes supported, experts divide over both layouts, positions hold prompt and response."""
    where = config_field(spec.model)
    parsed = parse_config(config, where)
    trainer, rollout = spec.trainer.layout, spec.rollout.layout
    check_layout(parsed, Layout(dp=trainer.dp, tp=trainer.tp, pp=trainer.pp, ep=trainer.ep), "spec.trainer.layout")
    check_layout(parsed, Layout(dp=rollout.dp, tp=rollout.tp, ep=rollout.ep), "spec.rollout.layout")
    longest = spec.data.max_prompt_tokens + spec.rollout.sampling.max_response_tokens
    if parsed.max_position_embeddings < longest:
        raise InvalidInputError(
            key_path(where, "max_position_embeddings"),
            parsed.max_position_embeddings,
            f"is below spec.data.maxPromptTokens + spec.rollout.sampling.maxResponseTokens = {longest}",
            "lower those, or take a model with more positions",
        )


def check_vocabulary(model: Model, config: Mapping[str, Any], vocab_size: int) -> None:
    """The model has an embedding for every token id of the tokenizer."""
    if config["vocab_size"] < vocab_size:
        raise InvalidInputError(
            key_path(config_field(model), "vocab_size"),
            config["vocab_size"],
            f"is below the tokenizer's {vocab_size} tokens",
            "raise it, or use the model's own tokenizer",
        )


def check_eos(eos_ids: Sequence[int], field: str) -> None:
    """A response can end."""
    if not eos_ids:
        raise InvalidInputError(
            field, "eos_token", "is not set in the tokenizer", "set eos_token in tokenizer_config.json"
        )


def check_generator(source: DataSource, split: Split, encoder: Encoder, limit: int, field: str) -> None:
    """Every prompt and answer a generator makes can be written in tokens, within the limit."""
    generator = source.generator
    assert generator is not None
    encoder.encode(characters(generator.task))
    prompt = generate(generator, 0, split).prompt
    tokens = len(encoder.encode(prompt))
    if tokens > limit:
        raise InvalidInputError(
            f"{field}.generator.digits",
            generator.digits,
            f"makes prompts of {tokens} tokens, above spec.data.maxPromptTokens = {limit}",
            "lower digits or raise spec.data.maxPromptTokens",
        )


def fit_rows(
    rows: Sequence[PromptRow], encoder: Encoder, limit: int, long_prompt: LongPrompt, file: DataFile
) -> tuple[list[PromptRow], int]:
    """(rows within the limit, how many were dropped); over the limit under `Fail`, or nothing left, is an error."""
    kept = []
    for row in rows:
        tokens = _count(encoder, row, file)
        if tokens == 0:
            raise file.invalid("holds an empty prompt", "remove the line", line=row.line)
        if tokens <= limit:
            kept.append(row)
        elif long_prompt is LongPrompt.FAIL:
            raise file.invalid(
                f"holds a prompt of {tokens} tokens, above spec.data.maxPromptTokens = {limit}",
                "shorten it, raise the limit, or set spec.data.longPrompt to Drop",
                line=row.line,
            )
    if not kept:
        raise file.invalid(
            f"holds {len(rows)} prompts, all above spec.data.maxPromptTokens = {limit}", "raise the limit"
        )
    return kept, len(rows) - len(kept)


def _count(encoder: Encoder, row: PromptRow, file: DataFile) -> int:
    try:
        return len(encoder.encode(row.prompt))
    except InvalidInputError as error:
        problem = f"cannot be written in tokens: {error.field} {error.value!r} {error.problem}"
        raise file.invalid(problem, error.remedy, line=row.line) from error
