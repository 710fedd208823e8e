"""Control sessions between brokers that are not in each other's neighbourhood (RS-35)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.ids import BrokerId
from gapless.messages.overlay import (
    Announce,
    CellMember,
    ControlFrame,
    Hello,
    PeerSessionId,
    RecordPush,
    RecordWant,
)
from gapless.overlay.control_sessions import ControlSessions
from gapless.overlay.session import PROTOCOL
from tests.scenarios.brokers import World


def sessions(world: World, name: BrokerId) -> ControlSessions:
    return world[name].components.control_sessions


def require(world: World, name: BrokerId, *others: BrokerId, owner: str = "test") -> None:
    """Let a broker require control sessions with others."""
    sessions(world, name).require(owner, [CellMember(other) for other in others])
    world.happen(name, None)


def distant(**parameters: int) -> World:
    """Return p - n - c with δ = 0, so p and c are no neighbours, and p requires c."""
    world = World("p-n-c", cells=None, **parameters)
    world.records_travel = True
    require(world, "p", "c")
    world.run(s=1)
    return world


def hear(world: World, name: BrokerId) -> list[tuple[BrokerId, Any]]:
    """Return the messages that a broker gets from now on."""
    heard: list[tuple[BrokerId, Any]] = []
    world[name].observers.append(lambda peer, message: heard.append((peer, message)))
    return heard


def exchange_records(world: World, source: BrokerId, target: BrokerId) -> bool:
    """Ask for a record over the control session; return whether it came."""
    heard = hear(world, source)
    sessions(world, source).send(target, RecordWant((target,)))
    world.happen(source, None)
    world.run(ms=10)
    return any(peer == target and isinstance(each, RecordPush) for peer, each in heard)


# --- a session --------------------------------------------------------------------------------------


def test_a_required_session_opens_at_both_ends_and_carries_messages_both_ways() -> None:
    world = distant()
    assert sessions(world, "p").is_open("c")
    assert sessions(world, "c").is_open("p")
    assert not world["p"].components.sessions.is_open("c"), "it is no peer session"
    assert exchange_records(world, "p", "c")
    assert exchange_records(world, "c", "p")


def test_two_brokers_that_require_each_other_have_one_session() -> None:
    world = distant()
    require(world, "c", "p")
    world.run(s=1)
    assert sessions(world, "p").open_brokers() == ["c"]
    assert sessions(world, "c").open_brokers() == ["p"]
    assert exchange_records(world, "p", "c")


def test_a_peer_needs_no_control_session() -> None:
    world = World("p-n-c")
    require(world, "p", "n", "p")
    world.run(s=1)
    assert sessions(world, "p").is_open("n")
    assert sessions(world, "p").open_brokers() == []


def test_a_message_without_a_session_is_lost() -> None:
    world = World("p-n-c")
    world.records_travel = True
    assert not exchange_records(world, "p", "c")
    assert not sessions(world, "p").is_open("c")


def test_a_session_is_restored_after_a_crash_of_either_end() -> None:
    world = distant()
    world.restart("c")
    world.run(s=1)
    assert exchange_records(world, "p", "c")
    world.restart("p")
    world.run(s=1)
    assert not sessions(world, "c").is_open("p"), "requirements are not durable"
    require(world, "p", "c")
    world.run(s=1)
    assert exchange_records(world, "p", "c")


def test_a_session_that_dies_opens_again() -> None:
    world = distant()
    world.cut("p", "c")
    world.run(s=1)
    assert not sessions(world, "p").is_open("c")
    world.heal("p", "c")
    world.run(s=1)
    assert sessions(world, "p").is_open("c")
    world.mute("c", "p")
    world.run(s=5)
    assert not sessions(world, "p").is_open("c"), "without echo"
    world._cuts.clear()
    world.run(s=1)
    assert exchange_records(world, "p", "c")


# --- the end of a session ---------------------------------------------------------------------------


def test_a_session_is_kept_while_it_is_required_and_closed_when_it_is_idle() -> None:
    world = distant()
    world.run(s=60)
    assert sessions(world, "p").is_open("c")
    assert sessions(world, "c").is_open("p")
    require(world, "p")
    world.run(s=29)
    assert sessions(world, "p").is_open("c")
    world.run(s=3)
    for one, other in ("pc", "cp"):
        assert not sessions(world, one).is_open(other)
        assert other not in world.nodes[one].linked


def test_messages_keep_a_session_that_nothing_requires() -> None:
    world = distant()
    require(world, "p")
    for _ in range(4):
        world.run(s=20)
        assert exchange_records(world, "c", "p")


def test_two_owners_require_sessions_independently() -> None:
    world = distant()
    require(world, "p", "c", owner="other")
    require(world, "p")
    world.run(s=60)
    assert sessions(world, "p").is_open("c")


def test_without_control_sessions_no_timer_runs() -> None:
    world = distant(control_session_idle_ms=1_000)
    require(world, "p")
    world.run(s=5)
    assert not sessions(world, "p")._is_ticking
    assert not sessions(world, "c")._is_ticking


# --- limits -----------------------------------------------------------------------------------------


def star(leaves: int, **parameters: int) -> World:
    """Return a hub with leaves, which are no neighbours of each other."""
    return World(*[f"hub-l{number}" for number in range(leaves)], cells=None, **parameters)


def test_a_broker_has_a_limited_number_of_sessions() -> None:
    world = star(5, control_sessions_max=2)
    require(world, "l0", "l1", "l2", "l3")
    world.run(s=1)
    assert sessions(world, "l0").open_brokers() == ["l1", "l2"]
    assert world["l0"].coverage_marks["too many control sessions"]


def test_a_session_that_others_need_gives_way_to_one_that_this_broker_needs() -> None:
    world = star(5, control_sessions_max=2)
    require(world, "l1", "l0")
    world.run(ms=100)
    require(world, "l2", "l0")
    world.run(ms=100)
    require(world, "l0", "l3")
    world.run(s=1)
    assert sessions(world, "l0").open_brokers() == ["l2", "l3"]


def test_a_link_for_which_there_is_no_room_is_ended() -> None:
    world = star(5, control_sessions_max=1)
    require(world, "l0", "l1")
    world.run(s=1)
    require(world, "l2", "l0")
    world.run(s=1)
    assert sessions(world, "l0").open_brokers() == ["l1"]
    assert "l2" not in world.nodes["l0"].linked
    assert "l0" not in world.nodes["l2"].linked


# --- what may pass ----------------------------------------------------------------------------------


def test_a_control_session_carries_no_other_message() -> None:
    world = distant()
    with pytest.raises(AssertionError, match="no control message"):
        sessions(world, "p").send("c", Hello("p", "p", PeerSessionId(1, 1), None, PROTOCOL, 0))
    heard = hear(world, "c")
    sessions(world, "p")._allowed |= {Announce}
    forged = Announce(("P", 1), 1, None, ())  # type: ignore[arg-type]
    sessions(world, "p").send("c", forged)
    world.happen("p", None)
    world.run(ms=10)
    assert not heard
    assert world["c"].coverage_marks["message that no control session carries"] == 1


def test_frames_of_no_session_are_dropped() -> None:
    world = distant()
    hello = Hello("x", "x", PeerSessionId(1, 1), None, PROTOCOL, 0)
    for packet in (ControlFrame(hello), ControlFrame("nonsense"), hello):
        world[("c")].components.sessions.received("x", packet)
    world.run(s=1)
    assert sessions(world, "c").open_brokers() == ["p"]


# --- steps of the tree ------------------------------------------------------------------------------


def shifted_world() -> World:
    """Return p - n - c in which c moves to p; c and p have a control session."""
    world = distant()
    world.records_travel = False
    world.shift("c", "n", "p")
    return world


def test_after_the_steps_of_both_ends_a_peer_session_takes_its_place() -> None:
    world = shifted_world()
    world.apply_tree("p")
    world.run(ms=10)
    assert not world["p"].components.sessions.is_open("c")
    assert sessions(world, "p").is_open("c"), "c has not stepped and has no peer session"
    world.records_travel = True
    assert exchange_records(world, "p", "c")
    world.records_travel = False
    world.apply_tree("c", "n")
    world.run(s=1)
    for one, other in ("pc", "cp"):
        assert world[one].components.sessions.is_open(other)
        assert sessions(world, one).open_brokers() == []
        assert sessions(world, one).is_open(other)


def test_the_hello_of_a_broker_that_is_no_neighbour_yet_is_deferred_until_the_step() -> None:
    world = shifted_world()
    world.apply_tree("p")
    world.run(ms=600)
    assert world["c"].coverage_marks["hello of a broker that is no neighbour yet"]
    world.apply_tree("c")
    at = world.now
    assert world.wait(lambda: world["c"].components.sessions.is_open("p"))
    assert world.now - at < 5_000, "a write and a round trip, no further Hello of p"


def test_brokers_that_are_no_neighbours_any_more_keep_the_session_that_they_require() -> None:
    world = World("p-n-c")
    require(world, "c", "n")
    world.shift("c", "n", "p")
    world.apply_tree("c", "n", "p")
    world.run(s=1)
    assert not world["c"].components.sessions.is_open("n")
    assert sessions(world, "c").is_open("n")
    assert sessions(world, "n").is_open("c")
