"""The monitor: it observes every step once and passes each invariant what that invariant handles.

The effects of a step contain what a broker sends to peers and clients. They do not contain what its
router sends to its own leaf, nor which received messages it accepts. So the monitor also observes
the messages that a broker accepts, from itself and from others. Observing changes nothing. Several
invariants may handle a message; each names the types that it handles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from gapless.broker import Broker
from gapless.core.effects import Notify, Send
from gapless.core.events import MachineEvent, Received
from gapless.core.ids import BrokerId, PubendId
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
"""Takes the sending process, the name of the peer or client, and the message or notice."""


class Invariant(WorldObserver):
    """One invariant; a subclass overrides the callbacks of the monitor that it needs."""

    def __init__(self, global_state: GlobalState) -> None:
        self.global_state = global_state
        self.world = global_state.world
        self.oracle = global_state.oracle

    def message_handlers(self) -> Mapping[type, MessageHandler]:
        """Return the handler for each type of message or notice."""
        return {}

    def knowledge_sent(
        self,
        process: SimulatedProcess,
        peer: BrokerId,
        number: int,
        stream: PublishedStream,
        knowledge: KnowledgeRange,
    ) -> None:
        """A process sends a knowledge range of a guaranteed stream to the leaf or the router of a
        peer, under an attach number of it.
        """

    def arrived(self, process: SimulatedProcess, peer: BrokerId, packet: Packet) -> None:
        """A packet of a peer has arrived, whether or not the broker accepts it."""

    def taken(self, process: SimulatedProcess, peer: BrokerId, packet: Packet) -> None:
        """A broker accepts a packet of a peer: its components get the messages."""

    def moved(self, process: SimulatedProcess, machine: Broker, event: MachineEvent) -> None:
        """A broker that has started its incarnation has made a step."""

    def durable(self, host: SimulatedHost, change: StorageChange) -> None:
        """A change has reached the disk."""


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
        """The packet that has arrived, and whether it came over relays; None after a message of it
        was accepted. Of two entries, the second packet was inside the first."""
        self._arrived = [each.arrived for each in self._with("arrived")]
        self._taken = [each.taken for each in self._with("taken")]
        run.world.disk_listeners.append(self._changed)

    def _with(self, name: str) -> list[Invariant]:
        """Return the invariants that override a method."""
        return [
            each
            for each in self.invariants
            if getattr(type(each), name) is not getattr(Invariant, name)
        ]

    # --- callbacks of the world --------------------------------------------------------------

    def started(self, world: World, process: SimulatedProcess) -> None:
        """Observe what a broker sends to itself."""
        machine = process.machine
        if isinstance(machine, Broker):
            self._listen(process, machine)
            for each in self.invariants:
                each.started(world, process)

    def crashed(self, world: World, process: SimulatedProcess) -> None:
        """Pass a crash to the invariants."""
        for each in self.invariants:
            each.crashed(world, process)

    def stepped(
        self, world: World, process: SimulatedProcess, event: MachineEvent, effects: list[Any]
    ) -> None:
        """Pass the sent messages and the changed state to the invariants."""
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
        """Pass a message to a peer to the handlers; a relayed one at its sender, as sent to its
        final receiver.
        """
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
        """Let the invariants check once more at the end."""
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
        """Observe the packets that arrive; the sessions exist once the incarnation has started."""
        sessions = machine.components.sessions
        received, arrived = sessions.received, sessions.arrived

        def arrives(peer: BrokerId, packet: Any) -> None:
            self._arrives(process, peer, packet, relayed=False)
            received(peer, packet)
            self._arriving.clear()

        def arrives_over_relays(route: tuple[BrokerId, ...], packet: Any) -> None:
            arriving = len(self._arriving)
            self._arrives(process, route[-1], packet, relayed=True)
            arrived(route, packet)
            del self._arriving[arriving:]

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
            self.global_state.world.violate(
                "I13", f"{pubend} is on no disk, but knowledge of it is sent"
            )
        elif stream.guaranteed:
            for handler in self._knowledge_sent:
                handler(process, peer, number, stream, knowledge)


def _is_heartbeat(event: MachineEvent) -> bool:
    """Return whether an event is only a heartbeat of a peer, as for a third of all steps.

    It changes nothing that an invariant checks. If it did, the next step would show it: each check
    compares with the previous one.
    """
    return (
        type(event) is Received
        and type(event.packet) is Packet
        and all(type(message) is Heartbeat for message in event.packet.messages)
    )
