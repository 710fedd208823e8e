"""Every kind of message between brokers, valid and invalid.

A *plausible* message could be true: it refers to a world of p - n - c with the pubend P at p, and repeats
earlier statements. Its new parts (a pubend, a request, a partition) are new each time, so that messages do
not affect each other. An *absurd* message has one field changed to an extreme or invalid value, and has
passed the codec: a faulty peer could send it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final, get_args

import msgspec
from msgspec.structs import replace

from gapless.core.errors import ProtocolError
from gapless.core.ids import BrokerId, MembershipId, PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.ticks import Tick, TickRange
from gapless.messages.mobility import (
    CollectSubscriptions,
    DurableEntry,
    FindStatus,
    FindSubscription,
    SubscriptionFound,
    SubscriptionHost,
    SubscriptionsCollected,
    Superseded,
    WalkKey,
)
from gapless.messages.overlay import (
    Announce,
    CellMember,
    CellRecord,
    Heartbeat,
    Hello,
    NameQuery,
    NameReply,
    NameStatus,
    Partition,
    PartitionInfo,
    PeerSessionId,
    PubendProperties,
    RecordList,
    RecordPush,
    RecordWant,
    RelayBroken,
    Relayed,
    RelayFull,
    RelayProbe,
    Retire,
    TableState,
    Term,
)
from gapless.messages.propagation import TableDelta, TableFull, TableId, TableRequest, TableStop
from gapless.messages.pubend_requests import (
    CountEvents,
    EventCount,
    EventCounts,
    LeavePubend,
    LogHoldId,
    Read,
    ReadReply,
    ReleaseLogHold,
    RequestDone,
)
from gapless.messages.reshape import (
    OpAbort,
    OpAborted,
    OperationId,
    OperationKind,
    OperationOutcome,
    OpFinish,
    OpFinished,
    OpInquire,
    OpOutcome,
    OpPrepare,
    OpPrepared,
    OpRefused,
    OpSwitch,
    OpSwitched,
    Participant,
    Promise,
    RefusalReason,
    Takeover,
)
from gapless.messages.streams import (
    AckExpected,
    AckReport,
    AdvanceRequest,
    Attach,
    Attached,
    AttachKind,
    DefineMemberSet,
    Detach,
    FeedUnavailable,
    FeedUnavailableReason,
    ForgetMemberSet,
    KnowledgeRange,
    Member,
    Nack,
    Publication,
    ReadForm,
    Released,
    StreamData,
    StreamEpoch,
    StreamEpochRequest,
    StreamSilence,
    Unreadable,
)
from gapless.messages.unicast import UnicastReply, UnicastRequest, Walk, Walked
from gapless.overlay.cell_records import versions_of
from gapless.overlay.session import PROTOCOL
from gapless.reshape.changes import appended
from gapless.reshape.proposals import expected_of
from gapless.wire.codec import LINK_PACKETS, Message
from gapless.wire.frames import HEADER_BYTES
from tests.broker.harness import BrokerHarness, P
from tests.scenarios.brokers import shb
from tests.shape_versions import shape

KINDS: Final = tuple(Relayed if kind.__name__ == "_Carried" else kind for kind in get_args(Message))
"""All message types of a packet, as the codec has them."""

NUMBERS: Final = (2, 3)
"""Attach numbers: the first of a router's feed, and of a leaf's."""

_fresh = itertools.count(1_000)


class Facts:
    """The state that a peer and the receiving broker may both know."""

    def __init__(self, world: BrokerHarness, me: BrokerId, peer: BrokerId, seen: Tick) -> None:
        self.world = world
        self.me = me
        self.peer = peer
        (self.other,) = {"p", "n", "c"} - {me, peer}
        self.clock = world[me].context.clock
        self.incarnation = world[peer].context.identity.incarnation
        self.own_incarnation = world[me].context.identity.incarnation
        pubend = world.pubend("p", P)
        self.seen = seen
        """The tick of the event e1."""
        self.top = pubend.top
        self.stream_epoch = pubend.stream_epoch_of(self.top)
        self.vector = pubend.vector(self.stream_epoch)
        event = Publication(seen, "ann", 1, {"kind": 1}, b"e1")
        self.known = KnowledgeRange(seen, seen, pubend.stream_epoch_of(seen), 0, (event,))
        self.silent = KnowledgeRange(seen + 1, seen + 1, pubend.stream_epoch_of(seen + 1), 0)
        self.member = Member(
            shb(peer), MembershipId(self.incarnation, 1), True, VirtualTime(self.incarnation, 1)
        )
        self.log_hold = LogHoldId(shb(peer), f"x/{next(_fresh)}")
        self.table = TableId(peer, self.incarnation, me)
        self.version = world[peer].components.exchange.table_store.out[me].sender.table.version
        """The version of that table of the peer."""

    def missed(self, low: Tick) -> KnowledgeRange:
        """Return the knowledge of the log from a tick on, up to the last event."""
        row = self.world.nodes["p"].disk.logs[P][-1]
        stream_epoch = self.world.pubend("p", P).stream_epoch_of(row.last)
        return KnowledgeRange(low, row.last, stream_epoch, 0, row.publications)


def plausible(facts: Facts, kind: type) -> list[Any]:
    """Return messages of a kind that a peer could send; some need others before them."""
    return [*_MAKERS[kind](facts)]


def nth(facts: Facts, kind: type, number: int) -> Any:
    """Return one of these messages."""
    return plausible(facts, kind)[number]


def hello(facts: Facts, received: PeerSessionId | None = None) -> Hello:
    """Return the message with which a peer opens a session."""
    own = PeerSessionId(facts.incarnation, next(_fresh))
    return Hello(facts.peer, facts.peer, own, received, PROTOCOL, 0)


# --- absurd ---------------------------------------------------------------------------------------

_INTEGERS: Final = (0, 1, 2, -1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1)
_TEXTS: Final = ("n", "", "nowhere", "a@b", "n > ", "x" * 300)


def absurd(make: Callable[[], Any]) -> Iterator[Any]:
    """Yield a message with every field changed in turn, to mild values first, then to extremes.

    It is made again each time, so that its new parts are new.
    """
    paths = [*_paths(msgspec.to_builtins(make(), builtin_types=(bytes,)))]
    for turn in range(max(len(_INTEGERS), len(_TEXTS))):
        for path, value in paths:
            others = _others(value)
            if turn < len(others):
                plain = msgspec.to_builtins(make(), builtin_types=(bytes,))
                yield from _through_the_codec(_replaced(plain, path, others[turn]))


def _paths(plain: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield all positions of a message, except its tag."""
    if path not in {(), (0,)}:
        yield path, plain
    if isinstance(plain, list | tuple):
        for number, each in enumerate(plain):
            yield from _paths(each, (*path, number))


def _others(value: Any) -> tuple[Any, ...]:
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return _INTEGERS
    if isinstance(value, str):
        return _TEXTS
    if isinstance(value, list | tuple):
        return ([], [*value, *value], None)
    return ()


def _replaced(plain: Any, path: tuple[int, ...], value: Any) -> Any:
    if not path:
        return value
    changed = [*plain]
    changed[path[0]] = _replaced(plain[path[0]], path[1:], value)
    return changed


def _through_the_codec(plain: Any) -> Iterator[Any]:
    """Yield the decoded message, if it is valid for the codec."""
    tagged = ["Packet", [1, 1], [1, 1], 1, [plain]] if plain[0] != "Hello" else plain
    try:
        found = LINK_PACKETS.decode(LINK_PACKETS.encode(tagged)[HEADER_BYTES:])
    except ProtocolError:
        return
    yield from (found,) if isinstance(found, Hello) else found.messages


# --- plausible, kind by kind ----------------------------------------------------------------------

Maker = Callable[[Facts], Iterator[Any]]
_MAKERS: Final[dict[type, Maker]] = {}


def _makes(*kinds: type) -> Callable[[Maker], Maker]:
    def note(maker: Maker) -> Maker:
        _MAKERS.update(dict.fromkeys(kinds, maker))
        return maker

    return note


@_makes(Heartbeat)
def _heartbeat(facts: Facts) -> Iterator[Any]:
    yield Heartbeat(next(_fresh), 1, facts.clock)
    yield Heartbeat(next(_fresh), 1, 0, (TableState(facts.me, 1, 0),))


@_makes(Announce)
def _announce(facts: Facts) -> Iterator[Any]:
    peer = facts.peer
    pubend = PubendId(f"Z{next(_fresh)}")
    yield Announce(pubend, 1, PubendProperties(peer, peer, "kind = 1"), (peer,))
    path = ("p",) if peer == "p" else (peer, "p")
    yield Announce(P, 1, PubendProperties("p", "p", "TRUE"), path)


@_makes(PartitionInfo)
def _partition(facts: Facts) -> Iterator[Any]:
    partition = Partition(facts.peer, next(_fresh), ("z",))
    yield PartitionInfo(partition, facts.incarnation, True, 2)
    yield PartitionInfo(partition, facts.incarnation, False, 2, 1)


@_makes(Retire)
def _retire(_facts: Facts) -> Iterator[Any]:
    yield Retire(f"z{next(_fresh)}", "z", 1)


@_makes(NameQuery)
def _name_query(facts: Facts) -> Iterator[Any]:
    yield NameQuery(f"Q{next(_fresh)}", facts.peer, facts.incarnation, next(_fresh))
    yield NameQuery("P", facts.peer, facts.incarnation, next(_fresh))


@_makes(NameReply)
def _name_reply(facts: Facts) -> Iterator[Any]:
    for query in facts.world.sent_over(NameQuery, facts.me, facts.peer)[-1:]:
        yield NameReply(query.key, NameStatus.UNKNOWN)
    yield NameReply((facts.me, facts.own_incarnation, next(_fresh)), NameStatus.FREE)
    yield NameReply((facts.other, facts.incarnation, 1), NameStatus.TAKEN, "p")


@_makes(RelayProbe)
def _relay_probe(facts: Facts) -> Iterator[Any]:
    number = PeerSessionId(facts.incarnation, next(_fresh))
    yield RelayProbe(facts.other, number, (facts.peer,))
    yield RelayProbe(facts.me, number, (facts.other, facts.peer))


@_makes(Relayed)
def _relayed(facts: Facts) -> Iterator[Any]:
    route = (facts.other, facts.peer, facts.me)
    hello_packet = Hello(
        facts.other, facts.other, PeerSessionId(facts.incarnation, 1), None, PROTOCOL, 0
    )
    yield Relayed((facts.peer, facts.me, facts.other), 1, hello_packet)
    yield Relayed(route, 2, hello_packet)
    yield Relayed(route, 2, RelayFull(route[::-1]))
    yield Relayed(route, 2, RelayBroken(route[::-1]))


@_makes(RecordPush)
def _record_push(facts: Facts) -> Iterator[Any]:
    held = facts.world.topology.cells
    far = CellRecord(f"z{next(_fresh)}", (CellMember(f"z{next(_fresh)}", addresses=("z:1",)),), ())
    yield RecordPush(held)
    yield RecordPush((far,))


@_makes(RecordList)
def _record_list(facts: Facts) -> Iterator[Any]:
    yield RecordList(tuple(versions_of(facts.world.topology.cells)))
    yield RecordList(())


@_makes(RecordWant)
def _record_want(facts: Facts) -> Iterator[Any]:
    yield RecordWant((facts.me, facts.peer))


def _proposed(facts: Facts) -> tuple[OpPrepare, tuple[CellRecord, ...]]:
    """Return the first message of the append of a new cell to that of the peer, and its records."""
    op = OperationId(facts.peer, next(_fresh))
    held = {each.name: each for each in facts.world.topology.cells}
    own, cell, new = held[facts.me], held[facts.peer], f"z#{op}"
    records = appended(new, (CellMember(f"z{next(_fresh)}"),), cell)
    lead = [
        Participant(each.name, CellMember(each.leader), each.term)
        for each in (own, cell, records[0])
    ]
    lead.sort(key=lambda each: each.cell)
    kind, expected = OperationKind.APPEND, (expected_of(cell),)
    cells, participants = (new, cell.name), tuple(lead)
    return (
        OpPrepare(op, kind, cells, cell.name, cell.term, expected, participants, records),
        records,
    )


@_makes(OpPrepare, OpAbort)
def _prepare(facts: Facts) -> Iterator[Any]:
    prepare, _ = _proposed(facts)
    yield prepare
    yield replace(prepare, op=OperationId(facts.peer, next(_fresh)))
    yield OpAbort(prepare.op, prepare.cell, prepare.term)
    yield OpAbort(prepare.op, prepare.cell, prepare.term, new_term=True)


@_makes(OpSwitch, OpFinish, OpInquire, OpOutcome)
def _decided(facts: Facts) -> Iterator[Any]:
    prepare, records = _proposed(facts)
    op, cell, term = prepare.op, prepare.cell, prepare.term
    yield OpInquire(op, prepare.kind, cell, term, facts.peer, records)
    yield OpOutcome(op, OperationOutcome.ABORTED, term)
    yield OpFinish(op, cell, term)
    yield OpSwitch(op, cell, Term(7, facts.peer), ())


@_makes(OpPrepared, OpRefused, OpSwitched, OpFinished, OpAborted)
def _answers(facts: Facts) -> Iterator[Any]:
    op = OperationId(facts.me, next(_fresh))
    record = next(each for each in facts.world.topology.cells if each.name == facts.peer)
    yield OpPrepared(op, record)
    yield OpRefused(op, RefusalReason.STALE, record)
    yield from (OpSwitched(op), OpFinished(op), OpAborted(op))


@_makes(Takeover, Promise)
def _takeover(facts: Facts) -> Iterator[Any]:
    yield Takeover((facts.peer,), Term(0, facts.peer), ())
    yield Promise((facts.peer,), Term(), None, facts.world.topology.cells)
    yield Promise((facts.me,), Term(), Term(3, facts.me))


@_makes(Superseded)
def _superseded(facts: Facts) -> Iterator[Any]:
    yield Superseded(f"key {next(_fresh)}", 1, facts.peer)


@_makes(FindSubscription)
def _find(facts: Facts) -> Iterator[Any]:
    for name in ("d", f"d{next(_fresh)}"):
        yield FindSubscription(_walk(facts.peer, facts.incarnation), "", name, 100)


@_makes(SubscriptionFound)
def _found(facts: Facts) -> Iterator[Any]:
    host = SubscriptionHost(facts.peer, f"key {next(_fresh)}", 1, ("h:1",))
    yield SubscriptionFound(_walk(facts.me, facts.own_incarnation), FindStatus.FOUND, host)
    yield SubscriptionFound(_walk(facts.other, facts.incarnation), FindStatus.NONE)


@_makes(CollectSubscriptions)
def _collect(facts: Facts) -> Iterator[Any]:
    yield CollectSubscriptions(_walk(facts.peer, facts.incarnation), ("", ""), 100)


@_makes(SubscriptionsCollected)
def _collected(facts: Facts) -> Iterator[Any]:
    host = SubscriptionHost(facts.peer, f"key {next(_fresh)}", 1, ("h:1",))
    entry = DurableEntry("d", host, "TRUE", None, 1)
    key = _walk(facts.me, facts.own_incarnation)
    yield SubscriptionsCollected(key, (entry,), True, (facts.other,))


def _walk(requester: BrokerId, incarnation: int) -> WalkKey:
    return WalkKey(requester, incarnation, next(_fresh))


@_makes(TableRequest, TableStop)
def _table_request(facts: Facts) -> Iterator[Any]:
    yield TableRequest(facts.peer)
    yield TableRequest(facts.peer, TableId(facts.me, facts.own_incarnation, facts.peer), 1)
    yield TableStop(facts.peer)
    yield TableRequest(facts.peer)


@_makes(TableFull)
def _table_full(facts: Facts) -> Iterator[Any]:
    entry = (shb(facts.peer), VectorEntry(VirtualTime(facts.incarnation, 1)))
    yield TableFull(facts.table, 1, 0, 1, ("kind = 1",), (entry,), ((P, 1),), (), 0)
    yield TableFull(facts.table, next(_fresh), 0, 2, ("kind = 1",), (entry,), (), (), 0)


@_makes(TableDelta)
def _table_delta(facts: Facts) -> Iterator[Any]:
    entry = (shb(facts.peer), VectorEntry(VirtualTime(facts.incarnation, 2)))
    late = ((P, (shb(facts.peer),)),)
    yield TableDelta(
        facts.table, 1, 2, ("kind = 5",), ("x = 1",), (entry,), (), ((P, 1),), (), late, 0
    )
    versions = (facts.version, facts.version + 1)
    yield TableDelta(facts.table, *versions, ("k = 5",), (), (), (), (), (), (), 0)


@_makes(Attach)
def _attach(facts: Facts) -> Iterator[Any]:
    for number in NUMBERS:
        yield Attach(P, number, AttachKind.CELL, facts.peer)
        yield Attach(P, number, AttachKind.LEAF, str(shb(facts.peer)))
        yield Attach(
            P, number, AttachKind.PHB_CELL, facts.peer, True, ((facts.peer, facts.peer, shape(2)),)
        )


@_makes(Attached)
def _attached(facts: Facts) -> Iterator[Any]:
    yield from (Attached(P, number, facts.top) for number in NUMBERS)


@_makes(FeedUnavailable)
def _feed_unavailable(facts: Facts) -> Iterator[Any]:
    del facts
    yield from (FeedUnavailable(P, number, FeedUnavailableReason.NO_FEED) for number in NUMBERS)


@_makes(Detach)
def _detach(facts: Facts) -> Iterator[Any]:
    del facts
    yield from (Detach(P, number) for number in NUMBERS)


@_makes(StreamData)
def _stream_data(facts: Facts) -> Iterator[Any]:
    for number in NUMBERS:
        yield StreamData(P, number, facts.known)
        yield StreamData(P, number, facts.known, first=False)


@_makes(StreamSilence)
def _silence(facts: Facts) -> Iterator[Any]:
    yield from (StreamSilence(((P, number, facts.silent, True),)) for number in NUMBERS)


@_makes(StreamEpoch, StreamEpochRequest)
def _stream_epoch(facts: Facts) -> Iterator[Any]:
    if facts.vector is not None:
        yield StreamEpoch(P, facts.stream_epoch, facts.vector.start, 1, None, facts.vector.entries)
    entry = (shb(facts.peer), VectorEntry(VirtualTime(facts.incarnation, 3)))
    unknown = 1_000_000 + next(_fresh)  # so many stream epochs never open
    yield StreamEpoch(P, unknown, facts.top, 1, facts.stream_epoch, (entry,), (shb(facts.me),))
    yield StreamEpochRequest(P, facts.stream_epoch)
    yield StreamEpochRequest(P, unknown + 1)


@_makes(Nack)
def _nack(facts: Facts) -> Iterator[Any]:
    yield Nack(P, (TickRange(facts.seen - 2, facts.seen + 2), TickRange(facts.top, facts.top + 9)))


@_makes(Released, Unreadable)
def _released(facts: Facts) -> Iterator[Any]:
    yield Released(P, facts.seen - 1)
    yield Unreadable(P, facts.seen, facts.seen + 3, "a row is corrupt")


@_makes(DefineMemberSet, ForgetMemberSet, AckReport)
def _report(facts: Facts) -> Iterator[Any]:
    yield DefineMemberSet(1, (facts.member,))
    yield AckReport(1, ((P, 0),))
    yield ForgetMemberSet(1)
    yield AckReport(1, ((P, 0),))


@_makes(AckExpected, AdvanceRequest)
def _ack_expected(facts: Facts) -> Iterator[Any]:
    yield AckExpected(P, facts.seen)
    yield AckExpected(P, facts.seen - 1, pressure=True)
    yield AdvanceRequest(P, facts.top + 1)


@_makes(Read)
def _read(facts: Facts) -> Iterator[Any]:
    low, high, peer = facts.seen - 1, facts.seen + 1, facts.peer
    for form in ReadForm:
        yield Read(P, next(_fresh), peer, (peer,), "kind = 1", low, high, None, 1_000, form=form)
    options = (facts.log_hold, 1_000, low, facts.member)
    yield Read(P, next(_fresh), peer, (peer,), "kind = 1", low, high, *options)


@_makes(ReadReply)
def _read_reply(facts: Facts) -> Iterator[Any]:
    """Yield replies to a pending request, if there is one, and to one that was never sent."""
    here = (facts.me,)
    for read in facts.world.sent_over(Read, facts.me, facts.peer)[-1:]:
        nothing = (P, read.request, here, (), read.low - 1, facts.top, 0, 0)
        yield ReadReply(*nothing, "a row is corrupt")
        yield ReadReply(*nothing)
        missed = facts.missed(read.low)
        yield ReadReply(P, read.request, here, (missed,), missed.high, facts.top, 0, 0)
    number = next(_fresh)
    yield ReadReply(P, number, here, (facts.known,), facts.seen, facts.top, 0, 0)
    yield ReadReply(P, number, (facts.other, *here), (facts.known,), facts.seen, facts.top, 0, 0)
    known = ((VirtualTime(facts.incarnation, 1), facts.seen),)
    others = ((shb(facts.peer), known),)
    yield ReadReply(P, number, here, (), 1, 1, 0, 0, "", known, facts.seen, (b"\x90",), others)


@_makes(CountEvents)
def _count_events(facts: Facts) -> Iterator[Any]:
    peer, ticks = facts.peer, (0, facts.seen, facts.top + 9)
    yield CountEvents(P, next(_fresh), peer, (peer,), ticks)
    yield CountEvents(PubendId("Z"), next(_fresh), peer, (peer,), ticks)


@_makes(EventCounts)
def _event_counts(facts: Facts) -> Iterator[Any]:
    """Yield replies to requests that were never sent."""
    counts = (EventCount(facts.seen, 1, facts.top), EventCount(facts.top, 2, 0))
    yield EventCounts(P, next(_fresh), (facts.me,), 2, counts)
    yield EventCounts(P, next(_fresh), (facts.other, facts.me), 2, ())


@_makes(ReleaseLogHold, LeavePubend, RequestDone)
def _request(facts: Facts) -> Iterator[Any]:
    peer, released = facts.peer, ShbId(f"z{next(_fresh)}", "z")
    yield ReleaseLogHold(P, next(_fresh), peer, (peer,), facts.log_hold)
    yield LeavePubend(P, next(_fresh), peer, (peer,), released, MembershipId(1, 1))
    yield RequestDone(P, next(_fresh), (facts.me,))
    yield RequestDone(P, next(_fresh), (facts.other, facts.me))


@_makes(UnicastRequest)
def _unicast_request(facts: Facts) -> Iterator[Any]:
    """Yield requests to this broker, to another one and to one that does not exist."""
    for to in (shb(facts.me), shb(facts.other), ShbId("z", "z")):
        yield UnicastRequest(to, next(_fresh), facts.peer, (), Walk())
    yield UnicastRequest(shb(facts.me), next(_fresh), facts.other, (facts.peer,), Walk("b"))


@_makes(UnicastReply)
def _unicast_reply(facts: Facts) -> Iterator[Any]:
    """Yield replies to requests that were never sent."""
    record = facts.world[facts.me].neighbourhood.cells[0]
    yield UnicastReply(next(_fresh), (facts.me,), Walked((record,)))
    yield UnicastReply(next(_fresh), (facts.other, facts.me))
