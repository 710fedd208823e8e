"""The world: time, incarnations, pauses, clocks, clients; a run is a function of its options."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from gapless.core.effects import DisconnectClient, Notify, Write
from gapless.core.events import ClientDown, ClientRequest, ClientUp
from gapless.messages.records import IncarnationRecord, PutRecord
from gapless_lab.sim.options import SimulationOptions
from gapless_lab.sim.runner import SimulationRun, run_options
from gapless_lab.sim.world import WALL_START, SimulatedHost, World, WorldObserver
from tests.lab.sim.recorder import Listener, Recorder, do, machine, make_world, pass_ms
from tests.lab.sim.toy import TOY
from tests.lab.sim.toy_runs import toy_options


def first(world: World) -> SimulatedHost:
    return next(iter(world.hosts.values()))


# --- determinism ------------------------------------------------------------------------------

FAULTY = next(seed for seed in range(100) if len(toy_options(seed).rates) > 5)


def test_the_same_seed_gives_the_same_trace() -> None:
    lines: list[list[str]] = [[], []]
    results = [run_options(toy_options(FAULTY), TOY, sink=sink.append) for sink in lines]
    assert lines[0] == lines[1]
    assert results[0].trace_hash == results[1].trace_hash
    assert results[0].text_hash == results[1].text_hash


def test_writing_the_lines_does_not_change_the_run() -> None:
    silent = run_options(toy_options(FAULTY), TOY)
    loud = run_options(toy_options(FAULTY), TOY, sink=lambda _: None)
    assert silent.trace_hash == loud.trace_hash


def test_different_seeds_give_different_traces() -> None:
    assert len({run_options(toy_options(seed), TOY).trace_hash for seed in range(10)}) == 10


SCRIPT = """
from gapless_lab.sim.runner import run_options
from tests.lab.sim.toy import TOY
from tests.lab.sim.toy_runs import toy_options
for seed in range(6):
    result = run_options(toy_options(seed), TOY, sink=lambda line: None)
    print(result.trace_hash, result.text_hash)
"""


def test_the_trace_does_not_depend_on_the_hash_seed() -> None:
    traces = []
    for hash_seed in ("0", "1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        command = [sys.executable, "-c", SCRIPT]
        traces.append(subprocess.run(command, env=environment, capture_output=True, check=True))
    assert traces[0].stdout
    assert traces[0].stdout == traces[1].stdout == traces[2].stdout


# --- time -------------------------------------------------------------------------------------


def test_actions_at_the_same_time_run_in_the_order_of_scheduling() -> None:
    world = make_world(cells=1)
    seen: list[int] = []
    for number in range(5):
        world.after(1_000, lambda number=number: seen.append(number))  # type: ignore[misc]
    pass_ms(world, 2)
    assert seen == [0, 1, 2, 3, 4]


def test_a_machine_is_woken_when_its_timer_is_due() -> None:
    world = make_world(cells=1)
    recorder = machine(first(world))
    do(world, first(world), [])
    now = recorder.steps[-1][0].now + 500_000
    recorder.due = now
    do(world, first(world), [])
    pass_ms(world, 1_000)
    assert (recorder.steps[-1][0].now, recorder.steps[-1][1]) == (now, None)


def test_an_earlier_timer_wakes_earlier_and_the_later_one_only_once() -> None:
    world = make_world(cells=1)
    recorder = machine(first(world))
    do(world, first(world), [])
    now = recorder.steps[-1][0].now
    recorder.due = now + 900_000
    do(world, first(world), [])
    recorder.due = now + 400_000
    do(world, first(world), [])
    before = len(recorder.steps)
    pass_ms(world, 2_000)
    assert [time.now for time, _ in recorder.steps[before:]] == [now + 400_000]


def test_now_restarts_with_every_incarnation_and_the_wall_clock_continues() -> None:
    world = make_world(cells=1)
    host = first(world)
    old = machine(host).born
    world.crash(host)
    pass_ms(world, 100)
    world.start(host)
    new = machine(host).born
    assert new.clock - old.clock == world.now
    assert new.now - old.now != world.now


def test_a_clock_jump_moves_the_wall_clock_of_one_host_only() -> None:
    world = make_world(cells=2)
    left, right = world.hosts.values()
    world.jump_clock(left, -5_000_000)
    for host in (left, right):
        do(world, host, [])
    assert machine(left).steps[-1][0].clock == WALL_START + world.now - 5_000_000
    assert machine(right).steps[-1][0].clock == WALL_START + world.now


# --- incarnations -----------------------------------------------------------------------------


def test_the_first_step_of_an_incarnation_has_no_event() -> None:
    world = make_world(cells=1)
    time, event = machine(first(world)).steps[0]
    assert event is None
    assert time == machine(first(world)).born


def test_a_crash_loses_the_memory_and_counts_its_marks() -> None:
    world = make_world(cells=1)
    host = first(world)
    old = machine(host)
    world.crash(host)
    assert host.process is None
    assert world.coverage_marks == {"recorded": 1}
    assert world.messages == {"out Hello": 2}
    world.start(host)
    assert machine(host) is not old


def test_a_paused_process_runs_no_step_and_then_its_timer() -> None:
    world = make_world(cells=1)
    host = first(world)
    recorder = machine(host)
    do(world, host, [])
    recorder.due = recorder.steps[-1][0].now + 1_000
    do(world, host, [])
    world.pause(host)
    before = len(recorder.steps)
    pass_ms(world, 500)
    assert len(recorder.steps) == before
    world.resume(host)
    assert recorder.steps[-1][1] is None
    assert len(recorder.steps) == before + 1


def test_a_doomed_host_never_restarts() -> None:
    world = make_world(cells=1)
    host = first(world)
    world.crash(host)
    host.doomed = True
    world.start(host)
    assert host.process is None


class Fragile(Recorder):
    """Fails at a request."""

    def step(self, event: Any, now: Any) -> list[Any]:
        assert not isinstance(event, ClientRequest), "a broken assertion"
        return super().step(event, now)


def test_an_exception_of_a_machine_is_a_violation_that_ends_the_run() -> None:
    world = World(SimulationOptions(cells=1), Fragile)
    host = first(world)
    world.start(host)
    do(world, host, [])
    assert world.stopped
    assert world.violations[0].name == "exception"
    assert "a broken assertion" in world.violations[0].detail


def test_an_armed_crash_occurs_between_a_write_and_its_sync() -> None:
    world = make_world(cells=1, sync_us_min=1_000, survive=0.0)
    host = first(world)
    host.crash_armed = True
    do(world, host, [Write(1, (PutRecord(IncarnationRecord(1)),))])
    pass_ms(world, 5_000)
    assert world.faults == {"crash inside a sync": 1}
    assert host.disk.records == {}
    assert host.process is not None, "it starts again"


# --- clients ----------------------------------------------------------------------------------


def test_a_connection_carries_requests_and_notices_in_order() -> None:
    world = make_world(cells=1, delay_us_max=20_000)
    host, listener = first(world), Listener()
    connection = world.connections.connect(listener, host)
    for number in range(20):
        connection.send_request([Notify(connection.name, number)])
    pass_ms(world, 500)
    assert listener.notices == list(range(20))
    assert machine(host).events(ClientUp) == [ClientUp("listener.1")]


def test_a_client_that_disconnects_gets_no_more_notices_and_the_machine_gets_client_down() -> None:
    world = make_world(cells=1)
    host, listener = first(world), Listener()
    connection = world.connections.connect(listener, host)
    pass_ms(world, 50)
    connection.drop(unseen_us=100_000)
    pass_ms(world, 50)
    assert machine(host).events(ClientDown) == [], "the connection is half-open"
    do(world, host, [Notify(connection.name, "into the void")])
    pass_ms(world, 200)
    assert machine(host).events(ClientDown) == [ClientDown("listener.1")]
    assert listener.notices == []


def test_a_disconnected_client_gets_the_reason_after_all_notices() -> None:
    world = make_world(cells=1)
    host, listener = first(world), Listener()
    connection = world.connections.connect(listener, host)
    connection.send_request(
        [Notify(connection.name, "last"), DisconnectClient(connection.name, "too slow")]
    )
    pass_ms(world, 100)
    assert listener.notices == ["last"]
    assert listener.losses == ["disconnected: too slow"]


def test_clients_are_notified_when_their_broker_crashes_or_is_missing() -> None:
    world = make_world(cells=1)
    host, listener = first(world), Listener()
    world.connections.connect(listener, host)
    pass_ms(world, 50)
    world.crash(host)
    pass_ms(world, 50)
    world.connections.connect(listener, host)
    pass_ms(world, 50)
    assert listener.losses == ["the broker is gone", "no such broker"]


# --- observers --------------------------------------------------------------------------------


class Counter(WorldObserver):
    """Counts the calls of an observer."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("started", "stepped", "crashed", "finished"), 0)

    def stepped(self, world: World, process: Any, event: Any, effects: Any) -> None:  # noqa: ARG002
        self.counts["stepped"] += 1

    def started(self, world: World, process: Any) -> None:  # noqa: ARG002
        self.counts["started"] += 1

    def crashed(self, world: World, process: Any) -> None:  # noqa: ARG002
        self.counts["crashed"] += 1

    def finished(self, world: World) -> None:  # noqa: ARG002
        self.counts["finished"] += 1


def test_an_observer_is_called_for_every_incarnation_and_step() -> None:
    counter = Counter()
    options = SimulationOptions(rates={"crash": 5.0}, subscribers=1, total=0.0)
    result = SimulationRun(options, TOY, observers=[lambda _: counter]).play()
    assert counter.counts["stepped"] == result.steps
    assert counter.counts["crashed"] == result.faults["crash"] > 0
    assert counter.counts["started"] == 3 + counter.counts["crashed"]
    assert counter.counts["finished"] == 1


class Objector(WorldObserver):
    """Reports a violation at the tenth step."""

    def stepped(self, world: World, process: Any, event: Any, effects: Any) -> None:  # noqa: ARG002
        if world.steps == 10:
            world.violate("I3", "an invariant does not hold")


def test_a_violation_of_an_observer_ends_the_run() -> None:
    result = SimulationRun(SimulationOptions(), TOY, observers=[lambda _: Objector()]).play()
    assert result.steps == 10
    assert result.violations[0].name == "I3"


# --- the trace --------------------------------------------------------------------------------
