"""Requests to a pubend: reads of its log, log holds, end of a membership (R48, R49, R55).

A reply to a Read covers the ticks from ``low`` to ``done``. Those up to ``released`` are released,
all others are exact for the filter, D or F. Released ticks are never returned as silence (A14): the
ranges start above the released tick of the time when the rows were read.

A log hold is on disk before the reply (R49), because the requester relies on it from then on. A
copy of a Read may arrive after its hold was released. It would create a hold again that no one
releases. So released holds are remembered for a while. Their names are never used twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from gapless.content.filter import Filter
from gapless.core.context import Context
from gapless.core.errors import FilterError
from gapless.core.ids import MembershipId, ShbId
from gapless.core.limits import (
    COUNTED_TICKS_MAX,
    FORMER_HOSTS_PER_READ_MAX,
    READ_FILTERS_KEPT,
    READ_RANGES_MAX,
    READS_MAX,
    RELEASED_LOG_HOLDS_KEPT,
)
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import (
    CountEvents,
    EventCounts,
    LogHoldId,
    Read,
    ReadReply,
)
from gapless.messages.records import DeleteRecord, LogHoldRecord, PackedRow, PutRecord
from gapless.messages.streams import KnowledgeRange, Member, ReadForm
from gapless.packed.encode import content_bytes
from gapless.packed.pick import PackedFilter, packed_ticks
from gapless.pubend.event_numbers import CountedEvents
from gapless.pubend.known_hosts import KnownTimes
from gapless.pubend.pubend import Pubend
from gapless.requests.recorded_route import reply_route
from gapless.stream.ranges import cut, filtered

__all__ = ["PubendRequestHandler"]

_BELOW_ALL: Final = -1
"""Below every tick of a log hold."""


class PubendRequestHandler:
    """Handles the requests to one pubend of this broker."""

    def __init__(self, context: Context, pubend: Pubend) -> None:
        self._context = context
        self._pubend = pubend
        self._filters: dict[str, Filter] = {}
        """Parsed filters by their texts, the last used last."""
        self._packed_filters: dict[str, PackedFilter] = {}
        """By the same texts, for reads in packed forms."""
        self._reading = 0
        self._counting = 0
        self._released_log_holds: dict[LogHoldId, int] = {}
        """The time of release of each hold, the oldest first."""

    # --- log holds and memberships -----------------------------------------------------------

    def release_log_hold(self, log_hold: LogHoldId, then: Callable[[], None]) -> None:
        """Release a log hold; call back when that is on disk (R49)."""
        self._pubend.members.drop_log_hold(log_hold)
        self._forget_released()
        self._released_log_holds.pop(log_hold, None)
        self._released_log_holds[log_hold] = self._context.now
        # also if the hold is not known: an expired one may still be on disk
        key = LogHoldRecord(self._pubend.record.pubend, log_hold, 0, 0).key
        self._context.write((DeleteRecord(key),), then)

    def _forget_released(self) -> None:
        oldest = self._context.now - microseconds(s=self._context.parameters.ended_membership_ttl_s)
        while self._released_log_holds:
            log_hold = next(iter(self._released_log_holds))
            if (
                len(self._released_log_holds) < RELEASED_LOG_HOLDS_KEPT
                and self._released_log_holds[log_hold] >= oldest
            ):
                break
            del self._released_log_holds[log_hold]

    def leave(self, shb: ShbId, membership: MembershipId, then: Callable[[], None]) -> None:
        """End a membership; call back when that is on disk (R55)."""
        self._pubend.leave(shb, membership, then)

    def _hold_log(self, log_hold: LogHoldId, tick: Tick, then: Callable[[], None]) -> None:
        """Keep the log above a tick; call back when that is on disk (R49)."""
        members, now = self._pubend.members, self._context.now
        before = members.hold_log(log_hold, _BELOW_ALL, now).tick
        record = members.hold_log(log_hold, max(0, tick), now)
        # if nothing changes, the earlier write of the hold may still be pending
        self._context.write((PutRecord(record),) if record.tick > before else (), then)

    # --- counting ----------------------------------------------------------------------------

    def count(self, request: CountEvents, then: Callable[[EventCounts], None]) -> None:
        """Call back with the number of publications up to some ticks."""
        if self._counting >= READS_MAX:
            self._context.mark("count refused")
            return
        self._counting += 1

        def counted(found: CountedEvents) -> None:
            self._counting -= 1
            then(EventCounts(request.pubend, request.request, reply_route(request), *found))

        self._pubend.count_events(request.ticks[:COUNTED_TICKS_MAX], counted)

    # --- reading -----------------------------------------------------------------------------

    def read(self, request: Read, then: Callable[[ReadReply], None]) -> None:
        """Call back with the matching events, lowest first, up to the limits (R48).

        If not even the lowest tick can be read, the reply contains the fault (P8).
        """
        self._forget_released()
        read_filter = self._filter(request.filter)
        if read_filter is None:
            self._context.mark("read with a bad filter")
            return
        if self._reading >= READS_MAX:
            self._context.mark("read refused")
            return
        if request.log_hold in self._released_log_holds:
            self._context.mark("read after its log hold was released")
            return
        self._reading += 1
        if request.joining_member is not None:
            self._expect(request.joining_member, request, read_filter, then)
        elif request.log_hold is None:
            self._look(request, read_filter, then)
        else:
            self._hold_log(
                request.log_hold,
                request.log_hold_tick,
                lambda: self._look(request, read_filter, then),
            )

    def _expect(
        self,
        joining_member: Member,
        request: Read,
        read_filter: Filter,
        then: Callable[[ReadReply], None],
    ) -> None:
        """Keep the log for a joining SHB, then reply with its known times (R46)."""

        def member_expected(known: dict[ShbId, KnownTimes], retained_above: Tick) -> None:
            own = known.pop(joining_member.shb, ())
            others = tuple(known.items())
            self._look(
                request,
                read_filter,
                lambda reply: then(
                    replace(reply, known=own, retained_above=retained_above, others=others)
                ),
            )

        self._pubend.expect_member(
            joining_member, request.former_hosts[:FORMER_HOSTS_PER_READ_MAX], member_expected
        )

    def _look(self, request: Read, read_filter: Filter, then: Callable[[ReadReply], None]) -> None:
        pubend = self._pubend
        bytes_max = self._bytes_max(request, read_filter)
        is_empty = max(request.low, pubend.record.released + 1) > min(request.high, pubend.top)

        def answer(reply: ReadReply) -> None:
            self._reading -= 1
            if reply.done < request.low and not is_empty:
                self._context.mark("read made no progress")
                fault = pubend.corruption or "the log could not be read"
                reply = replace(reply, fault=fault)
            then(reply)

        def found(ranges: list[KnowledgeRange], done: Tick) -> None:
            matching, done = self._matching(read_filter, ranges, done, bytes_max)
            answer(self._reply(request, read_filter, done, ranges=tuple(matching)))

        def found_rows(rows: tuple[PackedRow, ...], low: Tick, done: Tick) -> None:
            picked = self._packed_filter(request.filter, read_filter).pick(
                rows, low, done, bytes_max
            )
            is_counted = request.form is ReadForm.TICKS
            packed = packed_ticks(picked.rows) if is_counted else picked.rows
            answer(self._reply(request, read_filter, picked.done, rows=packed))

        if request.form is ReadForm.EVENTS:
            pubend.ranges_between(request.low, request.high, found, bytes_max)
        else:
            pubend.rows_between(request.low, request.high, found_rows, bytes_max)

    def _bytes_max(self, request: Read, read_filter: Filter) -> int:
        """Return the limit of a reply in bytes: greater if the requester is this broker.

        It is less if the filter searches texts: all of them are searched in one step.
        """
        parameters = self._context.parameters
        is_here = request.requester == self._context.identity.broker
        is_large = is_here and not read_filter.searches
        most = parameters.read_bytes_max if is_large else parameters.read_chunk_bytes
        return max(0, min(request.bytes_max, max(most, parameters.read_chunk_bytes)))

    def _matching(
        self, read_filter: Filter, ranges: list[KnowledgeRange], done: Tick, bytes_max: int
    ) -> tuple[list[KnowledgeRange], Tick]:
        """Return the matching ranges and the tick up to which they are exact, at most ``done``."""
        exact = [
            filtered(knowledge, lambda publication: read_filter.matches(publication.attributes))
            for knowledge in ranges
        ]
        parameters = self._context.parameters
        chunks = max(1, bytes_max // max(1, parameters.read_chunk_bytes))
        matching = _bounded(exact, bytes_max, chunks * parameters.frame_events_max)
        if matching and matching[-1].high < exact[-1].high:
            done = matching[-1].high
        return matching, done

    def _reply(
        self,
        request: Read,
        read_filter: Filter,
        done: Tick,
        *,
        ranges: tuple[KnowledgeRange, ...] = (),
        rows: tuple[bytes, ...] = (),
    ) -> ReadReply:
        """Return the reply, which is exact up to ``done``."""
        released, last_released_match = (
            self._pubend.record.released,
            self._pubend.record.last_released_event,
        )
        if last_released_match >= request.low and request.joining_member is None:
            last_released_match = self._pubend.last_released_match(read_filter)
        done = min(max(done, request.low - 1), request.high)
        if released >= request.low:
            done = max(done, released)
        return ReadReply(
            request.pubend,
            request.request,
            reply_route(request),
            ranges,
            done,
            self._pubend.top,
            released,
            last_released_match,
            rows=rows,
        )

    def _packed_filter(self, text: str, read_filter: Filter) -> PackedFilter:
        """Return the packed filter of a text; as many are kept as parsed filters."""
        found = self._packed_filters.get(text)
        if found is None:
            self._packed_filters = {
                each: kept for each, kept in self._packed_filters.items() if each in self._filters
            }
            found = self._packed_filters[text] = PackedFilter(read_filter)
        return found

    def _filter(self, text: str) -> Filter | None:
        """Return the filter of a text, or None if the text is not a filter."""
        known = self._filters.pop(text, None)
        if known is None:
            try:
                known = Filter(text)
            except FilterError:
                return None
            if len(self._filters) >= READ_FILTERS_KEPT:
                del self._filters[next(iter(self._filters))]
        self._filters[text] = known
        return known


def _bounded(ranges: list[KnowledgeRange], bytes_max: int, events_max: int) -> list[KnowledgeRange]:
    """Return as many ranges as the limits allow, the last one cut.

    They end before the first publication that follows too many bytes or events. So they contain at
    least one publication, if there is any, and the silence after the last one.
    """
    taken: list[KnowledgeRange] = []
    size, remaining = 0, events_max
    for knowledge in ranges[:READ_RANGES_MAX]:
        whole = size + content_bytes(knowledge)
        left = remaining - len(knowledge.publications)
        if whole > bytes_max or left < 0:
            for publication in knowledge.publications:
                if size > bytes_max or not remaining:
                    if publication.tick > knowledge.low:
                        taken.append(cut(knowledge, knowledge.low, publication.tick - 1))
                    return taken
                size += content_bytes(KnowledgeRange(0, 0, 0, 0, (publication,)))
                remaining -= 1
        size, remaining = whole, left
        taken.append(knowledge)
    return taken
