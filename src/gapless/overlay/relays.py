"""Relays: a route over other brokers around a link that is down (R3; PT's partial partitions).

Theory of operation
-------------------
Of two brokers without a route to each other, the one with the smaller id looks for one. If both
did, two equally good routes would replace each other for ever. The broker sends a *probe* to all
brokers that it has a link with. Each forwards the probe once, with its own name in the route, over
a limited number of hops. The peer takes the route of the first probe that arrives and sends a Hello
back along it. From then on both ends use that route, which every packet contains, until a hop
fails.

A relay checks the form of a packet, forwards its bytes, keeps no state and answers nothing. So every message of a relayed session
comes from its other end, and a feed over relays still approaches the pubend (A2, A18). A relay
without a link to the next hop returns RelayBroken, and the session ends. A relay whose next hop is
full forwards the packet and returns RelayFull. Only the ends know which messages can wait; they
pause the streams for a while (R40). Ending the session instead would start another one, with all
messages of a session start, each time the hop is full.

Packets of a relayed session are messages inside the sessions of the hops, which keep their order.
Probes cost something only while a link is down. So no broker has to keep a map of all links and
send it with every heartbeat.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from gapless.core.context import Context
from gapless.core.ids import BrokerId, is_route
from gapless.core.limits import RELAY_PROBES_MAX
from gapless.core.parameters import microseconds
from gapless.messages.overlay import PeerSessionId, RelayBroken, Relayed, RelayFull, RelayProbe
from gapless.overlay.session import PeerSession

__all__ = ["RelayedSessions", "Relays"]


class RelayedSessions(Protocol):
    """The sessions of this broker, as relays see them."""

    def is_direct(self, peer: BrokerId) -> bool:
        """Return whether messages to the peer go over the link to it."""

    def direct_peers(self) -> list[BrokerId]:
        """Return the peers that are reached over a link, nearest cells first."""

    def unreached(self) -> list[tuple[BrokerId, int]]:
        """Return the brokers to which there is no route now, and since when."""

    def start_relayed(self, route: tuple[BrokerId, ...]) -> None:
        """Start a session with the broker at the end of a route."""

    def arrived(self, route: tuple[BrokerId, ...], packet: Any) -> None:
        """Process a packet received over relays; the route is given from this end to the other."""


class _ProbeSchedule:
    """When the next probe for a peer is due."""

    __slots__ = ("_next", "_pause_us")

    def __init__(self, at: int, pause_us: int) -> None:
        self._next = at
        self._pause_us = pause_us

    def is_due(self, now: int, longest_us: int) -> bool:
        """Return whether a probe is due; if so, schedule the next one after a growing pause."""
        if self._next > now:
            return False
        self._next = now + self._pause_us
        self._pause_us = min(2 * self._pause_us, longest_us)
        return True


class Relays:
    """Finds routes for the sessions of this broker and relays those of others."""

    def __init__(self, context: Context, sessions: RelayedSessions) -> None:
        self._context = context
        self._sessions = sessions
        self._me = context.identity.broker
        self._count = 0
        self._schedules: dict[BrokerId, _ProbeSchedule] = {}
        self._passed: dict[tuple[BrokerId, BrokerId], tuple[PeerSessionId, int]] = {}
        """By origin and target: the last probe that was forwarded, and its number of hops."""
        self._full: set[BrokerId] = set()
        """The hops whose links are full."""

    # --- links that are full -----------------------------------------------------------------

    def hop_full(self, peer: BrokerId) -> None:
        """The link to a peer is full."""
        self._full.add(peer)

    def hop_drained(self, peer: BrokerId) -> None:
        """The link to a peer has drained or is down."""
        self._full.discard(peer)

    def is_full(self, hop: BrokerId) -> bool:
        """Return whether the link to a peer is full."""
        return hop in self._full

    # --- finding a route ---------------------------------------------------------------------

    def probe_now(self) -> None:
        """A session has opened: probe all unreachable peers again without waiting."""
        self._schedules.clear()

    def send_probes(self) -> None:
        """Send probes for the peers that have been unreachable for a while."""
        now = self._context.now
        if not self._context.parameters.relay_hops_max:
            return
        unreached = {peer: since for peer, since in self._sessions.unreached() if self._me < peer}
        self._schedules = {
            peer: schedule for peer, schedule in self._schedules.items() if peer in unreached
        }
        interval = microseconds(ms=2 * self._context.parameters.heartbeat_ms)
        longest = microseconds(ms=self._context.parameters.retry_max_ms)
        for peer, since in unreached.items():
            if peer not in self._schedules:
                self._schedules[peer] = _ProbeSchedule(since + interval, interval)
            if self._schedules[peer].is_due(now, longest):
                self._probe(peer)

    def _probe(self, target: BrokerId) -> None:
        self._count += 1
        number = PeerSessionId(self._context.identity.incarnation, self._count)
        probe = RelayProbe(target, number, (self._me,))
        for peer in self._sessions.direct_peers():
            self._context.send(peer, probe)

    def probed(self, peer: BrokerId, probe: RelayProbe) -> None:
        """Forward a probe, or use its route if this broker is the target."""
        route = probe.route
        if not route or route[-1] != peer or self._me in route or not is_route(route):
            self._context.mark("probe looped")
            return
        if not self._is_new(probe):
            return
        route = (*route, self._me)
        if probe.target == self._me:
            self._sessions.start_relayed(route[::-1])
        elif len(route) <= self._context.parameters.relay_hops_max + 1:
            self._pass_on(msgspec.structs.replace(probe, route=route))

    def _is_new(self, probe: RelayProbe) -> bool:
        """Record a probe; return whether it is new or came by a shorter route.

        Of two copies, the one with the longer route may come first and have no hops left.
        """
        key = (probe.route[0], probe.target)
        number, hops = self._passed.pop(key, (PeerSessionId(0, 0), 0))
        shorter = probe.number == number and len(probe.route) < hops and probe.target != self._me
        is_new = probe.number > number or shorter
        self._passed[key] = (probe.number, len(probe.route)) if is_new else (number, hops)
        if len(self._passed) > RELAY_PROBES_MAX:
            del self._passed[next(iter(self._passed))]
        return is_new

    def _pass_on(self, probe: RelayProbe) -> None:
        """Send a probe to its target if there is a link, else to all others if hops are left."""
        hops_left = self._context.parameters.relay_hops_max + 1 - len(probe.route)
        if self._sessions.is_direct(probe.target):
            self._context.send(probe.target, probe)
        elif hops_left > 0:
            for peer in self._sessions.direct_peers():
                if peer not in probe.route:
                    self._context.send(peer, probe)

    # --- forwarding --------------------------------------------------------------------------

    def send(self, session: PeerSession, packet: Any) -> None:
        """Send a packet of a relayed session of this broker."""
        self._forward(Relayed(session.route, 0, packet))

    def received(self, peer: BrokerId, message: Relayed) -> None:
        """Process a packet of a relayed session, or forward it."""
        route, index = message.route, message.index
        fits = 0 < index < len(route) and route[index] == self._me and route[index - 1] == peer
        if not fits or not is_route(route):
            self._context.mark("relayed with a wrong route")
        elif index == len(route) - 1:
            self._sessions.arrived(route[::-1], message.inner)
        else:
            self._forward(message)

    def _forward(self, message: Relayed) -> None:
        route, index = message.route, message.index
        following = route[index + 1]
        if self._sessions.is_direct(following):
            self._context.send(following, msgspec.structs.replace(message, index=index + 1))
            if index > 0 and following in self._full:
                self._context.mark("relay has a full next hop")
                self._send_back(message, RelayFull(route))
        elif index > 0:
            self._context.mark("relay has no next hop")
            self._send_back(message, RelayBroken(route))

    def _send_back(self, message: Relayed, fate: RelayBroken | RelayFull) -> None:
        """Return RelayBroken or RelayFull to the sender of a packet, but not for such packets."""
        if not isinstance(message.inner, RelayBroken | RelayFull):
            self._forward(Relayed(message.route[message.index :: -1], 0, fate))
