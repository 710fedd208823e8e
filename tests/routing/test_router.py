"""The streams of a router: ranges sent at once, withheld silence, and nacks."""

from __future__ import annotations

from gapless.core.parameters import DEFAULTS, Parameters
from gapless.core.ticks import TickRange
from gapless.messages.streams import (
    AdvanceRequest,
    Attach,
    Attached,
    AttachKind,
    Detach,
    FeedUnavailable,
    FeedUnavailableReason,
    Nack,
    Released,
    StreamData,
    StreamSilence,
)
from tests.stream.small_streams import BONDS, STOCKS, Line, Log, event, knowledge_range


def fed(names: str = "pan", parameters: Parameters | None = None) -> Line:
    line = Line(names, parameters or Parameters())
    line.publish(knowledge_range(1, 20))
    line.attach()
    line.run(ms=20)
    return line


def test_a_receiver_gets_every_tick_above_its_attach_tick() -> None:
    line = fed()
    (attached,) = [each for each in line.received["r"] if isinstance(each, Attached)]
    assert attached.sent_up_to == 20
    line.publish(knowledge_range(21, 24, event(23, 1)))
    line.run(ms=10)
    assert line.ranges() == [knowledge_range(21, 24, event(23, 1))]


def test_a_stream_data_message_has_no_more_events_than_the_limit() -> None:
    # P7: frame_events_max; a row of the log may be of a larger batch
    line = fed(parameters=Parameters(frame_events_max=2))
    line.publish(knowledge_range(21, 30, *(event(tick, 1) for tick in (22, 24, 25, 27, 29))))
    line.run(ms=10)
    frames = [each.knowledge for each in line.received["r"] if isinstance(each, StreamData)]
    assert [len(each.publications) for each in frames] == [2, 2, 1]
    assert [(each.low, each.high) for each in frames] == [(21, 24), (25, 28), (29, 30)]


def test_a_router_with_an_empty_cache_offers_the_top_of_the_stream() -> None:
    # R8, A24: otherwise it would offer tick 0 and new subscribers would request a released past
    line = fed()
    line.attach("late", 4)
    line.run(ms=10)
    (attached,) = [each for each in line.received["late"] if isinstance(each, Attached)]
    assert attached.sent_up_to == 20


def test_silence_is_withheld_and_sent_by_the_timer() -> None:
    # R35: silence is lazy, otherwise nearly all messages would carry no event
    line = fed("pan", Parameters(silence_ms=100))
    line.nodes["n"].wanted = lambda each: each.attributes["a"] == 1
    for tick in range(21, 41):
        line.publish(knowledge_range(tick, tick, event(tick, 0)))
    line.run(ms=10)
    assert line.ranges() == []
    line.run(ms=150)
    assert line.ranges() == [knowledge_range(21, 40)]


def test_an_event_is_preceded_by_the_silence_before_it() -> None:
    line = fed()
    line.nodes["n"].wanted = lambda each: each.attributes["a"] == 1
    line.publish(knowledge_range(21, 25, event(22, 0)))
    line.publish(knowledge_range(26, 30, event(28, 1)))
    line.run(ms=10)
    assert line.ranges() == [knowledge_range(21, 30, event(28, 1))]


def test_without_sufficient_tables_everything_passes() -> None:
    # R25, VT 3.2.3: stale state forwards too much, never too little
    line = fed()
    assert line.nodes["n"].wanted is None
    line.publish(knowledge_range(21, 25, event(22, 0), event(24, 1)))
    line.run(ms=10)
    assert line.ticks() == [22, 24]


def test_an_eager_receiver_gets_silence_at_once() -> None:
    line = Line("pan")
    line.attach(eager=True)
    line.run(ms=20)
    line.publish(knowledge_range(1, 9))
    line.run(ms=5)
    assert line.ranges() == [knowledge_range(1, 9)]


def test_a_lost_message_is_nacked_over_two_hops_and_answered_from_the_nearest_cache() -> None:
    # example 14.1
    line = fed()
    line.publish(knowledge_range(21, 24, event(23, 1)))
    line.run(ms=2)  # it has reached n, but not the receiver
    line.flying.clear()
    line.publish(knowledge_range(25, 30, event(27, 1)))
    line.run(ms=10)
    assert line.ticks() == [27]
    line.send("r", Nack(STOCKS, (TickRange(21, 24),)))
    line.run(ms=10)
    assert line.ticks() == [27, 23]
    assert line.count(Nack, "n", "a") == 0


def test_a_nack_that_no_cache_can_answer_reaches_the_log() -> None:
    line = Line("pan")
    line.publish(knowledge_range(1, 10, event(5, 1)))
    line.attach()
    line.run(ms=20)
    line.nodes["p"].router._routed[STOCKS].stream.forget_all()
    line.send("r", Nack(STOCKS, (TickRange(1, 10),)))
    line.run(ms=20)
    assert line.ticks() == [5]
    assert line.log.reads == 1


def test_equal_nacks_of_two_receivers_are_forwarded_once() -> None:
    # GD 3.1 and 4.2: with two receivers behind one router the range nacked upstream is about half
    # of the ranges that the two nacked
    line = Line("pan")
    line.publish(knowledge_range(1, 1_000, event(500, 1)))
    for receiver, number in (("r1", 2), ("r2", 4)):
        line.attach(receiver, number)
    line.run(ms=20)
    for receiver in ("r1", "r2"):
        line.send(receiver, Nack(STOCKS, (TickRange(1, 1_000),)))
    line.run(ms=20)
    nacked = sum(
        high - low + 1
        for source, _, message in line.sent
        if source == "n" and isinstance(message, Nack)
        for low, high in message.ranges
    )
    assert nacked == 1_000
    assert line.ticks("r1") == line.ticks("r2") == [500]


def test_a_retransmission_is_sent_only_to_receivers_that_nacked() -> None:
    # GD 3.1: retransmitted messages go down paths that have expressed curiosity
    line = Line("pan")
    line.publish(knowledge_range(1, 10, event(5, 1)))
    for receiver, number in (("r1", 2), ("r2", 4)):
        line.attach(receiver, number)
    line.run(ms=20)
    line.send("r1", Nack(STOCKS, (TickRange(4, 6),)))
    line.run(ms=20)
    assert line.ranges("r1") == [knowledge_range(1, 10, event(5, 1))]  # with the silence around it
    assert line.ranges("r2") == []


def test_released_ticks_are_answered_as_released_never_as_silence() -> None:
    # R37, A14
    line = fed()
    line.nodes["p"].router.set_released(STOCKS, 15, [])
    line.send("r", Nack(STOCKS, (TickRange(5, 18),)))
    line.run(ms=20)
    assert Released(STOCKS, 15) in line.received["r"]
    assert line.ranges() == [knowledge_range(16, 20)]


def test_a_receiver_that_is_not_farther_from_the_pubend_is_not_fed() -> None:
    # R10, A18: so feeds strictly approach the pubend and have no cycle
    line = fed()
    line.send("x", Attach(STOCKS, 2, AttachKind.CELL, "nearer"))
    line.run(ms=5)
    assert line.received["x"] == [FeedUnavailable(STOCKS, 2, FeedUnavailableReason.NOT_NEARER)]


def test_a_receiver_waits_while_its_router_has_no_feed_itself() -> None:
    line = Line("pan")
    line.publish(knowledge_range(1, 20))
    line.cuts |= {("n", "a"), ("a", "n")}
    line.attach()
    line.run(ms=1_500)
    assert line.received["r"] == [FeedUnavailable(STOCKS, 2, FeedUnavailableReason.NO_FEED)]
    line.cuts.clear()
    line.run(ms=6_000)
    attached = [each for each in line.received["r"] if isinstance(each, Attached)]
    assert attached
    assert attached[0].sent_up_to == 20


def test_attachments_that_are_not_refreshed_end_and_the_last_one_ends_the_feed() -> None:
    line = fed()
    line.run(ms=DEFAULTS.attach_expiry_us // 1_000 + 10_000)
    assert line.count(Detach, "n", "a") >= 1
    assert line.nodes["n"].router._routed == {}


def test_a_detached_receiver_is_sent_nothing() -> None:
    line = fed()
    line.send("r", Detach(STOCKS, 2))
    line.run(ms=5)
    line.publish(knowledge_range(21, 24, event(23, 1)))
    line.run(ms=200)
    assert line.ranges() == []


def test_without_a_cache_the_answers_are_the_same() -> None:
    # R38: forgotten ticks become Q, never F; with no cache at all everything comes from the log
    line = Line("pan", Parameters(cache_bytes=0))
    line.attach()
    line.run(ms=20)
    for tick in range(10, 200, 10):
        line.publish(knowledge_range(tick - 9, tick, event(tick, 1)))
        line.run(ms=1)
    line.run(ms=50)
    line.send("r", Nack(STOCKS, (TickRange(1, 190),)))
    line.run(ms=100)
    assert sorted(set(line.ticks())) == list(range(10, 200, 10))


def test_silence_of_several_knowledge_ranges_is_one_message() -> None:
    line = fed("pan", Parameters(silence_ms=100))
    for tick in range(21, 31):
        line.publish(knowledge_range(tick, tick))
    line.run(ms=350)  # every hop withholds it for a while
    assert line.count(StreamSilence, "n", "r") == 1
    assert line.count(StreamData, "n", "r") == 0


def test_silence_of_several_pubends_is_one_message() -> None:
    # R35: many pubends of a session in one Silence
    line = Line("pn", Parameters(silence_ms=100))
    line.nodes["p"].router.host(BONDS, Log(), 0)
    line.attach()
    line.attach(number=4, pubend=BONDS)
    line.run(ms=20)
    line.publish(knowledge_range(1, 9))
    line.publish(knowledge_range(1, 7), BONDS)
    line.run(ms=250)
    sent = [each for each in line.received["r"] if isinstance(each, StreamSilence)]
    assert [[pubend for pubend, *_ in each.ranges] for each in sent] == [[STOCKS, BONDS]]


def test_silence_before_an_event_is_sent_before_it() -> None:
    line = fed("pn")
    line.publish(knowledge_range(21, 25, stream_epoch=0))
    line.publish(
        knowledge_range(26, 30, event(28, 1), stream_epoch=1)
    )  # another stream epoch: the ranges cannot be joined
    line.run(ms=10)
    assert line.ranges() == [
        knowledge_range(21, 25),
        knowledge_range(26, 30, event(28, 1), stream_epoch=1),
    ]


def test_an_event_is_matched_once_for_all_receivers_and_retransmissions() -> None:
    # R25: one match gives the set of tables, a receiver's test is a mask
    line = Line("pn", Parameters(silence_ms=100))
    for receiver, number in (("r1", 2), ("r2", 4), ("r3", 6)):
        line.attach(receiver, number)
    line.run(ms=20)
    node = line.nodes["n"]
    node.wanted = lambda each: each.attributes["a"] == 1
    for tick in range(1, 31):
        line.publish(knowledge_range(tick, tick, event(tick, tick % 5)))
    line.run(ms=300)
    assert node.matched == list(range(1, 31))
    for receiver in ("r1", "r2", "r3"):
        assert line.ticks(receiver) == [1, 6, 11, 16, 21, 26]
        assert line.ranges(receiver)[-1].high == 30


def test_a_late_event_inside_withheld_silence_is_matched() -> None:
    # R35: a D that passes stays D, also if it had been retransmitted
    line = fed("pn")
    node = line.nodes["n"]
    node.wanted = lambda each: each.attributes["a"] == 1
    node.router.receive(STOCKS, 2, knowledge_range(21, 25, event(22, 0)), first=True)
    node.router.receive(STOCKS, 2, knowledge_range(21, 25, event(22, 0), event(24, 1)), first=False)
    node.router.receive(STOCKS, 2, knowledge_range(26, 30, event(28, 1)), first=True)
    line.run(ms=200)
    assert line.ranges() == [knowledge_range(21, 30, event(24, 1), event(28, 1))]


def test_withheld_silence_before_a_gap_does_not_cover_ticks_beyond_it() -> None:
    line = fed("pn")
    node = line.nodes["n"]
    node.wanted = lambda each: each.attributes["a"] == 1
    node.router.receive(STOCKS, 2, knowledge_range(21, 25, event(22, 0)), first=True)
    node.router.receive(STOCKS, 2, knowledge_range(28, 30, event(29, 0)), first=True)
    node.router.receive(STOCKS, 2, knowledge_range(26, 27, event(27, 1)), first=False)
    line.run(ms=200)
    assert line.ticks() == [27]
    assert line.ranges() == [knowledge_range(21, 30, event(27, 1))]


def test_an_event_received_before_withheld_silence_is_not_sent_as_silence() -> None:
    # R35: a retransmitted tick was not matched for a receiver that did not nack it
    line = fed("pn")
    node = line.nodes["n"]
    node.wanted = lambda each: each.attributes["a"] == 1
    node.router.receive(STOCKS, 2, knowledge_range(24, 24, event(24, 1)), first=False)
    node.router.receive(
        STOCKS, 2, knowledge_range(21, 25, event(22, 0)), first=True
    )  # in this range 24 is F
    node.router.receive(STOCKS, 2, knowledge_range(26, 27, event(27, 1)), first=False)
    node.router.receive(STOCKS, 2, knowledge_range(28, 30, event(29, 0)), first=True)
    line.run(ms=200)
    assert line.ranges() == [knowledge_range(21, 30, event(24, 1), event(27, 1))]


def test_tables_are_chosen_by_the_vector_of_the_stream_epoch_and_by_none_if_it_is_not_known() -> (
    None
):
    # R24: without the vector of the stream epoch no table is sufficient
    line = fed("pn")
    line.publish(knowledge_range(21, 25, event(22, 1)))
    line.publish(knowledge_range(26, 30, event(28, 1), stream_epoch=7))
    line.run(ms=5)
    known, unknown = line.nodes["n"].vectors[0], line.nodes["n"].vectors[-1]
    assert known is not None
    assert known.entries == {}
    assert unknown is None


def test_a_log_becomes_eager_while_receivers_wait_in_total_order() -> None:
    # R30, R51
    line = Line("pan")
    line.attach("r1", 2, eager=True)
    line.attach("r2", 4, eager=True)
    line.run(ms=20)
    assert line.log.eager
    line.send("r1", Detach(STOCKS, 2))
    line.run(ms=10)
    assert line.log.eager
    line.attach("r2", 4, eager=False)
    line.run(ms=10)
    assert not line.log.eager


def test_eager_silence_ends_with_the_session_of_the_last_eager_receiver() -> None:
    line = Line("pn")
    line.attach("r1", 2, eager=True)
    line.attach("r2", 4)
    line.run(ms=20)
    assert line.log.eager
    line.nodes["n"].router.session_closed("r1")
    line.run(ms=2_100)
    assert not line.log.eager


def test_only_the_greatest_advance_request_is_forwarded() -> None:
    # R51
    line = Line("pan")
    for receiver, number in (("r1", 2), ("r2", 4), ("r3", 6)):
        line.attach(receiver, number, eager=True)
    line.run(ms=20)
    for receiver, tick in (("r1", 500), ("r2", 400), ("r3", 500), ("r1", 600)):
        line.send(receiver, AdvanceRequest(STOCKS, tick))
    line.run(ms=10)
    assert line.log.advances == [500, 600]


def test_a_repeated_advance_request_is_forwarded_since_the_first_may_be_lost() -> None:
    line = Line("pan")
    line.attach(eager=True)
    line.run(ms=20)
    line.send("r", AdvanceRequest(STOCKS, 500))
    line.run(ms=2)
    line.flying.clear()  # lost between n and a
    line.send("r", AdvanceRequest(STOCKS, 500))
    line.run(ms=10)
    assert line.log.advances == []
    line.run(ms=50)
    line.send("r", AdvanceRequest(STOCKS, 400))
    line.run(ms=10)
    assert line.log.advances == [500]


def test_a_new_feeder_receives_the_advance_request_at_once() -> None:
    line = Line("pan")
    line.attach(eager=True)
    line.run(ms=20)
    line.send("r", AdvanceRequest(STOCKS, 500))
    line.run(ms=5)
    line.nodes["n"].router.session_closed("a")
    line.run(ms=15)
    line.send("r", AdvanceRequest(STOCKS, 500))
    line.run(ms=5)
    assert line.count(AdvanceRequest, "n", "a") == 2


def test_an_advance_request_below_the_top_is_answered_from_the_cache() -> None:
    line = fed("pn", Parameters(silence_ms=100))
    line.publish(knowledge_range(21, 40))
    line.nodes["n"].router.receive(STOCKS, 2, knowledge_range(21, 40), first=True)
    line.send("r", AdvanceRequest(STOCKS, 30))
    line.run(ms=5)
    assert line.ranges() == [knowledge_range(21, 40)]
    assert line.log.advances == []


def test_a_receiver_that_attached_before_the_pubend_was_opened_is_fed_when_it_opens() -> None:
    line = Line("pn")
    line.nodes["p"].feeder = None
    line.nodes["n"].feeder = "p"
    line.attach(number=4, pubend=BONDS)
    line.run(ms=50)
    assert line.received.get("r") is None
    line.nodes["p"].router.host(BONDS, Log(), 0)
    line.run(ms=50)
    assert line.received["r"] == [Attached(BONDS, 4, 0)]
    assert line.nodes["n"].router.feeder(BONDS) == "p"
    assert line.nodes["p"].router.feeder(BONDS) is None


def test_a_router_returns_the_top_of_a_stream() -> None:
    line = fed()
    assert line.nodes["n"].router.top(STOCKS) == 20
    assert line.nodes["n"].router.top(BONDS) == 0
