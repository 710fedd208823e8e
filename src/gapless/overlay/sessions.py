"""Sessions: who can be talked to, fenced by both lives (R1, R2).

Theory of operation
-------------------
A session has two ends, each a (life, number) of its broker. Both send Hello until they have heard
the other's, and a packet names both ends: what does not fit the present session is dropped, so no
message of a dead session or an older life changes anything (I12).

::

    CLOSED --link up--> GREETING --the peer has heard us--> OPEN
       ^                    ^                                 |
       |                    +-- dead, a gap, a new Hello -----+
       +------------------ link down -------------------------+

A session is dead when the peer's heartbeat *or its echo of ours* is too old. The echo matters: over
a link cut in one direction heartbeats may arrive for ever while answers do not (A28).

Where links keep the order, every packet has a number and a gap ends the session: nothing is skipped
in the middle. Where they do not (the simulator's datagrams), packets may be lost, repeated and
reordered, and all rules above this one bear that.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final, Protocol

from gapless.core.ids import BrokerId, CellId
from gapless.core.machine import Context, Send
from gapless.core.parameters import us
from gapless.messages.overlay import Heartbeat, Hello, Packet, SessionId, TableState
from gapless.overlay.neighbourhood import Neighbourhood

__all__ = ["PROTOCOL", "Listener", "Sessions", "State"]

PROTOCOL: Final = 1
"""The version of the messages between brokers; both ends of a session must have the same."""


class State(Enum):
    """Where a session stands."""

    CLOSED = "closed"
    GREETING = "greeting"
    OPEN = "open"


class Listener(Protocol):
    """Who hears of sessions and of what they bring."""

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        """A session has begun."""

    def session_closed(self, peer: BrokerId) -> None:
        """A session is over."""

    def received(self, peer: BrokerId, message: Any) -> None:
        """A message came over an open session."""

    def table_states(self, peer: BrokerId) -> tuple[TableState, ...]:
        """Return which tables this broker sends to the peer, for the heartbeat (R19)."""

    def tables_heard(self, peer: BrokerId, states: tuple[TableState, ...]) -> None:
        """The peer says which tables it sends here, so that lost changes are noticed (R19)."""


class _Peer:
    """One session, seen from this end."""

    __slots__ = (
        "beat",
        "beat_times",
        "cell",
        "clock_offset",
        "echo_time",
        "expected",
        "heard_beat",
        "heard_time",
        "mine",
        "sent",
        "state",
        "theirs",
    )

    def __init__(self, cell: CellId) -> None:
        self.cell = cell
        self.state = State.CLOSED
        self.mine = SessionId(0, 0)
        self.theirs: SessionId | None = None
        self.sent = 0
        self.expected = 1
        self.beat = 0
        self.beat_times: dict[int, int] = {}
        """When heartbeats were sent whose echo has not come yet."""
        self.heard_beat = 0
        self.heard_time = 0
        self.echo_time = 0
        self.clock_offset = 0
        """The peer's wall clock less our clock that never goes back."""


class Sessions:
    """All sessions of a broker with its neighbourhood."""

    def __init__(self, context: Context, neighbourhood: Neighbourhood, listener: Listener) -> None:
        self._context = context
        self._listener = listener
        self._peers: dict[BrokerId, _Peer] = {}
        self._former: dict[BrokerId, SessionId] = {}
        """The last session with brokers that are no longer around: if one returns, numbers grow on."""
        self._version = 0
        self._admit(neighbourhood)
        self._beat_us = us(ms=context.parameters.heartbeat_ms)
        self._dead_us = us(ms=context.parameters.session_dead_ms)
        context.after(self._beat_us, self._tick)

    def _admit(self, neighbourhood: Neighbourhood) -> None:
        """Have a place for every broker of the neighbourhood, nearest cells first."""
        self._version = neighbourhood.version
        self._peers = {
            broker: self._peers.get(broker) or self._newcomer(broker, neighbourhood)
            for broker in neighbourhood.all_brokers()
            if broker != self._context.identity.broker
        }

    def _newcomer(self, broker: BrokerId, neighbourhood: Neighbourhood) -> _Peer:
        made = _Peer(neighbourhood.cell_of(broker) or "")
        made.mine = self._former.pop(broker, made.mine)
        return made

    def reshape(self, neighbourhood: Neighbourhood) -> None:
        """End the sessions with brokers that are no longer around; others go on (R13).

        Who is new is greeted when its link is up; until then its greetings are a stranger's.
        """
        around = set(neighbourhood.all_brokers())
        for peer, held in self._peers.items():
            if peer not in around:
                self._close(peer, held)
                self._former[peer] = held.mine
        self._admit(neighbourhood)

    # --- what others ask ---------------------------------------------------------------------

    def is_open(self, peer: BrokerId) -> bool:
        """Say whether messages to the peer go out now."""
        held = self._peers.get(peer)
        return held is not None and held.state is State.OPEN

    def life_of(self, peer: BrokerId) -> int:
        """Return the life of the peer of an open session."""
        theirs = self._peers[peer].theirs
        assert theirs is not None, f"there is no session with {peer}"
        return theirs.life

    def open_peers(self) -> list[BrokerId]:
        """Return the peers with an open session, nearest cells first."""
        return [peer for peer, held in self._peers.items() if held.state is State.OPEN]

    def open_in(self, brokers: Iterable[BrokerId]) -> list[BrokerId]:
        """Return those of the brokers with an open session."""
        return [broker for broker in brokers if self.is_open(broker)]

    def clock_view(self) -> int:
        """Return the median of this broker's clock and those of its peers (R27)."""
        now = self._context.now
        clocks = [
            now + held.clock_offset
            for held in self._peers.values()
            if held.state is State.OPEN and held.heard_beat
        ]
        clocks = sorted([*clocks, self._context.clock])
        return clocks[(len(clocks) - 1) // 2]

    # --- what happens ------------------------------------------------------------------------

    def link_up(self, peer: BrokerId) -> None:
        """Greet a peer that can be reached now."""
        held = self._peers.get(peer)
        if held is not None:
            self._close(peer, held)
            self._greet(peer, held)

    def link_down(self, peer: BrokerId) -> None:
        """End the session with a peer that cannot be reached any more."""
        held = self._peers.get(peer)
        if held is not None:
            self._close(peer, held)
            held.state = State.CLOSED

    def received(self, peer: BrokerId, packet: Any) -> None:
        """Take a packet, or a Hello outside of any session."""
        held = self._peers.get(peer)
        if held is None:
            self._context.mark("packet from a stranger")
        elif isinstance(packet, Hello):
            self._hello(peer, held, packet)
        elif isinstance(packet, Packet):
            self._packet(peer, held, packet)

    def flush(self) -> None:
        """Send what the rooms posted in this step, one packet a peer; without session it is lost."""
        for peer, messages in self._context.take_posted():
            held = self._peers.get(peer)
            if held is None or held.state is not State.OPEN:
                self._context.mark("posted without a session")
                continue
            assert held.theirs is not None
            held.sent += 1
            packet = Packet(held.mine, held.theirs, held.sent, tuple(messages))
            self._context.effects.append(Send(peer, packet))

    # --- opening and closing -----------------------------------------------------------------

    def _greet(self, peer: BrokerId, held: _Peer) -> None:
        """Begin a session of our own with a new number, and say so."""
        held.state = State.GREETING
        held.mine = SessionId(self._context.identity.life, held.mine.number + 1)
        held.sent, held.expected = 0, 1
        held.beat, held.heard_beat = 0, 0
        held.beat_times.clear()
        self._say_hello(peer, held)

    def _say_hello(self, peer: BrokerId, held: _Peer) -> None:
        identity = self._context.identity
        ends = (held.mine, held.theirs)
        hello = Hello(identity.broker, identity.cell, *ends, PROTOCOL, self._version)
        self._context.effects.append(Send(peer, hello))

    def _hello(self, peer: BrokerId, held: _Peer, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            self._context.mark("another protocol")
            return
        if held.theirs is not None and hello.own < held.theirs:
            return  # of an older session or life
        if held.state is State.CLOSED:
            held.theirs = hello.own
            self._greet(peer, held)
        elif hello.own != held.theirs:
            if held.state is State.OPEN:
                # the peer began anew, so our end must too: it forgot what we told it
                self._close(peer, held)
                held.theirs = hello.own
                self._greet(peer, held)
            else:
                held.theirs = hello.own
                self._say_hello(peer, held)
        elif hello.heard != held.mine:
            self._say_hello(peer, held)
        if hello.heard == held.mine and held.state is State.GREETING:
            self._open(peer, held)
            self._say_hello(peer, held)

    def _open(self, peer: BrokerId, held: _Peer) -> None:
        held.state = State.OPEN
        held.heard_time = held.echo_time = self._context.now
        self._beat(peer, held)
        self._listener.session_opened(peer, held.cell)

    def _close(self, peer: BrokerId, held: _Peer) -> None:
        if held.state is State.OPEN:
            held.state = State.GREETING
            self._listener.session_closed(peer)

    def _restart(self, peer: BrokerId, held: _Peer, why: str) -> None:
        self._context.mark(why)
        self._close(peer, held)
        self._greet(peer, held)

    # --- packets -----------------------------------------------------------------------------

    def _packet(self, peer: BrokerId, held: _Peer, packet: Packet) -> None:
        if packet.sender != held.theirs or packet.receiver != held.mine:
            self._context.mark("packet of another session")
            return
        if held.state is State.GREETING:
            self._open(peer, held)  # it names our end, so the peer has heard us
        if self._context.parameters.ordered_sessions:
            if packet.sequence != held.expected:
                self._restart(peer, held, "gap in a session")
                return
            held.expected += 1
        session = held.mine
        for message in packet.messages:
            if isinstance(message, Heartbeat):
                self._heard(held, message)
                self._listener.tables_heard(peer, message.tables)
            else:
                self._listener.received(peer, message)
            if held.mine != session or held.state is not State.OPEN:
                return  # a message ended the session; the rest belongs to the dead one

    # --- signs of life -----------------------------------------------------------------------

    def _tick(self) -> None:
        self._context.after(self._beat_us, self._tick)
        now = self._context.now
        for peer, held in self._peers.items():
            if held.state is State.GREETING:
                self._say_hello(peer, held)
            elif held.state is State.OPEN:
                if now - min(held.heard_time, held.echo_time) > self._dead_us:
                    self._restart(peer, held, "session died")
                else:
                    self._beat(peer, held)

    def _beat(self, peer: BrokerId, held: _Peer) -> None:
        held.beat += 1
        held.beat_times[held.beat] = self._context.now
        tables = self._listener.table_states(peer)
        heartbeat = Heartbeat(held.beat, held.heard_beat, self._context.clock, tables=tables)
        self._context.post(peer, heartbeat)

    def _heard(self, held: _Peer, heartbeat: Heartbeat) -> None:
        if heartbeat.sequence > held.heard_beat:
            held.heard_beat = heartbeat.sequence
            held.heard_time = self._context.now
            held.clock_offset = heartbeat.clock - self._context.now
        sent = held.beat_times.get(heartbeat.echo)
        if sent is not None:
            # as old as the heartbeat it answers: a late echo is no sign of life now
            held.echo_time = max(held.echo_time, sent)
            for beat in [beat for beat in held.beat_times if beat <= heartbeat.echo]:
                del held.beat_times[beat]
