"""Every state of a session and of a feed, and every kind of message that a peer may send in it.

For every message the broker keeps running, sends nothing to a peer without a session, and delivers
nothing twice. Messages of no current session have no effect at all (R1, I12). One error must stop the
broker: two statements about one tick that cannot both be true (GD's state E).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from gapless.broker import Broker, stream_messages
from gapless.core.context import StepTime
from gapless.core.effects import Effect, Send
from gapless.core.events import LinkUp, Received
from gapless.core.ids import BrokerId, PubendId
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
from gapless.stream.ranges import invalid_reason
from gapless.wire.codec import LINK_PACKETS
from gapless.wire.frames import HEADER_BYTES
from gapless_lab.sim.planted_bugs import patched
from tests.broker.harness import BrokerHarness, P
from tests.broker.packets import KINDS, NUMBERS, Facts, absurd, hello, nth, plausible
from tests.scenarios.brokers import Node, Subscriber, of

PAIRS: tuple[tuple[BrokerId, BrokerId], ...] = (("p", "n"), ("n", "p"), ("c", "n"))
"""Sender and receiver: a feeder, a receiver fed by the PHB, and one fed by a router."""


def named(kind: type) -> str:
    return kind.__name__


class Guarded(BrokerHarness):
    """Whole brokers with a check that every packet can be sent, and to an allowed peer."""

    def _carry_out(self, node: Node, broker: Broker, effect: Effect) -> None:
        if isinstance(effect, Send):
            check_that_it_may_be_sent(broker, effect)
        super()._carry_out(node, broker, effect)


def check_that_it_may_be_sent(broker: Broker, send: Send) -> None:
    frames = LINK_PACKETS.frames(send.packet)
    assert all(LINK_PACKETS.decode(frame[HEADER_BYTES:]) for frame in frames), "others can read it"
    if isinstance(send.packet, Packet):
        assert broker.components.sessions.is_open(send.peer), f"{send} has no session"
    else:
        assert isinstance(send.packet, Hello)
        assert send.peer in broker.neighbourhood.all_brokers(), f"{send} goes to an unknown broker"


def ends(world: BrokerHarness, me: BrokerId, peer: BrokerId) -> tuple[PeerSessionId, PeerSessionId]:
    """Return both ends of an open session, as a packet of the peer names them."""
    session = world[me].components.sessions._peers[peer].direct
    assert session.is_open
    assert session.theirs is not None
    return session.theirs, session.mine


def every_message(facts: Facts, kind: type) -> Iterator[Any]:
    """Yield valid and invalid messages of a kind."""
    for number in range(len(plausible(facts, kind))):
        yield nth(facts, kind, number)
        yield from absurd(partial(nth, facts, kind, number))


def test_every_message_type_of_a_packet_has_a_maker() -> None:
    scene = Scene("attached")
    for kind in KINDS:
        made = plausible(scene.facts("n", "p"), kind)
        assert kind in {type(each) for each in made}
        assert len([*every_message(scene.facts("n", "p"), kind)]) > len(made)


# --- sessions -------------------------------------------------------------------------------------


class SessionScene:
    """Broker n, where x is subscribed, and p, which feeds it; then their session changes."""

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
        """The session ids in packets of the peer."""
        SESSIONS[state](self)

    def step(self, packet: Any) -> list[Effect]:
        """Let a packet arrive at n; return the effects of that step."""
        context = self.world["n"].context
        return self.world["n"].step(
            Received(self.peer, packet), StepTime(context.now, context.clock)
        )

    def goes_on(self) -> bool:
        """Connect p and n again; return whether x gets the next event, and nothing twice."""
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


def unknown_broker(scene: SessionScene) -> None:
    """Let the peer be unknown to n."""
    scene.peer = "z"


def no_session(scene: SessionScene) -> None:
    """Restart n while p is down: n has no sessions; the packets are of its former incarnation."""
    scene.world.crash("p")
    scene.world.restart("n")
    scene.world.run(ms=100)


def opening(scene: SessionScene) -> None:
    """Then p is reachable and gets a Hello; no answer yet; packets are of another incarnation."""
    no_session(scene)
    scene.world.happen("n", LinkUp("p"))
    scene.ends = (scene.ends[0], scene.world["n"].components.sessions._peers["p"].direct.mine)


def answered(scene: SessionScene) -> None:
    """Then p has sent Hello too, without an echo of n; the packets are of its older session."""
    opening(scene)
    scene.world.happen("n", Received("p", hello(scene.facts)))


def opened_again(scene: SessionScene) -> None:
    """The two have another session now; the packets are of the former one."""
    scene.world.cut("p", "n")
    scene.world.heal("p", "n")
    scene.world.run(ms=100)
    assert ends(scene.world, "n", "p") != scene.ends


def closed_again(scene: SessionScene) -> None:
    """The link is down; the packets were in transit."""
    scene.world.cut("p", "n")


def retired_by_the_peer(scene: SessionScene) -> None:
    """The peer is in a new incarnation; the packets are of the former one."""
    scene.world.restart("p")
    scene.world.run(ms=100)
    assert ends(scene.world, "n", "p")[0].incarnation > scene.ends[0].incarnation


def retired_here(scene: SessionScene) -> None:
    """Broker n is in a new incarnation; the packets were for the former one."""
    scene.world.restart("n")
    scene.world.run(ms=100)
    assert ends(scene.world, "n", "p")[1].incarnation > scene.ends[1].incarnation


SESSIONS: dict[str, Callable[[SessionScene], None]] = {
    each.__name__: each
    for each in (
        unknown_broker,
        no_session,
        opening,
        answered,
        opened_again,
        closed_again,
        retired_by_the_peer,
        retired_here,
    )
}


@pytest.fixture(scope="module", params=SESSIONS)
def scene(request: pytest.FixtureRequest) -> SessionScene:
    """Return a scene for many messages, which must not change it."""
    return SessionScene(request.param)


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_messages_of_no_current_session_have_no_effect(scene: SessionScene, kind: type) -> None:
    broker = scene.world["n"]
    due, horizon = broker.next_timer(), scene.world.horizon("n", P)
    ignored = sum(broker.coverage_marks.values())
    count = 0
    for message in every_message(scene.facts, kind):
        assert scene.step(Packet(*scene.ends, 1, (message,))) == [], message
        count += 1
    assert sum(broker.coverage_marks.values()) == ignored + count, (
        "each message is counted, and nothing else"
    )
    assert (broker.next_timer(), scene.world.horizon("n", P)) == (due, horizon)
    assert scene.x.events == ["e1", "e2"]


def test_without_the_fence_a_message_of_a_closed_session_is_accepted() -> None:
    def without_a_fence(session: PeerSession, packet: Packet) -> None:
        for message in packet.messages:
            session._owner.message_received(session, message)

    scene = SessionScene("retired_by_the_peer")
    with patched(PeerSession, "_packet", without_a_fence):
        effects = [
            scene.step(Packet(*scene.ends, 1, (message,)))
            for message in plausible(scene.facts, StreamEpochRequest)
        ]
    assert any(effects)


@pytest.mark.parametrize("state", SESSIONS)
def test_after_messages_of_no_current_session_the_broker_continues(state: str) -> None:
    scene = SessionScene(state)
    for kind in KINDS:
        for message in plausible(scene.facts, kind):
            scene.world.happen("n", Received(scene.peer, Packet(*scene.ends, 1, (message,))))
    assert scene.goes_on()
    assert scene.x.gaps == []


@pytest.mark.parametrize("state", SESSIONS)
def test_any_hello_is_answered_by_a_handshake_or_not_at_all(state: str) -> None:
    scene = SessionScene(state)
    known = scene.world["n"].neighbourhood.all_brokers()
    for received in (None, scene.ends[1], PeerSessionId(1, 1)):
        make_hello = partial(hello, scene.facts, received)
        for packet in (make_hello(), *absurd(make_hello)):
            for effect in scene.step(packet):
                if isinstance(effect, Send):
                    check_that_it_may_be_sent(scene.world["n"], effect)
                    assert scene.peer in known
    assert scene.x.events == ["e1", "e2"]


# --- feeds ----------------------------------------------------------------------------------------

FEEDS = ("not attached", "attaching", "attached", "detached")

POSITIONS = [
    *((peer, me, state) for peer, me in PAIRS for state in FEEDS),
    ("p", "n", "catching up"),
]
"""Sender, receiver, and the state of the feed at n; in the last one n waits for replies of p."""


class Scene:
    """SHBs n and c, fed with P over n, or not yet, or no more; all sessions are open."""

    def __init__(self, state: str) -> None:
        self.world = world = Guarded("p-n-c", delta=1, interest_grace_s=1)
        self.ann = world.publisher("p")
        self.subscribers: list[Subscriber] = []
        self.expected: list[str] = []
        """The events that each of them has, or will have when lost ones come again."""
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
        """Let x return to missed events, and create a pubend; replies of p are lost."""
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
        """Return the state that a broker and its peer know."""
        return Facts(self.world, me, peer, self.ann.ticks["e1"])

    def deliver(self, peer: BrokerId, me: BrokerId, message: Any) -> None:
        """Let a message arrive from a peer in their session."""
        packet = Packet(*ends(self.world, me, peer), 1, (message,))
        self.world.happen(me, Received(peer, packet))
        self.world.run(ms=3)

    def check_what_was_delivered(self) -> None:
        """Check that no event was delivered twice or out of order, or changed."""
        for each, before in zip(self.subscribers, self.before, strict=True):
            assert each.publications[: len(before)] == before
            ticks = [event.tick for pubend, event in each.publications if pubend == P]
            assert ticks == sorted(set(ticks)), ticks

    def goes_on(self) -> bool:
        """Add a subscriber and publish an event; return whether all received their events once."""
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
def test_plausible_messages_do_no_harm(
    peer: BrokerId, me: BrokerId, state: str, kind: type
) -> None:
    scene = Scene(state)
    for message in plausible(scene.facts(me, peer), kind):
        scene.deliver(peer, me, message)
        scene.check_what_was_delivered()
    assert scene.goes_on()


@pytest.mark.parametrize("kind", KINDS, ids=named)
@pytest.mark.parametrize(("peer", "me", "state"), POSITIONS)
def test_absurd_messages_do_not_stop_the_broker(
    peer: BrokerId, me: BrokerId, state: str, kind: type
) -> None:
    scene = Scene(state)
    for message in every_message(scene.facts(me, peer), kind):
        scene.deliver(peer, me, message)
        scene.check_what_was_delivered()
    scene.world.run(s=3)
    scene.check_what_was_delivered()


# --- messages that are invalid by themselves ------------------------------------------------------

REFUSED_RANGE = "invalid knowledge range"


@pytest.mark.parametrize("text", ["n > ", "a@b", "x" * 70_000])
def test_an_invalid_advertisement_is_tolerated(text: str) -> None:
    scene = Scene("attached")
    announcement = Announce(PubendId("Z"), 1, PubendProperties("p", "p", text), ("p",))
    scene.deliver("p", "n", announcement)
    assert scene.goes_on()


@pytest.mark.parametrize("kind", [RelayBroken, RelayFull], ids=named)
def test_a_relay_notice_without_a_route_is_tolerated(kind: type) -> None:
    scene = Scene("attached")
    word = Relayed(("c", "p", "n"), 2, kind(()))
    scene.deliver("p", "n", word)
    assert scene.goes_on()


def invalid_ranges(after: Tick, stream_epoch: int) -> dict[str, KnowledgeRange]:
    """Return knowledge ranges above a tick that contradict themselves."""

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
def test_an_invalid_knowledge_range_is_refused(what: str, number: int, is_silence: bool) -> None:
    scene = Scene("attached")
    facts = scene.facts("n", "p")
    invalid = invalid_ranges(facts.top, facts.stream_epoch)[what]
    message = (
        StreamSilence(((P, number, invalid, True),))
        if is_silence
        else StreamData(P, number, invalid)
    )
    scene.deliver("p", "n", message)
    assert scene.world["n"].coverage_marks[REFUSED_RANGE] == 1
    scene.world.run(s=1)
    scene.check_what_was_delivered()
    assert [each.events for each in scene.subscribers] == [["e1", "e2"]] * 2
    assert scene.goes_on()


def test_valid_ranges_beside_an_invalid_one_are_accepted() -> None:
    scene = Scene("attached")
    scene.world.lose(of(StreamData, StreamSilence))
    facts = scene.facts("n", "p")
    invalid_by_name = invalid_ranges(facts.top, facts.stream_epoch)
    event = Publication(facts.top + 5, "ann", 9, {}, b"e9")
    sound = KnowledgeRange(facts.top + 1, facts.top + 9, facts.stream_epoch, 0, (event,))
    message = [(P, NUMBERS[0], invalid, True) for invalid in (*invalid_by_name.values(), sound)]
    scene.deliver("p", "n", StreamSilence(tuple(message)))
    assert scene.world["n"].coverage_marks[REFUSED_RANGE] == len(invalid_by_name)
    assert scene.subscribers[0].events == ["e1", "e2", "e9"]


def spoilt(message: Any) -> Any:
    """Return stream data that repeats its last event, and silence that ends before its start."""
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


class Misleading(Guarded):
    """Whole brokers, one of which may send only invalid stream messages."""

    liar: BrokerId | None = None

    def _send(self, source: BrokerId, target: BrokerId, packet: Any) -> None:
        if source == self.liar and isinstance(packet, Packet):
            packet = replace(packet, messages=tuple(map(spoilt, packet.messages)))
        super()._send(source, target, packet)


def test_refused_ranges_are_nacked() -> None:
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


def test_a_feeder_that_sends_only_invalid_ranges_is_replaced() -> None:
    world = Misleading("p-m-n", cells={"m": ["m1", "m2"]})
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    feeder = world.liar = world["n"].components.router.feeder(P)
    assert feeder in {"m1", "m2"}
    ann.publish("e1")
    assert world.wait(lambda: x.events == ["e1"], s=60)
    assert world["n"].coverage_marks[REFUSED_RANGE] >= 1
    assert world["n"].components.router.feeder(P) not in {None, feeder}


def test_a_range_is_validated_once_by_each_receiving_broker_and_not_by_its_phb() -> None:
    seen: list[KnowledgeRange] = []

    def validate(invalid: KnowledgeRange) -> str | None:
        seen.append(invalid)
        return invalid_reason(invalid)

    scene = Scene("attached")
    here = scene.world.subscriber("p", "z", "TRUE")
    scene.world.run(s=1)
    with patched(stream_messages, "invalid_reason", validate):
        scene.ann.publish("e3")
        scene.world.run(ms=100)
    assert [each.events[-1] for each in (*scene.subscribers, here)] == ["e3"] * 3
    assert len([invalid for invalid in seen if invalid.publications]) == 2, "at n and at c"


def invalid_replies(true: ReadReply) -> dict[str, ReadReply]:
    """Return read replies that contradict themselves or the request, made of a valid one."""
    (knowledge,) = true.ranges
    (event,) = knowledge.publications
    twice = replace(knowledge, publications=(event, event))
    rest = replace(knowledge, low=event.tick)
    return {
        "an event twice": replace(true, ranges=(twice,)),
        "a range twice": replace(true, ranges=(knowledge, knowledge)),
        "an end below its ranges": replace(true, done=knowledge.low),
        "a start above the requested tick": replace(true, ranges=(rest,)),
        "a start below the requested tick": replace(
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
        "a range twice",
        "an end below its ranges",
        "a start above the requested tick",
        "a start below the requested tick",
        "a hole",
    ],
)
def test_an_invalid_reply_is_refused(what: str) -> None:
    scene = Scene("catching up")
    x, world = scene.subscribers[0], scene.world
    true = plausible(scene.facts("n", "p"), ReadReply)[2]
    since = world.now
    scene.deliver("p", "n", invalid_replies(true)[what])
    assert world["n"].coverage_marks["invalid reply"] == 1
    assert x.events == ["e1", "e2"]
    world.faults.clear()
    world.run(s=2)
    scene.check_what_was_delivered()
    assert world.sent_over(Read, "n", "p", since), "the read is repeated"
    assert x.events == ["e1", "e2", "missed"]


def test_the_valid_reply_is_accepted() -> None:
    scene = Scene("catching up")
    scene.deliver("p", "n", plausible(scene.facts("n", "p"), ReadReply)[2])
    assert scene.subscribers[0].events == ["e1", "e2", "missed"]
    assert "invalid reply" not in scene.world["n"].coverage_marks
