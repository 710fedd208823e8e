"""Relays: a way around a link that is cut, over other brokers (R3; PT's partial partitions).

Theory of operation
-------------------
Who has no way to a peer looks for one, if its id is the smaller of the two; else both would look, and
two equally good ways would replace each other for ever. It sends a *probe* to all whom it has a link
with. They pass it on, each probe once, with their own name in its path, over so many hops at most. The
peer takes the way of the first that comes and greets back along it. From then on both ends use that
way, each named in full in every packet, until a hop of it breaks.

A relay keeps nothing and answers nothing: it passes on bytes. So what a relayed session brings comes
from its other end and from nowhere nearer, and a feed over relays still approaches the pubend (A2,
A18). If a relay has no link to the next hop it says so back, and the session ends. If too much waits
for the next hop it passes on, and says so back too: only the ends know what can wait, and for a while
they send each other nothing of the streams (R40). To end the session instead would begin another, with
all that is told at a beginning, as often as the hop is full.

Packets of a relayed session travel as messages inside the sessions of the hops, which keep their
order. A probe costs something only while something is cut; so there is no map of all links that every
broker would have to keep, and to tell with every heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gapless.core.ids import BrokerId
from gapless.core.limits import RELAY_PROBES_MAX
from gapless.core.machine import Context
from gapless.core.parameters import microseconds
from gapless.messages.overlay import PeerSessionId, RelayBroken, Relayed, RelayFull, RelayProbe

if TYPE_CHECKING:
    from gapless.overlay.session import PeerSession
    from gapless.overlay.sessions import PeerSessions

__all__ = ["Relays"]


class _ProbeSchedule:
    """When a peer is looked for again."""

    __slots__ = ("next", "pause")

    def __init__(self, at: int, pause: int) -> None:
        self.next = at
        self.pause = pause


class Relays:
    """Finds ways for the sessions of this broker, and is one for those of others."""

    def __init__(self, context: Context, sessions: PeerSessions) -> None:
        self._context = context
        self._sessions = sessions
        self._me = context.identity.broker
        self._count = 0
        self._schedules: dict[BrokerId, _ProbeSchedule] = {}
        self._passed: dict[tuple[BrokerId, BrokerId], tuple[PeerSessionId, int]] = {}
        """By origin and target of probes the last that was passed on, and after how many hops."""
        self.full: set[BrokerId] = set()
        """For whom too much waits."""

    # --- looking for a way -------------------------------------------------------------------

    def probe_now(self) -> None:
        """A session has begun: what was out of reach may be in reach now."""
        self._schedules.clear()

    def send_probes(self) -> None:
        """Look for a way to those who have been out of reach for a while."""
        now = self._context.now
        if not self._context.parameters.relay_hops_max:
            return
        unreached = {peer: since for peer, since in self._sessions.unreached() if self._me < peer}
        self._schedules = {
            peer: schedule for peer, schedule in self._schedules.items() if peer in unreached
        }
        patience = microseconds(ms=2 * self._context.parameters.heartbeat_ms)
        for peer, since in unreached.items():
            if peer not in self._schedules:
                self._schedules[peer] = _ProbeSchedule(since + patience, patience)
            schedule = self._schedules[peer]
            if schedule.next <= now:
                schedule.next = now + schedule.pause
                longest = microseconds(ms=self._context.parameters.retry_max_ms)
                schedule.pause = min(2 * schedule.pause, longest)
                self._probe(peer)

    def _probe(self, target: BrokerId) -> None:
        self._count += 1
        number = PeerSessionId(self._context.identity.incarnation, self._count)
        probe = RelayProbe(target, number, (self._me,))
        for peer in self._sessions.direct_peers():
            self._context.send(peer, probe)

    def probed(self, peer: BrokerId, probe: RelayProbe) -> None:
        """Pass a probe on, or take the way by which it came."""
        route = probe.route
        if not route or route[-1] != peer or self._me in route:
            self._context.mark("probe went in a circle")
            return
        if not self._is_new(probe):
            return
        route = (*route, self._me)
        if probe.target == self._me:
            self._sessions.start_relayed(route[::-1])
        elif len(route) <= self._context.parameters.relay_hops_max + 1:
            self._pass_on(msgspec.structs.replace(probe, route=route))

    def _is_new(self, probe: RelayProbe) -> bool:
        """Note a probe; say whether it is to be passed on: a new one, or one by a shorter way.

        Of two copies the one over more hops may come first, and end here for want of hops.
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
        """Send a probe to its target, if that is in reach; else to all others, if hops are left."""
        hops_left = self._context.parameters.relay_hops_max + 1 - len(probe.route)
        if self._sessions.is_direct(probe.target):
            self._context.send(probe.target, probe)
        elif hops_left > 0:
            for peer in self._sessions.direct_peers():
                if peer not in probe.route:
                    self._context.send(peer, probe)

    # --- passing on --------------------------------------------------------------------------

    def send(self, session: PeerSession, packet: Any) -> None:
        """Send a packet of a relayed session of this broker."""
        self._forward(Relayed(session.route, 0, packet))

    def received(self, peer: BrokerId, message: Relayed) -> None:
        """Take a packet of a relayed session, or pass it on."""
        route, index = message.route, message.index
        fits = 0 < index < len(route) and route[index] == self._me and route[index - 1] == peer
        if not fits:
            self._context.mark("relayed to nowhere")
        elif index == len(route) - 1:
            self._sessions.arrived(route[::-1], message.inner)
        else:
            self._forward(message)

    def _forward(self, message: Relayed) -> None:
        route, index = message.route, message.index
        following = route[index + 1]
        if self._sessions.is_direct(following):
            self._context.send(following, msgspec.structs.replace(message, index=index + 1))
            if index > 0 and following in self.full:
                self._context.mark("relay has a full next hop")
                self._send_back(message, RelayFull(route))
        elif index > 0:
            self._context.mark("relay has no next hop")
            self._send_back(message, RelayBroken(route))

    def _send_back(self, message: Relayed, fate: RelayBroken | RelayFull) -> None:
        """Tell the end from which a packet came how it fared; of such news nobody is told."""
        if not isinstance(message.inner, RelayBroken | RelayFull):
            self._forward(Relayed(message.route[message.index :: -1], 0, fate))
