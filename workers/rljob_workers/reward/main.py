"""Loop of a reward worker: take rows, read their packs, score, commit."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import closing

from rljob_core.api.directive import StageName
from rljob_core.api.messages import Committed, CompleteReward, RewardWork, TakeReward, WorkKind
from rljob_core.inputs import exact_match
from rljob_workers.context import Context
from rljob_workers.kv_store import open_store
from rljob_workers.link import CoordinatorLink, register_message
from rljob_workers.packs import unpack
from rljob_workers.reward.scorer import Scorer, open_scorer
from rljob_workers.seams import KVStore
from rljob_workers.text import Tokenizer, load_tokenizer

FIRST_ROWS, MAX_ROWS = 64, 1024
BATCH_S = 2.0
HAND_BACK_AFTER_S = 30.0
"""Rows of a take that are not reached within this go back, so that other workers may take them."""
CACHED_PACKS = 16
"""Rows of one pack often arrive apart; packs are small beside this many."""

_log = logging.getLogger(__name__)


class PackCache:
    """Packs by key, the last few kept; a pack is never changed once written."""

    def __init__(self, store: KVStore, size: int = CACHED_PACKS) -> None:
        self._store, self._size = store, size
        self._packs: OrderedDict[str, bytes] = OrderedDict()

    def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """The packs that are there, each fetched once, all in one request."""
        missing = [key for key in dict.fromkeys(keys) if key not in self._packs]
        found = {key: self._packs[key] for key in keys if key in self._packs}
        for key, data in zip(missing, self._store.get(missing), strict=True):
            if data is not None:
                found[key] = self._packs[key] = data
        for key in found:
            self._packs.move_to_end(key)
        while len(self._packs) > self._size:
            self._packs.popitem(last=False)
        return found


def main(context: Context) -> int:
    """Score until told to stop."""
    with CoordinatorLink(context) as link:
        link.start(register_message(context))
        tokenizer = load_tokenizer(context.spec.model)
        with closing(open_scorer(context.spec.reward)) as scorer, closing(open_store(context, {})) as store:
            packs, max_rows = PackCache(store), FIRST_ROWS
            while True:
                work = link.call(TakeReward(max_rows=max_rows), RewardWork)
                if work.kind is WorkKind.STOP:
                    return 0
                if work.kind is WorkKind.WAIT:
                    continue
                start = time.monotonic()
                with link.stage(StageName.REWARD):
                    texts = responses(work, packs, tokenizer)
                    done = score(work, texts, scorer, time.monotonic)
                link.call(done, Committed)
                max_rows = rows_to_take(len(work.rows) - len(done.returned_rows), time.monotonic() - start)


def responses(work: RewardWork, packs: PackCache, tokenizer: Tokenizer) -> dict[int, str]:
    """Index into the work's columns -> response text, for every row whose pack is there.

    A pack is removed once all its rows are trained, so a missing one means that this lease is out of date, or that the
    store has lost it: the coordinator knows.
    """
    data = packs.get(work.pack_keys)
    out: dict[int, str] = {}
    for key, pack in data.items():
        indices = [i for i, k in enumerate(work.pack_keys) if k == key]
        samples = unpack(pack, [work.slots[i] for i in indices])
        out |= {i: tokenizer.decode(s.response_ids.tolist()) for i, s in zip(indices, samples, strict=True)}
    if len(out) < len(work.rows):
        _log.warning("%d of %d rows have no pack in the store", len(work.rows) - len(out), len(work.rows))
    return out


def score(work: RewardWork, texts: dict[int, str], scorer: Scorer, clock: Callable[[], float]) -> CompleteReward:
    """Rewards in the order of the rows. Those without a text are lost; those not reached within HAND_BACK_AFTER_S are
    handed back."""
    start, scored = clock(), {}
    for i in sorted(texts):
        scored[i] = scorer.score(work.prompts[i], texts[i], work.answers[i], work.fields[i])
        if clock() - start > HAND_BACK_AFTER_S:
            break
    lost = [i for i in range(len(work.rows)) if i not in texts]
    returned = [i for i in sorted(texts) if i not in scored]
    return CompleteReward(
        rows=[work.rows[i] for i in scored],
        attempts=[work.attempts[i] for i in scored],
        rewards=[s.reward for s in scored.values()],
        exact=[bool(exact_match(texts[i], work.answers[i])) for i in scored],
        responses=[texts[i] for i in scored],
        timed_out=sum(s.timed_out for s in scored.values()),
        returned_rows=[work.rows[i] for i in returned],
        returned_attempts=[work.attempts[i] for i in returned],
        lost_rows=[work.rows[i] for i in lost],
        lost_attempts=[work.attempts[i] for i in lost],
    )


def rows_to_take(done: int, seconds: float) -> int:
    """As many rows as the last ones say fit into BATCH_S: a slow reward must not keep rows that others could score."""
    return max(1, min(MAX_ROWS, int(done * BATCH_S / max(seconds, 1e-6))))
