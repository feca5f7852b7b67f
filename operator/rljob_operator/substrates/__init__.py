"""Where workloads run: pods, or local processes."""
