"""PromptStream: prompt_id -> row, endless, a pure function of its arguments (so a resume needs a number, no state)."""

from __future__ import annotations

from collections.abc import Sequence

from rljob_core.api.inputs import Generator
from rljob_core.inputs.counter_rng import permutation
from rljob_core.inputs.generators import Split, generate
from rljob_core.inputs.rows import PromptRow


class PromptStream:
    """Position in an endless data order -> prompt.

    source: a generator, or the rows of a file, repeated epoch after epoch, each epoch shuffled by (seed, epoch).
    dropped: rows of the file left out because their prompt was over the limit.
    """

    def __init__(
        self,
        source: Generator | Sequence[PromptRow],
        *,
        split: Split = Split.TRAIN,
        seed: int = 0,
        shuffle: bool = False,
        dropped: int = 0,
    ) -> None:
        self._source, self._split, self._seed, self._shuffle = source, split, seed, shuffle
        self._orders: dict[int, list[int]] = {}
        self.dropped = dropped

    @property
    def size(self) -> int | None:
        """Rows of an epoch; None when endless without repeating."""
        return None if isinstance(self._source, Generator) else len(self._source)

    def row(self, prompt_id: int) -> PromptRow:
        """The prompt at a position of the data order."""
        if isinstance(self._source, Generator):
            return generate(self._source, prompt_id, self._split)
        epoch, position = divmod(prompt_id, len(self._source))
        return self._source[self._order(epoch)[position] if self._shuffle else position]

    def _order(self, epoch: int) -> list[int]:
        """The epoch's shuffle; the last two are kept, since a batch may straddle a border."""
        if epoch not in self._orders:
            while len(self._orders) > 1:
                del self._orders[min(self._orders)]
            self._orders[epoch] = permutation(len(self._source), self._seed, epoch)  # type: ignore[arg-type]
        return self._orders[epoch]
