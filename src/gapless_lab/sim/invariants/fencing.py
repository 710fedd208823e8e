"""Fencing: what a dead session or an older life says changes nothing."""

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
"""Two brokers, and whether they talk over relays."""


class FencingInvariant(Invariant):
    """I12: a broker takes a packet only if it is of the newest session that the peer began, as far as
    it has arrived here, and names the session that this broker itself began last. Where links keep
    the order, it takes one only if all before it in its session have arrived. Sessions over a link and
    those over relays are counted apart.

    All is learned from what was said, nothing from how brokers keep their sessions. A packet that has
    only a sign of life in it is not looked at.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._ordered = global_state.parameters.ordered_sessions
        self._opened: dict[_Channel, PeerSessionId] = {}
        """The last session that a broker said it began with a peer."""
        self._newest: dict[_Channel, PeerSessionId] = {}
        """By receiver and sender the newest session of which something was taken."""
        self._whole: Counter[tuple[BrokerId, BrokerId, PeerSessionId, PeerSessionId]] = Counter()
        """By receiver, sender and the two ends of a session up to where it has arrived whole. Packets
        of several sessions may come mixed, by ways of different length."""

    def message_handlers(self) -> Mapping[type, MessageHandler]:
        """Look at who begins a session."""
        return {Hello: self._hello}

    def started(self, world: World, process: SimulatedProcess) -> None:
        """A new life has heard nothing."""
        del world
        me = process.host.broker
        self._newest = {key: end for key, end in self._newest.items() if key[0] != me}

    def _hello(self, process: SimulatedProcess, peer: str, hello: Any) -> None:
        self._opened[process.host.broker, peer, self.global_state.relayed] = hello.own

    def arrived(self, process: SimulatedProcess, peer: BrokerId, packet: Packet) -> None:
        """Note up to where a session has arrived without a hole."""
        key = (process.host.broker, peer, packet.sender, packet.receiver)
        if packet.sequence == self._whole[key] + 1:
            self._whole[key] = packet.sequence

    def taken(self, process: SimulatedProcess, peer: BrokerId, packet: Packet) -> None:
        """Check the two ends of a packet, and its number."""
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
        self.world.violate("I12", f"{me} takes {packet.sequence} of {peer}, {ends}, but {why}")
