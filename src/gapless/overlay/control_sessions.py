"""Control sessions: sessions with brokers that may be outside the neighbourhood (RS-35).

Theory of operation
-------------------
The participants of an operation exchange messages, and some of them are outside each other's
neighbourhood. The broker that needs a session *requires* it. Then it dials the other broker, whose
driver admits the link. Over the link both ends open a session like that between peers, with fences
and heartbeats. Its frames are marked, so a control session and a peer session may exist beside each
other over one link: two brokers become neighbours in two steps, and between these steps only one of
them can use a peer session. A message to another broker goes over the peer session if there is one.

A control session carries a fixed set of messages. It ends when a peer session with the broker has
opened, or when nothing has required it and no message has passed for a while. The end that was
dialled keeps it while it is alive. If there is no room for a session that is required here, one that
is not required here gives way: the one that was idle for longest.

The Hello of a peer session from a broker that is no neighbour yet is kept for a while: the step
that makes the broker a neighbour takes it. Without it the other broker would wait until it repeats
the Hello.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple, Protocol

from gapless.core.context import Context
from gapless.core.effects import LinkTarget
from gapless.core.ids import BrokerId
from gapless.core.parameters import microseconds
from gapless.messages.overlay import CellMember, ControlFrame, Heartbeat, Hello
from gapless.overlay.control_session import ControlSession
from gapless.overlay.control_session_state import ControlInput, ControlState
from gapless.overlay.session import PeerSession
from gapless.overlay.tree import Tree, TreeChange

__all__ = ["ControlListener", "ControlSessions", "PeerLinks"]


class ControlListener(Protocol):
    """Is called with the events and messages of control sessions."""

    def control_session_opened(self, broker: BrokerId) -> None:
        """A control session has opened."""

    def control_session_closed(self, broker: BrokerId) -> None:
        """A control session has ended; there may be a peer session."""

    def control_received(self, broker: BrokerId, message: Any) -> None:
        """A message that may pass was received over a control session."""


class PeerLinks(Protocol):
    """The peer sessions, as control sessions see them."""

    def is_open(self, peer: BrokerId) -> bool:
        """Return whether there is a peer session."""

    def link_up(self, peer: BrokerId) -> None:
        """There is a link with a peer."""

    def received(self, peer: BrokerId, packet: Any) -> None:
        """Process a packet that came over the link with a peer."""


class _DeferredHello(NamedTuple):
    hello: Hello
    until: int


class ControlSessions:
    """All control sessions of a broker, and the links that its driver keeps."""

    def __init__(
        self,
        context: Context,
        tree: Tree,
        peers: PeerLinks,
        allowed: Collection[type],
        listener: ControlListener,
    ) -> None:
        """``allowed`` are the types of the messages that may pass."""
        self._context = context
        self._tree = tree
        self._peers = peers
        self._allowed = frozenset(allowed)
        self._listener = listener
        self._me = context.identity.broker
        self._required: dict[str, tuple[CellMember, ...]] = {}
        """By owner: the brokers to keep sessions with."""
        self._sessions: dict[BrokerId, ControlSession] = {}
        self._linked: set[BrokerId] = set()
        """All brokers with a link, peers included."""
        self._deferred: dict[BrokerId, _DeferredHello] = {}
        """The last Hello of brokers that have a link and are no neighbours."""
        self._numbers = itertools.count(1)
        self._is_ticking = False
        self._outside: tuple[tuple[LinkTarget, ...], tuple[BrokerId, ...]] = ((), ())
        """The links outside the neighbourhood that the driver was passed last."""
        parameters = context.parameters
        self._sessions_max = parameters.control_sessions_max
        self._idle_us = microseconds(ms=parameters.control_session_idle_ms)
        self._heartbeat_us = microseconds(ms=parameters.heartbeat_ms)
        self._defer_us = microseconds(ms=parameters.attach_defer_ms)

    # --- for components ------------------------------------------------------------------------

    def send(self, broker: BrokerId, message: Any) -> None:
        """Send a message over the peer session, else the control session; else it is lost."""
        assert type(message) in self._allowed, f"{type(message).__name__} is no control message"
        self._context.send(broker, message)

    def require(self, owner: str, members: Collection[CellMember]) -> None:
        """Keep sessions with these brokers until the owner requires others or none."""
        self._required.pop(owner, None)
        if members:
            self._required[owner] = tuple(members)
            self._keep_ticking()
        self._review()
        self._links_changed()

    def is_open(self, broker: BrokerId) -> bool:
        """Return whether messages to a broker are sent now."""
        held = self._sessions.get(broker)
        return self._peers.is_open(broker) or (held is not None and held.is_open)

    def open_brokers(self) -> list[BrokerId]:
        """Return the brokers with an open control session."""
        return [broker for broker, held in self._sessions.items() if held.is_open]

    # --- links ---------------------------------------------------------------------------------

    def link_up(self, broker: BrokerId) -> None:
        """There is a link with a broker; one that is no neighbour is admitted if there is room."""
        self.link_down(broker)
        self._linked.add(broker)
        held = self._sessions.get(broker)
        if held is None and broker not in self._tree.neighbourhood.all_brokers():
            held = self._make(broker)
            self.update_links()  # the driver ends the link if there was no room
        if held is not None:
            held.enter(ControlInput.LINK_UP)
            if held.is_needed:
                self._start(held)

    def link_down(self, broker: BrokerId) -> None:
        """The link with a broker is down."""
        self._linked.discard(broker)
        self._deferred.pop(broker, None)
        held = self._sessions.get(broker)
        if held is not None and held.is_linked:
            held.session.end()
            held.enter(ControlInput.LINK_DOWN)
            if not held.is_needed:
                self._end(held)

    def update_links(self) -> None:
        """Pass the driver all brokers to link with."""
        neighbourhood = self._tree.neighbourhood
        peers = {
            member.broker: LinkTarget(member.broker, member.addresses)
            for cell in neighbourhood.cells
            for member in cell.members
            if member.broker != self._me
        }
        self._outside = self._links_outside()
        self._context.set_peers(tuple(peers.values()), *self._outside)

    def _links_changed(self) -> None:
        """Pass the driver the brokers to link with, unless it has them already."""
        if self._links_outside() != self._outside:
            self.update_links()

    def _links_outside(self) -> tuple[tuple[LinkTarget, ...], tuple[BrokerId, ...]]:
        """Return the brokers outside the neighbourhood that are dialled, and those admitted."""
        peers = self._tree.neighbourhood
        outside = [each for each in self._sessions.values() if peers.cell_of(each.broker) is None]
        return (
            tuple(each.target for each in outside if each.target is not None),
            tuple(each.broker for each in outside if each.target is None),
        )

    def reshape(self, change: TreeChange) -> None:
        """Open peer sessions over the links with brokers that are neighbours now."""
        before = set(change.old.all_brokers())
        for broker in change.new.all_brokers():
            if broker in self._linked and broker not in before:
                self._peers.link_up(broker)
                deferred = self._deferred.pop(broker, None)
                if deferred is not None and deferred.until > self._context.now:
                    self._peers.received(broker, deferred.hello)
        self._review()
        self._linked &= {*change.new.all_brokers(), *self._sessions}
        self.update_links()

    # --- packets -------------------------------------------------------------------------------

    def packet_received(self, broker: BrokerId, packet: Any) -> None:
        """Take a packet of no peer session."""
        if isinstance(packet, ControlFrame):
            self._frame_received(broker, packet.inner)
        elif isinstance(packet, Hello) and broker in self._sessions:
            self._context.mark("hello of a broker that is no neighbour yet")
            self._deferred[broker] = _DeferredHello(packet, self._context.now + self._defer_us)
        else:
            self._context.mark("packet from an unknown broker")

    def _frame_received(self, broker: BrokerId, inner: Any) -> None:
        held = self._sessions.get(broker)
        is_hello = isinstance(inner, Hello)
        if held is None and is_hello and broker in self._linked:  # of a neighbour, in its own view
            if self._peers.is_open(broker):
                return
            held = self._make(broker)
            if held is not None:
                held.enter(ControlInput.LINK_UP)
        if held is None or not held.is_linked:
            self._context.mark("frame of no control session")
            return
        if held.state is ControlState.LINKED:
            if not is_hello:
                return
            held.enter(ControlInput.STARTED)
        held.session.received(inner)

    def unsent(self, broker: BrokerId, messages: Iterable[Any]) -> None:
        """Send the messages of a step to a broker without a peer session, as far as they may pass."""
        held = self._sessions.get(broker)
        passing = [message for message in messages if type(message) in self._allowed]
        if held is None or not held.is_open or not passing:
            self._context.mark("sent without a session")
            return
        held.note_use(self._context.now)
        held.session.send(passing)

    # --- of one session ------------------------------------------------------------------------

    def digest(self, peer: BrokerId) -> int:  # noqa: ARG002
        """Return no digest: the ends of a control session compare no records."""
        return 0

    def opened(self, session: PeerSession) -> None:
        """A control session has opened."""
        held = self._sessions[session.peer]
        held.enter(ControlInput.CONFIRMED)
        held.note_use(self._context.now)
        session.send((session.heartbeat(()),))
        self._listener.control_session_opened(session.peer)

    def closed(self, session: PeerSession) -> None:
        """A control session has closed; it may open again."""
        self._sessions[session.peer].enter(ControlInput.LOST)
        self._listener.control_session_closed(session.peer)

    def heartbeat_received(self, session: PeerSession, heartbeat: Heartbeat) -> None:
        """Do nothing: the session itself notes that it is alive."""

    def message_received(self, session: PeerSession, message: Any) -> None:
        """Pass on a message that may pass."""
        if type(message) not in self._allowed:
            self._context.mark("message that no control session carries")
            return
        self._sessions[session.peer].note_use(self._context.now)
        self._listener.control_received(session.peer, message)

    # --- which sessions there are --------------------------------------------------------------

    def _review(self) -> None:
        """Begin the sessions that are required, and release the others."""
        required = {
            member.broker: member for members in self._required.values() for member in members
        }
        needed = {
            broker: member
            for broker, member in required.items()
            if broker != self._me and not self._peers.is_open(broker)
        }
        for held in list(self._sessions.values()):
            if held.broker not in needed:
                held.release(self._context.now)
        for broker, member in needed.items():
            self._need(broker, LinkTarget(broker, member.addresses))

    def _need(self, broker: BrokerId, target: LinkTarget) -> None:
        held = self._sessions.get(broker) or self._make(broker, is_needed=True)
        if held is None:
            return
        held.set_target(target)
        if held.state is ControlState.UNLINKED and broker in self._linked:
            held.enter(ControlInput.LINK_UP)
        if held.state is ControlState.LINKED:
            self._start(held)

    def _start(self, held: ControlSession) -> None:
        held.enter(ControlInput.STARTED)
        held.session.start()

    def _make(self, broker: BrokerId, *, is_needed: bool = False) -> ControlSession | None:
        """Make a session without a link; None if there is no room."""
        if len(self._sessions) >= self._sessions_max and not self._make_room(is_needed):
            self._context.mark("too many control sessions")
            return None
        session = PeerSession(self._context, self, broker, "", self._numbers, self._send)
        held = self._sessions[broker] = ControlSession(session, self._context.now)
        self._keep_ticking()
        return held

    def _make_room(self, is_needed: bool) -> bool:
        """End the session that was idle for longest and is not needed here.

        An open one ends only for one that is needed here.
        """
        idle = [
            each
            for each in self._sessions.values()
            if not each.is_needed and (is_needed or not each.is_open)
        ]
        if not idle:
            return False
        self._end(min(idle, key=lambda each: each.used_at))
        return True

    def _end(self, held: ControlSession) -> None:
        held.session.end()
        held.enter(ControlInput.ENDED)
        del self._sessions[held.broker]
        self._deferred.pop(held.broker, None)

    def _send(self, session: PeerSession, packet: Any) -> None:
        self._context.send_packet(session.peer, ControlFrame(packet))

    # --- time ----------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Send heartbeats, and end the sessions that nothing needs; stop when there are none."""
        self._is_ticking = False
        for held in [each for each in self._sessions.values() if self._is_over(each)]:
            self._end(held)
        for held in list(self._sessions.values()):
            if held.session.is_alive():
                held.session.send((held.session.heartbeat(()),))
        self._review()
        self._links_changed()
        if self._sessions or self._required:
            self._keep_ticking()

    def _keep_ticking(self) -> None:
        if not self._is_ticking:
            self._is_ticking = True
            self._context.call_later(self._heartbeat_us, self._tick)

    def _is_over(self, held: ControlSession) -> bool:
        """Return whether a peer session is open, or nothing needs the session any more."""
        if self._peers.is_open(held.broker):
            return True
        is_kept = held.is_needed or (held.is_open and held.target is None)
        return not is_kept and self._context.now - held.used_at >= self._idle_us
