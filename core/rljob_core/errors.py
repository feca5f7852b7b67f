"""The one error tree. A user's mistake names field, value and remedy; a bug is an assertion."""

from __future__ import annotations

EXIT_FAILED = 1
"""Exit code of a worker that met an error, and of `rljob run` for a job that Failed."""

EXIT_INVALID_INPUT = 64
"""Exit code of a worker (and of `rljob`) when spec, model or data are wrong: never retried."""

EXIT_DRAINED = 75
"""Exit code of a worker told to drain: checkpoint written, work unfinished, not a failure."""

EXIT_INTERRUPTED = 130
"""Exit code of `rljob` ended by Ctrl-C without a checkpoint."""


class RLJobError(Exception):
    """Root of all errors raised on purpose."""


class InvalidInputError(RLJobError, ValueError):
    """A user's mistake in spec, model, data or reward. Ends a job as `Failed`, without retries.

    field: path as the user wrote it (`spec.trainer.layout.ep`, or `data.jsonl line 7`).
    """

    def __init__(self, field: str, value: object, problem: str, remedy: str) -> None:
        self.field, self.value, self.problem, self.remedy = field, value, problem, remedy
        super().__init__(f"{field}: {value!r} {problem}; {remedy}")

    def __reduce__(self) -> tuple[type[InvalidInputError], tuple[str, object, str, str]]:
        return (type(self), (self.field, self.value, self.problem, self.remedy))


class ProtocolVersionError(RLJobError):
    """A document of an unknown major version arrived: refused, never guessed at."""


class StoreError(RLJobError):
    """MooncakeStore refused or lost something; `code` is its own negative code (-200 no space, -704 not found)."""

    def __init__(self, operation: str, key: str, code: int, remedy: str = "") -> None:
        self.operation, self.key, self.code = operation, key, code
        super().__init__(f"store {operation} {key!r}: code {code}{'; ' + remedy if remedy else ''}")


class StoreFullError(StoreError):
    """The store, or the byte budget of this use, has no room: back off and retry."""


class StoreMissError(StoreError):
    """The key is not there (never written, removed, evicted, or its segment died)."""


class WeightMismatchError(RLJobError):
    """Checksums or coverage of pulled weights do not prove the version: the rollout must not serve."""


class QueueError(RLJobError):
    """A queue operation that breaks the table's rules (unknown row, foreign lease, double commit)."""


class CoordinatorGoneError(RLJobError):
    """The coordinator did not answer, or not again, within the bounded time, or another one took its place."""


class RefusedError(RLJobError):
    """The coordinator refused a connection or a request (token, protocol, a request that makes no sense)."""
