"""Every kind of message between brokers, as a peer could send it, and as none ever should.

What is *plausible* is true, or could be: it names what there is in a world of p - n - c with the pubend P
at p, and repeats what was said before. Whatever is new in it (a pubend, a request, a partition) is new each
time, so that one message does not stand in the way of the next. What is *absurd* has one field changed, to
an extreme or to nonsense, and has come through the codec: a peer could send it, if it were mad.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final, get_args

import msgspec

from gapless.core.errors import ProtocolError
from gapless.core.ids import BrokerId, Entry, Join, PubendId, ShbId, VirtualTime
from gapless.core.ticks import Tick, TickRange
from gapless.messages.mobility import Superseded
from gapless.messages.overlay import (
    Announce,
    Heartbeat,
    Hello,
    NameAnswer,
    NameAsk,
    NameVerdict,
    Partition,
    PartitionInfo,
    PubendProperties,
    RelayBroken,
    Relayed,
    RelayFull,
    RelayProbe,
    Retire,
    SessionId,
    TableState,
)
from gapless.messages.propagation import TableDelta, TableFull, TableId, TableStop, TableWant
from gapless.messages.pubend_requests import Done, HoldId, Leave, Read, ReadReply, ReleaseHold
from gapless.messages.streams import (
    AckExpected,
    Advance,
    Attach,
    Attached,
    AttachKind,
    Detach,
    Frame,
    Member,
    Nack,
    Piece,
    Publication,
    ReadForm,
    Regime,
    RegimeWant,
    Released,
    Report,
    SetDefine,
    SetForget,
    Silence,
    Unfed,
    UnfedReason,
    Unreadable,
)
from gapless.overlay.session import PROTOCOL
from gapless.wire.codec import LINK_PACKETS, Message
from gapless.wire.frames import HEADER_BYTES
from tests.broker.harness import Desk, P
from tests.scenarios.brokers import shb

KINDS: Final = tuple(Relayed if kind.__name__ == "_Carried" else kind for kind in get_args(Message))
"""What a packet may carry, as the codec has it."""

NUMBERS: Final = (2, 3)
"""Attach numbers: the first of a router's feed, and of a leaf's."""

_fresh = itertools.count(1_000)


class Facts:
    """What a peer and the broker that it writes to may both know."""

    def __init__(self, world: Desk, me: BrokerId, peer: BrokerId, seen: Tick) -> None:
        self.world = world
        self.me = me
        self.peer = peer
        (self.other,) = {"p", "n", "c"} - {me, peer}
        self.clock = world[me].context.clock
        self.life = world[peer].context.identity.life
        self.own_life = world[me].context.identity.life
        pubend = world.pubend("p", P)
        self.seen = seen
        """The tick of the event e1."""
        self.top = pubend.top
        self.regime = pubend.regime_of(self.top)
        self.vector = pubend.vector(self.regime)
        event = Publication(seen, "ann", 1, {"kind": 1}, b"e1")
        self.known = Piece(seen, seen, pubend.regime_of(seen), 0, (event,))
        self.silent = Piece(seen + 1, seen + 1, pubend.regime_of(seen + 1), 0)
        self.member = Member(shb(peer), Join(self.life, 1), True, VirtualTime(self.life, 1))
        self.hold = HoldId(shb(peer), f"x/{next(_fresh)}")
        self.table = TableId(peer, self.life, me)
        self.version = world[peer].tables.holdings.out[me].sender.table.version
        """Of that table of the peer."""

    def missed(self, low: Tick) -> Piece:
        """Return what the log has from a tick on, up to the last event."""
        row = self.world.nodes["p"].disk.logs[P][-1]
        regime = self.world.pubend("p", P).regime_of(row.last)
        return Piece(low, row.last, regime, 0, row.publications)


def plausible(facts: Facts, kind: type) -> list[Any]:
    """Return messages of a kind that a peer could send; some need others before them."""
    return [*_MAKERS[kind](facts)]


def nth(facts: Facts, kind: type, number: int) -> Any:
    """Return one of these."""
    return plausible(facts, kind)[number]


def hello(facts: Facts, heard: SessionId | None = None) -> Hello:
    """Return how a peer opens a session."""
    own = SessionId(facts.life, next(_fresh))
    return Hello(facts.peer, facts.peer, own, heard, PROTOCOL, 0)


# --- absurd ---------------------------------------------------------------------------------------

_INTEGERS: Final = (0, 1, 2, -1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1)
_TEXTS: Final = ("n", "", "nowhere", "a@b", "n > ", "x" * 300)


def absurd(make: Callable[[], Any]) -> Iterator[Any]:
    """Yield a message with every field changed in turn, to mild values first, then to extremes.

    It is made anew each time, so that what is new in it is.
    """
    places = [*_places(msgspec.to_builtins(make(), builtin_types=(bytes,)))]
    for turn in range(max(len(_INTEGERS), len(_TEXTS))):
        for place, value in places:
            others = _others(value)
            if turn < len(others):
                plain = msgspec.to_builtins(make(), builtin_types=(bytes,))
                yield from _through_the_codec(_replaced(plain, place, others[turn]))


def _places(plain: Any, place: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Yield all places of a message, but for its tag."""
    if place not in {(), (0,)}:
        yield place, plain
    if isinstance(plain, list | tuple):
        for number, each in enumerate(plain):
            yield from _places(each, (*place, number))


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


def _replaced(plain: Any, place: tuple[int, ...], value: Any) -> Any:
    if not place:
        return value
    changed = [*plain]
    changed[place[0]] = _replaced(plain[place[0]], place[1:], value)
    return changed


def _through_the_codec(plain: Any) -> Iterator[Any]:
    """Yield what comes out at the other end, if that is a message at all."""
    tagged = ["Packet", [1, 1], [1, 1], 1, [plain]] if plain[0] != "Hello" else plain
    try:
        found = LINK_PACKETS.decode(LINK_PACKETS.encode(tagged)[HEADER_BYTES:])
    except ProtocolError:
        return
    yield found if isinstance(found, Hello) else found.messages[0]


# --- plausible, kind by kind ------------------------------------------------------------------------

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
    news = PubendId(f"Z{next(_fresh)}")
    yield Announce(news, 1, PubendProperties(peer, peer, "kind = 1"), (peer,))
    way = ("p",) if peer == "p" else (peer, "p")
    yield Announce(P, 1, PubendProperties("p", "p", "TRUE"), way)


@_makes(PartitionInfo)
def _partition(facts: Facts) -> Iterator[Any]:
    partition = Partition(facts.peer, next(_fresh), ("z",))
    yield PartitionInfo(partition, facts.life, True, 2)
    yield PartitionInfo(partition, facts.life, False, 2, 1)


@_makes(Retire)
def _retire(_facts: Facts) -> Iterator[Any]:
    yield Retire(f"z{next(_fresh)}", "z", 1)


@_makes(NameAsk)
def _name_ask(facts: Facts) -> Iterator[Any]:
    yield NameAsk(f"Q{next(_fresh)}", facts.peer, facts.life, next(_fresh))
    yield NameAsk("P", facts.peer, facts.life, next(_fresh))


@_makes(NameAnswer)
def _name_answer(facts: Facts) -> Iterator[Any]:
    for asked in facts.world.sent_over(NameAsk, facts.me, facts.peer)[-1:]:
        yield NameAnswer(asked.key, NameVerdict.UNKNOWN)
    yield NameAnswer((facts.me, facts.own_life, next(_fresh)), NameVerdict.FREE)
    yield NameAnswer((facts.other, facts.life, 1), NameVerdict.TAKEN, "p")


@_makes(RelayProbe)
def _relay_probe(facts: Facts) -> Iterator[Any]:
    number = SessionId(facts.life, next(_fresh))
    yield RelayProbe(facts.other, number, (facts.peer,))
    yield RelayProbe(facts.me, number, (facts.other, facts.peer))


@_makes(Relayed)
def _relayed(facts: Facts) -> Iterator[Any]:
    way = (facts.other, facts.peer, facts.me)
    greeting = Hello(facts.other, facts.other, SessionId(facts.life, 1), None, PROTOCOL, 0)
    yield Relayed((facts.peer, facts.me, facts.other), 1, greeting)
    yield Relayed(way, 2, greeting)
    yield Relayed(way, 2, RelayFull(way[::-1]))
    yield Relayed(way, 2, RelayBroken(way[::-1]))


@_makes(Superseded)
def _superseded(facts: Facts) -> Iterator[Any]:
    yield Superseded(f"birth {next(_fresh)}", 1, facts.peer)


@_makes(TableWant, TableStop)
def _table_want(facts: Facts) -> Iterator[Any]:
    yield TableWant(facts.peer)
    yield TableWant(facts.peer, TableId(facts.me, facts.own_life, facts.peer), 1)
    yield TableStop(facts.peer)
    yield TableWant(facts.peer)


@_makes(TableFull)
def _table_full(facts: Facts) -> Iterator[Any]:
    entry = (shb(facts.peer), Entry(VirtualTime(facts.life, 1)))
    yield TableFull(facts.table, 1, 0, 1, ("kind = 1",), (entry,), ((P, 1),), (), 0)
    yield TableFull(facts.table, next(_fresh), 0, 2, ("kind = 1",), (entry,), (), (), 0)


@_makes(TableDelta)
def _table_delta(facts: Facts) -> Iterator[Any]:
    entry = (shb(facts.peer), Entry(VirtualTime(facts.life, 2)))
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
        yield Attach(P, number, AttachKind.HOME, facts.peer, True, ((facts.peer, 2),))


@_makes(Attached)
def _attached(facts: Facts) -> Iterator[Any]:
    yield from (Attached(P, number, facts.top) for number in NUMBERS)


@_makes(Unfed)
def _unfed(facts: Facts) -> Iterator[Any]:
    del facts
    yield from (Unfed(P, number, UnfedReason.NO_FEED) for number in NUMBERS)


@_makes(Detach)
def _detach(facts: Facts) -> Iterator[Any]:
    del facts
    yield from (Detach(P, number) for number in NUMBERS)


@_makes(Frame)
def _frame(facts: Facts) -> Iterator[Any]:
    for number in NUMBERS:
        yield Frame(P, number, facts.known)
        yield Frame(P, number, facts.known, first=False)


@_makes(Silence)
def _silence(facts: Facts) -> Iterator[Any]:
    yield from (Silence(((P, number, facts.silent, True),)) for number in NUMBERS)


@_makes(Regime, RegimeWant)
def _regime(facts: Facts) -> Iterator[Any]:
    if facts.vector is not None:
        yield Regime(P, facts.regime, facts.vector.start, 1, None, facts.vector.entries)
    entry = (shb(facts.peer), Entry(VirtualTime(facts.life, 3)))
    unheard = 1_000_000 + next(_fresh)  # that many never open
    yield Regime(P, unheard, facts.top, 1, facts.regime, (entry,), (shb(facts.me),))
    yield RegimeWant(P, facts.regime)
    yield RegimeWant(P, unheard + 1)


@_makes(Nack)
def _nack(facts: Facts) -> Iterator[Any]:
    yield Nack(P, (TickRange(facts.seen - 2, facts.seen + 2), TickRange(facts.top, facts.top + 9)))


@_makes(Released, Unreadable)
def _released(facts: Facts) -> Iterator[Any]:
    yield Released(P, facts.seen - 1)
    yield Unreadable(P, facts.seen, facts.seen + 3, "a row is damaged")


@_makes(SetDefine, SetForget, Report)
def _report(facts: Facts) -> Iterator[Any]:
    yield SetDefine(1, (facts.member,))
    yield Report(1, ((P, 0),))
    yield SetForget(1)
    yield Report(1, ((P, 0),))


@_makes(AckExpected, Advance)
def _ack_expected(facts: Facts) -> Iterator[Any]:
    yield AckExpected(P, facts.seen)
    yield AckExpected(P, facts.seen - 1, pressure=True)
    yield Advance(P, facts.top + 1)


@_makes(Read)
def _read(facts: Facts) -> Iterator[Any]:
    low, high, peer = facts.seen - 1, facts.seen + 1, facts.peer
    for form in ReadForm:
        yield Read(P, next(_fresh), peer, (peer,), "kind = 1", low, high, None, 1_000, form=form)
    options = (facts.hold, 1_000, low, facts.member)
    yield Read(P, next(_fresh), peer, (peer,), "kind = 1", low, high, *options)


@_makes(ReadReply)
def _read_reply(facts: Facts) -> Iterator[Any]:
    """Answers to a question that was asked, if one was, and to one that was not."""
    here = (facts.me,)
    for read in facts.world.sent_over(Read, facts.me, facts.peer)[-1:]:
        nothing = (P, read.request, here, (), read.low - 1, facts.top, 0, 0)
        yield ReadReply(*nothing, "a row is damaged")
        yield ReadReply(*nothing)
        missed = facts.missed(read.low)
        yield ReadReply(P, read.request, here, (missed,), missed.high, facts.top, 0, 0)
    number = next(_fresh)
    yield ReadReply(P, number, here, (facts.known,), facts.seen, facts.top, 0, 0)
    yield ReadReply(P, number, (facts.other, *here), (facts.known,), facts.seen, facts.top, 0, 0)
    known = ((VirtualTime(facts.life, 1), facts.seen),)
    others = ((shb(facts.peer), known),)
    yield ReadReply(P, number, here, (), 1, 1, 0, 0, "", known, facts.seen, (b"\x90",), others)


@_makes(ReleaseHold, Leave, Done)
def _request(facts: Facts) -> Iterator[Any]:
    peer, gone = facts.peer, ShbId(f"z{next(_fresh)}", "z")
    yield ReleaseHold(P, next(_fresh), peer, (peer,), facts.hold)
    yield Leave(P, next(_fresh), peer, (peer,), gone, Join(1, 1))
    yield Done(P, next(_fresh), (facts.me,))
    yield Done(P, next(_fresh), (facts.other, facts.me))
