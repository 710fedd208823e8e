"""The output: a live line on a terminal, plain lines elsewhere, and the audit at the end."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gapless_lab.demo.audit import Audit, AuditSummaryRow, Latency
from gapless_lab.demo.clients import DemoCounters
from gapless_lab.demo.workload import DemoRoles

if TYPE_CHECKING:
    from gapless.runtime.supervisor import Supervisor

__all__ = ["Screen", "show_audit"]

PLAIN_S: Final = 5.0
"""How often a line is printed if there is no terminal."""

FILE_WIDTH: Final = 160
"""Columns of output to a file or a pipe."""


def make_console() -> Console:
    """Return the console for all output."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=FILE_WIDTH)


class Screen:
    """Shows the progress of the demo; use it with ``with``. A quiet one shows nothing."""

    def __init__(self, console: Console, tally: DemoCounters, *, quiet: bool = False) -> None:
        self._console = console
        self._tally = tally
        self._quiet = quiet
        self._started_at = time.monotonic()
        self._live: Live | None = None
        self._last = (self._started_at, 0, 0)
        self._shown_at = self._started_at
        self._phase = "starting"

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(Text(""), console=self._console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, what: str, *, style: str = "") -> None:
        """Print what happened, with the time since the start."""
        if not self._quiet:
            at = f"{time.monotonic() - self._started_at:5.1f} s  "
            self._console.print(Text.assemble((at, "dim"), (what, style)), soft_wrap=True)

    def phase(self, name: str) -> None:
        """Set the phase that the live line shows."""
        self._phase = name

    def show_roles(self, roles: DemoRoles, supervisor: Supervisor) -> None:
        """Print the publishers and subscribers and their brokers."""
        if self._quiet:
            return
        self.say(f"{len(supervisor.brokers)} brokers are ready, a process each")
        for publisher in roles.publishers:
            waits = (
                ""
                if publisher.deadline_s is None
                else f", waits {publisher.deadline_s:g} s at most"
            )
            where = f"publishes to {publisher.pubend} at {publisher.brokers[0]}{waits}"
            self._console.print(f"         {publisher.name:7} {where}")
        for subscriber in roles.subscribers:
            self._console.print(
                Text(f"         {subscriber.name:7} {subscriber.story}: {subscriber.filter.text}")
            )

    def tick(self, brokers_ready: int, brokers: int) -> None:
        """Show the current counts."""
        now, tally = time.monotonic(), self._tally
        if self._quiet or (self._live is None and now - self._shown_at < PLAIN_S):
            return
        since, published, delivered = self._last
        passed = max(0.001, now - since)
        line = (
            f"{self._phase}: {brokers_ready}/{brokers} brokers up, "
            f"{tally.published:,} published ({(tally.published - published) / passed:,.0f}/s), "
            f"{tally.delivered:,} delivered ({(tally.delivered - delivered) / passed:,.0f}/s), "
            f"{tally.kills} kills, {tally.restarts} restarts"
        )
        if self._live is None:
            self.say(line)
        else:
            self._live.update(Text(f"{now - self._started_at:5.1f} s  {line}", style="cyan"))
        self._shown_at = now
        if passed >= 1:
            self._last = (now, tally.published, tally.delivered)


def show_audit(console: Console, audit: Audit, tally: DemoCounters) -> None:
    """Print the audit."""
    console.print()
    console.print(
        f"brokers were killed {tally.kills} times and were ready again {tally.restarts} times"
    )
    console.print(_counts(audit))
    console.print(_table(audit))
    for example in audit.examples:
        console.print(Text(f"  {example}", style="red"))
    if audit.is_clean:
        console.print(Text("clean: nothing lost, nothing twice, everything in order", "bold green"))
    else:
        console.print(Text("NOT CLEAN: a guarantee was violated", "bold red"))


def _counts(audit: Audit) -> Text:
    parts = [f"audit: {audit.published:,} events were acknowledged"]
    if audit.unknown:
        delivered = f"{audit.unknown_delivered:,} of them were delivered"
        parts.append(f"of {audit.unknown:,} the outcome was unknown ({delivered})")
    if audit.failed:
        parts.append(f"{audit.failed:,} were reported as not published")
    return Text("; ".join(parts))


def _table(audit: Audit) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("subscriber")
    for name in (
        *("expected", "delivered", "lost", "duplicates", "out of order", "spurious", "gaps"),
        *("p50 ms", "p95 ms", "p99 ms", "max ms"),
    ):
        table.add_column(name, justify="right")
    for row in audit.rows:
        table.add_row(*_cells(row))
    table.add_row(*_cells(audit.total), style="bold")
    return table


def _cells(row: AuditSummaryRow) -> list[Text]:
    faults = (row.lost, row.duplicates, row.out_of_order, row.spurious, row.gaps)
    delays = row.latency_ms or Latency(0, 0, 0, 0)
    shown = (delays.p50, delays.p95, delays.p99, delays.max)
    return [
        Text(row.subscriber),
        Text(f"{row.expected:,}"),
        Text(f"{row.delivered:,}"),
        *(Text(f"{each:,}", "bold red" if each else "green") for each in faults),
        *(Text("" if row.latency_ms is None else f"{each:,.1f}") for each in shown),
    ]
