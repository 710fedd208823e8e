"""Cursors: they start at the right tick and pass every tick once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gapless.broker import Broker
from gapless.core.events import ClientRequest, MachineEvent
from gapless.core.ids import BrokerId, PubendId, ShbId, VirtualTime
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import Read, ReadReply
from gapless.messages.records import StreamEpochRecord
from gapless.messages.streams import KnowledgeRange, ReadForm
from gapless.packed.pick import unpack, unpack_ticks
from gapless.requests.carrier import PubendRequests
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import CursorPhase, Started
from gapless.subscribers.start_guarantee import StartGuarantee
from gapless.subscribers.subend import Subend
from gapless_lab.sim.invariants.global_state import GlobalState
from gapless_lab.sim.invariants.monitor import Invariant, MessageHandler
from gapless_lab.sim.oracle import PublishedStream

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedProcess, World

__all__ = ["CursorInvariant", "ReadInvariant"]

READS_KEPT = 4_096
"""How many reads are remembered until their replies come."""


class _CursorSnapshot(NamedTuple):
    """A cursor after a step."""

    cursor: Cursor
    """Kept so that no other object gets its id."""
    state: CursorPhase
    position: Tick
    guarantee: StartGuarantee | None
    """The start guarantee that the subscription had before its SHB heard of the pubend (R46)."""


class CursorInvariant(Invariant):
    """I7 and I8, as far as broker state shows them. The horizon of a subend never falls. A cursor
    starts on the live stream at a tick whose stream epoch lists its SHB at no less than the start
    of its filter, or where the pubend knew the SHB by then. The position of a cursor falls only
    when its client seeks or reconnects, and never below what the client was sent.

    Every tick that a live cursor passes is covered. Either it is in a knowledge range whose stream
    epoch, on the pubend's disk, lists its SHB at no less than the start of its filter. Or it was
    read from the log, and then the range contains every event that the cursor's filter matches.
    :class:`ReadInvariant` checks what cursors read for themselves. The checkers of the clients
    check the rest.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._horizons: dict[BrokerId, dict[PubendId, tuple[int, Tick]]] = {}
        self._states: dict[BrokerId, dict[int, _CursorSnapshot]] = {}
        self._served: dict[tuple[PubendId, int, ShbId], VirtualTime | None] = {}
        """The virtual time up to which a stream epoch serves an SHB."""

    def started(self, world: World, process: SimulatedProcess) -> None:
        """A restarted broker has no cursors yet."""
        del world
        self._horizons[process.host.broker] = {}
        self._states[process.host.broker] = {}

    def moved(self, process: SimulatedProcess, machine: Broker, event: MachineEvent) -> None:
        """Compare horizons and positions with those before the step."""
        me = process.host.broker
        horizons, states = self._horizons[me], self._states[me]
        count = 0
        for pubend, subend in machine.components.subends.guaranteed.items():
            if "pass_over" not in vars(subend):
                self._look_at_passing(process, subend)
            if subend.has_base:
                tick = subend.horizon
                before = horizons.get(pubend)
                if before is None or before != (subend.number, tick):
                    if before is not None and before[0] == subend.number and tick < before[1]:
                        self.world.violate("I7", f"{me}: the horizon of {pubend} falls to {tick}")
                    horizons[pubend] = (subend.number, tick)
            for cursor in subend.cursors.values():
                count += 1
                seen = states.get(id(cursor))
                if (
                    seen is None
                    or seen.state is not cursor.phase
                    or seen.position != cursor.position
                ):
                    guarantee = cursor.subscription.guarantees.by_pubend.get(pubend)
                    states[id(cursor)] = _CursorSnapshot(
                        cursor, cursor.phase, cursor.position, guarantee
                    )
                    if seen is not None:
                        self._moved(process, cursor, seen, event)
        if len(states) > 2 * count + 16:
            kept = {
                id(each)
                for end in machine.components.subends.guaranteed.values()
                for each in end.cursors.values()
            }
            self._states[me] = {key: seen for key, seen in states.items() if key in kept}

    def _moved(
        self,
        process: SimulatedProcess,
        cursor: Cursor,
        before: _CursorSnapshot,
        event: MachineEvent,
    ) -> None:
        name = f"{process.host.broker}: {cursor.subscription.name} on {cursor.pubend}"
        if before.state.has_no_start and cursor.phase in {
            CursorPhase.LIVE,
            CursorPhase.DISCONNECTED,
        }:
            self._check_start(process, cursor, name, before.guarantee)
        if cursor.position < before.position and type(event) is not ClientRequest and cursor.buffer:
            lowest = cursor.buffer.next_tick
            if lowest <= cursor.last_sent:
                self.world.violate("I8", f"{name}: {lowest} comes after {cursor.last_sent}")
        if cursor.position < cursor.last_sent and cursor.phase is not CursorPhase.LIVE:
            self.world.violate(
                "I8", f"{name}: falls to {cursor.position}, below {cursor.last_sent}"
            )

    def _check_start(
        self, process: SimulatedProcess, cursor: Cursor, name: str, guarantee: StartGuarantee | None
    ) -> None:
        base = cursor.start.after if isinstance(cursor.start, Started) else None
        if base is None or base == cursor.subscription.merged:
            return  # the total order deferred it, and it starts in a later stream epoch
        sealed = self.oracle.streams[cursor.pubend].sealed
        if sealed is not None and base >= sealed:
            return  # nothing comes any more (RS-32)
        record = self._stream_epoch(cursor.pubend, base + 1)
        identity = process.machine.context.identity  # type: ignore[attr-defined]
        entry = None if record is None else dict(record.entries).get(identity.shb)
        segment = cursor.segments.current
        needed = segment.required_from if cursor.subscription.durable else segment.start
        host_times = () if guarantee is None else guarantee.all_times(identity.shb)
        if any(self._was_known(cursor.pubend, each.host, each.time, base) for each in host_times):
            return
        if needed is not None and guarantee is not None and guarantee.time is not None:
            needed = min(
                needed, guarantee.time
            )  # a filter that was set later applies from there on
        if entry is None or needed is None or entry.time < needed:
            self.world.violate(
                "I7", f"{name}: starts after {base} by {segment.text} of {needed} in {record}"
            )

    def _was_known(self, pubend: PubendId, shb: ShbId, needed: VirtualTime, base: Tick) -> bool:
        """Return whether the pubend knew an SHB up to a time, by what was on its disk (R46)."""
        record = self.global_state.known_hosts.get(pubend, {}).get(shb)
        known = () if record is None else record.known
        return any(time >= needed and tick <= base for time, tick in known)

    # --- what is passed ----------------------------------------------------------------------

    def _look_at_passing(self, process: SimulatedProcess, subend: Subend) -> None:
        """Observe every knowledge range that a subend passes, and whether it was read."""
        pass_over, take_read = subend.pass_over, subend.take_read
        shb = ShbId(process.host.broker, process.host.cell)
        reading = False

        def passes(knowledge: KnowledgeRange, time: VirtualTime | None) -> None:
            if reading:
                self._check_read(process, subend, knowledge)
            else:
                self._check_covered(process, subend, knowledge, shb)
            pass_over(knowledge, time)

        def reads(reply: ReadReply, high: Tick) -> bool:
            nonlocal reading
            reading = True
            whole = take_read(reply, high)
            reading = False
            return whole

        vars(subend)["pass_over"] = passes
        vars(subend)["take_read"] = reads

    def _check_covered(
        self, process: SimulatedProcess, subend: Subend, knowledge: KnowledgeRange, shb: ShbId
    ) -> None:
        served = self._serves(subend.pubend, knowledge.stream_epoch, shb)
        for cursor in subend.cursors.values():
            if cursor.is_live and cursor.position < knowledge.high:
                start = cursor.segments.current.start
                if served is None or start is None or served < start:
                    self.world.violate(
                        "I7",
                        f"{process.host.broker}: {cursor.subscription.name} passes [{knowledge.low}, "
                        f"{knowledge.high}] of {subend.pubend}, served at {served} there by stream epoch "
                        f"{knowledge.stream_epoch}, by {cursor.segments.current.text} of {start}",
                    )

    def _serves(self, pubend: PubendId, stream_epoch: int, shb: ShbId) -> VirtualTime | None:
        key = (pubend, stream_epoch, shb)
        if key not in self._served:
            record = self.global_state.stream_epochs.get(pubend, {}).get(stream_epoch)
            entry = None if record is None else dict(record.entries).get(shb)
            self._served[key] = None if entry is None else entry.time
        return self._served[key]

    def _check_read(
        self, process: SimulatedProcess, subend: Subend, knowledge: KnowledgeRange
    ) -> None:
        stream = self.oracle.streams[subend.pubend]
        found = {each.tick for each in knowledge.publications}
        indices = range(stream.after(knowledge.low - 1), stream.after(knowledge.high))
        missing = [index for index in indices if stream.ticks[index] not in found]
        for cursor in subend.cursors.values() if missing else ():
            for place in missing:
                tick = stream.ticks[place]
                text = cursor.segments.at(tick)[0].text
                wanted = cursor.is_live and cursor.position < tick
                if wanted and self.oracle.matches(stream, text, place):
                    self.world.violate(
                        "I7",
                        f"{process.host.broker}: {cursor.subscription.name} passes {tick} of "
                        f"{subend.pubend}, which is not in what was read and matches {text}",
                    )
                    return

    def _stream_epoch(self, pubend: PubendId, tick: Tick) -> StreamEpochRecord | None:
        stream_epochs = self.global_state.stream_epochs.get(pubend, {})
        below = [record for record in stream_epochs.values() if record.start <= tick]
        return max(below, key=lambda record: record.number, default=None)


class ReadInvariant(Invariant):
    """I7: a read reply is exact for its filter. It contains every match from the requested tick, or
    from the first that is not released, up to the tick ``done``. A PHB sends itself no messages, so
    there the reply is observed where it is made.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._reads: dict[tuple[BrokerId, int], Read] = {}

    def moved(self, process: SimulatedProcess, machine: Broker, event: MachineEvent) -> None:
        """Observe the replies that a broker gives to itself."""
        del event
        if "serve" not in vars(machine.components.requests):
            self._look_at_serving(process, machine.components.requests)

    def _look_at_serving(self, process: SimulatedProcess, requests: PubendRequests) -> None:
        serve = requests.serve
        me = process.host.broker

        def serves(hosted: Any, request: Any, answer: Callable[[Any], None]) -> None:
            def answers(reply: Any) -> None:
                self._check(process, me, self.oracle.streams[request.pubend], request, reply)
                answer(reply)

            is_own = type(request) is Read and request.requester == me
            serve(hosted, request, answers if is_own else answer)

        vars(requests)["serve"] = serves

    def message_handlers(self) -> Mapping[type, MessageHandler]:
        """Handle reads and their replies."""
        return {Read: self._read_sent, ReadReply: self._answered}

    def _read_sent(self, process: SimulatedProcess, peer: str, read: Read) -> None:
        del process, peer
        if not read.route:
            self._reads[read.requester, read.request] = read
            if len(self._reads) > READS_KEPT:
                del self._reads[next(iter(self._reads))]

    def _answered(self, process: SimulatedProcess, peer: str, reply: ReadReply) -> None:
        stream = self.oracle.streams[reply.pubend]
        read = self._reads.get((reply.route[0], reply.request)) if reply.route else None
        if read is None or stream.broker != process.host.broker:
            return
        self._check(process, peer, stream, read, reply)

    def _check(
        self,
        process: SimulatedProcess,
        peer: str,
        stream: PublishedStream,
        read: Read,
        reply: ReadReply,
    ) -> None:
        low = max(read.low, reply.released + 1)
        indices = range(stream.after(low - 1), stream.after(min(reply.done, read.high)))
        wanted = [
            stream.ticks[index]
            for index in indices
            if self.oracle.matches(stream, read.filter, index)
        ]
        found = [tick for tick in _ticks_of(read, reply) if tick >= low]
        if found != wanted:
            self.world.violate(
                "I7",
                f"{process.host.broker} answers {peer}: {read.filter} on {stream.pubend} from "
                f"{low} to {reply.done} is {wanted}, not {found}",
            )


def _ticks_of(read: Read, reply: ReadReply) -> list[Tick]:
    """Return the ticks of the publications of a reply in any form."""
    if read.form is ReadForm.TICKS:
        return unpack_ticks(reply.rows)
    publications = [each for knowledge in reply.ranges for each in knowledge.publications]
    return [each.tick for each in (*publications, *unpack(reply.rows))]
