"""What all simulated clients do: connect, ask until answered, lose patience, come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.messages.clients import RefusalCause, Refused
from gapless_lab.sim.connections import SimulatedConnection

if TYPE_CHECKING:
    from gapless_lab.sim.oracle import Oracle
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["SimulatedClient"]


class SimulatedClient:
    """A client with one connection at a time. A request is repeated under its number (R28)."""

    def __init__(self, world: World, oracle: Oracle, name: str, host: SimulatedHost) -> None:
        self.world = world
        self.oracle = oracle
        self.name = name
        self.host = host
        self.random = world.stream("client", name)
        self.connection: SimulatedConnection | None = None
        self.active = True
        self.losses = 0
        self._failures = 0
        """How often in a row a connection was lost before anything was heard on it."""
        self._requests = 0
        self._asked: dict[int, int] = {}
        """When each unanswered request was sent on this connection."""
        self._patience_us = int(10_000_000 * world.options.pace) + 1_000_000
        self._check_scheduled = False

    # --- what a kind of client fills in ------------------------------------------------------

    def connected(self) -> None:
        """Begin to talk on a new connection."""
        raise NotImplementedError

    def take(self, notice: Any) -> None:
        """Take a notice of the present connection."""
        raise NotImplementedError

    def choose_host(self) -> None:
        """Decide where to come back."""

    # --- connections -------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect, unless the client is done or connected."""
        if self.active and self.connection is None:
            self.connection = self.world.connections.connect(self, self.host)
            self._asked.clear()
            self.connected()
            self._schedule_check()

    def notified(self, connection: SimulatedConnection, notice: Any) -> None:
        """Take a notice, unless it is of a connection that was given up."""
        if connection is self.connection:
            self._failures = 0
            self._asked.pop(getattr(notice, "request", 0), None)
            self.world.trace.fold(self.world.now, self._requests)
            if self.world.trace.full:
                self.world.trace.say(self.world.now, self.name, "hears", notice)
            self.take(notice)

    def lost(self, connection: SimulatedConnection, reason: str) -> None:
        """Come back after a while."""
        if connection is self.connection:
            self.world.note(self.name, f"loses its connection: {reason}")
            self.connection = None
            self._come_back()

    def drop(self, *, disconnected_us: int = 0, unseen_us: int = 0) -> None:
        """Give the connection up and come back later."""
        if self.connection is not None:
            self.world.note(self.name, "drops its connection")
            self.connection.drop(unseen_us=unseen_us)
            self.connection = None
            self._come_back(disconnected_us)

    def follow(self, refused: Refused) -> None:
        """Come back later; to another broker, if that is said to have what was asked for."""
        if refused.cause is RefusalCause.WRONG_BROKER:
            self.host = self.world.hosts[refused.broker]
        self.drop(disconnected_us=50_000)

    def leave(self) -> None:
        """Give the connection up for good."""
        self.active = False
        if self.connection is not None:
            self.connection.drop()
            self.connection = None

    def _come_back(self, disconnected_us: int = 0) -> None:
        self.losses += 1
        self._failures += 1
        self.choose_host()
        patience = 30_000 * min(self._failures, 10)
        self.world.after(disconnected_us + self.random.randrange(1_000, patience), self.connect)

    # --- requests ----------------------------------------------------------------------------

    def next_request(self) -> int:
        """Return a number that no request of this client had."""
        self._requests += 1
        return self._requests

    def ask(self, request: Any) -> None:
        """Send a request that wants an answer."""
        if self.connection is not None:
            self._asked[request.request] = self.world.now
            self.send(request)

    def send(self, request: Any) -> None:
        """Send something that has no answer."""
        if self.connection is not None:
            if self.world.trace.full:
                self.world.trace.say(self.world.now, self.name, "asks", request)
            self.connection.ask(request)

    def _schedule_check(self) -> None:
        if not self._check_scheduled:
            self._check_scheduled = True
            self.world.after(self._patience_us // 2, self._look)

    def _look(self) -> None:
        """Give a connection up that does not answer; wait longer for the next one."""
        self._check_scheduled = False
        if self.connection is None:
            return
        if self._asked and self.world.now - min(self._asked.values()) > self._patience_us:
            self._patience_us *= 2
            self.drop()
        else:
            self._schedule_check()
