"""Fencing: packets of a closed session or an older incarnation change nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from gapless.core.ids import BrokerId
from gapless.messages.overlay import Hello, Packet, PeerSessionId
from gapless_lab.sim.invariants.global_state import GlobalState
from gapless_lab.sim.invariants.monitor import Invariant, MessageHandler

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedProcess, World

__all__ = ["FencingInvariant"]

_Channel: TypeAlias = tuple[BrokerId, BrokerId, bool]
"""Two brokers, and whether their session is relayed."""


class FencingInvariant(Invariant):
    """I12: a broker accepts a packet only if it belongs to the newest session of the peer that has
    arrived here and names this broker's own newest session. If links keep the order, it accepts a
    packet only if all earlier packets of the session have arrived. Direct and relayed sessions are
    counted apart.

    The invariant uses only what was sent, not how brokers store their sessions. A packet with only
    a heartbeat in it is not checked.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._ordered = global_state.parameters.ordered_sessions
        self._opened: dict[_Channel, PeerSessionId] = {}
        """The newest session that a broker opened with a peer."""
        self._newest: dict[_Channel, PeerSessionId] = {}
        """By receiver and sender, the newest session of which a packet was accepted."""
        self._whole: Counter[tuple[BrokerId, BrokerId, PeerSessionId, PeerSessionId]] = Counter()
        """By receiver, sender and the two ends of a session, the sequence up to which all
        packets have arrived. Packets of several sessions may come mixed, over routes of
        different length."""

    def message_handlers(self) -> Mapping[type, MessageHandler]:
        """Handle the opening of sessions."""
        return {Hello: self._hello}

    def started(self, world: World, process: SimulatedProcess) -> None:
        """A restarted broker has received nothing."""
        del world
        me = process.host.broker
        self._newest = {key: end for key, end in self._newest.items() if key[0] != me}

    def _hello(self, process: SimulatedProcess, peer: str, hello: Any) -> None:
        self._opened[process.host.broker, peer, self.global_state.relayed] = hello.own

    def arrived(self, process: SimulatedProcess, peer: BrokerId, packet: Packet) -> None:
        """Record up to which sequence a session has arrived without a gap."""
        key = (process.host.broker, peer, packet.sender, packet.receiver)
        if packet.sequence == self._whole[key] + 1:
            self._whole[key] = packet.sequence

    def taken(self, process: SimulatedProcess, peer: BrokerId, packet: Packet) -> None:
        """Check the two ends of a packet, and its sequence."""
        key = me, _, _ = process.host.broker, peer, self.global_state.relayed
        if packet.receiver != self._opened.get(key):
            self._unfenced(me, peer, packet, f"its own end is {self._opened.get(key)}")
        newest = self._newest.get(key)
        if newest is not None and packet.sender < newest:
            self._unfenced(me, peer, packet, f"the peer has started {newest} since")
        self._newest[key] = packet.sender
        whole = self._whole[me, peer, packet.sender, packet.receiver]
        if self._ordered and packet.sequence > whole:
            self._unfenced(me, peer, packet, f"it has all up to {whole}")

    def _unfenced(self, me: BrokerId, peer: BrokerId, packet: Packet, why: str) -> None:
        ends = f"{packet.sender} to {packet.receiver}"
        self.world.violate("I12", f"{me} accepts {packet.sequence} of {peer}, {ends}, but {why}")
