"""Best effort: order and no duplicates, and nothing else (R33)."""

from __future__ import annotations

import pytest

from gapless.content.values import Value
from gapless.core.ids import PubendId
from gapless.core.machine import Context, Identity
from gapless.core.parameters import Parameters, us
from gapless.core.ticks import Tick, TickRange
from gapless.messages.overlay import PubendProperties, Quality
from gapless.messages.records import PubendRecord, PublisherRecord, RegimeRecord
from gapless.messages.streams import Detach, Frame, Nack, Piece, Regime, RegimeWant, Silence
from gapless.pubend.best_effort import BestEffortPubend
from gapless.pubend.pubend import PublishRefusedError
from tests.stream.small_streams import STOCKS, Line, event, piece


class Desk:
    """A pubend of best effort and what it has told."""

    def __init__(self, life: int = 5, clock: int = 1_000, advertisement: str = "TRUE") -> None:
        self.context = Context(Identity("p", "p", life), Parameters(publisher_ttl_s=60))
        self.context.clock = clock
        self.told: list[Piece] = []
        properties = PubendProperties("p", "p", advertisement, Quality.BEST_EFFORT)
        self.pubend = BestEffortPubend(
            self.context, PubendRecord(STOCKS, properties, 1, 0, 0), self
        )

    def spread(self, pubend: PubendId, told: Piece, opened: RegimeRecord | None) -> None:
        assert (pubend, opened) == (STOCKS, None)
        self.told.append(told)

    def released(self, pubend: PubendId, up_to: Tick) -> None:
        raise AssertionError(f"there is no log of {pubend} to release up to {up_to}")

    def cached(self, pubend: PubendId, low: Tick, high: Tick) -> list[Piece]:
        del pubend, low, high
        return []

    def expect_ack(self, pubend: PubendId, tick: Tick, pressure: bool) -> None:
        raise AssertionError(f"nobody acknowledges {tick} of {pubend}, {pressure=}")

    def open(self, publisher: str = "ann") -> PublisherRecord:
        found: list[PublisherRecord] = []
        self.pubend.open_publisher(publisher, found.append)
        return found[0]

    def publish(self, session: PublisherRecord, first: int, *values: int) -> tuple[Tick, ...]:
        answers: list[tuple[Tick, ...]] = []
        events: tuple[tuple[dict[str, Value], bytes], ...] = tuple(
            ({"a": value}, b"") for value in values
        )
        late: list[str] = []
        self.pubend.publish(
            session.publisher, session.session, first, events, answers.append, late.append
        )
        assert late == []  # nothing has to be looked up
        return answers[0]

    def ticks(self) -> list[Tick]:
        return [each.tick for told in self.told for each in told.publications]


# --- the pubend -----------------------------------------------------------------------------


def test_an_event_is_sent_and_answered_at_once_and_nothing_is_written() -> None:
    desk = Desk()
    assert desk.publish(desk.open(), 1, 7, 8) == (1_000, 1_001)
    (told,) = desk.told
    assert (told.low, told.high, told.regime) == (1_000, 1_001, 5)
    assert [each.sequence for each in told.publications] == [1, 2]
    assert desk.context.effects == []


def test_ticks_grow_within_a_life_whatever_the_clock_says() -> None:
    desk = Desk()
    session = desk.open()
    for sequence, clock in enumerate((1_000, 400, 5_000, 5_000), 1):
        desk.context.clock = clock
        desk.publish(session, sequence, sequence)
    assert desk.ticks() == [1_000, 1_001, 5_000, 5_001]


def test_a_repeated_sequence_is_answered_and_not_sent_again() -> None:
    desk = Desk()
    session = desk.open()
    desk.publish(session, 1, 1, 2)
    assert desk.publish(session, 2, 2, 3) == (0, 1_002)
    assert desk.publish(session, 1, 1, 2) == (0, 0)
    assert [each.sequence for told in desk.told for each in told.publications] == [1, 2, 3]
    assert desk.open().last_sequence == 3


def test_a_session_of_an_earlier_life_is_fenced_off() -> None:
    # R28: session numbers grow across lives, though no disk knows them
    before = Desk(life=5)
    old = [before.open() for _ in range(20)][-1]
    desk = Desk(life=6)
    new = desk.open()
    assert new.session > old.session
    with pytest.raises(PublishRefusedError, match="opened again"):
        desk.publish(old, 1, 1)
    desk.publish(new, 1, 1)


def test_a_batch_outside_the_advertisement_is_refused_whole() -> None:
    desk = Desk(advertisement="a > 10")
    with pytest.raises(PublishRefusedError, match="a > 10"):
        desk.publish(desk.open(), 1, 11, 9)
    assert desk.told == []


def test_publishers_that_are_not_used_are_forgotten() -> None:
    # I14: memory of clients that came once must not grow for ever
    desk = Desk(clock=us(s=1_000))
    session = desk.open()
    for _ in range(80):
        desk.context.now += us(s=1)
        desk.context.clock += us(s=1)
        desk.context.run_timers()
    with pytest.raises(PublishRefusedError, match="not open"):
        desk.publish(session, 1, 1)


def test_there_is_nothing_to_read() -> None:
    found: list[tuple[list[Piece], Tick]] = []
    Desk().pubend.pieces_between(5, 10, lambda pieces, done: found.append((pieces, done)))
    assert found == [([], 4)]


# --- on its way -----------------------------------------------------------------------------


def fed(names: str = "pan") -> Line:
    line = Line(names)
    line.best_effort.add(STOCKS)
    line.attach()
    line.run(ms=20)
    return line


def test_events_travel_over_routers_and_silence_does_not() -> None:
    line = fed()
    line.publish(piece(100, 110, event(105, 1), regime=5))
    line.run(ms=500)
    assert line.ticks() == [105]
    assert not any(isinstance(message, Silence) for _, _, message in line.sent)


def test_nothing_is_sent_where_nothing_passes() -> None:
    line = fed()
    line.nodes["n"].wanted = lambda each: each.attributes["a"] == 1
    line.publish(piece(100, 100, event(100, 0), regime=5))
    line.publish(piece(101, 102, event(101, 0), event(102, 1), regime=5))
    line.run(ms=500)
    assert line.count(Frame, "n", "r") == 1
    assert line.ticks() == [102]


def test_tables_are_chosen_by_an_empty_vector_never_by_none() -> None:
    # R33: V^m is empty, a router filters by what it has
    line = fed()
    line.publish(piece(100, 100, event(100, 1), regime=5))
    line.run(ms=10)
    for node in line.nodes.values():
        assert [vector.entries for vector in node.vectors if vector is not None] == [{}]


def test_no_regime_is_told_or_asked_for() -> None:
    line = fed()
    line.publish(piece(100, 100, event(100, 1), regime=5))
    line.say("r", RegimeWant(STOCKS, 5))
    line.run(ms=100)
    assert not any(isinstance(m, Regime) for _, _, m in line.sent)
    assert [(s, t) for s, t, m in line.sent if isinstance(m, RegimeWant)] == [("r", "n")]


def test_nacks_are_ignored_and_nothing_is_kept() -> None:
    # A26: a tick that is lost stays lost; asking for it would go on for ever
    line = fed()
    line.publish(piece(100, 100, event(100, 1), regime=5))
    line.run(ms=10)
    line.say("r", Nack(STOCKS, (TickRange(1, 200),)))
    line.run(ms=100)
    assert line.ticks() == [100]
    assert [(s, t) for s, t, m in line.sent if isinstance(m, Nack)] == [("r", "n")]
    assert line.log.reads == 0
    for node in line.nodes.values():
        assert node.router._account.bytes == 0


def test_what_comes_twice_by_an_old_feeder_and_a_new_one_goes_on_once() -> None:
    line = fed("pn")
    for each in (
        piece(100, 100, event(100, 1), regime=5),
        piece(100, 101, event(100, 1), event(101, 1), regime=5),
        piece(100, 101, event(100, 1), event(101, 1), regime=5),
    ):
        line.nodes["n"].router.receive(STOCKS, 2, each, first=True)
    line.run(ms=10)
    assert line.ticks() == [100, 101]


def test_a_greater_life_may_have_lower_ticks_and_an_older_one_is_over() -> None:
    line = fed("pn")
    for each in (
        piece(100, 100, event(100, 1), regime=5),
        piece(40, 40, event(40, 1), regime=6),
        piece(101, 101, event(101, 1), regime=5),
        piece(41, 41, event(41, 1), regime=6),
    ):
        line.nodes["n"].router.receive(STOCKS, 2, each, first=True)
    line.run(ms=10)
    assert line.ticks() == [100, 40, 41]


def test_an_idle_stream_does_not_look_like_a_dead_feed() -> None:
    # R9: there is no silence, so the answers to refreshed attachments are the sign of life
    line = fed()
    for _ in range(10):
        line.attach()
        line.run(ms=1_500)
    assert line.count(Detach, "n", "a") == 0
    assert "feeder was silent" not in line.nodes["n"].context.marks
