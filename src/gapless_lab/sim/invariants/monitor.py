"""The watch: sees every step once, and shows each probe what it asked for.

What a broker says to peers and clients is in the effects of its steps. What its router says to its
own leaf is not, and of what comes it takes only a part: so the watch listens to what a broker takes,
from itself and from others; that changes nothing. For every message there may be several probes;
each names the kinds that it wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from gapless.broker import Broker
from gapless.core.ids import BrokerId, PubendId
from gapless.core.machine import Event, Received, Send, Tell
from gapless.feeds.feed import is_leaf_number
from gapless.messages.overlay import Heartbeat, Packet, Relayed
from gapless.messages.records import Change
from gapless.messages.streams import Frame, Piece, Silence
from gapless_lab.sim.invariants.global_state import Insight
from gapless_lab.sim.oracle import Stream
from gapless_lab.sim.world import Probe

if TYPE_CHECKING:
    from gapless_lab.sim.runner import Run
    from gapless_lab.sim.world import Host, Process, World

__all__ = ["Handler", "Invariant", "Watch"]

Handler: TypeAlias = Callable[["Process", str, Any], None]
"""Takes who speaks, to which peer or client, and the message or notice."""


class Invariant(Probe):
    """A probe for one invariant; it overrides what it needs of what a watch shows."""

    def __init__(self, insight: Insight) -> None:
        self.insight = insight
        self.world = insight.world
        self.truth = insight.truth

    def said(self) -> Mapping[type, Handler]:
        """Return what takes which kind of message or notice."""
        return {}

    def piece(
        self, process: Process, peer: BrokerId, leaf: bool, stream: Stream, piece: Piece
    ) -> None:
        """A piece of a guaranteed stream leaves for a peer: for its leaf, or for its router."""

    def arrived(self, process: Process, peer: BrokerId, packet: Packet) -> None:
        """A packet of a peer has arrived, whether or not it is taken."""

    def taken(self, process: Process, peer: BrokerId, packet: Packet) -> None:
        """A broker takes a packet of a peer: its messages are handed to the rooms."""

    def moved(self, process: Process, machine: Broker, event: Event) -> None:
        """A broker that has begun its life has made a step."""

    def durable(self, host: Host, change: Change) -> None:
        """A change is on disk now."""


class Watch(Probe):
    """All invariants of one run."""

    def __init__(self, run: Run, kinds: Iterable[Callable[[Insight], Invariant]]) -> None:
        insight = self.insight = Insight(run)
        self.invariants = [kind(insight) for kind in kinds]
        self._streams = run.truth.streams
        self._handlers: dict[type, list[Handler]] = {Frame: [self._frame], Silence: [self._silence]}
        for each in self.invariants:
            for kind, handler in each.said().items():
                self._handlers.setdefault(kind, []).append(handler)
        self._pieces = [each.piece for each in self._with("piece")]
        self._moved = [each.moved for each in self._with("moved")]
        self._durable = [each.durable for each in self._with("durable")]
        self._arriving: list[tuple[Packet, bool] | None] = []
        """The packet that has arrived, None once a message of it was taken, and whether it came over
        relays; of two, the second was inside of the first."""
        self._arrived = [each.arrived for each in self._with("arrived")]
        self._taken = [each.taken for each in self._with("taken")]
        for host in run.world.hosts.values():
            host.disk.watchers.append(self._changed)

    def _with(self, name: str) -> list[Invariant]:
        """Return the invariants that override a method."""
        return [
            each
            for each in self.invariants
            if getattr(type(each), name) is not getattr(Invariant, name)
        ]

    # --- what the world shows ----------------------------------------------------------------

    def started(self, world: World, process: Process) -> None:
        """Listen to what a broker says to itself."""
        machine = process.machine
        if isinstance(machine, Broker):
            self._listen(process, machine)
            for each in self.invariants:
                each.started(world, process)

    def crashed(self, world: World, process: Process) -> None:
        """A broker is gone."""
        for each in self.invariants:
            each.crashed(world, process)

    def stepped(self, world: World, process: Process, event: Event, effects: list[Any]) -> None:
        """Show what was said and what has moved."""
        del world
        machine = process.machine
        if not isinstance(machine, Broker) or machine._early is not None:
            return
        if "received" not in vars(machine.sessions):
            self._look_at_packets(process, machine)
        handlers = self._handlers
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._said(process, effect.peer, effect.packet)
            elif kind is Tell:
                for handler in handlers.get(type(effect.notice), ()):
                    handler(process, effect.client, effect.notice)
        if effects or not _is_sign_of_life(event):
            for moved in self._moved:
                moved(process, machine, event)

    def _said(self, process: Process, peer: BrokerId, packet: Any) -> None:
        """Show what is said to a peer; what is relayed, when its sender says it, as said to its end."""
        handlers = self._handlers
        if type(packet) is not Packet:
            for handler in handlers.get(type(packet), ()):
                handler(process, peer, packet)
            return
        for message in packet.messages:
            if type(message) is Relayed:
                if message.index == 1:
                    self.insight.relayed = True
                    self._said(process, message.path[-1], message.inner)
                    self.insight.relayed = False
                continue
            for handler in handlers.get(type(message), ()):
                handler(process, peer, message)

    def owed(self, world: World) -> list[str]:
        """Return what must still happen in the liveness phase."""
        return [line for each in self.invariants for line in each.owed(world)]

    def finished(self, world: World) -> None:
        """Let the invariants have a last look."""
        for each in self.invariants:
            each.finished(world)

    # --- inside ------------------------------------------------------------------------------

    def _listen(self, process: Process, machine: Broker) -> None:
        received = machine.received
        me = process.host.broker
        handlers, arriving, taken = self._handlers, self._arriving, self._taken

        def listen(peer: BrokerId, message: Any) -> None:
            if peer == me:
                for handler in handlers.get(type(message), ()):
                    handler(process, me, message)
            elif arriving and arriving[-1] is not None:
                packet, self.insight.relayed = arriving[-1]
                arriving[-1] = None
                for handle in taken:
                    handle(process, peer, packet)
                self.insight.relayed = False
            received(peer, message)

        vars(machine)["received"] = listen

    def _look_at_packets(self, process: Process, machine: Broker) -> None:
        """See what arrives at a broker; its sessions are there when its life has begun."""
        received, arrived = machine.sessions.received, machine.sessions.arrived

        def arrives(peer: BrokerId, packet: Any) -> None:
            self._arrives(process, peer, packet, relayed=False)
            received(peer, packet)
            self._arriving.clear()

        def arrives_over_relays(route: tuple[BrokerId, ...], packet: Any) -> None:
            under_way = len(self._arriving)
            self._arrives(process, route[-1], packet, relayed=True)
            arrived(route, packet)
            del self._arriving[under_way:]

        vars(machine.sessions)["received"] = arrives
        vars(machine.sessions)["arrived"] = arrives_over_relays

    def _arrives(self, process: Process, peer: BrokerId, packet: Any, *, relayed: bool) -> None:
        if type(packet) is Packet:
            self._arriving.append((packet, relayed))
            self.insight.relayed = relayed
            for handle in self._arrived:
                handle(process, peer, packet)
            self.insight.relayed = False

    def _changed(self, host: Host, change: Change) -> None:
        self.insight.durable(host, change)
        for durable in self._durable:
            durable(host, change)

    def _frame(self, process: Process, peer: str, message: Frame) -> None:
        self._piece(process, peer, message.pubend, message.number, message.piece)

    def _silence(self, process: Process, peer: str, message: Silence) -> None:
        for pubend, number, piece, _ in message.pieces:
            self._piece(process, peer, pubend, number, piece)

    def _piece(
        self, process: Process, peer: str, pubend: PubendId, number: int, piece: Piece
    ) -> None:
        stream = self._streams.get(pubend)
        if stream is None:
            self.insight.world.violate("I13", f"{pubend} is told of and on no disk")
        elif stream.guaranteed:
            leaf = is_leaf_number(number)
            for handler in self._pieces:
                handler(process, peer, leaf, stream, piece)


def _is_sign_of_life(event: Event) -> bool:
    """Say whether a step was only told that a peer is alive: a third of all steps are.

    It moves nothing that is looked at. If it did, the next step would show it: each look compares with
    the look before.
    """
    return (
        type(event) is Received
        and type(event.packet) is Packet
        and all(type(message) is Heartbeat for message in event.packet.messages)
    )
