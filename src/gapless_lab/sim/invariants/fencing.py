"""Fencing: what a dead session or an older life says changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from gapless.core.ids import BrokerId
from gapless.messages.overlay import Hello, Packet, SessionId
from gapless_lab.sim.invariants.global_state import Insight
from gapless_lab.sim.invariants.monitor import Handler, Invariant

if TYPE_CHECKING:
    from gapless_lab.sim.world import Process, World

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
        self._whole: Counter[tuple[BrokerId, BrokerId, SessionId, SessionId]] = Counter()
        """By receiver, sender and the two ends of a session up to where it has arrived whole. Packets
        of several sessions may come mixed, by ways of different length."""

    def said(self) -> Mapping[type, Handler]:
        """Look at who begins a session."""
        return {Hello: self._hello}

    def started(self, world: World, process: Process) -> None:
        """A new life has heard nothing."""
        del world
        me = process.host.broker
        self._newest = {key: end for key, end in self._newest.items() if key[0] != me}

    def _hello(self, process: Process, peer: str, hello: Any) -> None:
        self._begun[process.host.broker, peer, self.insight.relayed] = hello.own

    def arrived(self, process: Process, peer: BrokerId, packet: Packet) -> None:
        """Note up to where a session has arrived without a hole."""
        key = (process.host.broker, peer, packet.sender, packet.receiver)
        if packet.sequence == self._whole[key] + 1:
            self._whole[key] = packet.sequence

    def taken(self, process: Process, peer: BrokerId, packet: Packet) -> None:
        """Check the two ends of a packet, and its number."""
        key = me, _, _ = process.host.broker, peer, self.insight.relayed
        if packet.receiver != self._begun.get(key):
            self._unfenced(me, peer, packet, f"its own end is {self._begun.get(key)}")
        newest = self._newest.get(key)
        if newest is not None and packet.sender < newest:
            self._unfenced(me, peer, packet, f"the peer has begun {newest} since")
        self._newest[key] = packet.sender
        whole = self._whole[me, peer, packet.sender, packet.receiver]
        if self._ordered and packet.sequence > whole:
            self._unfenced(me, peer, packet, f"it has all up to {whole}")

    def _unfenced(self, me: BrokerId, peer: BrokerId, packet: Packet, why: str) -> None:
        ends = f"{packet.sender} to {packet.receiver}"
        self.world.violate("I12", f"{me} takes {packet.sequence} of {peer}, {ends}, but {why}")
