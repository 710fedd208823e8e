"""All peer sessions of a broker, and the current route to each peer (R1 to R3).

Theory of operation
-------------------
The components use at most one session with each broker of the neighbourhood, the *active* one
(:mod:`.session_state`). A peer may have two: a direct one over the link to it and, while that link
is down, a relayed one over other brokers (:mod:`.relays`). The components are notified when the
active session opens or closes. They do not depend on its route, but may query it.

The link is the better route. After it is up again, it is used when it has been stable for a while.
Otherwise a link that flaps would end a relayed session that works. One end switches to the link
first. The other end follows with the first message received over it. In the same way, an end that
has not noticed that its link is down follows the other end to the relays. For the components at
both ends the old session closes and a new one opens: the state of a session ends with it (R2).

A message that cannot be delivered is lost with its session, never skipped. If the route to a peer
is congested, on the link to its first hop or at a relay, the components are notified. They pause
the streams to that peer until the route has drained (R40).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from gapless.core.context import Context
from gapless.core.ids import BrokerId, CellId
from gapless.core.parameters import microseconds
from gapless.messages.overlay import (
    ControlFrame,
    Heartbeat,
    Hello,
    RelayBroken,
    Relayed,
    RelayFull,
    RelayProbe,
    TableState,
)
from gapless.overlay.cell_records import RecordDigests
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.overlay.peer import Peer
from gapless.overlay.relays import Relays
from gapless.overlay.session import PROTOCOL, PeerSession
from gapless.overlay.session_state import PeerSessionState
from gapless.overlay.tree import TreeChange

__all__ = ["PROTOCOL", "PeerSessionListener", "PeerSessionState", "PeerSessions"]


class PeerSessionListener(Protocol):
    """Is called with the events and messages of the active sessions."""

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        """A session has opened."""

    def session_closed(self, peer: BrokerId) -> None:
        """A session has closed."""

    def peer_congested(self, peer: BrokerId) -> None:
        """The route of an open session is congested (R40)."""

    def peer_drained(self, peer: BrokerId) -> None:
        """The route to a peer has drained or was replaced, or there is none."""

    def received(self, peer: BrokerId, message: Any) -> None:
        """A message was received over an open session."""

    def records_differ(self, peer: BrokerId, own: int, theirs: int) -> None:
        """The digests of the records near this broker and a peer differ (RS-4)."""

    def packet_received_outside(self, peer: BrokerId, packet: Any) -> None:
        """A packet of no peer session: of a control session, or of a broker that is no neighbour."""

    def unsent(self, peer: BrokerId, messages: list[Any]) -> None:
        """There is no peer session for messages of this step."""

    def table_states(self, peer: BrokerId) -> tuple[TableState, ...]:
        """Return the states of the tables that are sent to the peer, for the heartbeat (R19)."""

    def table_states_received(self, peer: BrokerId, states: tuple[TableState, ...]) -> None:
        """A heartbeat contains the states of the peer's tables, to detect lost changes (R19)."""


class PeerSessions:
    """All sessions of a broker with its neighbourhood."""

    def __init__(
        self, context: Context, neighbourhood: Neighbourhood, listener: PeerSessionListener
    ) -> None:
        self._context = context
        self._listener = listener
        self._me = context.identity.broker
        self._peers: dict[BrokerId, Peer] = {}
        self._numbers: dict[BrokerId, Iterator[int]] = {}
        """The session numbers by broker, also of those that left the neighbourhood."""
        self._leaving: frozenset[BrokerId] = frozenset()
        """During a step: the brokers that left the neighbourhood, to which no session opens."""
        self._relays = Relays(context, self)
        self._admit(neighbourhood)
        self._heartbeat_us = microseconds(ms=context.parameters.heartbeat_ms)
        self._stable_us = microseconds(ms=context.parameters.feed_switch_delay_ms)

    def start(self) -> None:
        """Send heartbeats periodically."""
        self._context.call_later(self._heartbeat_us, self._tick)

    def _admit(self, neighbourhood: Neighbourhood) -> None:
        """Add an entry for every broker of the neighbourhood, nearest cells first."""
        radius = self._context.parameters.neighbourhood_radius
        self._digests = RecordDigests(neighbourhood.cells, radius)
        self._peers = {
            broker: self._peers.get(broker) or self._new_peer(broker, neighbourhood)
            for broker in neighbourhood.all_brokers()
            if broker != self._me
        }

    def _new_peer(self, broker: BrokerId, neighbourhood: Neighbourhood) -> Peer:
        cell = neighbourhood.cell_of(broker) or ""
        return Peer(self._make(broker, cell, ()), self._context.now)

    def _make(self, broker: BrokerId, cell: CellId, route: tuple[BrokerId, ...]) -> PeerSession:
        numbers = self._numbers.setdefault(broker, itertools.count(1))
        send = self._relays.send if route else self._send
        return PeerSession(self._context, self, broker, cell, numbers, send, route)

    def _send(self, session: PeerSession, packet: Any) -> None:
        self._context.send_packet(session.peer, packet)

    def reshape(self, change: TreeChange) -> None:
        """End the sessions with brokers that left the neighbourhood; keep the others (R13).

        A broker that left is sent what this step has for it: the records (RS-4). A new broker is sent
        a Hello when its link is up.
        """
        neighbourhood = change.new
        self._leaving = frozenset(self._peers).difference(neighbourhood.all_brokers())
        for peer, held in self._peers.items():
            if peer in self._leaving:
                last = self._context.take_messages_to(peer)
                if last and held.active is not None:
                    held.active.send(last)
                self.end_relayed(peer)
                held.direct.end()
        self._leaving = frozenset()
        self._review_full()
        self._admit(neighbourhood)

    # --- queries -----------------------------------------------------------------------------

    def is_open(self, peer: BrokerId) -> bool:
        """Return whether messages to the peer are sent now."""
        held = self._peers.get(peer)
        return held is not None and held.active is not None

    def is_direct(self, peer: BrokerId) -> bool:
        """Return whether messages to the peer use the link to it."""
        held = self._peers.get(peer)
        return held is not None and held.is_direct

    def route(self, peer: BrokerId) -> tuple[BrokerId, ...]:
        """Return the relays on the route to a peer, without the two ends."""
        held = self._peers.get(peer)
        return () if held is None or held.active is None else held.active.route[1:-1]

    def incarnation_of(self, peer: BrokerId) -> int:
        """Return the incarnation of the peer of an open session."""
        active = self._peers[peer].active
        assert active is not None, f"there is no session with {peer}"
        assert active.theirs is not None
        return active.theirs.incarnation

    def open_peers(self) -> list[BrokerId]:
        """Return the peers with an open session, nearest cells first."""
        return [peer for peer, held in self._peers.items() if held.active is not None]

    def open_in(self, brokers: Iterable[BrokerId]) -> list[BrokerId]:
        """Return those of the brokers with an open session."""
        return [broker for broker in brokers if self.is_open(broker)]

    def direct_peers(self) -> list[BrokerId]:
        """Return the peers whose active session is direct, nearest cells first."""
        return [peer for peer in self._peers if self.is_direct(peer)]

    def unreached(self) -> list[tuple[BrokerId, int]]:
        """Return the brokers without a route, and since when."""
        return [
            (peer, held.unreached_since) for peer, held in self._peers.items() if held.is_unreached
        ]

    def clock_view(self) -> int:
        """Return the median of this broker's clock and those of its peers (R27)."""
        now = self._context.now
        clocks = [
            now + held.active.clock_offset
            for held in self._peers.values()
            if held.active is not None and held.active.clock_offset is not None
        ]
        clocks = sorted([*clocks, self._context.clock])
        return clocks[(len(clocks) - 1) // 2]

    # --- links -------------------------------------------------------------------------------

    def link_full(self, peer: BrokerId) -> None:
        """A link is full: the routes that use it are congested."""
        self._relays.hop_full(peer)
        self._review_full()

    def link_drained(self, peer: BrokerId) -> None:
        """A link has drained."""
        self._relays.hop_drained(peer)
        self._review_full()

    def link_up(self, peer: BrokerId) -> None:
        """Start the direct session with a peer."""
        self._relays.hop_drained(peer)
        held = self._peers.get(peer)
        if held is not None:
            held.direct.start()
        self._review_full()

    def link_down(self, peer: BrokerId) -> None:
        """End the direct session with a peer."""
        self._relays.hop_drained(peer)
        held = self._peers.get(peer)
        if held is not None:
            held.direct.end()
        self._review_full()

    def received(self, peer: BrokerId, packet: Any) -> None:
        """Process a packet from a link, or a Hello outside of any session."""
        held = self._peers.get(peer)
        if held is None or isinstance(packet, ControlFrame):
            self._listener.packet_received_outside(peer, packet)
        else:
            held.direct.received(packet)

    def flush(self) -> None:
        """Send the messages of this step, one packet for each peer with a session."""
        while (
            posted := self._context.take_messages()
        ):  # a relayed packet is a message to its first hop
            for peer, messages in posted:
                held = self._peers.get(peer)
                if held is None or held.active is None:
                    self._listener.unsent(peer, messages)
                else:
                    held.active.send(messages)

    # --- one session -------------------------------------------------------------------------

    def digest(self, peer: BrokerId) -> int:
        """Return the digest of records for the Hello to a peer."""
        return self._digests.of(self._peers[peer].direct.cell)

    def _compare_records(self, session: PeerSession, theirs: int) -> None:
        own = self._digests.of(session.cell)
        if own != theirs:
            self._listener.records_differ(session.peer, own, theirs)

    def opened(self, session: PeerSession) -> None:
        """A session has opened: take it, unless another one is active."""
        held = self._peers[session.peer]
        if held.active is None:
            self._activate(held, session)
        else:
            session.send((self._heartbeat(session, ()),))

    def closed(self, session: PeerSession) -> None:
        """A session has closed: take another one if it is open."""
        held = self._peers[session.peer]
        if held.active is not session:
            return
        self._deactivate(held, session.peer)
        held.set_unreached(self._context.now)
        self._review_full()
        self._end_relayed_over(session.peer)
        other = held.other_open(session)
        if other is not None and session.peer not in self._leaving:
            self._activate(held, other)

    def _activate(self, held: Peer, session: PeerSession) -> None:
        """Make a session the active one; the former active one is closed for the components."""
        if held.active is not None:
            self._deactivate(held, session.peer)
        held.take(session)
        self._review_full()
        self._send_heartbeat(session)
        self._relays.probe_now()
        self._listener.session_opened(session.peer, session.cell)
        self._compare_records(session, session.peer_digest)

    def _deactivate(self, held: Peer, peer: BrokerId) -> None:
        """Close a session for the components; drop their messages of this step to it (R2)."""
        held.lose()
        self._context.take_messages_to(peer)
        self._listener.session_closed(peer)

    def heartbeat_received(self, session: PeerSession, heartbeat: Heartbeat) -> None:
        """Pass on the table states and the digest of a heartbeat on the active session."""
        if self._peers[session.peer].active is session:
            self._listener.table_states_received(session.peer, heartbeat.tables)
            self._compare_records(session, heartbeat.digest)

    def message_received(self, session: PeerSession, message: Any) -> None:
        """Pass on a message; this end uses the session that the peer uses."""
        held = self._peers[session.peer]
        if held.active is not session:
            self._follow(held, session)
        if isinstance(message, Relayed):
            self._relays.received(session.peer, message)
        elif isinstance(message, RelayProbe):
            self._relays.probed(session.peer, message)
        else:
            self._listener.received(session.peer, message)

    def _follow(self, held: Peer, session: PeerSession) -> None:
        """Switch to the session that the peer uses: it will not repeat its messages (R2)."""
        if session is held.direct:
            self._activate(held, session)
        else:
            self._context.mark("link is down only at the peer")
            held.direct.start()  # closes it, so that the relayed session is taken
            assert held.active is session

    # --- congested routes (R40) --------------------------------------------------------

    def _review_full(self) -> None:
        """Notify the components of routes that are congested or have drained."""
        for peer, held in self._peers.items():
            full = held.active is not None and self._is_full(held.active)
            if held.set_congested(full):
                (self._listener.peer_congested if full else self._listener.peer_drained)(peer)

    def _is_full(self, session: PeerSession) -> bool:
        is_crowded = session.full_until > self._context.now
        return is_crowded or self._relays.is_full(session.first_hop)

    # --- relayed sessions (R3) ---------------------------------------------------------------

    def start_relayed(self, route: tuple[BrokerId, ...]) -> None:
        """Start a session with the broker at the end of a route, instead of any other relayed one."""
        held = self._peers.get(route[-1])
        if held is None:
            self._context.mark("relayed from an unknown broker")
            return
        self.end_relayed(route[-1])
        session = self._make(route[-1], held.direct.cell, route)
        held.set_relayed(session)
        session.start()

    def end_relayed(self, peer: BrokerId) -> None:
        """End the relayed session with a peer."""
        held = self._peers.get(peer)
        session = None if held is None else held.drop_relayed()
        if session is not None:
            session.end()

    def _end_relayed_over(self, hop: BrokerId) -> None:
        """End the relayed sessions whose first hop has no link."""
        for peer, held in self._peers.items():
            if held.relayed is not None and held.relayed.first_hop == hop:
                self.end_relayed(peer)

    def arrived(self, route: tuple[BrokerId, ...], packet: Any) -> None:
        """Process a packet received over relays; the route is given from this end to the other."""
        if isinstance(packet, RelayBroken | RelayFull):
            route = packet.route
        held = self._peers.get(route[-1]) if route else None
        if held is None:
            self._context.mark("relayed from an unknown broker")
            return
        awaited = held.is_unreached and self._me < route[-1]
        if awaited and isinstance(packet, Hello):
            self.start_relayed(route)  # the answer to a probe
        session = held.relayed
        if session is None or session.route != route:
            self._context.mark("relayed by an unknown route")
        elif isinstance(packet, RelayBroken):
            self._context.mark("relay broke")
            self.end_relayed(route[-1])
        elif isinstance(packet, RelayFull):
            # only for a short time: RelayFull is repeated, and no message states the end
            session.set_relay_full(self._context.now + self._heartbeat_us)
            self._review_full()
        else:
            session.received(packet)

    # --- heartbeats --------------------------------------------------------------------------

    def _tick(self) -> None:
        self._context.call_later(self._heartbeat_us, self._tick)
        for held in list(self._peers.values()):
            self._keep(held, held.direct)
            if held.relayed is not None:
                self._keep_relayed(held, held.relayed)
        self._review_full()
        self._relays.send_probes()

    def _keep(self, held: Peer, session: PeerSession) -> None:
        if not session.is_alive():
            return
        stable = self._context.now - session.opened_at >= self._stable_us
        if stable and session is held.direct and held.active is not session:
            self._activate(held, session)
        else:
            self._send_heartbeat(session)

    def _keep_relayed(self, held: Peer, session: PeerSession) -> None:
        """Keep a relayed session alive; drop one that is closed or does not open in time."""
        waited = self._context.now - session.started_at
        late = waited > microseconds(ms=self._context.parameters.session_timeout_ms)
        if session.state is PeerSessionState.CLOSED or (late and not session.is_open):
            held.drop_relayed()
        else:
            self._keep(held, session)

    def _send_heartbeat(self, session: PeerSession) -> None:
        """Send a heartbeat; over the active session it also carries the states of the tables."""
        peer = session.peer
        if self._peers[peer].active is session:
            self._context.send(peer, self._heartbeat(session, self._listener.table_states(peer)))
        else:
            session.send((self._heartbeat(session, ()),))

    def _heartbeat(self, session: PeerSession, tables: tuple[TableState, ...]) -> Heartbeat:
        """Return the next heartbeat of a session, with the digest of records (RS-4)."""
        return session.heartbeat(tables, self._digests.of(session.cell))
