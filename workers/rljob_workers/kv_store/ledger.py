"""Byte budgets: what this process has in the store, per use, enforced before a put."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rljob_core.errors import StoreFullError

NO_SPACE = -200


def use_of(key: str) -> str:
    """`kv/3/ab12` -> `kv`."""
    return key.partition("/")[0]


class Ledger:
    """Keys this process has put and their bytes. Keys are relative to the job."""

    def __init__(self, budgets: Mapping[str, int]) -> None:
        self._budgets = dict(budgets)
        self._sizes: dict[str, dict[str, int]] = {use: {} for use in budgets}

    def charge(self, sizes: Mapping[str, int]) -> None:
        """Book keys, all or none. StoreFullError when a use would pass its budget; a key counts once."""
        wanted: dict[str, int] = {}
        for key, size in sizes.items():
            use = use_of(key)
            if use not in self._budgets:
                raise ValueError(f"store put {key!r}: this process has no budget for use {use!r}")
            wanted[use] = wanted.get(use, 0) + size - self._sizes[use].get(key, 0)
        for use, more in wanted.items():
            if self.used(use) + more > self._budgets[use]:
                raise StoreFullError(
                    "put",
                    next(k for k in sizes if use_of(k) == use),
                    NO_SPACE,
                    f"budget of {use}: {self.used(use)} of {self._budgets[use]} bytes used, {more} more wanted",
                )
        for key, size in sizes.items():
            self._sizes[use_of(key)][key] = size

    def release(self, keys: Iterable[str]) -> None:
        """Forget keys that are gone; unknown ones are fine."""
        for key in keys:
            self._sizes.get(use_of(key), {}).pop(key, None)

    def release_below(self, prefix: str) -> None:
        """Forget every key below a prefix ending in `/`, or all for the empty one."""
        for booked in self._sizes.values():
            for key in [k for k in booked if k.startswith(prefix)]:
                del booked[key]

    def used(self, use: str) -> int:
        """Bytes booked for a use."""
        return sum(self._sizes.get(use, {}).values())

    def keys(self, use: str) -> list[str]:
        return list(self._sizes.get(use, {}))
