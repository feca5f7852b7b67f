"""The rollout loop against a scripted coordinator, with a real engine and an in-memory store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from rljob_core.api.messages import (
    Committed,
    CompletePrefill,
    CompleteRollout,
    Message,
    Pulled,
    RolloutWork,
    TableName,
    TakeRollout,
    WorkKind,
)
from rljob_core.errors import CoordinatorGoneError, WeightMismatchError
from rljob_core.layouts import Layout
from rljob_workers.kv_store.memory import MemoryPool, MemoryStore
from rljob_workers.model import Placement, build_policy, initial_tensors, tensor_specs
from rljob_workers.packs import Sample, unpack
from rljob_workers.rollout import loop as rollout
from rljob_workers.rollout.engine import EngineLimits, TorchEngine
from rljob_workers.rollout.group import Group, part, spread
from rljob_workers.rollout.keys import kv_key
from rljob_workers.rollout.loop import LoopSettings, RolloutLoop
from rljob_workers.rollout.rank import RolloutRank
from rljob_workers.weights import StoreWeights

CONFIG = {
    "model_type": "qwen3_moe",
    "vocab_size": 12,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "norm_topk_prob": True,
    "initializer_range": 0.4,
}
LAYOUT = Layout()
BUDGETS = {"kv": 1 << 24, "queue": 1 << 24, "weights": 1 << 24}
PROMPTS = [[3, 4], [5, 6, 7], [3, 4]]
SEQUENCES = 8
STOP = RolloutWork(kind=WorkKind.STOP)


@dataclass
class ScriptedLink:
    """Answers a TakeRollout by the next entry of the script (a function sees the question); records what it is told."""

    script: list[RolloutWork | Callable[[TakeRollout], RolloutWork]]
    told: list[Message] = field(default_factory=list)
    asked: list[TakeRollout] = field(default_factory=list)
    accept: bool = True
    version: int = -1

    def call(self, message: Message, reply: type[Message]) -> Message:
        if isinstance(message, TakeRollout):
            self.asked.append(message)
            if message.in_flight:
                return RolloutWork(kind=WorkKind.WAIT)
            entry = self.script.pop(0)
            return entry(message) if callable(entry) else entry
        self.told.append(message)
        return (
            Committed(accepted=[self.accept] * len(message.rows)) if isinstance(message, CompleteRollout) else reply()
        )

    @contextmanager
    def stage(self, name: str, step: int = -1) -> Iterator[None]:
        yield

    def of(self, kind: type[Message]) -> list[Message]:
        return [m for m in self.told if isinstance(m, kind)]


@dataclass
class Bench:
    """A published version 0, a loop, and the link that scripts it."""

    loop: RolloutLoop
    link: ScriptedLink
    store: MemoryStore

    def run(self, *script: RolloutWork | Callable[[TakeRollout], RolloutWork]) -> None:
        self.link.script = [*script, STOP]
        self.loop.run()

    def samples(self) -> dict[tuple[str, int], Sample]:
        """Committed samples by (table, row)."""
        out = {}
        for message in self.link.of(CompleteRollout):
            assert isinstance(message, CompleteRollout)
            [data] = self.store.get([message.pack_key])
            assert data is not None
            out |= {(str(message.table), row): s for row, s in zip(message.rows, unpack(data), strict=True)}
        return out

    def kv(self) -> tuple[int, int]:
        """Hits and misses reported."""
        done = [m for m in self.link.of(CompleteRollout) if isinstance(m, CompleteRollout)]
        return sum(m.kv_hits for m in done), sum(m.kv_misses for m in done)


def bench(pool: MemoryPool | None = None, *, deterministic: bool = False, clock: Callable[[], float] | None = None,
          publish: bool = True, group: Group | None = None) -> Bench:  # fmt: skip
    """group: this rank's rollout group, when there are several ranks (each with a store of its own here)."""
    group = group or Group(LAYOUT, 0)
    store = MemoryStore(budgets=BUDGETS, pool=pool, patience_s=0.0)
    at = Placement(layout=group.layout, rank=group.rank, ep_group=group.ep_group, deterministic=deterministic)
    policy = build_policy(CONFIG, at).requires_grad_(False)
    specs = tensor_specs(CONFIG)
    if publish:
        StoreWeights(store).publish(0, 0, LAYOUT, specs, initial_tensors(CONFIG, seed=0))
    limits = EngineLimits(max_sequences=SEQUENCES, max_prompt_tokens=4, max_response_tokens=5)
    engine = TorchEngine(policy, limits, eos_ids=[1], group=group.host)
    rank = RolloutRank(
        engine=engine,
        store=store,
        weights=StoreWeights(store),
        layout=group.layout,
        rank=group.rank,
        specs=specs,
        seed=7,
    )
    link = ScriptedLink([])
    settings = LoopSettings(sequences_per_rank=SEQUENCES, deterministic=deterministic)
    options = {} if clock is None else {"clock": clock}
    loop = RolloutLoop(link, group, store, rank, settings, **options)  # type: ignore[arg-type]
    return Bench(loop, link, store)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "PULL_PAUSE_S", 0.0)


PULL = RolloutWork(kind=WorkKind.PULL, version=0)


def prefill(prompts: Sequence[list[int]] = PROMPTS) -> RolloutWork:
    rows = list(range(len(prompts)))
    return RolloutWork(
        kind=WorkKind.PREFILL, version=0, table=TableName.PROMPT, rows=rows, attempts=[0] * len(rows),
        prompt_ids=rows, prompts=list(prompts),
    )  # fmt: skip


def decode(rows: Sequence[int], *, keys: bool = True, table: TableName = TableName.ROLLOUT, greedy: bool = False,
           attempt: int = 0) -> RolloutWork:  # fmt: skip
    """Rows r: sample r % 4 of prompt r // 4."""
    prompts = [PROMPTS[r // 4] for r in rows]
    return RolloutWork(
        kind=WorkKind.DECODE, version=0, table=table, rows=list(rows), attempts=[attempt] * len(rows),
        prompt_ids=[r // 4 for r in rows], sample_indices=[r % 4 for r in rows], prompts=prompts,
        kv_keys=[kv_key(0, p) if keys else "" for p in prompts], greedy=greedy, max_response_tokens=5, first_step=1,
    )  # fmt: skip


def same(a: Sample, b: Sample) -> bool:
    return bool(np.array_equal(a.response_ids, b.response_ids) and np.allclose(a.logprobs, b.logprobs, atol=1e-5))


def test_pull_prefill_decode_commit() -> None:
    b = bench()
    b.run(PULL, prefill(), decode(range(8)))
    [pulled], [filled] = b.link.of(Pulled), b.link.of(CompletePrefill)
    assert isinstance(pulled, Pulled)
    assert isinstance(filled, CompletePrefill)
    assert pulled.version == b.loop.version == 0
    assert filled.kv_keys == [kv_key(0, p) for p in PROMPTS]
    assert all(size > 0 for size in filled.kv_bytes)
    samples = b.samples()
    assert sorted(row for _, row in samples) == list(range(8))
    assert samples["rollout", 0].prompt_ids.tolist() == PROMPTS[0]
    assert b.kv() == (8, 0)
    for message in b.link.of(CompleteRollout):
        assert isinstance(message, CompleteRollout)
        assert set(message.first_versions) | set(message.last_versions) == {0}
        assert message.first_token_at is not None


def test_samples_of_a_prompt_differ() -> None:
    b = bench()
    b.run(PULL, prefill(), decode(range(4)))
    assert len({tuple(s.response_ids.tolist()) for s in b.samples().values()}) > 1


@pytest.mark.parametrize("loss", ["never written", "evicted", "damaged", "of another version"])
def test_k3_a_missing_or_foreign_kv_is_recomputed_and_counted(loss: str) -> None:
    """rl.md 5, 6, 45: no request fails for it; the tokens are those of a run that lost nothing."""
    whole, lossy = bench(), bench()
    whole.run(PULL, prefill(), decode(range(8)))
    if loss == "never written":
        lossy.run(PULL, prefill(), decode(range(8), keys=False))
        missed = 8
    else:

        def lose(_: TakeRollout) -> RolloutWork:
            key = kv_key(0, PROMPTS[0])
            [block] = lossy.store.get([key])
            assert block is not None
            lossy.store.remove([key])
            if loss == "damaged":
                lossy.store.put({key: block[:-1] + bytes([block[-1] ^ 1])})
            elif loss == "of another version":
                version = int.from_bytes(block[8:16], "little") + 1
                lossy.store.put({key: block[:8] + version.to_bytes(8, "little") + block[16:]})
            return decode(range(8))

        lossy.run(PULL, prefill(), lose)
        missed = 4
    assert lossy.kv() == (8 - missed, missed)
    for row, sample in whole.samples().items():
        assert same(sample, lossy.samples()[row]), row


def test_keys_differ_by_version_and_prompt() -> None:
    assert len({kv_key(0, [1, 2]), kv_key(1, [1, 2]), kv_key(0, [2, 1]), kv_key(0, [1, 2, 0])}) == 4


def test_k7_processes_agree_on_keys_whatever_their_hash_seed() -> None:
    """A hash that differs by process would make every lookup a miss, with everything else in order."""
    code = "from rljob_workers.rollout.keys import kv_key; print(kv_key(3, [5, 0, 70000]))"
    keys = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout.decode().strip()
        for seed in ("0", "1")
    }  # fmt: skip
    assert keys == {kv_key(3, [5, 0, 70000])}


def test_a_full_store_costs_a_recompute_not_the_job() -> None:
    b = bench()
    b.store._ledger._budgets["kv"] = 1
    b.run(PULL, prefill(), decode(range(4), keys=False))
    [filled] = b.link.of(CompletePrefill)
    assert isinstance(filled, CompletePrefill)
    assert (filled.kv_keys, filled.kv_bytes) == (["", "", ""], [0, 0, 0])
    assert len(b.samples()) == 4


def test_d6_d7_a_prompt_is_computed_once_and_fetched_once_for_all_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts 0 and 2 are equal: twelve samples of three prompts cost two prefills and two blocks from the store."""
    b = bench()
    prefilled: list[Sequence[int]] = []
    fetched: list[str] = []
    compute, fetch = b.loop.rank.engine.prefill, b.store.get

    def counted(prompts: Sequence[Sequence[int]]) -> list[bytes]:
        prefilled.extend(prompts)
        return compute(prompts)

    def noted(keys: Sequence[str]) -> list[bytes | None]:
        fetched.extend(keys)
        return fetch(keys)

    b.run(PULL)
    monkeypatch.setattr(b.loop.rank.engine, "prefill", counted)
    monkeypatch.setattr(b.store, "get", noted)
    b.run(prefill(), decode([0, 1, 4, 5, 8, 9]), decode([2, 3, 6, 7, 10, 11]))
    assert prefilled == PROMPTS[:2]
    assert fetched == 2 * [kv_key(0, PROMPTS[0]), kv_key(0, PROMPTS[1])], "once for each batch of samples"
    assert b.kv() == (12, 0)


def test_draws_do_not_depend_on_company_or_order() -> None:
    together, apart = bench(), bench()
    together.run(PULL, prefill(), decode(range(8)))
    apart.run(PULL, prefill(), decode([5, 2]), decode([7, 0, 1]), decode([3, 4, 6]))
    assert all(same(sample, apart.samples()[row]) for row, sample in together.samples().items())


def test_deterministic_rows_are_bit_equal_in_any_company() -> None:
    together, apart = bench(deterministic=True), bench(deterministic=True)
    together.run(PULL, prefill(), decode(range(8)))
    apart.run(PULL, prefill(), decode([5, 2]), decode([7, 0, 1]), decode([3, 4, 6]))
    for row, sample in together.samples().items():
        assert sample.response_ids.tolist() == apart.samples()[row].response_ids.tolist()
        assert sample.logprobs.tobytes() == apart.samples()[row].logprobs.tobytes()


def test_evaluation_rows_are_greedy_and_packed_apart() -> None:
    b = bench()
    b.run(PULL, prefill(), decode(range(4), table=TableName.EVALUATION, greedy=True), decode([0, 1]))
    samples = b.samples()
    greedy = [s.response_ids.tolist() for (table, _), s in samples.items() if table == "evaluation"]
    assert len(greedy) == 4
    assert all(response == greedy[0] for response in greedy)
    assert sum(table == "rollout" for table, _ in samples) == 2


def test_more_work_is_asked_for_without_waiting_while_sequences_are_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "POLL_EVERY_S", -1.0)
    b = bench()
    b.run(PULL, prefill(), decode(range(4)))
    in_flight = [ask for ask in b.link.asked if ask.in_flight]
    assert in_flight
    assert all(ask.wait_s == 0.0 and ask.free_sequences == SEQUENCES - ask.in_flight for ask in in_flight)
    assert all(ask.wait_s > 0 for ask in b.link.asked if not ask.in_flight)


def test_deterministic_groups_do_not_ask_while_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "POLL_EVERY_S", -1.0)
    b = bench(deterministic=True)
    b.run(PULL, prefill(), decode(range(4)))
    assert not [ask for ask in b.link.asked if ask.in_flight]


def test_a_row_that_comes_again_is_committed_under_its_own_attempt() -> None:
    b = bench()
    b.run(PULL, prefill(), decode([0]), decode([0], attempt=1))
    done = [m for m in b.link.of(CompleteRollout) if isinstance(m, CompleteRollout)]
    assert [m.attempts for m in done] == [[0], [1]]
    assert len({m.pack_key for m in done}) == 2


def test_refused_samples_do_not_stop_the_group(caplog: pytest.LogCaptureFixture) -> None:
    b = bench()
    b.link.accept = False
    b.run(PULL, prefill(), decode(range(4)))
    assert "refused" in caplog.text


def test_weights_that_are_not_there_are_asked_for_again() -> None:
    b = bench(publish=False)

    def late(asked: TakeRollout) -> RolloutWork:
        assert asked.version == -1
        StoreWeights(b.store).publish(0, 0, LAYOUT, tensor_specs(CONFIG), initial_tensors(CONFIG, seed=0))
        return PULL

    b.run(PULL, late, prefill(), decode([0]))
    assert len(b.link.of(Pulled)) == 1
    assert len(b.samples()) == 1


def test_pulls_that_keep_failing_end_the_process() -> None:
    times = iter(range(0, 10_000, 25))
    b = bench(publish=False, clock=lambda: float(next(times)))
    with pytest.raises(WeightMismatchError, match="no version could be pulled"):
        b.run(*[PULL] * 50)


def test_a_coordinator_that_is_gone_ends_the_process() -> None:
    def gone(_: TakeRollout) -> RolloutWork:
        raise CoordinatorGoneError("it does not answer")

    with pytest.raises(CoordinatorGoneError):
        bench().run(PULL, gone)


def test_new_weights_change_what_is_sampled() -> None:
    """rl.md 1, 20: after a second pull the samples carry its version, and are those of its weights."""
    b = bench()
    StoreWeights(b.store).publish(1, 0, LAYOUT, tensor_specs(CONFIG), initial_tensors(CONFIG, seed=9))
    again = [w.model_copy(update={"version": 1}) for w in (PULL, prefill(), decode(range(8)))]
    again[2] = again[2].model_copy(update={"kv_keys": [kv_key(1, p) for p in again[2].prompts], "attempts": [1] * 8})
    b.run(PULL, prefill(), decode(range(8)), *again)
    messages = [m for m in b.link.of(CompleteRollout) if isinstance(m, CompleteRollout)]
    assert {v for m in messages for v in m.first_versions} == {0, 1}
    fresh = build_policy(CONFIG)
    fresh.load_tensors(initial_tensors(CONFIG, seed=9))
    for message in (m for m in messages if m.first_versions[0] == 1):
        [data] = b.store.get([message.pack_key])
        assert data is not None
        for sample in unpack(data):
            ids = torch.tensor([*sample.prompt_ids, *sample.response_ids])
            with torch.no_grad():
                logprobs = fresh(ids.unsqueeze(0))[0].log_softmax(-1)
            places = range(len(sample.prompt_ids), len(ids))
            taken = [logprobs[p - 1, ids[p]].item() for p in places]
            assert sample.logprobs.tolist() == pytest.approx(taken, abs=1e-5)


def test_work_is_spread_to_the_rank_that_holds_least() -> None:
    assert spread(5, [0, 0]) == [[0, 2, 4], [1, 3]]
    assert spread(3, [4, 0]) == [[], [0, 1, 2]]
    rows = part(decode(range(4)), [1, 3])
    assert (rows.rows, rows.sample_indices, len(rows.kv_keys)) == ([1, 3], [1, 3], 2)
