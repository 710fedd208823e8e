"""Sessions: fenced, ordered, and closed when heartbeats are missing in either direction."""

from __future__ import annotations

import pytest

from gapless.core.effects import Send
from gapless.core.parameters import DEFAULTS, Parameters, microseconds
from gapless.messages.overlay import Hello, Packet, PeerSessionId
from gapless.messages.streams import StreamEpochRequest
from gapless.overlay.sessions import PROTOCOL
from tests.overlay.small_world import SmallWorld, line

NOTE = StreamEpochRequest(("stocks", 1), 7)  # type: ignore[arg-type]


def pair(parameters: Parameters = DEFAULTS) -> SmallWorld:
    world = SmallWorld(line("a", "b"), parameters)
    world.run(ms=20)
    assert world.nodes["a"].sessions.is_open("b")
    assert world.nodes["b"].sessions.is_open("a")
    return world


def test_two_connected_brokers_have_one_session() -> None:
    world = pair()
    world.run(ms=5_000)
    assert [node.opened for node in world.nodes.values()] == [["b"], ["a"]]
    assert [node.closed for node in world.nodes.values()] == [[], []]


def test_messages_of_one_step_are_sent_in_one_packet_in_order() -> None:
    world = pair()
    notes = [StreamEpochRequest(("stocks", 1), number) for number in range(3)]  # type: ignore[arg-type]
    for note in notes:
        world.nodes["a"].context.send("b", note)
    world.sent.clear()
    world.run(ms=5)
    assert world.nodes["b"].received_messages == [("a", note) for note in notes]
    assert len([packet for source, _, packet in world.sent if source == "a"]) == 1


def test_silence_of_the_peer_ends_the_session_on_both_sides() -> None:
    world = pair()
    world.cut("a", "b")
    world.cut("b", "a")
    world.run(ms=DEFAULTS.session_timeout_ms + 2 * DEFAULTS.heartbeat_ms)
    assert world.nodes["a"].closed == ["b"]
    assert world.nodes["b"].closed == ["a"]


@pytest.mark.parametrize(("source", "target"), [("a", "b"), ("b", "a")])
def test_a_cut_in_one_direction_ends_the_session_on_both_sides(source: str, target: str) -> None:
    # R1, A28: heartbeats still arrive at one side, but no echo of its own
    world = pair()
    world.cut(source, target)
    world.run(ms=DEFAULTS.session_timeout_ms + 2 * DEFAULTS.heartbeat_ms)
    assert world.nodes["a"].closed == ["b"]
    assert world.nodes["b"].closed == ["a"]
    world.run(ms=5_000)
    assert not world.nodes["a"].sessions.is_open("b")
    assert not world.nodes["b"].sessions.is_open("a")
    world.heal(source, target)
    world.run(ms=1_000)
    assert world.nodes["a"].sessions.is_open("b")
    assert world.nodes["b"].sessions.is_open("a")


def test_a_session_ends_when_heartbeats_arrive_later_and_later() -> None:
    # R1: the link from a to b carries half of its load, so each receives the other all the time;
    # only the echo shows how old the heartbeats are
    world = pair()
    since, late = world.now, set[int]()
    for _ in range(2 * DEFAULTS.session_timeout_ms + 2 * DEFAULTS.heartbeat_ms):
        world.run(ms=1)
        for place, (at, source, target, packet) in enumerate(world.flying):
            if source == "a" and id(packet) not in late:
                late.add(id(packet))
                world.flying[place] = (at + world.now - since, source, target, packet)
    assert world.nodes["a"].closed == ["b"]
    assert world.nodes["b"].closed == ["a"]


def test_a_lost_packet_ends_an_ordered_session_and_a_new_one_opens() -> None:
    world = pair()
    world.nodes["a"].context.send("b", NOTE)
    world.run(ms=1)
    world.lose_packets()
    world.nodes["a"].context.send("b", NOTE)
    world.run(ms=50)
    assert world.nodes["b"].received_messages == []
    assert world.nodes["b"].context.coverage_marks["gap in a session"] == 1
    assert world.nodes["a"].opened == ["b", "b"]
    assert world.nodes["b"].opened == ["a", "a"]


def test_datagrams_may_be_lost_without_ending_the_session() -> None:
    world = pair(Parameters(ordered_sessions=False))
    world.nodes["a"].context.send("b", NOTE)
    world.run(ms=1)
    world.lose_packets()
    world.nodes["a"].context.send("b", NOTE)
    world.run(ms=50)
    assert world.nodes["b"].received_messages == [("a", NOTE)]
    assert world.nodes["b"].closed == []


def test_a_restarted_broker_is_a_new_session_for_its_peers() -> None:
    world = pair()
    world.start("a", "a", incarnation=2)
    world.run(ms=50)
    assert world.nodes["b"].closed == ["a"]
    assert world.nodes["b"].opened == ["a", "a"]
    assert world.nodes["a"].opened == ["b"]


def test_packets_of_an_older_session_are_ignored() -> None:
    # I12: packets in transit when a session ended arrive in the next one
    world = pair()
    world.nodes["a"].context.send("b", NOTE)
    world.run(ms=1)
    late = list(world.flying)
    world.lose_packets()
    world.start("a", "a", incarnation=2)
    world.run(ms=50)
    world.flying += [(world.now, source, target, packet) for _, source, target, packet in late]
    world.run(ms=5)
    assert world.nodes["b"].received_messages == []
    assert world.nodes["b"].sessions.is_open("a")


def test_a_hello_of_an_older_incarnation_is_ignored() -> None:
    world = pair()
    b = world.nodes["b"]
    b.sessions.received("a", Hello("a", "a", PeerSessionId(0, 9), None, PROTOCOL, 0))
    assert b.sessions.is_open("a")


def test_another_protocol_never_becomes_a_session() -> None:
    world = pair()
    b = world.nodes["b"]
    b.sessions.link_down("a")
    b.context.effects.clear()
    b.sessions.received("a", Hello("a", "a", PeerSessionId(5, 1), None, PROTOCOL + 1, 0))
    assert not b.sessions.is_open("a")
    assert b.context.coverage_marks["other protocol version"] == 1


def test_messages_of_unknown_brokers_and_without_a_session_are_dropped_and_counted() -> None:
    world = pair()
    b = world.nodes["b"]
    b.sessions.received("nobody", Packet(PeerSessionId(1, 1), PeerSessionId(1, 1), 1, (NOTE,)))
    b.sessions.link_down("a")
    b.context.send("a", NOTE)
    b.sessions.flush()
    assert not [effect for effect in b.context.effects if isinstance(effect, Send)]
    assert b.context.coverage_marks["packet from an unknown broker"] == 1
    assert b.context.coverage_marks["sent without a session"] == 1


def test_the_view_of_the_clock_is_the_median_of_the_neighbours() -> None:
    world = SmallWorld(line("a", "b", "c"), Parameters(delta=1))
    world.run(ms=600)
    node = world.nodes["b"]
    node.context.clock = world.now + microseconds(s=3_600)  # an hour ahead of both neighbours
    assert abs(node.sessions.clock_view() - world.now) <= microseconds(ms=10)
    node.context.clock = world.now - microseconds(s=3_600)
    assert abs(node.sessions.clock_view() - world.now) <= microseconds(ms=10)
