"""From what a user asked for to ranges of ticks: where to begin, where to end, who reads what."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from gapless.client.starts import Start, start_point_of
from gapless.core.errors import GapError, UsageError
from gapless.core.ticks import Tick, TickRange
from gapless.messages.clients import ReadPart
from gapless.messages.streams import ReadForm
from gapless.spark.network import LOG, Extent, OverlayClient, Where
from gapless.spark.options import OnRelease
from gapless.spark.splitting import split

__all__ = [
    "Range",
    "after",
    "check_end",
    "check_released",
    "note_skipped",
    "ranges",
    "released_error",
]

PROBE_BYTES: Final = 1_048_576
"""What a probe covers of a log. Answers end where a row of the log does, and a row may have some hundred
kilobytes: answers of several are of about the same size."""


_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Range(msgspec.Struct, frozen=True):
    """A part of one log that one task reads."""

    pubend: str
    low: Tick
    high: Tick
    where: Where


def after(start: Start, extents: Mapping[str, Extent]) -> dict[str, Tick]:
    """Return after which tick of each pubend a place is.

    A position says up to where everything is there; of a pubend that it does not name nothing is. A
    time is the same moment in all logs, also in those that no longer have it: who reads from it on has
    to know (``check_released``).
    """
    if isinstance(start, datetime):
        return dict.fromkeys(extents, max(start_point_of(start).clock - 1, 0))
    if isinstance(start, Mapping):
        unknown = [name for name in start if name not in extents]
        if unknown:
            raise UsageError(
                f"a position names {', '.join(unknown)}, and the query reads "
                f"{', '.join(sorted(extents)) or 'nothing'}"
            )
        return {name: start.get(name, each.released) for name, each in extents.items()}
    if start == "latest":
        return {name: each.top for name, each in extents.items()}
    return {name: each.released for name, each in extents.items()}


def check_end(end: Start | None, extents: Mapping[str, Extent]) -> None:
    """Raise if a position or a time lies ahead: what is read up to it would not be the same next time."""
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
    """Return the error for a range that was asked for and is gone."""
    return UsageError(
        f"{GapError(pubend, low, high)}: begin later, keep logs longer (retention_s, or the option "
        "reader of a stream), or leave out what is gone with the option onRelease = skip"
    )


def check_released(
    pubend: str, start: Tick, extent: Extent, end: Tick, on_release: OnRelease
) -> Tick:
    """Return after which tick can be read; raise, or note it, if that is later than was asked for."""
    if extent.released <= start or end <= start:
        return start
    released = min(extent.released, end)
    if on_release == "fail":
        raise released_error(pubend, start + 1, released)
    note_skipped(pubend, start + 1, released)
    return released


def note_skipped(pubend: str, low: Tick, high: Tick) -> None:
    """Say in the log what was asked for, is gone and is left out."""
    text = "%s: the ticks from %d to %d are gone and skipped: %d in all"
    LOG.warning(text, pubend, low, high, high - low + 1)


def ranges(
    network: OverlayClient,
    starts: Mapping[str, Tick],
    ends: Mapping[str, Tick],
    part_bytes: int,
) -> list[Range]:
    """Return what lies between two positions, in parts for tasks; a pubend needs both ends."""
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
    """Cut one range. Probes want nothing: how far an answer goes is known without its events."""

    def asked(wanted: str, begin: Tick, end: Tick) -> ReadPart:
        return network.part(pubend, wanted, begin, end, form=ReadForm.ROWS, bytes_max=PROBE_BYTES)

    first = asked("FALSE", low, high).done
    if first >= high:
        return [TickRange(low, high)]
    sample = asked("TRUE", low, first)
    answer_bytes = sum(map(len, sample.rows)) or len(msgspec.msgpack.encode(sample.publications))

    def probe(begin: Tick, end: Tick) -> Tick:
        return first if begin == low else asked("FALSE", begin, end).done

    return split(low, high, part_bytes / max(answer_bytes, 1_024), probe)
