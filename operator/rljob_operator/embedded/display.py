"""What the person in front of `rljob run` sees: a live panel on a terminal, plain lines elsewhere, or hardly any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rljob_core.api.report import Outcome, Report
from rljob_core.api.status import Phase, Reason, RLJobStatus
from rljob_core.lifecycle.model import Event
from rljob_core.lifecycle.text import three_digits
from rljob_operator.embedded.stages import RoleStages

PLAIN_EVERY_S = 5.0
DRAINS = (Reason.DRAINING, Reason.DRAINED)
COLOURS = {Phase.RUNNING: "green", Phase.SUCCEEDED: "green", Phase.FAILED: "red", Phase.RESTARTING: "yellow"}


class Display(Protocol):
    """Shows the state of a run; used as a context manager."""

    def __enter__(self) -> Display: ...

    def __exit__(self, *exception: object) -> None: ...

    def update(self, status: RLJobStatus, report: Report | None) -> None:
        """The newest figures."""
        ...

    def say(self, line: str) -> None:
        """One line that stays."""
        ...

    def event(self, event: Event) -> None:
        """A transition of the job."""
        ...


def choose(console: Console, *, quiet: bool, clock: Callable[[], float]) -> Display:
    """A panel on a terminal, lines elsewhere. clock: seconds."""
    if console.is_terminal and not quiet:
        return LivePanel(console, clock)
    return PlainLines(console, clock, quiet=quiet)


class PlainLines:
    """A line for each transition, and at most every 5 s one of figures."""

    def __init__(self, console: Console, clock: Callable[[], float], *, quiet: bool = False) -> None:
        self._console, self._clock, self._quiet = console, clock, quiet
        self._said_at, self._step = clock() - PLAIN_EVERY_S, 0
        self._loading = ""

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    def update(self, status: RLJobStatus, report: Report | None) -> None:
        """See Display."""
        if report is None or self._quiet:
            return
        self._say_loading(", ".join(loading(status, report)))
        if report.step == self._step:
            return
        if self._clock() - self._said_at < PLAIN_EVERY_S and report.step < report.total_steps:
            return
        self._said_at, self._step = self._clock(), report.step
        self.say("  ".join(f"{name} {value}" for name, value in figures(status, report)))

    def _say_loading(self, roles: str) -> None:
        """Once, not again as one role after the other is done."""
        if roles and not self._loading:
            self.say(f"loading: {roles}")
            self._loading = roles

    def say(self, line: str) -> None:
        """See Display."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def event(self, event: Event) -> None:
        """See Display."""
        if not self._quiet or event.type == "Warning":
            self.say(event.message)


class LivePanel:
    """Redrawn in place four times a second."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console, self._clock = console, clock
        self._started = clock()
        self._stages = RoleStages()
        self._status, self._report = RLJobStatus(), None  # type: tuple[RLJobStatus, Report | None]
        self._live = Live(get_renderable=self._panel, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> LivePanel:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def update(self, status: RLJobStatus, report: Report | None) -> None:
        """See Display."""
        self._status = status
        if report is not None:
            self._report = report
            self._stages.see(report)

    def say(self, line: str) -> None:
        """See Display."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def event(self, event: Event) -> None:
        """See Display."""
        if event.type == "Warning":
            self.say(event.message)

    def _panel(self) -> Panel:
        status, report = self._status, self._report
        colour = COLOURS.get(status.phase, "cyan")
        draining = status.reason in DRAINS
        state = status.reason if draining else str(status.phase)
        title = Text.assemble((state, f"bold {colour}"), f"  {self._clock() - self._started:.0f} s")
        if status.phase is not Phase.RUNNING:
            title.append(f"  {status.message}", style="dim")
        parts: list[Text | Table] = [title]
        if report is not None:
            parts += [_bar(report), _row(figures(status, report))]
        if status.roles:
            parts.append(self._roles())
        hint = "Ctrl-C again: kill at once" if draining else "Ctrl-C: checkpoint and stop"
        subtitle = None if status.phase.terminal else hint
        return Panel(Group(*parts), title="rljob", subtitle=subtitle, border_style=colour)

    def _roles(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in ("role", "processes", "doing"):
            table.add_column(column)
        status, slow = self._status, loading(self._status, self._report)
        busy = status.phase is Phase.RUNNING or status.reason in DRAINS
        for role, ready in status.roles.items():
            stage = self._stages.now.get(role, "") if busy and ready.ready else ""
            table.add_row(role, f"{ready.ready}/{ready.wanted}", "loading" if role in slow else stage)
        return table


def loading(status: RLJobStatus, report: Report | None) -> list[str]:
    """Roles whose processes run, but have not registered with the coordinator: they read model and data."""
    if status.phase is not Phase.RUNNING or report is None or report.outcome is not Outcome.NONE:
        return []
    return [health.role for health in report.workers if health.registered < health.wanted]


def figures(status: RLJobStatus, report: Report) -> list[tuple[str, str]]:
    """Name and value of what is worth watching."""
    out = [
        ("step", f"{report.step}/{report.total_steps}"),
        ("reward", three_digits(report.reward_mean)),
        ("lag", str(report.lag_oldest)),
        ("tokens/s", three_digits(report.tokens_per_second)),
    ]
    if report.eval_exact_match is not None:
        out.append(("exact match", three_digits(report.eval_exact_match)))
    return out


def _bar(report: Report) -> Table:
    """Steps done, on a line of its own."""
    line = Table.grid(expand=True)
    line.add_row(ProgressBar(total=max(1, report.total_steps), completed=report.step))
    return line


def _row(pairs: list[tuple[str, str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, _ in pairs:
        table.add_column(name, justify="right")
    table.add_row(*(value for _, value in pairs))
    return table
