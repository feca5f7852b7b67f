"""Keys and values of the sequences being decoded, and their form in the store: one block a prompt.

A block is a header, all layers' keys and values [layers, 2, K, T, D] and the logits [V] after the prompt's last
token (float32), so that the first response token needs no forward. S slots, K key-value heads, T prompt tokens,
L positions, D head dimension.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rljob_workers.model import ModelConfig
from rljob_workers.seams import KVBlockError

_HEADER = struct.Struct("<4sHHq5II")
_MAGIC, _FORMAT = b"RJKV", 1
_CODES = {torch.float32: 1, torch.bfloat16: 2, torch.float16: 3}
_STORED: dict[torch.dtype, type[np.generic]] = {
    torch.float32: np.float32,
    torch.bfloat16: np.uint16,
    torch.float16: np.uint16,
}
"""numpy has no bfloat16: half-width values travel as their bits."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A decoded block; arrays are views of its bytes."""

    kv: npt.NDArray[Any]
    logits: npt.NDArray[np.float32]

    @property
    def tokens(self) -> int:
        return int(self.kv.shape[3])


class BlockCodec:
    """Blocks of one model and element type."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype) -> None:
        self._layers, self._heads, self._dim = config.num_hidden_layers, config.num_key_value_heads, config.head_dim
        self._vocab, self._dtype = config.vocab_size, dtype
        self._newest: tuple[bytes, int, Block] | None = None

    def encode(self, version: int, kv: Tensor, logits_BV: Tensor, lengths: Sequence[int]) -> list[bytes]:
        """One block a row. kv: [layers, 2, B, K, T, D], of which row b fills lengths[b] positions."""
        host = (kv.cpu() if self._dtype is torch.float32 else kv.cpu().view(torch.uint16)).numpy()
        logits = logits_BV.float().cpu().numpy()
        return [self._encode(version, host[:, :, b, :, :n], logits[b]) for b, n in enumerate(lengths)]

    def _encode(self, version: int, kv: npt.NDArray[Any], logits: npt.NDArray[np.float32]) -> bytes:
        body = kv.tobytes() + logits.tobytes()
        return self._header(version, kv.shape[3], zlib.crc32(body)) + body

    def _header(self, version: int, tokens: int, checksum: int) -> bytes:
        shape = (self._layers, self._heads, tokens, self._dim, self._vocab)
        return _HEADER.pack(_MAGIC, _FORMAT, _CODES[self._dtype], version, *shape, checksum)

    def decode(self, block: bytes, version: int, tokens: int) -> Block:
        """Raises KVBlockError unless the block is whole, of this model and version, and `tokens` long. The samples of
        a prompt share one block: it is checked once while they follow each other."""
        if self._newest is not None:
            seen, of_version, decoded = self._newest
            if seen is block and of_version == version and decoded.tokens == tokens:
                return decoded
        header, body = block[: _HEADER.size], memoryview(block)[_HEADER.size :]
        stored = np.dtype(_STORED[self._dtype])
        shape = (self._layers, 2, self._heads, tokens, self._dim)
        count = int(np.prod(shape))
        if len(body) != count * stored.itemsize + 4 * self._vocab or header != self._header(
            version, tokens, zlib.crc32(body)
        ):
            raise KVBlockError(f"KV block of {len(block)} bytes does not hold {tokens} tokens of version {version}")
        kv = np.frombuffer(body, stored, count).reshape(shape)
        decoded = Block(kv=kv, logits=np.frombuffer(body, np.float32, self._vocab, count * stored.itemsize))
        self._newest = (block, version, decoded)
        return decoded


class KVCache:
    """Preallocated cache of all slots, with the logits that give each slot's next token."""

    def __init__(
        self, config: ModelConfig, slots: int, positions: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        shape = (config.num_hidden_layers, 2, slots, config.num_key_value_heads, positions, config.head_dim)
        self.kv = torch.zeros(shape, dtype=dtype, device=device)
        self.logits_SV = torch.zeros(slots, config.vocab_size, device=device)

    def insert(self, rows: Sequence[int], kv: Tensor, logits_nV: Tensor) -> None:
        """Fill slots from the start. kv: [layers, 2, n, K, T, D]."""
        index = torch.tensor(rows, device=self.kv.device)
        self.kv[:, :, index, :, : kv.shape[4]] = kv.to(self.kv)
        self.logits_SV[index] = logits_nV.to(self.logits_SV)

    def insert_blocks(self, rows: Sequence[int], blocks: Sequence[Block]) -> None:
        """Fill slots from blocks of one prompt length."""
        kv = torch.from_numpy(np.stack([b.kv for b in blocks]))
        logits = torch.from_numpy(np.stack([b.logits for b in blocks]))
        self.insert(rows, kv.view(self.kv.dtype).permute(1, 2, 0, 3, 4, 5), logits)

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy slots onto others (disjoint)."""
        source, target = (torch.tensor(rows, device=self.kv.device) for rows in (sources, targets))
        self.kv[:, :, target] = self.kv[:, :, source]
        self.logits_SV[target] = self.logits_SV[source]

    def window(self, slots: int, positions: int) -> Tensor:
        """View of the first slots and positions."""
        return self.kv[:, :, :slots, :, :positions]
