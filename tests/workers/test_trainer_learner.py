"""The training step against a loop over single rows, bit-exact resume, and the log-probability gap."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from rljob_core.api.algorithm import Algorithm, LossReduction, Optimizer, ZeroVariance
from rljob_core.api.inputs import Model, ModelInit, Tokenizer
from rljob_core.api.messages import TrainCommand, TrainWork
from rljob_core.api.roles import TrainerLayout
from rljob_core.errors import InvalidInputError, StoreMissError
from rljob_core.layouts import Layout
from rljob_core.models import parse_config
from rljob_workers import checkpoints
from rljob_workers.model import Policy, build_policy, initial_tensors, read_directory
from rljob_workers.packs import Sample, pack
from rljob_workers.text import load_tokenizer
from rljob_workers.trainer import learner as learner_module
from rljob_workers.trainer import saving
from rljob_workers.trainer.batch import Batch, collate
from rljob_workers.trainer.host import Host
from rljob_workers.trainer.learner import Learner
from rljob_workers.trainer.optimizer import NumericsError
from rljob_workers.trainer.optimizer import learning_rate as rate
from rljob_workers.trainer.work import fetch, minibatches, zero_variance_share

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
HOST = Host(Layout(), 0)
TEMPERATURE = 0.7


def policy(seed: int = 0, dtype: str = "float32") -> Policy:
    made = build_policy(CONFIG, dtype=dtype)
    made.load_tensors(initial_tensors(CONFIG, seed, dtype))
    return made


def learner(algorithm: Algorithm | None = None, lag: int = 0, dtype: str = "float32") -> Learner:
    def build() -> Policy:
        return build_policy(CONFIG, dtype=dtype)

    return Learner(
        policy(dtype=dtype), build, algorithm or Algorithm(), temperature=TEMPERATURE, max_version_lag=lag, host=HOST
    )


def samples(rows: int, seed: int = 0) -> list[Sample]:
    rng = np.random.default_rng(seed)
    lengths = [(int(rng.integers(1, 5)), int(rng.integers(1, 6))) for _ in range(rows)]
    return [
        Sample(
            prompt_ids=rng.integers(0, 12, p).astype(np.int32),
            response_ids=rng.integers(0, 12, r).astype(np.int32),
            logprobs=rng.uniform(-3, -1, r).astype(np.float32),
        )
        for p, r in lengths
    ]


def batch(rows: int = 8, seed: int = 0, version: int = 0, positions: int = 9) -> Batch:
    advantages_B = torch.linspace(-1, 1, rows)
    return collate(samples(rows, seed), advantages_B, torch.ones(rows, dtype=torch.bool), [version] * rows, positions)


def parameters(of: Learner) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in of.policy.named_parameters()}


def naive_loss(model: Policy, rows: list[Sample], advantages: list[float], reduction: LossReduction) -> Tensor:
    """Row by row, without padding, in plain Python."""
    per_row = []
    for sample, advantage in zip(rows, advantages, strict=True):
        ids = torch.tensor([*sample.prompt_ids, *sample.response_ids])
        logprobs = (model(ids.unsqueeze(0))[0] / TEMPERATURE).log_softmax(-1)
        losses = []
        for n, old in enumerate(sample.logprobs):
            place = len(sample.prompt_ids) + n
            ratio = (logprobs[place - 1, ids[place]] - float(old)).exp()
            losses.append(-torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage))
        per_row.append(torch.stack(losses))
    if reduction is LossReduction.SEQUENCE:
        return torch.stack([row.mean() for row in per_row]).mean()
    return torch.cat(per_row).mean()


@pytest.mark.parametrize("reduction", list(LossReduction))
@pytest.mark.parametrize("microbatch_tokens", [9, 16384])
def test_step_equals_a_loop_over_rows(
    reduction: LossReduction, microbatch_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learner_module, "MICROBATCH_TOKENS", microbatch_tokens)
    model, rows = policy(), samples(6)
    advantages_B = torch.linspace(-1, 1, 6)
    loss = naive_loss(model, rows, advantages_B.tolist(), reduction)
    wanted = torch.autograd.grad(loss, list(model.parameters()))
    ours = learner(Algorithm(loss_reduction=reduction, optimizer=Optimizer(gradient_clip=1e9)))
    result = ours.train([collate(rows, advantages_B, torch.ones(6, dtype=torch.bool), [0] * 6, 9)], 0, version=0)
    assert result.metrics["loss"] == pytest.approx(loss.item(), abs=1e-6)
    norm = math.sqrt(sum(g.square().sum().item() for g in wanted))
    assert result.metrics["grad_norm"] == pytest.approx(norm, rel=1e-5)
    for parameter, gradient in zip(ours.policy.parameters(), wanted, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient, atol=1e-6, rtol=1e-4)


def change_masked(b: Batch) -> None:
    """rl.md 52, 55: what padding holds, and rollout log-probabilities of prompt tokens."""
    b.inputs_BT[~b.fed_BT] = 7
    b.targets_BT[~b.fed_BT] = 7
    b.rollout_logprobs_BT[~b.response_BT] = float("nan")


def pad_more(b: Batch) -> Batch:
    """rl.md 51: more padding on the right."""
    wider = {}
    for name, tensor in vars(b).items():
        wider[name] = torch.nn.functional.pad(tensor, (0, 5)) if name.endswith("_BT") else tensor
    return Batch(**wider)


def test_masked_values_never_matter() -> None:
    plain, changed = learner(), learner()
    b = batch()
    change_masked(b)
    assert plain.train([batch()], 0, 0) == changed.train([b], 0, 0)
    for name, tensor in parameters(plain).items():
        assert torch.equal(tensor, parameters(changed)[name]), name


def test_padding_changes_no_more_than_rounding() -> None:
    plain, wider = learner(), learner()
    first, second = plain.train([batch()], 0, 0), wider.train([pad_more(batch())], 0, 0)
    assert first.expert_counts == second.expert_counts
    assert second.metrics == pytest.approx(first.metrics, rel=1e-5, abs=1e-6)


def test_expert_counts_leave_out_padding_and_last_tokens() -> None:
    """rl.md 46."""
    rows = samples(8)
    fed = sum(len(s.prompt_ids) + len(s.response_ids) - 1 for s in rows)
    result = learner().train([batch()], 0, 0)
    assert [sum(layer) for layer in result.expert_counts] == [2 * fed, 2 * fed]


def test_masked_rows_leave_loss_and_normaliser() -> None:
    rows, advantages_B = samples(4), torch.tensor([1.0, -1.0, 0.5, 0.2])
    trained_B = torch.tensor([True, False, True, False])
    masked = learner().train([collate(rows, advantages_B, trained_B, [0] * 4, 9)], 0, 0)
    kept = collate(rows[::2], advantages_B[::2], torch.ones(2, dtype=torch.bool), [0] * 2, 9)
    assert masked.metrics["loss"] == pytest.approx(learner().train([kept], 0, 0).metrics["loss"], abs=1e-6)


def test_an_all_masked_minibatch_gives_no_gradient() -> None:
    """rl.md 43."""
    nothing = collate(samples(2), torch.ones(2), torch.zeros(2, dtype=torch.bool), [0, 0], 9)
    metrics = learner().train([nothing], 0, 0).metrics
    assert (metrics["loss"], metrics["grad_norm"], metrics["importance_ratio_mean"]) == (0.0, 0.0, 1.0)


def test_zero_advantage_groups_still_feel_the_kl_term() -> None:
    """rl.md 54: they stay in the batch by choice; Mask takes them out."""
    algorithm = Algorithm(kl_coefficient=0.5)
    ours = learner(algorithm)
    ours.keep_reference(initial_tensors(CONFIG, seed=1))
    flat = collate(samples(4), torch.zeros(4), torch.ones(4, dtype=torch.bool), [0] * 4, 9)
    metrics = ours.train([flat], 0, 0).metrics
    assert metrics["kl"] > 0
    assert metrics["loss"] == pytest.approx(0.5 * metrics["kl"], rel=1e-5)
    assert metrics["grad_norm"] > 0


def with_reference() -> Learner:
    ours = learner(Algorithm(kl_coefficient=0.5, reference_update_steps=3))
    ours.keep_reference(initial_tensors(CONFIG, seed=0))
    return ours


def test_the_policy_becomes_the_reference_every_so_many_steps() -> None:
    ours = with_reference()
    kl = [ours.train([batch(seed=step)], step, step).metrics["kl"] for step in range(4)]
    assert kl[0] == pytest.approx(0.0, abs=1e-7)
    assert kl[1] > 1e-5
    assert kl[2] > 1e-5
    assert kl[3] == pytest.approx(0.0, abs=1e-7)


def test_a_changed_reference_comes_back_from_a_checkpoint(tmp_path: Path) -> None:
    whole, half = with_reference(), with_reference()
    for step in range(6):
        whole.train([batch(seed=step)], step, step)
    for step in range(5):
        half.train([batch(seed=step)], step, step)
    saver(tmp_path).write(half, step=5, version=5, coordinator_state={"next_prompt": 16})
    rest = resumed(tmp_path, with_reference, "float32")
    rest.train([batch(seed=5)], 5, 5)
    for name, tensor in parameters(whole).items():
        assert torch.equal(tensor, parameters(rest)[name]), name


def test_minibatches_are_updates_of_their_own() -> None:
    two, one_by_one = learner(Algorithm(minibatches=2)), learner()
    two.train([batch(seed=1), batch(seed=2)], 0, 0)
    one_by_one.train([batch(seed=1)], 0, 0)
    one_by_one.train([batch(seed=2)], 0, 0)
    for name, tensor in parameters(two).items():
        assert torch.equal(tensor, parameters(one_by_one)[name]), name


def test_gradient_clipping_bounds_the_global_norm() -> None:
    ours = learner(Algorithm(optimizer=Optimizer(gradient_clip=0.01)))
    assert ours.train([batch()], 0, 0).metrics["grad_norm"] > 0.01
    clipped = math.sqrt(sum(p.grad.square().sum().item() for p in ours.policy.parameters() if p.grad is not None))
    assert clipped == pytest.approx(0.01, rel=1e-3)


def test_warm_up_is_linear_and_starts_above_zero() -> None:
    options = Optimizer(learning_rate=1.0, warmup_steps=4)
    assert [rate(options, step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert rate(Optimizer(learning_rate=1.0, warmup_steps=0), 0) == 1.0


def test_a_gradient_that_is_no_number_is_refused_before_anything_changes() -> None:
    ours = learner()
    before = parameters(ours)
    bad = batch()
    bad.advantages_B[0] = float("nan")
    with pytest.raises(NumericsError, match="step 3"):
        ours.train([bad], 3, 0)
    assert all(torch.equal(before[name], tensor) for name, tensor in parameters(ours).items())


def test_small_updates_do_not_vanish_in_bfloat16() -> None:
    ours = learner(Algorithm(optimizer=Optimizer(learning_rate=1e-4, warmup_steps=0)), dtype="bfloat16")
    start = parameters(ours)["lm_head.weight"]
    for step in range(40):
        ours.train([batch()], step, 0)
    moved = (parameters(ours)["lm_head.weight"] - start).abs().max().item()
    assert moved > 2e-3, "40 updates of about 1e-4 each"


def rolled_out(under: Policy, rows: list[Sample]) -> list[Sample]:
    """The same tokens, with the log-probabilities the policy gives them."""
    out = []
    for s in rows:
        ids = torch.tensor([*s.prompt_ids, *s.response_ids])
        with torch.no_grad():
            logprobs = (under(ids.unsqueeze(0))[0] / TEMPERATURE).log_softmax(-1)
        places = range(len(s.prompt_ids), len(ids))
        taken = np.array([logprobs[p - 1, ids[p]].item() for p in places], np.float32)
        out.append(Sample(prompt_ids=s.prompt_ids, response_ids=s.response_ids, logprobs=taken))
    return out


def of_version(rows: list[Sample], version: int) -> Batch:
    n = len(rows)
    return collate(rows, torch.linspace(-1, 1, n), torch.ones(n, dtype=torch.bool), [version] * n, 9)


def test_gap_is_measured_under_the_same_version_even_when_samples_lag() -> None:
    """rl.md 22: step 1 trains version 1 on samples of version 0, whose weights are gone from the policy."""
    ours = learner(lag=1)
    first, second = rolled_out(ours.policy, samples(8, seed=1)), rolled_out(ours.policy, samples(8, seed=2))
    assert ours.train([of_version(first, 0)], 0, version=0).metrics["logprob_gap"] < 1e-5
    late = ours.train([of_version(second, 0)], 1, version=1).metrics
    assert late["logprob_gap"] < 1e-5
    assert abs(late["importance_ratio_mean"] - 1) > 1e-5


def test_gap_shows_stale_weights() -> None:
    """rl.md 1: samples that claim a version their weights were not."""
    ours = learner(lag=1)
    wrong = rolled_out(policy(seed=5), samples(8))
    assert ours.train([of_version(wrong, 0)], 0, version=0).metrics["logprob_gap"] > 0.1


def test_gap_shows_a_single_wrong_token() -> None:
    """The mean over a step's tokens would not."""
    ours = learner(lag=1)
    rows = rolled_out(ours.policy, samples(8))
    rows[3].logprobs[-1] += 1e-3
    metrics = ours.train([of_version(rows, 0)], 0, version=0).metrics
    assert metrics["logprob_gap"] == pytest.approx(1e-3, abs=1e-5)
    assert metrics["logprob_gap_mean"] < 1e-4


def test_gap_is_absent_when_no_row_can_be_compared() -> None:
    metrics = learner(lag=1).train([batch(version=3)], 0, version=4).metrics
    assert not {"logprob_gap", "logprob_gap_mean"} & metrics.keys()


TOKENIZER = load_tokenizer(Model(init=ModelInit(config=CONFIG), tokenizer=Tokenizer(characters="0123456789")))


def saver(directory: Path) -> saving.Saver:
    return saving.Saver(
        directory=directory, keep=2, seed=3, layout=TrainerLayout(), config=CONFIG, tokenizer=TOKENIZER, host=HOST
    )


def resumed(directory: Path, make: Callable[[], Learner], dtype: str) -> Learner:
    found = saving.find(directory, HOST)
    assert found is not None
    assert found.coordinator_state() == {"next_prompt": 16}
    out = make()
    out.policy.load_tensors(read_directory(found.model, dtype)[1])
    out.optimizer = type(out.optimizer)(out.policy, out.algorithm.optimizer)
    saving.restore(found, out, 0)
    return out


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_resume_is_bit_exact(tmp_path: Path, dtype: str) -> None:
    """Four steps equal two steps, a checkpoint, a new process, and two more."""
    whole, half = learner(dtype=dtype), learner(dtype=dtype)
    for step in range(4):
        whole.train([batch(seed=step)], step, step)
    for step in range(2):
        half.train([batch(seed=step)], step, step)
    random_numbers = torch.rand(3)
    saver(tmp_path).write(half, step=2, version=2, coordinator_state={"next_prompt": 16})
    expected = torch.rand(3)
    assert not torch.equal(random_numbers, expected)
    torch.manual_seed(99)
    rest = resumed(tmp_path, lambda: learner(dtype=dtype), dtype)
    assert torch.equal(torch.rand(3), expected)
    for step in range(2, 4):
        rest.train([batch(seed=step)], step, step)
    for name, tensor in parameters(whole).items():
        assert torch.equal(tensor, parameters(rest)[name]), name


def test_checkpoints_are_pruned_and_of_the_same_layout(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        saver(tmp_path).write(learner(), step=step, version=step, coordinator_state={})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-2", "step-3"]
    found = checkpoints.newest(tmp_path)
    assert found is not None
    saving.check(found, 1, TrainerLayout())
    with pytest.raises(InvalidInputError, match=r"spec\.trainer\.layout"):
        saving.check(found, 2, TrainerLayout(dp=2))


@pytest.mark.parametrize(("key", "value"), [("hidden_size", 8), ("num_hidden_layers", 3), ("norm_topk_prob", False)])
def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path, key: str, value: int) -> None:
    """A smaller model would be cut out of it, and train on."""
    saver(tmp_path).write(learner(), step=1, version=1, coordinator_state={})
    found = checkpoints.newest(tmp_path)
    assert found is not None
    theirs = parse_config(read_directory(found.model)[0])
    saving.check_model(found, theirs, policy().config)
    with pytest.raises(InvalidInputError, match=rf"spec\.model: '{key} {value}' differs .* \({CONFIG[key]}\)"):
        saving.check_model(found, theirs, parse_config(CONFIG | {key: value}))


def test_a_job_without_a_reference_goes_on_from_one_that_had_it(tmp_path: Path) -> None:
    before = learner(Algorithm(kl_coefficient=0.1, reference_update_steps=1))
    before.keep_reference(initial_tensors(CONFIG, 0, "float32"))
    saver(tmp_path).write(before, step=1, version=1, coordinator_state={})
    found, after = checkpoints.newest(tmp_path), learner()
    assert found is not None
    saving.restore(found, after, 0)
    assert after.reference_tensors() == {}


class Packs:
    """A store that only holds packs and counts how often each is read."""

    def __init__(self, values: dict[str, bytes]) -> None:
        self.values, self.reads = values, dict.fromkeys(values, 0)

    def get(self, keys: list[str]) -> list[bytes | None]:
        for key in keys:
            self.reads[key] = self.reads.get(key, 0) + 1
        return [self.values.get(key) for key in keys]


def work(keys: list[str], slots: list[int]) -> TrainWork:
    return TrainWork(
        command=TrainCommand.TRAIN,
        rows=list(range(4)),
        pack_keys=keys,
        slots=slots,
        prompt_ids=[0, 0, 1, 1],
        sample_indices=[0, 1, 0, 1],
        rewards=[1.0, 0.0, 0.5, 0.5],
        first_versions=[0] * 4,
        group_rewards=[[1.0, 0.0], [0.5, 0.5]],
        groups=[0, 0, 1, 1],
        minibatch=[0, 0, 1, 1],
    )


def test_every_pack_is_read_once_and_rows_keep_their_order() -> None:
    rows = samples(4)
    store = Packs({"a": pack([rows[3], rows[0]]), "b": pack([rows[2], rows[1]])})
    got = fetch(work(["a", "b", "b", "a"], [1, 1, 0, 0]), store)  # type: ignore[arg-type]
    assert [s.response_ids.tolist() for s in got] == [s.response_ids.tolist() for s in rows]
    assert store.reads == {"a": 1, "b": 1}


def test_a_lost_pack_is_an_error_that_names_it() -> None:
    with pytest.raises(StoreMissError, match="'gone'"):
        fetch(work(["gone"] * 4, [0] * 4), Packs({}))  # type: ignore[arg-type]


def test_minibatches_of_a_command() -> None:
    algorithm = Algorithm(minibatches=2, zero_variance=ZeroVariance.MASK)
    first, second = minibatches(work(["a"] * 4, [0] * 4), samples(4), algorithm, HOST, fixed_tokens=12)
    assert first.inputs_BT.shape == (2, 11)
    assert first.advantages_B.tolist() == pytest.approx([1.0, -1.0], abs=1e-5)
    assert first.trained_B.tolist() == [True, True]
    assert second.advantages_B.tolist() == [0.0, 0.0]
    assert second.trained_B.tolist() == [False, False]
    assert zero_variance_share(work(["a"] * 4, [0] * 4), HOST) == 0.5
