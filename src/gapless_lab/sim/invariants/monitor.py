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
from gapless.core.machine import MachineEvent, Notify, Received, Send
from gapless.feeds.feed import is_leaf_number
from gapless.messages.overlay import Heartbeat, Packet, Relayed
from gapless.messages.records import StorageChange
from gapless.messages.streams import KnowledgeRange, StreamData, StreamSilence
from gapless_lab.sim.invariants.global_state import GlobalState
from gapless_lab.sim.oracle import PublishedStream
from gapless_lab.sim.world import WorldObserver

if TYPE_CHECKING:
    from gapless_lab.sim.runner import SimulationRun
    from gapless_lab.sim.world import SimulatedHost, SimulatedProcess, World

__all__ = ["Invariant", "InvariantMonitor", "MessageHandler"]

MessageHandler: TypeAlias = Callable[["SimulatedProcess", str, Any], None]
"""Takes who speaks, to which peer or client, and the message or notice."""


class Invariant(WorldObserver):
    """A probe for one invariant; it overrides what it needs of what a watch shows."""

    def __init__(self, global_state: GlobalState) -> None:
        self.global_state = global_state
        self.world = global_state.world
        self.oracle = global_state.oracle

    def message_handlers(self) -> Mapping[type, MessageHandler]:
        """Return what takes which kind of message or notice."""
        return {}

    def knowledge_sent(
        self,
        process: SimulatedProcess,
        peer: BrokerId,
        leaf: bool,
        stream: PublishedStream,
        knowledge: KnowledgeRange,
    ) -> None:
        """A piece of a guaranteed stream leaves for a peer: for its leaf, or for its router."""

    def arrived(self, process: SimulatedProcess, peer: BrokerId, packet: Packet) -> None:
        """A packet of a peer has arrived, whether or not it is taken."""

    def taken(self, process: SimulatedProcess, peer: BrokerId, packet: Packet) -> None:
        """A broker takes a packet of a peer: its messages are handed to the rooms."""

    def moved(self, process: SimulatedProcess, machine: Broker, event: MachineEvent) -> None:
        """A broker that has begun its life has made a step."""

    def durable(self, host: SimulatedHost, change: StorageChange) -> None:
        """A change is on disk now."""


class InvariantMonitor(WorldObserver):
    """All invariants of one run."""

    def __init__(
        self, run: SimulationRun, kinds: Iterable[Callable[[GlobalState], Invariant]]
    ) -> None:
        global_state = self.global_state = GlobalState(run)
        self.invariants = [kind(global_state) for kind in kinds]
        self._streams = run.oracle.streams
        self._handlers: dict[type, list[MessageHandler]] = {
            StreamData: [self._frame],
            StreamSilence: [self._silence],
        }
        for each in self.invariants:
            for kind, handler in each.message_handlers().items():
                self._handlers.setdefault(kind, []).append(handler)
        self._knowledge_sent = [each.knowledge_sent for each in self._with("knowledge_sent")]
        self._moved = [each.moved for each in self._with("moved")]
        self._durable = [each.durable for each in self._with("durable")]
        self._arriving: list[tuple[Packet, bool] | None] = []
        """The packet that has arrived, None once a message of it was taken, and whether it came over
        relays; of two, the second was inside of the first."""
        self._arrived = [each.arrived for each in self._with("arrived")]
        self._taken = [each.taken for each in self._with("taken")]
        for host in run.world.hosts.values():
            host.disk.listeners.append(self._changed)

    def _with(self, name: str) -> list[Invariant]:
        """Return the invariants that override a method."""
        return [
            each
            for each in self.invariants
            if getattr(type(each), name) is not getattr(Invariant, name)
        ]

    # --- what the world shows ----------------------------------------------------------------

    def started(self, world: World, process: SimulatedProcess) -> None:
        """Listen to what a broker says to itself."""
        machine = process.machine
        if isinstance(machine, Broker):
            self._listen(process, machine)
            for each in self.invariants:
                each.started(world, process)

    def crashed(self, world: World, process: SimulatedProcess) -> None:
        """A broker is gone."""
        for each in self.invariants:
            each.crashed(world, process)

    def stepped(
        self, world: World, process: SimulatedProcess, event: MachineEvent, effects: list[Any]
    ) -> None:
        """Show what was said and what has moved."""
        del world
        machine = process.machine
        if not isinstance(machine, Broker) or not machine.is_running:
            return
        if "received" not in vars(machine.components.sessions):
            self._look_at_packets(process, machine)
        handlers = self._handlers
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._message_sent(process, effect.peer, effect.packet)
            elif kind is Notify:
                for handler in handlers.get(type(effect.notice), ()):
                    handler(process, effect.client, effect.notice)
        if effects or not _is_heartbeat(event):
            for moved in self._moved:
                moved(process, machine, event)

    def _message_sent(self, process: SimulatedProcess, peer: BrokerId, packet: Any) -> None:
        """Show what is said to a peer; what is relayed, when its sender says it, as said to its end."""
        handlers = self._handlers
        if type(packet) is not Packet:
            for handler in handlers.get(type(packet), ()):
                handler(process, peer, packet)
            return
        for message in packet.messages:
            if type(message) is Relayed:
                if message.index == 1:
                    self.global_state.relayed = True
                    self._message_sent(process, message.route[-1], message.inner)
                    self.global_state.relayed = False
                continue
            for handler in handlers.get(type(message), ()):
                handler(process, peer, message)

    def outstanding(self, world: World) -> list[str]:
        """Return what must still happen in the liveness phase."""
        return [line for each in self.invariants for line in each.outstanding(world)]

    def finished(self, world: World) -> None:
        """Let the invariants have a last look."""
        for each in self.invariants:
            each.finished(world)

    # --- inside ------------------------------------------------------------------------------

    def _listen(self, process: SimulatedProcess, machine: Broker) -> None:
        me = process.host.broker
        handlers, arriving, taken = self._handlers, self._arriving, self._taken

        def listen(peer: BrokerId, message: Any) -> None:
            if peer == me:
                for handler in handlers.get(type(message), ()):
                    handler(process, me, message)
            elif arriving and arriving[-1] is not None:
                packet, self.global_state.relayed = arriving[-1]
                arriving[-1] = None
                for handle in taken:
                    handle(process, peer, packet)
                self.global_state.relayed = False

        machine.observers.append(listen)

    def _look_at_packets(self, process: SimulatedProcess, machine: Broker) -> None:
        """See what arrives at a broker; its sessions are there when its life has begun."""
        sessions = machine.components.sessions
        received, arrived = sessions.received, sessions.arrived

        def arrives(peer: BrokerId, packet: Any) -> None:
            self._arrives(process, peer, packet, relayed=False)
            received(peer, packet)
            self._arriving.clear()

        def arrives_over_relays(route: tuple[BrokerId, ...], packet: Any) -> None:
            under_way = len(self._arriving)
            self._arrives(process, route[-1], packet, relayed=True)
            arrived(route, packet)
            del self._arriving[under_way:]

        sessions.__dict__["received"] = arrives
        sessions.__dict__["arrived"] = arrives_over_relays

    def _arrives(
        self, process: SimulatedProcess, peer: BrokerId, packet: Any, *, relayed: bool
    ) -> None:
        if type(packet) is Packet:
            self._arriving.append((packet, relayed))
            self.global_state.relayed = relayed
            for handle in self._arrived:
                handle(process, peer, packet)
            self.global_state.relayed = False

    def _changed(self, host: SimulatedHost, change: StorageChange) -> None:
        self.global_state.durable(host, change)
        for durable in self._durable:
            durable(host, change)

    def _frame(self, process: SimulatedProcess, peer: str, message: StreamData) -> None:
        self._show_knowledge(process, peer, message.pubend, message.number, message.knowledge)

    def _silence(self, process: SimulatedProcess, peer: str, message: StreamSilence) -> None:
        for pubend, number, knowledge, _ in message.ranges:
            self._show_knowledge(process, peer, pubend, number, knowledge)

    def _show_knowledge(
        self,
        process: SimulatedProcess,
        peer: str,
        pubend: PubendId,
        number: int,
        knowledge: KnowledgeRange,
    ) -> None:
        stream = self._streams.get(pubend)
        if stream is None:
            self.global_state.world.violate("I13", f"{pubend} is told of and on no disk")
        elif stream.guaranteed:
            leaf = is_leaf_number(number)
            for handler in self._knowledge_sent:
                handler(process, peer, leaf, stream, knowledge)


def _is_heartbeat(event: MachineEvent) -> bool:
    """Say whether a step was only told that a peer is alive: a third of all steps are.

    It moves nothing that is looked at. If it did, the next step would show it: each look compares with
    the look before.
    """
    return (
        type(event) is Received
        and type(event.packet) is Packet
        and all(type(message) is Heartbeat for message in event.packet.messages)
    )
