"""DistQueue metadata: tables of samples with readiness, leases and at-most-once commit. Pure."""

from rljob_core.distqueue.table import Leased, Table

__all__ = ["Leased", "Table"]
