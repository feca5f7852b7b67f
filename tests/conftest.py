"""For all tests."""

from __future__ import annotations

import asyncio


def pytest_sessionstart() -> None:
    """Say that there is no current event loop; looptime otherwise has asyncio make one for sync tests, never closed."""
    asyncio.set_event_loop(None)
