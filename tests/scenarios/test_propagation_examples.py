"""Worked examples of propagation, on tables alone, step by step.

The numbers (14.3, …) are those of the rules' own list; P is a pubend at p. Each example is played
again with a rule removed, and must fail then.
"""

from __future__ import annotations

import pytest

from gapless.content.values import Attributes
from gapless.core.ids import PubendId
from gapless.core.parameters import microseconds
from gapless.propagation import Edge, OutTable, StreamVector, SubscriptionTable, TableChooser
from tests.propagation.world import World, cell_receiver, tree
from tests.scenarios.naive_propagation import (
    P,
    check_that_what_is_claimed_passes,
    claims_when_no_host_is_late,
    counts_if_a_table_of_the_edge_has_it,
    forgotten_at_once,
    never_behind_a_sibling,
    no_host_is_late,
    pruned_world,
    shb,
    vector_of,
)


def test_14_5_a_new_pubend_with_pruned_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    def claims() -> list[bool]:
        """Return whether z, c and n claim s for P towards p."""
        tables = [world[b].table_store.out[a].sender.table for b, a in ("zc", "cn", "np")]
        return [table.claim(shb("z"), P, 1) is not None for table in tables]

    def scenario() -> None:
        world.advertise("P", "p", "type = 'stock'", known_to=["p", "n"])
        world.settle()
        out = world["n"].table_store.out["p"].sender.table
        assert P in out.known, "1"
        check_that_what_is_claimed_passes(world)
        assert shb("z") in out.late.get(P, ()), "1: n does not claim hosts that do not know P"
        assert vector_of(world, "p").entries.keys() & {shb("z")} == set()
        world["c"].learn(P)
        world.settle()
        assert claims() == [False, False, False], "2"
        world["z"].learn(P)
        world.settle(("c", "z"))
        world["c"].table_store.flush()
        assert claims() == [True, True, False], "3: one hop after the other"
        world.settle()
        assert claims() == [True, True, True]
        assert vector_of(world, "p").entries[shb("z")].time.counter == world["z"].leaf.time.counter
        check_that_what_is_claimed_passes(world)
        # 4: c restarts between; n keeps its stale table until the new one claims as much
        edge = world["n"].table_store.edges["c"]
        world.start("c")
        world.settle(("c", "c"), ("c", "z"), ("n", "c"))
        assert edge.merged_stale is not None
        assert edge.claim(shb("z"), P, 1) is not None
        world["c"].learn(P)
        world["c"].learn(PubendId("W"))
        world.settle()
        assert edge.merged_stale is None

    world = pruned_world()
    scenario()
    world = pruned_world()
    monkeypatch.setattr(OutTable, "_late", no_host_is_late)
    with pytest.raises(AssertionError, match="lost"):
        scenario()


def test_14_5_a_subtree_that_is_cut_off_stays_late_and_delays_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def scenario() -> None:
        world = World(tree("z-c-n-p", "n-y"))
        world.advertise("W", "p", "type = 'weather'", known_to=world.brokers)
        for cell in ("z", "y"):
            world[cell].subscribe("x", "type = 'stock'")
        world.settle()
        # 5: c and z are cut off, and so do not learn that P opens
        world.advertise("P", "p", "type = 'stock'", known_to=["p", "n", "y"])
        world.settle()
        promised = vector_of(world, "p")
        assert shb("z") not in promised.entries
        assert world["p"].table_store.edges["n"].tables()[0].late == {P: {shb("c"), shb("z")}}
        assert shb("y") in promised.entries, "delayed: y waits for brokers that cannot answer"
        assert world["p"].choose(P, promised, cell_receiver("n")).tables is not None, "flood"
        for cell in ("c", "z"):
            world[cell].learn(P)
        world.settle()
        assert vector_of(world, "p").entries.keys() == {shb("y"), shb("z")}
        assert world["p"].table_store.edges["n"].tables()[0].late == {}

    scenario()
    monkeypatch.setattr(SubscriptionTable, "claim", claims_when_no_host_is_late)
    with pytest.raises(AssertionError, match="delayed"):
        scenario()


# --- 14.3 and 14.4: bypass, and a router's restart ------------------------------------------------


def wanting(name: str) -> Attributes:
    """Return an event that matches only the subscription at one cell."""
    return {"symbol": name}


@pytest.mark.parametrize("deep", [False, True])
def test_14_3_bypass_of_a_dead_cell_with_two_children(
    *, deep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def passes(receiver: str, name: str, promised: StreamVector) -> bool:
        return world["a"].passes(P, promised, cell_receiver(receiver), wanting(name))

    def scenario() -> None:
        promised = vector_of(world, "p")
        edge = world["a"].table_store.edges["n"]
        # 1: n crashes; its table is stale; c and d attach at a, which uses them as sources
        world.stop("n")
        world["a"].table_store.drop_stale(world.now)
        # 2: only the stale table exists: exact for the direction, not for each receiver
        for receiver in ("c", "d"):
            for name in (c, d):
                assert passes(receiver, name, promised), "lost"
            assert not passes(receiver, "nobody", promised), "flood"
        assert [held.current for held in edge.held()] == [False], "2"
        # 3: tables of c and d arrive: exact for each
        world.settle(("c", "c"), ("d", "d"), ("a", "c"), ("a", "d"))
        assert passes("c", c, promised), "lost"
        assert passes("d", d, promised), "lost"
        assert not passes("c", d, promised), "flood"
        assert not passes("c", "n", promised), "flood: n is between a and c"
        assert edge.claim(shb("n"), P, 1) is not None, "flood: n's own host is not claimed any more"
        # 4: a new subscription at c is sent directly to a and on to p
        world[c].subscribe("new", "symbol = 'new'")
        world.settle((c, c), ("c", c), ("a", "c"), ("p", "a"))
        claimed = vector_of(world, "p").entries
        later = StreamVector(2, 1, {**promised.entries, **claimed})
        assert later.entries[shb(c)] > promised.entries[shb(c)]
        assert shb("n") in later.entries, "n's host is not inactive yet"
        assert passes("c", "new", later), "lost"
        # 6: n restarts, empty; c's table stays while c is attached
        restarted = world.start("n")
        restarted.learn(P)
        assert restarted.passes(P, later, cell_receiver("c"), wanting("new")), "lost"
        world.settle(("n", "n"), ("n", "c"), ("n", "d"), ("a", "n"))
        assert not restarted.passes(P, later, cell_receiver("d"), wanting("new")), "flood"
        assert passes("n", "new", later), "lost"

    def bypassed() -> World:
        world = World(tree("p-a-n-c", "n-d", *(("c-cc", "d-dd") if deep else ())))
        world.advertise("P", "p", "", known_to=world.brokers)
        for cell in (c, d, "n"):
            world[cell].subscribe("x", f"symbol = '{cell}'")
        world.settle()
        return world

    c, d = ("cc", "dd") if deep else ("c", "d")
    world = bypassed()
    scenario()
    world = bypassed()
    if deep:
        monkeypatch.setattr(TableChooser, "_is_behind_a_sibling", never_behind_a_sibling)
    else:
        monkeypatch.setattr(Edge, "mark_stale", forgotten_at_once)
    with pytest.raises(AssertionError, match="flood"):
        scenario()


def test_14_3_a_dead_host_is_inactive_before_the_last_table_that_claims_it_is_dropped() -> None:
    def scenario(*, becomes_inactive: bool) -> None:
        def passes(name: str, promised: StreamVector) -> bool:
            return world["p"].passes(P, promised, cell_receiver("a"), wanting(name))

        world = World(tree("p-a-n-c", "n-d"))
        world.advertise("P", "p", "", known_to=world.brokers)
        for cell in "cdn":
            world[cell].subscribe("x", f"symbol = '{cell}'")
        world.settle()
        routed = vector_of(world, "p", stream_epoch=6)
        world.stop("n")
        bypass = (("c", "c"), ("d", "d"), ("a", "c"), ("a", "d"), ("p", "a"))
        world.settle(*bypass)
        assert not passes("nobody", routed), "a keeps n's stale table, which claims n's host"
        # 5: stream epoch 7 serves c and d only; by then the stale table may be dropped
        without_inactive = vector_of(world, "p", stream_epoch=7) if becomes_inactive else routed
        world.now += microseconds(s=world.parameters.stale_table_ttl_s)
        world["a"].table_store.drop_stale(world.now)
        world.settle(*bypass)
        assert world["a"].table_store.edges["n"].entry(shb("n")) is None
        for name in "cd":
            assert passes(name, without_inactive), "lost"
        assert not passes("nobody", without_inactive), "flood"
        assert without_inactive.entries.keys() == {shb("c"), shb("d")}
        # 6: n is up and reports; stream epoch 8 serves its host, in its new incarnation
        world.start("n").learn(P)
        world["n"].subscribe("x", "symbol = 'n'")
        world.settle()
        again = vector_of(world, "p", stream_epoch=8)
        assert again.entries[shb("n")] > routed.entries[shb("n")]
        assert passes("n", again), "lost"
        assert not passes("nobody", again), "flood"

    scenario(becomes_inactive=True)
    with pytest.raises(AssertionError, match="flood"):
        scenario(becomes_inactive=False)


def test_14_4_a_router_restarts_without_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario() -> None:
        world = World(tree("p-n-c", "n-d"))
        world.advertise("P", "p", "", known_to=world.brokers)
        for cell in ("c", "d"):
            world[cell].subscribe("x", f"symbol = '{cell}'")
        world.settle()
        promised = vector_of(world, "p", 9)
        edge = world["p"].table_store.edges["n"]
        # 1: p keeps the stale table beside the new, empty one: still exact
        restarted = world.start("n")
        world.exchange("p", "n")
        (current,) = edge.held_of("n")
        assert current.table is not None
        assert (current.table.version, current.table.known) == (1, {}), "1"
        for name, wanted in (("c", True), ("d", True), ("nobody", False)):
            passed = world["p"].passes(P, promised, cell_receiver("n"), wanting(name))
            assert passed == wanted, "flood" if passed else "lost"
        # 2: n has no tables, so it forwards
        restarted.learn(P)
        for receiver in ("c", "d"):
            assert restarted.passes(P, promised, cell_receiver(receiver), wanting("c")), "lost"
        # 3: with c's table the edge to c filters, with d's n is exact, and the stale table is
        # dropped
        world.settle(("n", "c"))
        assert not restarted.passes(P, promised, cell_receiver("c"), wanting("d")), "flood"
        assert restarted.passes(P, promised, cell_receiver("d"), wanting("c"))
        world.exchange("p", "n")
        assert edge.merged_stale is not None
        world.settle(("n", "d"), ("n", "n"), ("p", "n"))
        assert not restarted.passes(P, promised, cell_receiver("d"), wanting("c")), "flood"
        assert edge.merged_stale is None, "flood of stale tables"

    scenario()
    with monkeypatch.context() as patch:
        patch.setattr(Edge, "mark_stale", forgotten_at_once)
        with pytest.raises(AssertionError, match="flood"):
            scenario()
    monkeypatch.setattr(TableChooser, "_counts", counts_if_a_table_of_the_edge_has_it)
    monkeypatch.setattr(
        Edge, "settled", property(lambda _: True, lambda _edge, _value: None), raising=False
    )
    with pytest.raises(AssertionError, match="lost"):
        scenario()
