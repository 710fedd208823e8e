"""Streams while a cell moves, with whole brokers: pauses, best effort, stale views (RS-11, RS-14, RS-37).

The numbers of the runs are those of the rules for reshape. In all of them cell i leaves its neighbour
j for k: SHIFT(i, j, k). Each run is played again with its rule taken out, and then fails as the
second test shows.
"""

from __future__ import annotations

from itertools import permutations

import pytest

from gapless.core.ids import BrokerId, PubendId, ShbId
from gapless.core.limits import CHANGE_BURST
from gapless.directory.announcements import Announcements, KnownPubend
from gapless.feeds.candidates import FeedCandidates
from gapless.messages.overlay import FIRST_SHAPE, Quality, RecordPush
from gapless.messages.propagation import TableDelta, TableFull
from gapless.messages.streams import (
    Attach,
    FeedUnavailable,
    FeedUnavailableReason,
    Nack,
    StreamData,
)
from gapless.overlay.path_epochs import SAME_VIEW, PathEpochs, ViewDifference
from gapless.overlay.record_exchange import RecordExchange
from gapless.overlay.tree import TreeChange
from gapless.propagation import sufficiency
from gapless.propagation.edge import Edge, HeldTable
from gapless.propagation.sources import TableSources
from gapless.propagation.sufficiency import Receiver
from gapless.routing.routed import RoutedPubend
from gapless.subscribers.best_effort_end import BestEffortSubend
from gapless_lab.sim.planted_bugs import patched
from tests.scenarios.brokers import Publisher, Subscriber, World, of

P = PubendId("P")
RTT_MS, SYNC_MS = 2, 1


class Flow:
    """A publisher that sends an event each millisecond, and the times at which they arrive."""

    def __init__(self, world: World, ann: Publisher, *listeners: Subscriber) -> None:
        self.world = world
        self.ann = ann
        self.count = 0
        self.longest = dict.fromkeys((each.broker for each in listeners), 0)
        """By broker: the longest time without an event, in milliseconds."""
        self._listeners = listeners
        self._seen = {each.broker: (0, 0) for each in listeners}

    def run(self, ms: int) -> None:
        """Publish, and note what arrives."""
        for _ in range(ms):
            self.count += 1
            self.ann.send_event(f"e{self.count}")
            self.world.run(ms=1)
            for each in self._listeners:
                seen, quiet = self._seen[each.broker]
                quiet = 0 if len(each.events) > seen else quiet + 1
                self._seen[each.broker] = (len(each.events), quiet)
                if seen:
                    self.longest[each.broker] = max(self.longest[each.broker], quiet)

    @property
    def published(self) -> list[str]:
        """All labels, in order."""
        return [f"e{number + 1}" for number in range(self.count)]


# --- pauses (RS-11) -------------------------------------------------------------------------------


def untouched() -> Flow:
    """Run 50: y - x - i - j - k; x is told of the shift 500 ms after the others."""
    world = World("y-x-i-j-k", eager_silence_ms=1)
    ann = world.publisher("y")
    listeners = [world.subscriber(name, name, "TRUE") for name in ("i", "x")]
    world.run(s=2)
    flow = Flow(world, ann, *listeners)
    flow.run(20)
    world.shift("i", "j", "k")
    world.apply_tree("i", "j", "k")
    flow.run(500)
    world.apply_tree("x")
    flow.run(100)
    world.run(s=1)
    assert all(each.events == flow.published for each in listeners)
    return flow


def test_run_50_a_stream_over_untouched_edges_does_not_pause() -> None:
    assert untouched().longest == {"i": 0, "x": 0}


def test_run_50_with_shape_versions_of_cells_the_stream_waits_for_the_last_cell() -> None:
    def cell_shapes(paths: FeedCandidates, feeder: BrokerId) -> PathEpochs:
        near = paths._tree.neighbourhood
        cell = near.cell_of(feeder)
        cells = () if cell is None else (near.own, *near.path(cell))
        shapes = sorted((each, each, near.shape_version(each)) for each in cells)
        return tuple(each for each in shapes if each[2] > FIRST_SHAPE)

    def compare(paths: FeedCandidates, receiver: Receiver, named: PathEpochs) -> ViewDifference:
        near = paths._tree.neighbourhood
        if receiver.name not in near or cell_shapes(paths, near.brokers(receiver.name)[0]) == named:
            return SAME_VIEW
        return ViewDifference(outdated=(near.own,))

    with (
        patched(FeedCandidates, "path_epochs", cell_shapes),
        patched(FeedCandidates, "difference", compare),
    ):
        assert untouched().longest["i"] > 100


def touched(order: tuple[str, ...], delta: int, publisher: str, listener: str) -> Flow:
    """A stream across the edge that moves; the cells are told one by one, a millisecond apart."""
    world = World("y-j-i-x", "j-k-m", delta=delta)
    world.records_travel = True
    ann = world.publisher(publisher)
    x = world.subscriber(listener, listener, "TRUE")
    world.run(s=2)
    flow = Flow(world, ann, x)
    flow.run(20)
    world.shift("i", "j", "k")
    for name in order:
        world.apply_tree(name)
        flow.run(1)
    flow.run(200)
    world.run(s=1)
    assert x.events == flow.published
    return flow


@pytest.mark.parametrize("order", list(permutations("ijk")))
@pytest.mark.parametrize("delta", [0, 1])
def test_no_timer_is_in_the_pause_of_a_stream_over_touched_edges(
    order: tuple[str, ...], delta: int
) -> None:
    # a nack of a listener beyond the cells that change goes one hop more
    skew_ms, paths = 2, [("y", "i", 0), ("m", "i", 0), ("i", "k", 0), ("y", "x", 1), ("i", "m", 1)]
    for publisher, listener, hops in paths:
        most = skew_ms + ((4 if delta == 0 else 3) + hops) * RTT_MS + 2 * SYNC_MS
        flow = touched(order, delta, publisher, listener)
        assert flow.longest[listener] <= most, f"{publisher} -> {listener}"


def stepped_before_its_feeder() -> int:
    """Return the pause if i attaches to k, and k hears of the shift 20 ms later."""
    world = World("y-j-i", "j-k", delta=1)
    ann = world.publisher("y")
    x = world.subscriber("i", "x", "TRUE")
    world.run(s=2)
    flow = Flow(world, ann, x)
    flow.run(20)
    world.shift("i", "j", "k")
    world.apply_tree("i")
    flow.run(20)
    world.apply_tree("j", "k", "y")
    flow.run(500)
    return flow.longest["i"]


def test_a_deferred_attach_is_answered_in_the_step() -> None:
    assert stepped_before_its_feeder() <= 20 + 3 * RTT_MS + 2 * SYNC_MS


def test_an_attach_that_is_refused_instead_of_deferred_waits_for_a_timer() -> None:
    def refuse(paths: FeedCandidates, receiver: Receiver, named: PathEpochs) -> ViewDifference:
        found = by_the_rule(paths, receiver, named)
        return found if found == SAME_VIEW else ViewDifference(outdated=("j",))

    by_the_rule = FeedCandidates.difference
    with patched(FeedCandidates, "difference", refuse):
        assert stepped_before_its_feeder() > 50


# --- stale views (RS-11) --------------------------------------------------------------------------


def fed_over_the_old_edge() -> Subscriber:
    """Run 1: from p - j - {i, k}: i and k have stepped. The new filter of i reaches j through k."""
    world = World("p-j-i", "j-k", delta=1)
    ann = world.publisher("p")
    world.subscriber("i", "y", "kind = 'Y'")
    world.run(s=2)
    world.lose(of(Attach, source="i", target="k"))
    world.lose(of(TableDelta, TableFull, source="i", target="j"))
    world.shift("i", "j", "k")
    world.apply_tree("i", "k")
    world.run(ms=50)
    x = world.subscriber("i", "x", "kind = 'X'")
    world.run(ms=3_000)
    ann.publish("e1", kind="X")
    world.run(s=1)
    world.apply_tree("j", "p")
    world.run(s=10)
    ann.publish("e2", kind="X")
    world.run(s=2)
    return x


def test_run_1_a_cell_that_has_stepped_is_not_fed_over_the_old_edge() -> None:
    assert "e1" in fed_over_the_old_edge().events


def test_run_1_a_feeder_with_the_old_tree_filters_by_tables_that_lack_the_filter() -> None:
    with (
        patched(FeedCandidates, "difference", lambda *_: SAME_VIEW),
        patched(TableSources, "set_fed", lambda *_, **__: None),
        patched(sufficiency, "sufficient", lambda *_: True),  # claims of any edge count
    ):
        assert "e1" not in fed_over_the_old_edge().events


def test_run_1_not_to_be_fed_over_the_old_edge_is_enough() -> None:
    with patched(sufficiency, "sufficient", lambda *_: True):
        assert "e1" in fed_over_the_old_edge().events


def past_a_dead_cell() -> tuple[World, Subscriber]:
    """Run 6: x, behind i, has not heard of the shift. i dies, and x asks j."""
    world = World("y-j-i-x", "j-k", delta=2)
    world.records_travel = True
    ann = world.publisher("y")
    x = world.subscriber("x", "x", "TRUE")
    world.run(s=2)
    silent = world.lose(of(RecordPush, target="x"))
    world.shift("i", "j", "k")
    world.apply_tree("i", "j", "k", "y")
    world.run(ms=100)
    silent.end()
    world.crash("i")
    world.run(s=4)
    ann.publish("e1")
    world.run(s=5)
    return world, x


def test_run_6_a_receiver_with_the_old_tree_gets_the_records_with_the_refusal() -> None:
    with patched(RecordExchange, "differ", lambda *_: None):
        world, x = past_a_dead_cell()
    assert x.events == ["e1"]
    assert "k" in world["x"].neighbourhood.neighbours_of("i")
    reasons = {
        each.reason
        for feeder in ("j", "k")
        for each in world.sent_over(FeedUnavailable, feeder, "x")
    }
    assert FeedUnavailableReason.SHAPE_MISMATCH in reasons


def test_run_6_without_the_records_the_refusal_lasts() -> None:
    with (
        patched(RecordExchange, "differ", lambda *_: None),
        patched(RecordExchange, "push", lambda *_: None),
    ):
        world, x = past_a_dead_cell()
    assert "k" not in world["x"].neighbourhood.neighbours_of("i")
    assert x.events == []


# --- tables (section "SHIFT") ---------------------------------------------------------------------


def own_hosts_in_the_table_of_k() -> set[ShbId]:
    """Run 36: from p - j - {i, k}: k sends its table to i before j has sent k a new one."""
    world = World("p-j-i", "j-k")
    world.publisher("p")
    world.subscriber("i", "x", "TRUE")
    world.run(s=2)
    world.hold(of(TableDelta, TableFull, source="j", target="k"))
    world.shift("i", "j", "k")
    world.apply_tree("i", "k", "j")
    world.run(s=1)
    held = world["i"].components.exchange.table_store.edges["k"].held_of("k")
    assert held, "the table of k has come"
    return {shb for each in held if each.table is not None for shb in each.table.entries}


def test_run_36_a_cell_does_not_get_its_own_hosts_from_its_new_neighbour() -> None:
    assert ShbId("i", "i") not in own_hosts_in_the_table_of_k()


def test_run_36_with_all_tables_of_j_a_cell_gets_its_own_hosts() -> None:
    def every(edge: Edge) -> tuple[HeldTable, ...]:
        return tuple(edge.held())

    with patched(Edge, "locating_tables", every):
        assert ShbId("i", "i") in own_hosts_in_the_table_of_k()


def test_the_edge_of_a_moved_cell_is_settled_at_once() -> None:
    world = World("p-j-i", "j-k")
    world.publisher("p")
    world.subscriber("k", "x", "TRUE")
    world.run(s=2)
    world.shift("i", "j", "k")
    world.apply_tree("i", "j", "k")
    world.wait(lambda: "k" in world["i"].neighbourhood.neighbours)
    edges = {name: world[name].components.exchange.table_store.edges for name in "ijk"}
    assert edges["i"]["k"].settled, "the same cells are behind it as were behind j"
    assert ShbId("k", "k") in edges["i"]["k"].hosts
    world.run(ms=1)
    assert ShbId("i", "i") in edges["j"]["k"].hosts
    assert not edges["k"]["i"].settled


# --- scope (RS-37) --------------------------------------------------------------------------------


def two_operations_in_one_step() -> Subscriber:
    """Run 67: k hears of SHIFT(i, j, k) and SHIFT(i, k, m) at once; i has missed an event."""
    world = World("p-j-i", "j-k-m")
    ann = world.publisher("p")
    x = world.subscriber("i", "x", "kind = 'X'")
    world.subscriber("k", "y", "kind = 'Y'")
    world.run(s=2)
    missed = world.lose(of(StreamData, source="j", target="i"))
    nacks = world.lose(of(Nack, source="i", target="j"))
    ann.publish("e70", kind="X")
    world.run(s=1)
    assert missed.messages
    world.shift("i", "j", "k")
    world.shift("i", "k", "m")
    world.apply_tree("k", "j", "i", "m", "p")
    missed.end()
    nacks.end()
    world.run(s=10)
    assert world["i"].components.router.feeder(P) == "m"
    return x


def test_run_67_a_step_over_two_operations_forgets_everything() -> None:
    assert two_operations_in_one_step().events == ["e70"]


def test_run_67_two_operations_taken_for_one_hide_an_event() -> None:
    with patched(TreeChange, "is_one_operation", property(lambda _: True)):
        x = two_operations_in_one_step()
    assert x.events == []


def test_only_pubends_that_came_through_the_former_neighbour_are_forgotten() -> None:
    world = World("p-j-i", "j-k-m")
    for name in "pm":
        world.publisher(name, f"P{name}")
    for name in "ik":
        world.subscriber(name, name, "TRUE")
    world.run(s=2)
    routed = {name: world["k"].components.router.routed[PubendId(f"P{name}")] for name in "pm"}
    before = {name: (each.scope, len(each.stream)) for name, each in routed.items()}
    assert all(ranges for _, ranges in before.values())
    world.shift("i", "j", "k")
    world.apply_tree("i", "j", "k")
    world.wait(lambda: "i" in world["k"].neighbourhood.neighbours)
    assert routed["p"].scope > before["p"][0]
    assert len(routed["p"].stream) == 0
    assert (routed["m"].scope, len(routed["m"].stream)) == before["m"]


# --- announcements (RS-13) ------------------------------------------------------------------------


def test_a_step_that_changes_no_own_edge_announces_nothing() -> None:
    world = World("p-j-i-x", "j-k", delta=1)
    world.publisher("x")
    world.run(s=1)
    announced: list[str] = []

    def noted(self: Announcements, pubend: PubendId, known: KnownPubend) -> None:
        announced.append(self._context.identity.broker)
        by_the_rule(self, pubend, known)

    by_the_rule = Announcements._announce
    world.shift("i", "j", "k")
    with patched(Announcements, "_announce", noted):
        world.apply_tree("p", "x")
        world.run(ms=10)
        assert announced == []
        world.apply_tree("i")
        world.run(ms=10)
    assert "i" in announced


# --- best effort (RS-14) --------------------------------------------------------------------------


def best_effort(
    order: tuple[str, ...],
    delta: int = 0,
    publisher: str = "p",
    table_flush_ms: int = 5,
    *,
    just_sent: bool = False,
) -> list[str]:
    """Run 51: groups of cells are told 20 ms apart; return what is wrong at any subscriber.

    If the brokers of i have just sent many tables, they send the next one a little later.
    """
    cells = {"i": ["i", "i2"], "j": ["j", "j2"], "k": ["k", "k2"]}
    world = World("p-j-i-x", "j-k-m", cells=cells, delta=delta, table_flush_ms=table_flush_ms)
    ann = world.publisher(publisher, quality=Quality.BEST_EFFORT)
    listeners = [world.subscriber(name, name, "TRUE") for name in ("p", "x", "i2", "j2", "k2", "m")]
    world.run(s=2)
    flow = Flow(world, ann, *listeners)
    flow.run(50)
    for name in cells["i"] if just_sent else ():
        for _ in range(CHANGE_BURST):
            world[name].components.exchange._table_batch._rate.note(world.now)
    world.shift("i", "j", "k")
    for group in (*order, "mxp"):
        for cell in group:
            world.apply_tree(*cells.get(cell, [cell]))
        flow.run(20)
    flow.run(300)
    world.run(s=3)
    return [
        f"{each.broker}: {len(flow.published) - len(each.events)} lost"
        for each in listeners
        if each.events != flow.published
    ]


SHIFTS = [
    *((order, delta, "p") for order in permutations("ijk") for delta in (0, 1)),
    *((order, 0, publisher) for order in (("i", "k", "j"), ("k", "j", "i")) for publisher in "xm"),
]


@pytest.mark.parametrize(("order", "delta", "publisher"), SHIFTS)
def test_run_51_a_shift_loses_no_best_effort_events(
    order: tuple[str, ...], delta: int, publisher: str
) -> None:
    assert best_effort(order, delta, publisher) == []


def test_run_51_without_positions_events_are_lost() -> None:
    with patched(RoutedPubend, "after", None), patched(BestEffortSubend, "after", None):
        assert best_effort(("i", "j", "k"))


def best_effort_with_a_session_between_i_and_k() -> list[str]:
    """Run 52: k requests the table of i as soon as both have stepped, before i has filled it."""
    return best_effort(("ijk",), delta=1, table_flush_ms=40, just_sent=True)


def test_run_52_everything_passes_until_a_current_table_knows_the_pubend() -> None:
    assert best_effort_with_a_session_between_i_and_k() == []


def test_run_52_the_first_table_of_a_moved_cell_filters_everything() -> None:
    with patched(sufficiency, "_claims_all", lambda *_: True):
        assert best_effort_with_a_session_between_i_and_k()
