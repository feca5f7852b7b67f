"""Wakes everybody who waits for something to change."""

from __future__ import annotations

import asyncio


class Pulse:
    """`beat` wakes every waiter of the current beat, at once and once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def beat(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    def next(self) -> asyncio.Event:
        """Set at the next beat. Take it before looking at the state, so that no change is missed."""
        return self._event
