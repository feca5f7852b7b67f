"""Spec groups a user brings: model, data, reward, evaluation."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from rljob_core.api.base import Document, FreeForm, Name, Rule, Text
from rljob_core.api.rules import (
    DNS_SUBDOMAIN,
    IDENTIFIER,
    MAX_PODS,
    MAX_SEED,
    MAX_STEPS,
    between,
    exactly_one,
    filled,
    only_yet,
    ratio,
    shaped,
    without_parent_parts,
)

_COLUMNS = (
    filled("promptField", "write the key of the prompt in each line"),
    filled("answerField", "write the key of the answer in each line"),
)


class ModelInit(Document):
    """Random initialisation from a config."""

    rules: ClassVar[tuple[Rule, ...]] = (between("seed", 0, MAX_SEED),)

    config: FreeForm
    """A Hugging Face config as in config.json; `model_type` chooses the family (`qwen3_moe`). `vocab_size` may be above
    the tokenizer's count: an id without a token reads as U+FFFD in responses, and so counts as wrong."""
    seed: int = 0
    """Seed of the initial weights. Default 0."""


class Tokenizer(Document):
    """Which tokenizer turns text into token ids. Default: the one in `model.path`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one("characters", "path"),
        filled("path", "write the path of a directory", optional=True),
        Rule(
            rule="!has(self.characters) || self.characters != ''",
            message="characters is empty: write every character that prompts and answers use",
            field=".characters",
        ),
    )

    characters: Annotated[str, Field(max_length=65536)] | None = None
    """One token a character, in this order, after the special tokens `<pad>` (0) and `<eos>` (1)."""
    path: Text | None = None
    """Hugging Face tokenizer directory, seen as `model.path` is."""


class Dtype(StrEnum):
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


class Model(Document):
    """The policy: exactly one of `path` and `init`."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one("path", "init"),
        filled("path", "write the path of a directory", optional=True),
        Rule(
            rule="!has(self.init) || has(self.tokenizer)",
            message="init has no tokenizer of its own: set tokenizer.characters or tokenizer.path",
            field=".tokenizer",
        ),
        only_yet("dtype", Dtype.FLOAT32),
    )

    path: Text | None = None
    """Hugging Face directory (config.json, safetensors) as the worker pods see it (embedded: relative to the RLJob
    file)."""
    init: ModelInit | None = None
    """Start from random weights."""
    tokenizer: Tokenizer | None = None
    """Required with `init`."""
    dtype: Dtype = Dtype.FLOAT32
    """Compute type. Default float32."""


class Task(StrEnum):
    """Built-in prompt generators."""

    REVERSE_DIGITS = "reverse-digits"
    COPY_DIGITS = "copy-digits"
    SORT_DIGITS = "sort-digits"
    ADD_MODULO = "add-modulo"


class Generator(Document):
    """Prompts made on the fly, endless, a function of seed and index."""

    rules: ClassVar[tuple[Rule, ...]] = (between("digits", 1, 9), between("seed", 0, MAX_SEED))

    task: Task
    """What to make: `reverse-digits` gives prompt `1234=` with answer `4321`."""
    digits: int = 4
    """Digits of a prompt. Default 4."""
    seed: int = 0
    """Seed of the prompts. Default 0; evaluation with the same seed still draws from a disjoint set."""


class JsonLines(Document):
    """A JSON lines file readable by the coordinator pod: one object a line."""

    rules: ClassVar[tuple[Rule, ...]] = (filled("path", "write the path of a JSON lines file"), *_COLUMNS)

    path: Text
    """File path inside the coordinator pod (embedded: relative to the RLJob file)."""
    prompt_field: Name = "prompt"
    """Key of the prompt text. Default `prompt`."""
    answer_field: Name = "answer"
    """Key of the reference answer, handed to the reward. Default `answer`."""


class ConfigMapFile(Document):
    """A JSON lines document in a ConfigMap of the job's namespace."""

    rules: ClassVar[tuple[Rule, ...]] = (
        shaped("name", DNS_SUBDOMAIN, "write the name of a ConfigMap"),
        shaped("key", "[-._A-Za-z0-9]+", "write a key of the ConfigMap: letters, digits, -, _ and ."),
        *_COLUMNS,
    )

    name: Name
    """ConfigMap name."""
    key: Name = "data.jsonl"
    """Key in the ConfigMap. Default `data.jsonl`."""
    prompt_field: Name = "prompt"
    """Key of the prompt text. Default `prompt`."""
    answer_field: Name = "answer"
    """Key of the reference answer. Default `answer`."""


class VolumeFile(Document):
    """A JSON lines file on a PersistentVolumeClaim of the job's namespace."""

    rules: ClassVar[tuple[Rule, ...]] = (
        shaped("name", DNS_SUBDOMAIN, "write the name of a claim"),
        filled("path", "write the path of a file inside the volume"),
        without_parent_parts("path"),
        *_COLUMNS,
    )

    name: Name
    """PersistentVolumeClaim name."""
    path: Text
    """Path of the file inside the volume."""
    prompt_field: Name = "prompt"
    """Key of the prompt text. Default `prompt`."""
    answer_field: Name = "answer"
    """Key of the reference answer. Default `answer`."""


class DataSource(Document):
    """Exactly one of the four sources."""

    rules: ClassVar[tuple[Rule, ...]] = (exactly_one("generator", "jsonLines", "configMap", "persistentVolumeClaim"),)

    generator: Generator | None = None
    """Built-in generator."""
    json_lines: JsonLines | None = None
    """File in the coordinator's image or mounted volumes."""
    config_map: ConfigMapFile | None = None
    """ConfigMap (small sets, up to 1 MiB)."""
    persistent_volume_claim: VolumeFile | None = None
    """File on a PVC."""


class LongPrompt(StrEnum):
    FAIL = "Fail"
    DROP = "Drop"


class Data(DataSource):
    """Training prompts."""

    rules: ClassVar[tuple[Rule, ...]] = (*DataSource.rules, between("maxPromptTokens", 1, 131072))

    max_prompt_tokens: int = 64
    """Longest prompt in tokens. Default 64."""
    long_prompt: LongPrompt = LongPrompt.FAIL
    """What a prompt above the limit does: `Fail` the job, or be dropped and counted. Default Fail."""
    shuffle: bool = True
    """Shuffle each epoch by `algorithm.seed` (files only). Default true."""


class ExactMatch(Document):
    """1 when the response equals the answer after stripping blanks, else 0."""


class PerPosition(Document):
    """Share of positions that are right, counted over the longer of response and answer; dense, so that a random model
    can learn."""

    rules: ClassVar[tuple[Rule, ...]] = (ratio("exactBonus", 0, 1e6),)

    exact_bonus: float = 0.0
    """Added when the whole answer is right. Default 0."""


class RewardFunction(Document):
    """`module:function` from the worker image: f(prompt: str, response: str, answer: str, fields: dict) -> float."""

    rules: ClassVar[tuple[Rule, ...]] = (
        shaped("entryPoint", f"{IDENTIFIER}([.]{IDENTIFIER})*:{IDENTIFIER}", "write package.module:function"),
        ratio("timeoutSeconds", 0, 86400, low_open=True),
    )

    entry_point: Text
    """`package.module:function`."""
    timeout_seconds: float = 30.0
    """Deadline of one call; a sample over it gets reward 0 and is counted. Default 30."""


class Reward(Document):
    """Exactly one of the three ways, and how many workers."""

    rules: ClassVar[tuple[Rule, ...]] = (
        exactly_one("exactMatch", "perPosition", "function"),
        between("replicas", 1, MAX_PODS),
    )

    exact_match: ExactMatch | None = None
    """Exact match."""
    per_position: PerPosition | None = None
    """Per-position credit."""
    function: RewardFunction | None = None
    """The user's own function."""
    replicas: int = 1
    """Reward pods. Default 1."""
    template: FreeForm = Field(default_factory=dict)
    """Pod template, merged by key over the generated one: `metadata` (labels, annotations), `spec` (PodSpec)."""


class Decoding(StrEnum):
    GREEDY = "Greedy"
    SAMPLED = "Sampled"


class Evaluation(DataSource):
    """Held-out prompts; always run once more at the end."""

    rules: ClassVar[tuple[Rule, ...]] = (
        *DataSource.rules,
        between("prompts", 1, 1_000_000),
        between("everySteps", 1, MAX_STEPS),
        ratio("targetExactMatch", 0, 1, low_open=True, optional=True),
    )

    prompts: int = 64
    """Prompts an evaluation takes from its source, each once: a file with fewer gives all it has. Default 64."""
    every_steps: int = 10
    """Steps between evaluations. Default 10."""
    decoding: Decoding = Decoding.GREEDY
    """Greedy or sampled. Default Greedy."""
    target_exact_match: float | None = None
    """Stop as Succeeded when exact match reaches this. Absent: run all steps."""
