"""The papers' testbeds, simulated: real broker machines, clients, and failures at chosen times.

Unlike in a seed of the simulator only delays are random here: an experiment chooses the failures
and their times. The rest is the simulator's: hosts, disks, links, clients that reconnect, and the
checkers. Every delivery is compared with what was published, so a run that violates a guarantee
ends with an error and never becomes a number.

An option decides how a failure is detected. ``unseen`` means that neither end is notified when a
connection fails: the connection accepts data and delivers none, until the failure detector
(``session_timeout_ms``) detects it. Else the ends are notified at once, as by a closed socket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gapless.content.values import Value
from gapless.core.errors import GaplessError
from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.parameters import Parameters
from gapless.messages.clients import Delivery
from gapless.messages.overlay import Quality
from gapless.messages.reshape import OperationId, OperationKind, OperationStatus
from gapless.overlay.neighbourhood import Topology
from gapless_lab.lab.crowd import SubscribingCrowd
from gapless_lab.sim.machine import load_factory
from gapless_lab.sim.network import HostPair
from gapless_lab.sim.operators import SimulatedOperator
from gapless_lab.sim.options import SimulationOptions
from gapless_lab.sim.oracle import Oracle, PublishedStream
from gapless_lab.sim.publishers import PubendPlan, SimulatedPublisher
from gapless_lab.sim.subscribers import SimulatedSubscriber
from gapless_lab.sim.world import SimulatedHost, World, WorldObserver

__all__ = [
    "Arrival",
    "GuaranteeViolationError",
    "MeasuringSubscriber",
    "SteadyPublisher",
    "Testbed",
    "TestbedOptions",
]

CREDIT = 1_000_000
"""Events that a subscriber accepts at once: subscribers are never slow here."""

OPERATION_S = 60.0
"""How long an operation on the tree may take."""


class GuaranteeViolationError(GaplessError):
    """A run violated a guarantee or did not finish: it has no numbers."""


class TestbedOptions(SimulationOptions, frozen=True, kw_only=True):
    """A testbed: its tree, and the broker parameters that differ from the defaults."""

    tree: Topology
    pace: float = 1.0
    reconnect_elsewhere: float = 0.0
    forgotten_positions: float = 0.0
    outside: float = 0.0
    stall: float = 0.0
    survive: float = 1.0
    torn: float = 0.0
    sync_us_min: int = 1_000
    sync_us_max: int = 3_000

    def topology(self) -> Topology:
        """Return the tree of cells."""
        return self.tree

    def parameters(self) -> Parameters:
        """Return the parameters of all brokers: the defaults, except for the given ones."""
        return Parameters(**self.limits, delta=self.delta)  # type: ignore[arg-type]


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """An event that a subscriber received."""

    at_us: int
    pubend: PubendId
    sent_us: int

    @property
    def latency_ms(self) -> float:
        """The time from the publish call to the delivery."""
        return (self.at_us - self.sent_us) / 1_000


class MeasuringSubscriber(SimulatedSubscriber):
    """A subscriber that records when each event was sent and received."""

    def __init__(self, bed: Testbed, name: str, host: SimulatedHost, filter_text: str) -> None:
        super().__init__(
            bed.world,
            bed.oracle,
            name,
            host,
            filter_text=filter_text,
            durable=False,
            credit=CREDIT,
        )
        self.arrivals: list[Arrival] = []

    def take(self, notice: Any) -> None:
        """Record a delivery, and handle it as every subscriber does."""
        if isinstance(notice, Delivery):
            now = self.world.now
            self.arrivals += [
                Arrival(now, pubend, int(event.payload[:20])) for pubend, event in notice.events
            ]
        super().take(notice)


class SteadyPublisher(SimulatedPublisher):
    """A publisher at a steady rate, on a pubend of its own."""

    def __init__(
        self, bed: Testbed, name: str, host: SimulatedHost, advertisement: str = "TRUE"
    ) -> None:
        super().__init__(
            bed.world, bed.oracle, name, PubendPlan(name, host, advertisement, Quality.GUARANTEED)
        )
        self.sent: list[int] = []
        """The times of all publish calls."""
        self.stops_with_its_broker = False
        self._over = False
        self._number = 0

    def start(
        self,
        every_us: int,
        *,
        first_us: int = 0,
        attributes: Callable[[int], Mapping[str, Value]] = lambda number: {"n": number},
        payload_bytes: int = 100,
    ) -> None:
        """Publish events at an interval; each payload starts with the time."""

        def again() -> None:
            if self._over:
                return
            if not (self.stops_with_its_broker and self.host.process is None):
                self._number += 1
                self.sent.append(self.world.now)
                payload = f"{self.world.now:020}".encode().ljust(payload_bytes, b".")
                self.publish(((dict(attributes(self._number)), payload),))
            self.world.after(every_us, again)

        self.world.after(first_us, again)

    def stop(self) -> None:
        """Publish nothing more; unacknowledged events are still sent."""
        self._over = True


class Testbed:
    """A simulated overlay with failures that an experiment chooses."""

    def __init__(
        self,
        tree: Topology,
        *,
        seed: int = 0,
        delta: int = 1,
        unseen: bool = False,
        parameters: Mapping[str, int] | None = None,
    ) -> None:
        setting = TestbedOptions(
            seed=seed,
            tree=tree,
            delta=delta,
            limits=dict(parameters or {}),
            half_open=1.0 if unseen else 0.0,
        )
        self.world = World(setting, load_factory())
        self.oracle = Oracle(self.world)
        self.sources: list[SteadyPublisher] = []
        self.listeners: list[MeasuringSubscriber] = []
        self._operations = 0

    # --- building ----------------------------------------------------------------------------

    def start(self) -> None:
        """Start all brokers, at short random intervals."""
        random = self.world.stream("beginning")
        for host in self.world.hosts.values():
            self.world.push(random.randrange(50_000), _start, self.world, host)

    def source(self, name: str, broker: BrokerId, advertisement: str = "TRUE") -> SteadyPublisher:
        """Connect a publisher; its pubend has its name."""
        made = SteadyPublisher(self, name, self.world.hosts[broker], advertisement)
        self.sources.append(made)
        made.connect()
        return made

    def listener(
        self, name: str, broker: BrokerId, filter_text: str = "TRUE"
    ) -> MeasuringSubscriber:
        """Connect a subscriber."""
        made = MeasuringSubscriber(self, name, self.world.hosts[broker], filter_text)
        self.listeners.append(made)
        made.connect()
        return made

    def crowd(self, name: str, broker: BrokerId, filters: Sequence[str]) -> SubscribingCrowd:
        """Connect a client that subscribes with all of these filters and counts no events."""
        made = SubscribingCrowd(self.world, self.oracle, name, self.world.hosts[broker], filters)
        made.connect()
        return made

    def operate(self, kind: OperationKind, *cells: CellId) -> OperationId:
        """Let an operator request an operation of its coordinator; wait until it is done."""
        leader = self.world.tree.records[cells[1]].leader
        self._operations += 1
        name, host = f"operator {self._operations}", self.world.hosts[leader]
        operator = SimulatedOperator(self.world, self.oracle, name, host, kind, cells)
        operator.connect()
        self.wait(
            lambda: operator.outcome is not None,
            f"{operator.what} has ended",
            seconds=OPERATION_S,
            step=0.01,
        )
        reply = operator.outcome
        assert reply is not None
        if reply.status is not OperationStatus.DONE:
            raise GuaranteeViolationError(f"{operator.what}: {reply.text}")
        return reply.op

    def observe(self, observer: WorldObserver) -> None:
        """Let an observer see every step from now on."""
        self.world.observers.append(observer)

    # --- time --------------------------------------------------------------------------------

    @property
    def now_ms(self) -> float:
        """Virtual time since the start."""
        return self.world.now / 1_000

    def run(self, seconds: float) -> None:
        """Advance the time; raise an error if a guarantee is violated."""
        self.world.run_until(self.world.now + round(seconds * 1_000_000))
        if self.world.violations:
            raise GuaranteeViolationError(str(self.world.violations[0]))

    def wait(
        self, done: Callable[[], bool], what: str, *, seconds: float, step: float = 0.5
    ) -> float:
        """Advance the time until a condition holds; return how many seconds it took."""
        started_at = self.world.now
        while not done():
            if self.world.now - started_at > seconds * 1_000_000:
                raise GuaranteeViolationError(f"after {seconds:g} s of virtual time: not {what}")
            self.run(step)
        return (self.world.now - started_at) / 1_000_000

    def settle(self, seconds: float = 300.0) -> None:
        """Wait until every subscriber has started on every pubend."""
        streams = self.oracle.streams
        self.wait(
            lambda: (
                len(streams) == len({source.plan.name for source in self.sources})
                and all(listener.steady for listener in self.listeners)
                and not self.unfinished()
            ),
            "all subscriptions have started",
            seconds=seconds,
        )

    def unfinished(self) -> list[str]:
        """Return what subscribers must still receive."""
        streams: list[PublishedStream] = list(self.oracle.streams.values())
        return [line for each in self.listeners for line in each.unfinished(streams)]

    def drain(self, seconds: float = 600.0) -> float:
        """Stop publishing and wait until all subscribers have everything; return how long that
        took.
        """
        for source in self.sources:
            source.stop()
        return self.wait(
            lambda: not any(source.pending for source in self.sources) and not self.unfinished(),
            "all expected events have come",
            seconds=seconds,
        )

    # --- failures ----------------------------------------------------------------------------

    def host(self, broker: BrokerId) -> SimulatedHost:
        """Return the simulated host of a broker."""
        return self.world.hosts[broker]

    def crash(self, *brokers: BrokerId) -> None:
        """Crash brokers."""
        for broker in brokers:
            self.world.crash(self.host(broker))

    def restart(self, *brokers: BrokerId) -> None:
        """Start brokers again, from their disks."""
        for broker in brokers:
            self.world.start(self.host(broker))

    def cut(self, one: BrokerId, other: BrokerId) -> None:
        """Cut a link in both directions."""
        for link in self._pair(one, other).links:
            self.world.network.cut(link)

    def heal(self, one: BrokerId, other: BrokerId) -> None:
        """Heal a link."""
        for link in self._pair(one, other).links:
            self.world.network.heal(link)

    def _pair(self, one: BrokerId, other: BrokerId) -> HostPair:
        return self.world.network.links[one][other].pair


def _start(world: World, host: SimulatedHost) -> None:
    world.start(host)
