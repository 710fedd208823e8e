"""The datagram model of the network: no connections, and packets in any order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gapless.core.events import LinkDown, LinkUp, Received
from gapless.core.ids import BrokerId
from gapless_lab.sim.network import HostPair, SimulatedLink, SimulatedNetwork

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedHost, SimulatedProcess, World

__all__ = ["DatagramNetwork"]


class DatagramNetwork(SimulatedNetwork):
    """Independent packets: lost, duplicated, reordered."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        for pair in self.pairs:
            pair.open = True

    def send(self, source: SimulatedHost, target: BrokerId, packet: Any) -> None:
        """Deliver a packet once, twice or not at all."""
        self.sent += 1
        link = self.links[source.broker].get(target)
        if link is None or not link.pair.open:
            self.lost += 1
            return
        if link.cut or (link.loss and self._draw() < link.loss):
            self.lost += 1
            return
        world = self._world
        world.push(world.now + self.delay(), self._arrive, link, packet)
        if link.loss and self._draw() < world.options.duplicate:
            world.push(world.now + self.delay(), self._arrive, link, packet)

    def _arrive(self, link: SimulatedLink, packet: Any) -> None:
        process = link.target.process
        if link.cut or process is None or not link.pair.open:
            self.lost += 1
            return
        self._world.happen(process, Received(link.source.broker, packet))

    def in_flight(self) -> Iterator[tuple[SimulatedLink, Any]]:
        """Return the packets in flight, in the order of the queue."""
        for _, _, action, link, packet in self._world.planned():
            if action == self._arrive:
                yield link, packet

    def started(self, host: SimulatedHost) -> None:
        """Notify a new process of its links; the others that the last process had are closed."""
        for link in self.links[host.broker].values():
            if host.process is not None and link.pair.is_dialled:
                self._world.happen(host.process, LinkUp(link.target.broker))
                self._open(link)
            else:
                self._close_for(link.pair, (link.back,))

    def stopped(self, host: SimulatedHost) -> None:
        """Do nothing: datagram links do not report that a peer ended."""

    def _dial(self, pair: HostPair) -> None:
        """Notify both ends that they have a link; packets pass from now on."""
        if not pair.open:
            for link in pair.links:
                if link.source.process is not None:
                    self._world.push(self._world.now, self._notify_up, link, link.source.process)
            pair.open = True

    def _notify_up(self, link: SimulatedLink, process: SimulatedProcess) -> None:
        if link.pair.open:
            self._world.happen(process, LinkUp(link.target.broker))

    def _open(self, link: SimulatedLink) -> None:
        """Let packets pass; the other end learns of a link that it did not have."""
        if not link.pair.open:
            link.pair.open = True
            if link.target.process is not None:
                self._world.push(self._world.now, self._notify_up, link.back, link.target.process)

    def _close(self, link: SimulatedLink) -> None:
        """Lose all packets from now on, also those in flight; notify both ends."""
        self._close_for(link.pair, link.pair.links)

    def _close_for(self, pair: HostPair, ends: tuple[SimulatedLink, ...]) -> None:
        """Close a link, and notify the ends that are the sources of these links."""
        if pair.open:
            pair.open = False
            for end in ends:
                if end.source.process is not None:
                    self._world.push(self._world.now, self._notify_down, end, end.source.process)

    def _notify_down(self, link: SimulatedLink, process: SimulatedProcess) -> None:
        if not link.pair.open:
            self._world.happen(process, LinkDown(link.target.broker))
