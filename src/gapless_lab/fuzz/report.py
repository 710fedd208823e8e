"""The options and the report of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gapless_lab.fuzz.pair import Latencies, PairAudit
from gapless_lab.fuzz.probe import MemoryUse, SlowStep

__all__ = ["FuzzOptions", "FuzzReport", "MemoryRow", "SlowStepRow", "show_report"]

SHOWN: Final = 25
"""Lines of a table."""

TYPES_SHOWN: Final = 8
"""Types of objects that are shown with the memory of a broker."""


class FuzzOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a run."""

    frames: int = 20_000
    seed: int = 1
    rate: float = 2_000.0
    """Frames per second at most; 0 is no limit."""
    judges_times: bool = True
    """Whether slow steps and late deliveries are faults."""
    step_ms_max: float = 100.0
    latency_ratio_max: float = 3.0
    calm_s: float = 20.0
    """How long the healthy pair is measured without an attack, if times are judged."""
    rest_s: float = 6.0
    """How long nothing is sent before memory is measured, so that what is kept for a time is gone."""


class MemoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one broker."""

    broker: str
    before: MemoryUse
    """After the first part of the attack, when pools of names and caches are filled."""
    after: MemoryUse
    stored_before: dict[str, int]
    stored_after: dict[str, int]

    @property
    def grown(self) -> int:
        """By how many bytes it has grown."""
        return self.after.in_use - self.before.in_use

    @property
    def more_objects(self) -> dict[str, int]:
        """The types with most new objects, and how many more there are."""
        more = Counter(self.after.types)
        more.subtract(self.before.types)
        return dict(more.most_common(TYPES_SHOWN))


class SlowStepRow(msgspec.Struct, frozen=True, kw_only=True):
    """A slow step and the frames that may have caused it."""

    broker: str
    step: SlowStep
    frames: list[str]
    """The frames of the attack, or of its packet, if they are known."""


class FuzzReport(msgspec.Struct, kw_only=True):
    """The result of a run."""

    options: FuzzOptions
    seconds: float
    frames_sent: int
    frames_read: int
    """Frames that brokers have read, those of the healthy pair and between brokers included."""
    attacks: int
    kinds: dict[str, int]
    types: dict[str, int]
    states: dict[str, int]
    answers: dict[str, int]
    refusals: dict[str, int]
    reasons: dict[str, int]
    unanswered: dict[str, int]
    slowest: list[SlowStepRow]
    memory: list[MemoryRow]
    audit: PairAudit | None
    calm: Latencies | None
    attacked: Latencies | None
    faults: list[str]
    """What must not happen and has happened."""
    saved: list[str]
    """Files of attacks to replay."""


def show_report(console: Console, report: FuzzReport) -> None:
    """Print a report."""
    console.print(
        f"seed {report.options.seed}: {report.frames_sent:,} hostile frames in "
        f"{report.attacks:,} connections, {report.seconds:.0f} s"
    )
    _show_counts(console, "frames by kind", report.kinds)
    _show_counts(console, "frames by message type", report.types)
    _show_counts(console, "connections' states", report.states)
    _show_counts(console, "refusals by cause", report.refusals)
    _show_counts(console, "reasons of refusals and disconnects", report.reasons)
    if report.unanswered:
        _show_counts(console, "attacks not answered in time", report.unanswered)
    _show_slowest(console, report.slowest)
    _show_memory(console, report.memory)
    if report.audit is not None:
        audit = report.audit
        console.print(
            f"healthy pair: {audit.published:,} published, {audit.delivered:,} delivered, "
            f"{audit.lost} lost, {audit.repeated} repeated, {audit.reordered} reordered, "
            f"{audit.spurious} spurious"
        )
    for name, found in (("without attack", report.calm), ("under attack", report.attacked)):
        if found is not None:
            console.print(
                f"latency {name}: p50 {found.p50_ms} ms, p99 {found.p99_ms} ms, "
                f"max {found.max_ms} ms ({found.count:,} deliveries)"
            )
    for fault in report.faults:
        console.print(Text(f"FAULT: {fault}", style="bold red"))
    for path in report.saved:
        console.print(f"replay with: gapless fuzz --replay {path}", soft_wrap=True)
    word, style = ("NOT CLEAN", "bold red") if report.faults else ("clean", "bold green")
    console.print(Text(f"verdict of seed {report.options.seed}: {word}", style))


def _show_counts(console: Console, title: str, counts: Mapping[str, int]) -> None:
    table = Table(title=title, box=None, pad_edge=False, show_header=False, title_justify="left")
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    ordered = Counter(counts).most_common()
    for name, count in ordered[:SHOWN]:
        table.add_row(f"{count:,}", Text(name))
    if len(ordered) > SHOWN:
        rest = sum(count for _, count in ordered[SHOWN:])
        table.add_row(f"{rest:,}", f"{len(ordered) - SHOWN} others")
    console.print(table)


def _show_slowest(console: Console, rows: list[SlowStepRow]) -> None:
    table = Table(title="slowest steps", box=None, pad_edge=False, title_justify="left")
    for name in ("ms of processor", "ms", "broker", "event", "attack", "frames"):
        table.add_column(name, overflow="fold")
    for row in rows[:10]:
        step = row.step
        attack = "" if step.attack is None else str(step.attack)
        cells = (f"{step.cpu_ms:.1f}", f"{step.wall_ms:.1f}", row.broker, step.event, attack)
        table.add_row(*map(Text, cells), Text("; ".join(row.frames)))
    console.print(table)


def _show_memory(console: Console, rows: list[MemoryRow]) -> None:
    for row in rows:
        console.print(
            f"memory of {row.broker}: {row.before.in_use / 2**20:.1f} MiB before, "
            f"{row.after.in_use / 2**20:.1f} MiB after; {row.before.objects:,} and "
            f"{row.after.objects:,} objects, {row.more_objects} more; "
            f"stored {row.stored_before} and {row.stored_after}",
            markup=False,
            soft_wrap=True,
        )
