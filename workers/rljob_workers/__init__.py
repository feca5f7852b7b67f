"""The data plane: coordinator, trainer, rollout, reward and store processes."""
