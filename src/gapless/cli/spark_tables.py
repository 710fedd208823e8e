"""The results of Spark jobs as tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gapless.cli.output import console, counted, facts, listing, plain, size, span, timestamp

if TYPE_CHECKING:
    from gapless.spark.jobs.archiving import ArchiveReport
    from gapless.spark.jobs.backtesting import Backtest

__all__ = ["show_archive", "show_backtest"]

ROWS_SHOWN = 40
"""Rows of a table on a screen; all are in the file."""


def show_archive(found: ArchiveReport) -> None:
    """Print the content of an archive, stream by stream."""
    out = console()
    new = f"{found.new_events:,} in {found.seconds:.1f} s"
    rows = [
        ("archive", found.path),
        ("new events", new),
        ("events", f"{found.events:,}"),
        ("files", f"{found.files:,}, {size(found.bytes)}"),
    ]
    if found.merged_files:
        rows.append(("merged", counted(found.merged_files, "small file")))
    if found.skipped:
        rows.append(("released before", "; ".join(_missing_times(found))))
    for name, tick in found.released.items():
        rows.append(
            ("released before", f"{name} up to {timestamp(tick)}, before its first event here")
        )
    out.print(facts(rows))
    shown = [
        (
            each.pubend,
            f"{each.events:,}",
            f"{each.days:,}",
            f"{each.files:,}",
            size(each.bytes),
            timestamp(each.first),
            timestamp(each.last),
        )
        for each in found.streams
    ]
    if shown:
        out.print(listing("pubend", "events", "days", "files", "size", "first", "last", rows=shown))


def _missing_times(found: ArchiveReport) -> Iterator[str]:
    """Describe what an archive lacks of each stream, as time: the number of events is unknown."""
    for name, ticks in found.skipped.items():
        new = found.new_skipped.get(name, 0)
        yield f"{name} lacks {span(ticks)}" + (f", {span(new)} of it since this run" if new else "")


def show_backtest(found: Backtest, top: int) -> None:
    """Print the filters that match most, and the most similar pairs."""
    out = console()
    idle = sum(not each.count for each in found.filters)
    rows = [
        ("events", f"{found.events:,} in {span(round(found.seconds * 1_000_000))}"),
        ("matched", f"{found.matched:,} ({found.coverage:.1%}) by at least one filter"),
        ("filters", f"{len(found.filters):,}, of which {idle:,} matched nothing"),
    ]
    if found.equal:
        names = "; ".join(" = ".join(each) for each in found.equal[:top])
        rows.append(("the same", names))
    out.print(facts(rows))
    most = sorted(found.filters, key=lambda each: -each.count)[: top or None]
    shown = [
        (
            each.name,
            f"{each.count:,}",
            f"{each.share:.2%}",
            f"{each.per_second:,.2f}/s" if each.per_second >= 1 else f"{each.per_hour:,.2f}/h",
            "" if each.first is None else timestamp(each.first),
            "" if each.last is None else timestamp(each.last),
            each.filter,
        )
        for each in most
    ]
    out.print(listing("name", "events", "share", "rate", "first", "last", "filter", rows=shown))
    pairs = [
        (
            f"{'' if each.exact else '~'}{each.jaccard:.3f}",
            f"{each.shared:,}",
            each.left,
            each.right,
        )
        for each in found.alike
    ]
    if pairs:
        out.print(listing("alike", "both match", "filter", "and", rows=pairs))
        if not all(each.exact for each in found.alike):
            out.print(plain("~ estimated from samples"), style="dim")
