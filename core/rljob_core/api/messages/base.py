"""What every message is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """Frozen; keys stay snake_case on this wire; unknown keys are ignored (minor versions)."""

    model_config = ConfigDict(frozen=True, extra="ignore")
