"""Connections between clients and hosts: ordered, until one side closes them.

Every connection has its own name for the machine, so a reconnected client is never mistaken for the
connection that it lost. Sometimes only the client knows that a connection broke: the machine sends
notices to it until it gets ClientDown, perhaps long after the client has reconnected.

Fault budget: nothing is skipped or reordered inside a connection; a broken one loses what is in
flight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from gapless.core.events import ClientDown, ClientRequest, ClientUp

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedHost, SimulatedProcess, World

__all__ = ["Actor", "SimulatedConnection", "SimulatedConnections"]


class Actor(Protocol):
    """A client of the simulation."""

    name: str

    def notified(self, connection: SimulatedConnection, notice: Any) -> None:
        """The machine has sent a notice."""

    def lost(self, connection: SimulatedConnection, reason: str) -> None:
        """The connection has ended."""


class SimulatedConnection:
    """One connection of an actor with a process."""

    __slots__ = ("_to_actor", "_to_process", "_world", "actor", "name", "open", "process")

    def __init__(
        self, world: World, actor: Actor, name: str, process: SimulatedProcess | None
    ) -> None:
        self._world = world
        self.actor = actor
        self.name = name
        self.process = process
        self.open = True
        """Whether the actor still uses it."""
        self._to_process = 0
        self._to_actor = 0

    def connect(self) -> None:
        """Reach the process after a while, if it is still running; no request arrives before."""
        self._to_process = self._world.now + self._world.network.delay()
        self._world.push(self._to_process, self._connected, None, None)

    def send_request(self, request: Any) -> None:
        """Send a request to the machine."""
        if self.open:
            self._to_process = max(self._to_process, self._world.now + self._world.network.delay())
            self._world.push(self._to_process, self._request_arrived, request, None)

    def _request_arrived(self, request: Any, _: None) -> None:
        process = self.process
        if process is not None and self.name in process.clients:
            self._world.happen(process, ClientRequest(self.name, request))

    def notify(self, notice: Any) -> None:
        """Carry a notice of the machine to the actor."""
        self._to_actor = max(self._to_actor, self._world.now + self._world.network.delay())
        self._world.push(self._to_actor, self._notified, notice, None)

    def _notified(self, notice: Any, _: None) -> None:
        if self.open:
            self.actor.notified(self, notice)

    def drop(self, *, unseen_us: int = 0) -> None:
        """Close the connection; the machine gets ClientDown after a while."""
        if not self.open:
            return
        self.open = False
        at = max(self._to_process, self._world.now + self._world.network.delay() + unseen_us)
        self._world.push(at, self._disconnected, None, None)

    def _disconnected(self, _first: None, _second: None) -> None:
        process = self.process
        if process is not None and process.clients.pop(self.name, None) is not None:
            self._world.happen(process, ClientDown(self.name))

    def _connected(self, _first: None, _second: None) -> None:
        process = self.process
        if process is None or not process.alive:
            self.fail("no such broker")
        else:
            process.clients[self.name] = self
            self._world.happen(process, ClientUp(self.name))

    def fail(self, reason: str) -> None:
        """Notify the actor that the connection ended, after all notices sent before."""
        self._to_actor = max(self._to_actor, self._world.now + self._world.network.delay())
        self._world.push(self._to_actor, self._failed, reason, None)

    def _failed(self, reason: str, _: None) -> None:
        if self.open:
            self.open = False
            self.actor.lost(self, reason)


class SimulatedConnections:
    """Opens connections, and ends those of processes that die."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._made: dict[str, int] = {}

    def connect(self, actor: Actor, host: SimulatedHost) -> SimulatedConnection:
        """Connect an actor; if no process runs on the host, the connection fails after a while."""
        number = self._made[actor.name] = self._made.get(actor.name, 0) + 1
        connection = SimulatedConnection(self._world, actor, f"{actor.name}.{number}", host.process)
        connection.connect()
        return connection

    def notify(self, process: SimulatedProcess, client: str, notice: Any) -> None:
        """Carry a notice to a client that is still connected."""
        connection = process.clients.get(client)
        if connection is not None:
            connection.notify(notice)

    def disconnect(self, process: SimulatedProcess, client: str, reason: str) -> None:
        """End a connection because the machine demands it."""
        connection = process.clients.pop(client, None)
        if connection is not None:
            connection.fail(f"disconnected: {reason}")

    def stopped(self, process: SimulatedProcess) -> None:
        """End all connections of a dead process."""
        for connection in process.clients.values():
            connection.fail("the broker is gone")
        process.clients.clear()
