"""The reward worker's loop, against a scripted coordinator and a store in memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from rljob_core.api.inputs import Model, Reward
from rljob_core.api.messages import Ack, Committed, CompleteReward, Message, RewardWork, TakeReward, WorkKind
from rljob_core.api.spec import RLJob
from rljob_core.errors import InvalidInputError
from rljob_core.names import Role
from rljob_workers.context import Context
from rljob_workers.kv_store.memory import MemoryStore
from rljob_workers.packs import Sample, pack
from rljob_workers.reward import main as reward_main
from rljob_workers.reward.main import PackCache, responses, rows_to_take, score
from rljob_workers.reward.scorer import Scored, open_scorer
from rljob_workers.text import load_tokenizer

MODEL = Model.model_validate({"init": {"config": {}}, "tokenizer": {"characters": "0123456789="}})
TOKENIZER = load_tokenizer(MODEL)


def sample(text: str) -> Sample:
    ids = np.array([*TOKENIZER.encode(text), 1], dtype=np.int32)
    return Sample(prompt_ids=np.array([2], np.int32), response_ids=ids, logprobs=np.zeros(len(ids), np.float32))


class CountingStore(MemoryStore):
    """Remembers what was asked for."""

    def __init__(self, packs: Mapping[str, Sequence[str]]) -> None:
        super().__init__(budgets={"queue": 1 << 20})
        self.asked: list[list[str]] = []
        self.put({key: pack([sample(text) for text in texts]) for key, texts in packs.items()})

    def get(self, keys: Sequence[str]) -> list[bytes | None]:
        self.asked.append(list(keys))
        return super().get(keys)


def work(keys: Sequence[str], slots: Sequence[int], answers: Sequence[str], **more: Any) -> RewardWork:
    n = len(keys)
    columns = {"prompts": [f"{a[::-1]}=" for a in answers], "fields": [{}] * n, "attempts": [7] * n}
    return RewardWork(
        kind=WorkKind.DECODE,
        rows=list(range(100, 100 + n)),
        pack_keys=list(keys),
        slots=list(slots),
        answers=list(answers),
        **columns,
        **more,
    )


EXACT = open_scorer(Reward.model_validate({"exactMatch": {}}))
PER_POSITION = open_scorer(Reward.model_validate({"perPosition": {"exactBonus": 1.0}}))


def run(job: RewardWork, store: MemoryStore, scorer: Any = EXACT, clock: Any = lambda: 0.0) -> CompleteReward:
    return score(job, responses(job, PackCache(store), TOKENIZER), scorer, clock)


def test_rows_of_several_packs_are_scored_in_order_with_one_request() -> None:
    store = CountingStore({"queue/a": ["12", "34"], "queue/b": ["56"]})
    done = run(work(["queue/b", "queue/a", "queue/b", "queue/a"], [0, 1, 0, 0], ["56", "34", "5", "12"]), store)
    assert done == CompleteReward(
        rows=[100, 101, 102, 103],
        attempts=[7] * 4,
        rewards=[1.0, 1.0, 0.0, 1.0],
        exact=[True, True, False, True],
        responses=["56", "34", "56", "12"],
    )
    assert store.asked == [["queue/b", "queue/a"]]


def test_per_position_with_its_bonus() -> None:
    done = run(work(["queue/a"] * 2, [0, 1], ["12", "35"]), CountingStore({"queue/a": ["12", "34"]}), PER_POSITION)
    assert done.rewards == [2.0, 0.5]
    assert done.exact == [True, False]


def test_a_row_whose_pack_is_gone_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    done = run(work(["queue/a", "queue/gone"], [0, 0], ["1", "2"]), CountingStore({"queue/a": ["1"]}))
    assert done.rows == [100]
    assert (done.lost_rows, done.lost_attempts, done.returned_rows) == ([101], [7], [])
    assert "1 of 2 rows have no pack" in caplog.text


def test_packs_are_kept_for_later_rows_and_the_oldest_go() -> None:
    store = CountingStore({f"queue/{i}": ["1"] for i in range(3)})
    cache = PackCache(store, size=2)
    for key in ("queue/0", "queue/1", "queue/0", "queue/2", "queue/0", "queue/1"):
        cache.get([key])
    assert [keys for keys in store.asked if keys] == [["queue/0"], ["queue/1"], ["queue/2"], ["queue/1"]]


class SlowScorer:
    """Takes 10 s a call on a clock of its own; every second call runs into its deadline."""

    def __init__(self) -> None:
        self.now = 0.0

    def score(self, prompt: str, response: str, answer: str, fields: Mapping[str, Any]) -> Scored:
        self.now += 10.0
        return Scored(reward=0.0, timed_out=self.now % 20 == 0)

    def close(self) -> None: ...


def test_41_slow_scoring_hands_back_what_it_does_not_reach() -> None:
    slow, store = SlowScorer(), CountingStore({"queue/a": ["1"]})
    done = run(work(["queue/a"] * 20, [0] * 20, ["1"] * 20), store, slow, lambda: slow.now)
    assert done.rows == [100, 101, 102, 103], "30 s are over after the fourth"
    assert done.returned_rows == list(range(104, 120))
    assert done.returned_attempts == [7] * 16
    assert done.timed_out == 2


@pytest.mark.parametrize(
    ("scored", "seconds", "rows"), [(64, 0.001, 1024), (16, 160.0, 1), (64, 1.0, 128), (0, 0.0, 1), (1, 0.0, 1024)]
)
def test_a_slow_reward_takes_fewer_rows(scored: int, seconds: float, rows: int) -> None:
    assert rows_to_take(scored, seconds) == rows


class ScriptedLink:
    """Stands for the coordinator: gives out work, remembers what it is told."""

    work: list[RewardWork] = []
    told: list[Message] = []
    errors: list[BaseException | None] = []
    takes: list[int] = []

    def __init__(self, context: Context) -> None: ...

    def start(self, register: Message) -> None:
        self.told.append(register)

    def call(self, message: Message, reply: type[Any]) -> Any:
        if isinstance(message, TakeReward):
            self.takes.append(message.max_rows)
            return self.work.pop(0)
        self.told.append(message)
        return Committed(accepted=[]) if reply is Committed else Ack()

    def stage(self, name: str, step: int = -1) -> Any:
        from contextlib import nullcontext

        return nullcontext()

    def __enter__(self) -> ScriptedLink:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.errors.append(error)


def context(reward: dict[str, Any]) -> Context:
    spec = {
        "model": MODEL.to_wire(),
        "data": {"generator": {"task": "copy-digits"}},
        "reward": reward,
        "algorithm": {},
    }
    return Context(job=RLJob.from_object({"metadata": {"name": "j", "uid": "u"}, "spec": spec}), role=Role.REWARD)


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> type[ScriptedLink]:
    class Link(ScriptedLink):
        work, told, errors, takes = [], [], [], []

    monkeypatch.setattr(reward_main, "CoordinatorLink", Link)
    return Link


def test_the_loop_ends_when_told(link: type[ScriptedLink], monkeypatch: pytest.MonkeyPatch) -> None:
    store = CountingStore({"queue/a": ["1"]})
    monkeypatch.setattr(reward_main, "open_store", lambda context, budgets: store)
    link.work += [RewardWork(kind=WorkKind.WAIT), work(["queue/a"], [0], ["1"]), RewardWork(kind=WorkKind.STOP)]
    assert reward_main.main(context({"exactMatch": {}})) == 0
    _, done = link.told
    assert isinstance(done, CompleteReward)
    assert done.rewards == [1.0]
    assert link.errors == [None]


def test_packs_that_are_gone_do_not_shrink_what_a_worker_takes(
    link: type[ScriptedLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reward_main, "open_store", lambda context, budgets: CountingStore({}))
    link.work += [work(["queue/gone"] * 64, [0] * 64, ["1"] * 64), RewardWork(kind=WorkKind.STOP)]
    assert reward_main.main(context({"exactMatch": {}})) == 0
    first, second = link.takes
    assert second >= first


@pytest.mark.processes
def test_an_unknown_reward_is_said_in_the_goodbye(link: type[ScriptedLink]) -> None:
    with pytest.raises(InvalidInputError, match=r"spec\.reward\.function\.entryPoint: 'no_such_module:f'"):
        reward_main.main(context({"function": {"entryPoint": "no_such_module:f"}}))
    assert isinstance(link.errors[0], InvalidInputError)


def test_a_reward_worker_imports_neither_torch_nor_transformers() -> None:
    code = "import sys, rljob_workers.reward.main; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
