"""Tables when the tree around a broker changes: doubt, heirs, names (R13, R21, R23)."""

from __future__ import annotations

from gapless import Filter
from gapless.content.merging import merge
from gapless.core.ids import Entry, PubendId, ShbId, VirtualTime
from gapless.core.machine import Identity
from gapless.core.parameters import DEFAULTS
from gapless.messages.propagation import TableId, TableWant
from gapless.propagation import Edge, Holdings, Outcome, TableSender
from gapless.propagation.edge import Places
from gapless.propagation.index import TableIndex
from gapless.propagation.stale_tables import LEGACY_SHAPE
from gapless.propagation.transfer import TableReceiver

P = PubendId("P")
S, T = ShbId("s", "s"), ShbId("t", "t")


def at(counter: int) -> Entry:
    return Entry(VirtualTime(1, counter), 0, False)


def sender(broker: str, *shbs: ShbId, shape_version: int = 1) -> TableSender:
    """Return a table that names these hosts and claims them for P."""
    name = TableId(broker, 1, "here", shape_version)
    made = TableSender(name, 1, log_max=4, bytes_max=10_000)
    delta = made.table.difference(
        added=["kind = 'news'"], entries={shb: at(3) for shb in shbs}, known={P: 1}
    )
    assert delta is not None
    made.advance(delta)
    return made


def edge(name: str = "there") -> Edge:
    return Edge(name, None, places=Places(), index=TableIndex(), budget=100, merge=merge)


def take(target: Edge, source: TableSender) -> Outcome:
    """Let a broker be a source, and let its table come."""
    name = source.table.name
    want = target.source(name.broker, "n", name.life, name.direction, 0)
    outcome = Outcome.STALE
    for message in source.answer(want):
        outcome = target.receive(name.broker, message)
    return outcome


# --- doubt ----------------------------------------------------------------------------------------


def test_a_table_of_an_older_shape_claims_but_does_not_place() -> None:
    target = edge()
    take(target, sender("b", S))
    assert target.places(S)
    target.doubt(2)
    assert not target.places(S)
    assert target.placing() == ()
    assert target.claim(S, P, 1) == at(3), "it may still filter"


def test_a_table_of_the_new_shape_places_again() -> None:
    target = edge()
    take(target, sender("b", S))
    target.doubt(2)
    assert take(target, sender("b", T, shape_version=2)) is Outcome.APPLIED
    assert target.places(T)
    assert not target.places(S)


def test_what_was_joined_before_a_doubt_does_not_place() -> None:
    target = edge()
    take(target, sender("b", S, shape_version=5))
    target.fold("b", now=1)
    assert target.legacy is not None
    assert target.legacy.name.shape_version == LEGACY_SHAPE
    assert target.places(S)
    target.doubt(2)
    assert not target.places(S), "its number counts the changes of some other cell, perhaps"


# --- heirs ----------------------------------------------------------------------------------------


def test_an_edge_inherits_the_tables_of_one_that_is_removed_as_old_ones() -> None:
    left, heir = edge("left"), edge("heir")
    take(left, sender("b", S))
    take(left, sender("c", T))
    heir.inherit(left, now=7)
    assert heir.claim(S, P, 1) == heir.claim(T, P, 1) == at(3)
    assert {str(one) for one in heir.conjunctions} == {"kind = 'news'"}
    assert heir.sources() == ()
    assert not heir.settled
    heir.expire(before=7)
    assert heir.tables() == ()


def test_an_edge_that_inherits_keeps_what_it_had() -> None:
    left, heir = edge("left"), edge("heir")
    take(left, sender("b", S))
    take(heir, sender("d", T))
    heir.fold("d", now=1)
    heir.inherit(left, now=2)
    assert {*heir.hosts} == {S, T}
    assert len(heir.tables()) == 1


def test_from_an_edge_without_tables_nothing_is_inherited() -> None:
    heir = edge("heir")
    heir.inherit(edge("left"), now=1)
    assert heir.tables() == ()


# --- names ----------------------------------------------------------------------------------------


def test_a_renamed_table_is_sent_whole_whatever_the_asker_has() -> None:
    source = sender("b", S)
    old = source.table.name
    version = source.table.version
    source.rename(TableId("b", 1, "here", 2))
    (answer,) = source.answer(TableWant("here", old, version))
    assert answer.table == TableId("b", 1, "here", 2)
    assert answer.version == version + 1, "heartbeats show that the copy is old"


def test_a_copy_does_not_go_back_to_an_older_shape() -> None:
    source, copy = sender("b", S), TableReceiver()
    (old,) = source.answer(TableWant("here"))
    source.rename(TableId("b", 1, "here", 2))
    (new,) = source.answer(TableWant("here"))
    assert copy.take(new).outcome is Outcome.APPLIED
    assert copy.take(old).outcome is Outcome.STALE
    delta = sender("b").table.difference(entries={T: at(9)})
    assert delta is not None
    assert copy.take(delta).outcome is Outcome.STALE


class Nowhere:
    version = 1

    def path_to(self, cell: str) -> tuple[str, ...] | None:
        del cell
        return None


def holdings(shape_version: int = 1) -> Holdings:
    made = Holdings(Identity("k", "k", 1), DEFAULTS, Nowhere())
    made.take_shape(shape_version)
    made.announce(P, 1, Filter(""), "i")
    return made


def test_all_tables_have_new_names_when_the_own_cell_has_another_shape() -> None:
    held = holdings()
    held.add_cell("j")
    assert not held.take_shape(1)
    assert held.take_shape(2)
    assert held.out["j"].sender.table.name == TableId("k", 1, "j", 2)


def test_a_new_direction_is_not_told_what_may_be_its_own() -> None:
    # i was behind j before, so j's table from then may name hosts of i
    held = holdings()
    take(held.add_cell("j"), sender("j", S))
    held.take_shape(2)
    held.edges["j"].doubt(2)
    held.add_cell("i")
    held.add_cell("m").settled = True
    held.flush()
    told = held.out["i"].sender.table
    assert S not in told.entries
    assert set(told.conjunctions) == {"kind = 'news'"}, "more conjunctions only let more pass"
    take(held.edges["j"], sender("j", T, shape_version=2))
    held.flush()
    assert set(told.entries) == {T}


def test_a_restarted_broker_believes_tables_of_the_shape_that_it_knows() -> None:
    held = holdings(2)
    j = held.add_cell("j", shape_version=2)
    held.add_cell("i")
    take(j, sender("j", S))
    held.flush()
    assert not j.places(S)
    assert held.out["i"].sender.table.entries == {}


def test_what_came_over_a_removed_edge_goes_to_its_heir_or_nowhere() -> None:
    held = holdings()
    take(held.add_cell("j"), sender("j", S))
    take(held.add_cell("l"), sender("l", T))
    held.add_cell("i")
    held.remove("j", "i", now=3)
    held.remove("l")
    assert held.edges["i"].claim(S, P, 1) == at(3)
    assert held.claim(T, P, 1) is None
    assert set(held.out) == {"i"}
