"""Manifests: what one publishing rank wrote of a version, and the plan to read it into another layout. No tensors here.

An entry is a box of a tensor inside a bucket (one store object), with a checksum. Experts are entries of their own, so
that whatever experts a reader holds, it reads whole entries and can prove each by its checksum.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rljob_core.errors import WeightMismatchError
from rljob_core.layouts import Slice, TensorKind, TensorSpec

ALIGNMENT = 8
"""Offsets in a bucket are multiples of this many bytes, so that any element type may be viewed in place."""

FORMAT = 1

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Half-open box in the whole tensor: (lo, hi), one number a dimension."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One box. offset, size: bytes inside its bucket. crc: CRC-32 of those bytes."""

    tensor: str
    lo: tuple[int, ...]
    hi: tuple[int, ...]
    bucket: int
    offset: int
    size: int
    crc: int = 0


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything one rank published. tensors: name -> (shape, dtype) of the whole model.

    aliases: tensor -> the one it shares memory with (a tied head), published under that name only.
    """

    version: int
    rank: int
    world: int
    tensors: Mapping[str, tuple[tuple[int, ...], str]]
    aliases: Mapping[str, str]
    entries: Sequence[Entry]

    def encode(self) -> bytes:
        body = json.dumps(
            {
                "format": FORMAT,
                "version": self.version,
                "rank": self.rank,
                "world": self.world,
                "tensors": {name: [list(shape), dtype] for name, (shape, dtype) in self.tensors.items()},
                "aliases": dict(self.aliases),
                "entries": [[e.tensor, e.lo, e.hi, e.bucket, e.offset, e.size, e.crc] for e in self.entries],
            },
            separators=(",", ":"),
        ).encode()
        return b"%08x" % zlib.crc32(body) + body

    @classmethod
    def decode(cls, data: bytes, version: int, rank: int) -> Manifest:
        """Raises WeightMismatchError unless the bytes are whole and of this version and rank."""
        where = f"manifest of version {version}, rank {rank}"
        if data[:8] != b"%08x" % zlib.crc32(data[8:]):
            raise WeightMismatchError(f"{where}: checksum does not match")
        body = json.loads(data[8:])
        found = (body["format"], body["version"], body["rank"])
        if found != (FORMAT, version, rank):
            raise WeightMismatchError(f"{where}: holds format {found[0]}, version {found[1]}, rank {found[2]}")
        return cls(
            version=version,
            rank=rank,
            world=body["world"],
            tensors={name: (tuple(shape), dtype) for name, (shape, dtype) in body["tensors"].items()},
            aliases=body["aliases"],
            entries=[
                Entry(tensor=t, lo=tuple(lo), hi=tuple(hi), bucket=bucket, offset=offset, size=size, crc=crc)
                for t, lo, hi, bucket, offset, size, crc in body["entries"]
            ],
        )


def lay_out(
    slices: Sequence[tuple[TensorSpec, Slice]], element_sizes: Mapping[str, int], bucket_bytes: int
) -> list[tuple[Entry, Slice]]:
    """Entries of a rank's slices, in order, in buckets of at most `bucket_bytes`; checksums are still missing."""
    entries: list[tuple[Entry, Slice]] = []
    bucket, offset = 0, 0
    for spec, piece in slices:
        element = element_sizes[spec.name]
        for lo, hi in _boxes(spec, piece, max(bucket_bytes // element, 1)):
            size = volume((lo, hi)) * element
            if offset + size > bucket_bytes and offset:
                bucket, offset = bucket + 1, 0
            entries.append((Entry(tensor=spec.name, lo=lo, hi=hi, bucket=bucket, offset=offset, size=size), piece))
            offset += aligned(size)
    return entries


def aligned(size: int) -> int:
    """Bytes an entry of this size takes up in a bucket."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def volume(box: Box) -> int:
    """Elements of a box."""
    return math.prod(high - low for low, high in zip(*box, strict=True))


def _boxes(spec: TensorSpec, piece: Slice, limit: int) -> Iterator[Box]:
    """A slice cut into boxes of at most `limit` elements: an expert tensor expert by expert first."""
    if spec.kind is not TensorKind.EXPERT:
        yield from _split((piece.lo, piece.hi), limit)
        return
    for expert in range(piece.lo[0], piece.hi[0]):
        yield from _split(((expert, *piece.lo[1:]), (expert + 1, *piece.hi[1:])), limit)


def _split(box: Box, limit: int) -> Iterator[Box]:
    """Cut along the first dimension that has more than one index, deeper ones where that is not enough."""
    if volume(box) <= limit:
        if volume(box):
            yield box
        return
    lo, hi = box
    dim = next(d for d in range(len(lo)) if hi[d] - lo[d] > 1)
    step = max(limit * (hi[dim] - lo[dim]) // volume(box), 1)
    for start in range(lo[dim], hi[dim], step):
        end = min(start + step, hi[dim])
        yield from _split(((*lo[:dim], start, *lo[dim + 1 :]), (*hi[:dim], end, *hi[dim + 1 :])), limit)


def check_same_model(manifests: Sequence[Manifest], tensors: Sequence[TensorSpec]) -> None:
    """Publisher and reader mean the same tensors: a name only one side knows would be skipped in silence."""
    wanted = {t.name: (t.shape, t.dtype) for t in tensors}
    for manifest in manifests:
        if manifest.tensors == wanted:
            continue
        for name in sorted(wanted.keys() | manifest.tensors.keys()):
            if wanted.get(name) != manifest.tensors.get(name):
                raise WeightMismatchError(
                    f"version {manifest.version}: {name} is {manifest.tensors.get(name)} as published by rank "
                    f"{manifest.rank}, {wanted.get(name)} here"
                )


@dataclass(frozen=True, kw_only=True)
class Read:
    """One whole entry to read: published by `rank`, part of `piece` of the reader's tensor `target`."""

    rank: int
    entry: Entry
    piece: Slice
    target: str


def plan(manifests: Sequence[Manifest], wanted: Mapping[str, Sequence[Slice]]) -> list[Read]:
    """Reads for all that a reader holds (target -> slices of the published tensors), each element exactly once.

    Raises WeightMismatchError when a slice is not covered, covered twice, or an entry lies only partly inside.
    """
    by_tensor: dict[str, list[tuple[int, Entry]]] = {}
    for manifest in manifests:
        for entry in manifest.entries:
            by_tensor.setdefault(entry.tensor, []).append((manifest.rank, entry))
    out = []
    for target, slices in wanted.items():
        for piece in slices:
            inside = [(r, e) for r, e in by_tensor.get(piece.tensor, ()) if _touches(e, piece)]
            _prove_cover([e for _, e in inside], piece)
            out += [Read(rank=rank, entry=entry, piece=piece, target=target) for rank, entry in inside]
    return out


def _touches(entry: Entry, piece: Slice) -> bool:
    return all(low < high for low, high in zip(map(max, entry.lo, piece.lo), map(min, entry.hi, piece.hi), strict=True))


def wanted_slices(
    held: Mapping[str, Sequence[Slice]], tied_here: Mapping[str, str], tied_there: Mapping[str, str]
) -> dict[str, list[Slice]]:
    """Target -> slices under the name they were published. A tensor tied here is filled through its owner alone.

    held: what the reader's layout says. tied_*: tensor -> the one it shares memory with.
    """
    out = {}
    for name, slices in held.items():
        source = tied_there.get(name, name)
        if name not in tied_here:
            out[name] = [replace(piece, tensor=source) for piece in slices]
        elif tied_there.get(tied_here[name], tied_here[name]) != source:
            raise WeightMismatchError(f"{name} is tied to {tied_here[name]} here, and was published apart from it")
    return out


def _prove_cover(entries: Sequence[Entry], piece: Slice) -> None:
    """Entries inside the slice, disjoint, and as large as it together: then each element is written exactly once."""
    where = f"{piece.tensor} {piece.lo}..{piece.hi}"
    for entry in entries:
        if any(a < b for a, b in zip(entry.lo, piece.lo, strict=True)) or any(
            a > b for a, b in zip(entry.hi, piece.hi, strict=True)
        ):
            raise WeightMismatchError(f"{where}: entry {entry.lo}..{entry.hi} lies only partly inside")
    ordered = sorted(entries, key=lambda e: e.lo)
    for i, entry in enumerate(ordered):
        for other in ordered[i + 1 :]:
            if entry.hi and other.lo[0] >= entry.hi[0]:
                break
            if _touches(entry, Slice(tensor=piece.tensor, lo=other.lo, hi=other.hi, at=other.lo)):
                raise WeightMismatchError(f"{where}: published twice at {other.lo}")
    covered = sum(volume((e.lo, e.hi)) for e in entries)
    if covered != volume((piece.lo, piece.hi)):
        raise WeightMismatchError(f"{where}: {covered} of {volume((piece.lo, piece.hi))} elements published")
