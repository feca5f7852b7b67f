"""The log-probability gap: rollout against trainer, for the same tokens under the same weights (rl.md 22).

Rows sampled under the weights the trainer holds are compared in its own first forward pass, for free. With a lag
allowed most rows are older; so that the gap is measured in every step all the same, the last `maxVersionLag`
versions are kept on the host, and a few rows of the most frequent of them go through a forward pass under exactly
those weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rljob_workers.model import Policy
from rljob_workers.trainer.batch import Batch
from rljob_workers.trainer.host import Host

PROBE_ROWS = 32


class WeightHistory:
    """Earlier policy versions of this rank's shard. build: makes an empty policy of the same shape."""

    def __init__(self, versions: int, build: Callable[[], Policy], host: Host) -> None:
        self._keep, self._host = versions, host
        self._build = build
        self._probe: Policy | None = None
        self._tensors: dict[int, dict[str, Tensor]] = {}

    def remember(self, version: int, policy: Policy) -> None:
        """Keep a host copy of the policy's tensors as `version` before it is updated; forget the oldest."""
        if self._keep:
            self._tensors[version] = {n: t.to("cpu", copy=True) for n, t in policy.local_tensors().items()}
            for old in sorted(self._tensors)[: -self._keep]:
                del self._tensors[old]

    @torch.no_grad()
    def rows_of_an_older_version(self, batch: Batch) -> tuple[Policy, Batch, Tensor] | None:
        """(policy holding an earlier version, some rows, [B] bool which of them were sampled under it), or None.

        All ranks call together and get the same version and number of rows (experts are spread over ranks).
        """
        versions = sorted(self._tensors, reverse=True)
        if not versions:
            return None
        counts = self._host.sum_(torch.tensor([int((batch.versions_B == v).sum()) for v in versions]))
        if not counts.any():
            return None
        version = versions[int(counts.argmax())]
        if self._probe is None:
            self._probe = self._build().requires_grad_(False)
        for name, tensor in self._probe.local_tensors().items():
            tensor.copy_(self._tensors[version][name])
        rows = batch.select((batch.versions_B != version).to(torch.uint8).argsort(stable=True)[:PROBE_ROWS])
        return self._probe, rows, rows.versions_B == version
