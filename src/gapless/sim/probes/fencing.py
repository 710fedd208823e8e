"""Fencing: what a dead session or an older life says changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from gapless.core.ids import BrokerId
from gapless.messages.overlay import Hello, Packet, SessionId
from gapless.sim.probes.insight import Insight
from gapless.sim.probes.watch import Handler, Invariant

if TYPE_CHECKING:
    from gapless.sim.world import Process, World

__all__ = ["Fencing"]

_Way: TypeAlias = tuple[BrokerId, BrokerId, bool]
"""Two brokers, and whether they talk over relays."""


class Fencing(Invariant):
    """I12: a broker takes a packet only if it is of the newest session that the peer began, as far as
    it has arrived here, and names the session that this broker itself began last. Where links keep
    the order, it takes one only if all before it in its session have arrived. Sessions over a link and
    those over relays are counted apart.

    All is learned from what was said, nothing from how brokers keep their sessions. A packet that has
    only a sign of life in it is not looked at.
    """

    def __init__(self, insight: Insight) -> None:
        super().__init__(insight)
        self._ordered = insight.parameters.ordered_sessions
        self._begun: dict[_Way, SessionId] = {}
        """The last session that a broker said it began with a peer."""
        self._newest: dict[_Way, SessionId] = {}
        """By receiver and sender the newest session of which something was taken."""
        self._whole: dict[_Way, tuple[SessionId, SessionId, int]] = {}
        """By receiver and sender the session of the last packet, and up to where it arrived whole."""

    def said(self) -> Mapping[type, Handler]:
        """Look at who begins a session."""
        return {Hello: self._hello}

    def started(self, world: World, process: Process) -> None:
        """A new life has heard nothing."""
        del world
        me = process.host.broker
        self._newest = {key: end for key, end in self._newest.items() if key[0] != me}
        self._whole = {key: ends for key, ends in self._whole.items() if key[0] != me}

    def _hello(self, process: Process, peer: str, hello: Any) -> None:
        self._begun[process.host.broker, peer, self.insight.relayed] = hello.own

    def arrived(self, process: Process, peer: BrokerId, packet: Packet) -> None:
        """Note up to where a session has arrived without a hole."""
        key = (process.host.broker, peer, self.insight.relayed)
        sender, receiver, whole = self._whole.get(key, (None, None, 0))
        if sender != packet.sender or receiver != packet.receiver:
            whole = 0
        if packet.sequence == whole + 1:
            self._whole[key] = (packet.sender, packet.receiver, packet.sequence)
        elif whole == 0:
            self._whole[key] = (packet.sender, packet.receiver, 0)

    def taken(self, process: Process, peer: BrokerId, packet: Packet) -> None:
        """Check the two ends of a packet, and its number."""
        key = me, _, _ = process.host.broker, peer, self.insight.relayed
        if packet.receiver != self._begun.get(key):
            self._unfenced(me, peer, packet, f"its own end is {self._begun.get(key)}")
        newest = self._newest.get(key)
        if newest is not None and packet.sender < newest:
            self._unfenced(me, peer, packet, f"the peer has begun {newest} since")
        self._newest[key] = packet.sender
        if self._ordered and packet.sequence > self._whole[key][2]:
            self._unfenced(me, peer, packet, f"it has all up to {self._whole[key][2]}")

    def _unfenced(self, me: BrokerId, peer: BrokerId, packet: Packet, why: str) -> None:
        ends = f"{packet.sender} to {packet.receiver}"
        self.world.violate("I12", f"{me} takes {packet.sequence} of {peer}, {ends}, but {why}")
