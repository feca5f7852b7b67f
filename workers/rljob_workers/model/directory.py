"""Hugging Face model directories: config.json and safetensors, one file or sharded, experts one by one on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rljob_core.errors import InvalidInputError
from rljob_core.inputs.weight_files import INDEX, WEIGHTS, check_weight_files, weight_file_names
from rljob_core.layouts import TensorSpec
from rljob_core.models import parse_config, tensor_specs
from rljob_workers.model.family import Piece
from rljob_workers.model.policy import DTYPES
from rljob_workers.model.registry import family_of

FIELD = "spec.model.path"
_UNUSED = ("rotary_emb.inv_freq",)


def read_config(path: Path) -> dict[str, Any]:
    """config.json of a directory."""
    file = path / "config.json"
    try:
        config = json.loads(file.read_text())
    except FileNotFoundError as error:
        raise InvalidInputError(FIELD, str(path), "has no config.json", "use a Hugging Face directory") from error
    except ValueError as error:
        raise InvalidInputError(FIELD, str(file), f"is not JSON ({error})", "write the file anew") from error
    if not isinstance(config, dict):
        raise InvalidInputError(FIELD, str(file), "is not a JSON object", "write the file anew")
    return config


def read_directory(path: Path, dtype: str = "float32") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(config, whole tensors under in-memory names, in `dtype`). InvalidInputError names what is missing, of the
    wrong shape, unknown, or cut short."""
    config = read_config(path)
    family = family_of(config, f"{path}/config.json")
    parse_config(config, f"{path}/config.json")
    with ExitStack() as stack:
        files = _Files(path, stack)
        tensors = {s.name: files.whole(s, family.pieces(s), DTYPES[dtype]) for s in tensor_specs(config)}
        files.refuse_rest(tied="lm_head.weight" not in tensors)
    return config, tensors


class _Files:
    """The open safetensors files of a directory."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.path = path
        self.handles: dict[str, Any] = {}
        self.read: set[str] = set()
        check_weight_files(str(path), _peek, FIELD)
        for name in _file_names(path):
            try:
                handle = stack.enter_context(safe_open(path / name, framework="pt"))
            except (OSError, SafetensorError) as error:
                raise InvalidInputError(
                    FIELD, str(path / name), f"cannot be read ({error})", "copy the file again"
                ) from error
            self.handles |= dict.fromkeys(handle.keys(), handle)

    def whole(self, spec: TensorSpec, pieces: Sequence[Piece], dtype: torch.dtype) -> Tensor:
        """One in-memory tensor, from its fused name or from its pieces."""
        if spec.name in self.handles:
            pieces = [Piece(name=spec.name, index=())]
        out = torch.empty(spec.shape, dtype=dtype)
        for piece in pieces:
            out[piece.index] = self._get(piece.name, out[piece.index].shape)
        return out

    def _get(self, name: str, shape: torch.Size) -> Tensor:
        if name not in self.handles:
            raise InvalidInputError(
                FIELD, str(self.path), f"lacks tensor {name}", "use a complete checkpoint of this config"
            )
        tensor: Tensor = self.handles[name].get_tensor(name)
        if tensor.shape != shape:
            raise InvalidInputError(
                f"{FIELD} tensor {name}", list(tensor.shape), f"should be {list(shape)}", "use weights of this config"
            )
        self.read.add(name)
        return tensor

    def refuse_rest(self, *, tied: bool) -> None:
        """Tensors no parameter takes mean another architecture than config.json says."""
        rest = [n for n in sorted(self.handles.keys() - self.read) if not n.endswith(_UNUSED)]
        rest = [n for n in rest if not (tied and n == "lm_head.weight")]
        if rest:
            raise InvalidInputError(
                FIELD, str(self.path), f"holds {len(rest)} tensors the model does not have ({rest[0]}, ...)",
                "use the config.json that belongs to these weights",
            )  # fmt: skip


def _file_names(path: Path) -> list[str]:
    return weight_file_names(json.loads((path / INDEX).read_text())) if (path / INDEX).exists() else [WEIGHTS]


def _peek(path: str, count: int) -> tuple[bytes, int]:
    with Path(path).open("rb") as file:
        return file.read(count), Path(path).stat().st_size


def write_directory(
    path: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    files: Mapping[str, bytes],
    *,
    eos_ids: Sequence[int],
    pad_id: int | None,
) -> None:
    """Write a directory that `AutoModelForCausalLM.from_pretrained` loads. tensors: whole, in-memory names;
    files: tokenizer files by name. The caller makes the directory visible atomically."""
    path.mkdir(parents=True, exist_ok=True)
    family = family_of(config)
    on_disk = {
        piece.name: tensors[spec.name][piece.index].detach().cpu().contiguous().clone()
        for spec in tensor_specs(config)
        for piece in family.pieces(spec)
    }
    save_file(on_disk, path / WEIGHTS, metadata={"format": "pt"})
    ids: dict[str, Any] = {"eos_token_id": list(eos_ids) if len(eos_ids) > 1 else eos_ids[0]}
    if pad_id is not None:
        ids["pad_token_id"] = pad_id
    dtype = str(next(iter(on_disk.values())).dtype).removeprefix("torch.")
    _write_json(path / "config.json", {**config, "architectures": [family.architecture], "dtype": dtype} | ids)
    _write_json(path / "generation_config.json", ids)
    for name, content in files.items():
        (path / name).write_bytes(content)


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
