"""Rollout worker: prefill, decode, and the loop that asks for work."""
