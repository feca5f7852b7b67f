"""The only file that imports Mooncake: its codes, pointers and traps end here.

API and behaviour of the 0.3.13 wheels (kvcache-ai/Mooncake): codes per key from the batch calls alone; `get` returns
b'' for anything missing, so it is never used; sizes come from a descriptor query.
"""

from __future__ import annotations

import ctypes
import importlib.util
import ipaddress
import mmap
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rljob_core.api.placement import StoreProtocol
from rljob_core.errors import InvalidInputError, StoreError
from rljob_core.names import ENV_POD_IP
from rljob_workers.context import split_address
from rljob_workers.kv_store.base import BaseStore

METADATA = "P2PHANDSHAKE"
"""No metadata server: clients ask each other, which survives anything but the master."""

STAGING_BYTES = 16 << 20
RPC_FAILED = -900
CONNECT_TIMEOUT_S = 2.0
CONNECT_TIMEOUT_VARIABLE = "MC_RPC_CONNECT_TIMEOUT_MS"
"""Of each of the library's four tries to reach its master again. Where the master's address swallows packets (its node
is gone), the library's own 30 s made every call last two minutes; 2 s make it 8 s (Mooncake#3740)."""
SEE_LOG = "see the log of the store master"


class MooncakeStore(BaseStore):
    """A pure client of a running master: it holds no segment, so it may come and go without losing anyone's data.

    Values pass through one registered staging buffer (grown to the largest value put), so that no caller's memory has
    to be registered, which RDMA and Ascend transports need and TCP does not miss. With `ascend` the caller has set its
    device before. remedy: said where no master answers. options: of BaseStore.
    """

    def __init__(
        self,
        *,
        uid: str,
        master: str,
        local_ip: str,
        protocol: StoreProtocol,
        budgets: Mapping[str, int],
        wait_s: float = 60.0,
        staging_bytes: int = STAGING_BYTES,
        remedy: str = SEE_LOG,
        **options: Any,
    ) -> None:
        super().__init__(uid=uid, budgets=budgets, **options)
        self._client = _connect(master, local_ip, protocol, segment_bytes=0, wait_s=wait_s, remedy=remedy)
        self._config = _hard_pinned()
        self._staging = _Staging(self._client, staging_bytes)

    def _put(self, items: Sequence[tuple[str, memoryview]]) -> list[int]:
        self._staging.grow(max((value.nbytes for _, value in items), default=0))
        codes: list[int] = []
        for first, end in _chunks([value.nbytes for _, value in items], self._staging.size):
            keys = [key for key, _ in items[first:end]]
            pointers, sizes, offset = [], [], 0
            for _, value in items[first:end]:
                self._staging.view[offset : offset + value.nbytes] = value
                pointers.append(self._staging.address + offset)
                sizes.append(value.nbytes)
                offset += value.nbytes
            codes += self._client.batch_put_from(keys, pointers, sizes, self._config)
        return codes

    def _sizes(self, keys: Sequence[str]) -> list[int | None]:
        if not keys:
            return []
        described = self._client.batch_get_replica_desc(list(keys))
        missing = [key for key in keys if not described.get(key)]
        if missing:  # an unreachable master describes nothing either
            for key, code in zip(missing, self._client.batch_is_exist(missing), strict=True):
                if code < 0:
                    raise StoreError("stat", key, code, "is the store master running?")
        return [_size(described[key]) if described.get(key) else None for key in keys]

    def _read(self, keys: Sequence[str], sizes: Sequence[int]) -> list[bytes | int]:
        self._staging.grow(max(sizes, default=0))
        out: list[bytes | int] = []
        for first, end in _chunks(sizes, self._staging.size):
            offsets = [sum(sizes[first:i]) for i in range(first, end)]
            pointers = [self._staging.address + offset for offset in offsets]
            codes = self._client.batch_get_into(list(keys[first:end]), pointers, list(sizes[first:end]))
            for offset, size, code in zip(offsets, sizes[first:end], codes, strict=True):
                out.append(bytes(self._staging.view[offset : offset + size]) if code == size else min(code, -1))
        return out

    def _read_ranges(self, key: str, ranges: Sequence[tuple[int, int, int]], into: memoryview) -> int:
        pieces = list(_cut(ranges, self._staging.size))
        for first, end in _chunks([length for _, _, length in pieces], self._staging.size):
            batch = pieces[first:end]
            lengths = [length for _, _, length in batch]
            offsets = [sum(lengths[:i]) for i in range(len(lengths))]
            codes = self._client.get_into_ranges(
                [self._staging.address], [[key]], [[offsets]], [[[source for source, _, _ in batch]]], [[lengths]]
            )[0][0]
            for (_, target, length), offset, code in zip(batch, offsets, codes, strict=True):
                if code != length:
                    return min(int(code), -1)
                into[target : target + length] = self._staging.view[offset : offset + length]
        return 0

    def _remove(self, keys: Sequence[str]) -> list[int]:
        codes: list[int] = self._client.batch_remove(list(keys), True)
        return codes

    def _remove_below(self, prefix: str) -> int:
        return int(self._client.remove_by_regex("^" + re.escape(prefix), True))

    def _close(self) -> None:
        self._staging.release()
        self._client.close()


class MooncakeSegment:
    """Memory lent to the pool of a running master until `close`."""

    def __init__(
        self, *, master: str, local_ip: str, protocol: StoreProtocol, segment_bytes: int, wait_s: float = 60.0
    ) -> None:
        self._client = _connect(master, local_ip, protocol, segment_bytes=segment_bytes, wait_s=wait_s)

    def close(self) -> None:
        """Deregister, so that the master drops the segment at once and not after client_ttl."""
        self._client.close()


def master_binary() -> Path:
    """The wheel's `mooncake_master`; found without importing the client library, which needs device drivers."""
    spec = importlib.util.find_spec("mooncake")
    if spec is None or not spec.submodule_search_locations:
        raise StoreError("start", "mooncake_master", RPC_FAILED, "install one of the extras cpu, npu, cuda")
    return Path(next(iter(spec.submodule_search_locations))) / "mooncake_master"


def _connect(
    master: str,
    local_ip: str,
    protocol: StoreProtocol,
    *,
    segment_bytes: int,
    wait_s: float,
    remedy: str = SEE_LOG,
) -> Any:
    """A client that is set up. Without the wait, setup would retry silently for about 90 s."""
    _check_address(local_ip)
    _wait_for_port(master, wait_s, remedy)
    os.environ.setdefault(CONNECT_TIMEOUT_VARIABLE, str(int(1000 * CONNECT_TIMEOUT_S)))
    from mooncake.store import MooncakeDistributedStore

    client = MooncakeDistributedStore()
    code = client.setup(local_ip, METADATA, segment_bytes, 0, str(protocol), "", master)
    if code:
        raise StoreError("setup", master, code, f"protocol {protocol}, local address {local_ip}")
    return client


def _check_address(local_ip: str) -> None:
    """Peers are told this address: a name or a wildcard would send them to themselves (Mooncake#1753)."""
    try:
        usable = not ipaddress.ip_address(local_ip).is_unspecified
    except ValueError:
        usable = False
    if not usable:
        raise InvalidInputError(
            ENV_POD_IP, local_ip, "is not an address other pods can reach", "set it to status.podIP of the pod"
        )


def _wait_for_port(master: str, wait_s: float, remedy: str) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            with socket.create_connection(split_address(master), timeout=CONNECT_TIMEOUT_S):
                return
        except OSError as error:
            if time.monotonic() >= deadline:
                raise StoreError(
                    "connect", master, RPC_FAILED, f"no store master answered within {wait_s} s ({error}); {remedy}"
                ) from error
        time.sleep(0.1)


def _hard_pinned() -> Any:
    """One copy, never evicted: what is written and not yet read would go first otherwise."""
    from mooncake.store import ReplicateConfig

    config = ReplicateConfig()
    config.replica_num = 1
    config.with_hard_pin = True
    return config


def _size(descriptors: Sequence[Any]) -> int | None:
    """Of a value that is completely written."""
    complete = [d for d in descriptors if d.is_memory_replica() and d.status.name == "COMPLETE"]
    if not complete:
        return None
    return int(complete[0].get_memory_descriptor().buffer_descriptor.size)


class _Staging:
    """One registered, page-aligned buffer; its pages cost nothing until touched."""

    def __init__(self, client: Any, size: int) -> None:
        self._client = client
        self._allocate(size)

    def grow(self, size: int) -> None:
        """Hold at least `size` bytes from now on."""
        if size > self.size:
            self.release()
            self._allocate(1 << (size - 1).bit_length())

    def release(self) -> None:
        self._client.unregister_buffer(self.address)

    def _allocate(self, size: int) -> None:
        memory = mmap.mmap(-1, size)
        self.size, self.view = size, memoryview(memory)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        code = self._client.register_buffer(self.address, size)
        if code:
            raise StoreError("register", f"{size} bytes", code)


def _chunks(sizes: Sequence[int], limit: int) -> list[tuple[int, int]]:
    """Half-open index ranges, in order, each within `limit` bytes together."""
    out, first, total = [], 0, 0
    for i, size in enumerate(sizes):
        if total + size > limit and i > first:
            out.append((first, i))
            first, total = i, 0
        total += size
    return [*out, (first, len(sizes))] if sizes else out


def _cut(ranges: Sequence[tuple[int, int, int]], limit: int) -> list[tuple[int, int, int]]:
    """The same ranges, none longer than `limit`."""
    return [
        (source + done, target + done, min(limit, length - done))
        for source, target, length in ranges
        for done in range(0, length, limit)
    ]
