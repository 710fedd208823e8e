"""The router's streams: what is sent at once, what is withheld, and who is asked for the rest."""

from __future__ import annotations

from gapless.core.parameters import Parameters
from gapless.core.ticks import TickRange
from gapless.messages.streams import (
    Attach,
    Attached,
    AttachKind,
    Detach,
    Frame,
    Nack,
    Released,
    Silence,
    Unfed,
    UnfedReason,
)
from tests.delivery.small_streams import STOCKS, Line, event, piece


def fed(names: str = "pan", parameters: Parameters | None = None) -> Line:
    line = Line(names, parameters or Parameters())
    line.publish(piece(1, 20))
    line.attach()
    line.run(ms=20)
    return line


def test_a_receiver_gets_every_tick_above_where_it_was_attached() -> None:
    line = fed()
    (attached,) = [each for each in line.heard["r"] if isinstance(each, Attached)]
    assert attached.at == 20
    line.publish(piece(21, 24, event(23, 1)))
    line.run(ms=10)
    assert line.pieces() == [piece(21, 24, event(23, 1))]


def test_a_router_that_has_nothing_cached_still_offers_how_far_the_stream_is() -> None:
    # R8, A24: it would offer tick 0 and send new subscribers asking for a released past
    line = fed()
    line.attach("late", 4)
    line.run(ms=10)
    (attached,) = [each for each in line.heard["late"] if isinstance(each, Attached)]
    assert attached.at == 20


def test_what_no_receiver_wants_is_withheld_and_told_by_the_timer() -> None:
    # R35: silence is lazy, or nearly all frames would carry no event
    line = fed("pan", Parameters(silence_ms=100))
    line.nodes["n"].wanted = lambda each: each.attributes["a"] == 1
    for tick in range(21, 41):
        line.publish(piece(tick, tick, event(tick, 0)))
    line.run(ms=10)
    assert line.pieces() == []
    line.run(ms=150)
    assert line.pieces() == [piece(21, 40)]


def test_an_event_is_preceded_by_the_silence_before_it() -> None:
    line = fed()
    line.nodes["n"].wanted = lambda each: each.attributes["a"] == 1
    line.publish(piece(21, 25, event(22, 0)))
    line.publish(piece(26, 30, event(28, 1)))
    line.run(ms=10)
    assert line.pieces() == [piece(21, 30, event(28, 1))]


def test_without_sufficient_tables_everything_passes() -> None:
    # R25, VT 3.2.3: stale state forwards too much, never too little
    line = fed()
    assert line.nodes["n"].wanted is None
    line.publish(piece(21, 25, event(22, 0), event(24, 1)))
    line.run(ms=10)
    assert line.ticks() == [22, 24]


def test_an_eager_receiver_gets_silence_at_once() -> None:
    line = Line("pan")
    line.attach(eager=True)
    line.run(ms=20)
    line.publish(piece(1, 9))
    line.run(ms=5)
    assert line.pieces() == [piece(1, 9)]


def test_a_lost_frame_is_asked_for_through_two_hops_and_answered_from_the_nearest_cache() -> None:
    # example 14.1
    line = fed()
    line.publish(piece(21, 24, event(23, 1)))
    line.run(ms=2)  # at n, not yet at the receiver
    line.flying.clear()
    line.publish(piece(25, 30, event(27, 1)))
    line.run(ms=10)
    assert line.ticks() == [27]
    line.say("r", Nack(STOCKS, (TickRange(21, 24),)))
    line.run(ms=10)
    assert line.ticks() == [27, 23]
    assert line.count(Nack, "n", "a") == 0


def test_a_nack_that_no_cache_can_answer_reaches_the_log() -> None:
    line = Line("pan")
    line.publish(piece(1, 10, event(5, 1)))
    line.attach()
    line.run(ms=20)
    line.nodes["p"].router._routed[STOCKS].stream.forget_all()
    line.say("r", Nack(STOCKS, (TickRange(1, 10),)))
    line.run(ms=20)
    assert line.ticks() == [5]
    assert line.log.reads == 1


def test_nacks_of_two_receivers_travel_up_once() -> None:
    # GD 3.1 and 4.2: with two receivers behind one router the nack range sent upstream is about
    # half of what the two sent
    line = Line("pan")
    line.publish(piece(1, 1_000, event(500, 1)))
    for receiver, number in (("r1", 2), ("r2", 4)):
        line.attach(receiver, number)
    line.run(ms=20)
    for receiver in ("r1", "r2"):
        line.say(receiver, Nack(STOCKS, (TickRange(1, 1_000),)))
    line.run(ms=20)
    asked = sum(
        high - low + 1
        for source, _, message in line.sent
        if source == "n" and isinstance(message, Nack)
        for low, high in message.ranges
    )
    assert asked == 1_000
    assert line.ticks("r1") == line.ticks("r2") == [500]


def test_an_answer_to_a_nack_goes_only_to_those_who_asked() -> None:
    # GD 3.1: retransmitted messages go down paths that have expressed curiosity
    line = Line("pan")
    line.publish(piece(1, 10, event(5, 1)))
    for receiver, number in (("r1", 2), ("r2", 4)):
        line.attach(receiver, number)
    line.run(ms=20)
    line.say("r1", Nack(STOCKS, (TickRange(4, 6),)))
    line.run(ms=20)
    assert line.pieces("r1") == [piece(4, 6, event(5, 1))]
    assert line.pieces("r2") == []


def test_released_ticks_are_answered_as_released_never_as_silence() -> None:
    # R37, A14
    line = fed()
    line.nodes["p"].router.set_released(STOCKS, 15)
    line.say("r", Nack(STOCKS, (TickRange(5, 18),)))
    line.run(ms=20)
    assert Released(STOCKS, 15) in line.heard["r"]
    assert line.pieces() == [piece(16, 18)]


def test_a_receiver_that_is_not_farther_from_the_pubend_is_not_fed() -> None:
    # R10, A18: so feeds strictly approach the pubend and have no cycle
    line = fed()
    line.say("x", Attach(STOCKS, 2, AttachKind.CELL, "nearer"))
    line.run(ms=5)
    assert line.heard["x"] == [Unfed(STOCKS, 2, UnfedReason.NOT_NEARER)]


def test_a_receiver_waits_while_its_router_has_no_feed_itself() -> None:
    line = Line("pan")
    line.publish(piece(1, 20))
    line.cuts |= {("n", "a"), ("a", "n")}
    line.attach()
    line.run(ms=1_500)
    assert line.heard["r"] == [Unfed(STOCKS, 2, UnfedReason.NO_FEED)]
    line.cuts.clear()
    line.run(ms=6_000)
    attached = [each for each in line.heard["r"] if isinstance(each, Attached)]
    assert attached
    assert attached[0].at == 20


def test_attachments_that_are_not_refreshed_end_and_the_feed_with_the_last() -> None:
    line = fed()
    line.run(ms=10_000)
    assert line.count(Detach, "n", "a") >= 1
    assert line.nodes["n"].router._routed == {}


def test_a_detached_receiver_hears_no_more() -> None:
    line = fed()
    line.say("r", Detach(STOCKS, 2))
    line.run(ms=5)
    line.publish(piece(21, 24, event(23, 1)))
    line.run(ms=200)
    assert line.pieces() == []


def test_a_forgetful_cache_gives_the_same_answers() -> None:
    # R38: forgetting gives Q, never F; with no cache at all everything comes from the log
    line = Line("pan", Parameters(cache_bytes=0))
    line.attach()
    line.run(ms=20)
    for tick in range(10, 200, 10):
        line.publish(piece(tick - 9, tick, event(tick, 1)))
        line.run(ms=1)
    line.run(ms=50)
    line.say("r", Nack(STOCKS, (TickRange(1, 190),)))
    line.run(ms=100)
    assert sorted(set(line.ticks())) == list(range(10, 200, 10))


def test_silence_of_several_pieces_is_one_message() -> None:
    line = fed("pan", Parameters(silence_ms=100))
    for tick in range(21, 31):
        line.publish(piece(tick, tick))
    line.run(ms=350)  # every hop withholds it for a while
    assert line.count(Silence, "n", "r") == 1
    assert line.count(Frame, "n", "r") == 0
