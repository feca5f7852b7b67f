"""Built-in generators: right answers, pure, and training and evaluation never meet."""

from __future__ import annotations

import pytest

from rljob_core.api.inputs import Generator, Task
from rljob_core.inputs import PromptRow, Split, generate
from rljob_core.inputs.generators import HELD_OUT_OF, characters, is_held_out

ANSWERS = {
    Task.REVERSE_DIGITS: lambda p: p[:-1][::-1],
    Task.COPY_DIGITS: lambda p: p[:-1],
    Task.SORT_DIGITS: lambda p: "".join(sorted(p[:-1])),
    Task.ADD_MODULO: lambda p: str(sum(map(int, p[:-1].split("+"))) % 10 ** (len(p) // 2 - 1)).zfill(len(p) // 2 - 1),
}


@pytest.mark.parametrize("digits", [1, 2, 4, 9])
@pytest.mark.parametrize("task", Task)
def test_prompt_and_answer(task: Task, digits: int) -> None:
    for index in range(50):
        row = generate(Generator(task=task, digits=digits), index, Split.TRAIN)
        assert row.answer == ANSWERS[task](row.prompt)
        assert len(row.answer) == digits
        assert set(row.prompt + row.answer) <= set(characters(task))


def test_the_format_of_reverse_digits() -> None:
    row = generate(Generator(task=Task.REVERSE_DIGITS), 0, Split.TRAIN)
    assert row == PromptRow(prompt=row.prompt, answer=row.prompt[3::-1])
    assert row.prompt.endswith("=")
    assert len(row.prompt) == 5


def prompts(generator: Generator, split: Split, count: int = 300) -> list[str]:
    return [generate(generator, i, split).prompt for i in range(count)]


@pytest.mark.parametrize("task", Task)
@pytest.mark.parametrize("digits", [1, 2, 4])
def test_held_out_prompts_are_never_trained_whatever_the_seeds(task: Task, digits: int) -> None:
    train = prompts(Generator(task=task, digits=digits, seed=1), Split.TRAIN)
    for seed in (1, 2):
        assert not set(train) & set(prompts(Generator(task=task, digits=digits, seed=seed), Split.EVALUATION))


def test_a_row_is_a_function_of_seed_and_index() -> None:
    one = Generator(task=Task.COPY_DIGITS, seed=1)
    assert prompts(one, Split.TRAIN) == prompts(one, Split.TRAIN)
    assert prompts(one, Split.TRAIN) != prompts(Generator(task=Task.COPY_DIGITS, seed=2), Split.TRAIN)
    assert len(set(prompts(one, Split.TRAIN))) > 280, "rows differ"


@pytest.mark.parametrize("space", [10, 100, 10_000])
def test_a_fixed_share_is_held_out(space: int) -> None:
    held = sum(is_held_out(n, space) for n in range(space))
    assert 1 <= held <= space // 2
    assert space < 1000 or abs(held / space - 1 / HELD_OUT_OF) < 0.01
