"""Sources of tables: one of each cell, those beyond a cell that is down, and receivers (R20)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from gapless.core.ids import BrokerId
from gapless.messages.propagation import TableDelta, TableRequest, TableStop
from gapless.overlay.neighbourhood import Topology
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree
from gapless.propagation.sources import TableSources
from tests.broker.harness import BrokerHarness, P


class Reach:
    """The brokers that are reachable, and those of them over relays, set by the test."""

    def __init__(self, *reached: BrokerId, relayed: Iterable[BrokerId] = ()) -> None:
        self.reached = [*reached, *relayed]
        self.relayed = set(relayed)

    def is_direct(self, peer: BrokerId) -> bool:
        return peer in self.reached and peer not in self.relayed

    def open_in(self, brokers: Iterable[BrokerId]) -> list[BrokerId]:
        return [broker for broker in brokers if broker in self.reached]


def sources(reach: Reach, *, delta: int = 2) -> TableSources:
    """Return the sources of m next to n1 and n2; behind n are c1, c2 and d; behind c is z."""
    tree = Topology.of(
        {"m": ["m"], "n": ["n1", "n2"], "c": ["c1", "c2"], "d": ["d"], "z": ["z"]},
        [("m", "n"), ("n", "c"), ("n", "d"), ("c", "z")],
    )
    return TableSources("m", Tree(tree.neighbourhood("m", delta + 1)), cast(Peers, reach))


ALL_BROKERS = ("n1", "n2", "c1", "c2", "d", "z")


def test_one_broker_of_a_reachable_cell_is_the_source_and_none_beyond() -> None:
    (source,) = sources(Reach(*ALL_BROKERS)).wanted("n", ())
    assert source in {"n1", "n2"}


def test_a_source_over_a_link_is_better_than_over_relays() -> None:
    for relayed, direct in (("n1", "n2"), ("n2", "n1")):
        reach = Reach(direct, relayed=[relayed])
        assert sources(reach).wanted("n", ()) == [direct]
        assert sources(reach).wanted("n", [relayed]) == [direct]


def test_a_source_over_relays_is_better_than_one_in_the_cells_beyond() -> None:
    assert sources(Reach("c1", "d", relayed=["n2"])).wanted("n", ()) == ["n2"]


def test_a_source_is_kept_while_no_better_one_is_reachable() -> None:
    # every change costs a table transfer
    for source in ("n1", "n2"):
        assert sources(Reach(*ALL_BROKERS)).wanted("n", [source]) == [source]


def test_sources_of_different_brokers_are_spread_over_a_cell() -> None:
    near = Topology.of({"m": ["m"], "n": ["n1", "n2"]}, [("m", "n")]).neighbourhood("m", 1)
    tree, reach = Tree(near), cast(Peers, Reach("n1", "n2"))
    chosen = [TableSources(f"m{number}", tree, reach).wanted("n", ())[0] for number in range(100)]
    assert 30 < chosen.count("n1") < 70


def test_each_cell_beyond_a_cell_that_is_down_has_a_source() -> None:
    # PT V: subscriptions cross a cell that is down; all branches, not only the first
    first, second = sources(Reach("c1", "c2", "d", "z")).wanted("n", ())
    assert first in {"c1", "c2"}
    assert second == "d"


def test_the_cells_beyond_two_cells_that_are_down_have_sources() -> None:
    assert sources(Reach("d", "z")).wanted("n", ()) == ["z", "d"]


def test_no_source_is_farther_away_than_delta_allows() -> None:
    assert sources(Reach("d", "z"), delta=1).wanted("n", ()) == ["d"]
    assert sources(Reach("d", "z"), delta=0).wanted("n", ()) == []


def test_a_receiver_is_a_source_while_it_is_fed() -> None:
    # streams are filtered for it, and its own sources may have lost the route
    found = sources(Reach(*ALL_BROKERS))
    found.set_fed("c2", fed=True)
    found.set_fed("c2", fed=True)
    (source, receiver) = found.wanted("n", ["n1"])
    assert (source, receiver) == ("n1", "c2")
    found.set_fed("c2", fed=False)
    assert found.wanted("n", ["n1", "c2"]) == ["n1"]
    found.set_fed("c2", fed=False)


def test_a_receiver_that_is_already_a_source_is_listed_once() -> None:
    found = sources(Reach(*ALL_BROKERS))
    found.set_fed("n1", fed=True)
    assert found.wanted("n", ["n1"]) == ["n1"]


def test_a_receiver_is_a_source_only_in_its_direction_and_while_it_is_reachable() -> None:
    found = sources(Reach("n1"))
    found.set_fed("c2", fed=True)
    found.set_fed("unknown", fed=True)
    assert found.wanted("n", ["n1"]) == ["n1"]


def test_a_change_of_the_tree_changes_the_sources() -> None:
    # R13
    tree = Tree(Topology.of({"m": ["m"], "n": ["n1"]}, [("m", "n")]).neighbourhood("m", 2))
    found = TableSources("m", tree, cast(Peers, Reach(*ALL_BROKERS)))
    assert found.wanted("n", ()) == ["n1"]
    topology = Topology.of({"m": ["m"], "d": ["d"]}, [("m", "d")])
    tree.replace(topology.neighbourhood("m", 2, version=2))
    assert found.wanted("d", ()) == ["d"]


# --- with whole brokers ---------------------------------------------------------------------------


def requesters(world: BrokerHarness, broker: BrokerId, direction: str) -> list[BrokerId]:
    """Return the brokers to which a broker sends changes of its table for a direction."""
    return [*world[broker].components.exchange._requesters.get(direction, {})]


def test_a_former_source_is_notified_and_sends_no_more_deltas() -> None:
    # otherwise every broker of a cell that ever was a source would receive every change for ever
    world = BrokerHarness("p-n-c", delta=1)
    world.publisher("p")
    world.subscriber("c", "x", "kind = 1")
    world.run(s=1)
    assert requesters(world, "c", "n") == ["n"]
    world.crash("n")
    world.run(s=2)
    assert requesters(world, "c", "n") == ["p"]
    world.start("n")
    world.run(s=15)  # until c uses n again, and is not fed by p any more
    assert world.sent_over(TableStop, "p", "c") == [TableStop("p")]
    assert requesters(world, "c", "n") == ["n"]
    since = world.now
    world.subscriber("c", "y", "kind = 2")
    world.run(s=1)
    assert world.sent_over(TableDelta, "c", "p", since) == []
    assert world.sent_over(TableDelta, "c", "n", since)


def test_a_stop_for_an_unknown_table_is_ignored() -> None:
    world = BrokerHarness("p-n")
    world.receive("n", "unknown", TableStop("nowhere"))
    assert requesters(world, "n", "p") == ["p"]


def test_the_table_of_a_new_receiver_is_requested() -> None:
    world = BrokerHarness("p-n-c", cells={"n": ["n1", "n2"]}, delta=1)
    world.publisher("p")
    world.subscriber("c", "x", "kind = 1")
    world.run(s=1)
    feeder = world["c"].components.router.feeder(P)
    (other,) = {"n1", "n2"} - {feeder}
    fed = world[str(feeder)].components.router.feeder(P)
    assert fed == "p"
    assert world.sent_over(TableRequest, "p", str(feeder)), "p feeds it"
    world.crash(str(feeder))
    world.run(s=2)
    assert world["c"].components.router.feeder(P) == other
    assert world["p"].components.exchange.table_store.edges["n"].sources() == (other,)
