"""Read replies of a pubend: exact, no silence for released ticks, log holds on disk first."""

from __future__ import annotations

import random

import msgspec
import pytest

from gapless.content.filter import Filter
from gapless.content.values import Value
from gapless.core.effects import Fetch, Write
from gapless.core.events import Fetched
from gapless.core.ids import MembershipId, ShbId, VectorEntry, VirtualTime
from gapless.core.parameters import Parameters
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import LogHoldId, Read, ReadReply
from gapless.messages.records import (
    LogHoldRecord,
    LogRow,
    MemberRecord,
    PubendRecord,
    StreamEpochRecord,
)
from gapless.messages.streams import KnowledgeRange, Publication, ReadForm
from gapless.packed.encode import content_bytes
from gapless.packed.pick import packed, unpack, unpack_ticks
from gapless.pubend import serving as serving_module
from gapless.pubend.serving import PubendRequestHandler
from gapless.stream.ranges import invalid_reason
from tests.pubend.small_disk import PARAMETERS, STOCKS, Bench

HOST = ShbId("s", "s")
LOG_HOLD = LogHoldId(HOST, "mine")
PLENTY = 1_000_000
KEEP_ALL = Parameters()
"""The retention time is an hour, longer than any test."""


class PubendHarness(Bench):
    """A bench whose test decides when reads complete."""

    def __init__(self, parameters: Parameters = KEEP_ALL) -> None:
        super().__init__(parameters)

    def start(self) -> None:
        self.fetches: list[Fetch] = []
        self.corrupt: set[Tick] = set()
        self.answers: list[ReadReply] = []
        super().start()
        self.serving = PubendRequestHandler(self.context, self.pubend)

    def collect(self) -> None:
        self.fetches += [each for each in self.context.effects if isinstance(each, Fetch)]
        self.writes += [each for each in self.context.effects if isinstance(each, Write)]
        self.context.effects.clear()

    def read(
        self,
        low: Tick,
        high: Tick,
        text: str = "TRUE",
        *,
        log_hold: LogHoldId | None = None,
        bytes_max: int = PLENTY,
        log_hold_tick: Tick | None = None,
        form: ReadForm = ReadForm.EVENTS,
        requester: str = "s",
    ) -> None:
        """Send a read; the reply is added to ``answers``."""
        above = low - 1 if log_hold_tick is None else log_hold_tick
        route = ("b", "c")
        request = Read(
            STOCKS, 7, requester, route, text, low, high, log_hold, bytes_max, above, None, form
        )
        self.serving.read(request, self.answers.append)
        self.collect()

    def answer(
        self,
        low: Tick,
        high: Tick,
        text: str = "TRUE",
        bytes_max: int = PLENTY,
        form: ReadForm = ReadForm.EVENTS,
        requester: str = "s",
    ) -> ReadReply:
        """Send a read and let the disk complete it."""
        self.read(low, high, text, bytes_max=bytes_max, form=form, requester=requester)
        self.look()
        return self.answers.pop()

    def look(self) -> None:
        """Let the disk answer the reads from its present state."""
        while self.fetches:
            fetch = self.fetches.pop(0)
            fetched = self._fetched(fetch)
            if fetch.packed:
                fetched = msgspec.structs.replace(fetched, rows=tuple(map(packed, fetched.rows)))
            self.context.resume(fetched)
            self.collect()

    def _fetched(self, fetch: Fetch) -> Fetched:
        found: list[LogRow] = []
        size = 0
        for row in self.rows:
            if row.last < fetch.low or row.first > fetch.high:
                continue
            if row.first in self.corrupt:
                return Fetched(fetch.fetch_id, tuple(found), f"row {row.first} is corrupt")
            size += 40 * len(row.publications)
            if found and size > fetch.bytes_max:
                return Fetched(fetch.fetch_id, tuple(found), None, complete=False)
            found.append(row)
        return Fetched(fetch.fetch_id, tuple(found))

    def log_holds(self) -> dict[LogHoldId, Tick]:
        """Return the log holds on disk."""
        found = [each for each in self.records.values() if isinstance(each, LogHoldRecord)]
        return {each.log_hold: each.tick for each in found}

    def fill(self, *values: int) -> list[Tick]:
        """Publish events, a batch each, some milliseconds apart; return their ticks."""
        session = self.open()
        ticks = []
        for sequence, value in enumerate(values, session.last_sequence + 1):
            answers = self.publish(session, sequence, value)
            self.sync()
            ticks.append(answers[0][0])
            self.run(ms=7)
        self.run(ms=300)
        return ticks

    def add_member(self) -> None:
        """Add a member for which the log is retained from now on."""
        self.claim("s", 1)
        self.report("s")
        self.run(ms=100)

    def release(self, up_to: Tick) -> None:
        """Let the member acknowledge, so that the pubend releases and trims its log."""
        self.report("s", up_to)
        self.run(ms=2_000)
        assert self.pubend.record.released == up_to


def ticks_of(reply: ReadReply) -> list[Tick]:
    return [each.tick for knowledge in reply.ranges for each in knowledge.publications]


def check_form(reply: ReadReply, low: Tick, high: Tick) -> None:
    """Check that the ranges of a reply are contiguous from above the released ticks up to done."""
    expected = max(low, reply.released + 1)
    for knowledge in reply.ranges:
        assert invalid_reason(knowledge) is None
        assert knowledge.low == expected
        expected = knowledge.high + 1
    if reply.ranges:
        assert reply.done == expected - 1 <= min(high, reply.top)
    if reply.released >= low:
        assert reply.done >= reply.released


# --- reads ----------------------------------------------------------------------------------------


def test_a_reply_is_exact_for_its_filter_and_has_the_reply_route() -> None:
    # R48
    harness = PubendHarness()
    ticks = harness.fill(1, 2, 3, 4)
    reply = harness.answer(ticks[0], ticks[3] + 5, "a <> 2")
    assert ticks_of(reply) == [ticks[0], *ticks[2:]]
    assert (reply.request, reply.route) == (7, ("s", "b", "c"))
    assert reply.done == ticks[3] + 5
    assert (reply.top, reply.released) == (harness.pubend.top, 0)
    check_form(reply, ticks[0], ticks[3] + 5)


def test_ranges_are_split_at_stream_epochs_even_without_matching_events() -> None:
    # R31, I7: every range shows its stream epoch
    harness = PubendHarness()
    harness.run(ms=300)
    session = harness.open()
    harness.report("s")
    for counter in range(1, 5):
        harness.claim("s", counter)
        harness.run(ms=50)
        harness.publish(session, counter, counter)
        harness.run(ms=50)
    sent = {
        tick: knowledge.stream_epoch
        for knowledge in harness.sent
        for tick in (knowledge.low, knowledge.high)
    }
    assert len(harness.opened) == 4
    for text in ("TRUE", "FALSE", "a = 3"):
        reply = harness.answer(1, harness.pubend.top, text)
        check_form(reply, 1, harness.pubend.top)
        assert [knowledge.low for knowledge in reply.ranges][1:] == [
            each.start for each in harness.opened
        ]
        assert [knowledge.stream_epoch for knowledge in reply.ranges] == [0, 1, 2, 3, 4]
        for knowledge in reply.ranges:
            inside = {sent[tick] for tick in sent if knowledge.low <= tick <= knowledge.high}
            assert inside == {knowledge.stream_epoch}


def test_a_reply_contains_no_ticks_above_the_top() -> None:
    harness = PubendHarness()
    harness.fill(1)
    top = harness.pubend.top
    reply = harness.answer(top - 1, top + 1_000)
    assert reply.done == top
    for low in (top + 1, top + 50):
        reply = harness.answer(low, top + 1_000)
        assert (reply.ranges, reply.done, reply.top) == ((), low - 1, top)
    assert harness.fetches == []


def test_a_read_of_an_empty_range_is_answered_without_ticks() -> None:
    # so a log hold can be refreshed without reading (R49)
    harness = PubendHarness()
    harness.fill(1)
    for high in (49, 40):
        reply = harness.answer(50, high)
        assert (reply.ranges, reply.done) == ((), high)


def test_an_event_that_is_not_on_disk_is_not_read() -> None:
    # I2
    harness = PubendHarness()
    session = harness.open()
    harness.publish(session, 1, 1)
    reply = harness.answer(1, harness.pubend.last)
    assert ticks_of(reply) == []
    assert reply.done == harness.pubend.top < harness.pubend.last


def test_the_limit_of_bytes_ends_a_reply_before_the_next_publication() -> None:
    harness = PubendHarness()
    ticks = harness.fill(1, 2, 3, 4)
    one = content_bytes(KnowledgeRange(0, 0, 0, 0, harness.rows[0].publications))
    for bytes_max, count in [(-5, 1), (0, 1), (one - 1, 1), (one, 2), (2 * one, 3), (9 * one, 4)]:
        reply = harness.answer(ticks[0], ticks[3] + 5, bytes_max=bytes_max)
        assert ticks_of(reply) == ticks[:count]
        assert reply.done == [*ticks, ticks[3] + 6][count] - 1
        check_form(reply, ticks[0], ticks[3] + 5)
    # events that do not match do not count
    reply = harness.answer(ticks[0], ticks[3], "a = 4", bytes_max=1)
    assert ticks_of(reply) == [ticks[3]]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_reply_has_no_more_events_than_a_frame_may_have(most: int) -> None:
    # P7: frame_events_max
    harness = PubendHarness(Parameters(frame_events_max=most))
    ticks = harness.fill(1, 2, 3, 4)
    reply = harness.answer(ticks[0], ticks[3] + 5)
    assert ticks_of(reply) == ticks[:most]
    assert reply.done == ticks[most] - 1
    check_form(reply, ticks[0], ticks[3] + 5)
    # events that do not match do not count
    assert ticks_of(harness.answer(ticks[0], ticks[3], "a = 4")) == [ticks[3]]


def test_a_reply_ends_with_the_chunk_that_was_read_from_disk() -> None:
    harness = PubendHarness(Parameters(read_chunk_bytes=100))
    ticks = harness.fill(1, 2, 3, 4, 5)
    position, found = ticks[0] - 1, []
    for _ in range(3):
        reply = harness.answer(position + 1, ticks[4], "a <> 3")
        check_form(reply, position + 1, ticks[4])
        position = reply.done
        found += ticks_of(reply)
    assert position == ticks[4]
    assert found == [*ticks[:2], *ticks[3:]]


def test_very_many_stream_epochs_do_not_make_a_very_large_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving_module, "READ_RANGES_MAX", 3)
    harness = PubendHarness()
    harness.run(ms=300)
    harness.report("s")
    for counter in range(1, 8):
        harness.claim("s", counter)
        harness.run(ms=50)
    reply = harness.answer(1, harness.pubend.top)
    assert len(reply.ranges) == 3
    assert reply.done == reply.ranges[-1].high == harness.opened[2].start - 1
    check_form(reply, 1, harness.pubend.top)


def test_a_read_with_an_invalid_filter_is_dropped() -> None:
    harness = PubendHarness()
    harness.read(1, 5, "a >")
    harness.sync()
    assert (harness.answers, harness.fetches) == ([], [])
    assert harness.context.coverage_marks["read with a bad filter"] == 1


def test_only_the_most_recent_filters_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "READ_FILTERS_KEPT", 3)
    harness = PubendHarness()
    for text in ("a = 1", "a = 2", "a = 3", "a = 1", "a = 4"):
        harness.answer(1, 5, text)
    assert list(harness.serving._filters) == ["a = 3", "a = 1", "a = 4"]


def test_too_many_reads_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "READS_MAX", 2)
    harness = PubendHarness()
    harness.fill(1)
    for _ in range(3):
        harness.read(1, harness.pubend.top)
    harness.look()
    assert len(harness.answers) == 2
    assert harness.context.coverage_marks["read refused"] == 1
    harness.answer(1, harness.pubend.top)  # below the limit again


# --- released ticks -------------------------------------------------------------------------------


def test_released_ticks_are_answered_as_released_and_never_as_silence() -> None:
    # A14, R56
    harness = PubendHarness(PARAMETERS)
    harness.add_member()
    ticks = harness.fill(1, 2, 3, 4)
    harness.release(ticks[1])
    reply = harness.answer(ticks[0], ticks[3])
    assert reply.released == ticks[1]
    assert reply.ranges[0].low == ticks[1] + 1
    assert ticks_of(reply) == ticks[2:]
    check_form(reply, ticks[0], ticks[3])
    reply = harness.answer(ticks[0], ticks[0] + 1)  # all of it is released
    assert (reply.ranges, reply.done, reply.released) == ((), ticks[1], ticks[1])


@pytest.mark.parametrize("index", [0, 1, 2, 3])
def test_a_release_before_the_fetch_completes_causes_no_silence(index: int) -> None:
    # A14: the rows are trimmed between the request and the read
    harness = PubendHarness(PARAMETERS)
    harness.add_member()
    ticks = harness.fill(1, 2, 3, 4)
    high = ticks[2] + 1
    harness.read(ticks[0], high)
    harness.release(ticks[index])
    assert all(row.last > ticks[index] for row in harness.rows)
    harness.look()
    (reply,) = harness.answers
    check_form(reply, ticks[0], high)
    assert reply.released == ticks[index]
    assert ticks_of(reply) == [tick for tick in ticks[:3] if tick > ticks[index]]


def test_a_release_inside_a_stream_epoch_does_not_change_the_epoch_of_the_rest() -> None:
    # R31: the stream epoch of a tick never changes
    harness = PubendHarness(PARAMETERS)
    harness.add_member()
    ticks = harness.fill(1, 2, 3)
    harness.read(ticks[0], ticks[2])
    harness.release(ticks[0])
    harness.look()
    (reply,) = harness.answers
    assert reply.released == ticks[0]
    assert [(knowledge.low, knowledge.stream_epoch) for knowledge in reply.ranges] == [
        (ticks[0] + 1, 1)
    ]


def test_a_chunk_below_the_ticks_released_meanwhile_is_answered_as_released() -> None:
    harness = PubendHarness(Parameters(retention_s=0, read_chunk_bytes=1))
    harness.add_member()
    ticks = harness.fill(1, 2, 3, 4)
    harness.read(ticks[0], ticks[3])
    fetched = harness._fetched(harness.fetches.pop())  # read before it was trimmed, delivered after
    harness.release(ticks[2])
    harness.context.resume(fetched)
    (reply,) = harness.answers
    assert (reply.ranges, reply.done, reply.released) == ((), ticks[2], ticks[2])


# --- corrupt rows ---------------------------------------------------------------------------------


def test_a_reply_ends_before_a_corrupt_row() -> None:
    # P8
    harness = PubendHarness()
    ticks = harness.fill(1, 2, 3)
    harness.corrupt.add(ticks[2])
    reply = harness.answer(ticks[0], ticks[2] + 5)
    assert ticks_of(reply) == ticks[:2]
    assert ticks[1] <= reply.done < ticks[2]
    check_form(reply, ticks[0], ticks[2] + 5)


def test_the_reply_for_a_corrupt_row_contains_the_reason() -> None:
    # P8: the requester learns the reason
    harness = PubendHarness()
    ticks = harness.fill(1, 2)
    harness.corrupt.add(ticks[0])
    harness.read(ticks[0], ticks[1])
    harness.look()
    (fault,) = harness.answers
    assert fault.fault == harness.pubend.corruption == f"row {ticks[0]} is corrupt"
    assert fault.ranges == ()
    assert fault.done < ticks[0]
    harness.answers.clear()
    reply = harness.answer(ticks[1], ticks[1])  # the rows above can still be read
    assert ticks_of(reply) == [ticks[1]]


# --- log holds ------------------------------------------------------------------------------------


def test_a_log_hold_is_on_disk_before_the_reply() -> None:
    # R49, I13
    harness = PubendHarness()
    ticks = harness.fill(1, 2)
    harness.read(ticks[1], ticks[1], log_hold=LOG_HOLD)
    assert harness.fetches == []
    harness.look()
    assert harness.answers == []
    harness.sync()
    assert harness.log_holds() == {LOG_HOLD: ticks[1] - 1}
    harness.look()
    assert ticks_of(harness.answers[0]) == [ticks[1]]


def test_a_log_hold_retains_the_log_above_its_tick_after_a_restart() -> None:
    # R49, R56
    harness = PubendHarness(PARAMETERS)
    ticks = harness.fill(1, 2, 3)
    harness.read(ticks[1], ticks[1], log_hold=LOG_HOLD)
    harness.sync()
    harness.run(ms=3_000)
    assert harness.pubend.record.released == ticks[1] - 1
    harness.start()
    harness.run(ms=3_000)
    assert ticks_of(harness.answer(ticks[1], ticks[2])) == ticks[1:]


def test_a_log_hold_may_be_below_the_read_range() -> None:
    # R49: it follows the acknowledged tick, not the read position
    harness = PubendHarness()
    ticks = harness.fill(1, 2)
    harness.read(ticks[1], ticks[1], log_hold=LOG_HOLD, log_hold_tick=ticks[0] - 1)
    harness.sync()
    assert harness.log_holds() == {LOG_HOLD: ticks[0] - 1}


def test_later_reads_raise_a_log_hold_and_only_a_change_is_written() -> None:
    # R49: a log hold only moves up
    harness = PubendHarness()
    ticks = harness.fill(1, 2, 3)
    written = []
    for tick in (ticks[0], ticks[0], ticks[2], ticks[1]):
        harness.read(tick, ticks[2], log_hold=LOG_HOLD)
        (write,) = harness.writes
        written.append(len(write.changes))
        harness.sync()
        harness.look()
    assert written == [1, 0, 1, 0]
    assert harness.log_holds() == {LOG_HOLD: ticks[2] - 1}
    assert len(harness.answers) == 4


def test_a_repeated_read_waits_for_the_write_of_the_first() -> None:
    harness = PubendHarness()
    ticks = harness.fill(1)
    harness.read(ticks[0], ticks[0], log_hold=LOG_HOLD)
    harness.read(ticks[0], ticks[0], log_hold=LOG_HOLD)
    harness.look()
    assert harness.answers == []
    harness.sync()
    harness.look()
    assert len(harness.answers) == 2


def test_a_log_hold_at_tick_zero_is_stored() -> None:
    harness = PubendHarness()
    harness.read(0, 5, log_hold=LOG_HOLD)
    harness.sync()
    assert harness.log_holds() == {LOG_HOLD: 0}


def test_the_reply_shows_a_release_that_was_pending_when_the_log_hold_arrived() -> None:
    # R49: the hold is too late for ticks released before it, and the reply shows that
    harness = PubendHarness(PARAMETERS)
    ticks = harness.fill(1, 2)
    harness.run(ms=2_000, sync=False)  # the release waits for the disk
    released = harness.pubend._latest.released
    assert released >= ticks[1] > harness.pubend.record.released
    harness.read(ticks[0], ticks[1], log_hold=LOG_HOLD)
    harness.sync()
    harness.look()
    (reply,) = harness.answers
    assert (reply.ranges, reply.released) == ((), released)


def test_a_released_log_hold_is_deleted_on_disk_before_the_reply() -> None:
    # R49
    harness = PubendHarness()
    harness.read(50, 60, log_hold=LOG_HOLD)
    harness.sync()
    done: list[bool] = []
    harness.serving.release_log_hold(LOG_HOLD, lambda: done.append(True))
    assert done == []
    assert harness.pubend.members.ack_floor() is None
    harness.sync()
    assert done == [True]
    assert harness.log_holds() == {}
    harness.serving.release_log_hold(LOG_HOLD, lambda: done.append(True))
    harness.sync()
    assert done == [True, True]


def test_a_late_read_does_not_restore_a_released_log_hold() -> None:
    # it would never be released again, and the log would be retained for ever
    harness = PubendHarness()
    harness.serving.release_log_hold(LOG_HOLD, lambda: None)
    harness.sync()
    harness.read(50, 60, log_hold=LOG_HOLD)
    harness.sync()
    assert harness.log_holds() == {}
    assert harness.answers == []
    assert harness.context.coverage_marks["read after its log hold was released"] == 1
    harness.run(ms=PARAMETERS.ended_membership_ttl_s * 1_000 + 1)
    harness.read(50, 60)
    assert harness.serving._released_log_holds == {}


# --- memberships ----------------------------------------------------------------------------------


def test_an_ended_membership_is_deleted_on_disk_before_the_reply() -> None:
    # R55
    harness = PubendHarness()
    harness.add_member()
    done: list[str] = []
    harness.serving.leave(HOST, MembershipId(1, 1), lambda: done.append("first"))
    harness.serving.leave(HOST, MembershipId(1, 1), lambda: done.append("again"))
    assert done == []  # the repeat also waits for the write of the first
    harness.sync()
    assert done == ["first", "again"]
    assert not any(isinstance(each, MemberRecord) for each in harness.records.values())
    harness.run(ms=100)
    assert harness.opened[-1].entries == ()


def test_the_end_of_an_earlier_membership_does_not_end_a_later_one() -> None:
    # R55
    harness = PubendHarness()
    harness.claim("s", 1)
    harness.report("s", membership=2)
    harness.run(ms=100)
    done: list[bool] = []
    harness.serving.leave(HOST, MembershipId(1, 1), lambda: done.append(True))
    harness.sync()
    assert done == [True]
    assert harness.pubend.members.row(HOST) is not None


# --- against brute force ------------------------------------------------------------------------

FILTERS = ("TRUE", "FALSE", "a > 4", "a = 1 OR a = 8", "b = 'x'", "a BETWEEN 2 AND 6 AND b <> 'x'")


def random_harness(rng: random.Random) -> PubendHarness:
    """Return a pubend with random rows, some stream epochs, and a partly released log."""
    chunk = rng.choice((1, 100, 300, PLENTY))
    harness = PubendHarness(Parameters(read_chunk_bytes=chunk))
    tick = sequence = 0
    while tick < 120:
        tick += rng.randint(1, 12)
        publications = []
        for _ in range(rng.randint(1, 4)):
            sequence += 1
            attributes: dict[str, Value] = {"a": rng.randint(0, 9), "b": rng.choice("xyz")}
            publications.append(Publication(tick, "ann", sequence, attributes, b"-" * (tick % 5)))
            tick += rng.randint(1, 3)
        last = publications[-1].tick
        row = LogRow(STOCKS, publications[0].tick, last, 0, 0, 0, 0, tuple(publications))
        harness.rows.append(row)
    for key, record in harness.records.items():
        assert isinstance(record, PubendRecord)
        harness.records[key] = PubendRecord(
            STOCKS, record.properties, 1, tick + 9, rng.choice((0, rng.randint(0, 60)))
        )
    start = 0
    for number in range(1, rng.randint(1, 6)):
        start += rng.randint(1, 30)
        stream_epoch = StreamEpochRecord(
            STOCKS, number, start, 1, ((HOST, VectorEntry(VirtualTime(1, number))),)
        )
        harness.records[stream_epoch.key] = stream_epoch
    harness.start()
    return harness


def trim(harness: PubendHarness, up_to: Tick) -> None:
    """Release and trim at once."""
    pubend = harness.pubend
    up_to = max(up_to, pubend.record.released)
    pubend._record = msgspec.structs.replace(pubend._record, released=up_to)
    harness.rows = [row for row in harness.rows if row.last > up_to]


def check_exact(
    reply: ReadReply, harness: PubendHarness, log: list[LogRow], text: str, low: Tick
) -> None:
    """Compare every tick of a reply with the log as it was before it was trimmed."""
    wanted = Filter(text)
    expected = {
        each.tick: each
        for row in log
        for each in row.publications
        if wanted.matches(each.attributes)
    }
    stream_epochs = {each.number: each for each in harness.pubend.stream_epochs}
    for knowledge in reply.ranges:
        assert knowledge.low > reply.released
        found = {each.tick: each for each in knowledge.publications}
        for tick in range(knowledge.low, knowledge.high + 1):
            assert found.get(tick) == expected.get(tick)
            opened = [
                number
                for number, stream_epoch in stream_epochs.items()
                if stream_epoch.start <= tick
            ]
            assert knowledge.stream_epoch == max(opened, default=0)
    assert reply.done >= low - 1


@pytest.mark.parametrize("seed", range(60))
def test_random_reads_are_exact_while_the_log_is_released(seed: int) -> None:
    # R48, A14: chunk by chunk to the end; ticks that are missing were released
    rng = random.Random(seed)
    harness = random_harness(rng)
    log = list(harness.rows)
    for _ in range(12):
        text = rng.choice(FILTERS)
        position, high = rng.randint(0, 100) - 1, rng.randint(0, 160)
        rounds = 0
        while position < min(high, harness.pubend.top):
            harness.read(position + 1, high, text, bytes_max=rng.choice((0, 5, 40, PLENTY)))
            if rng.random() < 0.1:
                trim(harness, rng.randint(0, 20 + 8 * rounds))
            harness.look()
            reply = harness.answers.pop()
            check_form(reply, position + 1, high)
            check_exact(reply, harness, log, text, position + 1)
            assert reply.done > position, "no progress"
            position = reply.done
            rounds += 1
        assert rounds <= 160


@pytest.mark.parametrize("seed", range(60))
def test_random_reads_in_every_form_are_exact_while_the_log_is_released(seed: int) -> None:
    # R48, A14: the same for packed events and for ticks only
    rng = random.Random(seed)
    harness = random_harness(rng)
    log = [each for row in harness.rows for each in row.publications]
    for turn in range(12):
        form = ReadForm.TICKS if turn % 2 else ReadForm.ROWS
        text = rng.choice(FILTERS)
        position, high = rng.randint(0, 100) - 1, rng.randint(0, 160)
        while position < min(high, harness.pubend.top):
            bytes_max, requester = rng.choice((0, 5, 40, PLENTY)), rng.choice(("s", "p"))
            harness.read(
                position + 1, high, text, bytes_max=bytes_max, form=form, requester=requester
            )
            if rng.random() < 0.1:
                trim(harness, rng.randint(0, position + 20))
            harness.look()
            reply = harness.answers.pop()
            low, done = max(position, reply.released), min(reply.done, high)
            expected = [each for each in log if low < each.tick <= done]
            expected = [each for each in expected if Filter(text).matches(each.attributes)]
            if form is ReadForm.TICKS:
                assert unpack_ticks(reply.rows) == [each.tick for each in expected]
            else:
                assert unpack(reply.rows) == expected
            assert reply.ranges == ()
            assert reply.done > position, "no progress"
            position = reply.done


def test_only_a_requester_at_this_broker_gets_more_than_a_chunk() -> None:
    # requests over a link share it with the streams
    harness = PubendHarness(Parameters(read_chunk_bytes=1, read_bytes_max=PLENTY))
    ticks = harness.fill(1, 2, 3)
    for form in (ReadForm.EVENTS, ReadForm.ROWS):
        far = harness.answer(1, ticks[2], form=form)
        near = harness.answer(1, ticks[2], form=form, requester="p")
        assert far.done < ticks[1]
        assert near.done == ticks[2]


def test_a_filter_that_searches_texts_gets_no_more_than_a_chunk() -> None:
    # all texts of a reply are searched in one step
    harness = PubendHarness(Parameters(read_chunk_bytes=1, read_bytes_max=PLENTY))
    ticks = harness.fill(1, 2, 3)
    for form in (ReadForm.EVENTS, ReadForm.ROWS):
        for text, is_searched in (("text LIKE '%x%'", True), ("text LIKE 'x%'", False)):
            reply = harness.answer(1, ticks[2], text, form=form, requester="p")
            assert (reply.done < ticks[1]) is is_searched


def test_the_bytes_of_a_reply_to_one_requester_are_bounded() -> None:
    # P7: read_bytes_max
    harness = PubendHarness(Parameters(read_chunk_bytes=1, read_bytes_max=100))
    ticks = harness.fill(*range(20))
    for form in (ReadForm.EVENTS, ReadForm.ROWS):
        reply = harness.answer(1, ticks[-1], form=form, requester="p", bytes_max=2**62)
        assert ticks[0] < reply.done < ticks[-1]


def test_the_reply_for_a_corrupt_row_contains_the_reason_in_every_form() -> None:
    # P8
    harness = PubendHarness()
    ticks = harness.fill(1, 2)
    harness.corrupt.add(ticks[1])
    for form in ReadForm:
        assert harness.answer(ticks[0], ticks[1], form=form).done == ticks[0]
        reply = harness.answer(ticks[1], ticks[1], form=form)
        assert (reply.done, reply.fault) == (ticks[1] - 1, f"row {ticks[1]} is corrupt")


@pytest.mark.parametrize("seed", range(20))
def test_reads_of_many_requesters_at_once_do_not_mix(seed: int) -> None:
    rng = random.Random(seed)
    harness = random_harness(rng)
    log = list(harness.rows)
    requested = []
    for _ in range(10):
        text, low = rng.choice(FILTERS), rng.randint(0, 80)
        found: list[ReadReply] = []
        log_hold = LOG_HOLD if rng.random() < 0.3 else None
        request = Read(STOCKS, 1, "s", (), text, low, low + rng.randint(0, 60), log_hold, 30, low)
        harness.serving.read(request, found.append)
        requested.append((request, found))
    harness.sync()
    rng.shuffle(harness.fetches)
    harness.look()
    for request, (reply,) in requested:
        check_form(reply, request.low, request.high)
        check_exact(reply, harness, log, request.filter, request.low)
