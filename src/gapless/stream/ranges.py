"""The states of a tick, and the operations on knowledge ranges.

Theory of operation. GD 2.1 (figure 2) has six states of a tick; three are enough here::

    Q   nothing is known
    F   nothing is needed: there was no publication, or no SHB behind this cell needs it
    D   a publication

They are ordered, Q < F < D. The state of a tick is the greatest that was received (accumulation),
until it is forgotten, which gives Q. The mapping to GD:

- S (silence) is F: GD lowers S to F as well, so they cannot be distinguished.
- D* (delivered everywhere) does not exist: whether a publication is still needed is a property of
  the log (its release), never of a tick. In GD a D that meets an F becomes D* and then F, because F
  may mean "acknowledged". Here F only means silence, or filtered for a cell and stream epoch, so D
  wins.
- E (error) is :class:`KnowledgeConflictError`: two different publications at one tick, or one tick
  in two stream epochs or control versions. A range of a peer that leads to it is dropped; of this
  broker, it stops the broker.

A knowledge range states for all its ticks: these are D, all others F. All operations return ranges
that state the same or less. None changes its argument.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from enum import IntEnum
from itertools import pairwise
from operator import attrgetter
from typing import Final

from gapless.core.ids import PubendId
from gapless.core.ticks import RangeSet, Tick
from gapless.messages.streams import KnowledgeRange, Publication

__all__ = [
    "KnowledgeConflictError",
    "TickState",
    "cut",
    "divided",
    "filtered",
    "invalid_reason",
    "join",
    "joinable",
    "joined",
    "overlaid",
    "publications_between",
    "split",
    "state_of",
    "tick_of",
    "within",
    "without",
]

tick_of: Final = attrgetter("tick")


class TickState(IntEnum):
    """The state of a tick; the greater one wins."""

    Q = 0
    F = 1
    D = 2


class KnowledgeConflictError(AssertionError):
    """Two statements about one tick that cannot both be true: GD's state E (I1)."""

    def __init__(self, pubend: PubendId, tick: Tick, problem: str) -> None:
        self.pubend = pubend
        self.tick = tick
        super().__init__(f"pubend {pubend}, tick {tick}: {problem}")


def state_of(knowledge: KnowledgeRange, tick: Tick) -> TickState:
    """Return the state of a tick in a range, Q outside of it."""
    if not knowledge.low <= tick <= knowledge.high:
        return TickState.Q
    return TickState.D if publications_between(knowledge, tick, tick) else TickState.F


def invalid_reason(knowledge: KnowledgeRange) -> str | None:
    """Return why a range of a peer is invalid, or None if it is valid.

    >>> invalid_reason(KnowledgeRange(5, 4, 1, 0))
    'its ticks [5, 4] are no range'
    """
    low, high = knowledge.low, knowledge.high
    if not 0 <= low <= high:
        return f"its ticks [{low}, {high}] are no range"
    last = low - 1
    for publication in knowledge.publications:
        if publication.tick <= last:
            return f"its publication at {publication.tick} is out of order or below {low}"
        last = publication.tick
    return None if last <= high else f"its publication at {last} is above {high}"


# --- parts --------------------------------------------------------------------------------------


def publications_between(
    knowledge: KnowledgeRange, low: Tick, high: Tick
) -> tuple[Publication, ...]:
    """Return the publications of a range from ``low`` to ``high``."""
    publications = knowledge.publications
    if not publications or (low <= knowledge.low and knowledge.high <= high):
        return publications
    first = bisect_left(publications, low, key=tick_of)
    return publications[first : bisect_right(publications, high, first, key=tick_of)]


def cut(knowledge: KnowledgeRange, low: Tick, high: Tick) -> KnowledgeRange:
    """Return the part of a range between two ticks, which must overlap it."""
    if low <= knowledge.low and knowledge.high <= high:
        return knowledge
    low, high = max(low, knowledge.low), min(high, knowledge.high)
    assert low <= high, f"[{low}, {high}] is no part of the range"
    publications = publications_between(knowledge, low, high)
    return KnowledgeRange(
        low, high, knowledge.stream_epoch, knowledge.control_version, publications
    )


def split(knowledge: KnowledgeRange, tick: Tick) -> tuple[KnowledgeRange, KnowledgeRange]:
    """Return the part below a tick and the part from the tick on; neither may be empty."""
    return cut(knowledge, knowledge.low, tick - 1), cut(knowledge, tick, knowledge.high)


def divided(knowledge: KnowledgeRange, publications_max: int) -> list[KnowledgeRange]:
    """Split a range into ranges of at most ``publications_max`` publications, lowest first."""
    starts = [each.tick for each in knowledge.publications[publications_max::publications_max]]
    edges = [knowledge.low, *starts, knowledge.high + 1]
    return [cut(knowledge, low, beyond - 1) for low, beyond in pairwise(edges)]


def within(knowledge: KnowledgeRange, ranges: RangeSet) -> list[KnowledgeRange]:
    """Return the parts of a range that are in the range set, lowest first."""
    return [cut(knowledge, low, high) for low, high in ranges.within(knowledge.low, knowledge.high)]


def without(knowledge: KnowledgeRange, ranges: RangeSet) -> list[KnowledgeRange]:
    """Return the parts of a range that are not in the range set, lowest first."""
    return [cut(knowledge, low, high) for low, high in ranges.gaps(knowledge.low, knowledge.high)]


# --- joining ------------------------------------------------------------------------------------


def joinable(left: KnowledgeRange, right: KnowledgeRange) -> bool:
    """Return whether two ranges are contiguous and of one stream epoch and control version.

    The ticks of a range share their stream epoch. If silence of two epochs were joined, a
    subscription could start on ticks that were filtered without it.
    """
    return (
        left.high + 1 == right.low
        and left.stream_epoch == right.stream_epoch
        and left.control_version == right.control_version
    )


def join(left: KnowledgeRange, right: KnowledgeRange) -> KnowledgeRange:
    """Join two joinable ranges."""
    assert joinable(left, right), f"[…, {left.high}] and [{right.low}, …] cannot be joined"
    publications = left.publications + right.publications  # one of them alone is not copied
    return KnowledgeRange(
        left.low, right.high, left.stream_epoch, left.control_version, publications
    )


def joined(ranges: Iterable[KnowledgeRange], publications_max: int) -> list[KnowledgeRange]:
    """Join ranges into as few as possible with at most ``publications_max`` publications each.

    A range that has more is left as it is. Each publication is copied at most once.
    """
    result: list[KnowledgeRange] = []
    run: list[KnowledgeRange] = []
    count = 0
    for knowledge in ranges:
        more = len(knowledge.publications)
        if run and not (
            joinable(run[-1], knowledge) and (count + more <= publications_max or not more)
        ):
            result.append(_joined_run(run))
            run, count = [], 0
        run.append(knowledge)
        count += more
    if run:
        result.append(_joined_run(run))
    return result


def _joined_run(run: list[KnowledgeRange]) -> KnowledgeRange:
    """Join ranges that are known to be joinable."""
    first = run[0]
    if len(run) == 1:
        return first
    publications = [publication for knowledge in run for publication in knowledge.publications]
    return KnowledgeRange(
        first.low, run[-1].high, first.stream_epoch, first.control_version, tuple(publications)
    )


# --- filtering and merging ----------------------------------------------------------------------


def filtered(knowledge: KnowledgeRange, passes: Callable[[Publication], bool]) -> KnowledgeRange:
    """Return the filtered range: a D that does not pass becomes F (GD 2.4)."""
    publications = tuple(filter(passes, knowledge.publications))
    if len(publications) == len(knowledge.publications):
        return knowledge
    return KnowledgeRange(
        knowledge.low,
        knowledge.high,
        knowledge.stream_epoch,
        knowledge.control_version,
        publications,
    )


def overlaid(
    pubend: PubendId, known: KnowledgeRange, other: KnowledgeRange
) -> tuple[KnowledgeRange, list[Publication]]:
    """Return a known range with the D of an overlapping one, and the publications that were F.

    The known range keeps its ticks and its stream epoch. Stream epoch 0 agrees with every other: it
    claims the least, and the PHB gives it to ticks whose epoch it keeps no longer (R31). Raises
    :class:`KnowledgeConflictError` if both cannot be true.
    """
    low, high = max(known.low, other.low), min(known.high, other.high)
    numbers = {known.stream_epoch, other.stream_epoch} - {0}
    if len(numbers) > 1 or known.control_version != other.control_version:
        versions = f"{known.stream_epoch}/{known.control_version} and {other.stream_epoch}/{other.control_version}"
        raise KnowledgeConflictError(
            pubend, low, f"in two stream epochs or control versions, {versions}"
        )
    offered = publications_between(other, low, high)
    if not offered:
        return known, []
    present = {
        publication.tick: publication for publication in publications_between(known, low, high)
    }
    added = []
    for publication in offered:
        same = present.get(publication.tick)
        if same is None:
            added.append(publication)
        elif not _is_same(same, publication):
            who = f"{same.publisher}/{same.sequence} and {publication.publisher}/{publication.sequence}"
            raise KnowledgeConflictError(pubend, publication.tick, f"holds two publications, {who}")
    if not added:
        return known, []
    publications = tuple(sorted((*known.publications, *added), key=tick_of))
    richer = KnowledgeRange(
        known.low, known.high, known.stream_epoch, known.control_version, publications
    )
    return richer, added


def _is_same(one: Publication, other: Publication) -> bool:
    """Return whether two copies are of one publication; attributes may contain a NaN."""
    return one is other or (
        one.sequence == other.sequence
        and one.publisher == other.publisher
        and one.payload == other.payload
    )
