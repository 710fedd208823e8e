"""Changes of the tree in runs: operators, their ends, and the invariants of the tree (SM-2, SM-5)."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from gapless.messages.overlay import CellMember, CellRecord, ShapeVersion, Term
from gapless.messages.records import (
    DeleteRecord,
    LockRecord,
    NeighbourhoodRecord,
    OperationPhase,
    OperationRecord,
    PutRecord,
    StorageChange,
)
from gapless.messages.records.reshape import LOCK_KEY
from gapless.messages.reshape import (
    OperationId,
    OperationKind,
    OperationRequestId,
    OperationStatus,
    Participant,
)
from gapless.reshape.changes import shifted
from gapless_lab.sim.bug_hunt import BY_NAME
from gapless_lab.sim.invariants import GlobalState, Invariant, InvariantMonitor
from gapless_lab.sim.invariants.operations import OperationInvariant
from gapless_lab.sim.invariants.tree import TreeInvariant
from gapless_lab.sim.options import SimulationOptions, draw
from gapless_lab.sim.runner import SimulationRun, run_options

BUSY = SimulationOptions(
    seed=1,
    cells=5,
    shape="random",
    brokers_per_cell=2,
    reshape_rate=5.0,
    safety_ms=1_500,
    rates={"crash": 2.0, "pause": 1.0},
    down_ms_max=200,
)

# --- runs ------------------------------------------------------------------------------------------


def test_every_operation_of_a_run_ends_and_some_change_the_tree() -> None:
    run = SimulationRun(BUSY)
    assert run.play().violations == ()
    assert run.reshaping.outstanding() == []
    outcomes = [each.outcome for each in run.reshaping.operators]
    assert sum(each is not None and each.status is OperationStatus.DONE for each in outcomes) > 1
    assert run.world.tree.revision > 1
    assert run.world.tree.is_tree


def test_a_run_with_operations_is_a_function_of_its_options() -> None:
    first, second = (run_options(BUSY, sink=lambda _: None) for _ in range(2))
    assert first.trace_hash == second.trace_hash
    assert first.text_hash == second.text_hash


def test_without_a_rate_the_tree_does_not_change() -> None:
    run = SimulationRun(BUSY.with_(reshape_rate=0.0))
    assert run.play().violations == ()
    assert run.reshaping.operators == []
    assert run.world.tree.revision == 0


def test_the_tree_changes_in_a_good_part_of_the_seeds() -> None:
    drawn = [draw(seed) for seed in range(400)]
    changing = [options for options in drawn if options.reshape_rate > 0]
    assert 60 < len(changing) < 140
    assert all(options.cells >= 3 for options in changing)


# --- invariants ------------------------------------------------------------------------------------

OP = OperationId("n1a", 1)


def made(kind: Callable[[GlobalState], Invariant]) -> tuple[SimulationRun, Invariant]:
    """Return a run of n0 - n1 - n2 that has not started, and one invariant of it."""
    run = SimulationRun(
        SimulationOptions(cells=3), observers=[lambda run: InvariantMonitor(run, [kind])]
    )
    monitor = run.world.observers[0]
    assert isinstance(monitor, InvariantMonitor)
    return run, monitor.invariants[0]


def shift(run: SimulationRun) -> tuple[CellRecord, ...]:
    """Return the records after SHIFT(n0, n1, n2)."""
    moved, old, new = (run.world.tree.records[cell] for cell in ("n0", "n1", "n2"))
    return shifted(moved, old, new)


def names(run: SimulationRun) -> list[str]:
    return [violation.name for violation in run.world.violations]


def test_a_shift_breaks_nothing() -> None:
    run, _ = made(TreeInvariant)
    run.world.tree.learn(shift(run))
    assert names(run) == []


def test_half_a_decision_breaks_r1() -> None:
    run, _ = made(TreeInvariant)
    run.world.tree.learn(shift(run)[:2])
    assert names(run)[:1] == ["R-1"]


def test_two_records_of_one_version_break_r1() -> None:
    run, invariant = made(TreeInvariant)
    record = run.world.tree.records["n0"]
    other = replace(record, members=(CellMember("x"),))
    stored = NeighbourhoodRecord("n0", 2, (other,))
    invariant.durable(run.world.hosts["n0a"], PutRecord(stored))
    assert names(run)[:1] == ["R-1"]


def test_two_leaders_in_one_term_break_r1() -> None:
    run, invariant = made(TreeInvariant)
    record = run.world.tree.records["n0"]
    other = replace(record, leader="x", member_version=2)
    stored = NeighbourhoodRecord("n0", 2, (other,))
    invariant.durable(run.world.hosts["n0a"], PutRecord(stored))
    assert names(run) == ["R-1"]


def test_an_epoch_of_an_edge_that_is_given_twice_breaks_r9() -> None:
    run, _ = made(TreeInvariant)
    before = run.world.tree.records["n1"]
    run.world.tree.learn(shift(run))
    again = replace(before, shape_version=ShapeVersion(Term(), 3))
    run.world.tree.learn((again,))
    assert "R-9" in names(run)


def operation(run: SimulationRun, phase: OperationPhase) -> PutRecord:
    records = run.world.tree.records
    participants = tuple(
        Participant(cell, CellMember(f"{cell}a"), records[cell].term) for cell in ("n0", "n1", "n2")
    )
    request = OperationRequestId("test")
    return PutRecord(
        OperationRecord(
            OP, request, OperationKind.SHIFT, "n1", Term(), participants, shift(run), phase
        )
    )


def lock(run: SimulationRun, cell: str, op: OperationId = OP) -> PutRecord:
    preparing = operation(run, OperationPhase.PREPARING).record
    assert isinstance(preparing, OperationRecord)
    return PutRecord(
        LockRecord(
            op,
            OperationKind.SHIFT,
            ("n0", "n1", "n2"),
            "n1a",
            "n1",
            Term(),
            run.world.tree.records[cell],
            preparing.participants,
            preparing.records,
        )
    )


def happen(run: SimulationRun, invariant: Invariant, *changes: tuple[str, StorageChange]) -> None:
    """Let changes become durable at brokers."""
    for broker, change in changes:
        host = run.world.hosts[broker]
        if isinstance(change, PutRecord):
            host.disk.records[change.record.key] = change.record
        invariant.durable(host, change)


UNLOCK = DeleteRecord(LOCK_KEY)


def test_an_operation_with_all_its_locks_breaks_nothing() -> None:
    run, invariant = made(OperationInvariant)
    happen(
        run,
        invariant,
        ("n1a", operation(run, OperationPhase.PREPARING)),
        *((f"{cell}a", lock(run, cell)) for cell in ("n0", "n1", "n2")),
        ("n1a", operation(run, OperationPhase.COMMITTED)),
        ("n0a", UNLOCK),
    )
    assert names(run) == []
    assert len(invariant.outstanding(run.world)) == 2


def test_a_commit_without_all_locks_breaks_r7() -> None:
    run, invariant = made(OperationInvariant)
    other = OperationId("n0a", 4)
    happen(
        run,
        invariant,
        ("n1a", operation(run, OperationPhase.PREPARING)),
        ("n0a", lock(run, "n0")),
        ("n1a", lock(run, "n1")),
        ("n2a", lock(run, "n2", other)),
        ("n1a", operation(run, OperationPhase.COMMITTED)),
    )
    assert names(run) == ["R-7"]


def test_two_decisions_of_one_operation_break_r7() -> None:
    run, invariant = made(OperationInvariant)
    happen(
        run,
        invariant,
        ("n1a", operation(run, OperationPhase.ABORTED)),
        ("n2a", operation(run, OperationPhase.COMMITTED)),
    )
    assert names(run) == ["R-7"]


def test_a_lock_that_is_dropped_while_its_operation_is_undecided_breaks_r5() -> None:
    with BY_NAME["drops a lock by time"].installed():
        assert [each.name for each in run_options(draw(4)).violations] == ["R-5"]


def test_a_record_of_an_aborted_operation_that_is_applied_breaks_r6() -> None:
    run, invariant = made(OperationInvariant)
    happen(
        run,
        invariant,
        ("n1a", operation(run, OperationPhase.PREPARING)),
        ("n1a", operation(run, OperationPhase.ABORTED)),
        ("n0a", PutRecord(NeighbourhoodRecord("n0", 2, shift(run)))),
    )
    assert names(run) == ["R-6"]
