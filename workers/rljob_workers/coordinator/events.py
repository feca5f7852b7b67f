"""TensorBoard event files with scalars: the few bytes of the format that are needed.

tensorboardX and torch's writer import torch, which would cost the coordinator seconds and 150 MB. The format is
TFRecord framing (length and data, each with a masked CRC-32C) around `Event` protobufs
(tensorflow/core/util/event.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

VERSION = b"brain.Event:2"
_POLYNOMIAL = 0x82F63B78


def _table() -> tuple[int, ...]:
    out = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        out.append(crc)
    return tuple(out)


_CRC = _table()


class EventFile:
    """Appends scalars; each call is flushed."""

    def __init__(self, directory: Path, now: float) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = (directory / f"events.out.tfevents.{now:.6f}.rljob").open("ab")
        self._write(_double(1, now) + _bytes(3, VERSION))

    def scalars(self, values: Mapping[str, float], step: int, now: float) -> None:
        """One point for each tag. now: unix seconds."""
        points = b"".join(_bytes(1, _bytes(1, tag.encode()) + _float(2, value)) for tag, value in values.items())
        self._write(_double(1, now) + _varint(2 << 3) + _varint(step) + _bytes(5, points))

    def close(self) -> None:
        self._file.close()

    def _write(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        self._file.write(length + _checksum(length) + event + _checksum(event))
        self._file.flush()


def _checksum(data: bytes) -> bytes:
    """Masked CRC-32C, as in TFRecord."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _bytes(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)
