"""From the options of a user to ranges of ticks: start, end, and the parts for tasks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from gapless.client.starts import Start, start_point_of
from gapless.core.errors import GapError, UsageError
from gapless.core.ticks import Tick, TickRange
from gapless.messages.reading import ReadPart
from gapless.messages.streams import ReadForm
from gapless.spark.network import LOG, Extent, OverlayClient, Where
from gapless.spark.options import OnRelease
from gapless.spark.splitting import split

__all__ = [
    "Range",
    "after",
    "check_end",
    "check_released",
    "note_released_beginnings",
    "note_skipped",
    "ranges",
    "released_error",
]

PROBE_BYTES: Final = 1_048_576
"""How many bytes of a log a probe covers. Replies end at a row of the log, and a row may have some
hundred kilobytes: replies of several rows have about the same size."""


_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Range(msgspec.Struct, frozen=True):
    """A part of one log that one task reads."""

    pubend: str
    low: Tick
    high: Tick
    where: Where


def after(start: Start, extents: Mapping[str, Extent]) -> dict[str, Tick]:
    """Return the tick of each pubend after which ``start`` lies.

    A position contains the tick up to which everything was read; a pubend that it does not name is
    read from its first retained tick. A time is the same tick in all logs, also in those that have
    released it: ``check_released`` reports that.
    """
    if isinstance(start, datetime):
        return dict.fromkeys(extents, max(start_point_of(start).clock - 1, 0))
    if isinstance(start, Mapping):
        unknown = [name for name in start if name not in extents]
        if unknown:
            raise UsageError(
                f"a position names {', '.join(unknown)}, but the query reads "
                f"{', '.join(sorted(extents)) or 'nothing'}"
            )
        return {name: start.get(name, each.released) for name, each in extents.items()}
    if start == "latest":
        return {name: each.top for name, each in extents.items()}
    return {name: each.released for name, each in extents.items()}


def check_end(end: Start | None, extents: Mapping[str, Extent]) -> None:
    """Raise if an end lies ahead of a log: the same read would give other rows later."""
    if end is None or isinstance(end, str):
        return
    for name, tick in after(end, extents).items():
        top = extents[name].top
        if tick > top and isinstance(end, datetime):
            at = _EPOCH + timedelta(microseconds=top)
            raise UsageError(
                f"option end: {end.isoformat()} is ahead of {name}, which is at {at.isoformat()}"
            )
        if tick > top:
            raise UsageError(f"option end: {tick} is ahead of {name}, which is at {top}")


def released_error(pubend: str, low: Tick, high: Tick) -> UsageError:
    """Return the error for a released range that a query needs."""
    return UsageError(
        f"{GapError(pubend, low, high)}: start later, keep logs longer (retention_s, or the option "
        "reader of a stream), or skip released ranges with the option onRelease = skip"
    )


def check_released(
    pubend: str, start: Tick, extent: Extent, end: Tick, on_release: OnRelease
) -> Tick:
    """Return the tick after which can be read; raise, or log it, if ``start`` is released."""
    if extent.released <= start or end <= start:
        return start
    released = min(extent.released, end)
    if on_release == "fail":
        raise released_error(pubend, start + 1, released)
    note_skipped(pubend, start + 1, released)
    return released


def note_released_beginnings(extents: Mapping[str, Extent]) -> dict[str, Tick]:
    """Log the pubends whose beginning is released, for a read of everything; return these ticks."""
    found = {name: extent.released for name, extent in extents.items() if extent.released > 0}
    for name, released in sorted(found.items()):
        at = _EPOCH + timedelta(microseconds=released)
        text = "%s: its beginning is released, so the read starts after the tick %d (%s)"
        LOG.warning(text, name, released, at.isoformat())
    return found


def note_skipped(pubend: str, low: Tick, high: Tick) -> None:
    """Log a released range that is skipped."""
    text = "%s: the ticks from %d to %d are released and skipped: %d in all"
    LOG.warning(text, pubend, low, high, high - low + 1)


def ranges(
    network: OverlayClient,
    starts: Mapping[str, Tick],
    ends: Mapping[str, Tick],
    part_bytes: int,
) -> list[Range]:
    """Return the ranges between two positions, in parts for tasks; a pubend needs both ends."""
    found = []
    for pubend in sorted(starts.keys() & ends.keys()):
        low, high = starts[pubend] + 1, ends[pubend]
        if low <= high:
            where = network.route(pubend)
            cut = _cut(network, pubend, low, high, part_bytes)
            found += [Range(pubend, *each, where) for each in cut]
    return found


def _cut(
    network: OverlayClient, pubend: str, low: Tick, high: Tick, part_bytes: int
) -> list[TickRange]:
    """Split one range. Probes match nothing: the end of a reply is known without its events."""

    def read(filter_text: str, begin: Tick, end: Tick) -> ReadPart:
        return network.part(
            pubend, filter_text, begin, end, form=ReadForm.ROWS, bytes_max=PROBE_BYTES
        )

    first = read("FALSE", low, high).done
    if first >= high:
        return [TickRange(low, high)]
    sample = read("TRUE", low, first)
    answer_bytes = sum(map(len, sample.rows)) or len(msgspec.msgpack.encode(sample.publications))

    def probe(begin: Tick, end: Tick) -> Tick:
        return first if begin == low else read("FALSE", begin, end).done

    return split(low, high, part_bytes / max(answer_bytes, 1_024), probe)
