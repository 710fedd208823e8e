"""VT chapters 3 and 4, claim by claim, as far as they concern tables.

Figure 4.1: the root node N31 with PB1; the middle nodes N21 = {B1, B2} and N22 = {B3, B4}; the
leaf nodes N11, N12 (below N21) and N13 (below N22) with the hosts SB1, SB2, SB3. A node is a cell
here, ``nyse/*`` is written LIKE 'nyse/%', and a constraint vector is the base version of a delta.
Every broker can host subscribers here; the vectors shown are cut to the paper's three hosts.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from gapless import Filter
from gapless.content import Conjunction
from gapless.content.values import Attributes
from gapless.core.ids import PubendId, ShbId, VirtualTime
from gapless.core.parameters import Parameters
from gapless.messages.propagation import TableDelta
from gapless.propagation import StreamVector, SubscriptionTable, TransferOutcome
from tests.cases import scaled
from tests.propagation.oracle import FILTERS, Oracle
from tests.propagation.world import Broker, World, cell_receiver, leaf_receiver, tree

P = PubendId("p")
SB1, SB2, SB3 = (ShbId(f"SB{number}", f"N1{number}") for number in (1, 2, 3))

IBM = "stock = 'nyse/ibm'"
NYSE = "stock LIKE 'nyse/%'"
GOOG = "stock = 'nasdaq/goog'"
IBM_90 = "p > 90 AND stock = 'nyse/ibm'"
T_19 = "p > 19 AND stock = 'nyse/t'"
MSFT = "stock = 'nasdaq/msft'"
S2 = f"{IBM} AND p > 90 OR stock = 'nyse/t' AND p > 19 OR {MSFT}"

ROUTES = (("B1", "SB1"), ("B1", "SB2"), ("B3", "SB3"), ("PB1", "B1"), ("PB1", "B3"))
"""Pairs of requester and sender of table changes in the examples."""

M1: Attributes = {"stock": "nyse/ibm", "p": 95}
M2: Attributes = {"stock": "nyse/t", "p": 20}
M3: Attributes = {"stock": "nyse/ibm", "p": 98}
M4: Attributes = {"stock": "nyse/t", "p": 22}


def one(text: str) -> Conjunction:
    (conjunction,) = Filter(text).conjunctions
    return conjunction


def texts(*selectors: str) -> set[str]:
    return {str(one(selector)) for selector in selectors}


def vector(*tables: SubscriptionTable) -> dict[str, int]:
    """Return V^b of some tables, for the hosts of the figure."""
    found: dict[str, int] = {}
    for table in tables:
        for shb, entry in table.entries.items():
            if shb in {SB1, SB2, SB3}:
                found[shb.broker] = max(entry.time.counter, found.get(shb.broker, 0))
    return found


def held(broker: Broker, edge: str) -> set[str]:
    return {str(conjunction) for conjunction in broker.table_store.edges[edge].conjunctions}


def vector_at(broker: Broker) -> dict[str, int]:
    """Return V^b of a broker, as the figures print it; missing SHBs are at 0."""
    return vector(*(table for edge in broker.table_store.edges.values() for table in edge.tables()))


class Change(NamedTuple):
    """One change in transit over one link, as the examples write it."""

    constraint: dict[str, int]
    """V^b at the version that it changes: all of it, also where VT names only a part."""
    added: set[str]
    removed: set[str]


class Figure:
    """The network of figure 4.1, and its table changes one by one."""

    def __init__(self) -> None:
        cells = {"PB1": "N31", "B1": "N21", "B2": "N21", "B3": "N22", "B4": "N22"}
        cells |= {"SB1": "N11", "SB2": "N12", "SB3": "N13"}
        self.world = World(tree("N31-N21", "N31-N22", "N21-N11", "N21-N12", "N22-N13"), cells)
        self.world.advertise("p", "N31", "", known_to=self.world.brokers)

    def publish_change(self, host: str, *routers: str) -> None:
        """Let a host apply its change, and send it to routers of the next node."""
        self.world[host].leaf.flush()
        self.world.settle((host, host), *((router, host) for router in routers))

    def request_tables(self) -> None:
        """Let routers request tables before any subscription: V^b is all 0's (example 4.5)."""
        for requester, sender in ROUTES:
            source = self.world[sender]
            source.table_store.flush()
            edge, table, _ = self.world.sender(self.world[requester], source)
            for part in table.answer(self.world.request(requester, sender)):
                assert edge.receive(sender, part) is TransferOutcome.APPLIED
        assert [vector_at(broker) for broker in self.world.brokers.values()] == [{}] * 8

    def subscribe(self, host: str, name: str, text: str) -> None:
        """Add a subscription at a host; no other broker knows it yet."""
        self.world[host].subscribe(name, text)
        self.world.exchange(host, host)

    def pending_change(self, requester: str, sender: str) -> TableDelta:
        """Return the one change that is in transit over a link."""
        (delta,) = self.world.answer(requester, sender, self.world.request(requester, sender))
        assert isinstance(delta, TableDelta)
        return delta

    def change(self, requester: str, sender: str) -> Change:
        """Let one change arrive over a link."""
        delta = self.pending_change(requester, sender)
        edge = self.world.sender(self.world[requester], self.world[sender])[0]
        (copy,) = edge.tables()
        assert delta.base == copy.version, "the version stands for the vector"
        made = Change(vector(copy), set(delta.added), set(delta.removed))
        assert edge.receive(sender, delta) is TransferOutcome.APPLIED
        return made

    def first_round(self) -> None:
        """Examples 4.1 to 4.3, with all changes delivered to all brokers."""
        self.world["SB1"].subscribe("s1", IBM)
        self.world["SB2"].subscribe("s4", NYSE)
        self.world["SB3"].subscribe("s5", GOOG)
        self.world.settle(*self.world.links(), ("SB1", "B2"), ("PB1", "B2"))

    def second_round(self) -> None:
        """Example 4.4, sent to B1 and by it to PB1; B2 does not receive it."""
        self.world["SB1"].subscribe("s2", S2)
        self.publish_change("SB1", "B1")
        self.world.settle(("PB1", "B1"))

    @property
    def promised(self) -> StreamVector:
        claims = self.world["PB1"].claims(P)
        return StreamVector(1, 1, {shb: claims[shb] for shb in (SB1, SB2, SB3)})


# --- 4.1.1 to 4.1.5: at the hosts -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "text", "figure"), [("SB1", IBM, "4.2a"), ("SB2", NYSE, "4.3"), ("SB3", GOOG, "4.4")]
)
def test_examples_4_1_to_4_3_the_first_conjunction_starts_at_1(
    host: str, text: str, figure: str
) -> None:
    broker = Figure().world[host]
    start = broker.subscribe("s", text)
    delta = broker.leaf.flush()
    assert start == broker.leaf.time == VirtualTime(1, 1), figure
    assert delta is not None
    assert (delta.base, delta.version, set(delta.added)) == (0, 1, texts(text))


def test_example_4_4_and_figure_4_2b_start_times_come_from_the_coverers() -> None:
    broker = Figure().world["SB1"]
    broker.subscribe("s1", IBM)
    broker.leaf.flush()
    start = broker.subscribe("s2", S2)
    leaf = broker.leaf
    starts = {text: leaf.conjunction_start(one(text)).counter for text in (IBM_90, T_19, MSFT)}
    assert starts == {IBM_90: 1, T_19: 2, MSFT: 2}
    assert start == VirtualTime(1, 2), "a subscription starts with the last of its conjunctions"
    delta = leaf.flush()
    assert delta is not None
    assert (delta.base, delta.version) == (1, 2), "cons = (SB1: 1)"
    assert set(delta.added) == texts(T_19, MSFT), "the covered one is not sent"


def test_4_1_4_a_conjunction_is_removed_with_its_last_subscriber_and_the_clock_advances() -> None:
    leaf = Figure().world["SB1"].leaf
    for owner in ("s1", "s3"):
        leaf.own(owner, [one(IBM)])
    leaf.flush()
    leaf.disown("s1")
    assert leaf.flush() is None, "the roots are the same: no change"
    leaf.disown("s3")
    delta = leaf.flush()
    assert delta is not None
    assert (set(delta.removed), leaf.time.counter) == (texts(IBM), 2)


def test_4_1_2_start_times_never_grow_down_the_forest() -> None:
    leaf = Figure().world["SB1"].leaf
    wider = ("p > 90 AND q > 5", "p > 80 AND q > 5", "p > 70", "p > 60 OR q > 1")
    for number, text in enumerate(wider):
        leaf.own(number, Filter(text).conjunctions)
        leaf.flush()
    chain = [one(text) for text in (*wider[:3], "p > 60")]
    starts = [leaf.conjunction_start(conjunction) for conjunction in chain]
    assert starts == sorted(starts)
    assert leaf.own("narrow", [one("p > 95 AND q > 6")]) == VirtualTime(1, 1), "the least of all"


# --- 4.1.6: at the routers ------------------------------------------------------------------------


def test_example_4_5_and_figure_4_5a_each_change_from_below_causes_one_change_upstream() -> None:
    figure = Figure()
    figure.request_tables()
    b1 = figure.world["B1"]
    figure.subscribe("SB1", "s1", IBM)
    assert figure.change("B1", "SB1") == Change({}, texts(IBM), set()), "cons = (SB1: 0)"
    assert vector_at(b1) == {"SB1": 1}
    assert figure.change("PB1", "B1") == Change({}, texts(IBM), set()), "cons = (SB1: 0)"
    figure.subscribe("SB2", "s4", NYSE)
    assert figure.change("B1", "SB2") == Change({}, texts(NYSE), set()), "cons = (SB2: 0)"
    assert vector_at(b1) == {"SB1": 1, "SB2": 1}
    assert (held(b1, "N11"), held(b1, "N12")) == (texts(IBM), texts(NYSE))
    # VT keeps the covered conjunction; here it is removed when its cover is added
    pending_change = Change({"SB1": 1}, texts(NYSE), texts(IBM))
    assert figure.change("PB1", "B1") == pending_change, "cons = (SB2: 0)"


def test_4_1_6_a_change_whose_constraint_is_not_met_is_not_applied() -> None:
    figure = Figure()
    figure.request_tables()
    pb1 = figure.world["PB1"]
    figure.subscribe("SB1", "s1", IBM)
    figure.change("B1", "SB1")
    first = figure.pending_change("PB1", "B1")
    figure.subscribe("SB2", "s4", NYSE)
    figure.change("B1", "SB2")
    (second,) = [delta for name, delta in figure.world["B1"].table_store.flush() if name == "N31"]
    edge = pb1.table_store.edges["N21"]
    assert edge.receive("B1", second) is TransferOutcome.REQUEST
    assert (vector_at(pb1), held(pb1, "N21")) == ({}, set()), "PB1 lags, and has no entry"
    assert [edge.receive("B1", delta) for delta in (first, second)] == [TransferOutcome.APPLIED] * 2
    assert (vector_at(pb1), held(pb1, "N21")) == ({"SB1": 1, "SB2": 1}, texts(NYSE))


def test_example_4_6_and_figure_4_6() -> None:
    figure = Figure()
    figure.request_tables()
    figure.subscribe("SB3", "s5", GOOG)
    assert figure.change("B3", "SB3") == Change({}, texts(GOOG), set()), "cons = (SB3: 0)"
    b3 = figure.world["B3"]
    assert (vector_at(b3), held(b3, "N13")) == ({"SB3": 1}, texts(GOOG))
    # printed there as cons = (SB3: 1), which no broker above has; its counterpart in example 4.5
    # has 0
    assert figure.change("PB1", "B3") == Change({}, texts(GOOG), set())


def test_example_4_7_and_figure_4_5b_covered_conjunctions_are_not_sent() -> None:
    figure = Figure()
    figure.request_tables()
    for host, name, text in (("SB1", "s1", IBM), ("SB2", "s4", NYSE)):
        figure.subscribe(host, name, text)
        figure.change("B1", host)
        figure.change("PB1", "B1")
    figure.subscribe("SB1", "s2", S2)
    pending_change = Change({"SB1": 1}, texts(T_19, MSFT), set())
    assert figure.change("B1", "SB1") == pending_change, "cons = (SB1: 1); p > 90 is covered at SB1"
    b1 = figure.world["B1"]
    assert vector_at(b1) == {"SB1": 2, "SB2": 1}
    assert (held(b1, "N11"), held(b1, "N12")) == (texts(IBM, T_19, MSFT), texts(NYSE))
    assert figure.change("PB1", "B1") == Change({"SB1": 1, "SB2": 1}, texts(MSFT), set())


def test_figure_4_7_the_root_after_each_of_four_changes() -> None:
    figure = Figure()
    figure.request_tables()
    pb1 = figure.world["PB1"]
    seen = []
    for host, name, text, router in (
        ("SB1", "s1", IBM, "B1"),
        ("SB2", "s4", NYSE, "B1"),
        ("SB3", "s5", GOOG, "B3"),
        ("SB1", "s2", S2, "B1"),
    ):
        figure.subscribe(host, name, text)
        figure.change(router, host)
        figure.change("PB1", router)
        seen.append((vector_at(pb1), held(pb1, "N21"), held(pb1, "N22")))
    assert seen == [
        ({"SB1": 1}, texts(IBM), set()),
        ({"SB1": 1, "SB2": 1}, texts(NYSE), set()),
        ({"SB1": 1, "SB2": 1, "SB3": 1}, texts(NYSE), texts(GOOG)),
        ({"SB1": 2, "SB2": 1, "SB3": 1}, texts(NYSE, MSFT), texts(GOOG)),
    ]


# --- 4.1.7, 4.1.8: routing and start points -------------------------------------------------------


def test_example_4_8_either_broker_of_a_node_may_route() -> None:
    figure = Figure()
    figure.first_round()
    promised = figure.promised
    figure.second_round()
    for router, message in (("B1", M1), ("B2", M1)):
        choice = figure.world[router].choose(P, promised, cell_receiver("N11"))
        assert choice.tables is not None, "sufficient"
        assert figure.world[router].passes(P, promised, cell_receiver("N11"), message)
    for router in ("PB1", "B1", "B2"):
        receiver = cell_receiver("N22" if router == "PB1" else "N12")
        passed = figure.world[router].passes(P, promised, receiver, M2)
        assert passed == (router != "PB1"), "only SB2 matches m2, no host below N22 does"


def test_example_4_9_a_broker_that_lags_forwards() -> None:
    figure = Figure()
    figure.first_round()
    figure.second_round()
    promised = figure.promised
    assert {shb.broker: entry.time.counter for shb, entry in promised.entries.items()} == {
        "SB1": 2,
        "SB2": 1,
        "SB3": 1,
    }
    b1, b2 = figure.world["B1"], figure.world["B2"]
    assert b1.choose(P, promised, cell_receiver("N11")).tables is not None
    assert b1.passes(P, promised, cell_receiver("N11"), M3)
    assert b2.choose(P, promised, cell_receiver("N11")).tables is None, "not sufficient"
    assert b2.passes(P, promised, cell_receiver("N11"), M4), "though no table of N11 matches it"
    assert b2.choose(P, promised, cell_receiver("N12")).tables is not None, "for SB2 it suffices"


def test_example_4_10_a_subscription_starts_where_the_vector_has_reached_its_start_time() -> None:
    figure = Figure()
    figure.first_round()
    before = figure.promised
    figure.second_round()
    start = figure.world["SB1"].leaf.start("s2")
    assert before.entries[SB1].time < start, "m1 is not a starting point of s2"
    assert figure.promised.entries[SB1].time >= start, "m3 is"


def test_4_1_7_a_leaf_table_is_always_sufficient_for_its_own_host() -> None:
    figure = Figure()
    figure.first_round()
    figure.second_round()
    router = figure.world["SB1"]
    assert router.choose(P, figure.promised, leaf_receiver(SB1)).tables is not None
    assert not router.passes(P, figure.promised, leaf_receiver(SB1), {"stock": "nasdaq/goog"})


# --- 3.2, 3.4: the theorems -----------------------------------------------------------------------


def test_theorem_3_2_brokers_keep_the_s_lambda_invariant_step_by_step() -> None:
    figure = Figure()
    oracle = Oracle(figure.world)
    dice = random.Random(1)
    for number in range(40):
        broker = figure.world[dice.choice(("SB1", "SB2", "SB3"))]
        text = dice.choice(FILTERS)
        start = broker.subscribe(str(number), text)
        oracle.filters.setdefault(broker.shb, {})[str(number)] = (text, start)
        for link in dice.sample(figure.world.links(), 6):
            figure.world.exchange(*link)
        oracle.check({})


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_theorem_3_3_no_conjunction_without_a_live_subscription(seed: int) -> None:
    dice = random.Random(seed)
    world = World(tree("a-b-c", "b-d-e"))
    world.advertise("p", "a", "", known_to=world.brokers)
    filters: dict[tuple[str, int], str] = {}
    for number in range(60):
        if filters and dice.random() < 0.5:
            cell, owner = key = dice.choice(sorted(filters))
            world[cell].leaf.disown(owner)
            del filters[key]
        else:
            cell = dice.choice("abcde")
            filters[cell, number] = dice.choice(FILTERS)
            world[cell].leaf.own(number, Filter(filters[cell, number]).conjunctions)
        if dice.random() < 0.2:
            world.settle()
            check_that_each_conjunction_has_an_owner(world, filters)


def check_that_each_conjunction_has_an_owner(
    world: World, filters: dict[tuple[str, int], str]
) -> None:
    for broker in world.brokers.values():
        for name, edge in broker.table_store.edges.items():
            live = {
                conjunction
                for (cell, _), text in filters.items()
                if name == edge_towards(world, broker, cell)
                for conjunction in Filter(text).conjunctions
            }
            assert set(edge.conjunctions) <= live, f"{broker.name} to {name}"


def edge_towards(world: World, broker: Broker, cell: str) -> str:
    """Return the name of a broker's edge to the host of a cell of one broker."""
    return str(broker.shb) if cell == broker.cell else world.path(broker.cell, cell)[0]


# --- 4.3: recovery --------------------------------------------------------------------------------


def changes(figure: Figure, count: int) -> list[TableDelta]:
    """Return some changes of SB1; no broker has received them yet."""
    leaf = figure.world["SB1"].leaf
    figure.world.settle()
    out = figure.world["SB1"].table_store.out["N21"]
    deltas = []
    for number in range(count):
        leaf.own(number, [one(f"p = {number}")])
        leaf.flush()
        figure.world.exchange("SB1", "SB1")
        delta = out.flush()
        assert delta is not None
        deltas.append(delta)
    return deltas


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 0, 1, 1, 2, 2), (2, 1, 0, 1, 0, 2), (1, 2), (2,)])
def test_4_3_2_to_4_3_4_lost_repeated_and_reordered_changes_are_repaired(
    order: tuple[int, ...],
) -> None:
    figure = Figure()
    deltas = changes(figure, 3)
    edge = figure.world["B1"].table_store.edges["N11"]
    seen = [vector(*edge.tables())["SB1"]]
    for number in order:
        edge.receive("SB1", deltas[number])
        seen.append(vector(*edge.tables())["SB1"])
        conjunctions, counter = len(edge.conjunctions), seen[-1] - seen[0]
        assert conjunctions == counter, "conjunctions and vector change together"
    assert seen == sorted(seen), "outdated changes are discarded"
    figure.world.exchange("B1", "SB1")
    assert len(edge.conjunctions) == 3


def test_4_3_1_a_router_that_lost_everything_forwards_until_it_has_caught_up() -> None:
    figure = Figure()
    figure.first_round()
    promised = figure.promised
    b1 = figure.world.start("B1")
    b1.learn(P)
    for receiver in ("N11", "N12"):
        assert b1.passes(P, promised, cell_receiver(receiver), {"stock": "none"})
    figure.world.settle()
    for receiver in ("N11", "N12"):
        assert not b1.passes(P, promised, cell_receiver(receiver), {"stock": "none"})


def test_4_3_1_a_host_that_restarts_has_greater_virtual_times() -> None:
    figure = Figure()
    figure.first_round()
    promised = figure.promised
    sb1 = figure.world.start("SB1")
    sb1.learn(P)
    assert sb1.subscribe("s1", IBM) == VirtualTime(2, 1)
    assert VirtualTime(2, 1) > promised.entries[SB1].time
    figure.world.settle()
    assert figure.promised.entries[SB1].time == VirtualTime(2, 1)


def test_3_5_merging_stays_within_the_budget_and_covers() -> None:
    world = World(tree("a-b-c"), parameters=Parameters(table_conjunctions_max=3))
    world.advertise("p", "a", "", known_to=world.brokers)
    for number in range(10):
        world["c"].subscribe(str(number), f"x = {number} AND y > {10 * number}")
    world.settle()
    pending_change = world["b"].table_store.out["a"].sender.table
    assert len(pending_change.conjunctions) <= 3
    assert all(
        any(
            wide.matches({"x": number, "y": 1_000}) for wide in pending_change.conjunctions.values()
        )
        for number in range(10)
    )
