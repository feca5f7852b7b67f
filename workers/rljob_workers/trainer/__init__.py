"""Trainer ranks: advantages, losses, the training step, publication and checkpoints."""
