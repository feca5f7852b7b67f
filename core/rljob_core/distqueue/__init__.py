"""DistQueue metadata: tables of samples with readiness, leases and at-most-once commit. Pure."""
