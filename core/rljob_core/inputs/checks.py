"""What only model or data can show: the same checks for `rljob validate` and for the workers.

Each raises InvalidInputError naming field, value and remedy, and returns nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rljob_core.api.inputs import DataSource, LongPrompt, Model
from rljob_core.api.spec import RLJobSpec
from rljob_core.errors import InvalidInputError
from rljob_core.inputs.generators import Split, characters, generate
from rljob_core.inputs.rows import PromptRow
from rljob_core.inputs.tokenizer import Codec

MODEL_TYPES: Mapping[str, str] = {"qwen3_moe": "num_experts"}
"""Supported `model_type` -> config key of its number of experts."""

DEFAULT_POSITIONS = 32768
"""`max_position_embeddings` of a config that does not say (transformers' Qwen3-MoE default)."""


def config_field(model: Model) -> str:
    """How errors call the model config: the spec path, or the file."""
    return f"{model.path}/config.json" if model.path is not None else "spec.model.init.config"


def check_model_config(spec: RLJobSpec, config: Mapping[str, Any]) -> None:
    """Family supported, experts divide over both layouts, positions hold prompt and response."""
    where = config_field(spec.model)
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in MODEL_TYPES:
        raise InvalidInputError(
            f"{where} model_type", model_type, "is not supported", f"use one of {', '.join(sorted(MODEL_TYPES))}"
        )
    experts = _positive(config, MODEL_TYPES[model_type], where)
    _positive(config, "vocab_size", where)
    for field, ep in (("trainer", spec.trainer.layout.ep), ("rollout", spec.rollout.layout.ep)):
        if ep < 1 or experts % ep:
            raise InvalidInputError(
                f"spec.{field}.layout.ep", ep, f"does not divide the model's {experts} experts", "use a divisor of it"
            )
    chosen = _positive(config, "num_experts_per_tok", where) if "num_experts_per_tok" in config else 1
    if chosen > experts:
        raise InvalidInputError(f"{where} num_experts_per_tok", chosen, f"is above the {experts} experts", "lower it")
    _check_positions(spec, config, where)


def _check_positions(spec: RLJobSpec, config: Mapping[str, Any], where: str) -> None:
    longest = spec.data.max_prompt_tokens + spec.rollout.sampling.max_response_tokens
    positions = (
        _positive(config, "max_position_embeddings", where)
        if "max_position_embeddings" in config
        else DEFAULT_POSITIONS
    )
    if positions < longest:
        raise InvalidInputError(
            f"{where} max_position_embeddings",
            positions,
            f"is below data.maxPromptTokens + rollout.sampling.maxResponseTokens = {longest}",
            "lower those, or take a model with more positions",
        )


def _positive(config: Mapping[str, Any], key: str, where: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInputError(f"{where} {key}", value, "is not a positive integer", "set it in the model's config")
    return value


def check_vocabulary(model: Model, config: Mapping[str, Any], vocab_size: int) -> None:
    """The model has an embedding for every token id of the tokenizer."""
    if config["vocab_size"] < vocab_size:
        raise InvalidInputError(
            f"{config_field(model)} vocab_size",
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


def check_generator(source: DataSource, split: Split, codec: Codec, limit: int, field: str) -> None:
    """Every prompt and answer a generator makes can be written in tokens, within the limit."""
    generator = source.generator
    assert generator is not None
    codec.encode(characters(generator.task))
    prompt = generate(generator, 0, split).prompt
    tokens = len(codec.encode(prompt))
    if tokens > limit:
        raise InvalidInputError(
            f"{field}.generator.digits",
            generator.digits,
            f"makes prompts of {tokens} tokens, above data.maxPromptTokens = {limit}",
            "lower digits or raise data.maxPromptTokens",
        )


def fit_rows(
    rows: Sequence[PromptRow], codec: Codec, limit: int, long_prompt: LongPrompt, path: str
) -> tuple[list[PromptRow], int]:
    """(rows within the limit, how many were dropped); over the limit under `Fail`, or nothing left, is an error."""
    kept = []
    for row in rows:
        where = f"{path} line {row.line}"
        tokens = _count(codec, row.prompt, where)
        if tokens == 0:
            raise InvalidInputError(where, row.prompt, "is an empty prompt", "remove the line")
        if tokens <= limit:
            kept.append(row)
        elif long_prompt is LongPrompt.FAIL:
            raise InvalidInputError(
                where,
                f"{tokens} tokens",
                f"is above data.maxPromptTokens = {limit}",
                "shorten it, raise the limit, or set data.longPrompt to Drop",
            )
    if not kept:
        raise InvalidInputError(
            path, f"{len(rows)} prompts", f"are all above {limit} tokens", "raise data.maxPromptTokens"
        )
    return kept, len(rows) - len(kept)


def _count(codec: Codec, prompt: str, where: str) -> int:
    try:
        return len(codec.encode(prompt))
    except InvalidInputError as error:
        raise InvalidInputError(where, error.value, error.problem, error.remedy) from error
