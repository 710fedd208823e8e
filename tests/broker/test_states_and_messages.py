"""Every state of a session and of a feed, and every kind of message that a peer may send in it.

Whatever comes, the broker goes on, sends nothing to somebody without a session, and delivers nothing
twice. What belongs to no session that it has changes nothing at all (R1, I12). One error is meant to end
it: two statements about one tick that cannot both be true (GD's state E).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from gapless.broker import Broker, stream_messages
from gapless.core.ids import BrokerId, PubendId
from gapless.core.machine import Effect, LinkUp, Received, Send, StepTime
from gapless.core.ticks import Tick
from gapless.messages.clients import OpenPubend
from gapless.messages.overlay import (
    Announce,
    Hello,
    NameQuery,
    NameReply,
    Packet,
    PeerSessionId,
    PubendProperties,
    RelayBroken,
    Relayed,
    RelayFull,
)
from gapless.messages.pubend_requests import Read, ReadReply
from gapless.messages.streams import (
    Attached,
    KnowledgeRange,
    Nack,
    Publication,
    StreamData,
    StreamEpochRequest,
    StreamSilence,
)
from gapless.overlay.session import PeerSession
from gapless.stream.ranges import KnowledgeConflictError, invalid_reason
from gapless.wire.codec import LINK_PACKETS
from gapless_lab.sim.planted_bugs import patched
from tests.broker.harness import BrokerHarness, P
from tests.broker.packets import KINDS, NUMBERS, Facts, absurd, hello, nth, plausible
from tests.scenarios.brokers import Node, Subscriber, of

PAIRS: tuple[tuple[BrokerId, BrokerId], ...] = (("p", "n"), ("n", "p"), ("c", "n"))
"""Who writes to whom: a feeder, one who is fed by the pubend's broker, one who is fed by a router."""


def named(kind: type) -> str:
    return kind.__name__


class Guarded(BrokerHarness):
    """Whole brokers that are watched: what they send can be sent, and goes to whom they may talk to."""

    def _carry_out(self, node: Node, broker: Broker, effect: Effect) -> None:
        if isinstance(effect, Send):
            check_that_it_may_be_sent(broker, effect)
        super()._carry_out(node, broker, effect)


def check_that_it_may_be_sent(broker: Broker, send: Send) -> None:
    assert LINK_PACKETS.frames(send.packet), "it fits the wire"
    if isinstance(send.packet, Packet):
        assert broker.components.sessions.is_open(send.peer), f"{send} has no session"
    else:
        assert isinstance(send.packet, Hello)
        assert send.peer in broker.neighbourhood.all_brokers(), f"{send} goes to a stranger"


def ends(world: BrokerHarness, me: BrokerId, peer: BrokerId) -> tuple[PeerSessionId, PeerSessionId]:
    """Return both ends of an open session, as a packet of the peer names them."""
    session = world[me].components.sessions._peers[peer].direct
    assert session.is_open
    assert session.theirs is not None
    return session.theirs, session.mine


def every_message(facts: Facts, kind: type) -> Iterator[Any]:
    """Yield what a peer could say of a kind, and what it should not."""
    for number in range(len(plausible(facts, kind))):
        yield nth(facts, kind, number)
        yield from absurd(partial(nth, facts, kind, number))


def test_every_kind_that_a_packet_may_carry_is_made_here() -> None:
    scene = Scene("attached")
    for kind in KINDS:
        made = plausible(scene.facts("n", "p"), kind)
        assert kind in {type(each) for each in made}
        assert len([*every_message(scene.facts("n", "p"), kind)]) > len(made)


# --- sessions ---------------------------------------------------------------------------------------


class Meeting:
    """Broker n, where x is subscribed, and p, which feeds it; then something becomes of their session."""

    def __init__(self, state: str) -> None:
        self.world = world = Guarded("p-n-c", delta=1)
        self.ann = world.publisher("p")
        self.x = world.subscriber("n", "x", "TRUE", durable=True)
        world.run(ms=500)
        for label in ("e1", "e2"):
            self.ann.publish(label, kind=1)
        world.run(ms=100)
        assert self.x.events == ["e1", "e2"]
        self.x.acknowledge(P, self.ann.ticks["e2"])
        world.run(s=1)  # by then it is on disk
        self.peer = "p"
        self.facts = Facts(world, "n", "p", self.ann.ticks["e1"])
        self.ends = ends(world, "n", "p")
        """What a packet of the peer names."""
        SESSIONS[state](self)

    def step(self, packet: Any) -> list[Effect]:
        """Let a packet come to n; return what follows at once."""
        context = self.world["n"].context
        return self.world["n"].step(
            Received(self.peer, packet), StepTime(context.now, context.clock)
        )

    def goes_on(self) -> bool:
        """Let p and n meet again; say whether x gets what comes then, and nothing twice."""
        world = self.world
        if world.nodes["p"].broker is None:
            world.start("p")
        world.heal("p", "n")
        world.run(ms=500)
        self.ann.connect()
        self.ann.open()
        if "x" not in world.nodes["n"].clients:
            self.x.come_back()
        self.ann.publish("e3")
        return world.wait(lambda: self.x.events == ["e1", "e2", "e3"], s=20)


def unknown_broker(meeting: Meeting) -> None:
    """The peer is nobody that n knows of."""
    meeting.peer = "z"


def no_session(meeting: Meeting) -> None:
    """In its new life n has met nobody, and p is down; what comes is of n's life before."""
    meeting.world.crash("p")
    meeting.world.restart("n")
    meeting.world.run(ms=100)


def opening(meeting: Meeting) -> None:
    """Then p can be reached and is greeted; it has not answered, and what comes is of another life."""
    no_session(meeting)
    meeting.world.happen("n", LinkUp("p"))
    meeting.ends = (meeting.ends[0], meeting.world["n"].components.sessions._peers["p"].direct.mine)


def greeted(meeting: Meeting) -> None:
    """It has greeted too, and not yet heard n; what comes is of an older session of it."""
    opening(meeting)
    meeting.world.happen("n", Received("p", hello(meeting.facts)))


def opened_again(meeting: Meeting) -> None:
    """The two have another session now; what comes is of the one before."""
    meeting.world.cut("p", "n")
    meeting.world.heal("p", "n")
    meeting.world.run(ms=100)
    assert ends(meeting.world, "n", "p") != meeting.ends


def closed_again(meeting: Meeting) -> None:
    """The link is gone; what comes was under way."""
    meeting.world.cut("p", "n")


def retired_by_the_peer(meeting: Meeting) -> None:
    """The peer is in a new life; what comes is of the one before."""
    meeting.world.restart("p")
    meeting.world.run(ms=100)
    assert ends(meeting.world, "n", "p")[0].incarnation > meeting.ends[0].incarnation


def retired_here(meeting: Meeting) -> None:
    """Broker n is in a new life; what comes was for the one before."""
    meeting.world.restart("n")
    meeting.world.run(ms=100)
    assert ends(meeting.world, "n", "p")[1].incarnation > meeting.ends[1].incarnation


SESSIONS: dict[str, Callable[[Meeting], None]] = {
    each.__name__: each
    for each in (
        unknown_broker,
        no_session,
        opening,
        greeted,
        opened_again,
        closed_again,
        retired_by_the_peer,
        retired_here,
    )
}


@pytest.fixture(scope="module", params=SESSIONS)
def meeting(request: pytest.FixtureRequest) -> Meeting:
    """Return a meeting for many messages: they must not change it."""
    return Meeting(request.param)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_what_belongs_to_no_session_changes_nothing(meeting: Meeting, kind: type) -> None:
    broker = meeting.world["n"]
    due, horizon = broker.next_timer(), meeting.world.horizon("n", P)
    ignored = sum(broker.coverage_marks.values())
    count = 0
    for message in every_message(meeting.facts, kind):
        assert meeting.step(Packet(*meeting.ends, 1, (message,))) == [], message
        count += 1
    assert sum(broker.coverage_marks.values()) == ignored + count, "each is noted, and nothing else"
    assert (broker.next_timer(), meeting.world.horizon("n", P)) == (due, horizon)
    assert meeting.x.events == ["e1", "e2"]


def test_without_the_fence_a_message_of_a_dead_session_is_taken() -> None:
    def without_a_fence(session: PeerSession, packet: Packet) -> None:
        for message in packet.messages:
            session._owner.message_received(session, message)

    meeting = Meeting("retired_by_the_peer")
    with patched(PeerSession, "_packet", without_a_fence):
        effects = [
            meeting.step(Packet(*meeting.ends, 1, (message,)))
            for message in plausible(meeting.facts, StreamEpochRequest)
        ]
    assert any(effects)


@pytest.mark.parametrize("state", SESSIONS)
def test_after_what_belonged_to_no_session_all_goes_on(state: str) -> None:
    meeting = Meeting(state)
    for kind in KINDS:
        for message in plausible(meeting.facts, kind):
            meeting.world.happen("n", Received(meeting.peer, Packet(*meeting.ends, 1, (message,))))
    assert meeting.goes_on()
    assert meeting.x.gaps == []


@pytest.mark.parametrize("state", SESSIONS)
def test_whoever_greets_however_is_answered_by_a_handshake_or_not_at_all(state: str) -> None:
    meeting = Meeting(state)
    known = meeting.world["n"].neighbourhood.all_brokers()
    for heard in (None, meeting.ends[1], PeerSessionId(1, 1)):
        greet = partial(hello, meeting.facts, heard)
        for packet in (greet(), *absurd(greet)):
            for effect in meeting.step(packet):
                if isinstance(effect, Send):
                    check_that_it_may_be_sent(meeting.world["n"], effect)
                    assert meeting.peer in known
    assert meeting.x.events == ["e1", "e2"]


# --- feeds ------------------------------------------------------------------------------------------

FEEDS = ("not attached", "attaching", "attached", "detached")

POSITIONS = [
    *((peer, me, state) for peer, me in PAIRS for state in FEEDS),
    ("p", "n", "catching up"),
]
"""Who writes to whom, and how far n is with P; in the last one it waits for answers of p."""


class Scene:
    """Hosts n and c, fed with P over n, or not yet, or no more; all sessions are open."""

    def __init__(self, state: str) -> None:
        self.world = world = Guarded("p-n-c", delta=1, interest_grace_s=1)
        self.ann = world.publisher("p")
        self.subscribers: list[Subscriber] = []
        self.expected: list[str] = []
        """What each of them has, or will have when what is lost comes again."""
        if state == "attaching":
            world.lose(of(Attached))
        if state != "not attached":
            self.subscribers = [
                world.subscriber("n", "x", "TRUE", durable=True),
                world.subscriber("c", "y", "TRUE"),
            ]
            world.run(ms=500)
        for label in ("e1", "e2"):
            self.ann.publish(label, kind=1)
        world.run(ms=100)
        if state in {"attached", "detached", "catching up"}:
            self.expected = ["e1", "e2"]
        assert [each.events for each in self.subscribers] == [self.expected] * len(self.subscribers)
        self.before = [each.publications for each in self.subscribers]
        if state == "detached":
            self._end()
        if state == "catching up":
            self._fall_behind()
        feeder = "p" if state in {"attached", "catching up"} else None
        assert world["n"].components.router.feeder(P) == feeder

    def _end(self) -> None:
        for each in self.subscribers:
            each.end()
        assert self.world.wait(lambda: self.world["n"].components.router.feeder(P) is None, s=60)
        self.subscribers, self.before = [], []

    def _fall_behind(self) -> None:
        """Let x come back to what it has missed, and a pubend be made; no answer of p comes."""
        x, world = self.subscribers[0], self.world
        x.acknowledge(P, self.ann.ticks["e2"])
        x.leave()
        self.ann.publish("missed", kind=1)
        self.expected.append("missed")
        world.run(s=1)
        world.lose(of(ReadReply, NameReply, source="p"))
        x.come_back()
        world.client("n").request(OpenPubend(1, "new"))
        world.run(ms=200)
        assert world.sent_over(Read, "n", "p")
        assert world.sent_over(NameQuery, "n", "p")

    def facts(self, me: BrokerId, peer: BrokerId) -> Facts:
        """Return what a broker and its peer know."""
        return Facts(self.world, me, peer, self.ann.ticks["e1"])

    def deliver(self, peer: BrokerId, me: BrokerId, message: Any) -> None:
        """Let a message come from a peer in their session."""
        packet = Packet(*ends(self.world, me, peer), 1, (message,))
        self.world.happen(me, Received(peer, packet))
        self.world.run(ms=3)

    def check_what_was_delivered(self) -> None:
        """Nobody was given anything twice or out of order, and what was given is as it was."""
        for each, before in zip(self.subscribers, self.before, strict=True):
            assert each.publications[: len(before)] == before
            ticks = [event.tick for pubend, event in each.publications if pubend == P]
            assert ticks == sorted(set(ticks)), ticks

    def goes_on(self) -> bool:
        """Let one more subscribe, and an event come; say whether all have what they are owed, once."""
        self.world.faults.clear()
        newcomer = self.world.subscriber("n", "newcomer", "TRUE")
        present = [*self.subscribers, newcomer]
        self.world.wait(lambda: all(P in each.starts for each in present), s=20)
        self.ann.publish("e3")
        self.world.wait(lambda: all(each.events[-1:] == ["e3"] for each in present), s=20)
        wanted = [[*self.expected, "e3"]] * len(self.subscribers) + [["e3"]]
        return [each.events for each in present] == wanted and not any(
            each.gaps for each in present
        )


@pytest.mark.parametrize("kind", KINDS, ids=named)
@pytest.mark.parametrize(("peer", "me", "state"), POSITIONS)
def test_what_a_peer_could_say_harms_nobody(
    peer: BrokerId, me: BrokerId, state: str, kind: type
) -> None:
    scene = Scene(state)
    for message in plausible(scene.facts(me, peer), kind):
        scene.deliver(peer, me, message)
        scene.check_what_was_delivered()
    assert scene.goes_on()


@pytest.mark.parametrize("kind", KINDS, ids=named)
@pytest.mark.parametrize(("peer", "me", "state"), POSITIONS)
def test_what_a_peer_should_never_say_breaks_nothing(
    peer: BrokerId, me: BrokerId, state: str, kind: type
) -> None:
    scene = Scene(state)
    for message in every_message(scene.facts(me, peer), kind):
        try:
            scene.deliver(peer, me, message)
        except KnowledgeConflictError:
            assert kind in {StreamData, StreamSilence}
            scene = Scene(state)
        scene.check_what_was_delivered()
    scene.world.run(s=3)
    scene.check_what_was_delivered()


# --- what makes no sense in itself --------------------------------------------------------------------

REFUSED_RANGE = "invalid knowledge range"


@pytest.mark.parametrize("text", ["n > ", "a@b", "x" * 70_000])
def test_an_advertisement_that_cannot_be_read_is_borne(text: str) -> None:
    scene = Scene("attached")
    news = Announce(PubendId("Z"), 1, PubendProperties("p", "p", text), ("p",))
    scene.deliver("p", "n", news)
    assert scene.goes_on()


@pytest.mark.parametrize("kind", [RelayBroken, RelayFull], ids=named)
def test_a_relays_word_of_no_route_is_borne(kind: type) -> None:
    scene = Scene("attached")
    word = Relayed(("c", "p", "n"), 2, kind(()))
    scene.deliver("p", "n", word)
    assert scene.goes_on()


def invalid_ranges(after: Tick, stream_epoch: int) -> dict[str, KnowledgeRange]:
    """Return knowledge above a tick that contradicts itself."""

    def knowledge(*ticks: Tick) -> KnowledgeRange:
        events = [Publication(after + tick, "ann", 9, {}, b"e9") for tick in ticks]
        return KnowledgeRange(after + 1, after + 9, stream_epoch, 0, tuple(events))

    return {
        "backwards": KnowledgeRange(after + 9, after + 1, stream_epoch, 0),
        "an event twice": knowledge(5, 5),
        "events out of order": knowledge(6, 5),
        "an event below it": knowledge(0),
        "an event above it": knowledge(50_000),
    }


@pytest.mark.parametrize("what", invalid_ranges(0, 0))
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("is_silence", [False, True])
def test_a_piece_that_is_none_is_not_taken(what: str, number: int, is_silence: bool) -> None:
    scene = Scene("attached")
    facts = scene.facts("n", "p")
    piece = invalid_ranges(facts.top, facts.stream_epoch)[what]
    told = (
        StreamSilence(((P, number, piece, True),)) if is_silence else StreamData(P, number, piece)
    )
    scene.deliver("p", "n", told)
    assert scene.world["n"].coverage_marks[REFUSED_RANGE] == 1
    scene.world.run(s=1)
    scene.check_what_was_delivered()
    assert [each.events for each in scene.subscribers] == [["e1", "e2"]] * 2
    assert scene.goes_on()


def test_beside_a_piece_that_is_none_others_are_taken() -> None:
    scene = Scene("attached")
    scene.world.lose(of(StreamData, StreamSilence))
    facts = scene.facts("n", "p")
    pieces = invalid_ranges(facts.top, facts.stream_epoch)
    event = Publication(facts.top + 5, "ann", 9, {}, b"e9")
    sound = KnowledgeRange(facts.top + 1, facts.top + 9, facts.stream_epoch, 0, (event,))
    told = [(P, NUMBERS[0], piece, True) for piece in (*pieces.values(), sound)]
    scene.deliver("p", "n", StreamSilence(tuple(told)))
    assert scene.world["n"].coverage_marks[REFUSED_RANGE] == len(pieces)
    assert scene.subscribers[0].events == ["e1", "e2", "e9"]


def spoilt(message: Any) -> Any:
    """Return a frame that tells its last event twice, and silence that ends before it begins."""
    if isinstance(message, StreamData):
        knowledge = message.knowledge
        bad = replace(
            knowledge, publications=(*knowledge.publications, *knowledge.publications[-1:])
        )
        return replace(message, knowledge=bad)
    if isinstance(message, StreamSilence):
        sent = [
            (*each[:2], replace(each[2], high=each[2].low - 1), each[3]) for each in message.ranges
        ]
        return StreamSilence(tuple(sent))
    return message


class Misled(Guarded):
    """Whole brokers, one of which may tell nothing of streams that makes sense."""

    liar: BrokerId | None = None

    def _send(self, source: BrokerId, target: BrokerId, packet: Any) -> None:
        if source == self.liar and isinstance(packet, Packet):
            packet = replace(packet, messages=tuple(map(spoilt, packet.messages)))
        super()._send(source, target, packet)


def test_what_was_refused_is_asked_for_again() -> None:
    scene = Scene("attached")
    world = scene.world
    lost = world.lose(of(StreamData, source="p"))
    scene.ann.publish("refused", kind=1)
    scene.expected.append("refused")
    world.run(ms=20)
    (packet,) = [packet for _, target, packet in lost.struck if target == "n"]
    (frame,) = packet.messages
    since = world.now
    scene.deliver("p", "n", spoilt(frame))
    assert world["n"].coverage_marks[REFUSED_RANGE] == 1
    world.faults.clear()
    world.run(s=3)
    assert world.sent_over(Nack, "n", "p", since)
    assert [each.events for each in scene.subscribers] == [scene.expected] * 2
    assert scene.goes_on()


def test_a_feeder_that_tells_nothing_sound_is_left_for_another() -> None:
    world = Misled("p-m-n", cells={"m": ["m1", "m2"]})
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    feeder = world.liar = world["n"].components.router.feeder(P)
    assert feeder in {"m1", "m2"}
    ann.publish("e1")
    assert world.wait(lambda: x.events == ["e1"], s=60)
    assert world["n"].coverage_marks[REFUSED_RANGE] >= 1
    assert world["n"].components.router.feeder(P) not in {None, feeder}


def test_a_piece_is_examined_once_by_each_broker_it_comes_to_and_not_where_it_is_made() -> None:
    seen: list[KnowledgeRange] = []

    def noted(piece: KnowledgeRange) -> str | None:
        seen.append(piece)
        return invalid_reason(piece)

    scene = Scene("attached")
    here = scene.world.subscriber("p", "z", "TRUE")
    scene.world.run(s=1)
    with patched(stream_messages, "invalid_reason", noted):
        scene.ann.publish("e3")
        scene.world.run(ms=100)
    assert [each.events[-1] for each in (*scene.subscribers, here)] == ["e3"] * 3
    assert len([piece for piece in seen if piece.publications]) == 2, "at n and at c"


def invalid_replies(true: ReadReply) -> dict[str, ReadReply]:
    """Return answers to a read that contradict themselves, or the question, made of a true one."""
    (knowledge,) = true.ranges
    (event,) = knowledge.publications
    twice = replace(knowledge, publications=(event, event))
    rest = replace(knowledge, low=event.tick)
    return {
        "an event twice": replace(true, ranges=(twice,)),
        "a piece twice": replace(true, ranges=(knowledge, knowledge)),
        "an end below its pieces": replace(true, done=knowledge.low),
        "a beginning above what was asked for": replace(true, ranges=(rest,)),
        "a beginning below what was asked for": replace(
            true, ranges=(replace(knowledge, low=knowledge.low - 1),)
        ),
        "a hole": replace(
            true,
            ranges=(KnowledgeRange(knowledge.low, knowledge.low, knowledge.stream_epoch, 0), rest),
        ),
    }


@pytest.mark.parametrize(
    "what",
    [
        "an event twice",
        "a piece twice",
        "an end below its pieces",
        "a beginning above what was asked for",
        "a beginning below what was asked for",
        "a hole",
    ],
)
def test_a_reply_that_contradicts_itself_is_not_taken(what: str) -> None:
    scene = Scene("catching up")
    x, world = scene.subscribers[0], scene.world
    true = plausible(scene.facts("n", "p"), ReadReply)[2]
    since = world.now
    scene.deliver("p", "n", invalid_replies(true)[what])
    assert world["n"].coverage_marks["answer that makes no sense"] == 1
    assert x.events == ["e1", "e2"]
    world.faults.clear()
    world.run(s=2)
    scene.check_what_was_delivered()
    assert world.sent_over(Read, "n", "p", since), "it is asked for again"
    assert x.events == ["e1", "e2", "missed"]


def test_the_reply_that_they_are_made_of_is_taken() -> None:
    scene = Scene("catching up")
    scene.deliver("p", "n", plausible(scene.facts("n", "p"), ReadReply)[2])
    assert scene.subscribers[0].events == ["e1", "e2", "missed"]
    assert "answer that makes no sense" not in scene.world["n"].coverage_marks
