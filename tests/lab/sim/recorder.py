"""A machine that records its events and returns requested effects, and small worlds of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gapless.core.context import StepTime
from gapless.core.effects import Effect
from gapless.core.events import ClientRequest, MachineEvent, Received
from gapless.core.ids import BrokerId, CellId
from gapless.core.message_counts import MessageCount
from gapless.core.parameters import Parameters
from gapless.messages.records import Record
from gapless.overlay.neighbourhood import Neighbourhood
from gapless_lab.sim.connections import SimulatedConnection
from gapless_lab.sim.options import SimulationOptions
from gapless_lab.sim.world import SimulatedHost, World


class Recorder:
    """Records every event with its time; a request is a list of effects, which it returns."""

    def __init__(
        self,
        broker: BrokerId,
        cell: CellId,
        parameters: Parameters,
        neighbourhood: Neighbourhood,
        records: Iterable[Record],
        now: StepTime,
    ) -> None:
        self.who = (broker, cell, parameters, neighbourhood)
        self.records = list(records)
        self.born = now
        self.steps: list[tuple[StepTime, MachineEvent]] = []
        self.due: int | None = None
        self.coverage_marks: dict[str, int] = {"recorded": 1}
        self.message_counts = [MessageCount("out", "Hello", 2)]

    def step_all(self, events: Sequence[MachineEvent], now: StepTime) -> list[Effect]:
        return [effect for event in events for effect in self.step(event, now)]

    def step(self, event: MachineEvent, now: StepTime) -> list[Effect]:
        self.steps.append((now, event))
        if self.due is not None and self.due <= now.now:
            self.due = None
        return list(event.request) if isinstance(event, ClientRequest) else []

    def next_timer(self) -> int | None:
        return self.due

    def packets(self) -> list[Any]:
        return [event.packet for _, event in self.steps if isinstance(event, Received)]

    def events(self, *kinds: type) -> list[MachineEvent]:
        return [event for _, event in self.steps if isinstance(event, kinds)]


class Listener:
    """A client that records its notices."""

    name = "listener"

    def __init__(self) -> None:
        self.notices: list[Any] = []
        self.losses: list[str] = []

    def notified(self, connection: SimulatedConnection, notice: Any) -> None:
        assert connection.open
        self.notices.append(notice)

    def lost(self, connection: SimulatedConnection, reason: str) -> None:
        assert not connection.open
        self.losses.append(reason)


def make_world(**options: Any) -> World:
    """Return a world of recorders that have all started and are connected."""
    world = World(SimulationOptions(**options), Recorder)
    for host in world.hosts.values():
        world.start(host)
    pass_ms(world, 200)
    return world


def pass_ms(world: World, ms: float) -> None:
    world.run_until(world.now + round(ms * 1_000))


def machine(host: SimulatedHost) -> Recorder:
    assert host.process is not None
    assert isinstance(host.process.machine, Recorder)
    return host.process.machine


def do(world: World, host: SimulatedHost, effects: Sequence[Effect]) -> None:
    """Let a recorder return effects."""
    assert host.process is not None
    world.happen(host.process, ClientRequest("test", effects))
