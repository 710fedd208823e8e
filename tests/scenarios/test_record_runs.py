"""Runs in which brokers must hear of changed records from others, with whole brokers (RS-4).

The numbers of the runs are those of the rules for reshape. Operations are played by hand: some
brokers apply the new records, and the others hear of them by the rules. Each run is played again
with its rule removed, and then fails as the second test shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from gapless.core.ids import BrokerId, CellId
from gapless.messages.overlay import CellRecord, RecordList, RecordPush
from gapless.overlay.cell_records import Records
from gapless.overlay.record_exchange import RecordExchange
from gapless.reshape.changes import appended, detached
from gapless_lab.sim.planted_bugs import patched
from tests.scenarios.brokers import Subscriber, World, of


def apply(world: World, records: Sequence[CellRecord], *names: BrokerId) -> None:
    """Let brokers apply some records; others hear of them by the rules."""
    for name in names:
        world[name].apply_records(records)
        world.happen(name, None)


def record(world: World, cell: CellId) -> CellRecord:
    """Return the newest record of a cell."""
    return next(each for each in world.topology.cells if each.name == cell)


def shifted_records(world: World, moved: CellId, old: CellId, new: CellId) -> list[CellRecord]:
    """Shift a cell in the topology; return the records of the three participants."""
    world.shift(moved, old, new)
    return [record(world, cell) for cell in (moved, old, new)]


def neighbours(world: World, name: BrokerId) -> tuple[CellId, ...]:
    """Return the neighbours that a broker has now."""
    return world[name].neighbourhood.neighbours


def knows(world: World, name: BrokerId) -> dict[CellId, tuple[CellId, ...]]:
    """Return the neighbours of each cell that a broker holds."""
    return {cell.name: cell.neighbours for cell in world[name].neighbourhood.cells}


def separate(world: World, name: BrokerId) -> list[BrokerId]:
    """Cut all links of a broker; return the brokers at the other ends."""
    others = [each for each in world.nodes if each != name]
    for other in others:
        world.cut(name, other)
    return others


# --- Run 37: a member that a partition hides a committed operation from -----------------------------


def a_member_was_cut_off() -> tuple[World, Subscriber]:
    """From k - {j1, j2} - i: j2 is cut off while i moves to k; then it is linked again."""
    world = World("k-j-i", cells={"j": ["j1", "j2"]})
    world.records_travel = True
    ann = world.publisher("k")
    x = world.subscriber("j2", "x", "TRUE")
    world.run(s=1)
    others = separate(world, "j2")
    apply(world, shifted_records(world, "i", "j", "k"), "j1", "k", "i")
    world.run(s=3)
    assert neighbours(world, "k") == ("i", "j")
    assert neighbours(world, "j2") == ("i", "k")
    for other in others:
        world.heal("j2", other)
    world.run(s=5)
    ann.publish("e1")
    world.run(s=5)
    return world, x


def test_run_37_a_member_that_missed_an_operation_gets_the_records_by_the_digest() -> None:
    world, x = a_member_was_cut_off()
    assert neighbours(world, "j2") == ("k",)
    assert world["j2"].neighbourhood.epoch("j", "k") == world["k"].neighbourhood.epoch("j", "k")
    assert x.events == ["e1"]


def test_run_37_a_member_that_missed_an_operation_gets_the_records_with_the_refusal() -> None:
    with patched(RecordExchange, "differ", lambda *_: None):
        world, x = a_member_was_cut_off()
    assert neighbours(world, "j2") == ("k",)
    assert x.events == ["e1"]


def test_run_37_without_comparison_and_refusal_a_member_keeps_the_old_tree() -> None:
    with (
        patched(RecordExchange, "differ", lambda *_: None),
        patched(RecordExchange, "push", lambda *_: None),
    ):
        world, _ = a_member_was_cut_off()
    assert neighbours(world, "j2") == ("i", "k")


# --- Run 56: a cell that comes within Δ ------------------------------------------------------------


def a_cell_came_near() -> tuple[World, Subscriber]:
    """From i - j - k - m with δ = 1: i moves to k, so m is within Δ of i; then k dies."""
    world = World("i-j-k-m", delta=1)
    world.records_travel = True
    ann = world.publisher("m")
    x = world.subscriber("i", "x", "TRUE")
    world.run(s=1)
    assert "m" not in world["i"].neighbourhood
    apply(world, shifted_records(world, "i", "j", "k"), "i", "j", "k")
    world.run(s=1)
    world.crash("k")
    world.run(s=2)
    ann.publish("e1")
    world.run(s=5)
    return world, x


def test_run_56_a_cell_that_comes_within_reach_is_told_and_can_be_used_for_a_bypass() -> None:
    world, x = a_cell_came_near()
    assert "m" in world["i"].neighbourhood
    assert x.events == ["e1"]


def test_run_56_if_only_changed_records_are_told_there_is_no_bypass() -> None:
    def changed_only(
        exchange: RecordExchange, cell: CellId, old: Records, new: Records
    ) -> list[CellRecord]:
        del exchange, cell
        return [
            each for name, each in new.items() if name in old and old[name].version != each.version
        ]

    with (
        patched(RecordExchange, "_changed_near", changed_only),
        patched(RecordExchange, "differ", lambda *_: None),
    ):
        world, x = a_cell_came_near()
    assert "m" not in world["i"].neighbourhood
    assert x.events == []


# --- Run 70: a cell id that is not given twice ------------------------------------------------------


def a_cell_came_back(new_id: CellId) -> World:
    """From i - {a1, a2} - k with δ = 1: a2 misses that i is detached, and appended at k."""
    world = World("i-a-k", cells={"a": ["a1", "a2"]}, delta=1)
    world.records_travel = True
    world.run(s=1)
    separate(world, "a2")
    i, a, k = (record(world, cell) for cell in "iak")
    apply(world, detached(i, a), "a1", "i")
    world.run(s=1)
    world.crash("i")
    _, a = detached(i, a)
    apply(world, appended(new_id, i.members, k), "k")
    world.run(s=1)
    for other in ("a1", "k"):
        world.heal("a2", other)
    world.run(s=5)
    assert knows(world, "a2") == knows(world, "a1")
    return world


def test_run_70_a_broker_that_missed_a_detach_takes_the_record_of_the_new_cell() -> None:
    world = a_cell_came_back("i#k.1")
    expected: dict[CellId, tuple[CellId, ...]]
    expected = {"a": ("k",), "k": ("a", "i#k.1"), "i#k.1": ("k",)}
    assert knows(world, "a2") == expected


def test_run_70_an_id_that_is_given_twice_may_keep_the_old_record() -> None:
    # the new cell's record is no newer than the last one of the old cell
    world = World("i-a-k", cells={"a": ["a1", "a2"]}, delta=1)
    i, a, k = (record(world, cell) for cell in "iak")
    detached_i, _ = detached(i, a)
    again, _ = appended("i", i.members, k)
    assert again.version <= detached_i.version
    apply(world, (detached_i, again), "a2")
    world.run(s=1)
    assert knows(world, "a2")["a"] == ("i", "k")


# --- who is told ------------------------------------------------------------------------------------


def test_all_brokers_near_a_shift_hear_of_it_from_the_participants() -> None:
    world = World("y-x-i-j-k-m-n", cells={"j": ["j1", "j2"], "k": ["k1", "k2"]}, delta=1)
    world.records_travel = True
    apply(world, shifted_records(world, "i", "j", "k"), "i", "j1", "k1")
    world.run(s=2)
    for node in world.nodes.values():
        cells = world.topology.neighbourhood(node.cell, 2).cells
        assert set(world[node.name].neighbourhood.cells) == set(cells), node.name


def test_a_broker_that_is_no_peer_any_more_hears_of_the_step_that_separates_them() -> None:
    # i2 has not stepped when j and k have; j is no peer of i2 in the new tree
    world = World("i-j-k", cells={"i": ["i1", "i2"]})
    world.records_travel = True
    apply(world, shifted_records(world, "i", "j", "k"), "j", "k")
    world.run(ms=10)
    assert neighbours(world, "i2") == ("k",)
    assert not world["i2"].components.sessions.is_open("j")
    assert world.wait(lambda: world["i2"].components.sessions.is_open("k"))


def test_a_leader_takes_no_record_of_its_own_cell_from_others() -> None:
    # RS-2: it is the copy of an operation that was undone, if no lock of this leader says otherwise
    world = World("i-j-k")
    world.records_travel = True
    apply(world, shifted_records(world, "i", "j", "k"), "j")
    world.run(s=1)
    assert neighbours(world, "i") == ("j",)
    assert world["i"].coverage_marks["record of the own cell from elsewhere"]


def test_records_are_told_once_in_a_session() -> None:
    world = World("p-n-c")
    world.records_travel = True
    since = world.now
    apply(world, shifted_records(world, "c", "n", "p"), "n", "p", "c")
    world.run(s=10)
    pushes = [each for each in world.sent if isinstance(each[3], RecordPush) and each[0] >= since]
    told = [
        (source, target, record.name)
        for _, source, target, push in pushes
        for record in push.records
    ]
    assert len(set(told)) == len(told)


def test_a_network_at_rest_exchanges_no_records() -> None:
    world = World("a-b-c", "b-d", delta=1)
    world.records_travel = True
    world.restart("b")
    world.run(s=20)
    assert not [each for each in world.sent if isinstance(each[3], RecordPush | RecordList)]
    assert all("records compared" not in world[name].coverage_marks for name in world.nodes)


def test_a_peer_session_that_changes_its_route_compares_no_records() -> None:
    world = World("a-b-c", delta=1)
    world.records_travel = True
    world.cut("a", "c")
    assert world.wait(lambda: world["a"].components.sessions.route("c") == ("b",), s=5)
    world.heal("a", "c")
    world.run(s=20)
    assert world["a"].components.sessions.is_direct("c")
    assert not [each for each in world.sent if isinstance(each[3], RecordList)]


def test_lost_records_are_told_again_by_comparison() -> None:
    world = World("p-n-c", cells={"p": ["p1", "p2"], "c": ["c1", "c2"]})
    world.records_travel = True
    lost = world.lose(of(RecordPush))
    apply(world, shifted_records(world, "c", "n", "p"), "n", "p1", "c1")
    world.run(s=1)
    assert lost.messages
    assert neighbours(world, "p2") == ("n",)
    lost.end()
    world.run(s=10)
    assert neighbours(world, "p2") == ("c", "n")
    assert neighbours(world, "c2") == ("p",)
