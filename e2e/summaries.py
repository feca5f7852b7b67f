"""What `summary.json` of a healthy run must show: every figure is there, and every path through the store was used."""

from __future__ import annotations

from typing import Any

FIGURES = {
    "phase", "steps", "seconds", "startup_seconds", "tokens_generated", "tokens_per_second", "eval_exact_match",
    "eval_mean_reward", "policy_version", "max_version_lag", "logprob_gap", "kv", "queue", "weights", "experts",
    "restarts", "phase_seconds", "peak_pss_bytes",
}  # fmt: skip
LARGEST_GAP = 1e-4
"""Of log-probabilities of the same tokens under the same weights, rollout against trainer, in float32."""


def violated(summary: dict[str, Any]) -> list[str]:
    """What does not hold, in words; empty for a healthy run. A path that is dead is recomputed around silently, and
    shows here alone."""
    missing = sorted(FIGURES - summary.keys())
    if missing:
        return [f"{name} is missing" for name in missing]
    kv, queue, weights = summary["kv"], summary["queue"], summary["weights"]
    claims = {
        "the phase is Succeeded": summary["phase"] == "Succeeded",
        "0 < logprob_gap < 1e-4": 0 < summary["logprob_gap"] < LARGEST_GAP,
        "prefill puts KV": kv["puts"] > 0 and kv["bytes"] > 0,
        "decoding finds it: hits > 10 x misses": kv["hits"] > 10 * kv["misses"],
        "samples go through the queue": queue["samples"] > 0 and queue["payload_bytes"] > 0,
        "weights go through the store": weights["bytes"] > 0 and weights["seconds"] > 0,
        "expert load is measured: max_over_mean >= 1": summary["experts"]["max_over_mean"] >= 1,
        "nothing was restarted": summary["restarts"] == 0,
        "every role worked": summary["phase_seconds"].keys() >= {"trainer", "rollout", "reward"},
    }
    return [f"not so: {claim}" for claim, holds in claims.items() if not holds]
