"""Whether the safetensors files of a model directory are all there and whole, told from their headers alone.

A file is an 8-byte little-endian length, that many bytes of JSON (tensor -> dtype, shape, data_offsets), then the data;
its size follows from the header (safetensors, format description). So a download that was cut short shows without
reading the weights.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from rljob_core.errors import InvalidInputError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000
"""As the safetensors library bounds it."""
_LENGTH_BYTES = 8
_REMEDY = "copy the file again"

Peek = Callable[[str, int], tuple[bytes, int]]
"""(path, n) -> (the first n bytes at most, size of the file in bytes). Raises OSError."""


def check_weight_files(directory: str, peek: Peek, field: str) -> None:
    """Every weight file of a directory; InvalidInputError names the one that is missing or cut short."""
    for name in _file_names(directory, peek, field):
        _check_file(f"{directory}/{name}", peek, field)


def weight_file_names(index: Any) -> list[str]:
    """Files an index names. Raises ValueError when it is no weight index."""
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise ValueError("it has no weight_map")
    return sorted(set(weight_map.values()))


def _file_names(directory: str, peek: Peek, field: str) -> list[str]:
    path = f"{directory}/{INDEX}"
    try:
        text, _ = peek(path, MAX_HEADER_BYTES)
    except FileNotFoundError:
        return [WEIGHTS]
    try:
        return weight_file_names(json.loads(text))
    except ValueError as error:
        raise InvalidInputError(field, path, f"is not a weight index ({error})", _REMEDY) from error


def _check_file(path: str, peek: Peek, field: str) -> None:
    try:
        length, size = peek(path, _LENGTH_BYTES)
        header_bytes = int.from_bytes(length, "little")
        if len(length) < _LENGTH_BYTES or header_bytes > min(size - _LENGTH_BYTES, MAX_HEADER_BYTES):
            raise InvalidInputError(field, path, f"is cut short or no safetensors file ({size} bytes)", _REMEDY)
        head, _ = peek(path, _LENGTH_BYTES + header_bytes)
    except FileNotFoundError as error:
        raise InvalidInputError(field, path, "does not exist", "use a complete Hugging Face directory") from error
    except OSError as error:
        raise InvalidInputError(field, path, f"cannot be read ({error.strerror})", "make it a readable file") from error
    wanted = _LENGTH_BYTES + header_bytes + _data_bytes(head[_LENGTH_BYTES:], path, field)
    if size != wanted:
        raise InvalidInputError(field, path, f"has {size} bytes where its header says {wanted}", _REMEDY)


def _data_bytes(header: bytes, path: str, field: str) -> int:
    try:
        tensors = json.loads(header)
        return max((int(t["data_offsets"][1]) for name, t in tensors.items() if name != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InvalidInputError(field, path, "has no safetensors header", _REMEDY) from error
