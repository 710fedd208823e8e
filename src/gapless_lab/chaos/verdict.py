"""Options and results of a run, and their output."""

from __future__ import annotations

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gapless.core.parameters import DEFAULTS
from gapless_lab.chaos.flow import FailoverRow
from gapless_lab.chaos.networks import ChaosNetworkKind
from gapless_lab.chaos.timing import Timing
from gapless_lab.demo.audit import Audit
from gapless_lab.demo.clients import DemoCounters
from gapless_lab.demo.screen import show_audit

__all__ = ["ChaosOptions", "ChaosVerdict", "show_verdict"]


class ChaosOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a run."""

    minutes: float = 1.0
    """How long faults are made, each kind at least once; starting, draining and stopping come on
    top."""
    topology: str = "line:5x2"
    delta: int = 2
    seed: int = 1
    rate: float = 100.0
    """Events per second of all publishers together."""
    session_timeout_ms: int = DEFAULTS.session_timeout_ms
    """The silence after which brokers take a neighbour to be down."""


class ChaosVerdict(msgspec.Struct, kw_only=True):
    """The result of a run."""

    options: ChaosOptions
    network: ChaosNetworkKind
    timing: Timing
    faults: list[str]
    failover_times: list[FailoverRow]
    stuck: list[str]
    """Streams with a route that did not flow, and filters that were not changed."""
    listed: list[str]
    """Partitions that brokers list after the last heal."""
    kills: int
    restarts: int
    failovers: int
    """How often a durable subscriber failed over."""
    audit: Audit
    clean: bool = False
    """Whether nothing is wrong."""
    kept: str | None = None
    """The directory of records and logs of the brokers, if they are kept."""

    def __post_init__(self) -> None:
        """Compute whether the run is clean."""
        self.clean = self.audit.is_clean and not self.stuck and not self.listed


def show_verdict(console: Console, verdict: ChaosVerdict, tally: DemoCounters) -> None:
    """Print the failover times, the audit, and the verdict."""
    console.print()
    console.print(f"{len(verdict.faults)} faults; seconds until all streams flowed again:")
    console.print(_fail_over(verdict.failover_times))
    console.print(verdict.timing.story, soft_wrap=True)
    console.print(f"durable subscriptions failed over {verdict.failovers} times")
    show_audit(console, verdict.audit, tally)
    for each in verdict.stuck:
        console.print(Text(f"  {each}", style="red"))
    if verdict.stuck:
        console.print(Text("STUCK: a stream with a route did not flow", "bold red"))
    for each in verdict.listed:
        console.print(Text(f"  {each}, though all is healed", style="red"))
    seed = f"seed {verdict.options.seed}"
    word, style = ("clean", "bold green") if verdict.clean else ("NOT CLEAN", "bold red")
    console.print(Text(f"verdict of {seed}: {word}", style))
    if verdict.kept is not None:
        console.print(f"records and logs of the brokers are in {verdict.kept}", soft_wrap=True)


def _fail_over(rows: list[FailoverRow]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("fault")
    for name in (
        *("times", "with a route: median", "worst", "failed over: median", "worst"),
        *("new: median", "worst", "all, after healing: median", "worst"),
    ):
        table.add_column(name, justify="right")
    for row in rows:
        seconds = (
            *(row.median_s, row.worst_s, row.moved_median_s, row.moved_worst_s),
            *(row.joined_median_s, row.joined_worst_s),
            *(row.healed_median_s, row.healed_worst_s),
        )
        shown = ("" if each is None else f"{each:.2f}" for each in seconds)
        table.add_row(row.kind, str(row.count), *shown)
    return table
