"""The entry point of a broker: incarnations, early events, unknown requests, and dispatch."""

from __future__ import annotations

from collections.abc import Iterable

from gapless.broker import Broker
from gapless.broker.entry import next_incarnation
from gapless.core.context import StepTime
from gapless.core.effects import Effect, Notify, Send, Write
from gapless.core.events import (
    ClientDrained,
    ClientFull,
    ClientRequest,
    ClientUp,
    LinkDrained,
    LinkFull,
    LinkUp,
    MachineEvent,
    Written,
)
from gapless.core.ids import MembershipId, VirtualTime
from gapless.core.parameters import Parameters, microseconds
from gapless.messages.clients import OpenPubend, PubendOpened, Refused, Unsubscribe
from gapless.messages.operating import BrokerRetired
from gapless.messages.overlay import Announce, Hello, Packet, PubendProperties, Retire
from gapless.messages.records import IncarnationRecord, PutRecord, Record
from gapless.messages.stored import StoredState
from gapless.messages.streams import (
    AckReport,
    AdvanceRequest,
    Attached,
    DefineMemberSet,
    Detach,
    FeedUnavailable,
    FeedUnavailableReason,
    ForgetMemberSet,
    KnowledgeRange,
    Member,
    Nack,
    StreamData,
    StreamSilence,
)
from gapless.overlay.neighbourhood import Topology
from tests.broker.harness import BrokerHarness, P
from tests.scenarios.brokers import shb

NOW, CLOCK = microseconds(s=10), microseconds(s=1_000)
STEP_TIME = StepTime(NOW, CLOCK)


def broker(records: Iterable[Record] = ()) -> Broker:
    """Return the broker p of a pair of cells, whose new incarnation is not on disk."""
    topology = Topology.of({"p": ["p"], "n": ["n"]}, [("p", "n")])
    neighbourhood = topology.neighbourhood("p", 1)
    return Broker("p", "p", Parameters(delta=0), neighbourhood, records, STEP_TIME)


def kinds(effects: Iterable[Effect]) -> list[type]:
    return [type(each) for each in effects]


def started(*early: MachineEvent) -> tuple[Broker, list[Effect]]:
    """Return a broker whose incarnation is on disk, and its effects."""
    made = broker()
    (write,) = made.step(None, STEP_TIME)
    assert isinstance(write, Write)
    for event in early:
        assert made.step(event, STEP_TIME) == []
    return made, made.step(Written(write.write_id), STEP_TIME)


# --- incarnations (R1) ----------------------------------------------------------------------------


def test_the_first_effect_of_a_broker_is_the_write_of_its_new_incarnation() -> None:
    (write,) = broker().step(None, STEP_TIME)
    assert isinstance(write, Write)
    assert write.changes[0] == PutRecord(IncarnationRecord(CLOCK))


def test_nothing_is_sent_before_the_new_incarnation_is_on_disk() -> None:
    # R1: a peer would see an incarnation a second time if the disk lost it
    _, effects = started(LinkUp("n"))
    (hello,) = [each for each in effects if isinstance(each, Send)]
    assert isinstance(hello.packet, Hello)
    assert hello.packet.own.incarnation == CLOCK


def test_requests_before_the_new_incarnation_is_on_disk_are_handled_after_it_in_order() -> None:
    _, effects = started(
        ClientRequest("ann", OpenPubend(1, "#")),
        ClientUp("bob"),
        ClientRequest("bob", Unsubscribe(2, "x")),
    )
    assert [each.client for each in effects if isinstance(each, Notify)] == ["ann"]
    assert Write in kinds(effects), "the answer to the second waits for the disk"


def test_an_incarnation_is_greater_than_the_former_one_although_the_clock_was_set_back() -> None:
    # A9: otherwise old promises would seem to cover new subscriptions
    assert next_incarnation(StoredState.of([]), CLOCK) == CLOCK
    assert next_incarnation(StoredState.of([IncarnationRecord(CLOCK - 5)]), CLOCK) == CLOCK
    assert next_incarnation(StoredState.of([IncarnationRecord(CLOCK)]), CLOCK) == CLOCK + 1
    assert next_incarnation(StoredState.of([IncarnationRecord(CLOCK + 7)]), CLOCK) == CLOCK + 8
    assert next_incarnation(StoredState.of([]), 0) == 1


def test_a_broker_without_its_new_incarnation_has_no_timer_and_with_it_has_one() -> None:
    made = broker()
    assert made.next_timer() is None
    made, _ = started()
    due = made.next_timer()
    assert due is not None
    assert due > NOW


# --- requests -------------------------------------------------------------------------------------


def test_an_unknown_request_is_refused_with_its_name() -> None:
    made, _ = started()
    effects = made.step(ClientRequest("ann", BrokerRetired(7)), STEP_TIME)
    assert effects == [Notify("ann", Refused(7, "BrokerRetired is no request"))]


def test_a_request_that_has_no_number_is_refused_as_number_0() -> None:
    made, _ = started()
    assert made.step(ClientRequest("ann", "hello"), STEP_TIME) == [
        Notify("ann", Refused(0, "str is no request"))
    ]


def test_the_connection_of_a_client_has_no_effect() -> None:
    made, _ = started()
    assert made.step(ClientUp("ann"), STEP_TIME) == []


# --- slow receivers (R40) -------------------------------------------------------------------------


def test_a_congested_peer_is_sent_no_stream_data_and_gets_all_of_it_by_nacks() -> None:
    world = BrokerHarness("p-n")
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    since = world.now
    world.happen("p", LinkFull("n"))
    for number in range(5):
        ann.publish(f"e{number}")
    world.run(ms=500)
    assert world.sent_over(StreamData, "p", "n", since) == []
    assert world.sent_over(StreamSilence, "p", "n", since) == []
    assert world["p"].coverage_marks["receiver was slow"] == 1
    world.happen("p", LinkDrained("n"))
    world.run(s=1)
    assert world.sent_over(Nack, "n", "p", since), "n sees a gap and sends nacks at its own pace"
    again = world.sent_over(StreamData, "p", "n", since)
    assert again
    assert not any(frame.first for frame in again)
    assert x.events == [f"e{number}" for number in range(5)]
    assert x.gaps == []


def test_other_peers_are_served_while_one_is_slow() -> None:
    world = BrokerHarness("p-n", "p-m")
    ann = world.publisher("p")
    x, y = world.subscriber("n", "x", "TRUE"), world.subscriber("m", "y", "TRUE")
    world.run(s=1)
    world.happen("p", LinkFull("n"))
    ann.publish("e1")
    world.run(ms=100)
    assert (x.events, y.events) == ([], ["e1"])


def test_a_link_that_is_new_has_an_empty_queue() -> None:
    world = BrokerHarness("p-n")
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    world.happen("p", LinkFull("n"))
    world.cut("p", "n")
    world.heal("p", "n")
    world.run(s=1)
    since = world.now
    ann.publish("e1")
    world.run(ms=100)
    assert [frame.first for frame in world.sent_over(StreamData, "p", "n", since)] == [True]
    assert x.events == ["e1"]


def test_a_drained_link_has_no_effect_on_a_peer_that_was_not_congested() -> None:
    world = BrokerHarness("p-n")
    ann = world.publisher("p")
    world.subscriber("n", "x", "kind = 1")
    world.run(s=1)
    since = world.now
    ann.publish("e1", kind=2)
    world.happen("p", LinkDrained("n"))
    world.run(ms=300)
    silences = [
        knowledge
        for each in world.sent_over(StreamSilence, "p", "n", since)
        for knowledge in each.ranges
    ]
    assert silences[0][2].low <= ann.ticks["e1"] <= silences[0][2].high, (
        "the silence was not omitted"
    )


# --- dispatch -------------------------------------------------------------------------------------


def test_messages_of_a_broker_to_itself_are_not_sent_over_links() -> None:
    world = BrokerHarness("p-n")
    ann = world.publisher("p")
    x = world.subscriber("p", "x", "TRUE")
    world.run(s=1)
    ann.publish("e1")
    world.run(ms=100)
    assert x.events == ["e1"]
    assert [each for each in world.sent if each[1] == each[2]] == []


def test_one_step_has_one_packet_for_a_peer() -> None:
    world = BrokerHarness("p-n")
    context = world["p"].context
    context.send("n", Retire("x", "x", 1))
    context.send("n", Retire("y", "y", 1))
    step_time = StepTime(context.now, context.clock)
    (send,) = [each for each in world["p"].step(None, step_time) if isinstance(each, Send)]
    assert isinstance(send.packet, Packet)
    assert [each.broker for each in send.packet.messages] == ["x", "y"]


def test_an_unknown_message_is_counted_and_ignored() -> None:
    world = BrokerHarness("p-n")
    world.receive("p", "n", BrokerRetired(1))
    assert world["p"].coverage_marks["message of no component"] == 1


def test_an_unexpected_attached_message_is_answered_with_detach() -> None:
    # R8: an unexpected Attached is answered by Detach, for a leaf too
    world = BrokerHarness("p-n")
    context = world["n"].context
    world.receive("n", "p", Attached(P, 3, 10, relayed=False))
    assert context.take_messages_to("p") == [Detach(P, 3)]
    world.receive("n", "p", Attached(P, 2, 10, relayed=False))
    assert context.take_messages_to("p") == [Detach(P, 2)]
    world.receive("n", "p", FeedUnavailable(P, 3, FeedUnavailableReason.NO_FEED))
    world.receive("n", "p", FeedUnavailable(P, 2, FeedUnavailableReason.NO_FEED))
    assert context.take_messages_to("p") == []


def test_knowledge_of_an_unneeded_pubend_is_dropped() -> None:
    world = BrokerHarness("p-n")
    silence = KnowledgeRange(1, 9, 0, 0, ())
    world.receive("n", "p", StreamData(P, 3, silence, first=True))
    world.receive("n", "p", StreamSilence(((P, 3, silence, True), (P, 2, silence, True))))
    assert world["n"].components.subends.guaranteed == {}
    assert world["n"].components.router.top(P) == 0


def test_a_tombstone_removes_the_pubend() -> None:
    # R4: the tombstone of an announcement
    world = BrokerHarness("p-n")
    properties = PubendProperties("p", "p", "TRUE")
    world.receive("n", "p", Announce(P, 1, properties, ("p",)))
    assert world["n"].components.announcements.get(P) is not None
    world.receive("n", "p", Announce(P, 9, properties, ("p",), tombstone=True))
    assert world["n"].components.announcements.get(P) is None
    world.run(ms=50)
    assert P not in world["n"].components.exchange.table_store.out["p"].sender.table.known
    # another broker may use the name now, with a number: one id never has two streams (RS-34)
    answer = world.client("n").call(OpenPubend(1, "P"))
    assert isinstance(answer, PubendOpened)
    assert answer.pubend.name == "P"
    assert answer.pubend.incarnation > 1


def test_a_tombstone_is_forgotten_after_its_ttl() -> None:
    # R4: tombstone_ttl_s
    world = BrokerHarness("p-n", tombstone_ttl_s=5)
    tombstone = Announce(P, 9, PubendProperties("p", "p", "TRUE"), ("p",), tombstone=True)
    world.receive("n", "p", tombstone)
    world.run(s=4)
    assert not world["n"].components.announcements.received("p", tombstone), (
        "the tombstone is remembered"
    )
    world.run(s=2)
    assert world["n"].components.announcements.received("p", tombstone)


def test_a_report_with_a_forgotten_member_set_is_ignored() -> None:
    # R52: a report with an unknown set is ignored
    world = BrokerHarness("p-n")
    world.publisher("p")
    member = Member(shb("n"), MembershipId(1, 1), True, VirtualTime(1, 1))
    world.receive("p", "n", DefineMemberSet(5, (member,)))
    world.receive("p", "n", ForgetMemberSet(5))
    world.receive("p", "n", AckReport(5, ((P, 0),)))
    assert world["p"].coverage_marks["report with an unknown set"] == 1


def test_an_advance_request_for_an_unknown_pubend_is_ignored() -> None:
    world = BrokerHarness("p-n")
    world.receive("n", "p", AdvanceRequest(P, 99))
    assert world["n"].context.take_messages() == []


def test_an_announcement_from_an_unknown_broker_is_ignored() -> None:
    world = BrokerHarness("p-n")
    properties = PubendProperties("z", "z", "TRUE")
    world.receive("n", "unknown", Announce(P, 1, properties, ("z",)))
    assert world["n"].components.announcements.get(P) is None


def test_the_shb_of_a_broker_is_a_member_of_its_own_pubend() -> None:
    world = BrokerHarness("p")
    world.publisher("p")
    world.subscriber("p", "x", "TRUE", durable=True)
    world.run(s=1)
    row = world.member("p", P, "p")
    assert row is not None
    assert row.shb == shb("p")


def test_a_client_with_a_congested_connection_gets_everything_when_it_has_drained() -> None:
    world = BrokerHarness("p-n")
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    y = world.subscriber("n", "y", "TRUE")
    world.run(s=1)
    world.happen("n", ClientFull(x.name))
    for number in range(3):
        ann.publish(f"e{number}")
    world.run(s=1)
    assert (x.events, y.events) == ([], ["e0", "e1", "e2"])
    world.happen("n", ClientDrained(x.name))
    world.run(ms=10)
    assert x.events == ["e0", "e1", "e2"]
