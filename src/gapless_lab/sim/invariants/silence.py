"""Silence: a range sent as silent contains no event that a served subscription must receive."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from gapless.broker import Broker
from gapless.core.events import MachineEvent
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId, VirtualTime
from gapless.core.ticks import Tick
from gapless.feeds.feed import is_leaf_number, scope_of
from gapless.messages.streams import KnowledgeRange
from gapless.stream.istream import IStream as Held
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import CursorPhase, Started
from gapless.subscribers.filter_segments import FilterSegment
from gapless_lab.sim.invariants.global_state import GlobalState, broker_of
from gapless_lab.sim.invariants.monitor import Invariant
from gapless_lab.sim.oracle import PublishedStream
from gapless_lab.sim.world_tree import CellGraph

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedHost, SimulatedProcess, World

__all__ = ["SilenceInvariant"]


class SilenceInvariant(Invariant):
    """I3: take any knowledge range, any F tick in it, any SHB behind its receiver that the stream
    epoch lists, and any started filter of that SHB that applies to the tick. That filter does not
    match.

    A range is checked when it is sent to a router or a leaf, also the sender's own. It is checked
    again when a broker holds it: after every step all ranges that are new, because the broker may
    have merged them wrongly. The ranges of a leaf are for that SHB alone, so only its filters
    count.

    Behind the receiver lies what lies there in the tree that the receiver sees now (R-3): a broker
    that has applied a step of the tree no longer holds what was made for fewer SHBs. All ranges of
    a broker are checked again when its tree changes. A feeder that has not applied the step still
    sends silence for fewer SHBs, under the attach number of the older scope. The receiver drops it
    (RS-37), so such a range is not checked when it is sent. If it is held nevertheless, it is found.

    A filter that starts later, at the virtual time of one that covers it, is checked against
    everything that any broker holds then. Ranges that were passed before need no second check: the
    tables of that time cover the filter (I4), and so does what was filtered by them. A filter for
    which a cursor waits is checked whenever the phase of that cursor changes, because the phase
    decides which of two filters applies.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._obliged: dict[tuple[PubendId, int, str], list[tuple[SimulatedHost, VirtualTime]]] = {}
        """By pubend, stream epoch and receiver."""
        self._views: dict[BrokerId, CellGraph] = {}
        """The trees that the receivers saw when these SHBs were found."""
        self._held: dict[BrokerId, dict[Held, list[KnowledgeRange]]] = {}
        """The knowledge ranges of a broker's streams, as checked after its last step."""
        self._filters: dict[BrokerId, list[tuple[FilterSegment, VirtualTime | None]]] = {}
        """The filters of an SHB at that step, with their starts."""
        self._looked_with: dict[BrokerId, CellGraph] = {}
        """The tree that a broker saw at that step."""
        self._changing: dict[BrokerId, list[tuple[Cursor, CursorPhase]]] = {}
        """The cursors of an SHB that waited for their next filter at that step, with their
        phases."""

    def started(self, world: World, process: SimulatedProcess) -> None:
        """A restarted broker holds nothing."""
        del world
        self._looked_with.pop(process.host.broker, None)
        self._held[process.host.broker] = {}
        self._filters[process.host.broker] = []
        self._changing[process.host.broker] = []

    def knowledge_sent(
        self,
        process: SimulatedProcess,
        peer: BrokerId,
        number: int,
        stream: PublishedStream,
        knowledge: KnowledgeRange,
    ) -> None:
        """Check the silence of a knowledge range for its receiver, unless that will drop it."""
        leaf = is_leaf_number(number)
        if leaf or not self._is_of_older_scope(peer, stream.pubend, number):
            self._look_at(process, peer, leaf, stream, knowledge)

    def _is_of_older_scope(self, peer: BrokerId, pubend: PubendId, number: int) -> bool:
        """Return whether the router of a peer has raised the scope since it gave this number."""
        receiver = broker_of(self.world.hosts[peer])
        routed = None if receiver is None else receiver.components.router.routed.get(pubend)
        return routed is not None and scope_of(number) < routed.scope

    def _look_at(
        self,
        process: SimulatedProcess,
        peer: BrokerId,
        leaf: bool,
        stream: PublishedStream,
        knowledge: KnowledgeRange,
    ) -> None:
        """Check the silence of a knowledge range for those behind a receiver."""
        ticks = stream.ticks
        first = bisect_left(ticks, knowledge.low)
        beyond = bisect_right(ticks, knowledge.high, first)
        if beyond - first == len(knowledge.publications):
            return  # no event is missing
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
        """Return the SHBs that a stream epoch lists and that are behind a receiver."""
        record = self.global_state.stream_epochs.get(stream.pubend, {}).get(stream_epoch)
        if record is None:
            return []
        receiver = self.world.hosts[peer]
        cell: CellId = receiver.cell
        tree = self.global_state.tree_of(receiver)
        if self._views.get(peer) is not tree:
            self._views[peer] = tree
            self._obliged = {key: each for key, each in self._obliged.items() if key[2] != peer}
        key = (stream.pubend, stream_epoch, f"{peer}@" if leaf else peer)
        found = self._obliged.get(key)
        if found is None:
            phb_cell = self.global_state.phb_cell(stream)
            found = self._obliged[key] = [
                (self.world.hosts[shb.broker], entry.time)
                for shb, entry in record.entries
                if (shb == ShbId(peer, cell) if leaf else tree.is_behind(shb.cell, cell, phb_cell))
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
        """Check the ranges that are new since this step; check all if a filter has started."""
        del event
        me = process.host.broker
        tree = self.global_state.tree_of(process.host)
        if self._looked_with.setdefault(me, tree) is not tree:
            self._looked_with[me] = tree
            self._held[me] = {}
        held = self._held[me]
        for routed in machine.components.router.routed.values():
            stream = routed.stream
            ranges = [*stream]
            if ranges != held.get(stream):
                self._look_at_new(process, False, stream, held.get(stream, []))
                held[stream] = ranges
        for subend in machine.components.subends.guaranteed.values():
            stream = subend.stream
            ranges = [*stream]
            if ranges != held.get(stream):
                self._look_at_new(process, True, stream, held.get(stream, []))
                held[stream] = ranges
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
        """Check the knowledge ranges of a stream that it did not hold before."""
        stream = self.oracle.streams.get(held.pubend)
        if stream is not None and stream.guaranteed:
            known = set(map(id, before))
            for knowledge in held:
                if id(knowledge) not in known:
                    self._look_at(process, process.host.broker, leaf, stream, knowledge)

    def _scan(self, process: SimulatedProcess) -> None:
        """Check all that a broker holds."""
        machine = broker_of(process.host)
        if machine is not None:
            for routed in machine.components.router.routed.values():
                self._look_at_new(process, False, routed.stream, [])
            for subend in machine.components.subends.guaranteed.values():
                self._look_at_new(process, True, subend.stream, [])


def _applies(segment: FilterSegment, pubend: PubendId, tick: Tick, time: VirtualTime) -> bool:
    """Return whether a filter applies to a tick of a stream epoch that serves its SHB up to a time."""
    cursor = segment.subscription.cursors.get(pubend)
    if cursor is None or (isinstance(cursor.start, Started) and tick <= cursor.start.after):
        return False
    if not isinstance(cursor.start, Started) and tick <= segment.subscription.merged:
        return False  # in total order it will start above what was merged (R51)
    following = cursor.segments.next
    if following is not None:
        if cursor.phase is CursorPhase.LIVE and following.is_served_at(time):
            return following is segment  # it takes effect here at the latest
        if following is segment:
            return False
    return cursor.segments.at(tick)[0] is segment
