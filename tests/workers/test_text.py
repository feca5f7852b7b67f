"""Tokenizers: ours, and what `AutoTokenizer` makes of the files we write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as FastTokenizer

from rljob_core.api.inputs import Model
from rljob_core.errors import InvalidInputError
from rljob_workers.text import Tokenizer, load_tokenizer, read_text

CHARACTERS = '0123456789=+ é中\n\\"ab😀'
TEXTS = ["1234=", "", "  =\n", "é中😀", '\\"', "aab ba", "<pad", "".join(reversed(CHARACTERS))]


def characters(text: str = CHARACTERS) -> Tokenizer:
    return load_tokenizer(Model.model_validate({"init": {"config": {}}, "tokenizer": {"characters": text}}))


def save(tokenizer: Tokenizer, directory: Path) -> Path:
    for name, content in tokenizer.files().items():
        (directory / name).write_bytes(content)
    return directory


def known(text: str) -> str:
    return "".join(c for c in text if c in CHARACTERS)


@pytest.mark.parametrize("text", TEXTS)
def test_auto_tokenizer_encodes_and_decodes_as_we_do(tmp_path: Path, text: str) -> None:
    from transformers import AutoTokenizer

    ours = characters()
    theirs = AutoTokenizer.from_pretrained(save(ours, tmp_path))
    ids = ours.encode(known(text))
    assert theirs(known(text))["input_ids"] == ids
    assert theirs.decode(ids) == ours.decode(ids) == known(text)
    assert (theirs.eos_token_id, theirs.pad_token_id, len(theirs)) == (*ours.eos_ids, ours.pad_id, ours.vocab_size)


@pytest.mark.parametrize("text", TEXTS)
def test_the_directory_of_a_character_tokenizer_reads_back_the_same(tmp_path: Path, text: str) -> None:
    ours = characters()
    theirs = load_tokenizer(Model(path=str(save(ours, tmp_path))))
    assert theirs.encode(known(text)) == ours.encode(known(text))
    assert theirs.decode([*ours.encode(known(text)), 1, 2, 3]) == known(text)
    assert (theirs.eos_ids, theirs.pad_id, theirs.vocab_size) == (ours.eos_ids, ours.pad_id, ours.vocab_size)
    assert theirs.files() == ours.files()


def test_a_special_token_in_a_response_is_not_hidden(tmp_path: Path) -> None:
    ours = characters("ab")
    theirs = load_tokenizer(Model(path=str(save(ours, tmp_path))))
    assert ours.decode([2, 0, 3]) != "ab"
    assert theirs.decode([2, 0, 3]) != "ab"


def test_an_id_without_a_token_is_not_hidden(tmp_path: Path) -> None:
    """A model's vocab_size may be above the tokenizer's: what it samples there keeps its place."""
    ours = characters("ab")
    theirs = load_tokenizer(Model(path=str(save(ours, tmp_path))))
    assert ours.decode([2, 4, 15, 3]) == theirs.decode([2, 4, 15, 3]) == "a\ufffd\ufffdb"


def test_the_tokenizer_path_wins_over_the_models(tmp_path: Path) -> None:
    save(characters("xy"), tmp_path)
    model = Model.model_validate({"path": "/nowhere", "tokenizer": {"path": str(tmp_path)}})
    assert load_tokenizer(model).encode("y") == [3]


def edit(path: Path, change: dict[str, Any]) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


def test_55_eos_ids_of_the_generation_config_count_too(tmp_path: Path) -> None:
    save(characters(), tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [4, 1]}')
    tokenizer = load_tokenizer(Model(path=str(tmp_path)))
    assert tokenizer.eos_ids == (1, 4)
    assert tokenizer.decode([3, 4, 5]) == CHARACTERS[1]


def test_55_a_missing_pad_token_is_filled_with_eos(tmp_path: Path) -> None:
    save(characters(), tmp_path)
    edit(tmp_path / "tokenizer_config.json", {"pad_token": None})
    tokenizer = load_tokenizer(Model(path=str(tmp_path)))
    assert tokenizer.pad_id == tokenizer.eos_ids[0] == 1


def test_unigram_vocabularies_are_lists(tmp_path: Path) -> None:
    save(characters(), tmp_path)
    vocabulary = [["<pad>", 0.0], ["<eos>", 0.0], ["a", -1.0]]
    edit(tmp_path / "tokenizer.json", {"model": {"type": "Unigram", "vocab": vocabulary, "unk_id": 0}})
    tokenizer = load_tokenizer(Model(path=str(tmp_path)))
    assert (tokenizer.vocab_size, tokenizer.eos_ids) == (3, (1,))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("tokenizer.json", "tokenizer.json' does not exist"),
        ("tokenizer_config.json", "has no eos_token"),
    ],
)
def test_a_directory_that_lacks_something_names_it_and_its_field(tmp_path: Path, broken: str, message: str) -> None:
    (save(characters(), tmp_path) / broken).unlink()
    with pytest.raises(InvalidInputError, match=rf"^spec\.model\.path: .*{message}"):
        load_tokenizer(Model(path=str(tmp_path)))
    model = Model.model_validate({"path": "/nowhere", "tokenizer": {"path": str(tmp_path)}})
    with pytest.raises(InvalidInputError, match=rf"^spec\.model\.tokenizer\.path: .*{message}"):
        load_tokenizer(model)


def test_a_character_outside_the_vocabulary_is_named() -> None:
    with pytest.raises(InvalidInputError, match="lacks 'x'"):
        characters("ab").encode("axb")


def test_reading_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("é", encoding="utf-8")
    assert read_text(str(tmp_path / "a")) == "é"
    with pytest.raises(FileNotFoundError):
        read_text(str(tmp_path / "b"))


def test_the_files_are_a_tokenizer_of_the_tokenizers_library() -> None:
    fast = FastTokenizer.from_str(characters().files()["tokenizer.json"].decode())
    assert fast.encode("a😀").ids == characters().encode("a😀")
