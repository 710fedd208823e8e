"""Location, sufficiency and the choice of tables: R23, R24, R25, and the cache of results."""

from __future__ import annotations

import pytest

from gapless.core.ids import PubendId, ShbId, VectorEntry, VirtualTime
from gapless.messages.streams import AttachKind
from gapless.propagation import Receiver, StreamVector
from gapless.propagation.sufficiency import EVERYTHING_PASSES, TableChooser
from tests.propagation.world import World, cell_receiver, leaf_receiver, tree

P = PubendId("P")


def shb(name: str) -> ShbId:
    return ShbId(name, name)


def counting(world: World, broker: str, receiver: Receiver, *names: str) -> list[str]:
    found = world[broker].table_store.chooser.counting([shb(name) for name in names], receiver)
    return [host.broker for host in found]


def settled(*edges: str, wants: dict[str, str] | None = None) -> World:
    world = World(tree(*edges))
    world.advertise("P", "a", "", known_to=world.brokers)
    for cell, text in (wants or {}).items():
        world[cell].subscribe("x", text)
    world.settle()
    return world


def vector(world: World, broker: str, *names: str) -> StreamVector:
    claims = world[broker].claims(P)
    return StreamVector(1, 1, {shb(name): claims[shb(name)] for name in names})


def test_a_host_of_the_neighbourhood_counts_in_its_direction_only() -> None:
    world = World(tree("a-b-c", "a-d"))
    assert counting(world, "a", cell_receiver("b"), "a", "b", "c", "d") == ["b", "c"]
    assert counting(world, "a", cell_receiver("d"), "a", "b", "c", "d") == ["d"]


def test_a_host_of_unknown_location_counts_in_every_direction() -> None:
    world = World(tree("a-b-c-far", "a-d"))
    for receiver in ("b", "d", "c"):
        assert counting(world, "a", cell_receiver(receiver), "far") == ["far"]


def test_a_host_counts_only_at_the_edge_whose_table_has_it() -> None:
    world = settled("a-b-c-far", "a-d")
    assert counting(world, "a", cell_receiver("b"), "far") == ["far"]
    assert counting(world, "a", cell_receiver("d"), "far") == []


def test_an_unsettled_edge_locates_no_host() -> None:
    world = settled("a-b-c-far", "a-d")
    world["a"].table_store.edges["b"].settled = False
    world["a"].paths.version += 1
    assert counting(world, "a", cell_receiver("d"), "far") == ["far"]


def test_for_a_leaf_only_its_own_host_counts() -> None:
    world = World(tree("a-b"), {"a": "a", "b1": "b", "b2": "b"})
    receiver = leaf_receiver(ShbId("b1", "b"))
    found = world["b2"].table_store.chooser.counting(
        [ShbId("b1", "b"), ShbId("b2", "b"), shb("far")], receiver
    )
    assert list(found) == [ShbId("b1", "b")]


def test_under_bypass_neither_the_bypassed_cell_nor_siblings_count() -> None:
    world = settled("a-n-c-cc", "n-d-dd")
    world.stop("n")
    for cell in ("c", "d"):
        world.settle(("a", cell))
    hosts = ("n", "c", "d", "cc", "dd")
    assert counting(world, "a", cell_receiver("c"), *hosts) == ["c", "cc"]
    assert counting(world, "a", cell_receiver("d"), *hosts) == ["d", "dd"]
    assert counting(world, "a", cell_receiver("n"), *hosts) == ["n", "c", "d", "cc", "dd"]


def test_a_stale_table_does_not_locate_a_host_at_a_sibling() -> None:
    world = settled("a-n-c-cc", "n-d-dd")
    world.stop("n")
    world.settle(("a", "c"), ("a", "d"))
    world["a"].table_store.edges["n"].mark_stale("d", 0)
    assert counting(world, "a", cell_receiver("c"), "dd") == ["dd"]


def test_a_host_in_the_table_of_a_receiver_counts_even_if_a_sibling_has_it_too() -> None:
    """One of the two tables is stale; then the host counts for both."""
    world = settled("a-n-c-cc", "n-d-dd")
    world.stop("n")
    world.settle(("a", "c"), ("a", "d"))
    (held,) = world["a"].table_store.edges["n"].held_of("d")
    assert held.table is not None
    held.table.entries[shb("cc")] = VectorEntry(VirtualTime(1, 1))
    assert counting(world, "a", cell_receiver("c"), "cc") == ["cc"]


# --- the choice -----------------------------------------------------------------------------------


def test_tables_of_the_receivers_cell_are_tried_first_then_all_then_everything_passes() -> None:
    world = settled("a-n-c", "n-d", wants={"c": "size = 1", "d": "size = 2"})
    edge = world["a"].table_store.edges["n"]
    world["a"].table_store.edges["n"].mark_stale("n", 0)
    world.settle(("a", "c"))
    own = world["a"].choose(P, vector(world, "a", "c", "d"), cell_receiver("c"))
    assert own.tables == edge.held_of("c")
    all_tables = world["a"].choose(P, vector(world, "a", "c", "d"), cell_receiver("d"))
    assert all_tables.tables == tuple(edge.held())
    beyond = StreamVector(2, 1, {shb("d"): VectorEntry(VirtualTime(1, 99))})
    assert world["a"].choose(P, beyond, cell_receiver("d")) == EVERYTHING_PASSES


@pytest.mark.parametrize(
    "receiver", [Receiver(AttachKind.PHB_CELL, "a"), cell_receiver("far"), cell_receiver("nowhere")]
)
def test_everything_passes_to_routers_of_the_phb_cell_and_to_unknown_receivers(
    receiver: Receiver,
) -> None:
    world = settled("a-b-c-far")
    assert world["a"].choose(P, StreamVector(1, 1, {}), receiver) == EVERYTHING_PASSES
    assert counting(world, "a", receiver, "b") == ["b"]


def test_everything_passes_in_an_unknown_stream_epoch() -> None:
    world = settled("a-b")
    assert world["a"].choose(P, None, cell_receiver("b")) == EVERYTHING_PASSES


def test_without_obligations_all_tables_of_the_edge_are_used() -> None:
    """Best effort has no vector: a router filters by the tables it has (R33)."""
    world = settled("a-b", wants={"b": "size = 1"})
    world.start("b")
    world.exchange("a", "b")
    choice = world["a"].choose(P, StreamVector(7, 1, {}), cell_receiver("b"))
    assert choice.tables is not None
    assert len(choice.tables) == 2
    assert world["a"].passes(P, StreamVector(7, 1, {}), cell_receiver("b"), {"size": 1})


def test_a_claim_must_reach_the_announcement_version_of_the_stream_epoch() -> None:
    world = settled("a-b", wants={"b": "size = 1"})
    promised = vector(world, "a", "b")
    assert world["a"].choose(P, promised, cell_receiver("b")).tables is not None
    wider = StreamVector(2, 2, promised.entries)
    assert world["a"].choose(P, wider, cell_receiver("b")) == EVERYTHING_PASSES


def test_time_and_control_version_must_be_claimed_by_one_table() -> None:
    world = World(tree("a-n"), {"a": "a", "n1": "n", "n2": "n"})
    world.advertise("P", "a", "", known_to=world.brokers)
    host = ShbId("n1", "n")
    world.settle(*world.links(), ("a", "n2"))
    left, right = world["a"].table_store.edges["n"].tables()
    left.entries[host] = VectorEntry(VirtualTime(1, 5), 1)
    right.entries[host] = VectorEntry(VirtualTime(1, 4), 2)
    chooser = world["a"].table_store.chooser
    for counter, control_version, enough in ((5, 1, True), (4, 2, True), (5, 2, False)):
        demanded = StreamVector(counter, 1, {host: VectorEntry(VirtualTime(1, counter))})
        choice = chooser.choose(P, demanded, control_version, cell_receiver("n"))
        assert (choice.tables is not None) == enough


def test_a_retired_host_is_always_served() -> None:
    world = settled("a-b")
    world["b"].leaf.retire()
    world.settle()
    demanded = StreamVector(1, 1, {shb("b"): VectorEntry(VirtualTime(9, 9), 9)})
    assert world["a"].choose(P, demanded, cell_receiver("b"), 9).tables is not None


# --- the cache ------------------------------------------------------------------------------------


def test_results_are_cached_until_a_table_or_a_location_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = settled("a-b-c-far", "a-d", wants={"far": "size = 1"})
    computed = []
    chosen = TableChooser._chosen

    def counted(chooser: TableChooser, *arguments: object) -> object:
        computed.append(arguments)
        return chosen(chooser, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(TableChooser, "_chosen", counted)
    promised = vector(world, "a", "far")

    def looked_up() -> int:
        computed.clear()
        for _ in range(3):
            world["a"].choose(P, promised, cell_receiver("b"))
            world["a"].choose(P, promised, cell_receiver("d"))
        return len(computed)

    assert looked_up() == 2
    assert looked_up() == 0
    world["far"].subscribe("y", "size = 2")
    world.settle()
    assert looked_up() == 1, "a table of one edge changed"
    world["a"].paths.version += 1
    assert looked_up() == 2, "the neighbourhood changed"
    world["a"].table_store.edges["b"].mark_stale("b", 0)
    assert looked_up() == 2, "the locations in tables changed"


def test_the_cache_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    from gapless.propagation import sufficiency

    monkeypatch.setattr(sufficiency, "ROUTES_CACHED_MAX", 5)
    world = settled("a-b")
    for stream_epoch in range(20):
        world["a"].choose(P, StreamVector(stream_epoch, 1, {}), cell_receiver("b"))
    (cache,) = world["a"].table_store.chooser._cache.values()
    assert len(cache.choices) <= 5
