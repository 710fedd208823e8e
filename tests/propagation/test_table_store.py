"""All tables of a broker together: directions of pubends, edges that come and go, the index."""

from __future__ import annotations

from gapless import Filter
from gapless.core.ids import PubendId, ShbId
from gapless.propagation.index import TableIndex
from tests.propagation.world import World, tree

P = PubendId("P")


def star() -> World:
    """Return a broker m between a, b and c, with a subscriber of kind news at c."""
    world = World(tree("a-m-b", "m-c"))
    world["c"].subscribe("x", "kind = 'news'")
    world["c"].table_store.announce(PubendId("any"), 1, Filter(""), "m")  # otherwise c prunes it
    world.settle()
    return world


def known(world: World) -> dict[str, bool]:
    table_store = world["m"].table_store
    table_store.flush()
    return {cell: P in out.sender.table.known for cell, out in table_store.out.items()}


def test_a_pubend_is_known_in_its_direction_only() -> None:
    world = star()
    table_store = world["m"].table_store
    table_store.announce(P, 1, Filter(""), "a")
    assert known(world) == {"a": True, "b": False, "c": False}
    assert set(table_store.out["a"].sender.table.conjunctions) == {"kind = 'news'"}
    assert not table_store.out["b"].sender.table.conjunctions


def test_a_pubend_whose_direction_changes_is_known_in_the_new_one() -> None:
    world = star()
    world["m"].table_store.announce(P, 1, Filter(""), "a")
    world["m"].table_store.announce(P, 1, Filter(""), "b")
    assert known(world) == {"a": False, "b": True, "c": False}


def test_an_old_announcement_from_a_new_direction_keeps_the_newest_version() -> None:
    world = star()
    table_store = world["m"].table_store
    table_store.announce(P, 2, Filter(""), "a")
    table_store.announce(P, 1, Filter("kind = 'stock'"), "b")
    table_store.flush()
    assert table_store.out["b"].sender.table.known == {P: 2}
    assert set(table_store.out["b"].sender.table.conjunctions) == {"kind = 'news'"}


def test_a_withdrawn_pubend_is_known_in_no_direction() -> None:
    world = star()
    table_store = world["m"].table_store
    table_store.announce(P, 1, Filter(""), "a")
    table_store.withdraw(P)
    table_store.withdraw(P)
    assert not any(known(world).values())
    assert not table_store.out["a"].sender.table.conjunctions


def test_a_local_pubend_is_in_no_direction() -> None:
    world = star()
    world["m"].table_store.announce(P, 1, Filter(""), "home")
    assert not any(known(world).values())


def test_the_table_for_a_new_edge_has_the_conjunctions_of_the_others_and_its_pubends() -> None:
    world = star()
    table_store = world["m"].table_store
    table_store.announce(P, 1, Filter(""), "b")
    table_store.remove("b")
    table_store.add_cell("b")
    assert known(world)["b"]
    assert ShbId("c", "c") in table_store.out["b"].sender.table.entries
    assert set(table_store.out["b"].sender.table.conjunctions) == {"kind = 'news'"}


def test_numbers_of_tables_are_reused() -> None:
    index = TableIndex()
    (news,) = Filter("kind = 'news'").conjunctions
    assert [index.number() for _ in range(3)] == [0, 1, 2]
    index.change(1, [news, news], [])
    index.change(1, [], [news])
    assert index.match({"kind": "news"}) == 0b10, "two texts of a table may mean the same"
    assert index.match_batch([{"kind": "news"}, {"kind": "stock"}]) == [0b10, 0]
    index.drop(1)
    assert index.match({"kind": "news"}) == 0
    assert index.number() == 1


def test_statistics_count_the_held_tables() -> None:
    world = star()
    found = world["m"].table_store.statistics()
    assert found["edges"] == found["tables"] == 4
    assert found["unsettled"] == found["outdated"] == 0
    assert world["m"].table_store.out["a"].statistics()["pruned"] == 1
