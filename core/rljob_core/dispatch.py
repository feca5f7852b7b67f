"""Who gets which work: dynamic pull for rollout groups, equal shares for trainer ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rljob_core.errors import InvalidInputError

PREFILL_TOKENS_A_SEQUENCE = 32
"""A prefill batch is bounded by this many prompt tokens for each sequence the group may decode."""


def fair_share(ready: int, held: Sequence[int], own: int, room: int) -> int:
    """Rows a consumer takes now, so that all who can take end up with equally many; whoever has room comes again.

    ready: rows waiting. held: rows in work at each consumer that takes from the same table, `own` among them.
    Nothing is reserved for long: a fast consumer comes back while a slow one still holds its share (rl.md 3.4).
    """
    target = -(-(ready + sum(held)) // max(1, len(held)))
    return max(0, min(room, ready, target - own))


def prefill_room(max_sequences: int, max_prompt_tokens: int) -> int:
    """Prompts of one prefill batch: as many as the group may decode at once, within the token budget."""
    budget = PREFILL_TOKENS_A_SEQUENCE * max_sequences
    return max(1, min(max_sequences, budget // max(1, max_prompt_tokens)))


def decode_priority(prompt: int, sample: int, *, batch: int, prompts: int, group_size: int, deterministic: bool) -> int:
    """Order in which samples are handed out, oldest batch first.

    prompt: position inside the batch of `prompts`. Dynamic: sample by sample over all prompts, so that the samples of
    one prompt (alike in length) land on different groups. Deterministic: by (prompt, sample).
    """
    within = prompt * group_size + sample if deterministic else sample * prompts + prompt
    return batch * prompts * group_size + within


@dataclass(frozen=True, kw_only=True)
class Share:
    """A trainer rank's part of a batch: prompts in ascending order and the minibatch of each."""

    prompts: tuple[int, ...]
    minibatches: tuple[int, ...]


def trainer_share(prompts: Sequence[int], *, dp_rank: int, dp: int, minibatches: int) -> Share:
    """Whole groups, ordered by prompt, the same number a rank and minibatch; never by arrival."""
    size = check_shares(len(prompts), dp=dp, minibatches=minibatches)
    ordered = sorted(prompts)
    starts = [m * size * dp + dp_rank * size for m in range(minibatches)]
    return Share(
        prompts=tuple(p for start in starts for p in ordered[start : start + size]),
        minibatches=tuple(m for m in range(minibatches) for _ in range(size)),
    )


def check_shares(prompts_per_step: int, *, dp: int, minibatches: int) -> int:
    """Prompts a rank and minibatch; InvalidInputError when the batch does not divide."""
    size, rest = divmod(prompts_per_step, dp * minibatches)
    if rest or not size:
        raise InvalidInputError(
            "spec.algorithm.promptsPerStep",
            prompts_per_step,
            f"does not divide by trainer.layout.dp x algorithm.minibatches = {dp} x {minibatches}",
            "use a multiple of it",
        )
    return size
