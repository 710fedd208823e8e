"""The overlay when the tree around a broker changes (R13)."""

from __future__ import annotations

import msgspec

from gapless.core.context import Context, Identity
from gapless.core.parameters import Parameters
from gapless.messages.overlay import Hello
from gapless.overlay.sessions import PeerSessions
from gapless.overlay.tree import TreeChange
from tests.overlay.small_world import SmallWorld, line, neighbourhood_of
from tests.shape_versions import shape

# --- the neighbourhood ----------------------------------------------------------------------------


def test_the_path_to_a_cell_just_outside_is_derived_from_its_neighbour() -> None:
    near = neighbourhood_of("a", "ab", "bc", "cd")
    assert "c" not in near
    assert near.extended_path("c") == ("b", "c")
    assert near.extended_path("b") == ("b",)
    assert near.extended_path("a") == ()
    assert near.extended_path("d") is None


def test_an_edge_has_an_epoch_only_while_it_is_live() -> None:
    near = neighbourhood_of("a", "ab", "bc", "cd", ab=3)
    assert near.epoch("a", "b") == near.epoch("b", "a") == shape(3)
    assert near.epoch("b", "c") == near.epoch("c", "b") == shape(1), "c is just outside"
    assert near.epoch("a", "c") is None
    assert near.epoch("c", "d") is None, "nothing is known of it"


# --- sessions -------------------------------------------------------------------------------------


def test_sessions_within_the_new_neighbourhood_continue_and_others_end() -> None:
    world = SmallWorld(line("a", "b", "c"), Parameters(delta=1))
    world.run(ms=50)
    node = world.nodes["a"]
    incarnation = node.sessions.incarnation_of("b")
    change = node.change_tree(line("a", "b").neighbourhood("a", 2, version=2))
    node.partitions.reshape(change)
    node.sessions.reshape(change)
    assert node.closed == ["c"]
    assert node.sessions.open_peers() == ["b"]
    assert node.sessions.incarnation_of("b") == incarnation
    assert not node.sessions.is_open("c")


def test_the_session_of_a_broker_that_returns_has_a_greater_number() -> None:
    class NoListener:
        session_opened = session_closed = received = table_states_received = staticmethod(
            lambda *_: None
        )
        peer_congested = peer_drained = staticmethod(lambda _: None)
        table_states = staticmethod(lambda _: ())
        records_differ = packet_received_outside = unsent = staticmethod(lambda *_: None)

    context = Context(Identity("a", "a", 7), Parameters())
    near, alone = neighbourhood_of("a", "ab"), neighbourhood_of("a", "ac", version=2)
    sessions = PeerSessions(context, near, NoListener())
    sessions.start()
    sessions.link_up("b")
    sessions.reshape(TreeChange(near, alone))
    sessions.link_up("b")
    third = msgspec.structs.replace(near, version=3)
    sessions.reshape(TreeChange(alone, third))
    sessions.link_up("b")
    hellos = [each.packet for each in context.effects]  # type: ignore[union-attr]
    assert all(isinstance(each, Hello) for each in hellos)
    assert [each.own.number for each in hellos] == [1, 2], (
        "no handshake is sent to an unknown broker"
    )


# --- partitions -----------------------------------------------------------------------------------


def test_a_cell_that_left_the_neighbourhood_is_no_partition() -> None:
    world = SmallWorld(line("a", "b", "c"), Parameters(delta=1))
    world.run(ms=50)
    node = world.nodes["a"]
    del world.nodes["c"]
    world.run(ms=3_000)
    assert str(node.partitions.table()[0]) == "a/1: cells c"
    node.partitions.reshape(node.change_tree(line("a", "b").neighbourhood("a", 2, version=2)))
    assert [each.detector for each in node.partitions.table()] == ["b"], "b still has the partition"
