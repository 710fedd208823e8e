"""The overlay when the tree around a broker changes (R13)."""

from __future__ import annotations

import msgspec
import pytest

from gapless.core.ids import PubendId
from gapless.core.machine import Context, Identity
from gapless.core.parameters import Parameters
from gapless.directory.announcements import UNCONFIRMED, Announcements
from gapless.messages.overlay import Announce, CellInfo, Hello, PubendProperties
from gapless.overlay.neighbourhood import Neighbourhood, Topology
from gapless.overlay.sessions import PeerSessions
from tests.overlay.small_world import SmallWorld, line

P = PubendId("P")


def neighbourhood_of(own: str, *edges: str, version: int = 1, **shapes: int) -> Neighbourhood:
    """Return what a broker of a cell knows within one edge; cells are their only brokers."""
    pairs = [(edge[0], edge[1]) for edge in edges]
    cells = {cell: [cell] for pair in pairs for cell in pair}
    made = Topology.of(cells, pairs)
    infos = [
        CellInfo(each.name, each.brokers, each.neighbours, shapes.get(each.name, 1))
        for each in made.cells
    ]
    return Topology(tuple(infos)).neighbourhood(own, 1, version)


# --- the neighbourhood ----------------------------------------------------------------------------


def test_the_way_to_a_cell_just_outside_is_known_by_its_neighbour() -> None:
    near = neighbourhood_of("a", "ab", "bc", "cd")
    assert "c" not in near
    assert near.extended_path("c") == ("b", "c")
    assert near.extended_path("b") == ("b",)
    assert near.extended_path("a") == ()
    assert near.extended_path("d") is None


def test_both_ends_name_the_shapes_between_them_alike_without_those_never_reshaped() -> None:
    assert neighbourhood_of("a", "ab", b=3).shapes_between("b") == (("b", 3),)
    assert neighbourhood_of("b", "ab", b=3).shapes_between("a") == (("b", 3),)
    assert neighbourhood_of("a", "ab", a=2, b=3).shapes_between("b") == (("a", 2), ("b", 3))
    assert neighbourhood_of("a", "ab").shapes_between("b") == ()


# --- sessions -------------------------------------------------------------------------------------


def test_sessions_with_those_who_are_still_around_go_on_and_the_others_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = SmallWorld(line("a", "b", "c"), Parameters(delta=1))
    world.run(ms=50)
    node = world.nodes["a"]
    incarnation = node.sessions.incarnation_of("b")
    node.neighbourhood = line("a", "b").neighbourhood("a", 2, version=2)
    node.partitions.reshape(node.neighbourhood)
    monkeypatch.setattr(node, "session_closed", node.closed.append)
    node.sessions.reshape(node.neighbourhood)
    assert node.closed == ["c"]
    assert node.sessions.open_peers() == ["b"]
    assert node.sessions.incarnation_of("b") == incarnation
    assert not node.sessions.is_open("c")


def test_a_broker_that_returns_is_greeted_with_a_greater_number() -> None:
    class Nobody:
        session_opened = session_closed = received = table_states_received = staticmethod(
            lambda *_: None
        )
        peer_congested = peer_drained = staticmethod(lambda _: None)
        table_states = staticmethod(lambda _: ())

    context = Context(Identity("a", "a", 7), Parameters())
    near, alone = neighbourhood_of("a", "ab"), neighbourhood_of("a", "ac", version=2)
    sessions = PeerSessions(context, near, Nobody())
    sessions.link_up("b")
    sessions.reshape(alone)
    sessions.link_up("b")
    sessions.reshape(msgspec.structs.replace(near, version=3))
    sessions.link_up("b")
    hellos = [each.packet for each in context.effects]  # type: ignore[union-attr]
    assert all(isinstance(each, Hello) for each in hellos)
    assert [each.own.number for each in hellos] == [1, 2], "a stranger is not greeted"
    assert [each.topology_version for each in hellos] == [1, 3]


# --- the ways to pubends --------------------------------------------------------------------------


def announcements(near: Neighbourhood) -> Announcements:
    context = Context(Identity(near.own, near.own, 1), Parameters(delta=0))

    class Alone(PeerSessions):
        def __init__(self) -> None:
            """Reach nobody."""

        def open_peers(self) -> list[str]:
            return []

    return Announcements(context, near, Alone())


def announcement(path: str, version: int = 1, shape_version: int = 1) -> Announce:
    properties = PubendProperties(path[-1], path[-1], "TRUE")
    return Announce(P, version, properties, tuple(path), shape_version=shape_version)


def path(room: Announcements) -> str | None:
    known = room.get(P)
    return None if known is None else "".join(known.path)


def test_a_cell_that_moves_reaches_what_it_left_through_its_new_neighbour() -> None:
    # i leaves j for k; the pubend is at m, behind j
    room = announcements(neighbourhood_of("i", "ij", "jk", "jm"))
    room.received("j", announcement("jm"))
    assert room.reshape(neighbourhood_of("i", "ik", "kj", "jm", version=2)) == [P]
    assert path(room) == "kj", "Δ + 1 cells are kept"


def test_a_cell_that_moves_next_to_a_pubend_is_nearer_to_it() -> None:
    room = announcements(neighbourhood_of("i", "ij", "jk"))
    room.received("j", announcement("jk"))
    room.reshape(neighbourhood_of("i", "ik", "kj", version=2))
    assert path(room) == "k"


def test_the_new_neighbour_finds_what_moved_where_it_is_now() -> None:
    room = announcements(neighbourhood_of("k", "ij", "jk", "ix"))
    room.received("j", announcement("ji"))
    room.reshape(neighbourhood_of("k", "ik", "jk", "ix", version=2))
    assert path(room) == "i"


def test_a_way_that_has_not_changed_is_not_told_again() -> None:
    room = announcements(neighbourhood_of("k", "ij", "jk"))
    room.received("j", announcement("j"))
    assert room.reshape(neighbourhood_of("k", "ik", "jk", version=2)) == []


def test_what_lay_behind_an_edge_that_is_gone_is_forgotten_until_it_is_announced_again() -> None:
    room = announcements(neighbourhood_of("j", "ij", "jk"))
    room.received("i", announcement("ix"))
    assert room.reshape(neighbourhood_of("j", "jk", version=2)) == [P]
    assert room.get(P) is None
    assert room.received("k", announcement("ki"))


def test_how_the_way_goes_on_is_heard_from_the_direction_it_has() -> None:
    room = announcements(neighbourhood_of("m", "mj", "ji"))
    room.received("j", announcement("ji"))
    assert room.received("j", announcement("jk"))
    assert path(room) == "jk"
    assert not room.received("j", announcement("jk")), "once"


def test_another_direction_is_not_believed_of_one_who_may_not_have_heard() -> None:
    room = announcements(neighbourhood_of("k", "ik", "jk", i=2, j=2))
    room.received("i", announcement("i", shape_version=2))
    assert not room.received("j", announcement("jm", shape_version=1))
    assert not room.received("j", announcement("jm", shape_version=2)), (
        "the way that is known is confirmed"
    )
    assert path(room) == "i"


def test_a_way_from_before_a_change_gives_way_to_one_that_is_told_after_it() -> None:
    room = announcements(neighbourhood_of("k", "ik", "jk", i=2, j=2))
    room.received("j", announcement("jm", shape_version=1))
    assert room.received("i", announcement("i", shape_version=2))
    assert path(room) == "i"


def test_a_way_from_before_a_change_is_confirmed_by_being_told_again() -> None:
    room = announcements(neighbourhood_of("k", "ik", "jk", i=2, j=2))
    room.received("j", announcement("jm", shape_version=1))
    assert not room.received("j", announcement("jm", shape_version=2)), "it is no news"
    assert not room.received("i", announcement("i", shape_version=2))
    assert path(room) == "jm"


def test_a_way_is_confirmed_only_by_one_whose_own_way_is() -> None:
    room = announcements(neighbourhood_of("k", "ik", "jk", i=2, j=2))
    room.received("j", announcement("jm", shape_version=1))
    assert not room.received("i", announcement("i", shape_version=UNCONFIRMED))
    assert path(room) == "jm"


def test_a_way_that_was_told_by_a_cell_that_is_gone_is_not_confirmed() -> None:
    room = announcements(neighbourhood_of("k", "jk", "jm"))
    room.received("j", announcement("jm"))
    room.reshape(neighbourhood_of("k", "ik", "im", version=2, i=2))
    assert path(room) == "im"
    assert room.received("i", announcement("ij", shape_version=2))


def test_who_is_confirmed_says_so_and_who_is_not_does_not() -> None:
    room = announcements(neighbourhood_of("k", "kj", "kn", j=2))
    sessions = room._sessions
    sessions.open_peers = lambda: ["n"]  # type: ignore[method-assign]
    room.received("j", announcement("jm", shape_version=1))
    room.received("j", announcement("jm", shape_version=2))
    room.received("j", announcement("jm", shape_version=2))
    ((_, messages),) = room._context.take_messages()
    assert [each.shape_version for each in messages] == [UNCONFIRMED, 1], "once each"


def test_what_is_told_in_a_shape_to_come_is_confirmed_when_it_is_there() -> None:
    room = announcements(neighbourhood_of("k", "jk"))
    room.received("j", announcement("jm", shape_version=1))
    room.received("j", announcement("jm", shape_version=2))
    room.reshape(neighbourhood_of("k", "ik", "jk", version=2, j=2))
    assert not room.received("i", announcement("ij")), "j was ahead of this broker"
    assert path(room) == "jm"


# --- partitions -----------------------------------------------------------------------------------


def test_a_cell_that_was_left_is_no_partition() -> None:
    world = SmallWorld(line("a", "b", "c"), Parameters(delta=1))
    world.run(ms=50)
    node = world.nodes["a"]
    del world.nodes["c"]
    world.run(ms=3_000)
    assert str(node.partitions.table()[0]) == "a/1: cells c"
    node.neighbourhood = line("a", "b").neighbourhood("a", 2, version=2)
    node.partitions.reshape(node.neighbourhood)
    assert [each.detector for each in node.partitions.table()] == ["b"], "b still misses it"
