"""Strands: where they start, and that they pass every tick once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gapless.broker import Broker
from gapless.core.ids import BrokerId, PubendId, ShbId, VirtualTime
from gapless.core.machine import Asked, Event
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import Read, ReadReply
from gapless.messages.records import RegimeRecord
from gapless.messages.streams import Piece, ReadForm
from gapless.packed.pick import unpack, unpack_ticks
from gapless.requests.carrier import Requests
from gapless.subscribers.cursor import Strand
from gapless.subscribers.cursor_state import State
from gapless.subscribers.start_guarantee import Early
from gapless.subscribers.subend import Subend
from gapless_lab.sim.invariants.global_state import Insight
from gapless_lab.sim.invariants.monitor import Handler, Invariant
from gapless_lab.sim.oracle import Stream

if TYPE_CHECKING:
    from gapless_lab.sim.world import Process, World

__all__ = ["ExactReads", "Strands"]

READS_KEPT = 4_096
"""Reads whose answer may still come."""


class _Seen(NamedTuple):
    """A strand after a step."""

    strand: Strand
    """Kept, so that no other gets its identity."""
    state: State
    position: Tick
    early: Early | None
    """Up to where its client was told of it before its host heard of the pubend (R46)."""


class Strands(Invariant):
    """I7 and I8, as far as they show inside: the horizon of a subend never falls. A strand that
    starts on the live stream does so at a tick whose regime lists its host at no less than the
    start of its filter, or where the pubend says that it knew of it by then. A strand's position falls
    only when its client seeks or comes back, and never below what the client was sent.

    Every tick that a strand passes live is covered: in a piece whose regime lists its host at no less
    than the start of its filter, by what is on the pubend's disk; or it was read from the log, and
    then all is there that the strand's filter matches. What strands read for themselves is seen by
    :class:`ExactReads`. The rest is checked by what clients see.
    """

    def __init__(self, insight: Insight) -> None:
        super().__init__(insight)
        self._horizons: dict[BrokerId, dict[PubendId, tuple[int, Tick]]] = {}
        self._states: dict[BrokerId, dict[int, _Seen]] = {}
        self._served: dict[tuple[PubendId, int, ShbId], VirtualTime | None] = {}
        """Up to which virtual time a regime serves a host."""

    def started(self, world: World, process: Process) -> None:
        """A new life has seen nothing."""
        del world
        self._horizons[process.host.broker] = {}
        self._states[process.host.broker] = {}

    def moved(self, process: Process, machine: Broker, event: Event) -> None:
        """Compare horizons and positions with those before the step."""
        me = process.host.broker
        horizons, states = self._horizons[me], self._states[me]
        count = 0
        for pubend, subend in machine.host.subends.items():
            if "_pass_over" not in vars(subend):
                self._look_at_passing(process, subend)
            horizon = subend._horizon
            if horizon is not None:
                tick = horizon.tick
                before = horizons.get(pubend)
                if before is None or before != (subend.number, tick):
                    if before is not None and before[0] == subend.number and tick < before[1]:
                        self.world.violate("I7", f"{me}: the horizon of {pubend} falls to {tick}")
                    horizons[pubend] = (subend.number, tick)
            for strand in subend.strands.values():
                count += 1
                seen = states.get(id(strand))
                if (
                    seen is None
                    or seen.state is not strand.state
                    or seen.position != strand.position
                ):
                    early = strand.subscription.early.get(pubend)
                    states[id(strand)] = _Seen(strand, strand.state, strand.position, early)
                    if seen is not None:
                        self._moved(process, strand, seen, event)
        if len(states) > 2 * count + 16:
            kept = {
                id(each) for end in machine.host.subends.values() for each in end.strands.values()
            }
            self._states[me] = {key: seen for key, seen in states.items() if key in kept}

    def _moved(self, process: Process, strand: Strand, before: _Seen, event: Event) -> None:
        name = f"{process.host.broker}: {strand.subscription.name} on {strand.pubend}"
        if before.state is State.WAITING and strand.state in {State.LIVE, State.AWAY}:
            self._check_start(process, strand, name, before.early)
        if strand.position < before.position and type(event) is not Asked and strand.buffer:
            lowest = strand.buffer.next_tick
            if lowest <= strand.last_told:
                self.world.violate("I8", f"{name}: {lowest} comes after {strand.last_told}")
        if strand.position < strand.last_told and strand.state is not State.LIVE:
            self.world.violate(
                "I8", f"{name}: falls to {strand.position}, below {strand.last_told}"
            )

    def _check_start(
        self, process: Process, strand: Strand, name: str, early: Early | None
    ) -> None:
        base = strand.base
        if base is None or base == strand.subscription.merged:
            return  # it was put off by the total order, and starts in a regime yet to come
        record = self._regime(strand.pubend, base + 1)
        identity = process.machine.context.identity  # type: ignore[attr-defined]
        entry = None if record is None else dict(record.entries).get(identity.shb)
        segment = strand.segment
        needed = segment.owed_from if strand.subscription.durable else segment.start
        moments = () if early is None else early.all_moments(identity.shb)
        if any(self._was_known(strand.pubend, each.host, each.time, base) for each in moments):
            return
        if needed is not None and early is not None and early.time is not None:
            needed = min(needed, early.time)  # a filter that was set since governs from there on
        if entry is None or needed is None or entry.time < needed:
            self.world.violate(
                "I7", f"{name}: starts after {base} by {segment.text} of {needed} in {record}"
            )

    def _was_known(self, pubend: PubendId, shb: ShbId, needed: VirtualTime, base: Tick) -> bool:
        """Say whether the pubend knew of a host up to a time, by what was on its disk (R46)."""
        record = self.insight.early.get(pubend, {}).get(shb)
        known = () if record is None else record.known
        return any(time >= needed and tick <= base for time, tick in known)

    # --- what is passed ----------------------------------------------------------------------

    def _look_at_passing(self, process: Process, subend: Subend) -> None:
        """See every piece that a subend passes, and whether it was read."""
        pass_over, take_read = subend._pass_over, subend._take_read
        shb = ShbId(process.host.broker, process.host.cell)
        reading = False

        def passes(piece: Piece, time: VirtualTime | None) -> None:
            if reading:
                self._check_read(process, subend, piece)
            else:
                self._check_covered(process, subend, piece, shb)
            pass_over(piece, time)

        def reads(reply: ReadReply, high: Tick) -> None:
            nonlocal reading
            reading = True
            take_read(reply, high)
            reading = False

        vars(subend)["_pass_over"] = passes
        vars(subend)["_take_read"] = reads

    def _check_covered(self, process: Process, subend: Subend, piece: Piece, shb: ShbId) -> None:
        served = self._serves(subend.pubend, piece.regime, shb)
        for strand in subend.strands.values():
            if strand.is_live and strand.position < piece.high:
                start = strand.segment.start
                if served is None or start is None or served < start:
                    self.world.violate(
                        "I7",
                        f"{process.host.broker}: {strand.subscription.name} passes [{piece.low}, "
                        f"{piece.high}] of {subend.pubend}, served at {served} there by regime "
                        f"{piece.regime}, by {strand.segment.text} of {start}",
                    )

    def _serves(self, pubend: PubendId, regime: int, shb: ShbId) -> VirtualTime | None:
        key = (pubend, regime, shb)
        if key not in self._served:
            record = self.insight.regimes.get(pubend, {}).get(regime)
            entry = None if record is None else dict(record.entries).get(shb)
            self._served[key] = None if entry is None else entry.time
        return self._served[key]

    def _check_read(self, process: Process, subend: Subend, piece: Piece) -> None:
        stream = self.truth.streams[subend.pubend]
        found = {each.tick for each in piece.publications}
        places = range(stream.after(piece.low - 1), stream.after(piece.high))
        missing = [place for place in places if stream.ticks[place] not in found]
        for strand in subend.strands.values() if missing else ():
            for place in missing:
                tick = stream.ticks[place]
                text = strand.governing(tick)[0].text
                wanted = strand.is_live and strand.position < tick
                if wanted and self.truth.matches(stream, text, place):
                    self.world.violate(
                        "I7",
                        f"{process.host.broker}: {strand.subscription.name} passes {tick} of "
                        f"{subend.pubend}, which is not in what was read and matches {text}",
                    )
                    return

    def _regime(self, pubend: PubendId, tick: Tick) -> RegimeRecord | None:
        regimes = self.insight.regimes.get(pubend, {})
        below = [record for record in regimes.values() if record.start <= tick]
        return max(below, key=lambda record: record.number, default=None)


class ExactReads(Invariant):
    """I7: an answer to a read is exact for its filter: all that matches, from where it was asked,
    or from what is released, up to where it says that it is done. A pubend's own broker asks no
    other; there the answer is seen where it is given.
    """

    def __init__(self, insight: Insight) -> None:
        super().__init__(insight)
        self._reads: dict[tuple[BrokerId, int], Read] = {}

    def moved(self, process: Process, machine: Broker, event: Event) -> None:
        """See what a broker answers itself."""
        del event
        if "_serve" not in vars(machine.requests):
            self._look_at_serving(process, machine.requests)

    def _look_at_serving(self, process: Process, requests: Requests) -> None:
        serve = requests._serve
        me = process.host.broker

        def serves(hosted: Any, request: Any, answer: Callable[[Any], None]) -> None:
            def answers(reply: Any) -> None:
                self._check(process, me, self.truth.streams[request.pubend], request, reply)
                answer(reply)

            is_own = type(request) is Read and request.asker == me
            serve(hosted, request, answers if is_own else answer)

        vars(requests)["_serve"] = serves

    def said(self) -> Mapping[type, Handler]:
        """Look at reads and their answers."""
        return {Read: self._asked, ReadReply: self._answered}

    def _asked(self, process: Process, peer: str, read: Read) -> None:
        del process, peer
        if not read.route:
            self._reads[read.asker, read.request] = read
            if len(self._reads) > READS_KEPT:
                del self._reads[next(iter(self._reads))]

    def _answered(self, process: Process, peer: str, reply: ReadReply) -> None:
        stream = self.truth.streams[reply.pubend]
        read = self._reads.get((reply.route[0], reply.request)) if reply.route else None
        if read is None or stream.broker != process.host.broker:
            return
        self._check(process, peer, stream, read, reply)

    def _check(
        self, process: Process, peer: str, stream: Stream, read: Read, reply: ReadReply
    ) -> None:
        low = max(read.low, reply.released + 1)
        places = range(stream.after(low - 1), stream.after(min(reply.done, read.high)))
        wanted = [
            stream.ticks[place]
            for place in places
            if self.truth.matches(stream, read.filter, place)
        ]
        found = [tick for tick in _ticks_of(read, reply) if tick >= low]
        if found != wanted:
            self.world.violate(
                "I7",
                f"{process.host.broker} answers {peer}: {read.filter} on {stream.pubend} from "
                f"{low} to {reply.done} is {wanted}, not {found}",
            )


def _ticks_of(read: Read, reply: ReadReply) -> list[Tick]:
    """Return the ticks of the publications of an answer, whatever its form."""
    if read.form is ReadForm.TICKS:
        return unpack_ticks(reply.rows)
    pieces = [each for piece in reply.pieces for each in piece.publications]
    return [each.tick for each in (*pieces, *unpack(reply.rows))]
