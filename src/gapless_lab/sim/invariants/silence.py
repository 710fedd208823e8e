"""Silence honesty: what is called silent holds nothing for those who are promised to be served."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from gapless.broker import Broker
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId, VirtualTime
from gapless.core.machine import Event
from gapless.core.ticks import Tick
from gapless.messages.streams import Piece
from gapless.stream.istream import Stream as Held
from gapless.subscribers.cursor import Strand
from gapless.subscribers.cursor_state import State
from gapless.subscribers.filter_segments import Segment
from gapless_lab.sim.invariants.global_state import Insight, broker_of
from gapless_lab.sim.invariants.monitor import Invariant
from gapless_lab.sim.oracle import Stream

if TYPE_CHECKING:
    from gapless_lab.sim.world import Host, Process, World

__all__ = ["SilenceHonesty"]


class SilenceHonesty(Invariant):
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

    def __init__(self, insight: Insight) -> None:
        super().__init__(insight)
        self._obliged: dict[tuple[PubendId, int, str], list[tuple[Host, VirtualTime]]] = {}
        self._held: dict[BrokerId, dict[Held, list[Piece]]] = {}
        """The pieces of a broker's streams, as they were looked at after its last step."""
        self._filters: dict[BrokerId, list[tuple[Segment, VirtualTime | None]]] = {}
        """The filters of a host as they were then, with their starts."""
        self._changing: dict[BrokerId, list[tuple[Strand, State]]] = {}
        """The strands of a host that waited then for their next filter, with their states."""

    def started(self, world: World, process: Process) -> None:
        """A new life holds nothing."""
        del world
        self._held[process.host.broker] = {}
        self._filters[process.host.broker] = []
        self._changing[process.host.broker] = []

    def piece(
        self, process: Process, peer: BrokerId, leaf: bool, stream: Stream, piece: Piece
    ) -> None:
        """Check the silence of a piece for its receiver."""
        ticks = stream.ticks
        first = bisect_left(ticks, piece.low)
        beyond = bisect_right(ticks, piece.high, first)
        if beyond - first == len(piece.publications):
            return  # everything is in it
        obliged = self._hosts(stream, piece.regime, peer, leaf)
        if not obliged:
            return
        told = {each.tick for each in piece.publications}
        silent = [place for place in range(first, beyond) if ticks[place] not in told]
        for host, time in obliged:
            machine = broker_of(host)
            if machine is not None and machine.context.identity.life == time.life:
                self._check(process, peer, stream, silent, machine, time, piece)

    def _hosts(
        self, stream: Stream, regime: int, peer: BrokerId, leaf: bool
    ) -> list[tuple[Host, VirtualTime]]:
        """Return the hosts that a regime lists and that are behind a receiver."""
        record = self.insight.regimes.get(stream.pubend, {}).get(regime)
        if record is None:
            return []
        cell: CellId = self.world.hosts[peer].cell
        key = (stream.pubend, regime, f"{peer}@" if leaf else cell)
        found = self._obliged.get(key)
        if found is None:
            home = self.insight.home(stream)
            found = self._obliged[key] = [
                (self.world.hosts[shb.broker], entry.time)
                for shb, entry in record.entries
                if (
                    shb == ShbId(peer, cell)
                    if leaf
                    else self.insight.is_behind(shb.cell, cell, home)
                )
            ]
        return found

    def _check(
        self,
        process: Process,
        peer: BrokerId,
        stream: Stream,
        silent: list[int],
        machine: Broker,
        time: VirtualTime,
        piece: Piece,
    ) -> None:
        subend = machine.host.subends.get(stream.pubend)
        horizon = None if subend is None else subend.horizon
        if horizon is None or stream.ticks[silent[-1]] <= horizon:
            return
        for segment in machine.host._segments.values():
            if segment.start is None or segment.start > time:
                continue
            for place in silent:
                tick = stream.ticks[place]
                if (
                    tick > horizon
                    and self.truth.matches(stream, segment.text, place)
                    and _governs(segment, stream.pubend, tick, time)
                ):
                    self.world.violate(
                        "I3",
                        f"{process.host.broker} to {peer}: {stream.pubend} {tick} is silent in "
                        f"[{piece.low}, {piece.high}] of regime {piece.regime}, but "
                        f"{segment.subscription.name} at {machine.context.identity.shb} wants it "
                        f"by {segment.text} since {segment.start}, served at {time}, "
                        f"horizon {horizon}",
                    )
                    return

    # --- what is held ------------------------------------------------------------------------

    def moved(self, process: Process, machine: Broker, event: Event) -> None:
        """Look at what a broker holds since this step, and at all if a filter has started."""
        del event
        me = process.host.broker
        held = self._held[me]
        for routed in machine.router._routed.values():
            stream = routed.stream
            if stream._pieces != held.get(stream):
                self._look_at_new(process, False, stream, held.get(stream, []))
                held[stream] = stream._pieces.copy()
        for subend in machine.host.subends.values():
            stream = subend._stream
            if stream._pieces != held.get(stream):
                self._look_at_new(process, True, stream, held.get(stream, []))
                held[stream] = stream._pieces.copy()
        filters = [(each, each.start) for each in machine.host._segments.values()]
        changing = [
            (strand, strand.state)
            for subscription in machine.host.subscriptions.values()
            for strand in subscription.strands.values()
            if strand.next is not None
        ]
        if filters != self._filters[me] or changing != self._changing[me]:
            self._filters[me], self._changing[me] = filters, changing
            for other in self.world.hosts.values():
                if other.process is not None:
                    self._scan(other.process)

    def _look_at_new(self, process: Process, leaf: bool, held: Held, before: list[Piece]) -> None:
        """Look at the pieces of a stream that it did not hold before."""
        stream = self.truth.streams.get(held.pubend)
        if stream is not None and stream.guaranteed:
            known = set(map(id, before))
            for piece in held:
                if id(piece) not in known:
                    self.piece(process, process.host.broker, leaf, stream, piece)

    def _scan(self, process: Process) -> None:
        """Look at all that a broker holds."""
        machine = broker_of(process.host)
        if machine is not None:
            for routed in machine.router._routed.values():
                self._look_at_new(process, False, routed.stream, [])
            for subend in machine.host.subends.values():
                self._look_at_new(process, True, subend._stream, [])


def _governs(segment: Segment, pubend: PubendId, tick: Tick, time: VirtualTime) -> bool:
    """Say whether a filter governs a tick of a regime that serves its host up to a time."""
    strand = segment.subscription.strands.get(pubend)
    if strand is None or (strand.base is not None and tick <= strand.base):
        return False
    if strand.base is None and tick <= segment.subscription.merged:
        return False  # in total order it will begin above what was merged (R51)
    if strand.next is not None:
        if strand.state is State.LIVE and strand.next.reached_by(time):
            return strand.next is segment  # it takes over here, if it has not before
        if strand.next is segment:
            return False
    return strand.governing(tick)[0] is segment
