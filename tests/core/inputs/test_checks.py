"""What only model and data can show, with files as a dict."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rljob_core.api.spec import RLJobSpec
from rljob_core.errors import InvalidInputError
from rljob_core.inputs import CharacterTokenizer, check_all, open_streams

CONFIG = {
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 128,
}
GENERATOR = {"generator": {"task": "reverse-digits"}}
FILE = {"jsonLines": {"path": "d.jsonl"}}
FILES = {
    "d.jsonl": '{"prompt": "12=", "answer": "21"}\n{"prompt": "1234567=", "answer": "7"}\n',
    "m/config.json": json.dumps(CONFIG),
    "m/tokenizer.json": json.dumps(
        {"model": {"vocab": {"<pad>": 0, "1": 2, "2": 3}}, "added_tokens": [{"id": 1, "content": "<eos>"}]}
    ),
    "m/tokenizer_config.json": json.dumps({"eos_token": {"content": "<eos>"}}),
}


def reader(files: dict[str, str | None]) -> Any:
    def read(path: str) -> str | None:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path]

    return read


def spec(config: dict[str, Any] | None = None, **groups: Any) -> RLJobSpec:
    model = {"init": {"config": CONFIG | (config or {})}, "tokenizer": {"characters": "0123456789="}}
    body = {"model": model, "data": GENERATOR, "reward": {"exactMatch": {}}, "algorithm": {}} | groups
    return RLJobSpec.model_validate(body)


def check(spec: RLJobSpec, files: dict[str, str | None] | None = None) -> None:
    check_all(spec, reader({**FILES, **(files or {})}), lambda _: CharacterTokenizer("0123456789="))


DIRECTORY = {"path": "m"}


@pytest.mark.parametrize(
    "good",
    [
        spec(),
        spec(data=FILE),
        spec(model=DIRECTORY),
        spec(model={"init": {"config": CONFIG}, "tokenizer": {"path": "m"}}),
        spec(trainer={"replicas": 2, "layout": {"dp": 2, "ep": 2}}),
        spec(evaluation=FILE, reward={"function": {"entryPoint": "a.b:c"}}),
        spec(config={"vocab_size": 13}),
    ],
)
def test_what_is_right_passes(good: RLJobSpec) -> None:
    check(good)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        pytest.param(
            spec(config={"model_type": "llama"}),
            r"spec.model.init.config.model_type: 'llama' is not a supported family; use one of qwen3_moe",
            id="family",
        ),
        pytest.param(spec(config={"model_type": None}), "model_type: None", id="no-family"),
        pytest.param(
            spec(trainer={"layout": {"dp": 3, "ep": 3}}),
            r"spec.trainer.layout.ep: 3 does not divide the model's 8 experts",
            id="trainer-ep",
        ),
        pytest.param(spec(rollout={"layout": {"dp": 5, "ep": 5}}), r"spec.rollout.layout.ep: 5", id="rollout-ep"),
        pytest.param(spec(config={"num_experts": "8"}), r"num_experts: '8' is not of type int", id="experts"),
        pytest.param(spec(config={"rope_theta": 0}), "rope_theta: 0 is not above 0; use a positive", id="rope"),
        pytest.param(spec(config={"rms_norm_eps": -1.0}), "rms_norm_eps: -1.0 is not above 0", id="eps"),
        pytest.param(spec(config={"num_experts_per_tok": 9}), "num_experts_per_tok: 9 is above", id="top-k"),
        pytest.param(
            spec(config={"vocab_size": 12}), r"vocab_size: 12 is below the tokenizer's 13 tokens", id="vocabulary"
        ),
        pytest.param(
            spec(config={"max_position_embeddings": 95}),
            r"max_position_embeddings: 95 is below spec.data.maxPromptTokens \+ .* = 96",
            id="positions",
        ),
        pytest.param(
            spec(model={"init": {"config": CONFIG}}), r"spec.model.tokenizer: None is missing", id="no-tokenizer"
        ),
        pytest.param(
            spec(model={"init": {"config": CONFIG}, "tokenizer": {"characters": "012="}}),
            r"spec.model.tokenizer.characters: '012=' lacks '3'",
            id="generator-characters",
        ),
        pytest.param(
            spec(model={"init": {"config": CONFIG}, "tokenizer": {"characters": "00="}}), "holds '0' twice", id="twice"
        ),
        pytest.param(
            spec(model={"init": {"config": CONFIG}, "tokenizer": {"characters": ""}}), "is empty", id="no-characters"
        ),
        pytest.param(
            spec(data=GENERATOR | {"maxPromptTokens": 4}),
            r"spec.data.generator.digits: 4 makes prompts of 5 tokens, above spec.data.maxPromptTokens = 4",
            id="long-generated",
        ),
        pytest.param(
            spec(data=FILE | {"maxPromptTokens": 7}),
            r"spec.data.jsonLines.path: 'd.jsonl' line 2 holds a prompt of 8 tokens, above .*longPrompt to Drop",
            id="long-prompt",
        ),
        pytest.param(
            spec(model=DIRECTORY, data=FILE | {"maxPromptTokens": 7}),
            r"spec.data.jsonLines.path: 'd.jsonl' line 2 holds a prompt of 8 tokens",
            id="long-prompt-in-a-directory's-tokens",
        ),
        pytest.param(
            spec(data=FILE | {"maxPromptTokens": 2, "longPrompt": "Drop"}),
            r"spec.data.jsonLines.path: 'd.jsonl' holds 2 prompts, all above spec.data.maxPromptTokens = 2",
            id="all-dropped",
        ),
        pytest.param(
            spec(data={"jsonLines": {"path": "none.jsonl"}}),
            r"spec.data.jsonLines.path: 'none.jsonl' does not exist; correct the path",
            id="no-file",
        ),
        pytest.param(
            spec(evaluation={"configMap": {"name": "c"}}),
            r"spec.evaluation.configMap.key: '/var/lib/rljob/evaluation/data.jsonl' does not exist",
            id="no-evaluation-file",
        ),
        pytest.param(spec(model={"path": "x"}), r"spec.model.path: 'x/config.json' does not exist", id="no-model"),
        pytest.param(
            spec(reward={"function": {"entryPoint": "a.b.c"}}), "spec.reward.function.entryPoint", id="entry-point"
        ),
    ],
)
def test_what_is_wrong_names_field_value_and_remedy(bad: RLJobSpec, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check(bad)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param({"d.jsonl": '{"prompt": "x=", "answer": ""}'}, r"'d.jsonl' line 1 .* lacks 'x'", id="character"),
        pytest.param(
            {"d.jsonl": '{"prompt": "", "answer": ""}'}, r"'d.jsonl' line 1 holds an empty prompt", id="empty"
        ),
    ],
)
def test_bad_data(files: dict[str, str | None], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check(spec(data=FILE), files)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param({"m/tokenizer_config.json": "{}"}, "'eos_token' is not set in the tokenizer", id="no-eos"),
        pytest.param({"m/config.json": "["}, r"spec.model.path: 'm/config.json' is not JSON", id="bad-json"),
        pytest.param({"m/config.json": "[]"}, "does not hold a JSON object", id="not-an-object"),
    ],
)
def test_bad_model_directory(files: dict[str, str | None], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check(spec(model=DIRECTORY), files)


def test_55_every_eos_id_counts() -> None:
    check(
        spec(model=DIRECTORY), {"m/tokenizer_config.json": "{}", "m/generation_config.json": '{"eos_token_id": [1, 2]}'}
    )


def test_what_cannot_be_seen_from_here_is_not_judged() -> None:
    check_all(
        spec(model=DIRECTORY, data={"persistentVolumeClaim": {"name": "c", "path": "d"}}),
        lambda path: None,
        lambda _: None,
    )


def test_streams_drop_and_count_long_prompts() -> None:
    wanted = spec(data=FILE | {"maxPromptTokens": 3, "longPrompt": "Drop"}, evaluation=FILE)
    streams = open_streams(wanted, reader(dict(FILES)), CharacterTokenizer("0123456789="))
    assert [streams.training.row(i).prompt for i in range(2)] == ["12=", "12="]
    assert (streams.training.dropped, streams.training.size) == (1, 1)
    assert streams.evaluation is not None
    assert streams.evaluation.size == 1


def test_a_stream_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="mount it into the coordinator pod"):
        open_streams(spec(data=FILE), lambda path: None, CharacterTokenizer("0="))


def test_decoding_stops_at_eos_and_hides_nothing() -> None:
    codec = CharacterTokenizer("ab")
    assert codec.decode([2, 0, 3, 9, 1, 2]) == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    assert codec.encode("ba") == [3, 2]
