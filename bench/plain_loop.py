"""The peer of our benchmarks: the same GRPO on the same model, in one process, the way one would write it plainly.

No queue, no store, no processes: sample, score, update, all in a loop, always on-policy. It shares with the workers the
model's forward pass, the prompts and the reward, so that a comparison shows what the split into processes costs or
gains. Supported: generators, per-position and exact-match rewards, the algorithm's defaults apart from its numbers.

    python bench/plain_loop.py manifests/samples/reverse-digits.yaml --seeds 0 1 2
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from rljob_core.api.algorithm import AdvantageNormalization
from rljob_core.api.spec import RLJob, RLJobSpec
from rljob_core.inputs import CharacterTokenizer, PromptStream, Split, exact_match, per_position
from rljob_operator.yaml_loader import load_file
from rljob_workers import device
from rljob_workers.model import Policy, build_policy, initial_tensors

REWARD_GOAL = 0.95


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """seconds count from the first sampled token. seconds_to_reward, steps_to_reward: until a step's mean reward is
    at least `REWARD_GOAL`; None when it never is."""

    seconds_to_reward: float | None
    steps_to_reward: int | None
    steps: int
    seconds: float
    steps_per_second: float
    reward_mean: float
    eval_exact_match: float


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Responses of a step, right-padded with 0: B rows, T positions (prompt and response), R response positions."""

    tokens_BT: Tensor
    logprobs_BR: Tensor
    response_BR: Tensor
    """bool: a sampled token, EOS included."""

    def select(self, index: Tensor) -> Samples:
        """Some rows."""
        return Samples(
            tokens_BT=self.tokens_BT[index], logprobs_BR=self.logprobs_BR[index], response_BR=self.response_BR[index]
        )


def run(spec: RLJobSpec, seed: int, *, steps: int | None = None, stop_at_goal: bool = False) -> Outcome:
    """Train from `seed` (initial weights, prompts and draws). steps: in place of `algorithm.steps`."""
    algorithm, sampling = spec.algorithm, spec.rollout.sampling
    assert spec.model.init is not None
    assert spec.model.tokenizer is not None
    assert spec.data.generator is not None
    device.setup("cpu", 0, threads=1)
    config, options = spec.model.init.config, algorithm.optimizer
    policy = build_policy(config)
    policy.load_tensors(initial_tensors(config, seed))
    reference = copy.deepcopy(policy) if algorithm.kl_coefficient else None
    optimizer = torch.optim.AdamW(
        policy.parameters(), options.learning_rate, (options.beta1, options.beta2), weight_decay=options.weight_decay,
        fused=True,
    )  # fmt: skip
    tokenizer = CharacterTokenizer(spec.model.tokenizer.characters or "")
    prompts = PromptStream(spec.data.generator.model_copy(update={"seed": seed}))
    draws = torch.Generator().manual_seed(seed)
    start, goal, reward_mean, step = time.perf_counter(), None, 0.0, 0
    for step in range(1, (steps or algorithm.steps) + 1):
        size = algorithm.prompts_per_step
        rows = [prompts.row(i) for i in range((step - 1) * size, step * size)]
        samples = sample(
            policy, [tokenizer.encode(r.prompt) for r in rows], algorithm.group_size, tokenizer.eos_ids[0],
            sampling.max_response_tokens, sampling.temperature, draws,
        )  # fmt: skip
        answers = [r.answer for r in rows for _ in range(algorithm.group_size)]
        rewards_B = torch.tensor([score(spec, r, a) for r, a in zip(texts(samples, tokenizer), answers, strict=True)])
        reward_mean = rewards_B.mean().item()
        if goal is None and reward_mean >= REWARD_GOAL:
            goal = (time.perf_counter() - start, step)
            if stop_at_goal:
                break
        rewards_GS = rewards_B.view(-1, algorithm.group_size)
        advantages_GS = rewards_GS - rewards_GS.mean(dim=1, keepdim=True)
        if algorithm.advantage is AdvantageNormalization.GROUP_STD:
            advantages_GS /= rewards_GS.std(dim=1, correction=0, keepdim=True) + 1e-6
        advantages_B = advantages_GS.flatten()
        every = algorithm.reference_update_steps
        if reference is not None and every and step > 1 and (step - 1) % every == 0:
            reference = copy.deepcopy(policy)
        for group in optimizer.param_groups:
            group["lr"] = options.learning_rate * min(1.0, step / max(options.warmup_steps, 1))
        for rows_of in torch.arange(len(answers)).chunk(algorithm.minibatches):
            update(spec, policy, reference, optimizer, samples.select(rows_of), advantages_B[rows_of])
    seconds = time.perf_counter() - start
    return Outcome(
        seconds_to_reward=goal[0] if goal else None,
        steps_to_reward=goal[1] if goal else None,
        steps=step,
        seconds=seconds,
        steps_per_second=step / seconds,
        reward_mean=reward_mean,
        eval_exact_match=evaluate(spec, policy, tokenizer, seed),
    )


@torch.no_grad()
def sample(
    policy: Policy, prompts: list[list[int]], copies: int, eos: int, limit: int, temperature: float,
    draws: torch.Generator | None,
) -> Samples:  # fmt: skip
    """`copies` responses to each prompt (equal lengths), with a KV cache, one prefill a prompt. draws None: greedy."""
    tokens = torch.tensor(prompts)
    width = tokens.shape[1]
    logits, kv = policy.prefill(tokens, torch.full((len(prompts),), width))
    tokens, logits = tokens.repeat_interleave(copies, 0), logits.repeat_interleave(copies, 0)
    shape = [*kv.shape[:2], len(tokens), kv.shape[3], width + limit, kv.shape[5]]
    cache = kv.new_zeros(shape)
    cache[..., :width, :] = kv.repeat_interleave(copies, 2)
    alive, logprobs, response = torch.ones(len(tokens), dtype=torch.bool), [], []
    for position in range(width, width + limit):
        logp = torch.log_softmax(logits / temperature, -1)
        token = logp.argmax(-1) if draws is None else torch.multinomial(logp.exp(), 1, generator=draws).squeeze(1)
        logprobs.append(logp.gather(1, token.unsqueeze(1)).squeeze(1))
        response.append(alive)
        tokens = torch.cat((tokens, torch.where(alive, token, 0).unsqueeze(1)), 1)
        alive = alive & (token != eos)
        if not alive.any() or position == width + limit - 1:
            break
        places = torch.full((len(tokens),), position)
        logits = policy.decode(tokens[:, -1], places, cache[..., : position + 1, :])
    return Samples(tokens_BT=tokens, logprobs_BR=torch.stack(logprobs, 1), response_BR=torch.stack(response, 1))


def texts(samples: Samples, tokenizer: CharacterTokenizer) -> list[str]:
    """Response texts."""
    width = samples.response_BR.shape[1]
    lengths = samples.response_BR.sum(1).tolist()
    rows = samples.tokens_BT[:, -width:].tolist()
    return [tokenizer.decode(row[:n]) for row, n in zip(rows, lengths, strict=True)]


def score(spec: RLJobSpec, response: str, answer: str) -> float:
    """The spec's reward."""
    if spec.reward.per_position is not None:
        return per_position(response, answer, spec.reward.per_position.exact_bonus)
    return exact_match(response, answer)


def update(
    spec: RLJobSpec, policy: Policy, reference: Policy | None, optimizer: torch.optim.Optimizer, samples: Samples,
    advantages_B: Tensor,
) -> None:  # fmt: skip
    """One AdamW step on the clipped token-mean loss, with a k3 penalty where there is a reference."""
    algorithm, width = spec.algorithm, samples.response_BR.shape[1]
    logits = policy(samples.tokens_BT[:, :-1])[:, -width:]
    logp = torch.log_softmax(logits / spec.rollout.sampling.temperature, -1)
    taken = logp.gather(2, samples.tokens_BT[:, -width:].unsqueeze(2)).squeeze(2)
    ratio = (taken - samples.logprobs_BR).exp()
    clipped = ratio.clamp(1 - algorithm.clip_low, 1 + algorithm.clip_high)
    gain = torch.minimum(ratio * advantages_B.unsqueeze(1), clipped * advantages_B.unsqueeze(1))
    penalty = torch.zeros_like(gain)
    if reference is not None:
        with torch.no_grad():
            reference_logits = reference(samples.tokens_BT[:, :-1])[:, -width:]
            reference_logp = torch.log_softmax(reference_logits / spec.rollout.sampling.temperature, -1)
            frozen = reference_logp.gather(2, samples.tokens_BT[:, -width:].unsqueeze(2)).squeeze(2)
        penalty = algorithm.kl_coefficient * ((frozen - taken).exp() - (frozen - taken) - 1)
    loss = ((penalty - gain) * samples.response_BR).sum() / samples.response_BR.sum()
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(policy.parameters(), algorithm.optimizer.gradient_clip)
    optimizer.step()


def evaluate(spec: RLJobSpec, policy: Policy, tokenizer: CharacterTokenizer, seed: int) -> float:
    """Greedy exact match on held-out prompts."""
    assert spec.data.generator is not None
    held_out = PromptStream(spec.data.generator.model_copy(update={"seed": seed}), split=Split.EVALUATION)
    rows = [held_out.row(i) for i in range(256)]
    prompts = [tokenizer.encode(r.prompt) for r in rows]
    limit = spec.rollout.sampling.max_response_tokens
    answers = texts(sample(policy, prompts, 1, tokenizer.eos_ids[0], limit, 1.0, None), tokenizer)
    return sum(exact_match(a, r.answer) for a, r in zip(answers, rows, strict=True)) / len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int)
    arguments = parser.parse_args()
    spec = RLJob.from_object(load_file(arguments.file)[0].body).spec
    for seed in arguments.seeds:
        print(json.dumps({"seed": seed, **asdict(run(spec, seed, steps=arguments.steps))}), flush=True)


if __name__ == "__main__":
    main()
