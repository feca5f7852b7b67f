"""Rows of the decode batch: what moves when the batch is made compact, and what stays."""

from __future__ import annotations

import numpy as np
import pytest

from rljob_workers.rollout.sequences import Sequences

EOS = [10, 11, 12]


@pytest.mark.parametrize("capacity", [3, 4, 8], ids=["as many as end tokens", "one more", "more"])
def test_compaction_moves_whole_sequences_and_nothing_else(capacity: int) -> None:
    """The last sequence takes the first row, goes on there, and every end token still ends."""
    batch = Sequences(capacity, 4, EOS)
    for handle in range(3):
        batch.join(handle, prompt_tokens=handle + 1, max_tokens=4, greedy=handle == 2, seed=handle)
    first = batch.record(np.array([12, 11, 5]), np.array([0.1, 0.2, 0.3], np.float32))
    assert [(f.slot, f.finish_reason) for f in first] == [(0, "eos"), (1, "eos")]
    assert batch.compact() == ([2], [0])
    assert (batch.extent, batch.cached[0], batch.generated[0], batch.greedy[0], batch.seeds[0]) == (1, 3, 1, True, 2)
    assert batch.newest(1).tolist() == [5]
    batch.join(3, prompt_tokens=1, max_tokens=4, greedy=False, seed=3)
    last = batch.record(np.array([10, 11]), np.array([0.4, 0.5], np.float32))
    assert [(f.slot, f.token_ids, f.finish_reason) for f in last] == [(2, [5, 10], "eos"), (3, [11], "eos")]
    assert last[0].logprobs == pytest.approx([0.3, 0.4])
