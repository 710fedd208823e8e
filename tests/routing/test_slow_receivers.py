"""Slow receivers are held back: they see a gap and ask at their own pace, nobody else waits (R40)."""

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


def full(line: Line, receiver: str = "r") -> None:
    line.nodes["n"].router.pause_peer(receiver)


def free(line: Line, receiver: str = "r") -> None:
    line.nodes["n"].router.resume_peer(receiver)


def test_a_slow_receiver_is_sent_nothing_and_others_are() -> None:
    line = fed()
    full(line)
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.publish(knowledge_range(26, 29))
    line.run(ms=400)
    assert line.received.get("r", []) == []
    assert line.ticks("s") == [23]
    assert line.ranges("s")[-1].high == 29, "the silence behind it too"
    assert line.nodes["n"].context.coverage_marks["receiver was slow"] == 1


def test_when_it_is_free_again_it_goes_on_with_what_comes_and_sees_a_gap() -> None:
    line = fed()
    full(line)
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    free(line)
    line.run(ms=250)
    assert line.ranges("r") == [], "what was left out is not sent by itself"
    line.publish(knowledge_range(26, 30, event(28, 1)))
    line.run(ms=10)
    assert line.ranges("r") == [knowledge_range(26, 30, event(28, 1))]


def test_what_it_missed_it_gets_when_it_asks() -> None:
    line = fed()
    full(line)
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    free(line)
    line.send("r", Nack(STOCKS, (TickRange(21, 25),)))
    line.run(ms=10)
    assert line.ranges("r") == [knowledge_range(21, 25, event(23, 1))]
    (frame,) = [each for each in line.received["r"] if isinstance(each, StreamData)]
    assert not frame.first


def test_what_a_slow_receiver_asks_for_is_not_sent_until_it_is_free_again() -> None:
    line = fed()
    full(line)
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    line.send("r", Nack(STOCKS, (TickRange(21, 25),)))
    line.run(ms=250)
    assert line.received.get("r", []) == []
    free(line)
    line.run(ms=10)
    assert line.ticks("r") == [23]


def test_what_it_asked_for_and_nobody_here_knows_any_more_is_asked_for_again() -> None:
    line = fed()
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    line.received.clear()
    full(line)
    line.send("r", Nack(STOCKS, (TickRange(21, 25),)))
    line.run(ms=250)
    line.nodes["n"].router._routed[STOCKS].stream.forget_all()
    free(line)
    line.run(ms=100)
    assert line.ticks("r") == [23]


def test_an_answer_from_afar_is_not_sent_to_who_has_become_slow() -> None:
    line = fed()
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    line.received.clear()
    line.nodes["n"].router._routed[STOCKS].stream.forget_all()
    line.send("r", Nack(STOCKS, (TickRange(21, 25),)))
    line.run(ms=1)
    full(line)
    line.run(ms=250)
    assert line.count(Nack, "n", "a") == 1
    assert line.received.get("r", []) == []


def test_how_far_it_was_sent_is_said_when_it_refreshes_so_that_it_sees_the_gap_at_once() -> None:
    line = fed()
    full(line)
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    free(line)
    line.attach("r", 2)
    line.run(ms=5)
    assert line.received["r"] == [Attached(STOCKS, 2, 25, relayed=False)]


def test_a_receiver_that_attaches_anew_while_it_is_slow_begins_where_the_stream_is() -> None:
    line = fed()
    full(line)
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    line.attach("r", 6)
    line.run(ms=5)
    assert line.received["r"] == [Attached(STOCKS, 6, 25, relayed=False)]
    free(line)
    line.publish(knowledge_range(26, 30, event(28, 1)))
    line.run(ms=10)
    assert line.ticks("r") == [28]


def test_who_waits_for_a_feed_is_not_said_to_have_been_sent_anything() -> None:
    line = Line("pan")
    line.cuts |= {("a", "p"), ("p", "a")}
    line.attach("r", 2)
    line.run(ms=20)
    full(line)
    free(line)
    (held,) = line.nodes["n"].router._routed[STOCKS].attachments.values()
    assert held.state is AttachmentState.WAITING
    assert held.sent == 0


def test_that_a_receiver_is_free_means_nothing_if_it_was_not_full() -> None:
    # else silence that was withheld for the timer would be left out
    line = fed()
    line.nodes["n"].wanted = lambda each: each.attributes["a"] == 1
    line.publish(knowledge_range(21, 25, event(23, 0)))
    line.run(ms=5)
    free(line)
    line.run(ms=250)
    assert line.ranges("r") == [knowledge_range(21, 25)]


def test_silence_goes_to_those_who_are_not_slow_only() -> None:
    line = fed()
    full(line)
    line.publish(knowledge_range(21, 25))
    line.run(ms=400)
    assert [type(each) for each in line.received["s"]] == [StreamSilence]
    assert line.received.get("r", []) == []


def test_best_effort_is_not_sent_to_the_slow_and_lost_for_them() -> None:
    # R33
    line = Line("pan")
    line.best_effort = {BONDS}
    line.nodes["p"].router.host(BONDS, line.log, 0)
    line.attach("r", 2, pubend=BONDS)
    line.attach("s", 4, pubend=BONDS)
    line.run(ms=20)
    full(line)
    line.publish(knowledge_range(5, 5, event(5, 1), stream_epoch=1), BONDS)
    line.run(ms=20)
    free(line)
    line.publish(knowledge_range(7, 7, event(7, 1), stream_epoch=1), BONDS)
    line.run(ms=20)
    assert (line.ticks("r"), line.ticks("s")) == ([7], [5, 7])


def test_who_is_slow_and_waits_in_total_order_is_not_sent_the_stream_for_that() -> None:
    line = fed()
    full(line)
    line.publish(knowledge_range(21, 25, event(23, 1)))
    line.run(ms=10)
    line.send("r", AdvanceRequest(STOCKS, 25))
    line.run(ms=10)
    assert line.received.get("r", []) == []


def test_a_large_answer_goes_out_in_parts_each_when_it_is_asked_for() -> None:
    line = fed(frame_bytes_max=1)
    full(line)
    for low in range(21, 141, 10):
        # with many events a piece, so that the pieces stay apart
        line.publish(knowledge_range(low, low + 9, *(event(low + index, 1) for index in range(10))))
    line.run(ms=10)
    free(line)
    rounds = 0
    while len(line.ticks("r")) < 120:
        rounds += 1
        before = len(line.ticks("r"))
        line.send("r", Nack(STOCKS, (TickRange(21 + before, 140),)))
        line.run(ms=10)
        assert len(line.ticks("r")) > before
    assert line.ticks("r") == [*range(21, 141)]
    assert rounds > 1
