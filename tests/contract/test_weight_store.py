"""What StoreWeights does, over the store in memory and over a real MooncakeStore. Numbers in names: known faults of
weight synchronisation."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from rljob_core.errors import StoreFullError, WeightMismatchError
from rljob_core.layouts import Layout, TensorKind, TensorSpec
from rljob_workers.kv_store.base import BaseStore
from rljob_workers.weights import StoreWeights
from rljob_workers.weights.manifest import Manifest

StoreFactory = Callable[..., BaseStore]
Tensors = dict[str, torch.Tensor]

EXPERTS, LAYERS, HIDDEN = 8, 2, 6


def specs(dtype: str = "float32", tied: bool = False) -> list[TensorSpec]:
    """Embedding, per layer a router, its correction bias (a buffer) and experts, a scalar, a head."""
    out = [TensorSpec(name="embed.weight", shape=(10, HIDDEN), dtype=dtype)]
    for i in range(LAYERS):
        out += [
            TensorSpec(name=f"{i}.gate.weight", shape=(EXPERTS, HIDDEN), dtype=dtype),
            TensorSpec(name=f"{i}.gate.e_score_correction_bias", shape=(EXPERTS,), dtype="float32"),
            TensorSpec(
                name=f"{i}.experts.gate_up_proj",
                shape=(EXPERTS, 2, HIDDEN),
                dtype=dtype,
                kind=TensorKind.EXPERT,
                layer=i,
            ),
        ]
    return [
        *out,
        TensorSpec(name="scale", shape=(), dtype="float32"),
        TensorSpec(name="lm_head.weight", shape=(10, HIDDEN), dtype=dtype),
    ]


def whole(tensors: Sequence[TensorSpec], seed: int = 0) -> Tensors:
    """A full model with distinct values everywhere."""
    out, start = {}, 1000 * seed
    for spec in tensors:
        count = math.prod(spec.shape)
        out[spec.name] = torch.arange(start, start + count).reshape(spec.shape).to(getattr(torch, spec.dtype))
        start += count
    return out


def shard(
    full: Mapping[str, torch.Tensor], layout: Layout, rank: int, tensors: Sequence[TensorSpec], **by: Any
) -> Tensors:
    """What a rank holds of a full model, written naively."""
    out = {}
    for spec in tensors:
        if spec.kind is TensorKind.EXPERT:
            out[spec.name] = full[spec.name][list(layout.experts(rank, spec.layer, EXPERTS, **by))].clone()
        else:
            out[spec.name] = full[spec.name].clone()
    return out


def empty(
    full: Mapping[str, torch.Tensor], layout: Layout, rank: int, tensors: Sequence[TensorSpec], **by: Any
) -> Tensors:
    return {name: torch.full_like(t, -1) for name, t in shard(full, layout, rank, tensors, **by).items()}


def publish(
    store: BaseStore, version: int, layout: Layout, full: Tensors, tensors: Sequence[TensorSpec], **options: Any
) -> int:
    """All ranks publish; the bytes of all."""
    return sum(
        StoreWeights(store, **options).publish(version, rank, layout, tensors, shard(full, layout, rank, tensors)).bytes
        for rank in range(layout.world)
    )


def size(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum(t.nbytes for t in tensors.values())


def same(got: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> bool:
    return got.keys() == wanted.keys() and all(torch.equal(got[name], wanted[name]) for name in wanted)


LAYOUTS = {
    "one": Layout(),
    "ep2": Layout(dp=2, ep=2),
    "dp2": Layout(dp=2),
    "dp4-ep2": Layout(dp=4, ep=2),
    "ep4": Layout(dp=4, ep=4),
}


@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("source", LAYOUTS)
def test_17_every_layout_to_every_other_by_value(open_store: StoreFactory, source: str, target: str) -> None:
    store, tensors = open_store(), specs()
    full = whole(tensors)
    assert publish(store, 1, LAYOUTS[source], full, tensors) == size(full), "each element is published once"
    layout = LAYOUTS[target]
    for rank in range(layout.world):
        into = empty(full, layout, rank, tensors)
        stats = StoreWeights(store).pull(1, rank, layout, tensors, into)
        assert same(into, shard(full, layout, rank, tensors))
        assert stats.bytes == size(into), "exactly what the rank holds is read"


def test_7_experts_land_in_the_slots_of_a_map(open_store: StoreFactory) -> None:
    store, tensors = open_store(), specs()
    full = whole(tensors)
    publish(store, 1, Layout(), full, tensors)
    layout, expert_map = Layout(dp=2, ep=2), [[[0, 1, 6, 3], [7, 5, 4, 2]], [[4, 5, 6, 7], [3, 2, 1, 0]]]
    for rank in range(2):
        into = empty(full, layout, rank, tensors, expert_map=expert_map)
        StoreWeights(store).pull(1, rank, layout, tensors, into, expert_map)
        assert same(into, shard(full, layout, rank, tensors, expert_map=expert_map))


@pytest.mark.parametrize("bucket_bytes", [8, 40, 100, 1000])
def test_small_buckets_split_tensors_and_change_nothing(open_store: StoreFactory, bucket_bytes: int) -> None:
    store, tensors = open_store(), specs()
    full = whole(tensors)
    assert publish(store, 1, Layout(dp=2, ep=2), full, tensors, bucket_bytes=bucket_bytes) == size(full)
    into = empty(full, Layout(), 0, tensors)
    StoreWeights(store).pull(1, 0, Layout(), tensors, into)
    assert same(into, full)
    assert max(len(v or b"") for v in store.get([f"weights/1/0/{i}" for i in range(4)])) <= bucket_bytes


def test_bfloat16_travels_as_it_is(open_store: StoreFactory) -> None:
    store, tensors = open_store(), specs("bfloat16")
    full = whole(tensors)
    publish(store, 1, Layout(dp=2, ep=2), full, tensors, bucket_bytes=50)
    into = empty(full, Layout(), 0, tensors)
    StoreWeights(store).pull(1, 0, Layout(), tensors, into)
    assert same(into, full)


def test_10_a_second_sync_equals_the_first(open_store: StoreFactory) -> None:
    store, tensors = open_store(), specs()
    first, second = whole(tensors, 1), whole(tensors, 2)
    into = empty(first, Layout(), 0, tensors)
    for version, full in ((1, first), (2, second)):
        publish(store, version, Layout(dp=2, ep=2), full, tensors)
        StoreWeights(store).pull(version, 0, Layout(), tensors, into)
        assert same(into, full)


def test_11_a_changed_buffer_arrives(open_store: StoreFactory) -> None:
    store, tensors = open_store(), specs()
    full = whole(tensors)
    into = {name: t.clone() for name, t in full.items()}
    full["1.gate.e_score_correction_bias"] += 0.5
    publish(store, 2, Layout(), full, tensors)
    StoreWeights(store).pull(2, 0, Layout(), tensors, into)
    assert same(into, full)


def tie(full: Tensors) -> Tensors:
    full["lm_head.weight"] = full["embed.weight"]
    return full


def test_15_a_tied_head_is_published_once_and_stays_tied(open_store: StoreFactory) -> None:
    store, tensors = open_store(), specs()
    full = tie(whole(tensors))
    sent = sum(StoreWeights(store).publish(1, rank, Layout(dp=2), tensors, full).bytes for rank in range(2))
    assert sent == size(full) - full["embed.weight"].nbytes
    into = tie(empty(full, Layout(), 0, tensors))
    assert StoreWeights(store).pull(1, 0, Layout(), tensors, into).bytes == sent
    assert same(into, full)
    assert into["lm_head.weight"].data_ptr() == into["embed.weight"].data_ptr()


def test_15_a_tied_head_fills_one_that_is_apart(open_store: StoreFactory) -> None:
    store, tensors = open_store(), specs()
    full = tie(whole(tensors))
    StoreWeights(store).publish(1, 0, Layout(), tensors, full)
    into = empty(full, Layout(), 0, tensors)
    StoreWeights(store).pull(1, 0, Layout(), tensors, into)
    assert same(into, full)


def test_15_heads_published_apart_do_not_fit_a_tied_one(open_store: StoreFactory) -> None:
    store, tensors = open_store(), specs()
    full = whole(tensors)
    StoreWeights(store).publish(1, 0, Layout(), tensors, full)
    with pytest.raises(WeightMismatchError, match=r"lm_head.weight is tied to embed.weight here"):
        StoreWeights(store).pull(1, 0, Layout(), tensors, tie(empty(full, Layout(), 0, tensors)))


def test_20_a_version_that_is_not_there_is_refused(open_store: StoreFactory) -> None:
    store, tensors = open_store(), specs()
    full = whole(tensors)
    publish(store, 1, Layout(), full, tensors)
    with pytest.raises(WeightMismatchError, match="version 2: no manifest of rank 0"):
        StoreWeights(store).pull(2, 0, Layout(), tensors, full)


def test_20_a_version_half_published_is_refused(open_store: StoreFactory) -> None:
    store, tensors = open_store(), specs()
    layout, full = Layout(dp=2, ep=2), whole(specs())
    StoreWeights(store).publish(1, 0, layout, tensors, shard(full, layout, 0, tensors))
    with pytest.raises(WeightMismatchError, match="version 1: no manifest of rank 1"):
        StoreWeights(store).pull(1, 0, Layout(), tensors, full)


def test_20_a_manifest_of_another_version_is_refused(open_store: StoreFactory) -> None:
    store, tensors = open_store(), specs()
    full = whole(tensors)
    publish(store, 1, Layout(), full, tensors)
    store.put({"weights/2/0/manifest": store.get(["weights/1/0/manifest"])[0] or b""})
    with pytest.raises(WeightMismatchError, match="holds format 1, version 1, rank 0"):
        StoreWeights(store).pull(2, 0, Layout(), tensors, full)


@pytest.mark.parametrize("part", ["0", "manifest"])
def test_a_changed_byte_is_refused(open_store: StoreFactory, part: str) -> None:
    store, tensors = open_store(), specs()
    full = whole(tensors)
    publish(store, 1, Layout(), full, tensors)
    key = f"weights/1/0/{part}"
    data = bytearray(store.get([key])[0] or b"")
    data[len(data) // 2] ^= 1
    store.remove([key])
    store.put({key: bytes(data)})
    with pytest.raises(WeightMismatchError, match="checksum"):
        StoreWeights(store).pull(1, 0, Layout(), tensors, full)


def test_a_missing_bucket_is_refused(open_store: StoreFactory) -> None:
    store, tensors = open_store(), specs()
    full = whole(tensors)
    publish(store, 1, Layout(), full, tensors, bucket_bytes=100)
    store.remove(["weights/1/0/1"])
    with pytest.raises(WeightMismatchError, match="weights/1/0/1: named by the manifest, not in the store"):
        StoreWeights(store).pull(1, 0, Layout(), tensors, full)


def edit_manifest(store: BaseStore, edit: Callable[[dict[str, Any]], None]) -> None:
    import zlib

    body = json.loads((store.get(["weights/1/0/manifest"])[0] or b"")[8:])
    edit(body)
    data = json.dumps(body).encode()
    store.remove(["weights/1/0/manifest"])
    store.put({"weights/1/0/manifest": b"%08x" % zlib.crc32(data) + data})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        pytest.param(lambda m: m["entries"].pop(0), "0 of 60 elements published", id="hole"),
        pytest.param(lambda m: m["entries"].append(m["entries"][2]), "published twice", id="doubled"),
        pytest.param(lambda m: m["tensors"].update(extra=[[1], "float32"]), "extra is", id="8-unknown-name"),
        pytest.param(lambda m: m["tensors"].pop("scale"), "scale is None as published", id="missing-name"),
        pytest.param(lambda m: m["tensors"].update(scale=[[], "float64"]), "float64", id="dtype"),
    ],
)
def test_8_what_does_not_cover_the_model_once_is_refused(
    open_store: StoreFactory, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    store, tensors = open_store(), specs()
    full = whole(tensors)
    publish(store, 1, Layout(), full, tensors)
    edit_manifest(store, edit)
    with pytest.raises(WeightMismatchError, match=message):
        StoreWeights(store).pull(1, 0, Layout(), tensors, full)


def test_an_entry_that_a_reader_holds_only_in_part_is_refused(open_store: StoreFactory) -> None:
    store = open_store()
    replicated = [TensorSpec(name="w", shape=(4, 2), dtype="float32")]
    sharded = [TensorSpec(name="w", shape=(4, 2), dtype="float32", kind=TensorKind.EXPERT, layer=0)]
    StoreWeights(store).publish(1, 0, Layout(), replicated, {"w": torch.zeros(4, 2)})
    with pytest.raises(WeightMismatchError, match="lies only partly inside"):
        StoreWeights(store).pull(1, 0, Layout(dp=2, ep=2), sharded, {"w": torch.zeros(2, 2)})


@pytest.mark.parametrize("wrong", [torch.zeros(3), torch.zeros(10, HIDDEN, dtype=torch.float64), None])
def test_a_local_tensor_of_another_shape_or_type_is_refused(
    open_store: StoreFactory, wrong: torch.Tensor | None
) -> None:
    tensors = specs()
    local = whole(tensors)
    if wrong is None:
        del local["embed.weight"]
    else:
        local["embed.weight"] = wrong
    with pytest.raises(WeightMismatchError, match=r"embed\.weight"):
        StoreWeights(open_store()).publish(1, 0, Layout(), tensors, local)


def test_the_newest_versions_are_kept_and_a_version_is_issued_once(open_store: StoreFactory) -> None:
    store, tensors = open_store(), specs()
    full = whole(tensors)
    weights = StoreWeights(store)
    for version in (1, 2, 5):
        weights.publish(version, 0, Layout(), tensors, full)
        weights.retire(keep=2)
    into = empty(full, Layout(), 0, tensors)
    for version in (2, 5):
        weights.pull(version, 0, Layout(), tensors, into)
    with pytest.raises(WeightMismatchError, match="version 1"):
        weights.pull(1, 0, Layout(), tensors, into)
    assert store.sweep("weights/1") == 0
    with pytest.raises(ValueError, match="never issued twice"):
        weights.publish(5, 0, Layout(), tensors, full)


def test_without_room_nothing_looks_complete(open_store: StoreFactory) -> None:
    tensors = specs()
    full = whole(tensors)
    store = open_store(budgets={"weights": size(full)})  # the manifest does not fit
    weights = StoreWeights(store)
    with pytest.raises(StoreFullError, match="budget of weights"):
        weights.publish(1, 0, Layout(), tensors, full)
    with pytest.raises(WeightMismatchError, match="no manifest"):
        weights.pull(1, 0, Layout(), tensors, full)


def test_a_manifest_survives_its_encoding() -> None:
    manifest = Manifest(version=3, rank=1, world=2, tensors={"w": ((4, 2), "float32")}, aliases={"h": "w"}, entries=[])
    assert Manifest.decode(manifest.encode(), 3, 1) == manifest
