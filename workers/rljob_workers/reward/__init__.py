"""The reward worker: takes finished samples, scores them, hands the rewards back. Imports no torch."""
