"""Runs that break naive propagation, on tables alone, each by the rules and without its rule.

The names (A1, …) are those of the rules' own list; P is a pubend at p.
"""

from __future__ import annotations

import pytest

from gapless.propagation import (
    Edge,
    LeafTable,
    OutTable,
    StreamVector,
    SubscriptionTable,
    TableChooser,
    sufficiency,
)
from tests.propagation.world import World, cell_receiver, leaf_receiver, tree
from tests.scenarios.naive_propagation import (
    OTHER,
    STOCK,
    P,
    Speaker,
    at,
    check_that_what_is_claimed_passes,
    claims_without_control_version,
    counts_if_a_table_of_the_edge_has_it,
    dominated_in_vectors,
    elsewhere_if_another_table_has_it,
    forgotten_at_once,
    marked_for_ever,
    no_host_is_late,
    own_only_the_newest_form,
    pruned_world,
    run_by_the_rules_and_without,
    shb,
    vector_of,
)

# --- A1 -------------------------------------------------------------------------------------------


def test_a1_an_empty_slice_is_not_sufficient(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario() -> None:
        world = World(tree("p-n-c"), {"p": "p", "n": "n", "c": "c", "c'": "c"})
        world.advertise("P", "p", "", known_to=world.brokers)
        subscriber = world["c'"]
        subscriber.subscribe("x", "symbol = 'IBM'")
        world.settle()
        promised = vector_of(world, "p")
        assert subscriber.shb in promised.entries
        # n and the router c restart; n has c's table, which is complete and empty
        world.start("n")
        world.start("c")
        world.exchange("n", "c")
        assert world["n"].table_store.edges["c"].settled
        assert world["n"].passes(P, promised, cell_receiver("c"), STOCK), "lost"

    run_by_the_rules_and_without(
        scenario,
        [(TableChooser, "_counts", counts_if_a_table_of_the_edge_has_it)],
        monkeypatch,
    )


def test_an_edge_is_unsettled_until_a_full_table_has_arrived() -> None:
    world = World(tree("p-n-c"))
    world.advertise("P", "p", "", known_to=world.brokers)
    nobody = StreamVector(1, 1, {})
    assert world["n"].table_store.statistics()["unsettled"] == 3
    assert world["n"].passes(P, nobody, cell_receiver("c"), STOCK)
    world.settle()
    assert world["n"].table_store.statistics()["unsettled"] == 0
    assert not world["n"].passes(P, nobody, cell_receiver("c"), STOCK)


# --- A3, A4: a new pubend, and subscriptions that were pruned -----------------------------------


def test_a3_lateness_reaches_as_deep_as_the_subscribers(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario() -> None:
        world = pruned_world()
        world.advertise("P", "p", "type = 'stock'", known_to=["p"])
        for broker in ("n", "c", "z"):
            world[broker].learn(P)
            world.settle()
            check_that_what_is_claimed_passes(world)
        assert shb("z") in vector_of(world, "p").entries

    run_by_the_rules_and_without(scenario, [(OutTable, "_late", no_host_is_late)], monkeypatch)


def test_a4_the_known_pubends_of_a_table_end_with_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def scenario() -> None:
        world = pruned_world()
        world.advertise("P", "p", "type = 'stock'", known_to=world.brokers)
        world.settle()
        promised = vector_of(world, "p")
        assert shb("z") in promised.entries
        # c restarts, knows no pubend, and learns of s from z
        world.start("c")
        world.settle(("c", "c"), ("c", "z"), ("n", "c"))
        (current,) = world["n"].table_store.edges["c"].held_of("c")
        assert current.table is not None
        assert shb("z") in current.table.entries
        assert not current.table.conjunctions
        assert world["n"].passes(P, promised, cell_receiver("c"), STOCK), "lost"
        assert not world["n"].passes(P, promised, cell_receiver("c"), OTHER), "flood"

    run_by_the_rules_and_without(
        scenario,
        [
            (SubscriptionTable, "claim", marked_for_ever),
            (Edge, "drop_dominated", dominated_in_vectors),
        ],
        monkeypatch,
    )


# --- A5 -------------------------------------------------------------------------------------------


def lagging_peer() -> tuple[World, StreamVector]:
    """Cell n = {b1, b2}; a has b2's table; b1 lags for s2 and is ahead for s1."""
    world = World(
        tree("a-n", "n-s1", "n-s2"), {n: n for n in ("a", "s1", "s2")} | {"b1": "n", "b2": "n"}
    )
    world.advertise("P", "a", "", known_to=world.brokers)
    world["s1"].subscribe("x", "symbol = 'X'")
    world["s2"].subscribe("y", "symbol = 'Y'")
    world.settle(*world.links(), ("a", "b2"))
    world["s2"].subscribe("z", "symbol = 'IBM'")
    world.settle(("s2", "s2"), ("b2", "s2"), ("a", "b2"))
    world["a"].table_store.edges["n"].mark_stale("b1", 0)
    world["a"].table_store.edges["n"].merge_stale("b1", 0)
    world["a"].table_store.drop_stale(0)
    return world, vector_of(world, "a")


def test_a5_tables_of_two_brokers_are_kept_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    def scenario() -> None:
        world, promised = lagging_peer()
        edge = world["a"].table_store.edges["n"]
        assert [held.sender for held in edge.held()] == ["b2"]
        # the source changes to b1, which lags for s2 and receives a change of s1
        world["s1"].subscribe("w", "symbol = 'W'")
        world.settle(("s1", "s1"), ("b1", "s1"))
        edge.mark_stale("b2", world.now)
        world.exchange("a", "b1")
        assert edge.claim(shb("s1"), P, 1) == at(2)
        assert world["a"].passes(P, promised, cell_receiver("n"), STOCK), "lost"
        choice = world["a"].choose(P, promised, cell_receiver("n"))
        assert choice.tables is not None, "flood"
        assert not world["a"].passes(P, promised, cell_receiver("n"), OTHER), "flood"
        # b1 catches up: the stale table is not needed any more
        world.settle(("b1", "s2"), ("a", "b1"))
        assert [held.sender for held in edge.held()] == ["b1"]

    scenario()
    Speaker().install(monkeypatch)
    with pytest.raises(AssertionError, match="lost"):
        scenario()


def test_a5_taking_the_vector_as_sent_floods(monkeypatch: pytest.MonkeyPatch) -> None:
    world, promised = lagging_peer()
    monkeypatch.setattr(Edge, "mark_stale", forgotten_at_once)
    world["a"].table_store.edges["n"].mark_stale("b2", world.now)
    world.exchange("a", "b1")
    assert world["a"].choose(P, promised, cell_receiver("n")).tables is None


# --- A16: rights ----------------------------------------------------------------------------------


def test_a16_a_filter_needs_the_control_version_of_the_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def scenario() -> None:
        world = World(tree("p-n-c"))
        world.advertise("P", "p", "", known_to=world.brokers)
        subscriber = world["c"]
        subscriber.leaf.restrict(10)
        subscriber.subscribe("x at 10", "news = TRUE AND symbol = 'T'")
        world.settle()
        promised = vector_of(world, "p")
        # version 11 grants all news; p stamps it at once, the routers do not know of it
        for broker, receiver in (("p", "n"), ("n", "c")):
            passes = world[broker].passes
            assert passes(P, promised, cell_receiver(receiver), STOCK, 11), "lost"
            assert not passes(P, promised, cell_receiver(receiver), STOCK, 10), "flood"
        subscriber.leaf.restrict(11)
        subscriber.subscribe("x at 11", "news = TRUE")
        world.settle()
        assert world["p"].choose(P, promised, cell_receiver("n"), 11).tables is not None
        assert world["p"].passes(P, promised, cell_receiver("n"), STOCK, 11)

    run_by_the_rules_and_without(
        scenario, [(sufficiency, "_suffices", claims_without_control_version)], monkeypatch
    )


def test_a16_a_restricted_filter_of_an_older_control_version_stays_while_its_ticks_are_repaired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def scenario() -> None:
        world = World(tree("p-n-c"))
        world.advertise("P", "p", "", known_to=world.brokers)
        subscriber = world["c"]
        subscriber.leaf.restrict(10)
        subscriber.subscribe("x at 10", "news = TRUE")
        world.settle()
        promised = vector_of(world, "p")
        # version 11 revokes all news but those of T; a tick of version 10 was lost, and is nacked
        subscriber.leaf.restrict(11)
        subscriber.subscribe("x at 11", "news = TRUE AND symbol = 'T'")
        world.settle()
        for broker, receiver in (("p", "n"), ("n", "c")):
            choice = world[broker].choose(P, promised, cell_receiver(receiver), 10)
            assert choice.tables is not None, "flood"
            assert world[broker].passes(P, promised, cell_receiver(receiver), STOCK, 10), "lost"
        # the horizon at c has passed the last tick of version 10
        subscriber.leaf.disown("x at 10")
        world.settle()
        for broker, receiver in (("p", "n"), ("n", "c")):
            passes = world[broker].passes
            assert not passes(P, promised, cell_receiver(receiver), STOCK, 11), "flood"
            assert passes(P, promised, cell_receiver(receiver), {**STOCK, "symbol": "T"}, 11)

    run_by_the_rules_and_without(
        scenario, [(LeafTable, "own", own_only_the_newest_form)], monkeypatch
    )


# --- A25 ------------------------------------------------------------------------------------------


def test_a25_a_table_from_beyond_does_not_locate_a_host_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def scenario() -> None:
        world = World(tree("p-n-c-z"))  # z is outside p's neighbourhood
        world.advertise("P", "p", "", known_to=world.brokers)
        world["z"].subscribe("x", "symbol = 'IBM'")
        world["n"].subscribe("y", "symbol = 'T'")
        world.settle()
        promised = vector_of(world, "p")
        world.stop("n")
        world.exchange("p", "c")  # bypass
        world.now += 10**12
        world["p"].table_store.drop_stale(
            world.now
        )  # the table of n is forgotten; c's table is left
        n = world.start("n")
        n.learn(P)
        n.subscribe("y", "symbol = 'T'")
        world.settle(("n", "n"), ("p", "n"))
        assert [held.cell for held in world["p"].table_store.edges["n"].held()] == ["c", "n"]
        assert world["p"].passes(P, promised, cell_receiver("n"), STOCK), "lost"

    run_by_the_rules_and_without(
        scenario,
        [(TableChooser, "_is_behind_a_sibling", elsewhere_if_another_table_has_it)],
        monkeypatch,
    )


def test_a_leaf_is_fed_by_its_own_table_only() -> None:
    world = World(tree("p-n"), {"p": "p", "n1": "n", "n2": "n"})
    world.advertise("P", "p", "", known_to=world.brokers)
    world["n1"].subscribe("x", "symbol = 'IBM'")
    world["n2"].subscribe("y", "symbol = 'T'")
    world.settle()
    promised = vector_of(world, "p")
    router = world["n1"]
    assert router.passes(P, promised, leaf_receiver(world["n1"].shb), STOCK)
    assert not router.passes(P, promised, leaf_receiver(world["n2"].shb), STOCK)
