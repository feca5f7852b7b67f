"""Packs: the samples of one batch in one store object, concatenated without padding and cut apart by their lengths.

Layout, little endian: header (magic, format, samples, crc32 of all that follows, bytes that follow), int32 [n, 2]
prompt and response lengths, int32 token ids (prompt then response, sample after sample), float32 log-probabilities
(responses only).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rljob_core.errors import RLJobError

_HEADER = struct.Struct("<4sIIIQ")
_MAGIC, _FORMAT = b"RLJP", 1


class PackError(RLJobError):
    """The bytes are not a whole, unharmed pack."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """One finished sample. prompt_ids int32 [P], response_ids int32 [R] (EOS included), logprobs float32 [R]."""

    prompt_ids: NDArray[np.int32]
    response_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]

    @property
    def tokens(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)

    def __post_init__(self) -> None:
        if len(self.response_ids) != len(self.logprobs):
            raise ValueError(f"{len(self.response_ids)} response tokens but {len(self.logprobs)} log-probabilities")


def pack(samples: Sequence[Sample]) -> bytes:
    """Samples -> one object. Size: 24 bytes, 8 a sample, 4 a token, 4 a response token."""
    lengths = np.array([(len(s.prompt_ids), len(s.response_ids)) for s in samples], dtype="<i4").reshape(-1, 2)
    parts = [lengths.tobytes()]
    for sample in samples:
        parts += (_ids(sample.prompt_ids), _ids(sample.response_ids))
    parts += (np.ascontiguousarray(s.logprobs, dtype="<f4").tobytes() for s in samples)
    body = b"".join(parts)
    return _HEADER.pack(_MAGIC, _FORMAT, len(samples), zlib.crc32(body), len(body)) + body


def unpack(data: bytes | memoryview, slots: Sequence[int] | None = None) -> list[Sample]:
    """The samples of the given slots (all by default), as views into `data`: nothing is copied.

    Raises PackError for bytes that are cut, changed or of another format, and for a slot that is not there.
    """
    lengths, tokens, logprobs = _parse(data)
    token_ends, response_ends = np.cumsum(lengths.sum(axis=1)), np.cumsum(lengths[:, 1])
    out = []
    for slot in range(len(lengths)) if slots is None else slots:
        if not 0 <= slot < len(lengths):
            raise PackError(f"slot {slot} of a pack of {len(lengths)} samples")
        prompt, response = lengths[slot]
        end, response_end = token_ends[slot], response_ends[slot]
        out.append(
            Sample(
                prompt_ids=tokens[end - response - prompt : end - response],
                response_ids=tokens[end - response : end],
                logprobs=logprobs[response_end - response : response_end],
            )
        )
    return out


def _parse(data: bytes | memoryview) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
    """(lengths [n, 2], token ids, log-probabilities) after every check."""
    if len(data) < _HEADER.size:
        raise PackError(f"{len(data)} bytes are too few for a pack")
    magic, version, count, crc, size = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _FORMAT:
        raise PackError(f"not a pack of format {_FORMAT}: magic {magic!r}, format {version}")
    body = memoryview(data)[_HEADER.size :]
    if len(body) != size:
        raise PackError(f"pack of {size} bytes holds {len(body)}")
    if zlib.crc32(body) != crc:
        raise PackError("checksum of a pack does not match")
    if size < 8 * count:
        raise PackError(f"pack of {size} bytes cannot hold the lengths of {count} samples")
    lengths = np.frombuffer(body, "<i4", 2 * count).reshape(count, 2)
    tokens, responses = int(lengths.sum(dtype=np.int64)), int(lengths[:, 1].sum(dtype=np.int64))
    if (lengths < 0).any() or size != 8 * count + 4 * (tokens + responses):
        raise PackError(f"lengths of a pack do not add up to its {size} bytes")
    ids = np.frombuffer(body, "<i4", tokens, offset=8 * count)
    return lengths, ids, np.frombuffer(body, "<f4", responses, offset=8 * count + 4 * tokens)


def _ids(ids: NDArray[np.int32]) -> bytes:
    return np.ascontiguousarray(ids, dtype="<i4").tobytes()
