"""Slow receivers are paused and nack omitted ticks at their own pace; others do not wait (R40)."""

from __future__ import annotations

from typing import Any

from gapless.core.parameters import Parameters
from gapless.core.ticks import TickRange
from gapless.messages.streams import AdvanceRequest, Attached, Nack, StreamData, StreamSilence
from gapless.routing.attachment_state import AttachmentState
from tests.stream.small_streams import BONDS, STOCKS, Line, event, knowledge_range


def fed(**parameters: Any) -> Line:
    """Let r and s be fed by n up to tick 20."""
    line = Line("pan", Parameters(**parameters))
    line.publish(knowledge_range(1, 20))
    line.attach("r", 2)
    line.attach("s", 4)
    line.run(ms=20)
    line.received.clear()
    return line


def congest(line: Line, receiver: str = "r") -> None:
    line.nodes["n"].router.pause_peer(receiver)


def drain(line: Line, receiver: str = "r") -> None:
    line.nodes["n"].router.resume_peer(receiver)


def test_a_congested_receiver_is_sent_nothing_while_others_are_served() -> None:
    line = fed()
    congest(line)
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.publish(knowledge_range(26, 29))
    line.run(ms=400)
    assert line.received.get("r", []) == []
    assert line.ticks("s") == [23]
    assert line.ranges("s")[-1].high == 29, "the silence after it too"
    assert line.nodes["n"].context.coverage_marks["receiver was slow"] == 1


def test_a_drained_receiver_continues_with_new_ticks_and_sees_a_gap() -> None:
    line = fed()
    congest(line)
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    drain(line)
    line.run(ms=250)
    assert line.ranges("r") == [], "omitted ticks are not sent unless they are nacked"
    line.publish(knowledge_range(26, 30, event(28, 1)))
    line.run(ms=10)
    assert line.ranges("r") == [knowledge_range(26, 30, event(28, 1))]


def test_omitted_ticks_are_sent_when_they_are_nacked() -> None:
    line = fed()
    congest(line)
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    drain(line)
    line.send("r", Nack(STOCKS, (TickRange(21, 25),)))
    line.run(ms=10)
    assert line.ranges("r") == [knowledge_range(21, 25, event(23, 1))]
    (frame,) = [each for each in line.received["r"] if isinstance(each, StreamData)]
    assert not frame.first


def test_ticks_nacked_by_a_congested_receiver_are_sent_when_it_has_drained() -> None:
    line = fed()
    congest(line)
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    line.send("r", Nack(STOCKS, (TickRange(21, 25),)))
    line.run(ms=250)
    assert line.received.get("r", []) == []
    drain(line)
    line.run(ms=10)
    assert line.ticks("r") == [23]


def test_nacked_ticks_that_the_cache_has_lost_meanwhile_are_nacked_upstream() -> None:
    line = fed()
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    line.received.clear()
    congest(line)
    line.send("r", Nack(STOCKS, (TickRange(21, 25),)))
    line.run(ms=250)
    line.nodes["n"].router._routed[STOCKS].stream.forget_all()
    drain(line)
    line.run(ms=100)
    assert line.ticks("r") == [23]


def test_a_retransmission_from_upstream_is_not_sent_to_a_congested_receiver() -> None:
    line = fed()
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    line.received.clear()
    line.nodes["n"].router._routed[STOCKS].stream.forget_all()
    line.send("r", Nack(STOCKS, (TickRange(21, 25),)))
    line.run(ms=1)
    congest(line)
    line.run(ms=250)
    assert line.count(Nack, "n", "a") == 1
    assert line.received.get("r", []) == []


def test_a_refresh_is_answered_with_the_sent_tick_so_that_the_gap_shows_at_once() -> None:
    line = fed()
    congest(line)
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    drain(line)
    line.attach("r", 2)
    line.run(ms=5)
    assert line.received["r"] == [Attached(STOCKS, 2, 25, relayed=False)]


def test_a_congested_receiver_that_attaches_again_starts_at_the_top_of_the_stream() -> None:
    line = fed()
    congest(line)
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    line.attach("r", 6)
    line.run(ms=5)
    assert line.received["r"] == [Attached(STOCKS, 6, 25, relayed=False)]
    drain(line)
    line.publish(knowledge_range(26, 30, event(28, 1)))
    line.run(ms=10)
    assert line.ticks("r") == [28]


def test_a_waiting_receiver_counts_as_sent_nothing() -> None:
    line = Line("pan")
    line.cuts |= {("a", "p"), ("p", "a")}
    line.attach("r", 2)
    line.run(ms=20)
    congest(line)
    drain(line)
    (held,) = line.nodes["n"].router._routed[STOCKS].attachments.values()
    assert held.state is AttachmentState.WAITING
    assert held.sent == 0


def test_a_drained_event_without_congestion_has_no_effect() -> None:
    # otherwise silence withheld for the timer would be omitted
    line = fed()
    line.nodes["n"].wanted = lambda each: each.attributes["a"] == 1
    line.publish(knowledge_range(21, 25, event(23, 0)))
    line.run(ms=5)
    drain(line)
    line.run(ms=250)
    assert line.ranges("r") == [knowledge_range(21, 25)]


def test_silence_is_not_sent_to_congested_receivers() -> None:
    line = fed()
    congest(line)
    line.publish(knowledge_range(21, 25))
    line.run(ms=400)
    assert [type(each) for each in line.received["s"]] == [StreamSilence]
    assert line.received.get("r", []) == []


def test_best_effort_events_are_lost_for_congested_receivers() -> None:
    # R33
    line = Line("pan")
    line.best_effort = {BONDS}
    line.nodes["p"].router.host(BONDS, line.log, 0)
    line.attach("r", 2, pubend=BONDS)
    line.attach("s", 4, pubend=BONDS)
    line.run(ms=20)
    congest(line)
    line.publish(knowledge_range(5, 5, event(5, 1), stream_epoch=1), BONDS)
    line.run(ms=20)
    drain(line)
    line.publish(knowledge_range(7, 7, event(7, 1), stream_epoch=1), BONDS)
    line.run(ms=20)
    assert (line.ticks("r"), line.ticks("s")) == ([7], [5, 7])


def test_an_advance_request_of_a_congested_receiver_is_not_answered() -> None:
    line = fed()
    congest(line)
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    line.send("r", AdvanceRequest(STOCKS, 25))
    line.run(ms=10)
    assert line.received.get("r", []) == []


def test_a_large_retransmission_is_sent_in_parts_one_for_each_nack() -> None:
    line = fed(frame_bytes_max=1)
    congest(line)
    for low in range(21, 141, 10):
        # with many events each, so that the knowledge ranges are not joined
        line.publish(knowledge_range(low, low + 9, *(event(low + index, 1) for index in range(10))))
    line.run(ms=10)
    drain(line)
    rounds = 0
    while len(line.ticks("r")) < 120:
        rounds += 1
        before = len(line.ticks("r"))
        line.send("r", Nack(STOCKS, (TickRange(21 + before, 140),)))
        line.run(ms=10)
        assert len(line.ticks("r")) > before
    assert line.ticks("r") == [*range(21, 141)]
    assert rounds > 1
