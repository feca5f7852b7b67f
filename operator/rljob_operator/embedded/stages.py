"""What each role is doing: the stage it spent most of its time in between the last two reports."""

from __future__ import annotations

from rljob_core.api.report import Report


class RoleStages:
    """Remembers the seconds of the report before."""

    def __init__(self) -> None:
        self._before: dict[tuple[str, str], float] = {}
        self._sequence = -1
        self.now: dict[str, str] = {}
        """role -> stage"""

    def see(self, report: Report) -> None:
        """Take a report in; the same one again changes nothing."""
        if report.sequence == self._sequence:
            return
        self._sequence = report.sequence
        seconds = {(s.role, str(s.stage)): s.seconds for s in report.stages}
        spent: dict[str, tuple[float, str]] = {}
        for (role, stage), total in seconds.items():
            gained = total - self._before.get((role, stage), 0.0)
            if gained > 0.0 and stage != "idle":
                spent[role] = max(spent.get(role, (0.0, "")), (gained, stage))
        self._before = seconds
        self.now |= {role: stage for role, (_, stage) in spent.items()}
