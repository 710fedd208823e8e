"""Invariants: each reports its violation, and none reports or changes anything otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from gapless.cli.main import main
from gapless.content.filter import Filter
from gapless.core.ids import PubendId, ShbId, VectorEntry, VirtualTime
from gapless.messages.records import AppendRow, LogRow, MemberRecord, PutRecord, StreamEpochRecord
from gapless.messages.streams import Attached, KnowledgeRange, Publication
from gapless.mobility import ForcedMoves
from gapless.propagation.edge import Edge
from gapless.propagation.filtering import TableFiltering
from gapless.propagation.leaf import LeafTable
from gapless.propagation.out_table import OutTable
from gapless.propagation.transfer import TableReceiver
from gapless.pubend.members import Members
from gapless.pubend.pubend import Pubend
from gapless.pubend.publishers import Publishers
from gapless.pubend.serving import PubendRequestHandler
from gapless.routing import reports as acks
from gapless.routing import router
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import CursorInput, CursorPhase
from gapless.subscribers.delivery_limit import DeliveryLimits
from gapless.subscribers.filters import Filters
from gapless.subscribers.groups import CursorGroups
from gapless.subscribers.reporter import AckReporter
from gapless.subscribers.start_verification import StartVerification
from gapless_lab.sim.invariants import (
    INVARIANTS,
    GlobalState,
    Invariant,
    InvariantMonitor,
    monitor_run,
)
from gapless_lab.sim.invariants.convergence import ConvergenceInvariant
from gapless_lab.sim.invariants.cursors import CursorInvariant, ReadInvariant
from gapless_lab.sim.invariants.durability import DurabilityInvariant
from gapless_lab.sim.invariants.feeds import FeedInvariant
from gapless_lab.sim.invariants.limits import LimitInvariant
from gapless_lab.sim.invariants.retention import ReportInvariant, RetentionInvariant
from gapless_lab.sim.invariants.silence import SilenceInvariant
from gapless_lab.sim.invariants.starts import StartInvariant
from gapless_lab.sim.invariants.stream_epochs import StreamEpochInvariant
from gapless_lab.sim.invariants.tables import TableInvariant
from gapless_lab.sim.invariants.ticks import LoggedBeforeSentInvariant, TickInvariant
from gapless_lab.sim.options import SimulationOptions
from gapless_lab.sim.planted_bugs import patched
from gapless_lab.sim.runner import SimulationRun
from gapless_lab.sim.world import SimulatedHost, World, WorldObserver
from tests.lab.sim.toy import TOY
from tests.lab.sim.toy_runs import toy_options

LEAF, ROUTER = 1, 2
"""Attach numbers of a leaf and of a router."""

Kind = Callable[[GlobalState], Invariant]
Patch = tuple[Any, str, Any]


def options(seed: int, **changes: Any) -> SimulationOptions:
    """Return a small, busy world without faults except clients that vanish."""
    made = SimulationOptions(
        seed=seed,
        safety_ms=1_500,
        subscribers=6,
        churn_rate=20.0,
        reads=10.0,
        rates={"client loss": 2.0},
        retention_s=0,
    )
    return made.with_(**changes)


INACTIVE: dict[str, Any] = {
    "safety_ms": 6_000,
    "publish_rate": 30.0,
    "rates": {"cut": 3.0},
    "down_ms_min": 1_500,
    "down_ms_max": 4_000,
    "durable": 0.0,
    "churn_rate": 1.0,
}
"""A world in which hosts are cut off until they are inactive members."""


def run_with(kind: Kind, seed: int = 0, **changes: Any) -> tuple[SimulationRun, Any]:
    """Run the safety phase with one invariant; return the run and the invariant."""
    run = SimulationRun(
        options(seed, **changes), observers=[lambda run: InvariantMonitor(run, [kind])]
    )
    run.start()
    run.world.run_until(run.options.safety_ms * 1_000)
    held = run.world.observers[0]
    assert isinstance(held, InvariantMonitor)
    return run, held.invariants[0]


def found(kind: Kind, *patches: Patch, seeds: int = 20, **changes: Any) -> str:
    """Return the violation that is found with planted bugs; checkers may be first in some seeds."""
    with ExitStack() as stack:
        for owner, name, replacement in patches:
            stack.enter_context(patched(owner, name, replacement))
        for seed in range(seeds):
            run, _ = run_with(kind, seed, **changes)
            for violation in run.world.violations[:1]:
                if violation.name[1:].isdigit():
                    return violation.name
                assert violation.name != "exception", violation.detail
    return "nothing"


def sound(kind: Kind, seed: int = 0, **changes: Any) -> tuple[World, Any]:
    """Return a world after a run and its invariant, which has found nothing."""
    run, invariant = run_with(kind, seed, **changes)
    assert run.world.violations == []
    return run.world, invariant


def names(world: World) -> list[str]:
    return [violation.name for violation in world.violations]


def pubend_of(invariant: Invariant) -> tuple[SimulatedHost, PubendId]:
    """Return a pubend that has stream epochs, and its host."""
    for pubend, stream_epochs in invariant.global_state.stream_epochs.items():
        if len(stream_epochs) > 1:
            return invariant.world.hosts[invariant.oracle.streams[pubend].broker], pubend
    raise AssertionError("no pubend has two stream epochs")


# --- all invariants ---------------------------------------------------------------------------


def test_a_correct_run_breaks_no_invariant() -> None:
    run = SimulationRun(options(1, durable=0.0, past=0.0))
    assert run.play().violations == ()
    assert isinstance(run.world.observers[0], InvariantMonitor)
    assert len(run.world.observers[0].invariants) == len(INVARIANTS)


def test_invariants_do_not_change_a_run() -> None:
    digests = []
    for probes in ([monitor_run], []):
        run = SimulationRun(options(2, durable=0.0, past=0.0), observers=probes)
        run.start()
        run.world.run_until(1_000_000)
        digests.append(run.world.trace.digest)
    assert digests[0] == digests[1]


def test_a_run_can_do_without_invariants() -> None:
    assert SimulationRun(options(0), observers=()).world.observers == []


def test_the_command_can_do_without_invariants(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "run", "--seeds", "1", "--machine", TOY, "--no-invariants"]) in {0, 1}
    assert "seed      0" in capsys.readouterr().out


def test_a_machine_that_is_no_broker_is_not_checked() -> None:
    run = SimulationRun(toy_options(0), TOY)
    assert run.play().violations == ()


SCRIPT = """
from gapless_lab.sim.runner import SimulationRun
from tests.lab.sim.test_invariants import options
run = SimulationRun(options(3))
run.start()
run.world.run_until(1_000_000)
print(run.world.trace.short_digest, run.world.violations)
"""


def test_violations_do_not_depend_on_the_hash_seed() -> None:
    lines = []
    for hash_seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        command = [sys.executable, "-c", SCRIPT]
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        lines.append(done.stdout)
    assert lines[0] == lines[1] != b""


# --- ticks and events (I1, I2) ----------------------------------------------------------------


def test_an_event_below_the_knowledge_sent_breaks_i1() -> None:
    world, invariant = sound(TickInvariant)
    host, pubend = pubend_of(invariant)
    sent_up_to = invariant.sent_up_to[pubend]
    for tick in (sent_up_to + 1, sent_up_to):
        event = Publication(tick, "p", 1, {}, b"")
        assert names(world) == []
        invariant.durable(host, AppendRow(LogRow(pubend, tick, tick, 1, 0, 0, 0, (event,))))
    assert names(world) == ["I1"]


def send_early(self: Any, pendings: Any, changes: Any) -> None:
    self._pending.extend(pendings)
    for pending in pendings:
        pending.mark_durable()
    self._context.write(changes, lambda: None)
    self._settle()


def test_an_event_that_is_sent_before_it_is_logged_breaks_i2() -> None:
    assert found(LoggedBeforeSentInvariant, (Pubend, "_enqueue_all", send_early)) == "I2"


def test_an_event_that_differs_from_the_log_breaks_i2() -> None:
    world, invariant = sound(LoggedBeforeSentInvariant)
    host, pubend = pubend_of(invariant)
    stream = invariant.oracle.streams[pubend]
    event = stream.publications[-1]
    forged = Publication(event.tick, event.publisher, event.sequence, event.attributes, b"forged")
    for each in (event, forged):
        assert names(world) == []
        knowledge = KnowledgeRange(each.tick, each.tick, 1, 0, (each,))
        invariant.knowledge_sent(host.process, host.broker, LEAF, stream, knowledge)
    assert names(world) == ["I2"]


# --- silence (I3) -----------------------------------------------------------------------------


def test_silence_over_an_event_that_a_subscription_must_receive_breaks_i3() -> None:
    assert (
        found(
            SilenceInvariant,
            (TableFiltering, "matching_tables", lambda _, events: [0] * len(events)),
        )
        == "I3"
    )


def test_wrong_silence_of_a_broker_breaks_i3() -> None:
    world, invariant = sound(SilenceInvariant, subscribers=12)
    for host in world.hosts.values():
        machine: Any = host.process and host.process.machine
        for pubend, subend in machine.components.subends.guaranteed.items():
            stream = invariant.oracle.streams[pubend]
            record = max(
                invariant.global_state.stream_epochs[pubend].values(), key=lambda each: each.number
            )
            for cursor in subend.cursors.values():
                if cursor.phase is not CursorPhase.LIVE or not stream.ticks:
                    continue
                # as if nothing had been delivered since the start
                subend._horizon.tick = cursor.start.after
                knowledge = KnowledgeRange(
                    cursor.start.after + 1, stream.ticks[-1], record.number, 0
                )
                invariant.knowledge_sent(host.process, host.broker, LEAF, stream, knowledge)
    assert "I3" in names(world)


def test_silence_of_an_older_scope_breaks_i3_only_if_it_is_held() -> None:
    world, invariant = sound(SilenceInvariant, subscribers=12)
    host, machine, cursor, silent = live_cursor(world, invariant)
    stream = invariant.oracle.streams[cursor.subend.pubend]
    cursor.subend._horizon.tick = cursor.start.after
    routed = machine.components.router._get(stream.pubend)
    routed.scope = 1
    invariant.knowledge_sent(host.process, host.broker, ROUTER, stream, silent)
    assert names(world) == []
    routed.stream.forget_all()
    routed.stream.accumulate(silent)
    invariant.moved(host.process, machine, None)
    assert names(world) == ["I3"]


def test_silence_of_the_present_scope_breaks_i3_when_it_is_sent() -> None:
    world, invariant = sound(SilenceInvariant, subscribers=12)
    host, machine, cursor, silent = live_cursor(world, invariant)
    cursor.subend._horizon.tick = cursor.start.after
    stream = invariant.oracle.streams[cursor.subend.pubend]
    machine.components.router._get(stream.pubend).scope = 1
    number = 2**32 + ROUTER
    invariant.knowledge_sent(host.process, host.broker, number, stream, silent)
    assert names(world) == ["I3"]


def live_cursor(
    world: World, invariant: Invariant
) -> tuple[SimulatedHost, Any, Any, KnowledgeRange]:
    """Return a live cursor, and a knowledge range that is silent since its start."""
    for host in world.hosts.values():
        machine: Any = host.process and host.process.machine
        for pubend, subend in machine.components.subends.guaranteed.items():
            stream = invariant.oracle.streams[pubend]
            record = max(
                invariant.global_state.stream_epochs[pubend].values(), key=lambda each: each.number
            )
            for cursor in subend.cursors.values():
                if cursor.phase is not CursorPhase.LIVE or not stream.ticks:
                    continue
                places = range(stream.after(cursor.start.after), len(stream.ticks))
                if any(
                    invariant.oracle.matches(stream, cursor.segments.current.text, each)
                    for each in places
                ):
                    silent = KnowledgeRange(
                        cursor.start.after + 1, stream.ticks[-1], record.number, 0
                    )
                    return host, machine, cursor, silent
    raise AssertionError("no cursor is live")


def test_wrong_silence_in_a_stream_breaks_i3_in_that_step() -> None:
    world, invariant = sound(SilenceInvariant, subscribers=12)
    host, machine, cursor, silent = live_cursor(world, invariant)
    invariant._steps = 0  # the check of all ranges is not due
    invariant.moved(host.process, machine, None)
    assert names(world) == []
    cursor.subend._horizon.tick = cursor.start.after
    cursor.subend._stream.accumulate(silent)
    invariant.moved(host.process, machine, None)
    assert "I3" in names(world)


def test_silence_that_is_known_when_a_filter_starts_breaks_i3() -> None:
    world, invariant = sound(SilenceInvariant, subscribers=12)
    host, machine, cursor, silent = live_cursor(world, invariant)
    invariant._steps = 0
    segments = dict(machine.components.filters.segments)
    machine.components.filters.segments.clear()
    cursor.subend._horizon.tick = cursor.start.after
    cursor.subend._stream.accumulate(silent)
    invariant.moved(host.process, machine, None)
    assert names(world) == []
    machine.components.filters.segments.update(segments)
    invariant.moved(host.process, machine, None)
    assert "I3" in names(world)


# --- tables (I4, I5) --------------------------------------------------------------------------


def test_an_out_table_that_claims_what_it_omits_breaks_i4() -> None:
    assert found(TableInvariant, (OutTable, "_passes", lambda *_: False)) == "I4"


def test_an_owner_that_starts_before_its_table_was_sent_breaks_i4() -> None:
    def too_early(self: LeafTable, conjunction: Any) -> int:  # noqa: ARG001
        return max(1, self.sender.table.version)

    assert found(TableInvariant, (LeafTable, "_new_start", too_early)) == "I4"


def test_a_copy_that_differs_from_the_table_sent_breaks_i5() -> None:
    original = TableReceiver._complete

    def complete(self: TableReceiver) -> Any:
        update = original(self)
        if self.table is not None:
            self.table.known = {PubendId("made up"): 1}
        return update

    assert found(TableInvariant, (TableReceiver, "_complete", complete)) == "I5"


def test_a_copy_of_a_version_that_never_existed_breaks_i5() -> None:
    world, invariant = sound(TableInvariant)
    host = next(iter(world.hosts.values()))
    machine: Any = host.process and host.process.machine
    edge = next(iter(machine.components.exchange.table_store.edges.values()))
    edge.tables()[0].version += 1_000
    edge.revision += 1
    invariant.moved(host.process, machine, None)
    assert names(world) == ["I5"]


def test_more_tables_than_brokers_of_a_direction_break_i14() -> None:
    world, invariant = sound(TableInvariant)
    host = next(iter(world.hosts.values()))
    machine: Any = host.process and host.process.machine
    edge = next(iter(machine.components.exchange.table_store.edges.values()))
    held = next(edge.held())
    edge._held |= {"x": held, "y": held, "z": held}
    edge.revision += 1
    invariant.moved(host.process, machine, None)
    assert names(world) == ["I14"]


# --- stream epochs (I6) -----------------------------------------------------------------------

S = ShbId("s", "c")
P = PubendId("P9")


def stream_epoch(number: int, start: int, counter: int = 1) -> PutRecord:
    return PutRecord(
        StreamEpochRecord(P, number, start, 1, ((S, VectorEntry(VirtualTime(1, counter))),))
    )


def member(floor: int = 9) -> PutRecord:
    return PutRecord(MemberRecord(P, S, (1, 1), VirtualTime(1, 1), False, False, floor))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([stream_epoch(1, 10), member(), stream_epoch(2, 20)], []),
        ([stream_epoch(1, 10), member(), stream_epoch(1, 11)], ["I6", "I6"]),
        ([stream_epoch(1, 10), member(), stream_epoch(2, 10)], ["I6"]),
        ([stream_epoch(1, 10, 5), member(), stream_epoch(2, 20, 4)], ["I6"]),
        ([stream_epoch(1, 10), stream_epoch(2, 20), member()], ["I6"]),
    ],
    ids=["sound", "two vectors", "no growth", "a value falls", "no row"],
)
def test_stream_epochs_on_disk_keep_i6(changes: list[PutRecord], expected: list[str]) -> None:
    run = SimulationRun(
        SimulationOptions(), observers=[lambda run: InvariantMonitor(run, [StreamEpochInvariant])]
    )
    held: Any = run.world.observers[0]
    host = next(iter(run.world.hosts.values()))
    for change in changes:
        held._changed(host, change)
    assert names(run.world) == expected


def test_a_knowledge_range_of_two_stream_epochs_breaks_i6() -> None:
    world, invariant = sound(StreamEpochInvariant)
    host, pubend = pubend_of(invariant)
    stream_epochs = invariant.global_state.stream_epochs[pubend]
    stream = invariant.oracle.streams[pubend]
    start = stream_epochs[2].start
    invariant.knowledge_sent(
        host.process, host.broker, LEAF, stream, KnowledgeRange(start, start, 2, 0)
    )
    assert names(world) == []
    invariant.knowledge_sent(
        host.process, host.broker, LEAF, stream, KnowledgeRange(start - 1, start, 1, 0)
    )
    assert names(world) == ["I6"]


# --- cursors and reads (I7, I8) ---------------------------------------------------------------


def start_anywhere(self: Cursor, low: int, time: Any) -> None:  # noqa: ARG001
    self.start_after(low - 1)
    is_connected = self.subscription.client is not None
    phase = CursorPhase.LIVE if is_connected else CursorPhase.DISCONNECTED
    self.enter(phase, CursorInput.SERVED)


def test_a_start_in_a_stream_epoch_that_does_not_list_the_host_breaks_i7() -> None:
    assert (
        found(CursorInvariant, (Cursor, "start_if_served", start_anywhere), churn_rate=30.0) == "I7"
    )


def test_an_older_subscription_that_starts_with_its_shb_breaks_r46() -> None:
    bug = (StartVerification, "guaranteed_start_after", lambda *_: None)
    assert found(StartInvariant, bug, late_pubends=1.0, cells=6, publish_rate=200.0) == "R46"


@pytest.mark.slow
def test_a_failover_that_forgets_start_guarantees_breaks_r46() -> None:
    many = {"pubends": 8, "publishers": 10, "subscribers": 10, "late_pubends": 0.9}
    failing_over = {
        "durable": 1.0,
        "failover": 0.9,
        "forgotten_positions": 0.0,
        "total": 0.0,
        "past": 0.0,
    }
    rates = {"crash": 2.0, "client loss": 8.0}
    busy = {"publish_rate": 80.0, "churn_rate": 3.0, "down_ms_max": 1_000, "safety_ms": 3_000}
    bug = (ForcedMoves, "_set_guarantees", lambda *_: None)
    changes: dict[str, Any] = {**many, **failing_over, **busy, "rates": rates}
    assert found(StartInvariant, bug, cells=4, **changes) == "R46"


def some_subend(world: World) -> tuple[SimulatedHost, Any, Any]:
    for host in world.hosts.values():
        machine: Any = host.process and host.process.machine
        for subend in machine.components.subends.guaranteed.values():
            if subend.has_base and subend.cursors:
                return host, machine, subend
    raise AssertionError("no subend has begun")


def test_a_horizon_that_falls_breaks_i7() -> None:
    world, invariant = sound(CursorInvariant)
    host, machine, subend = some_subend(world)
    subend._horizon.tick -= 1
    invariant.moved(host.process, machine, None)
    assert names(world) == ["I7"]


def test_a_position_below_what_was_sent_breaks_i8() -> None:
    world, invariant = sound(CursorInvariant)
    host, machine, subend = some_subend(world)
    cursor = next(iter(subend.cursors.values()))
    cursor.phase, cursor.last_sent = CursorPhase.CATCHING_UP, cursor.position + 10
    cursor.position -= 1
    invariant.moved(host.process, machine, None)
    assert names(world) == ["I8"]


def test_advancing_in_a_stream_epoch_that_does_not_serve_the_host_breaks_i7() -> None:
    bug = (CursorGroups, "is_covered", lambda *_: True)
    assert found(CursorInvariant, bug, **INACTIVE) == "I7"


def test_reading_with_another_filter_breaks_i7() -> None:
    bug = (Filters, "covering_filter", lambda _: "FALSE")
    assert found(CursorInvariant, bug, **INACTIVE) == "I7"


def test_a_read_reply_that_omits_a_match_breaks_i7() -> None:
    assert (
        found(ReadInvariant, (PubendRequestHandler, "_filter", lambda *_: Filter("FALSE"))) == "I7"
    )


def test_a_local_read_that_omits_a_match_breaks_i7() -> None:
    bug = (PubendRequestHandler, "_filter", lambda *_: Filter("FALSE"))
    assert found(ReadInvariant, bug, cells=1) == "I7"


# --- publishers (I12) -------------------------------------------------------------------------


def test_a_sequence_that_is_logged_twice_breaks_i12() -> None:
    """The oracle checks every row that is logged."""
    bug = (Publishers, "published", lambda *_: ())
    details = []
    with patched(*bug):
        for seed in range(5):
            run = SimulationRun(options(seed, repeat_rate=50.0), observers=())
            run.start()
            run.world.run_until(run.options.safety_ms * 1_000)
            details += [each.detail for each in run.world.violations if each.name == "duplicate"]
    assert any("(I12)" in each for each in details)


# --- retention (I9, I10) ----------------------------------------------------------------------


def test_a_report_above_the_needed_ticks_breaks_i9() -> None:
    def floor(self: AckReporter, subend: Any) -> int:  # noqa: ARG001
        return int(subend.horizon)

    assert found(ReportInvariant, (AckReporter, "ack_floor", floor), durable=1.0) == "I9"


def test_a_router_that_reports_more_than_it_received_breaks_i9() -> None:
    original = acks.grouped

    def generous(reports: Any, groups_max: int) -> Any:
        return [(tick + 1, members) for tick, members in original(reports, groups_max)]

    assert found(ReportInvariant, (acks, "grouped", generous)) == "I9"


def test_a_log_that_is_released_while_members_need_it_breaks_i10() -> None:
    assert found(RetentionInvariant, (Members, "ack_floor", lambda _: None)) == "I10"


def test_a_log_that_is_released_within_a_log_hold_breaks_i10() -> None:
    def floor(self: Members) -> int | None:
        return min((row.ack_floor for row in self._rows.values()), default=None)

    assert found(RetentionInvariant, (Members, "ack_floor", floor), past=1.0) == "I10"


# --- feeds (I11) ------------------------------------------------------------------------------


def test_a_feed_from_a_more_distant_broker_breaks_i11() -> None:
    world, invariant = sound(FeedInvariant, shape="line")
    _, pubend = pubend_of(invariant)
    phb_cell = invariant.global_state.phb_cell(invariant.oracle.streams[pubend])
    tree = invariant.global_state.tree
    ordered = sorted(world.hosts.values(), key=lambda each: tree.distance(phb_cell, each.cell))
    near, far = ordered[0], ordered[-1]
    invariant._attached(near.process, far.broker, Attached(pubend, 2, 0))
    assert names(world) == []
    invariant._attached(far.process, near.broker, Attached(pubend, 2, 0))
    invariant._attached(far.process, near.broker, Attached(pubend, 3, 0))
    route = ", ".join(host.broker for host in reversed(ordered))
    feeds = f"{near.broker} in {near.cell} with {pubend}"
    assert [(each.name, each.detail) for each in world.violations] == [
        ("I11", f"{far.broker} in {far.cell} feeds {feeds}"),
        ("I11", f"{pubend} has a cycle of feeders: {route}"),
        ("I11", f"{far.broker} in {far.cell} feeds the leaf of {feeds}"),
    ]


# --- durability (I13) -------------------------------------------------------------------------


def test_a_stream_epoch_that_is_sent_before_it_is_durable_breaks_i13() -> None:
    assert found(DurabilityInvariant, (Pubend, "_enqueue_all", send_early)) == "I13"


def test_silence_above_the_durable_tick_ceiling_breaks_i13() -> None:
    def raise_ceiling(self: Any, need: int) -> None:
        self._raised(need + 1)

    assert found(DurabilityInvariant, (Pubend, "_raise_ceiling", raise_ceiling)) == "I13"


def test_a_start_that_is_confirmed_before_it_is_durable_breaks_i13() -> None:
    def store_nothing(self: DeliveryLimits, tick: int, *, started: bool = False) -> None:  # noqa: ARG001
        self._subscription.mark_dirty()

    bug = (DeliveryLimits, "until_stored", store_nothing)
    assert found(DurabilityInvariant, bug, durable=1.0) == "I13"


# --- limits (I14) -----------------------------------------------------------------------------


def test_a_cache_over_its_limit_breaks_i14() -> None:
    bug = (router, "shrink", lambda *_: 0)
    assert found(LimitInvariant, bug, limits={"cache_bytes": 300}) == "I14"


# --- convergence (I15) ------------------------------------------------------------------------


def never_settle(original: Any) -> Any:
    def updated(self: Edge, *arguments: Any) -> Any:
        outcome = original(self, *arguments)
        self.settled = False
        return outcome

    return updated


def outstanding_with(patch: Patch, seed: int = 0, **changes: Any) -> tuple[SimulationRun, str]:
    """Run to the end with a planted bug; return the run and what is outstanding."""
    with patched(*patch):
        run = SimulationRun(
            options(seed, liveness_ms=2_000, **changes),
            observers=[lambda run: InvariantMonitor(run, [ConvergenceInvariant])],
        )
        result = run.play()
    assert [each.name for each in result.violations] == ["I15"], result.violations
    return run, result.violations[0].detail


def test_an_overlay_that_does_not_settle_breaks_i15() -> None:
    bug = (Edge, "_updated", never_settle(Edge._updated))
    run, missing = outstanding_with(bug, whole_core=1.0)
    assert len(run.world.core) == len(run.world.hosts)
    assert "is not settled" in missing


def test_a_part_that_does_not_settle_breaks_i15() -> None:
    bug = (Edge, "_updated", never_settle(Edge._updated))
    run, missing = outstanding_with(bug, seed=6, whole_core=0.0, cells=6)
    assert 1 < len(run.world.core) < len(run.world.hosts)
    assert "is not settled" in missing


def test_hosts_outside_the_core_are_not_outstanding() -> None:
    small = options(6, whole_core=0.0, cells=6, rates={"crash": 2.0, "permanent cut": 5.0})
    run = SimulationRun(
        small, observers=[lambda run: InvariantMonitor(run, [ConvergenceInvariant])]
    )
    assert run.play().violations == ()
    world = run.world
    inside = {host.broker for host in world.core}
    assert 1 < len(inside) < len(world.hosts)
    outside = [host for host in world.hosts.values() if host.broker not in inside]
    for host in outside:
        world.crash(host)
    assert world.observers[0].outstanding(world) == []
    world.core.append(outside[0])
    assert world.observers[0].outstanding(world) == [f"{outside[0].broker} has not started"]


def test_a_table_that_keeps_unused_filters_breaks_i15() -> None:
    original = OutTable.changed

    def only_more(self: OutTable, added: Any, removed: Any) -> None:
        del removed
        original(self, added, ())

    _, missing = outstanding_with((OutTable, "changed", only_more), whole_core=1.0)
    assert "which no SHB wants" in missing


def test_merged_tables_may_have_more_than_is_wanted() -> None:
    limits = {"table_conjunctions_max": 1}
    small = options(0, whole_core=1.0, subscribers=12, limits=limits)
    run = SimulationRun(
        small, observers=[lambda run: InvariantMonitor(run, [ConvergenceInvariant])]
    )
    assert run.play().violations == ()


def test_unsettled_edges_missing_feeds_and_pending_cursors_are_outstanding() -> None:
    run = SimulationRun(
        options(4, whole_core=1.0),
        observers=[lambda run: InvariantMonitor(run, [ConvergenceInvariant])],
    )
    assert run.play().violations == ()
    invariant: WorldObserver = run.world.observers[0]
    assert invariant.outstanding(run.world) == []
    host, machine, subend = some_subend(run.world)
    next(iter(machine.components.exchange.table_store.edges.values())).settled = False
    subend._state.feed._current = None
    next(iter(subend.cursors.values())).phase = CursorPhase.PENDING
    missing = " ".join(invariant.outstanding(run.world))
    for part in ("is not settled", "has no feed", "has not started"):
        assert part in missing
    assert host.broker in missing
