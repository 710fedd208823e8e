"""A machine that writes down what happens to it and does what it is asked to, and small worlds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gapless.core.ids import BrokerId, CellId
from gapless.core.machine import Asked, Effect, Event, Moment, Received
from gapless.core.parameters import Parameters
from gapless.messages.records import Record
from gapless.overlay.neighbourhood import Neighbourhood
from gapless_lab.sim.connections import Connection
from gapless_lab.sim.options import Options
from gapless_lab.sim.world import Host, World


class Recorder:
    """Keeps every event with its moment; a request is a list of effects, which it returns."""

    def __init__(
        self,
        broker: BrokerId,
        cell: CellId,
        parameters: Parameters,
        neighbourhood: Neighbourhood,
        records: Iterable[Record],
        moment: Moment,
    ) -> None:
        self.who = (broker, cell, parameters, neighbourhood)
        self.records = list(records)
        self.born = moment
        self.heard: list[tuple[Moment, Event]] = []
        self.due: int | None = None
        self.marks: dict[str, int] = {"recorded": 1}

    def step_all(self, events: Sequence[Event], moment: Moment) -> list[Effect]:
        return [effect for event in events for effect in self.step(event, moment)]

    def step(self, event: Event, moment: Moment) -> list[Effect]:
        self.heard.append((moment, event))
        if self.due is not None and self.due <= moment.now:
            self.due = None
        return list(event.request) if isinstance(event, Asked) else []

    def next_timer(self) -> int | None:
        return self.due

    def packets(self) -> list[Any]:
        return [event.packet for _, event in self.heard if isinstance(event, Received)]

    def events(self, *kinds: type) -> list[Event]:
        return [event for _, event in self.heard if isinstance(event, kinds)]


class Listener:
    """A client that writes down what it hears."""

    name = "listener"

    def __init__(self) -> None:
        self.notices: list[Any] = []
        self.losses: list[str] = []

    def heard(self, connection: Connection, notice: Any) -> None:
        assert connection.open
        self.notices.append(notice)

    def lost(self, connection: Connection, reason: str) -> None:
        assert not connection.open
        self.losses.append(reason)


def make_world(**options: Any) -> World:
    """Return a world of recorders that have all started and met."""
    world = World(Options(**options), Recorder)
    for host in world.hosts.values():
        world.start(host)
    pass_ms(world, 200)
    return world


def pass_ms(world: World, ms: float) -> None:
    world.run_until(world.now + round(ms * 1_000))


def machine(host: Host) -> Recorder:
    assert host.process is not None
    assert isinstance(host.process.machine, Recorder)
    return host.process.machine


def do(world: World, host: Host, effects: Sequence[Effect]) -> None:
    """Let a recorder have effects."""
    assert host.process is not None
    world.happen(host.process, Asked("test", effects))
