"""Weights by policy version through the store: each slice once, checksummed, pulled exactly as held."""

from rljob_workers.weights.store_weights import StoreWeights

__all__ = ["StoreWeights"]
