"""The world: hosts, processes and one queue of actions, in virtual time.

A **host** is a computer: a name, a cell, a wall clock, a disk. A **process** is one incarnation of
a machine on it. Times in the queue are microseconds since the start of the world. Each process has
its own offset of ``now``. This exposes a machine that keeps ``now`` beyond its incarnation or
compares it with a peer's. The wall clock of a process is the world's time plus the host's error.

Nothing here iterates a set, and dictionaries are filled in a fixed order: a run is a function of
its options.
"""

from __future__ import annotations

import heapq
import traceback
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec

from gapless.core.context import StepTime
from gapless.core.effects import DisconnectClient, Fetch, Notify, Send, SetPeers, Write
from gapless.core.events import MachineEvent
from gapless.core.ids import BrokerId
from gapless.core.parameters import Parameters
from gapless.overlay.neighbourhood import Neighbourhood, Topology
from gapless_lab.sim.connections import SimulatedConnections
from gapless_lab.sim.datagrams import DatagramNetwork
from gapless_lab.sim.disk import DiskListener, SimulatedDisk
from gapless_lab.sim.machine import Factory, SimulatedMachine
from gapless_lab.sim.network import SessionNetwork, SimulatedNetwork
from gapless_lab.sim.options import SimulatedNetworkKind, SimulationOptions
from gapless_lab.sim.trace import EVENT_CODES, Trace
from gapless_lab.sim.trace_format import WALL_START
from gapless_lab.sim.wanted_links import WantedLinks
from gapless_lab.sim.world_tree import WorldTree

__all__ = ["WALL_START", "SimulatedHost", "SimulatedProcess", "Violation", "World", "WorldObserver"]

NEVER: Final = 2**62


class Violation(msgspec.Struct, frozen=True):
    """A failed check: its name, the details and the time."""

    name: str
    detail: str
    at_us: int

    def __str__(self) -> str:
        return f"{self.name} at {self.at_us / 1_000_000:.6f} s: {self.detail}"


class SimulatedHost:
    """A computer of the world."""

    __slots__ = (
        "broker",
        "cell",
        "clock_error",
        "configured",
        "crash_armed",
        "disk",
        "doomed",
        "held",
        "index",
        "process",
        "wanted_links",
    )

    def __init__(self, broker: BrokerId, index: int, configured: Neighbourhood) -> None:
        self.broker = broker
        self.cell = configured.own
        self.index = index
        self.configured = configured
        """The neighbourhood in the configuration, with which a broker starts that stores none."""
        self.wanted_links = WantedLinks.configured(broker, configured)
        """The links that the driver of the last incarnation was told to keep."""
        self.clock_error = 0
        self.crash_armed = False
        """Whether the next write is followed by a crash before its sync."""
        self.doomed = False
        """Whether the host stays down or paused for ever."""
        self.held = 0
        """The number of outages that keep the host down."""
        self.disk: SimulatedDisk
        self.process: SimulatedProcess | None = None


CONTRADICTIONS: Final = frozenset({"contradictory knowledge range"})
"""Coverage marks that show two statements that cannot both be true. A broker survives them, because
a peer may lie; simulated brokers do not lie."""


class SimulatedProcess:
    """One incarnation of a machine on a host."""

    __slots__ = ("alive", "backlog", "clients", "host", "machine", "paused", "wake_at", "zero")

    def __init__(self, host: SimulatedHost, machine: SimulatedMachine, zero: int) -> None:
        self.host = host
        self.machine = machine
        self.zero = zero
        """The world's time at which this process's ``now`` was 0."""
        self.alive = True
        self.paused = False
        self.backlog: list[MachineEvent] = []
        self.wake_at = NEVER
        self.clients: dict[str, Any] = {}


class WorldObserver:
    """Callbacks that check the state of machines; a subclass overrides those it needs."""

    def stepped(
        self, world: World, process: SimulatedProcess, event: MachineEvent, effects: list[Any]
    ) -> None:
        """A machine has made a step."""

    def started(self, world: World, process: SimulatedProcess) -> None:
        """A machine starts a new incarnation and has not made a step."""

    def crashed(self, world: World, process: SimulatedProcess) -> None:
        """A machine has crashed."""

    def outstanding(self, world: World) -> list[str]:
        """Return what must still happen in the liveness phase."""
        del world
        return []

    def finished(self, world: World) -> None:
        """The run is over."""


class World:
    """The complete state of a run, and its virtual time."""

    def __init__(
        self, options: SimulationOptions, factory: Factory, trace: Trace | None = None
    ) -> None:
        self.options = options
        self.parameters: Parameters = options.parameters()
        topology: Topology = options.topology()
        self.tree = WorldTree(topology)
        self.trace = trace or Trace()
        self.now = 0
        self.steps = 0
        self.stopped = False
        self.violations: list[Violation] = []
        self.faults: dict[str, int] = {}
        self.coverage_marks: dict[str, int] = {}
        self.messages: dict[str, int] = {}
        """The messages that brokers have received (``in``) and sent (``out``), by direction and kind."""
        self.observers: list[WorldObserver] = []
        self.transcode: Callable[[Any], Any] | None = None
        """Encodes and decodes every packet; None unless the run tests the codec too."""
        self.hosts: dict[BrokerId, SimulatedHost] = {}
        self.disk_listeners: list[DiskListener] = [self.tree.durable]
        """Called with every change that became durable on any disk, in this order."""
        self._factory = factory
        self._queue: list[tuple[int, int, Callable[[Any, Any], None], Any, Any]] = []
        self._order = 0
        self._starts = self.stream("starts")
        for cell in topology.cells:
            radius = self.parameters.neighbourhood_radius
            configured = topology.neighbourhood(cell.name, radius)
            for broker in cell.brokers:
                self._add_host(broker, configured)
        self.core: list[SimulatedHost] = list(self.hosts.values())
        """The hosts that must work in the liveness phase; all hosts before it."""
        self.network = _make_network(self)
        self.connections = SimulatedConnections(self)

    def _add_host(self, broker: BrokerId, configured: Neighbourhood) -> SimulatedHost:
        host = SimulatedHost(broker, len(self.hosts), configured)
        host.disk = SimulatedDisk(self, host, self.stream("disk", broker))
        self.hosts[broker] = host
        return host

    def add_host(self, broker: BrokerId, configured: Neighbourhood) -> SimulatedHost:
        """Add a host during the run; its broker knows nothing but its own cell."""
        host = self._add_host(broker, configured)
        self.core.append(host)
        self.network.add_host(host)
        return host

    def stream(self, *purpose: str) -> Random:
        """Return the random numbers of the seed for one purpose."""
        return Random("/".join((str(self.options.seed), *purpose)))  # noqa: S311

    # --- time --------------------------------------------------------------------------------

    def push(self, at: int, action: Callable[[Any, Any], None], first: Any, second: Any) -> None:
        """Schedule an action; actions of the same time run in the order of insertion."""
        self._order += 1
        heapq.heappush(self._queue, (at, self._order, action, first, second))

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        """Call a function after a delay; for rare actions."""
        self.push(self.now + delay_us, _call, action, None)

    def planned(self) -> list[tuple[int, int, Callable[[Any, Any], None], Any, Any]]:
        """Return the scheduled actions, in order."""
        return sorted(self._queue, key=lambda entry: entry[:2])

    def run_until(self, deadline: int) -> None:
        """Run all actions up to a time, unless a violation ends the run."""
        queue, pop = self._queue, heapq.heappop
        while queue and queue[0][0] <= deadline and not self.stopped:
            at, _, action, first, second = pop(queue)
            self.now = at
            action(first, second)
        if not self.stopped:
            self.now = deadline

    def clock(self, host: SimulatedHost) -> int:
        """Return the wall clock of a host."""
        return WALL_START + self.now + host.clock_error

    # --- incarnations ------------------------------------------------------------------------

    def start(self, host: SimulatedHost) -> None:
        """Start a new incarnation of a machine from the records on its disk."""
        if host.process is not None or host.doomed or host.held:
            return
        zero = self.now - self._starts.randrange(1, 10_000_000)
        step_time = StepTime(self.now - zero, self.clock(host))
        records = host.disk.load()
        try:
            machine = self._factory(
                host.broker, host.cell, self.parameters, host.configured, records, step_time
            )
        except Exception:  # noqa: BLE001 - any exception of a machine is a violation
            self.violate("exception", f"{host.broker} cannot start: {traceback.format_exc()}")
            return
        process = host.process = SimulatedProcess(host, machine, zero)
        host.wanted_links = WantedLinks.configured(host.broker, host.configured)
        self.note(host.broker, "starts")
        for observer in self.observers:
            observer.started(self, process)
        self.happen(process, None)
        self.network.started(host)

    def crash(self, host: SimulatedHost, why: str = "crash") -> None:
        """End an incarnation: memory and unsynced writes are lost."""
        process = host.process
        if process is None:
            return
        process.alive = False
        host.process = None
        host.crash_armed = False
        lost = host.disk.crash()
        self.note(host.broker, f"crashes ({why}), {lost} writes lost")
        self._collect_counts(process)
        self.network.stopped(host)
        self.connections.stopped(process)
        for observer in self.observers:
            observer.crashed(self, process)

    def pause(self, host: SimulatedHost) -> None:
        """Pause the process of a host; its events queue."""
        if host.process is not None:
            host.process.paused = True
            self.note(host.broker, "pauses")

    def resume(self, host: SimulatedHost) -> None:
        """Let a paused process handle the events that came meanwhile."""
        process = host.process
        if process is None or not process.paused or host.doomed:
            return
        process.paused = False
        self.note(host.broker, "resumes")
        backlog, process.backlog = process.backlog, []
        for event in backlog:
            self.happen(process, event)
        self._wake(process, None)

    def jump_clock(self, host: SimulatedHost, change_us: int) -> None:
        """Set the wall clock of a host forward or back."""
        host.clock_error += change_us
        self.note(host.broker, f"clock jumps by {change_us / 1_000_000:g} s")

    # --- steps -------------------------------------------------------------------------------

    def happen(self, process: SimulatedProcess, *events: MachineEvent) -> None:
        """Give events to a process in one step: now, or when it resumes. A dead process gets
        nothing.
        """
        if not process.alive:
            return
        if process.paused:
            process.backlog += events
            return
        event = events[-1]
        host, now = process.host, self.now
        machine, zero = process.machine, process.zero
        step_time = StepTime(now - zero, WALL_START + now + host.clock_error)
        try:
            alone = len(events) == 1
            effects = (
                machine.step(event, step_time) if alone else machine.step_all(events, step_time)
            )
            due = machine.next_timer()
        except Exception:  # noqa: BLE001 - any exception of a machine is a violation
            self.violate("exception", f"{host.broker} at {events!r}: {traceback.format_exc()}")
            return
        self.steps += 1
        trace = self.trace
        trace.digest = hash((trace.digest, now, host.index, EVENT_CODES[type(event)], len(effects)))
        if trace.full:
            for earlier in events[:-1]:
                trace.step(now, host.broker, earlier, [])
            trace.step(now, host.broker, event, effects)
        for effect in effects:
            self._carry_out(process, effect)
        if due is not None and due + zero < process.wake_at:
            process.wake_at = max(now, due + zero)
            self.push(process.wake_at, self._wake, process, process.wake_at)
        for observer in self.observers:
            observer.stepped(self, process, event, effects)

    def _carry_out(self, process: SimulatedProcess, effect: Any) -> None:
        kind = type(effect)
        if kind is Send:
            packet = effect.packet if self.transcode is None else self.transcode(effect.packet)
            self.network.send(process.host, effect.peer, packet)
        elif kind is Notify:
            self.connections.notify(process, effect.client, effect.notice)
        elif kind is Write:
            process.host.disk.write(process, effect)
            if process.host.crash_armed:
                self._crash_inside_sync(process.host)
        elif kind is Fetch:
            process.host.disk.fetch(process, effect)
        elif kind is SetPeers:
            self.network.set_links(process.host, WantedLinks.of(process.host.broker, effect))
        elif kind is DisconnectClient:
            self.connections.disconnect(process, effect.client, effect.reason)
        else:
            raise AssertionError(f"{effect!r} is no effect")

    def _wake(self, process: SimulatedProcess, planned: int | None) -> None:
        """Make a step of a process if one of its timers is due."""
        if not process.alive or process.paused:
            if planned == process.wake_at:
                process.wake_at = NEVER  # resuming reads the timers again
            return
        if planned is not None and planned != process.wake_at:
            return  # an earlier timer was set meanwhile and has scheduled the next step
        process.wake_at = NEVER
        due = process.machine.next_timer()
        if due is None:
            return
        if due + process.zero <= self.now:
            self.happen(process, None)
        else:
            process.wake_at = due + process.zero
            self.push(process.wake_at, self._wake, process, process.wake_at)

    def _crash_inside_sync(self, host: SimulatedHost) -> None:
        host.crash_armed = False
        delay = self._starts.randrange(max(1, self.options.sync_us_min))
        process = host.process

        def strike() -> None:
            if host.process is process:
                self.count_fault("crash inside a sync")
                self.crash(host, "inside a sync")
                self.after(self.options.down_us(self._starts), lambda: self.start(host))

        self.after(delay, strike)

    # --- violations --------------------------------------------------------------------------

    def violate(self, name: str, detail: str) -> None:
        """Record a violation; the first one ends the run."""
        self.violations.append(Violation(name, detail, self.now))
        self.note("world", f"VIOLATION {name}: {detail}")
        self.stopped = True

    def count_fault(self, kind: str) -> None:
        """Count a fault that struck."""
        self.faults[kind] = self.faults.get(kind, 0) + 1

    def note(self, who: str, text: str) -> None:
        """Write an entry that is not a step into the trace."""
        if self.trace.full:
            self.trace.note(self.now, who, text)

    def finish(self) -> None:
        """End the run: collect the machines' counts and call the observers a last time."""
        for host in self.hosts.values():
            if host.process is not None:
                self._collect_counts(host.process)
        for mark in sorted(CONTRADICTIONS & self.coverage_marks.keys()):
            self.violate("contradiction", f"{mark}: simulated brokers do not lie (I1)")
        for observer in self.observers:
            observer.finished(self)

    def _collect_counts(self, process: SimulatedProcess) -> None:
        for mark, count in process.machine.coverage_marks.items():
            self.coverage_marks[mark] = self.coverage_marks.get(mark, 0) + count
        for direction, kind, number in process.machine.message_counts:
            name = f"{direction} {kind}"
            self.messages[name] = self.messages.get(name, 0) + number


def _make_network(world: World) -> SimulatedNetwork:
    """Return the network that the options select."""
    if world.options.network is SimulatedNetworkKind.SESSION:
        return SessionNetwork(world)
    return DatagramNetwork(world)


def _call(action: Callable[[], None], _: None) -> None:
    action()
