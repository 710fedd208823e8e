"""A pubend that answers requests: exact, never silence for what is gone, holds on disk first."""

from __future__ import annotations

import random

import msgspec
import pytest

from gapless.content.filter import Filter
from gapless.content.values import Value
from gapless.core.ids import Entry, Join, ShbId, VirtualTime
from gapless.core.machine import Fetch, Fetched, Write
from gapless.core.parameters import Parameters
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import HoldId, Read, ReadReply
from gapless.messages.records import (
    HoldRecord,
    LogRow,
    MemberRecord,
    PubendRecord,
    RegimeRecord,
)
from gapless.messages.streams import Piece, Publication, ReadForm
from gapless.packed.encode import content_bytes
from gapless.packed.pick import packed, unpack, unpack_ticks
from gapless.pubend import serving as serving_module
from gapless.pubend.serving import Serving
from gapless.stream.ranges import fault_of
from tests.pubend.small_disk import PARAMETERS, STOCKS, Bench

HOST = ShbId("s", "s")
HOLD = HoldId(HOST, "mine")
PLENTY = 1_000_000
KEEP_ALL = Parameters()
"""The retention is an hour, and no test lasts so long."""


class Desk(Bench):
    """A bench whose disk can also be read, when the test says so."""

    def __init__(self, parameters: Parameters = KEEP_ALL) -> None:
        super().__init__(parameters)

    def start(self) -> None:
        self.fetches: list[Fetch] = []
        self.damaged: set[Tick] = set()
        self.answers: list[ReadReply] = []
        super().start()
        self.serving = Serving(self.context, self.pubend)

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
        hold: HoldId | None = None,
        bytes_max: int = PLENTY,
        hold_tick: Tick | None = None,
        form: ReadForm = ReadForm.EVENTS,
        asker: str = "s",
    ) -> None:
        """Ask; the answer comes into ``answers``."""
        above = low - 1 if hold_tick is None else hold_tick
        route = ("b", "c")
        request = Read(STOCKS, 7, asker, route, text, low, high, hold, bytes_max, above, None, form)
        self.serving.read(request, self.answers.append)
        self.collect()

    def answer(
        self,
        low: Tick,
        high: Tick,
        text: str = "TRUE",
        bytes_max: int = PLENTY,
        form: ReadForm = ReadForm.EVENTS,
        asker: str = "s",
    ) -> ReadReply:
        """Read and let the disk do its work."""
        self.read(low, high, text, bytes_max=bytes_max, form=form, asker=asker)
        self.look()
        return self.answers.pop()

    def look(self) -> None:
        """Let the disk answer what it was asked to read, as it is now."""
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
            if row.first in self.damaged:
                return Fetched(fetch.ticket, tuple(found), f"row {row.first} is damaged")
            size += 40 * len(row.publications)
            if found and size > fetch.bytes_max:
                return Fetched(fetch.ticket, tuple(found), None, complete=False)
            found.append(row)
        return Fetched(fetch.ticket, tuple(found))

    def holds(self) -> dict[HoldId, Tick]:
        """Return the holds on disk."""
        found = [each for each in self.records.values() if isinstance(each, HoldRecord)]
        return {each.hold: each.tick for each in found}

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

    def join(self) -> None:
        """Let a member come, for whom the log is kept from now on."""
        self.claim("s", 1)
        self.report("s")
        self.run(ms=100)

    def release(self, up_to: Tick) -> None:
        """Let the member acknowledge, so that the pubend releases its log and trims it."""
        self.report("s", up_to)
        self.run(ms=2_000)
        assert self.pubend.record.released == up_to


def ticks_of(reply: ReadReply) -> list[Tick]:
    return [each.tick for piece in reply.pieces for each in piece.publications]


def check_form(reply: ReadReply, low: Tick, high: Tick) -> None:
    """Check what holds of every answer: pieces without hole from above what is gone to done."""
    expected = max(low, reply.released + 1)
    for piece in reply.pieces:
        assert fault_of(piece) is None
        assert piece.low == expected
        expected = piece.high + 1
    if reply.pieces:
        assert reply.done == expected - 1 <= min(high, reply.top)
    if reply.released >= low:
        assert reply.done >= reply.released


# --- what is read -------------------------------------------------------------------------------


def test_an_answer_is_exact_for_its_filter_and_knows_its_way_back() -> None:
    # R48
    desk = Desk()
    ticks = desk.fill(1, 2, 3, 4)
    reply = desk.answer(ticks[0], ticks[3] + 5, "a <> 2")
    assert ticks_of(reply) == [ticks[0], *ticks[2:]]
    assert (reply.request, reply.route) == (7, ("s", "b", "c"))
    assert reply.done == ticks[3] + 5
    assert (reply.top, reply.released) == (desk.pubend.top, 0)
    check_form(reply, ticks[0], ticks[3] + 5)


def test_pieces_are_cut_where_regimes_begin_also_where_the_filter_leaves_nothing() -> None:
    # R31, I7: a start point can be read off any piece
    desk = Desk()
    desk.run(ms=300)
    session = desk.open()
    desk.report("s")
    for counter in range(1, 5):
        desk.claim("s", counter)
        desk.run(ms=50)
        desk.publish(session, counter, counter)
        desk.run(ms=50)
    told = {tick: piece.regime for piece in desk.told for tick in (piece.low, piece.high)}
    assert len(desk.opened) == 4
    for text in ("TRUE", "FALSE", "a = 3"):
        reply = desk.answer(1, desk.pubend.top, text)
        check_form(reply, 1, desk.pubend.top)
        assert [piece.low for piece in reply.pieces][1:] == [each.start for each in desk.opened]
        assert [piece.regime for piece in reply.pieces] == [0, 1, 2, 3, 4]
        for piece in reply.pieces:
            inside = {told[tick] for tick in told if piece.low <= tick <= piece.high}
            assert inside == {piece.regime}


def test_nothing_is_claimed_above_the_top() -> None:
    desk = Desk()
    desk.fill(1)
    top = desk.pubend.top
    reply = desk.answer(top - 1, top + 1_000)
    assert reply.done == top
    for low in (top + 1, top + 50):
        reply = desk.answer(low, top + 1_000)
        assert (reply.pieces, reply.done, reply.top) == ((), low - 1, top)
    assert desk.fetches == []


def test_a_range_without_ticks_is_answered_with_none() -> None:
    # so a hold can be refreshed without reading (R49)
    desk = Desk()
    desk.fill(1)
    for high in (49, 40):
        reply = desk.answer(50, high)
        assert (reply.pieces, reply.done) == ((), high)


def test_an_event_that_waits_for_the_disk_is_not_read() -> None:
    # I2
    desk = Desk()
    session = desk.open()
    desk.publish(session, 1, 1)
    reply = desk.answer(1, desk.pubend.last)
    assert ticks_of(reply) == []
    assert reply.done == desk.pubend.top < desk.pubend.last


def test_a_limit_of_bytes_ends_the_answer_before_the_next_publication() -> None:
    desk = Desk()
    ticks = desk.fill(1, 2, 3, 4)
    one = content_bytes(Piece(0, 0, 0, 0, desk.rows[0].publications))
    for bytes_max, count in [(-5, 1), (0, 1), (one - 1, 1), (one, 2), (2 * one, 3), (9 * one, 4)]:
        reply = desk.answer(ticks[0], ticks[3] + 5, bytes_max=bytes_max)
        assert ticks_of(reply) == ticks[:count]
        assert reply.done == [*ticks, ticks[3] + 6][count] - 1
        check_form(reply, ticks[0], ticks[3] + 5)
    # what does not match costs nothing
    reply = desk.answer(ticks[0], ticks[3], "a = 4", bytes_max=1)
    assert ticks_of(reply) == [ticks[3]]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_an_answer_has_no_more_events_than_a_frame_may_have(most: int) -> None:
    # P7: frame_events_max
    desk = Desk(Parameters(frame_events_max=most))
    ticks = desk.fill(1, 2, 3, 4)
    reply = desk.answer(ticks[0], ticks[3] + 5)
    assert ticks_of(reply) == ticks[:most]
    assert reply.done == ticks[most] - 1
    check_form(reply, ticks[0], ticks[3] + 5)
    # what does not match does not count
    assert ticks_of(desk.answer(ticks[0], ticks[3], "a = 4")) == [ticks[3]]


def test_the_chunk_that_the_disk_gives_bounds_the_answer() -> None:
    desk = Desk(Parameters(read_chunk_bytes=100))
    ticks = desk.fill(1, 2, 3, 4, 5)
    position, found = ticks[0] - 1, []
    for _ in range(3):
        reply = desk.answer(position + 1, ticks[4], "a <> 3")
        check_form(reply, position + 1, ticks[4])
        position = reply.done
        found += ticks_of(reply)
    assert position == ticks[4]
    assert found == [*ticks[:2], *ticks[3:]]


def test_very_many_regimes_do_not_make_a_very_large_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving_module, "READ_PIECES_MAX", 3)
    desk = Desk()
    desk.run(ms=300)
    desk.report("s")
    for counter in range(1, 8):
        desk.claim("s", counter)
        desk.run(ms=50)
    reply = desk.answer(1, desk.pubend.top)
    assert len(reply.pieces) == 3
    assert reply.done == reply.pieces[-1].high == desk.opened[2].start - 1
    check_form(reply, 1, desk.pubend.top)


def test_a_bad_filter_is_dropped() -> None:
    desk = Desk()
    desk.read(1, 5, "a >")
    desk.sync()
    assert (desk.answers, desk.fetches) == ([], [])
    assert desk.context.marks["read with a bad filter"] == 1


def test_only_the_filters_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "READ_FILTERS_KEPT", 3)
    desk = Desk()
    for text in ("a = 1", "a = 2", "a = 3", "a = 1", "a = 4"):
        desk.answer(1, 5, text)
    assert list(desk.serving._filters) == ["a = 3", "a = 1", "a = 4"]


def test_too_many_reads_at_once_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_module, "READS_MAX", 2)
    desk = Desk()
    desk.fill(1)
    for _ in range(3):
        desk.read(1, desk.pubend.top)
    desk.look()
    assert len(desk.answers) == 2
    assert desk.context.marks["read turned away"] == 1
    desk.answer(1, desk.pubend.top)  # there is room again


# --- what is gone -------------------------------------------------------------------------------


def test_what_is_released_is_told_as_gone_and_never_as_silence() -> None:
    # A14, R56
    desk = Desk(PARAMETERS)
    desk.join()
    ticks = desk.fill(1, 2, 3, 4)
    desk.release(ticks[1])
    reply = desk.answer(ticks[0], ticks[3])
    assert reply.released == ticks[1]
    assert reply.pieces[0].low == ticks[1] + 1
    assert ticks_of(reply) == ticks[2:]
    check_form(reply, ticks[0], ticks[3])
    reply = desk.answer(ticks[0], ticks[0] + 1)  # all of it is gone
    assert (reply.pieces, reply.done, reply.released) == ((), ticks[1], ticks[1])


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_release_that_overtakes_the_fetch_gives_no_silence(place: int) -> None:
    # A14: the rows are trimmed between the asking and the reading
    desk = Desk(PARAMETERS)
    desk.join()
    ticks = desk.fill(1, 2, 3, 4)
    high = ticks[2] + 1
    desk.read(ticks[0], high)
    desk.release(ticks[place])
    assert all(row.last > ticks[place] for row in desk.rows)
    desk.look()
    (reply,) = desk.answers
    check_form(reply, ticks[0], high)
    assert reply.released == ticks[place]
    assert ticks_of(reply) == [tick for tick in ticks[:3] if tick > ticks[place]]


def test_a_release_inside_a_regime_leaves_the_rest_its_regime() -> None:
    # section 16: the regime of a tick never changes
    desk = Desk(PARAMETERS)
    desk.join()
    ticks = desk.fill(1, 2, 3)
    desk.read(ticks[0], ticks[2])
    desk.release(ticks[0])
    desk.look()
    (reply,) = desk.answers
    assert reply.released == ticks[0]
    assert [(piece.low, piece.regime) for piece in reply.pieces] == [(ticks[0] + 1, 1)]


def test_a_chunk_that_ends_below_what_was_released_meanwhile_says_gone() -> None:
    desk = Desk(Parameters(retention_s=0, read_chunk_bytes=1))
    desk.join()
    ticks = desk.fill(1, 2, 3, 4)
    desk.read(ticks[0], ticks[3])
    fetched = desk._fetched(desk.fetches.pop())  # read before it was trimmed, told after
    desk.release(ticks[2])
    desk.context.resume(fetched)
    (reply,) = desk.answers
    assert (reply.pieces, reply.done, reply.released) == ((), ticks[2], ticks[2])


# --- what cannot be read ------------------------------------------------------------------------


def test_a_damaged_row_ends_the_answer_before_it() -> None:
    # P8
    desk = Desk()
    ticks = desk.fill(1, 2, 3)
    desk.damaged.add(ticks[2])
    reply = desk.answer(ticks[0], ticks[2] + 5)
    assert ticks_of(reply) == ticks[:2]
    assert ticks[1] <= reply.done < ticks[2]
    check_form(reply, ticks[0], ticks[2] + 5)


def test_where_nothing_can_be_read_the_answer_says_why() -> None:
    # P8: nothing waits silently
    desk = Desk()
    ticks = desk.fill(1, 2)
    desk.damaged.add(ticks[0])
    desk.read(ticks[0], ticks[1])
    desk.look()
    (fault,) = desk.answers
    assert fault.fault == desk.pubend.damage == f"row {ticks[0]} is damaged"
    assert fault.pieces == ()
    assert fault.done < ticks[0]
    desk.answers.clear()
    reply = desk.answer(ticks[1], ticks[1])  # what lies above can still be read
    assert ticks_of(reply) == [ticks[1]]


# --- holds --------------------------------------------------------------------------------------


def test_a_hold_is_on_disk_before_the_answer() -> None:
    # R49, I13
    desk = Desk()
    ticks = desk.fill(1, 2)
    desk.read(ticks[1], ticks[1], hold=HOLD)
    assert desk.fetches == []
    desk.look()
    assert desk.answers == []
    desk.sync()
    assert desk.holds() == {HOLD: ticks[1] - 1}
    desk.look()
    assert ticks_of(desk.answers[0]) == [ticks[1]]


def test_a_hold_keeps_the_log_above_its_tick_also_after_a_restart() -> None:
    # R49, R56
    desk = Desk(PARAMETERS)
    ticks = desk.fill(1, 2, 3)
    desk.read(ticks[1], ticks[1], hold=HOLD)
    desk.sync()
    desk.run(ms=3_000)
    assert desk.pubend.record.released == ticks[1] - 1
    desk.start()
    desk.run(ms=3_000)
    assert ticks_of(desk.answer(ticks[1], ticks[2])) == ticks[1:]


def test_a_hold_may_be_below_what_is_read() -> None:
    # R49: it follows what the client has acknowledged, not what was read
    desk = Desk()
    ticks = desk.fill(1, 2)
    desk.read(ticks[1], ticks[1], hold=HOLD, hold_tick=ticks[0] - 1)
    desk.sync()
    assert desk.holds() == {HOLD: ticks[0] - 1}


def test_later_reads_raise_a_hold_and_only_a_change_is_written() -> None:
    # R49: a hold only moves up
    desk = Desk()
    ticks = desk.fill(1, 2, 3)
    written = []
    for tick in (ticks[0], ticks[0], ticks[2], ticks[1]):
        desk.read(tick, ticks[2], hold=HOLD)
        (write,) = desk.writes
        written.append(len(write.changes))
        desk.sync()
        desk.look()
    assert written == [1, 0, 1, 0]
    assert desk.holds() == {HOLD: ticks[2] - 1}
    assert len(desk.answers) == 4


def test_a_repeated_read_waits_for_the_write_of_the_first() -> None:
    desk = Desk()
    ticks = desk.fill(1)
    desk.read(ticks[0], ticks[0], hold=HOLD)
    desk.read(ticks[0], ticks[0], hold=HOLD)
    desk.look()
    assert desk.answers == []
    desk.sync()
    desk.look()
    assert len(desk.answers) == 2


def test_a_hold_from_the_very_beginning_is_one() -> None:
    desk = Desk()
    desk.read(0, 5, hold=HOLD)
    desk.sync()
    assert desk.holds() == {HOLD: 0}


def test_a_release_under_way_when_the_hold_comes_is_seen_in_the_answer() -> None:
    # R49: the hold comes too late for what is released before it, and says so
    desk = Desk(PARAMETERS)
    ticks = desk.fill(1, 2)
    desk.run(ms=2_000, sync=False)  # the release waits for the disk
    released = desk.pubend._latest.released
    assert released >= ticks[1] > desk.pubend.record.released
    desk.read(ticks[0], ticks[1], hold=HOLD)
    desk.sync()
    desk.look()
    (reply,) = desk.answers
    assert (reply.pieces, reply.released) == ((), released)


def test_a_released_hold_is_erased_before_it_is_answered() -> None:
    # R49
    desk = Desk()
    desk.read(50, 60, hold=HOLD)
    desk.sync()
    done: list[bool] = []
    desk.serving.release_hold(HOLD, lambda: done.append(True))
    assert done == []
    assert desk.pubend.membership.floor() is None
    desk.sync()
    assert done == [True]
    assert desk.holds() == {}
    desk.serving.release_hold(HOLD, lambda: done.append(True))
    desk.sync()
    assert done == [True, True]


def test_a_read_that_comes_after_its_hold_was_released_does_not_bring_it_back() -> None:
    # nobody would release it again, and the log would be kept for ever
    desk = Desk()
    desk.serving.release_hold(HOLD, lambda: None)
    desk.sync()
    desk.read(50, 60, hold=HOLD)
    desk.sync()
    assert desk.holds() == {}
    assert desk.answers == []
    assert desk.context.marks["read after its hold was released"] == 1
    desk.run(ms=PARAMETERS.left_memory_s * 1_000 + 1)
    desk.read(50, 60)
    assert desk.serving._released_holds == {}


# --- stays --------------------------------------------------------------------------------------


def test_a_stay_that_ends_is_off_the_disk_before_it_is_answered() -> None:
    # R55
    desk = Desk()
    desk.join()
    done: list[str] = []
    desk.serving.leave(HOST, Join(1, 1), lambda: done.append("first"))
    desk.serving.leave(HOST, Join(1, 1), lambda: done.append("again"))
    assert done == []  # also the copy waits for the write of the first
    desk.sync()
    assert done == ["first", "again"]
    assert not any(isinstance(each, MemberRecord) for each in desk.records.values())
    desk.run(ms=100)
    assert desk.opened[-1].entries == ()


def test_the_end_of_an_earlier_stay_does_not_end_a_later_one() -> None:
    # R55
    desk = Desk()
    desk.claim("s", 1)
    desk.report("s", join=2)
    desk.run(ms=100)
    done: list[bool] = []
    desk.serving.leave(HOST, Join(1, 1), lambda: done.append(True))
    desk.sync()
    assert done == [True]
    assert desk.pubend.membership.row(HOST) is not None


# --- against brute force ------------------------------------------------------------------------

FILTERS = ("TRUE", "FALSE", "a > 4", "a = 1 OR a = 8", "b = 'x'", "a BETWEEN 2 AND 6 AND b <> 'x'")


def random_desk(rng: random.Random) -> Desk:
    """Return a desk with random rows in few ticks, some regimes, and some of the log released."""
    chunk = rng.choice((1, 100, 300, PLENTY))
    desk = Desk(Parameters(read_chunk_bytes=chunk))
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
        row = LogRow(STOCKS, publications[0].tick, last, 0, 0, 0, tuple(publications))
        desk.rows.append(row)
    for key, record in desk.records.items():
        assert isinstance(record, PubendRecord)
        desk.records[key] = PubendRecord(
            STOCKS, record.properties, 1, tick + 9, rng.choice((0, rng.randint(0, 60)))
        )
    start = 0
    for number in range(1, rng.randint(1, 6)):
        start += rng.randint(1, 30)
        regime = RegimeRecord(STOCKS, number, start, 1, ((HOST, Entry(VirtualTime(1, number))),))
        desk.records[regime.key] = regime
    desk.start()
    return desk


def trim(desk: Desk, up_to: Tick) -> None:
    """Release and trim at once."""
    pubend = desk.pubend
    up_to = max(up_to, pubend.record.released)
    pubend._record = msgspec.structs.replace(pubend._record, released=up_to)
    desk.rows = [row for row in desk.rows if row.last > up_to]


def check_exact(reply: ReadReply, desk: Desk, log: list[LogRow], text: str, low: Tick) -> None:
    """Compare every tick that an answer tells with the log as it was before anything was trimmed."""
    wanted = Filter(text)
    owed = {
        each.tick: each
        for row in log
        for each in row.publications
        if wanted.matches(each.attributes)
    }
    regimes = {each.number: each for each in desk.pubend.regimes}
    for piece in reply.pieces:
        assert piece.low > reply.released
        found = {each.tick: each for each in piece.publications}
        for tick in range(piece.low, piece.high + 1):
            assert found.get(tick) == owed.get(tick)
            begun = [number for number, regime in regimes.items() if regime.start <= tick]
            assert piece.regime == max(begun, default=0)
    assert reply.done >= low - 1


@pytest.mark.parametrize("seed", range(60))
def test_random_reads_are_exact_also_while_the_log_is_released(seed: int) -> None:
    # R48, A14: chunk by chunk to the end, and what is not told was gone
    rng = random.Random(seed)
    desk = random_desk(rng)
    log = list(desk.rows)
    for _ in range(12):
        text = rng.choice(FILTERS)
        position, high = rng.randint(0, 100) - 1, rng.randint(0, 160)
        rounds = 0
        while position < min(high, desk.pubend.top):
            desk.read(position + 1, high, text, bytes_max=rng.choice((0, 5, 40, PLENTY)))
            if rng.random() < 0.1:
                trim(desk, rng.randint(0, 20 + 8 * rounds))
            desk.look()
            reply = desk.answers.pop()
            check_form(reply, position + 1, high)
            check_exact(reply, desk, log, text, position + 1)
            assert reply.done > position, "no progress"
            position = reply.done
            rounds += 1
        assert rounds <= 160


@pytest.mark.parametrize("seed", range(60))
def test_random_reads_in_every_form_are_exact_also_while_the_log_is_released(seed: int) -> None:
    # R48, A14: the same as above for rows as they were written, and for their ticks
    rng = random.Random(seed)
    desk = random_desk(rng)
    log = [each for row in desk.rows for each in row.publications]
    for turn in range(12):
        form = ReadForm.TICKS if turn % 2 else ReadForm.ROWS
        text = rng.choice(FILTERS)
        position, high = rng.randint(0, 100) - 1, rng.randint(0, 160)
        while position < min(high, desk.pubend.top):
            bytes_max, asker = rng.choice((0, 5, 40, PLENTY)), rng.choice(("s", "p"))
            desk.read(position + 1, high, text, bytes_max=bytes_max, form=form, asker=asker)
            if rng.random() < 0.1:
                trim(desk, rng.randint(0, position + 20))
            desk.look()
            reply = desk.answers.pop()
            low, done = max(position, reply.released), min(reply.done, high)
            owed = [each for each in log if low < each.tick <= done]
            owed = [each for each in owed if Filter(text).matches(each.attributes)]
            if form is ReadForm.TICKS:
                assert unpack_ticks(reply.rows) == [each.tick for each in owed]
            else:
                assert unpack(reply.rows) == owed
            assert reply.pieces == ()
            assert reply.done > position, "no progress"
            position = reply.done


def test_only_an_asker_at_this_broker_may_have_more_than_a_chunk() -> None:
    # what comes over a link shares it with the streams
    desk = Desk(Parameters(read_chunk_bytes=1, read_bytes_max=PLENTY))
    ticks = desk.fill(1, 2, 3)
    for form in (ReadForm.EVENTS, ReadForm.ROWS):
        far = desk.answer(1, ticks[2], form=form)
        near = desk.answer(1, ticks[2], form=form, asker="p")
        assert far.done < ticks[1]
        assert near.done == ticks[2]


def test_what_one_asker_may_have_at_once_is_bounded() -> None:
    # P7: read_bytes_max
    desk = Desk(Parameters(read_chunk_bytes=1, read_bytes_max=100))
    ticks = desk.fill(*range(20))
    for form in (ReadForm.EVENTS, ReadForm.ROWS):
        reply = desk.answer(1, ticks[-1], form=form, asker="p", bytes_max=2**62)
        assert ticks[0] < reply.done < ticks[-1]


def test_where_no_row_can_be_read_the_answer_says_why_in_every_form() -> None:
    # P8
    desk = Desk()
    ticks = desk.fill(1, 2)
    desk.damaged.add(ticks[1])
    for form in ReadForm:
        assert desk.answer(ticks[0], ticks[1], form=form).done == ticks[0]
        reply = desk.answer(ticks[1], ticks[1], form=form)
        assert (reply.done, reply.fault) == (ticks[1] - 1, f"row {ticks[1]} is damaged")


@pytest.mark.parametrize("seed", range(20))
def test_reads_of_many_askers_at_once_do_not_mix(seed: int) -> None:
    rng = random.Random(seed)
    desk = random_desk(rng)
    log = list(desk.rows)
    asked = []
    for _ in range(10):
        text, low = rng.choice(FILTERS), rng.randint(0, 80)
        found: list[ReadReply] = []
        hold = HOLD if rng.random() < 0.3 else None
        request = Read(STOCKS, 1, "s", (), text, low, low + rng.randint(0, 60), hold, 30, low)
        desk.serving.read(request, found.append)
        asked.append((request, found))
    desk.sync()
    rng.shuffle(desk.fetches)
    desk.look()
    for request, (reply,) in asked:
        check_form(reply, request.low, request.high)
        check_exact(reply, desk, log, request.filter, request.low)
