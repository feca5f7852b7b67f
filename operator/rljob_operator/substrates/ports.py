"""Free loopback ports for local processes, one a purpose, the same each time it is asked for."""

from __future__ import annotations

import random
import socket

LOOPBACK = "127.0.0.1"
FIRST, LAST = 20000, 32000
"""Below Linux's ephemeral range (32768 and up): no outgoing connection can take a port between choice and bind."""


class Ports:
    """Hands out ports by purpose (`coordinator/0`)."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._taken: dict[str, int] = {}

    def of(self, purpose: str) -> int:
        """The port of a purpose; chosen at the first call."""
        if purpose not in self._taken:
            self._taken[purpose] = self._choose()
        return self._taken[purpose]

    def address(self, purpose: str) -> str:
        return f"{LOOPBACK}:{self.of(purpose)}"

    def _choose(self) -> int:
        for _ in range(1000):
            port = self._rng.randrange(FIRST, LAST)
            if port not in self._taken.values() and _free(port):
                return port
        raise OSError(f"no free TCP port between {FIRST} and {LAST} on {LOOPBACK}")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
