"""Best effort is replayed to receivers that attach again (RS-14)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.parameters import DEFAULTS, Parameters
from gapless.messages.streams import (
    Attach,
    Attached,
    AttachKind,
    BestEffortPosition,
    Detach,
    KnowledgeRange,
    StreamData,
)
from gapless.routing.replay_buffer import ReplayAccount, ReplayBuffer
from tests.routing.test_reshape import reshape
from tests.stream.small_streams import BONDS, Line, event


def at(tick: int, incarnation: int = 1) -> BestEffortPosition:
    return BestEffortPosition(incarnation, tick)


def batch(*ticks: int, incarnation: int = 1) -> KnowledgeRange:
    """Return a best-effort range, which has the incarnation of the PHB as its stream epoch."""
    events = tuple(event(tick, 0) for tick in ticks)
    return KnowledgeRange(ticks[0], ticks[-1], incarnation, 0, events)


# --- the buffer -----------------------------------------------------------------------------------


def taken(*batches: KnowledgeRange, parameters: Parameters = DEFAULTS) -> ReplayBuffer:
    buffer = ReplayBuffer(ReplayAccount())
    buffer.begin(at(0))
    for now, each in enumerate(batches):
        buffer.take(each, now * 1_000_000, parameters)
    return buffer


def ticks(ranges: Any) -> list[int]:
    return [each.tick for known in ranges for each in known.publications]


def test_a_buffer_returns_what_is_above_a_position_in_order() -> None:
    buffer = taken(batch(1, 3), batch(5), batch(2, 4, incarnation=2))
    assert ticks(buffer.after(at(1))) == [3, 5, 2, 4]
    assert ticks(buffer.after(at(5))) == [2, 4], "a greater incarnation may have lower ticks"
    assert ticks(buffer.after(at(2, incarnation=2))) == [4]
    assert (buffer.begins, buffer.top) == (at(0), at(4, incarnation=2))


def test_a_buffer_takes_nothing_twice_and_nothing_of_an_incarnation_that_is_over() -> None:
    buffer = taken(batch(3, 5))
    assert buffer.take(batch(2, 5), 0, DEFAULTS) is None
    again = buffer.take(batch(5, 6), 0, DEFAULTS)
    assert again is not None
    assert ticks([again]) == [6]
    buffer.take(batch(1, incarnation=2), 0, DEFAULTS)
    assert buffer.take(batch(9), 0, DEFAULTS) is None


def test_a_buffer_drops_what_is_too_old_and_is_complete_above_it() -> None:
    buffer = taken(*(batch(tick) for tick in range(1, 9)))
    assert ticks(buffer.after(at(0))) == [3, 4, 5, 6, 7, 8], "5 s are kept"
    assert buffer.begins == at(2)


def test_a_buffer_has_at_most_so_many_bytes_and_gives_them_back() -> None:
    account = ReplayAccount()
    buffer = ReplayBuffer(account)
    few = Parameters(replay_buffer_bytes=2_000)
    for tick in range(1, 100):
        buffer.take(batch(tick), 0, few)
        assert buffer.bytes == account.bytes <= 2_000
    assert buffer.begins is not None
    assert buffer.begins > at(80)
    buffer.clear()
    assert account.bytes == 0


# --- receivers ------------------------------------------------------------------------------------


def line(names: str, parameters: Parameters = DEFAULTS) -> Line:
    """Return routers between a best-effort pubend and a receiver."""
    made = Line(names, parameters)
    made.best_effort = {BONDS}
    made.nodes[made.first].router.host(BONDS, made.log, 0)
    return made


def attach(made: Line, receiver: str, number: int, after: BestEffortPosition | None) -> None:
    made.send(receiver, Attach(BONDS, number, AttachKind.CELL, receiver, after=after))


def replies(made: Line, receiver: str) -> list[BestEffortPosition | None]:
    return [each.at for each in made.received.get(receiver, []) if isinstance(each, Attached)]


def started(names: str, *batches: KnowledgeRange, parameters: Parameters = DEFAULTS) -> Line:
    """Return a line whose receiver r has received some ranges."""
    made = line(names, parameters)
    attach(made, "r", 2, None)
    made.run(ms=20)
    for each in batches:
        made.publish(each, BONDS)
        made.run(ms=5)
    return made


def test_a_new_receiver_gets_what_is_published_from_now_on() -> None:
    made = started("pmn", batch(1), batch(2))
    attach(made, "s", 2, None)
    made.run(ms=5)
    made.publish(batch(3), BONDS)
    made.run(ms=5)
    assert made.ticks("r") == [1, 2, 3]
    assert made.ticks("s") == [3]
    assert replies(made, "s") == [at(2)]


@pytest.mark.parametrize("names", ["p", "pn", "pmn"])
def test_a_receiver_that_attaches_again_gets_what_is_above_its_position(names: str) -> None:
    made = started(names, batch(1), batch(2, 3))
    attach(made, "s", 2, at(2))
    made.run(ms=5)
    made.publish(batch(4), BONDS)
    made.run(ms=5)
    assert made.ticks("s") == [3, 4]
    assert replies(made, "s") == [at(2)]
    assert made.ticks("r") == [1, 2, 3, 4]


def test_a_router_whose_buffer_begins_later_attaches_anew_and_nobody_gets_an_event_twice() -> None:
    made = started("pm", batch(1), batch(2))
    made.nodes["m"].router.routed[BONDS].replay.begin(at(2))
    attach(made, "s", 2, at(0))
    made.publish(batch(3), BONDS)
    made.run(ms=20)
    made.publish(batch(4), BONDS)
    made.run(ms=5)
    assert made.ticks("s") == [1, 2, 3, 4]
    assert made.ticks("r") == [1, 2, 3, 4]
    requests = [each for s, t, each in made.sent if (s, t) == ("m", "p")]
    assert [each.after for each in requests if isinstance(each, Attach)] == [None, at(0)]
    assert sum(isinstance(each, Detach) for each in requests) == 1


def test_a_router_asks_again_if_a_receiver_that_waits_needs_a_lower_position() -> None:
    made = started("pm", batch(1), batch(2), batch(3))
    made.nodes["m"].router.routed[BONDS].replay.begin(at(3))
    attach(made, "s", 2, at(2))
    made.run(ms=1)
    attach(made, "t", 2, at(1))
    made.run(ms=20)
    assert made.ticks("s") == [3]
    assert made.ticks("t") == [2, 3]
    assert made.ticks("r") == [1, 2, 3]


def test_only_the_phb_answers_with_a_higher_position_and_is_not_asked_again() -> None:
    made = started("pm", batch(7, incarnation=1))
    made.nodes["p"].router.routed[BONDS].replay.begin(at(7))
    made.nodes["m"].router.routed[BONDS].replay.begin(at(7))
    attach(made, "s", 2, at(3))
    made.run(ms=20)
    assert replies(made, "s") == [at(7)]
    assert made.nodes["p"].context.coverage_marks["best-effort events may be lost"] == 1
    before = made.count(Attach, "m", "p")
    attach(made, "t", 2, at(2))
    made.run(ms=20)
    assert replies(made, "t") == [at(7)]
    assert made.count(Attach, "m", "p") == before


def test_streams_are_requested_anew_only_so_often() -> None:
    made = started("pm", batch(1), batch(2), parameters=Parameters(replay_requests_max=3))
    replay = made.nodes["m"].router.routed[BONDS].replay
    for number in range(6):
        replay.begin(at(2))
        attach(made, f"s{number}", 2, at(0))
        made.run(ms=20)
    assert made.nodes["m"].context.coverage_marks["best effort requested again"] == 3
    assert [made.ticks(f"s{number}") for number in range(6)] == [[1, 2]] * 3 + [[]] * 3


def test_what_arrives_under_a_former_number_is_dropped() -> None:
    made = started("pm", batch(1))
    node = made.nodes["m"]
    node.router.receive(BONDS, 400, batch(9), first=True)
    made._collect(node)
    made.publish(batch(2), BONDS)
    made.run(ms=5)
    assert made.ticks("r") == [1, 2]


def test_a_new_incarnation_of_the_phb_continues_with_lower_ticks() -> None:
    made = started("pm", batch(8))
    made.publish(batch(3, incarnation=2), BONDS)
    made.run(ms=5)
    assert made.ticks("r") == [8, 3]


def test_all_buffers_together_are_bounded() -> None:
    few = Parameters(replay_buffers_bytes=3_000)
    made = started("pm", *(batch(tick) for tick in range(1, 60)), parameters=few)
    for node in made.nodes.values():
        assert node.router.routed[BONDS].replay.bytes <= 3_000
        assert node.context.coverage_marks["replay buffers full"] > 0
    data = [each for each in made.received["r"] if isinstance(each, StreamData)]
    assert len(data) == 59


# --- steps of the tree (RS-37) --------------------------------------------------------------------


@pytest.mark.parametrize("wider", [True, False])
def test_a_cell_that_gains_forgets_its_buffer_and_asks_for_what_a_new_receiver_needs(
    wider: bool,
) -> None:
    made = started("pm", batch(1), batch(2))
    node = made.nodes["m"]
    replay = node.router.routed[BONDS].replay
    reshape(made, node, wider=wider)
    assert ticks(replay.after(at(0))) == ([] if wider else [1, 2])
    attach(made, "s", 2, at(0))
    made.run(ms=20)
    made.publish(batch(3), BONDS)
    made.run(ms=5)
    assert made.ticks("r") == made.ticks("s") == [1, 2, 3]
    assert made.count(Attach, "m", "p") == (3 if wider else 1)
