"""The documents users, operator, coordinator and workers exchange."""

from rljob_core.api.base import Document, Rule
from rljob_core.api.spec import ObjectMeta, RLJob, RLJobSpec, drop_nulls

__all__ = ["Document", "ObjectMeta", "RLJob", "RLJobSpec", "Rule", "drop_nulls"]
