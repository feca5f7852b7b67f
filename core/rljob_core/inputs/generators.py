"""Built-in prompt generators: endless, and each row a function of (seed, index, split) alone.

Training and evaluation draw from disjoint sets whatever their seeds: a fixed share of the prompt space, chosen by a
hash of the prompt's digits, is held out.
"""

from __future__ import annotations

from enum import StrEnum

from rljob_core.api.inputs import Generator, Task
from rljob_core.inputs.counter_rng import below, bits64
from rljob_core.inputs.rows import PromptRow

HELD_OUT_OF = 8
"""One in this many prompts belongs to evaluation."""

_HELD_OUT_KEY = 28  # of ten one-digit prompts, it holds out exactly one
_TRIES = 100_000


class Split(StrEnum):
    """Which of two disjoint prompt sets."""

    TRAIN = "train"
    EVALUATION = "evaluation"


def generate(generator: Generator, index: int, split: Split) -> PromptRow:
    """Row `index` of the endless stream of a split."""
    numbers = 2 if generator.task is Task.ADD_MODULO else 1
    space = 10 ** (generator.digits * numbers)
    number = _draw(generator.seed, index, split, space)
    digits = str(number).zfill(generator.digits * numbers)
    prompt, answer = _render(generator.task, digits, generator.digits)
    return PromptRow(prompt=prompt, answer=answer)


def characters(task: Task) -> str:
    """Every character prompts and answers of a task may hold."""
    return "0123456789+=" if task is Task.ADD_MODULO else "0123456789="


def is_held_out(number: int, space: int) -> bool:
    """Whether evaluation owns this number of [0, space); a space has at least one number in either set."""
    return bits64(_HELD_OUT_KEY, space, number) % HELD_OUT_OF == 0


def _draw(seed: int, index: int, split: Split, space: int) -> int:
    """Uniform over the split's numbers: draw until one belongs to it (8 tries on average for evaluation)."""
    wanted = split is Split.EVALUATION
    for attempt in range(_TRIES):
        number = below(space, seed, index, attempt)
        if is_held_out(number, space) is wanted:
            return number
    raise AssertionError(f"no {split} prompt among {space}")


def _render(task: Task, digits: str, width: int) -> tuple[str, str]:
    match task:
        case Task.REVERSE_DIGITS:
            return f"{digits[:width]}=", digits[:width][::-1]
        case Task.COPY_DIGITS:
            return f"{digits[:width]}=", digits[:width]
        case Task.SORT_DIGITS:
            return f"{digits[:width]}=", "".join(sorted(digits[:width]))
        case Task.ADD_MODULO:
            left, right = digits[:width], digits[width:]
            total = (int(left) + int(right)) % 10**width
            return f"{left}+{right}=", str(total).zfill(width)
