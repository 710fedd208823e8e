"""Routing of a broker: feed candidates and their order, permitted receivers, and next hops."""

from __future__ import annotations

from gapless.core.ids import PubendId
from gapless.feeds.candidates import FeedCandidates, rendezvous
from gapless.messages.overlay import Quality
from gapless.messages.streams import AttachKind, KnowledgeRange, Publication
from gapless.propagation import Receiver, StreamVector
from tests.broker.harness import BrokerHarness, P, Q

NOWHERE = PubendId("nowhere")


def brokers(routing: FeedCandidates, pubend: PubendId = P) -> list[str]:
    return [each.broker for each in routing.candidates(pubend)]


def phb_and_other_cell() -> BrokerHarness:
    """P is at p1, in the cell p with p2; n1 and n2 are the next cell, c is behind it."""
    world = BrokerHarness("p-n-c", cells={"p": ["p1", "p2"], "n": ["n1", "n2"]})
    world.publisher("p1")
    return world


# --- load (R6) ------------------------------------------------------------------------------------


def test_the_order_of_brokers_does_not_depend_on_the_order_of_its_arguments() -> None:
    assert rendezvous(P, ["a", "b", "c"]) == rendezvous(P, ["c", "a", "b"])


def test_load_is_shared_by_pubend() -> None:
    first = [rendezvous(PubendId(f"P{number}"), ["a", "b", "c"])[0] for number in range(300)]
    assert all(60 < first.count(name) < 140 for name in "abc")


def test_a_broker_that_leaves_moves_only_its_own_pubends() -> None:
    for number in range(50):
        whole = rendezvous(PubendId(f"P{number}"), ["a", "b", "c"])
        rest = rendezvous(PubendId(f"P{number}"), ["a", "c"])
        assert rest == [each for each in whole if each != "b"]


# --- candidates (R7) ------------------------------------------------------------------------------


def test_a_router_is_fed_by_the_next_cell_and_in_the_phb_cell_by_the_phb() -> None:
    world = phb_and_other_cell()
    assert sorted(brokers(world["n1"].components.candidates)) == ["p1", "p2"]
    assert sorted(brokers(world["c"].components.candidates)) == ["n1", "n2"]
    assert brokers(world["p2"].components.candidates) == ["p1"]
    assert brokers(world["p1"].components.candidates) == []


def test_only_reachable_brokers_are_candidates() -> None:
    world = phb_and_other_cell()
    world.cut("c", "n1")
    assert brokers(world["c"].components.candidates) == ["n2"]
    world.cut("c", "n2")
    assert brokers(world["c"].components.candidates) == []


class Reroutes:
    """p - m - n - c, with two brokers in m and in c: c1 loses links, and its candidates are ranked.

    n is the next cell on the path of c1 to P, m is behind it, and then comes p.
    """

    def __init__(self, *cuts: tuple[str, str], **parameters: int) -> None:
        cells = {"m": ["m1", "m2"], "n": ["n1", "n2"], "c": ["c1", "c2"]}
        self.world = BrokerHarness("p-m-n-c", cells=cells, delta=2, **parameters)
        self.world.publisher("p")
        for cut in cuts:
            self.world.cut(*cut)
        self.world.run(s=4)
        found = self.world["c1"].components.candidates.candidates(P)
        self.order = [each.broker for each in found]
        self.relayed = [each.broker for each in found if each.relayed]
        self.ranks = [each.rank for each in found]


def by_load(*names: str) -> list[str]:
    return rendezvous(P, [*names])


def test_with_links_nearer_cells_come_first_and_load_is_shared_inside_a_cell() -> None:
    # R7 (a) before (c)
    reroutes = Reroutes()
    assert reroutes.order == [*by_load("n1", "n2"), *by_load("m1", "m2"), "p"]
    assert reroutes.relayed == []
    assert reroutes.ranks == sorted(set(reroutes.ranks)), "no two have the same rank"


def test_over_a_peer_of_the_own_cell_the_next_cell_is_better_than_one_beyond_it() -> None:
    # R7 (b) before (c): "sideways"
    reroutes = Reroutes(("c1", "n1"), ("c1", "n2"), relay_hops_max=1)
    routes = {reroutes.world["c1"].components.sessions.route(name) for name in ("n1", "n2")}
    assert routes == {("c2",)}, "a probe tries the nearest first"
    assert reroutes.order == [*by_load("n1", "n2"), *by_load("m1", "m2"), "p"]
    assert reroutes.relayed == by_load("n1", "n2")


def test_the_next_cell_over_other_relays_comes_after_all_links() -> None:
    # R7 (d) last
    cuts = [("c1", "n1"), ("c1", "n2"), ("c1", "c2")]
    reroutes = Reroutes(*cuts, relay_hops_max=1)
    assert reroutes.order == [*by_load("m1", "m2"), "p", *by_load("n1", "n2")]
    assert reroutes.relayed == by_load("n1", "n2")


def test_over_relays_nearer_cells_come_first_too() -> None:
    cuts = [("c1", name) for name in ("n1", "n2", "m1", "m2", "p")]
    reroutes = Reroutes(*cuts)
    assert reroutes.order == [*by_load("n1", "n2"), *by_load("m1", "m2"), "p"]
    assert reroutes.relayed == reroutes.order


def test_of_a_cell_brokers_with_a_link_come_before_those_without() -> None:
    # and both before the next cell, if the relay is a peer
    first, second = by_load("n1", "n2")
    reroutes = Reroutes(("c1", first), ("c2", first))
    assert reroutes.order[0] == second
    assert reroutes.order.index(first) > 0


def test_a_leaf_prefers_routers_to_which_it_has_a_link() -> None:
    world = BrokerHarness("p-b", cells={"b": ["b1", "b2", "b3"]})
    world.publisher("p")
    order = by_load("b1", "b2", "b3")
    host = order[1]
    assert [each.broker for each in world[host].components.candidates.leaf_candidates(P)] == order
    world.cut(host, order[0])
    world.run(s=4)
    assert world[host].components.sessions.is_open(order[0]), "over a relay"
    found = world[host].components.candidates.leaf_candidates(P)
    assert [each.broker for each in sorted(found, key=lambda each: each.rank)] == [
        order[1],
        order[2],
        order[0],
    ]


def test_load_moves_at_once_when_a_broker_crashes_and_back_after_the_feed_switch_delay() -> None:
    # GD 3.1; R9: to a better one only after feed_switch_delay_ms
    world = BrokerHarness("p-n-c", cells={"n": ["n1", "n2"]})
    world.publisher("p")
    world.subscriber("c", "x", "TRUE")
    world.run(s=1)
    first, second = by_load("n1", "n2")
    router = world["c"].components.router
    assert router.feeder(P) == first
    world.crash(first)
    world.run(ms=50)
    assert router.feeder(P) == second
    world.start(first)
    world.run(ms=world.parameters.feed_switch_delay_ms - 100)
    assert router.feeder(P) == second
    world.run(ms=3 * world.parameters.attach_refresh_ms)
    assert router.feeder(P) == first


def test_an_unknown_pubend_has_no_feed_candidates() -> None:
    assert brokers(phb_and_other_cell()["c"].components.candidates, NOWHERE) == []


def test_a_leaf_is_fed_by_the_routers_of_its_cell_its_own_broker_included() -> None:
    world = phb_and_other_cell()
    found = world["n1"].components.candidates.leaf_candidates(P)
    assert sorted(each.broker for each in found) == ["n1", "n2"]
    world.cut("n1", "n2")
    assert [each.broker for each in world["n1"].components.candidates.leaf_candidates(P)] == ["n1"]


def test_the_attach_kind_depends_on_whether_the_router_is_in_the_phb_cell() -> None:
    world = phb_and_other_cell()
    kinds = {
        name: world[name].components.candidates.attach_kind(P) for name in ("p1", "p2", "n1", "c")
    }
    assert kinds["p2"] is AttachKind.PHB_CELL
    assert kinds["n1"] is kinds["c"] is AttachKind.CELL
    assert world["p2"].components.candidates.attach_kind(NOWHERE) is AttachKind.CELL


# --- permitted receivers (R10) --------------------------------------------------------------------


def may_feed(world: BrokerHarness, feeder: str, kind: AttachKind, name: str) -> bool:
    return world[feeder].components.candidates.may_feed(P, Receiver(kind, name))


def test_a_feeder_is_nearer_to_the_pubend_than_its_receiver() -> None:
    # A18: so a chain of feeds has no cycle
    world = phb_and_other_cell()
    assert may_feed(world, "p1", AttachKind.CELL, "n")
    assert may_feed(world, "n1", AttachKind.CELL, "c")
    assert not may_feed(world, "n1", AttachKind.CELL, "p"), "the pubend is there"
    assert not may_feed(world, "n1", AttachKind.CELL, "n"), "no feeding inside a cell"
    assert not may_feed(world, "c", AttachKind.CELL, "n")


def test_a_leaf_is_fed_in_its_own_cell_only() -> None:
    world = phb_and_other_cell()
    assert may_feed(world, "n1", AttachKind.LEAF, "n2@n")
    assert may_feed(world, "n1", AttachKind.LEAF, "n1@n")
    assert not may_feed(world, "n1", AttachKind.LEAF, "c@c")


def test_inside_the_phb_cell_only_the_phb_feeds_routers() -> None:
    world = phb_and_other_cell()
    assert may_feed(world, "p1", AttachKind.PHB_CELL, "p")
    assert not may_feed(world, "p2", AttachKind.PHB_CELL, "p")
    assert not may_feed(world, "p1", AttachKind.PHB_CELL, "n")


def test_no_receiver_is_fed_with_an_unknown_pubend_or_outside_the_neighbourhood() -> None:
    world = phb_and_other_cell()
    assert not world["n1"].components.candidates.may_feed(NOWHERE, Receiver(AttachKind.CELL, "c"))
    assert not may_feed(world, "n1", AttachKind.CELL, "far away")


# --- requests -------------------------------------------------------------------------------------


def test_a_request_is_sent_to_the_feeder_or_without_one_to_each_candidate_in_turn() -> None:
    world = phb_and_other_cell()
    routing = world["c"].components.candidates
    assert routing.next_hop(P, 1, "n2") == "n2"
    assert {routing.next_hop(P, number, None) for number in (6, 7)} == {"n1", "n2"}
    assert routing.next_hop(P, 6, None) == routing.next_hop(P, 8, None)
    assert routing.next_hop(NOWHERE, 1, None) is None


# --- properties and tables ------------------------------------------------------------------------


def test_all_brokers_know_the_quality_of_a_pubend() -> None:
    # R33
    world = phb_and_other_cell()
    world.publisher("p1", "Q", quality=Quality.BEST_EFFORT)
    routing = world["c"].components.candidates
    assert [routing.is_best_effort(each) for each in (P, Q, NOWHERE)] == [False, True, False]
    assert [routing.is_announced(each) for each in (P, Q, NOWHERE)] == [True, True, False]


def test_without_its_stream_epoch_no_table_may_filter_a_range() -> None:
    # R24, R25
    world = phb_and_other_cell()
    world.subscriber("c", "x", "kind = 1")
    world.run(s=1)
    data = KnowledgeRange(1, 2, 1, 0, (Publication(1, "ann", 1, {"kind": 1}, b""),))
    receiver = Receiver(AttachKind.CELL, "c")
    filtering = world["n1"].components.filtering
    assert filtering.tables_for(P, data, None, receiver) is None
    mask = filtering.tables_for(P, data, StreamVector(1, 1, {}), receiver)
    assert mask is not None
    unwanted = Publication(1, "ann", 1, {"kind": 2}, b"")
    matching = filtering.matching_tables([*data.publications, unwanted])
    assert [bool(each & mask) for each in matching] == [True, False]
