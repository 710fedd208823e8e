"""Common behaviour of simulated clients: connect, repeat requests until answered, time out,
reconnect.
"""

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
        """The number of consecutive connections that were lost before a notice came on them."""
        self._requests = 0
        self._unanswered: dict[int, int] = {}
        """When each unanswered request was sent on this connection."""
        self._timeout_us = int(10_000_000 * world.options.pace) + 1_000_000
        self._check_scheduled = False

    # --- callbacks of the subclasses ---------------------------------------------------------

    def connected(self) -> None:
        """Send the first requests on a new connection."""
        raise NotImplementedError

    def take(self, notice: Any) -> None:
        """Handle a notice of the present connection."""
        raise NotImplementedError

    def choose_host(self) -> None:
        """Choose the broker to reconnect to."""

    # --- connections -------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect, unless the client has ended or is connected."""
        if self.active and self.connection is None:
            self.connection = self.world.connections.connect(self, self.host)
            self._unanswered.clear()
            self.connected()
            self._schedule_check()

    def notified(self, connection: SimulatedConnection, notice: Any) -> None:
        """Handle a notice, unless it belongs to an abandoned connection."""
        if connection is self.connection:
            self._failures = 0
            self._unanswered.pop(getattr(notice, "request", 0), None)
            self.world.trace.fold(self.world.now, self._requests)
            if self.world.trace.full:
                self.world.trace.message(self.world.now, self.name, "receives", notice)
            self.take(notice)

    def lost(self, connection: SimulatedConnection, reason: str) -> None:
        """Reconnect after a while."""
        if connection is self.connection:
            self.world.note(self.name, f"loses its connection: {reason}")
            self.connection = None
            self._reconnect_later()

    def drop(self, *, disconnected_us: int = 0, unseen_us: int = 0) -> None:
        """Close the connection and reconnect later."""
        if self.connection is not None:
            self.world.note(self.name, "drops its connection")
            self.connection.drop(unseen_us=unseen_us)
            self.connection = None
            self._reconnect_later(disconnected_us)

    def follow(self, refused: Refused) -> None:
        """Reconnect later; to another broker, if the refusal names one."""
        if refused.cause is RefusalCause.WRONG_BROKER:
            self.host = self.world.hosts[refused.broker]
        self.drop(disconnected_us=50_000)

    def leave(self) -> None:
        """Close the connection for good."""
        self.active = False
        if self.connection is not None:
            self.connection.drop()
            self.connection = None

    def _reconnect_later(self, disconnected_us: int = 0) -> None:
        self.losses += 1
        self._failures += 1
        self.choose_host()
        longest_us = 30_000 * min(self._failures, 10)
        self.world.after(disconnected_us + self.random.randrange(1_000, longest_us), self.connect)

    # --- requests ----------------------------------------------------------------------------

    def next_request(self) -> int:
        """Return a new request number."""
        self._requests += 1
        return self._requests

    def send_request(self, request: Any) -> None:
        """Send a request that expects a reply."""
        if self.connection is not None:
            self._unanswered[request.request] = self.world.now
            self.send(request)

    def send(self, request: Any) -> None:
        """Send a request that has no reply."""
        if self.connection is not None:
            if self.world.trace.full:
                self.world.trace.message(self.world.now, self.name, "requests", request)
            self.connection.send_request(request)

    def _schedule_check(self) -> None:
        if not self._check_scheduled:
            self._check_scheduled = True
            self.world.after(self._timeout_us // 2, self._look)

    def _look(self) -> None:
        """Close a connection on which a reply is overdue; wait longer on the next one."""
        self._check_scheduled = False
        if self.connection is None:
            return
        if self._unanswered and self.world.now - min(self._unanswered.values()) > self._timeout_us:
            self._timeout_us *= 2
            self.drop()
        else:
            self._schedule_check()
