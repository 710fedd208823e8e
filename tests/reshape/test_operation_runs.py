"""Runs of operations and takeovers in which an earlier form of the rules failed.

The numbers are those of the runs in the rules for reshape. Where a run shows why there is a rule, a
second test takes the rule out and shows that the run then fails.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from gapless.core.ids import BrokerId
from gapless.messages.overlay import Term
from gapless.messages.reshape import (
    OperationKind,
    OperationStatus,
    OpFinish,
    OpFinished,
    OpPrepare,
    OpPrepared,
    OpSwitch,
    OpSwitched,
    Promise,
    RefusalReason,
)
from tests.reshape.rules_out import TAKEN_OUT
from tests.reshape.runs import ViolationError, check_tree
from tests.reshape.world import PushedRecords, World
from tests.shape_versions import shape

SHIFT, APPEND, DETACH = OperationKind.SHIFT, OperationKind.APPEND, OperationKind.DETACH
PAIRS = {cell: [f"{cell}1", f"{cell}2"] for cell in "ijka"}
BEFORE = {"i-j", "j-k", "a-j"}
AFTER = {"i-k", "j-k", "a-j"}


def star(*newcomers: BrokerId, radius: int = 2) -> World:
    """Return a world in which i, k and a are neighbours of j; each has two members."""
    return World(PAIRS, [("i", "j"), ("j", "k"), ("j", "a")], newcomers, radius=radius)


def healed(world: World) -> set[str]:
    """Heal the world, wait for the end of all operations, and return the live edges."""
    world.heal()
    for name in world.brokers:
        world.restart(name)
    world.run(60_000)
    for broker in world.brokers.values():
        if broker.lock is not None or broker.open_operations:
            raise ViolationError(f"R-5: {broker.name}: {broker.lock}, {broker.open_operations}")
    check_tree(world, set(), set())
    newest = world.newest()
    for broker in world.brokers.values():
        for cell, record in broker.disk_records.items():
            if broker.own.edges and record != newest[cell]:
                raise ViolationError(f"{broker.name} has another record of {cell}")
    return world.edges()


def shift(world: World) -> None:
    """Let the leader of j shift i to k."""
    world.request("j1", SHIFT, "i", "j", "k")


def statuses(world: World, *brokers: BrokerId) -> list[OperationStatus]:
    return [reply.status for each in brokers for reply in world.replies(each)]


def reasons(world: World, broker: BrokerId) -> list[RefusalReason | None]:
    return [reply.reason for reply in world.replies(broker)]


# --- plain operations -----------------------------------------------------------------------------


def test_a_shift_moves_one_edge_at_every_broker() -> None:
    world = star()
    world.request("j1", SHIFT, "i", "j", "k")
    assert healed(world) == AFTER
    assert statuses(world, "j1") == [OperationStatus.DONE]


def test_append_and_detach_are_opposite() -> None:
    world = star("n1")
    world.request("a1", APPEND, "n", "a", member="n1")
    assert healed(world) == {*BEFORE, "a-n#a1.1"}
    world.request("a1", DETACH, "n#a1.1", "a")
    assert healed(world) == BEFORE
    assert world["n1"].own.leader == "", "nobody makes a second tree of a detached cell"


def test_a_cell_that_is_not_empty_is_not_detached() -> None:
    world = star()
    world["i1"].contents.entries = ("the pubend P",)
    world.request("j1", DETACH, "i", "j")
    assert healed(world) == BEFORE
    assert reasons(world, "j1") == [RefusalReason.NOT_EMPTY]
    assert "the pubend P" in world.replies("j1")[0].text


def test_a_newcomer_with_a_pubend_is_not_appended() -> None:
    world = star("n1")
    world["n1"].contents.entries = ("the pubend P",)
    world.request("a1", APPEND, "n", "a", member="n1")
    assert healed(world) == BEFORE
    assert reasons(world, "a1") == [RefusalReason.NOT_EMPTY]


def test_a_leader_without_a_session_to_its_next_neighbour_refuses_a_shift() -> None:
    world = star()
    world.cut("i1", "k1")
    world.request("j1", SHIFT, "i", "j", "k")
    world.run(30_000)
    assert reasons(world, "j1") == [RefusalReason.NO_SESSION], "RS-10"
    assert healed(world) == BEFORE


def test_the_degree_of_a_cell_has_a_bound() -> None:
    cells = {f"c{number}": [f"b{number}"] for number in range(33)}
    edges = [("c0", cell) for cell in cells if cell != "c0"]
    world = World(cells, edges, ["n1"], radius=1)
    world.request("b0", APPEND, "n", "c0", member="n1")
    world.run(1_000)
    assert reasons(world, "b0") == [RefusalReason.BOUND]


def test_an_operation_that_no_participant_answers_is_aborted() -> None:
    world = star()
    world.cut("j1", "k1")
    world.request("j1", SHIFT, "i", "j", "k")
    world.run(150_000)
    assert reasons(world, "j1") == [RefusalReason.UNANSWERED], "RS-9"
    assert healed(world) == BEFORE


def test_a_member_that_cannot_be_reached_does_not_stop_a_shift() -> None:
    world = star()
    world.cut_off("i2", "k2")
    world.request("j1", SHIFT, "i", "j", "k")
    world.run(1_000)
    assert statuses(world, "j1") == [OperationStatus.DONE], "RS-9"
    assert healed(world) == AFTER


def test_leadership_is_handed_over_with_an_auxiliary_participant() -> None:
    world = star()
    world.request("j1", OperationKind.HAND_OVER, "j", member="j2")
    assert healed(world) == BEFORE
    assert {each.disk_records["j"].leader for each in world.brokers.values()} == {"j2"}, "RS-16"
    world.request("j1", SHIFT, "i", "j", "k")
    world.request("j2", SHIFT, "i", "j", "k")
    assert healed(world) == AFTER
    assert reasons(world, "j1")[-1] is RefusalReason.NOT_LEADER


# --- Runs 17, 25, 26 --------------------------------------------------------------------------------


def test_run_17_an_operation_on_an_edge_that_is_gone_is_stale() -> None:
    world = star()
    world.request("j1", SHIFT, "i", "j", "k")
    world.run(1_000)
    world.request("j1", SHIFT, "i", "j", "a")
    world.run(1_000)
    assert reasons(world, "j1") == [None, RefusalReason.STALE]
    assert healed(world) == AFTER


def test_run_17_a_coordinator_with_an_old_record_learns_it_with_the_refusal() -> None:
    world = star()
    world.cut_off("k1")
    world.request("j1", OperationKind.HAND_OVER, "j", member="j2")
    world.run(500)
    world.heal()
    world.request("k1", OperationKind.HAND_OVER, "k", member="k2")
    world.run(1_000)
    assert statuses(world, "k1") == [OperationStatus.DONE]
    assert world.replies("k1")[0].op.counter == 2
    assert healed(world) == BEFORE


def test_run_25_crossing_shifts_at_one_cell_run_one_after_the_other() -> None:
    world = star()
    world.request("j1", SHIFT, "i", "j", "k")
    world.request("j1", SHIFT, "k", "j", "i")
    assert healed(world) in (AFTER, {"i-k", "i-j", "a-j"})
    assert sorted(statuses(world, "j1")) == [OperationStatus.DONE, OperationStatus.REFUSED]
    assert RefusalReason.STALE in reasons(world, "j1")


def test_run_25_shifts_of_neighbour_cells_at_once_make_no_cycle() -> None:
    cells = {**PAIRS, "m": ["m1"]}
    world = World(cells, [("i", "j"), ("j", "k"), ("j", "a"), ("k", "m")])
    world.request("j1", SHIFT, "i", "j", "k")
    world.request("k1", SHIFT, "j", "k", "m")
    healed(world)
    assert statuses(world, "j1", "k1").count(OperationStatus.DONE) >= 1


KINDS = (OpPrepare, OpPrepared, OpSwitch, OpSwitched, OpFinish, OpFinished)


@pytest.mark.parametrize("victim", ["i1", "j1", "k1"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("twice", [False, True])
def test_run_26_a_participant_that_crashes_between_two_phases_leaves_no_half(
    victim: BrokerId, kind: type, *, twice: bool
) -> None:
    world = star()
    world.when(kind, lambda: world.crash(victim))
    world.request("j1", SHIFT, "i", "j", "k")
    world.run(3_000)
    world.restart(victim)
    if twice:
        world.run(20)
        world.crash(victim)
        world.run(3_000)
    assert healed(world) in (BEFORE, AFTER)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dead", [("j1",), ("i1",), ("k1",), ("i1", "j1"), ("j1", "k1")])
def test_run_26_a_takeover_completes_or_undoes_what_dead_leaders_left(
    dead: tuple[BrokerId, ...], kind: type
) -> None:
    world = star()
    for victim in dead:
        world.when(kind, partial(world.crash, victim))
    world.request("j1", SHIFT, "i", "j", "k")
    world.run(2_000)
    for victim in dead:
        world.crash(victim)
    for victim in dead:
        world.take_over(victim.replace("1", "2"), *dead)
        world.run(5_000)
    for victim in dead:
        assert world.takeovers(victim.replace("1", "2"))[-1].done
    assert healed(world) in (BEFORE, AFTER)


# --- runs that show why there is a rule -------------------------------------------------------------


def run_15() -> set[str]:
    """The leader of j is cut off from its successor only; both want to shift."""
    world = star()
    world.cut("j1", "j2")
    world.late[PushedRecords] = 2_000
    world.when(Promise, lambda: shift(world), source="k1")
    world.take_over("j2", "j1")
    world.run(40_000)
    world.late.clear()
    world.request("j2", SHIFT, "a", "j", "k")
    return healed(world)


def run_34() -> set[str]:
    """An old leader that is cut off with a newcomer appends it; another one has taken over."""
    world = star("n1")
    world.cut_off("j1", "n1")
    world.take_over("j2", "j1")
    world.run(1_000)
    world.request("j1", APPEND, "n", "j", member="n1")
    world.run(5_000)
    return healed(world)


def run_68() -> set[str]:
    """OpSwitch reaches only a member, which is cut off; the coordinator dies; another takes over."""
    world = star()
    world.when(OpSwitch, lambda: world.cut_off("j1", "i2"), target="i1")
    world.request("j1", SHIFT, "i", "j", "k")
    world.run(200)
    world.crash("j1")
    world.take_over("j2", "j1")
    world.run(8_000)
    assert world.takeovers("j2")[-1].done
    if world["i2"].own.neighbours != ("j",):
        raise ViolationError("R-6: a member has applied an operation that was aborted")
    return healed(world)


def run_69() -> set[str]:
    """A newcomer is asked for by the leaders of a and k at once."""
    world = star("n1")
    world.request("a1", APPEND, "n", "a", member="n1")
    world.request("k1", APPEND, "n", "k", member="n1")
    edges = healed(world)
    assert len([edge for edge in edges if "#" in edge]) == 1
    return edges


def run_71() -> set[str]:
    """The leaders of j and i have switched alone and are declared; i's old leader returns."""
    world = star()
    world.when(OpSwitch, lambda: world.cut_off("i1", "j1"), target="k1")
    world.request("j1", SHIFT, "i", "j", "k")
    world.run(500)
    assert world["i1"].own.neighbours == world["j1"].own.neighbours[1:] == ("k",)
    world.crash("j1")
    world.crash("i1")
    world.heal()
    world.take_over("j2", "j1", "i1")
    world.run(8_000)
    world.take_over("i2", "i1")
    world.run(8_000)
    assert world["k1"].own.term > Term(), "the lock of an aborted operation raises the term"
    return healed(world)


def run_72() -> set[str]:
    """Three leaders are declared although they live, and shift; so do their successors."""
    world = star()
    world.cut_off("i1", "j1", "k1")
    for candidate in ("j2", "i2", "k2"):
        world.take_over(candidate, "i1", "j1", "k1")
        world.run(2_000)
    world.request("j1", SHIFT, "i", "j", "k")
    world.request("j2", SHIFT, "k", "j", "i")
    world.run(2_000)
    old, new = world["i1"].own.epoch("k"), world["i2"].own.epoch("k")
    assert old is not None
    assert new is not None
    if old == new:
        raise ViolationError(f"R-9: two trees have the epoch {old}")
    return healed(world)


def run_of_a_late_answer() -> set[str]:
    """A participant's cell is taken over while its coordinator still waits for another one."""
    world = star()
    world.when(OpPrepare, lambda: world.late.update({OpPrepared: 2_000}), target="k1")
    world.when(OpPrepare, lambda: world.crash("i1"), target="k1")
    world.request("j1", SHIFT, "i", "j", "k")
    world.run(100)
    world.take_over("i2", "i1")
    world.run(10_000)
    return healed(world)


def run_of_a_missed_abort() -> set[str]:
    """A participant that is in doubt for long waits for the outcome."""
    world = star()
    world.when(OpSwitch, lambda: world.cut_off("k1"), target="k1")
    world.request("j1", SHIFT, "i", "j", "k")
    world.run(12_000)
    return healed(world)


RUNS: dict[str, tuple[Callable[[], set[str]], list[set[str]], str]] = {
    "15": (run_15, [{"i-j", "j-k", "a-k"}], "refusal of lower terms"),
    "34": (run_34, [BEFORE], "auxiliary participant"),
    "68": (run_68, [BEFORE], "participants first"),
    "69": (run_69, [{*BEFORE, "a-n#a1.1"}, {*BEFORE, "k-n#k1.1"}], "locks of newcomers"),
    "71": (run_71, [BEFORE], "new term at abort"),
    "72": (run_72, [{"i-j", "i-k", "a-j"}], "terms in shape versions"),
    "of a late answer": (run_of_a_late_answer, [BEFORE], "abort of undecided operations"),
    "of a missed abort": (run_of_a_missed_abort, [AFTER], "locks without end"),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_run_ends_in_one_tree_with_the_rule(name: str) -> None:
    run, trees, _ = RUNS[name]
    assert run() in trees


@pytest.mark.parametrize("name", RUNS)
def test_the_run_fails_without_the_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _, rule = RUNS[name]
    TAKEN_OUT[rule](monkeypatch)
    with pytest.raises(AssertionError):
        run()


def test_run_70_a_cell_of_a_detached_name_has_another_id() -> None:
    world = World(PAIRS, [("i", "j"), ("j", "k"), ("j", "a")], ["n1"], radius=3)
    world.cut_off("a2")
    world.request("j1", DETACH, "i", "j")
    world.run(3_000)
    world.request("k1", APPEND, "i", "k", member="n1")
    world.run(3_000)
    assert "i" in world["a2"].disk_records
    assert healed(world) == {"j-k", "a-j", "i#k1.1-k"}
    assert "i#k1.1" in world["a2"].disk_records
    assert "i" not in world["a2"].disk_records


def test_a_leader_takes_no_record_of_its_own_cell_in_its_own_term(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pushed() -> World:
        world = star()
        k = world["k1"].own
        copy = replace(k, edges=(), shape_version=shape(2))
        world["k1"].receive("j1", PushedRecords((copy,)))
        world.run(100)
        return world

    assert pushed()["k1"].own.neighbours == ("j",), "RS-2"
    TAKEN_OUT["own record is own"](monkeypatch)
    assert pushed()["k1"].own.neighbours == ()


def test_a_lock_that_was_passed_on_is_resolved_by_no_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def promised() -> World:
        world = star()
        world.when(OpSwitch, lambda: world.cut_off("k1"), target="k1")
        shift(world)
        world.run(100)
        world.crash("j1")
        world.cut_off("a1")
        world.heal()
        world.cut_off("i1", "a1")
        world.take_over("j2", "j1")
        world.run(15)
        world["k1"].receive("i1", PushedRecords((world["i1"].own,)))
        world.run(100)
        return world

    world = promised()
    lock = world["k1"].lock
    assert lock is not None
    assert (lock.passed, lock.switched) == (True, False), "RS-17"
    assert healed(world) == AFTER
    TAKEN_OUT["locks that pass"](monkeypatch)
    assert promised()["k1"].own.neighbours == ("i", "j")
