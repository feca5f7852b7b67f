"""WeightStore over a KVStore: buckets of at most a fixed size, then one manifest a rank, written last.

Keys: `weights/<version>/<rank>/<bucket>` and `weights/<version>/<rank>/manifest`. A version is complete when every
publishing rank's manifest is there; it is proven when every byte a reader takes matches its checksum.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import torch

from rljob_core.errors import StoreMissError, WeightMismatchError
from rljob_core.layouts import ExpertMap, Layout, Slice, TensorSpec
from rljob_workers.seams import KVStore, TransferStats
from rljob_workers.weights.manifest import (
    Entry,
    Manifest,
    Read,
    aligned,
    check_same_model,
    lay_out,
    plan,
    wanted_slices,
)
from rljob_workers.weights.tensor_bytes import aliases, check_local, local_box, read_bytes, write_bytes

BUCKET_BYTES = 64 << 20


class StoreWeights:
    """Implements seams.WeightStore. bucket_bytes bounds what a publish or pull holds beside the tensors."""

    def __init__(self, store: KVStore, *, bucket_bytes: int = BUCKET_BYTES) -> None:
        self._store, self._bucket_bytes = store, bucket_bytes
        self._published: dict[int, list[str]] = {}

    def publish(
        self,
        version: int,
        rank: int,
        layout: Layout,
        tensors: Sequence[TensorSpec],
        local: Mapping[str, torch.Tensor],
        expert_map: ExpertMap | None = None,
    ) -> TransferStats:
        """Write this rank's slices of a version; StoreFullError when there is no room, WeightMismatchError when
        `local` is not what the layout says."""
        start = time.monotonic()
        check_local(tensors, local, layout, rank, expert_map)
        tied = aliases(tensors, local)
        owned = [
            (spec, piece)
            for spec in tensors
            if spec.name not in tied
            for piece in layout.owner(spec, expert_map).get(rank, ())
        ]
        element_sizes = {spec.name: local[spec.name].element_size() for spec in tensors}
        keys = self._published.setdefault(version, [])
        if _key(version, rank, "manifest") in keys:
            raise ValueError(f"version {version} is published already: a version is never issued twice")
        entries = []
        for bucket, members in groupby(lay_out(owned, element_sizes, self._bucket_bytes), key=lambda e: e[0].bucket):
            data, proven = _fill_bucket(list(members), local)
            keys.append(_key(version, rank, str(bucket)))
            self._store.put({keys[-1]: memoryview(data)})
            entries += proven
        manifest = Manifest(
            version=version,
            rank=rank,
            world=layout.world,
            tensors={spec.name: (spec.shape, spec.dtype) for spec in tensors},
            aliases=tied,
            entries=entries,
        )
        keys.append(_key(version, rank, "manifest"))
        self._store.put({keys[-1]: manifest.encode()})
        return TransferStats(bytes=sum(e.size for e in entries), seconds=time.monotonic() - start)

    def pull(
        self,
        version: int,
        rank: int,
        layout: Layout,
        tensors: Sequence[TensorSpec],
        into: Mapping[str, torch.Tensor],
        expert_map: ExpertMap | None = None,
    ) -> TransferStats:
        """Fill every local tensor from a version. bytes: exactly what this rank holds.

        After an error some tensors may hold the new version and some the old one: do not serve.
        """
        start = time.monotonic()
        check_local(tensors, into, layout, rank, expert_map)
        manifests = self._manifests(version)
        check_same_model(manifests, tensors)
        held = layout.slices(rank, tensors, expert_map)
        reads = plan(manifests, wanted_slices(held, aliases(tensors, into), manifests[0].aliases))
        reads.sort(key=lambda r: (r.rank, r.entry.bucket, r.entry.offset))
        for (publisher, bucket), members in groupby(reads, key=lambda r: (r.rank, r.entry.bucket)):
            self._read_bucket(_key(version, publisher, str(bucket)), list(members), into)
        return TransferStats(bytes=sum(r.entry.size for r in reads), seconds=time.monotonic() - start)

    def retire(self, keep: int) -> None:
        """Remove all but the newest `keep` versions this process has published."""
        for version in sorted(self._published)[: max(len(self._published) - keep, 0)]:
            self._store.remove(self._published.pop(version))

    def _manifests(self, version: int) -> list[Manifest]:
        """All manifests of a version; the first one says how many there are."""
        first = self._manifest_bytes(version, [0])
        world = Manifest.decode(first[0], version, 0).world
        rest = self._manifest_bytes(version, range(1, world)) if world > 1 else []
        return [Manifest.decode(data, version, rank) for rank, data in enumerate([*first, *rest])]

    def _manifest_bytes(self, version: int, ranks: Sequence[int]) -> list[bytes]:
        found = self._store.get([_key(version, rank, "manifest") for rank in ranks])
        out = []
        for rank, data in zip(ranks, found, strict=True):
            if data is None:
                raise WeightMismatchError(f"version {version}: no manifest of rank {rank} in the store")
            out.append(data)
        return out

    def _read_bucket(self, key: str, reads: Sequence[Read], into: Mapping[str, torch.Tensor]) -> None:
        """Read entries of one bucket, in order of their offsets, prove them, and put them where they belong."""
        ranges, offsets, end = _ranges([r.entry for r in reads])
        data = memoryview(bytearray(end))
        try:
            self._store.get_ranges(key, ranges, data)
        except StoreMissError as error:
            raise WeightMismatchError(f"{key}: named by the manifest, not in the store") from error
        for read, offset in zip(reads, offsets, strict=True):
            entry = read.entry
            content = data[offset : offset + entry.size]
            if zlib.crc32(content) != entry.crc:
                raise WeightMismatchError(f"{key}: checksum of {entry.tensor} {entry.lo}..{entry.hi} does not match")
            write_bytes(local_box(into[read.target], read.piece, entry), content)


def _key(version: int, rank: int, part: str) -> str:
    return f"weights/{version}/{rank}/{part}"


def _fill_bucket(
    members: Sequence[tuple[Entry, Slice]], local: Mapping[str, torch.Tensor]
) -> tuple[bytearray, list[Entry]]:
    """One bucket's bytes, and its entries with their checksums."""
    last = members[-1][0]
    data, proven = bytearray(last.offset + last.size), []
    for entry, piece in members:
        content = read_bytes(local_box(local[entry.tensor], piece, entry))
        data[entry.offset : entry.offset + entry.size] = content
        proven.append(replace(entry, crc=zlib.crc32(content)))
    return data, proven


def _ranges(entries: Sequence[Entry]) -> tuple[list[tuple[int, int, int]], list[int], int]:
    """(source offset, target offset, length) pieces, neighbours joined; each entry's target offset; bytes of target."""
    ranges: list[tuple[int, int, int]] = []
    offsets, target = [], 0
    for entry in entries:
        source, start, length = ranges[-1] if ranges else (0, 0, 0)
        if ranges and entry.offset == source + length and target == start + length:
            ranges[-1] = (source, start, length + entry.size)
        else:
            ranges.append((entry.offset, target, entry.size))
        offsets.append(target)
        target += aligned(entry.size)
    return ranges, offsets, target
