"""One call each to read everything a job's spec points at, to check it, and to open its prompt streams.

Files are read through a callback: core does no I/O, and a caller that cannot see a path says so with None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rljob_core import names
from rljob_core.api.inputs import DataSource, Model
from rljob_core.api.spec import RLJobSpec
from rljob_core.errors import InvalidInputError
from rljob_core.inputs import checks
from rljob_core.inputs.data_file import DataFile, data_file
from rljob_core.inputs.generators import Split
from rljob_core.inputs.hugging_face import Reader, TokenizerFacts, read_json, tokenizer_facts
from rljob_core.inputs.rewards import split_entry_point
from rljob_core.inputs.rows import PromptRow, parse_json_lines
from rljob_core.inputs.stream import PromptStream
from rljob_core.inputs.tokenizer import CharacterTokenizer, Codec, Encoder


@dataclass(frozen=True, kw_only=True)
class Streams:
    """Prompts of a job; evaluation is None without an evaluation group."""

    training: PromptStream
    evaluation: PromptStream | None


def tokenizer_directory(model: Model) -> str | None:
    """Directory of the Hugging Face tokenizer; None for a character tokenizer. Raises when there is neither."""
    if model.tokenizer is not None:
        if model.tokenizer.characters is not None:
            return None
        if model.tokenizer.path is not None:
            return model.tokenizer.path
    if model.path is None:
        raise InvalidInputError(
            "spec.model.tokenizer", None, "is missing beside init", "set tokenizer.characters or tokenizer.path"
        )
    return model.path


def tokenizer_field(model: Model) -> str:
    """Spec field that names the tokenizer's directory."""
    own = model.tokenizer is not None and model.tokenizer.path is not None
    return "spec.model.tokenizer.path" if own else "spec.model.path"


def read_model_config(model: Model, read: Reader) -> Mapping[str, Any] | None:
    """The model's config; None where its directory cannot be seen from here."""
    if model.path is not None:
        return read_json(read, f"{model.path}/config.json", "spec.model.path")
    assert model.init is not None, "path and init are a one-of"
    return model.init.config


def read_tokenizer(model: Model, read: Reader) -> CharacterTokenizer | TokenizerFacts | None:
    """The character tokenizer, or the facts of the one in a directory; None where that cannot be seen from here."""
    directory = tokenizer_directory(model)
    if directory is not None:
        return tokenizer_facts(read, directory, tokenizer_field(model))
    assert model.tokenizer is not None
    assert model.tokenizer.characters is not None
    return CharacterTokenizer(model.tokenizer.characters)


def check_all(spec: RLJobSpec, read: Reader, encoder_of: Callable[[Model], Encoder | None]) -> None:
    """Everything model, data and reward can show beforehand; raises the first InvalidInputError.

    encoder_of: opens the tokenizer of a model whose tokenizer is a directory (a character tokenizer is made here);
    None where it cannot be seen from here: lengths in tokens stay unchecked then, and so does what `read` cannot see.
    """
    config = read_model_config(spec.model, read)
    if config is not None:
        checks.check_model_config(spec, config)
    tokenizer = read_tokenizer(spec.model, read)
    if tokenizer is not None:
        checks.check_eos(tokenizer.eos_ids, tokenizer_field(spec.model))
        if config is not None:
            checks.check_vocabulary(spec.model, config, tokenizer.vocab_size)
    if spec.reward.function is not None:
        split_entry_point(spec.reward.function.entry_point)
    encoder = encoder_of(spec.model) if isinstance(tokenizer, TokenizerFacts) else tokenizer
    _check_source(spec, spec.data, Split.TRAIN, "spec.data", read, encoder)
    if spec.evaluation is not None:
        _check_source(spec, spec.evaluation, Split.EVALUATION, "spec.evaluation", read, encoder)


def _check_source(
    spec: RLJobSpec, source: DataSource, split: Split, field: str, read: Reader, encoder: Encoder | None
) -> None:
    if source.generator is not None:
        if encoder is not None:
            checks.check_generator(source, split, encoder, spec.data.max_prompt_tokens, field)
        return
    file = _file(source, split, field)
    rows = _read_rows(file, read)
    if rows is not None and encoder is not None:
        checks.fit_rows(rows, encoder, spec.data.max_prompt_tokens, spec.data.long_prompt, file)


def open_streams(spec: RLJobSpec, read: Reader, codec: Codec) -> Streams:
    """The job's prompt streams, prompts over the limit failed or dropped as the spec says."""
    training = _open(spec, spec.data, Split.TRAIN, "spec.data", read, codec, shuffle=spec.data.shuffle)
    evaluation = None
    if spec.evaluation is not None:
        evaluation = _open(spec, spec.evaluation, Split.EVALUATION, "spec.evaluation", read, codec, shuffle=False)
    return Streams(training=training, evaluation=evaluation)


def _open(
    spec: RLJobSpec, source: DataSource, split: Split, field: str, read: Reader, codec: Codec, *, shuffle: bool
) -> PromptStream:
    limit = spec.data.max_prompt_tokens
    if source.generator is not None:
        checks.check_generator(source, split, codec, limit, field)
        return PromptStream(source.generator, split=split)
    file = _file(source, split, field)
    rows = _read_rows(file, read)
    if rows is None:
        raise file.invalid("cannot be read here", "mount it into the coordinator pod")
    kept, dropped = checks.fit_rows(rows, codec, limit, spec.data.long_prompt, file)
    return PromptStream(kept, seed=spec.algorithm.seed, shuffle=shuffle, dropped=dropped)


def _file(source: DataSource, split: Split, field: str) -> DataFile:
    file = data_file(source, names.MOUNT_DATA if split is Split.TRAIN else names.MOUNT_EVALUATION, field)
    if file is None:
        raise InvalidInputError(field, None, "has no source", "set generator, jsonLines, configMap or a claim")
    return file


def _read_rows(file: DataFile, read: Reader) -> list[PromptRow] | None:
    """Rows of a file; None where it cannot be seen from here."""
    try:
        text = read(file.path)
    except FileNotFoundError as error:
        raise file.invalid("does not exist", "correct the path, or mount the volume") from error
    except UnicodeDecodeError as error:
        raise file.invalid(f"is not UTF-8 (byte {error.start})", "save it as UTF-8") from error
    except OSError as error:
        raise file.invalid(f"cannot be read ({error.strerror})", "make it a readable file") from error
    except ValueError as error:  # no path at all: it holds a null byte
        raise file.invalid(f"cannot be read ({error})", "correct the path") from error
    return None if text is None else parse_json_lines(text, file)
