"""Tables when the tree around a broker changes: distrust, inheritance, names (R13, R21, R23)."""

from __future__ import annotations

from gapless import Filter
from gapless.content.merging import merge
from gapless.core.context import Identity
from gapless.core.ids import PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.parameters import DEFAULTS
from gapless.messages.overlay import FIRST_SHAPE, ShapeVersion
from gapless.messages.propagation import TableId, TableRequest
from gapless.propagation import Edge, TableSender, TableStore, TransferOutcome
from gapless.propagation.edge import LocationVersion
from gapless.propagation.index import TableIndex
from gapless.propagation.stale_tables import STALE_SHAPE
from gapless.propagation.transfer import TableReceiver
from tests.shape_versions import shape

P = PubendId("P")
S, T = ShbId("s", "s"), ShbId("t", "t")


def at(counter: int) -> VectorEntry:
    return VectorEntry(VirtualTime(1, counter), 0, False)


def sender(broker: str, *shbs: ShbId, shape_version: ShapeVersion = FIRST_SHAPE) -> TableSender:
    """Return a table that names these SHBs and claims them for P."""
    name = TableId(broker, 1, "here", shape_version)
    made = TableSender(name, 1, log_max=4, bytes_max=10_000)
    delta = made.table.difference(
        added=["kind = 'news'"], entries={shb: at(3) for shb in shbs}, known={P: 1}
    )
    assert delta is not None
    made.advance(delta)
    return made


def edge(name: str = "there") -> Edge:
    return Edge(
        name, None, location_version=LocationVersion(), index=TableIndex(), budget=100, merge=merge
    )


def take(target: Edge, source: TableSender) -> TransferOutcome:
    """Make a broker a source and receive its table."""
    name = source.table.name
    request = target.source(name.broker, "n", name.incarnation, name.direction, 0)
    outcome = TransferOutcome.STALE
    for message in source.answer(request):
        outcome = target.receive(name.broker, message)
    return outcome


# --- distrust -------------------------------------------------------------------------------------


def test_a_table_of_an_older_shape_claims_but_does_not_locate_hosts() -> None:
    target = edge()
    take(target, sender("b", S))
    assert target.locates(S)
    target.distrust_before(shape(2))
    assert not target.locates(S)
    assert target.locating_tables() == ()
    assert target.claim(S, P, 1) == at(3), "the table may still filter"


def test_a_table_of_the_new_shape_locates_hosts_again() -> None:
    target = edge()
    take(target, sender("b", S))
    target.distrust_before(shape(2))
    assert take(target, sender("b", T, shape_version=shape(2))) is TransferOutcome.APPLIED
    assert target.locates(T)
    assert not target.locates(S)


def test_tables_merged_before_a_reshape_do_not_locate_hosts() -> None:
    target = edge()
    take(target, sender("b", S, shape_version=shape(5)))
    target.merge_stale("b", now=1)
    assert target.merged_stale is not None
    assert target.merged_stale.name.shape_version == STALE_SHAPE
    assert target.locates(S)
    target.distrust_before(shape(2))
    assert not target.locates(S), "its shape version may be that of another cell"


# --- inheritance ----------------------------------------------------------------------------------


def test_an_edge_inherits_the_tables_of_a_removed_one_as_stale() -> None:
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


def test_an_edge_that_inherits_keeps_its_own_tables() -> None:
    left, heir = edge("left"), edge("heir")
    take(left, sender("b", S))
    take(heir, sender("d", T))
    heir.merge_stale("d", now=1)
    heir.inherit(left, now=2)
    assert {*heir.hosts} == {S, T}
    assert len(heir.tables()) == 1


def test_an_edge_without_tables_has_nothing_to_inherit() -> None:
    heir = edge("heir")
    heir.inherit(edge("left"), now=1)
    assert heir.tables() == ()


# --- names ----------------------------------------------------------------------------------------


def test_a_renamed_table_is_always_sent_whole() -> None:
    source = sender("b", S)
    old = source.table.name
    version = source.table.version
    source.rename(TableId("b", 1, "here", shape(2)))
    (answer,) = source.answer(TableRequest("here", old, version))
    assert answer.table == TableId("b", 1, "here", shape(2))
    assert answer.version == version + 1, "heartbeats show that the copy is outdated"


def test_a_copy_does_not_return_to_an_older_shape() -> None:
    source, copy = sender("b", S), TableReceiver()
    (old,) = source.answer(TableRequest("here"))
    source.rename(TableId("b", 1, "here", shape(2)))
    (new,) = source.answer(TableRequest("here"))
    assert copy.take(new).outcome is TransferOutcome.APPLIED
    assert copy.take(old).outcome is TransferOutcome.STALE
    delta = sender("b").table.difference(entries={T: at(9)})
    assert delta is not None
    assert copy.take(delta).outcome is TransferOutcome.STALE


class NoPaths:
    version = 1

    def path_to(self, cell: str) -> tuple[str, ...] | None:
        del cell
        return None


def table_store(shape_version: ShapeVersion = FIRST_SHAPE) -> TableStore:
    made = TableStore(Identity("k", "k", 1), DEFAULTS, NoPaths())
    made.set_shape_version(shape_version)
    made.announce(P, 1, Filter(""), "i")
    return made


def test_all_tables_are_renamed_when_the_own_cell_has_another_shape() -> None:
    held = table_store()
    held.add_cell("j")
    assert not held.set_shape_version(shape(1))
    assert held.set_shape_version(shape(2))
    assert held.out["j"].sender.table.name == TableId("k", 1, "j", shape(2))


def test_the_table_for_a_new_direction_omits_entries_that_may_be_behind_it() -> None:
    # i was behind j before, so j's former table may name SHBs of i
    held = table_store()
    take(held.add_cell("j"), sender("j", S))
    held.set_shape_version(shape(2))
    held.edges["j"].distrust_before(shape(2))
    held.add_cell("i")
    held.add_cell("m").settled = True
    held.flush()
    table = held.out["i"].sender.table
    assert S not in table.entries
    assert set(table.conjunctions) == {"kind = 'news'"}, (
        "additional conjunctions only let more events pass"
    )
    take(held.edges["j"], sender("j", T, shape_version=shape(2)))
    held.flush()
    assert set(table.entries) == {T}


def test_a_restarted_broker_trusts_tables_of_its_stored_shape() -> None:
    held = table_store(shape(2))
    j = held.add_cell("j", shape_version=shape(2))
    held.add_cell("i")
    take(j, sender("j", S))
    held.flush()
    assert not j.locates(S)
    assert held.out["i"].sender.table.entries == {}


def test_tables_of_a_removed_edge_are_inherited_or_dropped() -> None:
    held = table_store()
    take(held.add_cell("j"), sender("j", S))
    take(held.add_cell("l"), sender("l", T))
    held.add_cell("i")
    held.remove("j", "i", now=3)
    held.remove("l")
    assert held.edges["i"].claim(S, P, 1) == at(3)
    assert held.claim(T, P, 1) is None
    assert set(held.out) == {"i"}
