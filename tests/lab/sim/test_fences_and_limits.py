"""Fencing (I12), limits (I14), reports that follow (I15): the invariants report violations."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.events import LinkDrained, LinkFull
from gapless.core.ids import PubendId
from gapless.core.limits import JOIN_PUBLICATIONS_MAX
from gapless.core.ticks import TickRange
from gapless.messages.overlay import Hello, Packet, PeerSessionId
from gapless.messages.records import PublisherRecord, PutRecord
from gapless.messages.streams import KnowledgeRange, Nack, Publication, StreamData
from gapless.pubend.pubend import Pubend
from gapless.routing.router import Router
from gapless.subscribers.reporter import AckReporter
from gapless_lab.sim.invariants.convergence import ConvergenceInvariant
from gapless_lab.sim.invariants.fencing import FencingInvariant
from gapless_lab.sim.invariants.limits import LimitInvariant
from gapless_lab.sim.invariants.monitor import InvariantMonitor
from gapless_lab.sim.planted_bugs import patched
from gapless_lab.sim.runner import SimulationRun
from gapless_lab.sim.world import SimulatedProcess, World
from tests.lab.sim.test_invariants import found, names, options, sound

P = PubendId("P0")
OLD, NEW, OWN = PeerSessionId(7, 1), PeerSessionId(7, 2), PeerSessionId(9, 1)


def some(world: World) -> SimulatedProcess:
    process = next(iter(world.hosts.values())).process
    assert process is not None
    return process


# --- fencing ----------------------------------------------------------------------------------


def fence() -> tuple[World, Any, SimulatedProcess]:
    """Return an invariant that has seen a broker start a session with x."""
    world, invariant = sound(FencingInvariant)
    process = some(world)
    invariant._hello(process, "x", Hello(process.host.broker, "n0", OWN, None, 1, 0))
    return world, invariant, process


def receive(invariant: Any, process: SimulatedProcess, *packets: Packet) -> None:
    for packet in packets:
        invariant.arrived(process, "x", packet)
        invariant.taken(process, "x", packet)


def test_packets_of_the_newest_session_in_order_are_no_violation() -> None:
    world, invariant, process = fence()
    receive(invariant, process, *(Packet(OLD, OWN, number, ()) for number in (1, 2, 3)))
    receive(invariant, process, Packet(NEW, OWN, 1, ()))
    assert names(world) == []


def test_a_packet_for_a_session_that_the_receiver_has_ended_breaks_i12() -> None:
    world, invariant, process = fence()
    receive(invariant, process, Packet(OLD, PeerSessionId(9, 0), 1, ()))
    assert names(world) == ["I12"]


def test_a_packet_of_a_session_that_the_sender_has_ended_breaks_i12() -> None:
    world, invariant, process = fence()
    receive(invariant, process, Packet(NEW, OWN, 1, ()), Packet(OLD, OWN, 1, ()))
    assert names(world) == ["I12"]


def test_a_packet_after_a_missing_one_breaks_i12() -> None:
    world, invariant, process = fence()
    receive(invariant, process, Packet(NEW, OWN, 1, ()), Packet(NEW, OWN, 3, ()))
    assert names(world) == ["I12"]


def test_a_new_incarnation_has_received_nothing() -> None:
    world, invariant, process = fence()
    receive(invariant, process, Packet(NEW, OWN, 1, ()))
    invariant.started(world, process)
    receive(invariant, process, Packet(OLD, OWN, 1, ()))
    assert names(world) == []


# --- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ranges", [tuple(TickRange(tick, tick) for tick in range(65)), (TickRange(1, 1_000_001),)]
)
def test_a_nack_of_too_many_or_too_long_ranges_breaks_i14(ranges: tuple[TickRange, ...]) -> None:
    world, invariant = sound(LimitInvariant, limits={"nack_ranges_max": 64, "nack_span_ms": 1_000})
    invariant._nack(some(world), "x", Nack(P, ranges))
    assert names(world) == ["I14"]


def test_a_frame_of_too_many_events_breaks_i14() -> None:
    most = 2 * JOIN_PUBLICATIONS_MAX
    world, invariant = sound(
        LimitInvariant, limits={"frame_events_max": most, "read_chunk_bytes": 1}
    )
    events = tuple(Publication(tick, "p", tick, {}, b"") for tick in range(1, most + 2))
    invariant._framed(
        some(world), "x", StreamData(P, 2, KnowledgeRange(1, most + 1, 1, 0, events), first=True)
    )
    assert names(world) == ["I14"]


def test_a_window_that_is_too_long_breaks_i14() -> None:
    world, invariant = sound(LimitInvariant, limits={"publisher_window": 10})
    window = tuple((number, number, 1) for number in range(1, 12))
    record = PublisherRecord(P, "p", 1, 11, window, 0)
    invariant.durable(some(world).host, PutRecord(record))
    assert names(world) == ["I14"]


def test_sending_knowledge_over_a_full_link_breaks_i14() -> None:
    world, invariant = sound(LimitInvariant)
    process = some(world)
    stream = next(iter(invariant.oracle.streams.values()))
    machine: Any = process.machine
    invariant.moved(process, machine, LinkFull("x"))
    invariant.moved(process, machine, LinkDrained("x"))
    invariant.knowledge_sent(process, "x", 2, stream, KnowledgeRange(1, 2, 1, 0))
    assert names(world) == []
    invariant.moved(process, machine, LinkFull("x"))
    invariant.knowledge_sent(process, "x", 2, stream, KnowledgeRange(1, 2, 1, 0))
    invariant.moved(process, machine, None)
    assert names(world) == ["I14"]


def test_a_router_that_does_not_pause_a_peer_breaks_i14() -> None:
    ignored = (Router, "pause_peer", lambda *_: None)
    assert found(LimitInvariant, ignored, limits={"queue_bytes_max": 300}) == "I14"


def test_a_log_beyond_its_limit_breaks_i14() -> None:
    never_full = (Pubend, "_refuse_when_full", lambda _: None)
    assert found(LimitInvariant, never_full, limits={"log_bytes_max": 500}, durable=1.0) == "I14"


# --- reports ----------------------------------------------------------------------------------


def test_reports_that_lag_behind_break_i15() -> None:
    calm = options(1, durable=0.0, past=0.0, rates={}, whole_core=1.0, liveness_ms=6_000)
    run = SimulationRun(calm, observers=[lambda run: InvariantMonitor(run, [ConvergenceInvariant])])
    with patched(AckReporter, "ack_floor", lambda *_: 0):
        violations = run.play().violations
    assert [each.name for each in violations] == ["I15"]
    assert "the floor of" in violations[0].detail
