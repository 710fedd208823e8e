"""What may be known of a tick, and the operations on pieces of knowledge.

Theory of operation. GD 2.1 (figure 2) has six states of a tick; three are enough here::

    Q   nothing is known
    F   nothing is needed: there was no publication, or it does not concern those behind this cell
    D   a publication

They form a chain, Q < F < D, and what is known of a tick is the greatest of what was heard
(accumulation), until it is forgotten, which gives Q. How this maps to GD:

- S (silence) is F: GD lowers S to F as well, so nobody can tell them apart.
- D* (delivered everywhere) does not exist: that a publication is no longer needed is said of
  the pubend's log by a release, never of a tick. In GD a D that meets an F becomes D* and then F,
  because F may mean "acknowledged". Here F can only mean silence or a filter's verdict for some
  cell and regime, so D is the richer statement and wins.
- E (error) is :class:`KnowledgeConflictError`: two different publications at one tick, or one tick in
  two regimes or control versions. It stops the broker rather than choose one.

A piece says for all its ticks at once: these are D, all others F. All operations return pieces that
say the same or less; none changes its argument.
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
    """What is known of a tick; the greater statement wins."""

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
    """Return what the piece says of a tick."""
    if not knowledge.low <= tick <= knowledge.high:
        return TickState.Q
    return TickState.D if publications_between(knowledge, tick, tick) else TickState.F


def invalid_reason(knowledge: KnowledgeRange) -> str | None:
    """Return why this is no piece, or None; for what a peer has sent.

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
    """Return the publications of a piece from ``low`` to ``high``."""
    publications = knowledge.publications
    if not publications or (low <= knowledge.low and knowledge.high <= high):
        return publications
    first = bisect_left(publications, low, key=tick_of)
    return publications[first : bisect_right(publications, high, first, key=tick_of)]


def cut(knowledge: KnowledgeRange, low: Tick, high: Tick) -> KnowledgeRange:
    """Return the part of a piece between two ticks, which must overlap it."""
    if low <= knowledge.low and knowledge.high <= high:
        return knowledge
    low, high = max(low, knowledge.low), min(high, knowledge.high)
    assert low <= high, f"[{low}, {high}] is no part of a piece"
    publications = publications_between(knowledge, low, high)
    return KnowledgeRange(
        low, high, knowledge.stream_epoch, knowledge.control_version, publications
    )


def split(knowledge: KnowledgeRange, tick: Tick) -> tuple[KnowledgeRange, KnowledgeRange]:
    """Return the part below a tick, and the part from it on; neither may be empty."""
    return cut(knowledge, knowledge.low, tick - 1), cut(knowledge, tick, knowledge.high)


def divided(knowledge: KnowledgeRange, publications_max: int) -> list[KnowledgeRange]:
    """Return a piece as several, lowest first, with at most so many publications each."""
    starts = [each.tick for each in knowledge.publications[publications_max::publications_max]]
    edges = [knowledge.low, *starts, knowledge.high + 1]
    return [cut(knowledge, low, beyond - 1) for low, beyond in pairwise(edges)]


def within(knowledge: KnowledgeRange, ranges: RangeSet) -> list[KnowledgeRange]:
    """Return the parts of a piece that lie in the ranges, lowest first."""
    return [cut(knowledge, low, high) for low, high in ranges.within(knowledge.low, knowledge.high)]


def without(knowledge: KnowledgeRange, ranges: RangeSet) -> list[KnowledgeRange]:
    """Return the parts of a piece that lie outside the ranges, lowest first."""
    return [cut(knowledge, low, high) for low, high in ranges.gaps(knowledge.low, knowledge.high)]


# --- wholes -------------------------------------------------------------------------------------


def joinable(left: KnowledgeRange, right: KnowledgeRange) -> bool:
    """Whether two pieces can be said as one: contiguous, of one regime and control version.

    The ticks of a piece share their regime. Joined silences of two regimes would let a
    subscription start on ticks that were filtered before anybody knew of it.
    """
    return (
        left.high + 1 == right.low
        and left.stream_epoch == right.stream_epoch
        and left.control_version == right.control_version
    )


def join(left: KnowledgeRange, right: KnowledgeRange) -> KnowledgeRange:
    """Return two joinable pieces as one."""
    assert joinable(left, right), f"[…, {left.high}] and [{right.low}, …] cannot be joined"
    publications = left.publications + right.publications  # one of them alone is not copied
    return KnowledgeRange(
        left.low, right.high, left.stream_epoch, left.control_version, publications
    )


def joined(ranges: Iterable[KnowledgeRange], publications_max: int) -> list[KnowledgeRange]:
    """Return pieces, lowest first, as few as can be with at most so many publications each.

    A piece that has more from the start is left as it is. Each publication is copied once, however
    many pieces become one.
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
    """Return pieces that are known to be joinable as one."""
    first = run[0]
    if len(run) == 1:
        return first
    publications = [publication for knowledge in run for publication in knowledge.publications]
    return KnowledgeRange(
        first.low, run[-1].high, first.stream_epoch, first.control_version, tuple(publications)
    )


# --- other contents -----------------------------------------------------------------------------


def filtered(knowledge: KnowledgeRange, passes: Callable[[Publication], bool]) -> KnowledgeRange:
    """Return the piece behind a filter edge: a D that does not pass becomes F (GD 2.4)."""
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
    """Return a known piece with the D of an overlapping one, and those that were F before.

    The known piece keeps its range. Raises :class:`KnowledgeConflictError` where both cannot be true.
    """
    low, high = max(known.low, other.low), min(known.high, other.high)
    if known.stream_epoch != other.stream_epoch or known.control_version != other.control_version:
        versions = f"{known.stream_epoch}/{known.control_version} and {other.stream_epoch}/{other.control_version}"
        raise KnowledgeConflictError(pubend, low, f"in two regimes or control versions, {versions}")
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
    """Whether two copies are of one publication; attributes may hold a NaN, equal to nothing."""
    return one is other or (
        one.sequence == other.sequence
        and one.publisher == other.publisher
        and one.payload == other.payload
    )
