"""One peer session, direct or relayed: fenced by both incarnations (R1).

A session has two ends, each an (incarnation, number) of its broker. A packet names both ends. What does
not fit the present session is dropped, so no message of a dead session or of an older incarnation
changes anything (I12). The states are in :mod:`.session_state`.

A session is dead when the peer's heartbeat *or its echo of ours* is too old. The echo matters: over a
link that is cut in one direction, heartbeats may arrive for ever while answers do not (A28).

If links keep the order, every packet has a number and a gap ends the session: nothing is skipped in the
middle. If they do not (the simulator's datagrams), packets may be lost, repeated and reordered, and all
components above bear that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from gapless.core.ids import BrokerId, CellId
from gapless.core.machine import Context
from gapless.core.parameters import microseconds
from gapless.messages.overlay import Heartbeat, Hello, Packet, PeerSessionId, TableState
from gapless.overlay.session_state import NEXT_SESSION_STATES, PeerSessionInput, PeerSessionState

__all__ = ["PROTOCOL", "PeerSession", "PeerSessionOwner", "PeerSessionState"]

PROTOCOL: Final = 1
"""The version of the messages between brokers; both ends of a session must have the same."""


class PeerSessionOwner(Protocol):
    """Hears of a session and of what it brings."""

    topology_version: int
    """The version of the neighbourhood, for the peer to see."""

    def opened(self, session: PeerSession) -> None:
        """A session has begun."""

    def closed(self, session: PeerSession) -> None:
        """A session is over."""

    def heartbeat_received(self, session: PeerSession, heartbeat: Heartbeat) -> None:
        """A heartbeat came over an open session."""

    def message_received(self, session: PeerSession, message: Any) -> None:
        """Another message came over an open session."""


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
        """All brokers on the way, both ends included; empty over the link between them."""
        self.state = PeerSessionState.CLOSED
        self.mine = PeerSessionId(0, 0)
        self.theirs: PeerSessionId | None = None
        self.started_at = 0
        self.opened_at = 0
        self.clock_offset: int | None = None
        """The peer's wall clock less our clock that never goes back, once it was heard."""
        self.full_until = 0
        """A relay on the way is full, as far as is known; until then that is believed."""
        self._dead_us = microseconds(ms=context.parameters.session_timeout_ms)
        self._sent = 0
        self._expected = 1
        self._heartbeats_sent = 0
        self._heartbeat_times: dict[int, int] = {}
        """When heartbeats were sent whose echo has not come yet."""
        self._last_heartbeat = 0
        self._last_heartbeat_at = 0
        self._echo_time = 0

    @property
    def first_hop(self) -> BrokerId:
        """Over the link to whom packets go."""
        return self.route[1] if self.route else self.peer

    @property
    def is_open(self) -> bool:
        """Whether messages to the peer go out now."""
        return self.state is PeerSessionState.OPEN

    # --- opening and closing -----------------------------------------------------------------

    def start(self) -> None:
        """Begin anew, with a new number, and say Hello."""
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
        """Be closed until there is a route to the peer again."""
        self._close()
        self._enter(PeerSessionInput.END)

    def _enter(self, cause: PeerSessionInput) -> None:
        """Change the state, as the table says for an input."""
        assert (self.state, cause) in NEXT_SESSION_STATES, f"{cause} in {self.state}"
        self.state = NEXT_SESSION_STATES[self.state, cause]

    def set_relay_full(self, until: int) -> None:
        """Believe until a time that a relay on the route is full."""
        self.full_until = until

    def _send_hello(self) -> None:
        identity = self._context.identity
        ends = (self.mine, self.theirs)
        version = self._owner.topology_version
        self._send(self, Hello(identity.broker, identity.cell, *ends, PROTOCOL, version))

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
            self.end()  # there may be a better way now; who began it looks for one
        else:
            self.start()

    # --- what comes --------------------------------------------------------------------------

    def received(self, packet: Any) -> None:
        """Take a packet, or a Hello outside of any session."""
        if isinstance(packet, Hello):
            self._hello(packet)
        elif isinstance(packet, Packet):
            self._packet(packet)

    def _hello(self, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            self._context.mark("another protocol")
            return
        if self.theirs is not None and hello.own < self.theirs:
            return  # of an older session or life
        if self.state is PeerSessionState.CLOSED:
            self.theirs = hello.own
            self.start()
        elif hello.own != self.theirs:
            peer_restarted = self.state is PeerSessionState.OPEN
            self.theirs = hello.own
            if peer_restarted:  # so our end must too: the peer forgot what we told it
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
            self._open()  # it names our end, so the peer has heard us
        if self._context.parameters.ordered_sessions:
            if packet.sequence != self._expected:
                self._restart("gap in a session")
                return
            self._expected += 1
        session = self.mine
        for message in packet.messages:
            if isinstance(message, Heartbeat):
                self._heartbeat_received(message)
                self._owner.heartbeat_received(self, message)
            else:
                self._owner.message_received(self, message)
            if self.mine != session or self.state is not PeerSessionState.OPEN:
                return  # a message ended the session; the rest belongs to the dead one

    # --- what goes ---------------------------------------------------------------------------

    def send(self, messages: Iterable[Any]) -> None:
        """Send messages in one packet."""
        assert self.theirs is not None, f"the session with {self.peer} is not open"
        self._sent += 1
        self._send(self, Packet(self.mine, self.theirs, self._sent, tuple(messages)))

    # --- signs of life -----------------------------------------------------------------------

    def is_alive(self) -> bool:
        """Say hello again, or end a session that is dead; say whether it is open after that."""
        if self.state is PeerSessionState.OPENING:
            self._send_hello()
        elif self.state is PeerSessionState.OPEN:
            last = min(self._last_heartbeat_at, self._echo_time)
            if self._context.now - last > self._dead_us:
                self._restart("session died")
        return self.state is PeerSessionState.OPEN

    def heartbeat(self, tables: tuple[TableState, ...]) -> Heartbeat:
        """Return the next sign of life."""
        self._heartbeats_sent += 1
        self._heartbeat_times[self._heartbeats_sent] = self._context.now
        return Heartbeat(self._heartbeats_sent, self._last_heartbeat, self._context.clock, tables)

    def _heartbeat_received(self, heartbeat: Heartbeat) -> None:
        if heartbeat.sequence > self._last_heartbeat:
            self._last_heartbeat = heartbeat.sequence
            self._last_heartbeat_at = self._context.now
            self.clock_offset = heartbeat.clock - self._context.now
        sent = self._heartbeat_times.get(heartbeat.echo)
        if sent is not None:
            # as old as the heartbeat it answers: a late echo is no sign of life now
            self._echo_time = max(self._echo_time, sent)
            for sequence in [each for each in self._heartbeat_times if each <= heartbeat.echo]:
                del self._heartbeat_times[sequence]
