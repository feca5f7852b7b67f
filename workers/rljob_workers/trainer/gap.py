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
from rljob_workers.trainer import losses
from rljob_workers.trainer.batch import Batch
from rljob_workers.trainer.host import Host

PROBE_ROWS = 32


class Gap:
    """|rollout - trainer| log-probability differences of one rank's response tokens in one step."""

    def __init__(self, device: torch.device) -> None:
        self._sums = torch.zeros(2, dtype=torch.float64, device=device)
        """Differences and tokens."""
        self._largest = torch.zeros((), device=device)

    @torch.no_grad()
    def add(self, logprobs_BTV: Tensor, batch: Batch, same_version_B: Tensor) -> None:
        """Rows sampled under the weights that gave logprobs_BTV."""
        mask_BT = batch.response_BT & same_version_B.unsqueeze(1)
        gap_BT = losses.taken_logprobs(logprobs_BTV, batch.targets_BT) - batch.rollout_logprobs_BT
        gap_BT = losses.masked(gap_BT.abs(), mask_BT)
        self._sums += torch.stack([gap_BT.sum(), mask_BT.sum()])
        self._largest = torch.maximum(self._largest, gap_BT.max())

    def metrics(self, host: Host) -> dict[str, float]:
        """The largest of all ranks, which one wrong token shows in, and the mean; empty where no row could be compared.
        All ranks call together."""
        total, tokens = host.sum_(self._sums.cpu()).tolist()
        largest = host.max_(self._largest.cpu()).item()
        return {"logprob_gap": largest, "logprob_gap_mean": total / tokens} if tokens else {}


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
