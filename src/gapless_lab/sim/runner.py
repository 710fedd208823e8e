"""One run: a world from its options, the two phases, and the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeAlias

import msgspec

from gapless.messages.clients import Order
from gapless_lab.sim.faults import FaultInjector
from gapless_lab.sim.invariants import monitor_run
from gapless_lab.sim.machine import BROKER, load_factory
from gapless_lab.sim.options import SimulationOptions, draw
from gapless_lab.sim.oracle import Oracle, PublishedStream
from gapless_lab.sim.reshaping import Reshaping
from gapless_lab.sim.subscribers import SimulatedSubscriber
from gapless_lab.sim.trace import Trace
from gapless_lab.sim.workload import Workload
from gapless_lab.sim.world import Violation, World, WorldObserver

__all__ = [
    "DEFAULT_OBSERVERS",
    "ObserverFactories",
    "RunResult",
    "SimulationRun",
    "run_options",
    "run_seed",
]

SLICE_US: Final = 100_000
"""The interval at which the liveness phase checks whether everything is done."""


class RunResult(msgspec.Struct, frozen=True):
    """The result of a run."""

    options: SimulationOptions
    steps: int
    virtual_ms: int
    faults: dict[str, int]
    publications: int
    deliveries: int
    gaps: int
    violations: tuple[Violation, ...]
    coverage_marks: dict[str, int]
    trace_hash: str
    text_hash: str
    """The digest of all contents, if lines were written."""
    seconds: float
    messages: dict[str, int] = {}
    """The messages between brokers, by direction and kind."""

    @property
    def failed(self) -> bool:
        """Whether there is a violation."""
        return bool(self.violations)

    @property
    def steps_per_second(self) -> float:
        """How fast the run was."""
        return self.steps / self.seconds if self.seconds else 0.0

    def line(self) -> str:
        """Return the run in one line."""
        faults = sum(self.faults.values())
        verdict = str(self.violations[0]).splitlines()[0] if self.violations else "ok"
        return (
            f"seed {self.options.seed:>6}  {self.steps:>7} steps  {faults:>3} faults  "
            f"{self.publications:>4} published  {self.deliveries:>5} delivered  {verdict}"
        )


ObserverFactories: TypeAlias = "Sequence[Callable[[SimulationRun], WorldObserver]]"
"""Factories of the observers of a run."""

DEFAULT_OBSERVERS: Final[ObserverFactories] = (monitor_run,)
"""The observers of a run unless others are given: all invariants. A run without them is faster."""


class SimulationRun:
    """A world with its clients, faults and oracle, for a run or a test that inspects its state."""

    def __init__(
        self,
        options: SimulationOptions,
        machine: str = BROKER,
        *,
        sink: Callable[[str], None] | None = None,
        observers: ObserverFactories = DEFAULT_OBSERVERS,
    ) -> None:
        self.options = options
        self.world = World(options, load_factory(machine), Trace(sink))
        self.oracle = Oracle(self.world)
        self.workload = Workload(self.world, self.oracle)
        self.faults = FaultInjector(self.world, self.workload)
        self.reshaping = Reshaping(self.world, self.oracle, self.faults)
        self.world.observers += [make(self) for make in observers]

    def play(self) -> RunResult:
        """Run both phases."""
        started_at = time.process_time()
        self.start()
        self.world.run_until(self.options.safety_ms * 1_000)
        if not self.world.stopped:
            self._live()
        self.world.finish()
        return self._result(time.process_time() - started_at)

    def start(self) -> None:
        """Start all hosts, clients and faults."""
        world = self.world
        world.note("world", self.options.line())
        random = world.stream("beginning")
        self.faults.start()
        self.reshaping.start()
        for host in world.hosts.values():
            world.after(random.randrange(50_000), partial(world.start, host))
        self.workload.start()

    # --- liveness ----------------------------------------------------------------------------

    def _live(self) -> None:
        """Heal the core; everything required must come, also what is then published once more."""
        self.workload.stop()
        self.reshaping.stop()
        if self.reshaping.is_on and not self._end_operations():
            return
        self.faults.heal()
        deadline = self.world.now + self.options.liveness_ms * 1_000
        if self._settle(deadline):
            self.workload.finals()
            self._settle(deadline + self.options.liveness_ms * 500)
        # anything that comes after all is done is spurious
        self.world.run_until(self.world.now + 2 * SLICE_US)

    def _end_operations(self) -> bool:
        """Run with all hosts and links until every operation on the tree has ended."""
        self.faults.mend()
        deadline = self.world.now + self.options.liveness_ms * 1_000
        while unfinished := self.reshaping.outstanding():
            if self.world.now >= deadline:
                self.world.violate("R-5", "; ".join(unfinished[:5]))
            if self.world.stopped:
                return False
            self.world.run_until(self.world.now + SLICE_US)
        return True

    def _settle(self, deadline: int) -> bool:
        """Run until nothing is outstanding; report a violation at the deadline."""
        while True:
            self.world.run_until(self.world.now + SLICE_US)
            if self.world.stopped:
                return False
            name, unfinished = "stuck", self.unfinished()
            if not unfinished:
                name, unfinished = "I15", self._unconverged()
            if not unfinished:
                return True
            if self.world.now >= deadline:
                shown = "; ".join(unfinished[:5])
                self.world.violate(name, f"{len(unfinished)} are outstanding: {shown}")
                return False

    def _unconverged(self) -> list[str]:
        """Return what the invariants report as outstanding, whether or not a client sees it."""
        return [
            line for observer in self.world.observers for line in observer.outstanding(self.world)
        ]

    def unfinished(self) -> list[str]:
        """Return what is outstanding inside the core."""
        core = self.world.core
        sound: list[PublishedStream] = []
        broken: list[PublishedStream] = []
        corrupt: list[PublishedStream] = []
        for stream in self.oracle.streams.values():
            if stream.guaranteed:
                whole = self.world.hosts[stream.broker] in core and not self.oracle.is_corrupt(
                    stream
                )
                (sound if whole else broken).append(stream)
                if self.world.hosts[stream.broker] in core and not whole:
                    corrupt.append(stream)
        found: list[str] = []
        for publisher in self.workload.publishers:
            if publisher.host in core:
                found += publisher.unfinished()
        for writer in self.workload.staged_writers:
            if writer.host in core:
                found += writer.unfinished()
        if len(core) == len(self.world.hosts):
            # a broker that is lost for ever may be a member
            found += [line for each in self.workload.closers for line in each.unfinished()]
        for reader in self.workload.readers:
            if reader.host in core and reader.stream in sound:
                found += reader.unfinished()
        for subscriber in self.workload.subscribers:
            if subscriber.host in core:
                held = self._held(subscriber, broken)
                found += subscriber.unfinished([] if held else sound)
                found += [] if held else subscriber.unreported_stalls(corrupt)
        return found

    def _held(self, subscriber: SimulatedSubscriber, broken: list[PublishedStream]) -> bool:
        """Return whether a total order may wait for a stream outside the core (R51)."""
        return subscriber.checker.order is Order.TOTAL and bool(broken)

    # --- the result --------------------------------------------------------------------------

    def _result(self, seconds: float) -> RunResult:
        world = self.world
        checkers = [subscriber.checker for subscriber in self.workload.subscribers]
        return RunResult(
            options=self.options,
            steps=world.steps,
            virtual_ms=world.now // 1_000,
            faults=dict(sorted(world.faults.items())),
            publications=self.oracle.publications,
            deliveries=sum(checker.deliveries for checker in checkers),
            gaps=sum(checker.gaps for checker in checkers),
            violations=tuple(world.violations),
            coverage_marks=dict(sorted(world.coverage_marks.items())),
            trace_hash=world.trace.short_digest,
            text_hash=world.trace.text_digest if world.trace.full else "",
            seconds=seconds,
            messages=dict(sorted(world.messages.items())),
        )


def run_options(
    options: SimulationOptions,
    machine: str = BROKER,
    *,
    sink: Callable[[str], None] | None = None,
    observers: ObserverFactories = DEFAULT_OBSERVERS,
) -> RunResult:
    """Run a world with these options."""
    return SimulationRun(options, machine, sink=sink, observers=observers).play()


def run_seed(
    seed: int,
    machine: str = BROKER,
    *,
    sink: Callable[[str], None] | None = None,
    observers: ObserverFactories = DEFAULT_OBSERVERS,
) -> RunResult:
    """Run the world of a seed."""
    return run_options(draw(seed), machine, sink=sink, observers=observers)
