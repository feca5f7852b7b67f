"""From a TRAIN command to minibatches: packs fetched once each, advantages, padded tensors."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rljob_core.api.algorithm import Algorithm, ZeroVariance
from rljob_core.api.messages import TrainWork
from rljob_core.errors import StoreMissError
from rljob_workers.packs import Sample, unpack
from rljob_workers.seams import KVStore
from rljob_workers.trainer.advantages import advantages, varied
from rljob_workers.trainer.batch import Batch, collate, longest
from rljob_workers.trainer.host import Host

NOT_FOUND = -704


def fetch(work: TrainWork, store: KVStore) -> list[Sample]:
    """The samples of all rows, in order; every pack is read once. StoreMissError when a pack is lost."""
    keys = list(dict.fromkeys(work.pack_keys))
    places: dict[str, list[int]] = {key: [] for key in keys}
    for place, key in enumerate(work.pack_keys):
        places[key].append(place)
    out: dict[int, Sample] = {}
    for key, data in zip(keys, store.get(keys), strict=True):
        if data is None:
            raise StoreMissError("get", key, NOT_FOUND, "samples of this step are lost; restart from the checkpoint")
        samples = unpack(data, [work.slots[place] for place in places[key]])
        out |= zip(places[key], samples, strict=True)
    return [out[place] for place in range(len(work.rows))]


def minibatches(
    work: TrainWork, samples: Sequence[Sample], algorithm: Algorithm, host: Host, fixed_tokens: int | None
) -> list[Batch]:
    """One Batch a minibatch, rows in the order given.

    fixed_tokens: length of every row (deterministic mode); None: the longest sequence over all ranks.
    """
    groups_B = torch.tensor(work.groups)
    rewards_GS = torch.tensor(work.group_rewards, dtype=torch.float64)
    rewards_B = torch.tensor(work.rewards, dtype=torch.float64)
    advantages_B = advantages(rewards_B, groups_B, rewards_GS, algorithm.advantage)
    trained_B = torch.ones(len(samples), dtype=torch.bool)
    if algorithm.zero_variance is ZeroVariance.MASK:
        trained_B = varied(rewards_GS)[groups_B]
    tokens = host.largest(longest(samples)) if fixed_tokens is None else fixed_tokens
    whole = collate(samples, advantages_B, trained_B, work.first_versions, tokens - 1)
    numbers_B = torch.tensor(work.minibatch)
    return [whole.select((numbers_B == number).nonzero().squeeze(1)) for number in range(algorithm.minibatches)]


def zero_variance_share(work: TrainWork, host: Host) -> float:
    """Share of groups whose rewards are all equal, over all ranks."""
    varied_G = varied(torch.tensor(work.group_rewards, dtype=torch.float64))
    equal, groups = host.sum_(torch.tensor([int((~varied_G).sum()), len(varied_G)])).tolist()
    return float(equal) / float(groups)
