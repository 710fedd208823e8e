"""One peer session, direct or relayed: fenced by both incarnations (R1).

A session has two ends, each an (incarnation, number) of its broker. A packet contains both ends. A
packet of another session is dropped, so no message of a dead session or of an older incarnation
changes state (I12). The states are in :mod:`.session_state`.

A session is dead when the peer's heartbeat *or its echo of ours* is too old. The echo is needed
because over a link that is cut in one direction heartbeats may arrive for ever while answers do not
(A28).

If links keep the order, packets are numbered and a gap ends the session. If they do not (the
simulator's datagrams), packets may be lost, repeated and reordered, and all components tolerate it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from gapless.core.context import Context
from gapless.core.ids import BrokerId, CellId
from gapless.core.parameters import microseconds
from gapless.messages.overlay import Heartbeat, Hello, Packet, PeerSessionId, TableState
from gapless.overlay.session_state import NEXT_SESSION_STATES, PeerSessionInput, PeerSessionState

__all__ = ["PROTOCOL", "PeerSession", "PeerSessionOwner", "PeerSessionState"]

PROTOCOL: Final = 2
"""The version of the messages between brokers; both ends of a session must have the same."""


class PeerSessionOwner(Protocol):
    """Is called with the events and messages of a session."""

    def digest(self, peer: BrokerId) -> int:
        """Return the digest of records, which Hello contains."""

    def opened(self, session: PeerSession) -> None:
        """A session has opened."""

    def closed(self, session: PeerSession) -> None:
        """A session has closed."""

    def heartbeat_received(self, session: PeerSession, heartbeat: Heartbeat) -> None:
        """A heartbeat was received over an open session."""

    def message_received(self, session: PeerSession, message: Any) -> None:
        """Another message was received over an open session."""


class PeerSession:
    """One session, seen from this end."""

    __slots__ = (
        "_context",
        "_dead_us",
        "_echo_time",
        "_expected",
        "_heartbeat_times",
        "_heartbeats_sent",
        "_last_heartbeat",
        "_last_heartbeat_at",
        "_numbers",
        "_owner",
        "_send",
        "_sent",
        "cell",
        "clock_offset",
        "full_until",
        "mine",
        "opened_at",
        "peer",
        "peer_digest",
        "route",
        "started_at",
        "state",
        "theirs",
    )

    def __init__(
        self,
        context: Context,
        owner: PeerSessionOwner,
        peer: BrokerId,
        cell: CellId,
        numbers: Iterator[int],
        send: Callable[[PeerSession, Any], None],
        route: tuple[BrokerId, ...] = (),
    ) -> None:
        self._context = context
        self._owner = owner
        self._numbers = numbers
        self._send = send
        self.peer = peer
        self.cell = cell
        self.route = route
        """All brokers of the route, both ends included; empty for a direct session."""
        self.state = PeerSessionState.CLOSED
        self.mine = PeerSessionId(0, 0)
        self.theirs: PeerSessionId | None = None
        self.started_at = 0
        self.opened_at = 0
        self.peer_digest = 0
        """The digest of records in the peer's last Hello."""
        self.clock_offset: int | None = None
        """The peer's wall clock minus our monotonic clock; None before the first heartbeat."""
        self.full_until = 0
        """The time until which a relay on the route is assumed to be full."""
        self._dead_us = microseconds(ms=context.parameters.session_timeout_ms)
        self._sent = 0
        self._expected = 1
        self._heartbeats_sent = 0
        self._heartbeat_times: dict[int, int] = {}
        """The send times of heartbeats whose echo has not arrived."""
        self._last_heartbeat = 0
        self._last_heartbeat_at = 0
        self._echo_time = 0

    @property
    def first_hop(self) -> BrokerId:
        """The broker to whose link packets are sent."""
        return self.route[1] if self.route else self.peer

    @property
    def is_open(self) -> bool:
        """Whether messages to the peer are sent now."""
        return self.state is PeerSessionState.OPEN

    # --- opening and closing -----------------------------------------------------------------

    def start(self) -> None:
        """Start with a new number and send Hello."""
        self._close()
        self._enter(PeerSessionInput.START)
        self.started_at = self._context.now
        self.mine = PeerSessionId(self._context.identity.incarnation, next(self._numbers))
        self._sent, self._expected = 0, 1
        self._heartbeats_sent, self._last_heartbeat = 0, 0
        self._heartbeat_times.clear()
        self.clock_offset = None
        self._send_hello()

    def end(self) -> None:
        """Close the session until there is a route to the peer again."""
        self._close()
        self._enter(PeerSessionInput.END)

    def _enter(self, cause: PeerSessionInput) -> None:
        """Change the state by the transition table."""
        assert (self.state, cause) in NEXT_SESSION_STATES, f"{cause} in {self.state}"
        self.state = NEXT_SESSION_STATES[self.state, cause]

    def set_relay_full(self, until: int) -> None:
        """Assume until a time that a relay on the route is full."""
        self.full_until = until

    def _send_hello(self) -> None:
        identity = self._context.identity
        ends = (self.mine, self.theirs)
        digest = self._owner.digest(self.peer)
        self._send(self, Hello(identity.broker, identity.cell, *ends, PROTOCOL, digest))

    def _open(self) -> None:
        self._enter(PeerSessionInput.CONFIRMED)
        self._last_heartbeat_at = self._echo_time = self.opened_at = self._context.now
        self._owner.opened(self)

    def _close(self) -> None:
        if self.state is PeerSessionState.OPEN:
            self._enter(PeerSessionInput.LOST)
            self._owner.closed(self)

    def _restart(self, why: str) -> None:
        self._context.mark(why)
        if self.route:
            self.end()  # the end that started it looks for a better route
        else:
            self.start()

    # --- receiving ---------------------------------------------------------------------------

    def received(self, packet: Any) -> None:
        """Process a packet, or a Hello outside of any session."""
        if isinstance(packet, Hello):
            self._hello(packet)
        elif isinstance(packet, Packet):
            self._packet(packet)

    def _hello(self, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            self._context.mark("other protocol version")
            return
        if self.theirs is not None and hello.own < self.theirs:
            return  # of an older session or incarnation
        self.peer_digest = hello.digest
        if self.state is PeerSessionState.CLOSED:
            self.theirs = hello.own
            self.start()
        elif hello.own != self.theirs:
            peer_restarted = self.state is PeerSessionState.OPEN
            self.theirs = hello.own
            if peer_restarted:  # restart our end too: the peer has lost its session state
                self.start()
            else:
                self._send_hello()
        elif hello.received != self.mine:
            self._send_hello()
        if hello.received == self.mine and self.state is PeerSessionState.OPENING:
            self._open()
            self._send_hello()

    def _packet(self, packet: Packet) -> None:
        fits = packet.sender == self.theirs and packet.receiver == self.mine
        if self.state is PeerSessionState.CLOSED or not fits:
            self._context.mark("packet of another session")
            return
        if self.state is PeerSessionState.OPENING:
            self._open()  # the packet contains our end, so the peer has received our Hello
        if self._context.parameters.ordered_sessions:
            if packet.sequence != self._expected:
                self._restart("gap in a session")
                return
            self._expected += 1
        self._context.message_counts.received(packet.messages)
        session = self.mine
        for message in packet.messages:
            if isinstance(message, Heartbeat):
                self._heartbeat_received(message)
                self._owner.heartbeat_received(self, message)
            else:
                self._owner.message_received(self, message)
            if self.mine != session or self.state is not PeerSessionState.OPEN:
                return  # a message ended the session; the rest belongs to the ended one

    # --- sending -----------------------------------------------------------------------------

    def send(self, messages: Iterable[Any]) -> None:
        """Send messages in one packet."""
        assert self.theirs is not None, f"the session with {self.peer} is not open"
        self._sent += 1
        packet = Packet(self.mine, self.theirs, self._sent, tuple(messages))
        self._context.message_counts.sent(packet.messages)
        self._send(self, packet)

    # --- heartbeats --------------------------------------------------------------------------

    def is_alive(self) -> bool:
        """Send Hello again, or restart a dead session; return whether the session is open now."""
        if self.state is PeerSessionState.OPENING:
            self._send_hello()
        elif self.state is PeerSessionState.OPEN:
            last = min(self._last_heartbeat_at, self._echo_time)
            if self._context.now - last > self._dead_us:
                self._restart("session died")
        return self.state is PeerSessionState.OPEN

    def heartbeat(self, tables: tuple[TableState, ...], digest: int = 0) -> Heartbeat:
        """Return the next heartbeat."""
        self._heartbeats_sent += 1
        self._heartbeat_times[self._heartbeats_sent] = self._context.now
        ends = (self._heartbeats_sent, self._last_heartbeat)
        return Heartbeat(*ends, self._context.clock, tables, digest)

    def _heartbeat_received(self, heartbeat: Heartbeat) -> None:
        if heartbeat.sequence > self._last_heartbeat:
            self._last_heartbeat = heartbeat.sequence
            self._last_heartbeat_at = self._context.now
            self.clock_offset = heartbeat.clock - self._context.now
        sent = self._heartbeat_times.get(heartbeat.echo)
        if sent is not None:
            # an echo is as old as the heartbeat it answers: a late one does not show a live peer
            self._echo_time = max(self._echo_time, sent)
            for sequence in [each for each in self._heartbeat_times if each <= heartbeat.echo]:
                del self._heartbeat_times[sequence]
