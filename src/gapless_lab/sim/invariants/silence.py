"""Silence honesty: what is called silent holds nothing for those who are promised to be served."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from gapless.broker import Broker
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId, VirtualTime
from gapless.core.machine import MachineEvent
from gapless.core.ticks import Tick
from gapless.messages.streams import KnowledgeRange
from gapless.stream.istream import IStream as Held
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import CursorPhase, Started
from gapless.subscribers.filter_segments import FilterSegment
from gapless_lab.sim.invariants.global_state import GlobalState, broker_of
from gapless_lab.sim.invariants.monitor import Invariant
from gapless_lab.sim.oracle import PublishedStream

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedHost, SimulatedProcess, World

__all__ = ["SilenceInvariant"]


class SilenceInvariant(Invariant):
    """I3: for every piece and every F tick in it, every host behind its receiver that the regime
    lists, every filter of that host that governs the tick and has started: it does not match.

    A piece is looked at when it leaves for a router or a leaf, the own one included, and when a
    broker holds it: after every step those that were not there before, in case it put them together
    wrongly. A leaf's pieces are for that host alone, so only its filters count.

    A filter that starts later, at the virtual time of one that covers it, is looked at with all that
    any broker holds then. What was handed over before needs no second look: the tables of that time
    cover it (I4), and so did what was filtered by them. So is one that a strand waits for, whenever the
    state of that strand changes: which of two filters governs depends on it.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._obliged: dict[tuple[PubendId, int, str], list[tuple[SimulatedHost, VirtualTime]]] = {}
        self._held: dict[BrokerId, dict[Held, list[KnowledgeRange]]] = {}
        """The pieces of a broker's streams, as they were looked at after its last step."""
        self._filters: dict[BrokerId, list[tuple[FilterSegment, VirtualTime | None]]] = {}
        """The filters of a host as they were then, with their starts."""
        self._changing: dict[BrokerId, list[tuple[Cursor, CursorPhase]]] = {}
        """The strands of a host that waited then for their next filter, with their states."""

    def started(self, world: World, process: SimulatedProcess) -> None:
        """A new life holds nothing."""
        del world
        self._held[process.host.broker] = {}
        self._filters[process.host.broker] = []
        self._changing[process.host.broker] = []

    def knowledge_sent(
        self,
        process: SimulatedProcess,
        peer: BrokerId,
        leaf: bool,
        stream: PublishedStream,
        knowledge: KnowledgeRange,
    ) -> None:
        """Check the silence of a piece for its receiver."""
        ticks = stream.ticks
        first = bisect_left(ticks, knowledge.low)
        beyond = bisect_right(ticks, knowledge.high, first)
        if beyond - first == len(knowledge.publications):
            return  # everything is in it
        obliged = self._hosts(stream, knowledge.stream_epoch, peer, leaf)
        if not obliged:
            return
        sent = {each.tick for each in knowledge.publications}
        silent = [index for index in range(first, beyond) if ticks[index] not in sent]
        for host, time in obliged:
            machine = broker_of(host)
            if machine is not None and machine.context.identity.incarnation == time.incarnation:
                self._check(process, peer, stream, silent, machine, time, knowledge)

    def _hosts(
        self, stream: PublishedStream, stream_epoch: int, peer: BrokerId, leaf: bool
    ) -> list[tuple[SimulatedHost, VirtualTime]]:
        """Return the hosts that a regime lists and that are behind a receiver."""
        record = self.global_state.stream_epochs.get(stream.pubend, {}).get(stream_epoch)
        if record is None:
            return []
        cell: CellId = self.world.hosts[peer].cell
        key = (stream.pubend, stream_epoch, f"{peer}@" if leaf else cell)
        found = self._obliged.get(key)
        if found is None:
            phb_cell = self.global_state.phb_cell(stream)
            found = self._obliged[key] = [
                (self.world.hosts[shb.broker], entry.time)
                for shb, entry in record.entries
                if (
                    shb == ShbId(peer, cell)
                    if leaf
                    else self.global_state.is_behind(shb.cell, cell, phb_cell)
                )
            ]
        return found

    def _check(
        self,
        process: SimulatedProcess,
        peer: BrokerId,
        stream: PublishedStream,
        silent: list[int],
        machine: Broker,
        time: VirtualTime,
        knowledge: KnowledgeRange,
    ) -> None:
        subend = machine.components.subends.guaranteed.get(stream.pubend)
        horizon = None if subend is None or not subend.has_base else subend.horizon
        if horizon is None or stream.ticks[silent[-1]] <= horizon:
            return
        for segment in machine.components.filters.segments.values():
            if segment.start is None or segment.start > time:
                continue
            for index in silent:
                tick = stream.ticks[index]
                if (
                    tick > horizon
                    and self.oracle.matches(stream, segment.text, index)
                    and _applies(segment, stream.pubend, tick, time)
                ):
                    self.world.violate(
                        "I3",
                        f"{process.host.broker} to {peer}: {stream.pubend} {tick} is silent in "
                        f"[{knowledge.low}, {knowledge.high}] of stream epoch {knowledge.stream_epoch}, but "
                        f"{segment.subscription.name} at {machine.context.identity.shb} wants it "
                        f"by {segment.text} since {segment.start}, served at {time}, "
                        f"horizon {horizon}",
                    )
                    return

    # --- what is held ------------------------------------------------------------------------

    def moved(self, process: SimulatedProcess, machine: Broker, event: MachineEvent) -> None:
        """Look at what a broker holds since this step, and at all if a filter has started."""
        del event
        me = process.host.broker
        held = self._held[me]
        for routed in machine.components.router._routed.values():
            stream = routed.stream
            if stream._ranges != held.get(stream):
                self._look_at_new(process, False, stream, held.get(stream, []))
                held[stream] = stream._ranges.copy()
        for subend in machine.components.subends.guaranteed.values():
            stream = subend._stream
            if stream._ranges != held.get(stream):
                self._look_at_new(process, True, stream, held.get(stream, []))
                held[stream] = stream._ranges.copy()
        filters = [(each, each.start) for each in machine.components.filters.segments.values()]
        changing = [
            (cursor, cursor.phase)
            for subscription in machine.components.registry.subscriptions.values()
            for cursor in subscription.cursors.values()
            if cursor.segments.next is not None
        ]
        if filters != self._filters[me] or changing != self._changing[me]:
            self._filters[me], self._changing[me] = filters, changing
            for other in self.world.hosts.values():
                if other.process is not None:
                    self._scan(other.process)

    def _look_at_new(
        self, process: SimulatedProcess, leaf: bool, held: Held, before: list[KnowledgeRange]
    ) -> None:
        """Look at the pieces of a stream that it did not hold before."""
        stream = self.oracle.streams.get(held.pubend)
        if stream is not None and stream.guaranteed:
            known = set(map(id, before))
            for knowledge in held:
                if id(knowledge) not in known:
                    self.knowledge_sent(process, process.host.broker, leaf, stream, knowledge)

    def _scan(self, process: SimulatedProcess) -> None:
        """Look at all that a broker holds."""
        machine = broker_of(process.host)
        if machine is not None:
            for routed in machine.components.router._routed.values():
                self._look_at_new(process, False, routed.stream, [])
            for subend in machine.components.subends.guaranteed.values():
                self._look_at_new(process, True, subend._stream, [])


def _applies(segment: FilterSegment, pubend: PubendId, tick: Tick, time: VirtualTime) -> bool:
    """Say whether a filter governs a tick of a regime that serves its host up to a time."""
    cursor = segment.subscription.cursors.get(pubend)
    if cursor is None or (isinstance(cursor.start, Started) and tick <= cursor.start.after):
        return False
    if not isinstance(cursor.start, Started) and tick <= segment.subscription.merged:
        return False  # in total order it will begin above what was merged (R51)
    following = cursor.segments.next
    if following is not None:
        if cursor.phase is CursorPhase.LIVE and following.is_served_at(time):
            return following is segment  # it takes over here, if it has not before
        if following is segment:
            return False
    return cursor.segments.at(tick)[0] is segment
