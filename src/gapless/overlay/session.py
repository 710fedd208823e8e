"""One session with a peer, over its link or over relays: fenced by both lives (R1).

A session has two ends, each a (life, number) of its broker. Both send Hello until they have heard
the other's, and a packet names both ends: what does not fit the present session is dropped, so no
message of a dead session or an older life changes anything (I12).

::

    CLOSED --a way is there--> GREETING --the peer has heard us--> OPEN
       ^                          ^                                  |
       |                          +--- dead, a gap, a new Hello -----+
       +------------------ the way is gone --------------------------+

A session is dead when the peer's heartbeat *or its echo of ours* is too old. The echo matters: over
a link cut in one direction heartbeats may arrive for ever while answers do not (A28).

Where links keep the order, every packet has a number and a gap ends the session: nothing is skipped
in the middle. Where they do not (the simulator's datagrams), packets may be lost, repeated and
reordered, and all rules above this one bear that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, Final, Protocol

from gapless.core.ids import BrokerId, CellId
from gapless.core.machine import Context
from gapless.core.parameters import us
from gapless.messages.overlay import Heartbeat, Hello, Packet, SessionId, TableState

__all__ = ["PROTOCOL", "Owner", "Session", "State"]

PROTOCOL: Final = 1
"""The version of the messages between brokers; both ends of a session must have the same."""


class State(Enum):
    """Where a session stands."""

    CLOSED = "closed"
    GREETING = "greeting"
    OPEN = "open"


class Owner(Protocol):
    """Who hears of a session and of what it brings."""

    topology_version: int
    """Of the neighbourhood, for the peer to see."""

    def opened(self, session: Session) -> None:
        """A session has begun."""

    def closed(self, session: Session) -> None:
        """A session is over."""

    def heard(self, session: Session, heartbeat: Heartbeat) -> None:
        """A heartbeat came over an open session."""

    def brought(self, session: Session, message: Any) -> None:
        """Another message came over an open session."""


class Session:
    """One session, seen from this end."""

    __slots__ = (
        "_beat",
        "_beat_times",
        "_context",
        "_dead_us",
        "_echo_time",
        "_expected",
        "_heard_beat",
        "_heard_time",
        "_numbers",
        "_owner",
        "_send",
        "_sent",
        "begun_at",
        "cell",
        "clock_offset",
        "full_until",
        "mine",
        "opened_at",
        "peer",
        "route",
        "state",
        "theirs",
    )

    def __init__(
        self,
        context: Context,
        owner: Owner,
        peer: BrokerId,
        cell: CellId,
        numbers: Iterator[int],
        send: Callable[[Session, Any], None],
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
        self.state = State.CLOSED
        self.mine = SessionId(0, 0)
        self.theirs: SessionId | None = None
        self.begun_at = 0
        self.opened_at = 0
        self.clock_offset: int | None = None
        """The peer's wall clock less our clock that never goes back, once it was heard."""
        self.full_until = 0
        """A relay on the way is full, as far as is known; until then that is believed."""
        self._dead_us = us(ms=context.parameters.session_dead_ms)
        self._sent = 0
        self._expected = 1
        self._beat = 0
        self._beat_times: dict[int, int] = {}
        """When heartbeats were sent whose echo has not come yet."""
        self._heard_beat = 0
        self._heard_time = 0
        self._echo_time = 0

    @property
    def first_hop(self) -> BrokerId:
        """Over the link to whom packets go."""
        return self.route[1] if self.route else self.peer

    @property
    def is_open(self) -> bool:
        """Whether messages to the peer go out now."""
        return self.state is State.OPEN

    # --- opening and closing -----------------------------------------------------------------

    def begin(self) -> None:
        """Begin anew, with a new number, and say so."""
        self._close()
        self.state = State.GREETING
        self.begun_at = self._context.now
        self.mine = SessionId(self._context.identity.life, next(self._numbers))
        self._sent, self._expected = 0, 1
        self._beat, self._heard_beat = 0, 0
        self._beat_times.clear()
        self.clock_offset = None
        self._say_hello()

    def end(self) -> None:
        """Be over until there is a way to the peer again."""
        self._close()
        self.state = State.CLOSED

    def _say_hello(self) -> None:
        identity = self._context.identity
        ends = (self.mine, self.theirs)
        version = self._owner.topology_version
        self._send(self, Hello(identity.broker, identity.cell, *ends, PROTOCOL, version))

    def _open(self) -> None:
        self.state = State.OPEN
        self._heard_time = self._echo_time = self.opened_at = self._context.now
        self._owner.opened(self)

    def _close(self) -> None:
        if self.state is State.OPEN:
            self.state = State.GREETING
            self._owner.closed(self)

    def _restart(self, why: str) -> None:
        self._context.mark(why)
        if self.route:
            self.end()  # there may be a better way now; who began it looks for one
        else:
            self.begin()

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
        if self.state is State.CLOSED:
            self.theirs = hello.own
            self.begin()
        elif hello.own != self.theirs:
            begins_anew = self.state is State.OPEN
            self.theirs = hello.own
            if begins_anew:  # so our end must too: the peer forgot what we told it
                self.begin()
            else:
                self._say_hello()
        elif hello.heard != self.mine:
            self._say_hello()
        if hello.heard == self.mine and self.state is State.GREETING:
            self._open()
            self._say_hello()

    def _packet(self, packet: Packet) -> None:
        fits = packet.sender == self.theirs and packet.receiver == self.mine
        if self.state is State.CLOSED or not fits:
            self._context.mark("packet of another session")
            return
        if self.state is State.GREETING:
            self._open()  # it names our end, so the peer has heard us
        if self._context.parameters.ordered_sessions:
            if packet.sequence != self._expected:
                self._restart("gap in a session")
                return
            self._expected += 1
        session = self.mine
        for message in packet.messages:
            if isinstance(message, Heartbeat):
                self._heard(message)
                self._owner.heard(self, message)
            else:
                self._owner.brought(self, message)
            if self.mine != session or self.state is not State.OPEN:
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
        if self.state is State.GREETING:
            self._say_hello()
        elif self.state is State.OPEN:
            last = min(self._heard_time, self._echo_time)
            if self._context.now - last > self._dead_us:
                self._restart("session died")
        return self.state is State.OPEN

    def heartbeat(self, tables: tuple[TableState, ...]) -> Heartbeat:
        """Return the next sign of life."""
        self._beat += 1
        self._beat_times[self._beat] = self._context.now
        return Heartbeat(self._beat, self._heard_beat, self._context.clock, tables)

    def _heard(self, heartbeat: Heartbeat) -> None:
        if heartbeat.sequence > self._heard_beat:
            self._heard_beat = heartbeat.sequence
            self._heard_time = self._context.now
            self.clock_offset = heartbeat.clock - self._context.now
        sent = self._beat_times.get(heartbeat.echo)
        if sent is not None:
            # as old as the heartbeat it answers: a late echo is no sign of life now
            self._echo_time = max(self._echo_time, sent)
            for beat in [beat for beat in self._beat_times if beat <= heartbeat.echo]:
                del self._beat_times[beat]
