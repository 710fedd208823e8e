"""The tables of an edge: R20, R21, R22, I14; and the out-table of a router, R18."""

from __future__ import annotations

import pytest

from gapless import Filter
from gapless.content.merging import merge
from gapless.core.ids import PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.parameters import Parameters, microseconds
from gapless.messages.overlay import TableState
from gapless.messages.propagation import TableId
from gapless.propagation import Edge, OutTable, TableSender, TransferOutcome
from gapless.propagation.edge import LocationVersion
from gapless.propagation.index import TableIndex
from gapless.propagation.stale_tables import merged
from tests.propagation.world import World, tree

P, Q = PubendId("P"), PubendId("Q")
S, T, U = (ShbId(name, name) for name in "stu")


def at(counter: int, *, incarnation: int = 1, retired: bool = False) -> VectorEntry:
    return VectorEntry(VirtualTime(incarnation, counter), 0, retired)


def sender(broker: str, incarnation: int = 1, **content: object) -> TableSender:
    """Return a broker's table at version 2, with this content."""
    source = TableSender(TableId(broker, incarnation, "here"), 1, log_max=4, bytes_max=10_000)
    delta = source.table.difference(**content)  # type: ignore[arg-type]
    if delta is not None:
        source.advance(delta)
    return source


def edge(leaf: ShbId | None = None, *, is_peer: bool = False) -> Edge:
    name = "there" if leaf is None else str(leaf)
    return Edge(
        name,
        leaf,
        location_version=LocationVersion(),
        index=TableIndex(),
        budget=100,
        merge=merge,
        is_peer=is_peer,
    )


def leaf_sender(shb: ShbId, incarnation: int = 1) -> TableSender:
    """Return the leaf table of an SHB, at version 1."""
    source = TableSender(TableId(shb.broker, incarnation, str(shb)), 0, log_max=4, bytes_max=1_000)
    delta = source.table.difference(entries={shb: at(1, incarnation=incarnation)})
    assert delta is not None
    source.advance(delta)
    return source


def take(target: Edge, source: TableSender, cell: str = "n", now: int = 0) -> TransferOutcome:
    """Make a broker a source and receive its table."""
    name = source.table.name
    request = target.source(name.broker, cell, name.incarnation, name.direction, now)
    outcome = TransferOutcome.STALE
    for message in source.answer(request):
        outcome = target.receive(name.broker, message)
    return outcome


def always(_: PubendId) -> bool:
    return True


# --- sources --------------------------------------------------------------------------------------


def test_a_broker_that_is_no_source_is_refused() -> None:
    target, source = edge(), sender("b")
    (full,) = source.answer(edge().source("b", "n", 1, "here", 0))
    assert target.receive("b", full) is TransferOutcome.REFUSED
    assert target.compare_state("b", TableState("here", 1, 0)) is TransferOutcome.REFUSED


@pytest.mark.parametrize(("broker", "incarnation"), [("other", 1), ("b", 2)])
def test_a_table_of_another_broker_or_incarnation_than_the_source_is_refused(
    broker: str, incarnation: int
) -> None:
    target = edge()
    target.source("b", "n", 1, "here", 0)
    (full,) = sender(broker, incarnation).answer(edge().source("x", "n", 1, "here", 0))
    assert target.receive("b", full) is TransferOutcome.REFUSED


def test_union_of_conjunctions_and_greatest_claims() -> None:
    target = edge()
    take(target, sender("b1", added=["a > 1", "b > 1"], entries={S: at(5), T: at(3)}, known={P: 1}))
    take(target, sender("b2", added=["a > 1"], entries={S: at(4), T: at(4)}, known={P: 1}))
    assert {str(one) for one in target.conjunctions} == {"a > 1", "b > 1"}
    assert (target.claim(S, P, 1), target.claim(T, P, 1)) == (at(5), at(4))
    assert target.entry(S) == at(5)
    assert target.claim(S, P, 2) is None


def test_only_missing_versions_are_requested_from_a_source_that_returns_in_its_incarnation() -> (
    None
):
    target, source = edge(), sender("b", entries={S: at(1)})
    take(target, source)
    target.mark_stale("b", 10)
    assert target.held_of("n") == ()
    delta = source.table.difference(entries={S: at(2)})
    assert delta is not None
    source.advance(delta)
    request = target.source("b", "n", 1, "here", 20)
    assert (request.have, request.version) == (source.table.name, 2)
    assert target.receive("b", delta) is TransferOutcome.APPLIED
    assert not target.outdated
    assert target.entry(S) == at(2)


def test_a_heartbeat_causes_a_request_for_a_lost_delta() -> None:
    target, source = edge(), sender("b", entries={S: at(1)})
    take(target, source)
    assert target.compare_state("b", source.state()) is TransferOutcome.STALE
    delta = source.table.difference(entries={S: at(2)})
    assert delta is not None
    source.advance(delta)
    assert target.compare_state("b", source.state()) is TransferOutcome.REQUEST


def test_a_corrupt_copy_is_dropped_with_all_its_claims() -> None:
    target, source = edge(), sender("b", added=["a > 1"], entries={S: at(1)})
    take(target, source)
    assert target.compare_state("b", TableState("here", 2, 12345)) is TransferOutcome.REQUEST
    assert not target.conjunctions
    assert not target.hosts


# --- stale tables ---------------------------------------------------------------------------------


def test_a_new_incarnation_makes_the_table_of_the_old_one_stale() -> None:
    target = edge()
    take(target, sender("b", 1, added=["a > 1"], entries={S: at(5)}, known={P: 1}))
    take(target, sender("b", 2))
    assert target.merged_stale is not None
    assert target.claim(S, P, 1) == at(5)
    assert len(target.tables()) == 2


def test_all_stale_tables_are_merged_into_one() -> None:
    target = edge()
    for incarnation in range(1, 6):
        take(
            target,
            sender(
                "b",
                incarnation,
                added=[f"a = {incarnation}"],
                entries={S: at(incarnation)},
                known={P: 1},
            ),
        )
        assert len(target.tables()) <= 2, (
            "I14: one for each broker of the direction, and the stale one"
        )
    assert target.claim(S, P, 1) == at(5)
    assert len(target.conjunctions) == 5


def test_a_merged_table_is_late_unless_the_source_of_the_entry_claimed_it() -> None:
    ahead = sender("b1", entries={S: at(5), T: at(1)}, known={P: 1}, late={P: frozenset({S})})
    behind = sender("b2", entries={S: at(4), T: at(1)}, known={P: 1, Q: 1})
    made = merged("there", [ahead.table, behind.table], budget=10, merge=merge)
    assert made.entries == {S: at(5), T: at(1)}
    assert made.claim(S, P, 1) is None, "5 was not claimed for P, and the entry is not 4"
    assert made.claim(S, Q, 1) is None
    assert made.claim(T, P, 1) == at(1)
    assert made.claim(T, Q, 1) == at(1)


def test_a_merged_table_knows_a_pubend_at_the_greatest_version_and_claims_accordingly() -> None:
    old = sender("b1", entries={S: at(5)}, known={P: 1})
    new = sender("b2", entries={T: at(1)}, known={P: 2})
    made = merged("there", [old.table, new.table], budget=10, merge=merge)
    assert made.known == {P: 2}
    assert made.claim(S, P, 2) is None
    assert made.claim(T, P, 2) == at(1)


def test_a_merged_table_stays_within_the_budget_of_conjunctions() -> None:
    parts = [sender(f"b{n}", added=[f"a = {n}", f"b = {n}"]).table for n in range(9)]
    made = merged("there", parts, budget=4, merge=merge)
    assert len(made.conjunctions) <= 4
    assert all(Filter.of(made.conjunctions.values()).matches({"a": n}) for n in range(9))


def test_stale_tables_are_dropped_when_current_ones_claim_as_much() -> None:
    target = edge()
    take(target, sender("b", 1, entries={S: at(5), T: at(1)}, known={P: 1, Q: 1}))
    take(target, sender("b", 2, entries={S: at(5), T: at(1)}, known={P: 1}))
    target.drop_dominated(always)
    assert target.merged_stale is not None, "no other table claims for Q"
    target.drop_dominated(lambda pubend: pubend != Q)
    assert target.merged_stale is None, "events of Q are not sent in this direction"


def test_stale_tables_stay_while_there_is_no_other() -> None:
    target = edge()
    take(target, sender("b", entries={S: at(1)}))
    target.mark_stale("b", 0)
    target.drop_dominated(always)
    assert S in target.hosts


def test_a_stale_table_stays_while_a_host_is_late_in_the_current_ones() -> None:
    target = edge()
    take(target, sender("b", 1, entries={S: at(5)}, known={P: 1}))
    late = {P: frozenset({S})}
    take(target, sender("b", 2, entries={S: at(9)}, known={P: 1}, late=late))
    target.drop_dominated(always)
    assert target.claim(S, P, 1) == at(5)


def test_stale_tables_are_dropped_after_their_ttl() -> None:
    target = edge()
    take(target, sender("b", entries={S: at(1)}))
    target.mark_stale("b", 1_000)
    target.expire(999)
    assert S in target.hosts
    target.expire(1_000)
    assert not target.hosts
    assert target.tables() == ()


def test_the_table_of_an_old_incarnation_is_kept_until_the_new_one_sends_its_own() -> None:
    target = edge(S)
    old, new = leaf_sender(S), leaf_sender(S, incarnation=2)
    take(target, old, "s")
    request = target.source("s", "s", 2, str(S), 5)
    assert target.claim(S, P, 1) == at(1)
    (full,) = new.answer(request)
    target.receive("s", full)
    assert target.claim(S, P, 1) == at(1, incarnation=2)
    assert len(target.tables()) == 1


def test_the_host_of_a_peer_is_claimed_for_the_pubends_known_to_its_broker() -> None:
    target = edge(S, is_peer=True)
    assert not target.note_known("s", P, 1), "s is no source yet"
    take(target, leaf_sender(S), "s")
    assert target.claim(S, P, 1) is None
    assert target.note_known("s", P, 1)
    assert not target.note_known("s", P, 1)
    assert target.claim(S, P, 1) == at(1)
    assert target.claim(S, P, 2) is target.claim(S, Q, 1) is None
    target.mark_stale("s", 0)
    assert target.claim(S, P, 1) == at(1), "s knows P although its table is stale"


def test_a_peer_in_a_new_incarnation_knows_no_pubend() -> None:
    target = edge(S, is_peer=True)
    take(target, leaf_sender(S), "s")
    target.note_known("s", P, 1)
    new = leaf_sender(S, incarnation=2)
    request = target.source("s", "s", 2, str(S), 5)
    assert target.claim(S, P, 1) == at(1)
    (full,) = new.answer(request)
    target.receive("s", full)
    assert target.claim(S, P, 1) is None
    target.note_known("s", P, 1)
    assert target.claim(S, P, 1) == at(1, incarnation=2)


def test_an_incomplete_table_is_forgotten_with_its_source() -> None:
    target = edge()
    target.source("b", "n", 1, "here", 0)
    assert target.sources() == ("b",)
    target.mark_stale("b", 0)
    assert target.sources() == ()
    assert target.tables() == ()


def test_a_removed_edge_holds_nothing_and_frees_its_numbers() -> None:
    world = World(tree("a-b-c"))
    world["c"].subscribe("x", "size > 1")
    world.advertise("P", "a", "", known_to=world.brokers)
    world.settle()
    table_store = world["b"].table_store
    assert table_store.out["a"].sender.table.conjunctions
    table_store.remove("c")
    table_store.flush()
    assert not table_store.out["a"].sender.table.conjunctions
    assert ShbId("c", "c") not in table_store.out["a"].sender.table.entries
    assert table_store.index.match({"size": 5}) == 0
    edge_again = table_store.add_cell("c")
    assert not edge_again.settled
    assert "b" not in table_store.out


def test_dropping_stale_tables_uses_the_configured_ttl() -> None:
    world = World(tree("a-b"), parameters=Parameters(stale_table_ttl_s=300))
    world.settle()
    world.stop("b")
    table_store = world["a"].table_store
    table_store.drop_stale(microseconds(s=299))
    assert table_store.edges["b"].tables()
    table_store.drop_stale(microseconds(s=300))
    assert not table_store.edges["b"].tables()


# --- out-tables -----------------------------------------------------------------------------------


def out_table() -> OutTable:
    name = TableId("me", 1, "up")
    return OutTable(name, budget=10, merge=merge, log_max=4, bytes_max=1_000)


def test_an_out_table_is_empty_at_version_1() -> None:
    table = out_table().sender.table
    assert (table.version, table.conjunctions, table.known) == (1, {}, {})


def test_an_out_table_contains_only_conjunctions_that_a_known_pubend_may_match() -> None:
    out, below = out_table(), edge()
    out.watch(below)
    take(below, sender("b", added=["kind = 'news'", "kind = 'stock' AND a > 1", "a = 0"]))
    out.announce(P, 1, Filter("kind = 'stock'"))
    out.flush()
    assert set(out.sender.table.conjunctions) == {"a = 0", "a > 1 AND kind = 'stock'"}
    out.announce(Q, 1, Filter("kind = 'news' AND a = 7"))
    out.flush()
    assert set(out.sender.table.conjunctions) >= {"kind = 'news'"}
    assert out.sender.table.known == {P: 1, Q: 1}
    out.withdraw(P)
    out.flush()
    assert set(out.sender.table.conjunctions) == {"kind = 'news'"}
    assert out.sender.table.known == {Q: 1}


def test_a_wider_advertisement_is_known_at_its_version_and_adds_pruned_conjunctions() -> None:
    out, below = out_table(), edge()
    out.watch(below)
    take(below, sender("b", added=["kind = 'news'"], entries={S: at(1)}, known={P: 1}))
    out.announce(P, 1, Filter("kind = 'stock'"))
    out.flush()
    assert out.sender.table.claim(S, P, 1) == at(1)
    out.announce(P, 2, Filter("kind IN ('stock', 'news')"))
    out.announce(P, 1, Filter("kind = 'stock'"))  # an old announcement changes nothing
    out.flush()
    assert set(out.sender.table.conjunctions) == {"kind = 'news'"}
    assert out.sender.table.claim(S, P, 2) is None, "the broker below does not know version 2"


def test_a_peer_that_does_not_know_a_pubend_is_late_for_it() -> None:
    out, below = out_table(), edge(S, is_peer=True)
    out.watch(below)
    out.announce(P, 1, Filter(""))
    take(below, leaf_sender(S), "s")
    out.flush()
    assert out.sender.table.late == {P: frozenset({S})}
    below.note_known("s", P, 1)
    out.flush()
    assert out.sender.table.claim(S, P, 1) == at(1)


def test_the_greatest_entry_is_used_and_is_late_unless_its_source_claims_it() -> None:
    out, below = out_table(), edge()
    out.watch(below)
    out.announce(P, 1, Filter(""))
    take(below, sender("b1", entries={S: at(5), T: at(2)}, known={}))
    take(below, sender("b2", entries={S: at(4), T: at(2), U: at(1)}, known={P: 1}))
    out.flush()
    table = out.sender.table
    assert table.entries == {S: at(5), T: at(2), U: at(1)}
    assert table.late == {P: frozenset({S})}


def test_a_retired_host_is_never_late() -> None:
    out, below = out_table(), edge()
    out.watch(below)
    out.announce(P, 1, Filter(""))
    take(below, sender("b", entries={S: at(1, retired=True)}))
    out.flush()
    assert not out.sender.table.late


def test_without_changes_there_is_no_new_version() -> None:
    out, below = out_table(), edge()
    out.watch(below)
    source = sender("b", entries={S: at(1)})
    take(below, source)
    assert out.flush() is not None
    assert out.flush() is None
    below.mark_stale("b", 1)
    assert out.dirty
    assert out.flush() is None, "a stale table has the same contents"


def test_a_conjunction_of_two_edges_stays_until_both_have_dropped_it() -> None:
    out, left, right = out_table(), edge(), edge()
    out.announce(P, 1, Filter(""))
    for below, broker in ((left, "b1"), (right, "b2")):
        out.watch(below)
        take(below, sender(broker, added=["a > 1"]))
    out.flush()
    out.unwatch(left)
    assert out.flush() is None
    out.unwatch(right)
    out.flush()
    assert not out.sender.table.conjunctions
