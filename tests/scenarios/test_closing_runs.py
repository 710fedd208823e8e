"""Runs in which pubends are closed: sealed, drained, tombstone (RS-32 to RS-34)."""

from __future__ import annotations

import pytest

from gapless.core.ids import PubendId
from gapless.messages.clients import (
    Closed,
    OpenPubend,
    OpenPublisher,
    Order,
    PubendOpened,
    PublisherOpened,
    RefusalCause,
    Refused,
    StartKind,
    StartPoint,
)
from gapless.messages.closing import CloseMode, ClosePubend, ClosePubendReply, ClosingState
from gapless.messages.overlay import Announce, Quality
from gapless.messages.pubend_requests import LeavePubend
from gapless.messages.records import (
    CommitRecord,
    JoinedPubendRecord,
    PubendLocationRecord,
    PubendRecord,
    TombstoneRecord,
)
from gapless.messages.staging import BatchCommitted, CommitBatch, StageChunk
from tests.scenarios.brokers import Client, World, of

P, Q = PubendId("P"), PubendId("Q")


class Operator(Client):
    """A client that closes pubends."""

    def close(self, pubend: PubendId = P, mode: CloseMode = CloseMode.DRAIN) -> ClosePubendReply:
        """Close a pubend, or ask again for its state."""
        reply = self.call(ClosePubend(self.number(), pubend, mode))
        assert isinstance(reply, ClosePubendReply), reply
        return reply


def closed(client: Client) -> list[tuple[PubendId, int]]:
    """Return the notices of closed pubends that a client received."""
    return [(each.pubend, each.last) for each in client.of_kind(Closed)]


def is_tombstone(world: World, broker: str, pubend: PubendId = P) -> bool:
    """Return whether the disk of a broker has the tombstone of a pubend, and nothing else of it."""
    records = world.nodes[broker].disk.records
    return TombstoneRecord.key_of(pubend) in records and not any(
        getattr(each, "pubend", None) == pubend and not isinstance(each, TombstoneRecord)
        for each in records.values()
    )


def test_a_sealed_pubend_accepts_nothing_and_answers_recorded_outcomes() -> None:
    # RS-32: publications, openings, staging and commits are refused; recorded outcomes are answered
    world = World("p-s", retention_s=3_600)
    ann = world.publisher("p")
    first = ann.publish("e1")
    writer = Client(world, "p", "writer")
    writer.call(StageChunk(writer.number(), P, "w", 1, 0, "a", 0, (({}, b"s"),)))
    writer.call(StageChunk(writer.number(), P, "w", 2, 0, "a", 0, (({}, b"s"),)))
    done = writer.call(CommitBatch(writer.number(), P, "w", 1, ((0, "a", 1),)))
    assert isinstance(done, BatchCommitted)
    reply = Operator(world, "p", "op").close()
    assert reply.state is ClosingState.SEALED
    assert reply.last >= done.last > first
    late = ann.send_event("e2")
    again = ann.send_event("e1", sequence=1)
    world.run(s=1)
    refusals = [
        ann.answer(late),
        ann.call(OpenPubend(ann.number(), "P")),
        ann.call(OpenPublisher(ann.number(), P, "new")),
        writer.call(StageChunk(writer.number(), P, "w", 3, 0, "a", 0, (({}, b"s"),))),
        writer.call(CommitBatch(writer.number(), P, "w", 2, ((0, "a", 1),))),
    ]
    assert [each.cause for each in refusals] == [RefusalCause.CLOSED] * 5
    assert ann.answer(again).ticks == (first,)
    repeated = writer.call(CommitBatch(writer.number(), P, "w", 1, ((0, "a", 1),)))
    assert (repeated.first, repeated.repeated) == (done.first, True)


def test_a_publisher_that_lost_an_answer_learns_its_outcome_after_the_pubend_was_sealed() -> None:
    # RS-32: all pending publications are answered first, and a known publisher may open a session
    world = World("p-s", retention_s=3_600)
    ann = world.publisher("p")
    ann.publish("e1")
    number = ann.send_event("e2")
    operator = Operator(world, "p", "op")
    ann.leave()
    reply = operator.close()
    ann.connect()
    assert isinstance(ann.open(), PublisherOpened)
    again = ann.send_event("e2", sequence=2)
    world.run(s=1)
    assert ann.answer(number) is None
    assert ann.answer(again).ticks[0] <= reply.last


def test_run_59_a_merge_does_not_wait_for_a_sealed_pubend() -> None:
    # run 59: a sealed pubend in a total-order subscription (RS-32)
    world = World("p-a-s", "a-q", retention_s=3_600)
    ann, bob = world.publisher("p"), world.publisher("q", "Q")
    desk = world.subscriber("s", "desk", "TRUE", order=Order.TOTAL)
    world.run(s=1)
    ann.publish("a1")
    world.run(s=2)
    reply = Operator(world, "p", "op").close()
    world.run(s=1)
    world.crash("p")
    bob.publish("b1")
    world.run(s=5)
    assert desk.events == ["a1", "b1"]
    assert closed(desk) == [(P, reply.last)]


def test_a_pubend_becomes_a_tombstone_when_nobody_needs_its_log() -> None:
    # RS-33 and RS-34: rows and records are erased, memberships and locations end everywhere
    world = World("p-a-s", retention_s=0)
    ann = world.publisher("p")
    desk = world.subscriber("s", "desk", "TRUE")
    world.run(s=1)
    ann.publish("e1")
    operator = Operator(world, "p", "op")
    last = operator.close().last
    world.run(s=10)
    assert operator.close().state is ClosingState.CLOSED
    assert (desk.events, closed(desk), desk.gaps) == (["e1"], [(P, last)], [])
    assert is_tombstone(world, "p")
    assert not world.nodes["p"].disk.logs.get(P)
    kinds = {type(each) for each in world.nodes["s"].disk.records.values()}
    assert not kinds & {JoinedPubendRecord, PubendLocationRecord}
    for name in "pas":
        components = world[name].components
        assert P not in components.router.routed
        assert P not in components.filters.announced_pubends
        assert components.requests.statistics() == {"active": 0, "queued": 0, "ids": 0}
    assert world["s"].components.subends.guaranteed.keys() <= {P}
    world.run(s=120)
    assert not world["s"].components.subends.guaranteed


def test_the_last_events_arrive_although_they_were_lost_before_the_seal() -> None:
    # RS-32: a subend that knows L requests what it lacks
    world = World("p-a-s", retention_s=0)
    ann = world.publisher("p")
    desk = world.subscriber("s", "desk", "TRUE")
    world.run(s=1)
    lossy = world.lose(of(object, source="a", target="s"))
    ann.publish("e1")
    last = Operator(world, "p", "op").close().last
    world.run(ms=200)
    lossy.end()
    world.run(s=20)
    assert (desk.events, closed(desk), desk.gaps) == (["e1"], [(P, last)], [])


def test_a_crash_between_the_seal_and_its_announcement_announces_it_again() -> None:
    # RS-32: after a crash a PHB has the state of its last write, and announces it again
    world = World("p-a-s", retention_s=3_600)
    ann = world.publisher("p")
    desk = world.subscriber("s", "desk", "TRUE")
    world.run(s=1)
    ann.publish("e1")
    world.run(s=1)
    unheard = world.lose(of(Announce))
    last = Operator(world, "p", "op").close().last
    world.crash("p")
    unheard.end()
    record = world.nodes["p"].disk.records["pubend", "P"]
    assert isinstance(record, PubendRecord)
    assert record.sealed == last
    assert closed(desk) == []
    world.start("p")
    world.run(s=5)
    assert closed(desk) == [(P, last)]
    assert world.pubend("p", P).top == last


def test_a_crash_before_the_write_of_the_seal_leaves_the_pubend_open() -> None:
    world = World("p-s", retention_s=0)
    ann = world.publisher("p")
    operator = Operator(world, "p", "op")
    world.nodes["p"].disk.stopped = True
    operator.request(ClosePubend(operator.number(), P))
    world.run(ms=5)
    world.crash("p")
    world.start("p")
    world.run(s=1)
    ann.connect()
    ann.open()
    assert ann.publish("e1") > 0
    assert world.pubend("p", P).sealed is None


def test_a_drain_waits_for_a_member_and_names_it() -> None:
    # RS-33: an ack floor below L keeps the log
    world = World("p-a-s", retention_s=0)
    ann = world.publisher("p")
    desk = world.subscriber("s", "desk", "TRUE", durable=True)
    world.run(s=2)
    ann.publish("e1")
    world.run(s=1)
    desk.leave()
    operator = Operator(world, "p", "op")
    operator.close()
    world.run(s=60)
    reply = operator.close()
    assert reply.state is ClosingState.SEALED
    assert [each.shb.broker for each in reply.members] == ["s"]
    desk.come_back()
    world.run(s=2)
    assert desk.events == ["e1", "e1"]
    assert closed(desk) == [(P, reply.last)]
    desk.acknowledge(P, reply.last + 1)
    world.run(s=10)
    assert operator.close().state is ClosingState.CLOSED
    assert desk.gaps == []
    desk.leave()
    desk.come_back()
    world.run(s=2)
    assert len(closed(desk)) == 1, "its client has acknowledged the end"


def test_a_client_that_has_not_acknowledged_the_end_is_told_again_after_the_tombstone() -> None:
    # RS-32: told once; again only if the client cannot know
    world = World("p-a-s", retention_s=0)
    ann = world.publisher("p")
    desk = world.subscriber("s", "desk", "TRUE", durable=True)
    world.run(s=2)
    tick = ann.publish("e1")
    world.run(s=1)
    operator = Operator(world, "p", "op")
    last = operator.close().last
    world.run(s=1)
    desk.acknowledge(P, last)
    assert tick <= last
    world.run(s=10)
    assert operator.close().state is ClosingState.CLOSED
    world.restart("s")
    world.run(s=2)
    desk.come_back()
    world.run(s=2)
    assert closed(desk) == [(P, last)] * 2
    desk.acknowledge(P, last + 1)
    world.run(s=2)
    world.restart("s")
    world.run(s=2)
    desk.come_back()
    world.run(s=2)
    assert closed(desk) == [(P, last)] * 2
    assert desk.gaps == []


def test_a_client_that_names_a_closed_pubend_is_not_told_again() -> None:
    # RS-32: the end is told once, also across restarts of the broker
    world = World("p-a-s", retention_s=3_600)
    ann = world.publisher("p")
    desk = world.subscriber("s", "desk", "TRUE")
    world.run(s=2)
    ann.publish("e1")
    last = Operator(world, "p", "op").close().last
    world.run(s=2)
    assert closed(desk) == [(P, last)]
    world.restart("s")
    world.run(s=2)
    position = ((P, last + 1),)
    desk.come_back(StartPoint(StartKind.POSITION, position, closed=(P,)))
    world.run(s=2)
    assert closed(desk) == [(P, last)]
    desk.leave()
    desk.come_back(StartPoint(StartKind.POSITION, position))
    world.run(s=2)
    assert closed(desk) == [(P, last)] * 2


def test_the_mode_now_gives_members_up_after_a_while_with_a_gap() -> None:
    # RS-33: a gap (floor, L], then Closed
    world = World("p-a-s", retention_s=3_600, close_wait_s=20)
    ann = world.publisher("p")
    desk = world.subscriber("s", "desk", "TRUE", durable=True)
    world.run(s=2)
    first = ann.publish("e1")
    world.run(s=1)
    desk.acknowledge(P, first)
    world.run(s=2)
    desk.leave()
    ann.publish("e2")
    world.run(s=1)
    operator = Operator(world, "p", "op")
    last = operator.close(mode=CloseMode.NOW).last
    world.run(s=15)
    assert operator.close().state is ClosingState.SEALED
    world.run(s=10)
    assert operator.close().state is ClosingState.CLOSED
    desk.come_back()
    world.run(s=5)
    assert [(each.low, each.high) for each in desk.gaps] == [(first + 1, ann.ticks["e2"])]
    assert desk.notices.index(desk.gaps[0]) < desk.notices.index(desk.of_kind(Closed)[0])
    assert (desk.events, closed(desk)) == (["e1"], [(P, last)])


def test_the_retention_counts_unless_the_history_is_discarded() -> None:
    world = World("p-s", retention_s=3_600)
    world.publisher("p").publish("e1")
    operator = Operator(world, "p", "op")
    reply = operator.close()
    assert reply.retained_until is not None
    world.run(s=30)
    assert operator.close().state is ClosingState.SEALED
    operator.close(mode=CloseMode.DISCARD_HISTORY)
    world.run(s=2)
    assert operator.close().state is ClosingState.CLOSED


def test_a_subscription_reads_the_history_of_a_sealed_pubend() -> None:
    world = World("p-a-s", retention_s=3_600)
    ann = world.publisher("p")
    ann.publish("e1")
    last = Operator(world, "p", "op").close().last
    world.run(s=2)
    late = world.subscriber("s", "late", "TRUE", start=StartPoint(StartKind.EARLIEST))
    newest = world.subscriber("s", "newest", "TRUE")
    world.run(s=5)
    assert (late.events, closed(late), late.gaps) == (["e1"], [(P, last)], [])
    assert (newest.events, closed(newest)) == ([], [(P, last)])


def test_a_host_leaves_a_sealed_pubend_of_which_it_needs_nothing() -> None:
    # RS-32: no feed is kept
    world = World("p-a-s", retention_s=3_600)
    ann = world.publisher("p")
    world.subscriber("s", "desk", "TRUE")
    world.run(s=1)
    ann.publish("e1")
    Operator(world, "p", "op").close()
    world.run(s=10)
    assert world.subend("s", P).feeder is None
    assert world.member("p", P, "s") is None
    world.run(s=120)
    assert world["a"].components.router.feeder(P) is None


def test_a_tombstone_ends_a_pending_leave() -> None:
    # RS-34, run 47: without it drain and DETACH never end
    world = World("p-a-s", retention_s=0, interest_grace_s=1)
    ann = world.publisher("p")
    desk = world.subscriber("s", "desk", "TRUE")
    world.run(s=1)
    ann.publish("e1")
    world.run(s=1)
    lost = world.lose(of(LeavePubend))
    desk.end()
    world.run(s=5)
    operator = Operator(world, "p", "op")
    operator.close(mode=CloseMode.NOW)
    world.run(s=90)
    lost.end()
    assert operator.close().state is ClosingState.CLOSED
    world.run(s=1)
    assert P not in world["s"].components.subends.memberships
    assert world["s"].components.requests.statistics()["active"] == 0


def test_the_plain_name_of_a_tombstone_gives_a_pubend_with_a_number() -> None:
    # RS-34: one id never has two streams
    world = World("p-a-s", retention_s=0, tombstone_ttl_s=5)
    world.publisher("p")
    operator = Operator(world, "p", "op")
    operator.close()
    world.run(s=3)
    found = []
    for _ in range(2):
        opened = operator.call(OpenPubend(operator.number(), "P"), s=10)
        assert isinstance(opened, PubendOpened)
        found.append(opened.pubend)
        operator.close(opened.pubend)
        world.run(s=3)
        refused = operator.call(OpenPubend(operator.number(), str(opened.pubend)), s=10)
        assert isinstance(refused, Refused)
        assert refused.cause is RefusalCause.CLOSED
    world.run(s=20)
    world.restart("p")
    world.run(s=2)
    operator.connect()
    opened = operator.call(OpenPubend(operator.number(), "P"), s=10)
    assert isinstance(opened, PubendOpened)
    assert len({P, *found, opened.pubend}) == 4


@pytest.mark.parametrize("order", Order)
def test_a_position_on_a_tombstone_counts_as_passed(order: Order) -> None:
    # RS-34: it stays valid
    world = World("p-a-s", "a-q", retention_s=0)
    ann, bob = world.publisher("p"), world.publisher("q", "Q")
    tick = ann.publish("a1")
    start = bob.publish("b1")
    first = ann.publish("a2")
    last = Operator(world, "p", "op").close().last
    world.run(s=5)
    position = StartPoint(StartKind.POSITION, ((P, tick), (Q, start)))
    desk = world.subscriber("s", "desk", "TRUE", order=order, start=position)
    world.run(s=2)
    bob.publish("b2")
    world.run(s=5)
    assert (desk.events, closed(desk)) == (["b2"], [(P, last)])
    assert [(each.low, each.high) for each in desk.gaps] == [(tick + 1, first)]
    passed = StartPoint(StartKind.POSITION, ((P, first), (Q, bob.ticks["b2"])))
    other = world.subscriber("s", "other", "TRUE", order=order, start=passed)
    world.run(s=2)
    assert (other.events, other.gaps, closed(other)) == ([], [], [(P, last)])


def test_a_best_effort_pubend_is_a_tombstone_at_once() -> None:
    # RS-33: for best effort sealed is closed
    world = World("p-a-s")
    ann = world.publisher("p", quality=Quality.BEST_EFFORT)
    desk = world.subscriber("s", "desk", "TRUE")
    world.run(s=2)
    ann.publish("e1")
    world.run(s=1)
    operator = Operator(world, "p", "op")
    assert operator.close().state is ClosingState.CLOSED
    world.run(s=2)
    assert (desk.events, closed(desk)) == (["e1"], [(P, 0)])
    assert is_tombstone(world, "p")
    refused = ann.call(OpenPublisher(ann.number(), P, "ann"))
    assert refused.cause is RefusalCause.CLOSED


def test_another_broker_redirects_to_the_broker_of_the_pubend() -> None:
    world = World("p-a-s", retention_s=0)
    world.publisher("p")
    operator = Client(world, "s", "op")
    refused = operator.call(ClosePubend(operator.number(), P))
    assert (refused.cause, refused.broker) == (RefusalCause.WRONG_BROKER, "p")
    unknown = operator.call(ClosePubend(operator.number(), Q))
    assert unknown.cause is RefusalCause.OTHER


def test_a_filter_changes_on_a_sealed_pubend() -> None:
    world = World("p-a-s", retention_s=3_600)
    ann = world.publisher("p")
    desk = world.subscriber("s", "desk", "n = 1", durable=True)
    world.run(s=2)
    ann.publish("e1", n=1)
    world.run(s=1)
    last = Operator(world, "p", "op").close().last
    world.run(s=1)
    number = desk.set_filter("n = 2")
    world.run(s=1)
    changed = desk.filter_changed(number)
    assert changed is not None
    assert changed[P] >= last


def test_staged_batches_and_commits_go_with_the_pubend() -> None:
    world = World("p-s", retention_s=0)
    world.publisher("p")
    writer = Client(world, "p", "writer")
    for batch in (1, 2):
        writer.call(StageChunk(writer.number(), P, "w", batch, 0, "a", 0, (({}, b"s"),)))
    writer.call(CommitBatch(writer.number(), P, "w", 1, ((0, "a", 1),)))
    Operator(world, "p", "op").close()
    world.run(s=5)
    assert is_tombstone(world, "p")
    assert world["p"].components.staging.bytes == 0
    assert not any(
        isinstance(each, CommitRecord) for each in world.nodes["p"].disk.records.values()
    )
