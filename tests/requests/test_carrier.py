"""Requests are routed hop by hop, answered over the same route, and repeated."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.context import Context, Identity
from gapless.core.ids import BrokerId, MembershipId, PubendId, ShbId
from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import Tick
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
from gapless.messages.streams import KnowledgeRange, Publication
from gapless.requests.carrier import PendingRequest, PubendRequests
from gapless.requests.recorded_route import reply_route

STOCKS = PubendId("stocks")
HOST = ShbId("a", "a")
LOG_HOLD = LogHoldId(HOST, "mine")
PARAMETERS = Parameters(reads_per_shb_max=3)


class Pubend:
    """A pubend that answers at once, or when the test says so."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.at_once = at_once
        self.requested: list[Any] = []
        self.waiting: list[Callable[[], None]] = []
        self.corrupt: set[Tick] = set()
        """Ticks that cannot be read."""
        self.replies: list[dict[str, Any]] = []
        """Values that replace those of the next replies."""

    def read(self, request: Read, then: Callable[[ReadReply], None]) -> None:
        fault = "a row is corrupt" if request.low in self.corrupt else ""
        done = request.low - 1 if fault else request.high
        reply = ReadReply(STOCKS, request.request, reply_route(request), (), done, 99, 0, 0, fault)
        if self.replies:
            reply = replace(reply, **self.replies.pop(0))
        self._do(request, lambda: then(reply))

    def release_log_hold(self, log_hold: LogHoldId, then: Callable[[], None]) -> None:
        self._do(log_hold, then)

    def leave(self, shb: ShbId, membership: MembershipId, then: Callable[[], None]) -> None:
        self._do((shb, membership), then)

    def count(self, request: CountEvents, then: Callable[[EventCounts], None]) -> None:
        counts = tuple(EventCount(tick, tick // 10, tick + 1) for tick in request.ticks)
        reply = EventCounts(request.pubend, request.request, reply_route(request), 99, counts)
        self._do(request, lambda: then(reply))

    def _do(self, requested: Any, then: Callable[[], None]) -> None:
        self.requested.append(requested)
        if self.at_once:
            then()
        else:
            self.waiting.append(then)


class NetView:
    """What one broker of a net knows of the pubend."""

    def __init__(self, net: Net, name: BrokerId) -> None:
        self._net = net
        self._name = name

    def serving(self, pubend: PubendId) -> Pubend | None:
        del pubend
        return self._net.pubend if self._name in self._net.hosts else None

    def feeder(self, pubend: PubendId) -> BrokerId | None:
        del pubend
        return None

    def next_hop(self, pubend: PubendId, request: int, feeder: BrokerId | None) -> BrokerId | None:
        del pubend, feeder
        hops = self._net.hops.get(self._name, [])
        return hops[request % len(hops)] if hops else None


class Net:
    """Brokers by letters; each has a next hop for the only pubend; messages take a millisecond."""

    def __init__(self, names: str = "abp", parameters: Parameters = PARAMETERS) -> None:
        self.now = microseconds(s=5)
        self.pubend = Pubend()
        self.hosts = {names[-1]}
        self.hops: dict[BrokerId, list[BrokerId]] = {
            name: [beyond] for name, beyond in itertools.pairwise(names)
        }
        self.lost: set[tuple[BrokerId, BrokerId]] = set()
        self.sent: list[tuple[BrokerId, BrokerId, Any]] = []
        self.sent_at: list[int] = []
        self.flying: list[tuple[int, BrokerId, BrokerId, Any]] = []
        self.contexts: dict[BrokerId, Context] = {}
        self.requests: dict[BrokerId, PubendRequests] = {}
        for name in names:
            self.start(name, parameters)

    def start(
        self, name: BrokerId, parameters: Parameters = PARAMETERS, incarnation: int = 1
    ) -> None:
        """Start a new incarnation of a broker."""
        context = Context(Identity(name, name, incarnation), parameters)
        context.now = self.now
        self.contexts[name] = context
        around = NetView(self, name)
        self.requests[name] = PubendRequests(context, around, around, around)

    def read(
        self,
        low: Tick = 1,
        high: Tick = 9,
        *,
        log_hold: LogHoldId | None = None,
        log_hold_tick: Tick | None = None,
        requester: BrokerId = "a",
    ) -> tuple[PendingRequest, list[ReadReply]]:
        answers: list[ReadReply] = []
        pending_request = self.requests[requester].read(
            STOCKS,
            "a > 1",
            low,
            high,
            log_hold=log_hold,
            then=answers.append,
            log_hold_tick=log_hold_tick,
        )
        return pending_request, answers

    def run(self, ms: int = 20) -> None:
        """Let time pass."""
        for _ in range(ms):
            self.collect()
            self.now += microseconds(ms=1)
            for context in self.contexts.values():
                context.now = self.now
            due = [each for each in self.flying if each[0] <= self.now]
            self.flying = [each for each in self.flying if each[0] > self.now]
            for _, source, target, message in due:
                self.receive(target, source, message)
            for context in self.contexts.values():
                context.run_timers()
        self.collect()

    def receive(self, target: BrokerId, source: BrokerId, message: Any) -> None:
        """Pass a message to its handler."""
        self.requests[target].handlers[type(message)](source, message)

    def collect(self) -> None:
        for name, context in self.contexts.items():
            for peer, messages in context.take_messages():
                for message in messages:
                    self.sent.append((name, peer, message))
                    self.sent_at.append(self.now)
                    if (name, peer) not in self.lost:
                        self.flying.append((self.now + microseconds(ms=1), name, peer, message))

    def of(self, kind: type[Any]) -> list[tuple[BrokerId, BrokerId, Any]]:
        """Return the messages of a kind that were sent."""
        return [each for each in self.sent if isinstance(each[2], kind)]

    def marks(self, name: BrokerId) -> dict[str, int]:
        return self.contexts[name].coverage_marks


# --- request and reply ----------------------------------------------------------------------------


def test_a_read_is_routed_over_three_brokers_and_its_reply_takes_the_same_route_back() -> None:
    net = Net("abcp")
    _, answers = net.read(3, 7)
    net.run()
    there = [(source, target, read.route) for source, target, read in net.of(Read)]
    assert there == [("a", "b", ()), ("b", "c", ("b",)), ("c", "p", ("b", "c"))]
    back = [(source, target, reply.route) for source, target, reply in net.of(ReadReply)]
    assert back == [("p", "c", ("a", "b", "c")), ("c", "b", ("a", "b")), ("b", "a", ("a",))]
    assert [reply.done for reply in answers] == [7]
    assert net.requests["a"].statistics() == {"active": 0, "queued": 0, "ids": 0}


def test_a_reply_takes_the_recorded_route_although_the_next_hops_have_changed() -> None:
    net = Net("abcp")
    net.pubend.at_once = False
    _, answers = net.read()
    net.run()
    net.hops = {}
    net.pubend.waiting.pop()()
    net.run()
    assert len(answers) == 1


def test_requests_that_end_a_log_hold_and_a_membership_are_answered_by_request_done() -> None:
    # R49, R55
    net = Net()
    done: list[str] = []
    net.requests["a"].release_log_hold(STOCKS, LOG_HOLD, lambda: done.append("hold"))
    net.requests["a"].leave(STOCKS, HOST, MembershipId(2, 5), lambda: done.append("leave"))
    net.run()
    assert done == ["hold", "leave"]
    assert net.pubend.requested == [LOG_HOLD, (HOST, MembershipId(2, 5))]
    assert len(net.of(ReleaseLogHold)) == len(net.of(LeavePubend)) == 2
    assert len(net.of(RequestDone)) == 4


def test_a_read_names_its_log_hold_and_its_tick() -> None:
    # R49: just below the read range, unless the client has acknowledged less
    net = Net()
    net.read(50, log_hold=LOG_HOLD)
    net.read(50, log_hold=LOG_HOLD, log_hold_tick=20)
    net.run()
    assert [(read.log_hold, read.log_hold_tick) for read in net.pubend.requested] == [
        (LOG_HOLD, 49),
        (LOG_HOLD, 20),
    ]
    assert net.pubend.requested[0].bytes_max == PARAMETERS.read_chunk_bytes


def test_a_request_to_a_local_pubend_is_answered_without_a_message() -> None:
    net = Net()
    done: list[bool] = []
    _, answers = net.read(requester="p")
    net.requests["p"].leave(STOCKS, HOST, MembershipId(1, 1), lambda: done.append(True))
    assert answers == []
    assert done == []  # never before the requester has its pending request
    net.run(1)
    assert len(answers) == 1
    assert done == [True]
    assert net.sent == []


def test_requests_and_replies_have_a_handler_and_other_messages_have_none() -> None:
    handled = {Read, ReleaseLogHold, LeavePubend, ReadReply, RequestDone, CountEvents, EventCounts}
    assert Net().requests["a"].handlers.keys() == handled


# --- repetition -----------------------------------------------------------------------------------


def test_a_request_is_repeated_under_a_new_id_after_growing_pauses_until_answered() -> None:
    net = Net()
    net.lost.add(("b", "p"))
    _, answers = net.read()
    net.run(20_000)
    times = [at for at, (source, _, _) in zip(net.sent_at, net.sent, strict=True) if source == "a"]
    pauses_ms = [(later - earlier) // 1_000 for earlier, later in itertools.pairwise(times)]
    assert pauses_ms == [1_000, 2_000, 4_000, 5_000, 5_000]
    ids = [read.request for source, _, read in net.of(Read) if source == "a"]
    assert ids == sorted(set(ids))
    net.lost.clear()
    net.run(6_000)
    assert len(answers) == 1
    sent = len(net.sent)
    net.run(20_000)
    assert len(net.sent) == sent


def test_only_the_first_reply_to_several_attempts_is_used() -> None:
    net = Net()
    net.pubend.at_once = False
    _, answers = net.read()
    net.run(1_500)
    assert len(net.pubend.waiting) == 2
    for answer in net.pubend.waiting:
        answer()
    net.run()
    assert len(answers) == 1
    assert net.marks("a")["reply to an ended request"] == 1


def test_a_reply_to_an_earlier_attempt_is_used() -> None:
    net = Net()
    net.pubend.at_once = False
    _, answers = net.read()
    net.run(1_500)
    net.pubend.waiting[0]()
    net.run()
    assert [reply.request for reply in answers] == [net.pubend.requested[0].request]


def test_a_reply_to_a_very_old_attempt_is_dropped() -> None:
    net = Net()
    net.pubend.at_once = False
    _, answers = net.read()
    net.run(60_000)
    assert net.requests["a"].statistics()["ids"] == 8
    net.pubend.waiting[0]()
    net.run()
    assert answers == []
    assert net.marks("a")["reply to an ended request"] == 1


def test_a_reply_to_an_earlier_incarnation_is_dropped() -> None:
    net = Net()
    net.pubend.at_once = False
    net.read(1, 9)
    net.run()
    net.start("a", incarnation=2)
    _, answers = net.read(100, 200)
    net.pubend.waiting[0]()
    net.run()
    assert answers == []
    net.pubend.waiting[1]()
    net.run()
    assert [reply.done for reply in answers] == [200]


def test_a_reply_to_another_request_is_dropped() -> None:
    net = Net()
    net.pubend.at_once = False
    _, answers = net.read()
    net.run()
    request = net.pubend.requested[0].request
    net.receive("a", "b", RequestDone(STOCKS, request, ("a",)))
    net.receive("a", "b", ReadReply(PubendId("x"), request, ("a",), (), 9, 9, 0, 0))
    net.receive("a", "b", EventCounts(STOCKS, request, ("a",), 9, ()))
    assert answers == []
    assert net.marks("a")["reply to another request"] == 3


def test_a_count_of_events_is_routed_and_accepts_no_other_reply() -> None:
    net = Net()
    replies: list[EventCounts] = []
    net.pubend.at_once = False
    net.requests["a"].count_events(STOCKS, (40, 70), replies.append)
    net.run()
    request = net.pubend.requested[0]
    net.receive("a", "b", RequestDone(STOCKS, request.request, ("a",)))
    assert net.marks("a")["reply to another request"] == 1
    net.pubend.waiting[0]()
    net.run()
    (reply,) = replies
    assert reply.total == 99
    assert reply.counts == (EventCount(40, 4, 41), EventCount(70, 7, 71))


def read_fields(*ranges: tuple[Tick, ...], done: Tick = 9, released: Tick = 0) -> dict[str, Any]:
    """Return the fields of a reply: ranges, each with two ends and the ticks of its events."""
    made = tuple(
        KnowledgeRange(
            low, high, 1, 0, tuple(Publication(tick, "ann", tick, {}, b"") for tick in ticks)
        )
        for low, high, *ticks in ranges
    )
    return {"ranges": made, "done": done, "released": released}


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(read_fields((1, 9, 5, 5)), id="an event twice"),
        pytest.param(read_fields((1, 9, 6, 5)), id="events out of order"),
        pytest.param(read_fields((1, 5), (9, 6)), id="a range with high below low"),
        pytest.param(read_fields((1, 5), (1, 5)), id="a range twice"),
        pytest.param(read_fields((1, 5), (5, 9)), id="ranges that overlap"),
        pytest.param(read_fields((6, 9), (1, 5)), id="ranges out of order"),
        pytest.param(read_fields((1, 5), (7, 9)), id="a missing range"),
        pytest.param(read_fields((1, 9, 7), done=6), id="an end below its ranges"),
        pytest.param(read_fields((0, 9)), id="a start below the request"),
        pytest.param(read_fields((2, 9)), id="a start above the request"),
        pytest.param(read_fields((5, 9), released=3), id="a start above the released ticks"),
        pytest.param(read_fields((1, 10), done=10), id="an end above the question"),
    ],
)
def test_an_invalid_reply_is_refused_and_the_request_is_repeated(
    reply: dict[str, Any],
) -> None:
    net = Net()
    net.pubend.replies = [reply]
    _, answers = net.read(1, 9)
    net.run()
    assert answers == []
    assert net.marks("a")["invalid reply"] == 1
    assert net.requests["a"].statistics()["active"] == 1
    net.run(1_500)
    first, second = net.pubend.requested
    assert first.request < second.request
    assert [answer.done for answer in answers] == [9]


@pytest.mark.parametrize(
    "reply",
    [
        read_fields((1, 9, 1, 5, 9)),
        read_fields((1, 3, 2), (4, 6), (7, 9, 7)),
        read_fields((1, 5, 5), done=5),
        read_fields((4, 9, 4), released=3),
        read_fields(done=3, released=3),
        read_fields(done=20, released=20),
    ],
)
def test_a_reply_must_start_at_the_requested_tick_or_above_the_released_ticks(
    reply: dict[str, Any],
) -> None:
    net = Net()
    net.pubend.replies = [reply]
    _, answers = net.read(1, 9)
    net.run()
    (answer,) = answers
    assert (answer.ranges, answer.done) == (reply["ranges"], reply["done"])


def test_intermediate_hops_forward_a_reply_unchanged() -> None:
    net = Net()
    net.pubend.replies = [read_fields((1, 9, 5, 5))]
    net.read(1, 9)
    net.run()
    assert "invalid reply" not in net.marks("b")
    assert len(net.of(ReadReply)) == 2


def test_a_reply_of_a_local_pubend_is_not_validated() -> None:
    net = Net()
    net.pubend.replies = [read_fields((1, 9, 5, 5))]
    _, answers = net.read(1, 9, requester="p")
    net.run()
    assert len(answers) == 1


@pytest.mark.parametrize("count", [2, 3, 4])
def test_pending_requests_that_take_turns_each_try_every_hop(count: int) -> None:
    # the id picks the hop; two requests must not each use the same dead hop for ever
    net = Net("abcdep")
    net.hops["a"] = list("bcde"[:count])
    net.lost = {("a", each) for each in "bcde"}
    net.read(1, 1)
    net.read(2, 2)
    net.run(20_000)
    for low in (1, 2):
        tried = [target for source, target, read in net.of(Read) if read.low == low]
        assert set(tried[:count]) == set(net.hops["a"])


# --- no route -------------------------------------------------------------------------------------


def test_a_request_without_a_route_waits_and_is_sent_when_a_session_opens() -> None:
    net = Net()
    hops, net.hops["a"] = net.hops["a"], []
    _, answers = net.read()
    net.run(10_000)
    assert net.sent == []
    assert net.requests["a"].statistics()["ids"] == 0
    net.hops["a"] = hops
    net.requests["a"].session_opened()
    net.run()
    assert len(answers) == 1


def test_a_new_session_shortens_the_pause_before_the_next_attempt() -> None:
    net = Net()
    net.lost.add(("a", "b"))
    _, answers = net.read()
    net.run(7_100)  # the next attempt would be at 12 seconds
    net.lost.clear()
    sent = len(net.sent)
    net.requests["a"].session_opened()
    net.run(900)
    assert len(net.sent) == sent
    net.run(150)
    assert len(answers) == 1


def test_a_hop_without_a_route_drops_the_request_and_the_requester_repeats_it() -> None:
    net = Net()
    hops, net.hops["b"] = net.hops["b"], []
    _, answers = net.read()
    net.run()
    assert net.marks("b")["request without a route"] == 1
    net.hops["b"] = hops
    net.run(1_100)
    assert len(answers) == 1


def test_a_request_that_would_loop_is_dropped() -> None:
    net = Net("abcp")
    net.hops["c"] = ["b"]
    net.read()
    net.run()
    assert net.marks("c")["request looped"] == 1
    assert len(net.of(Read)) == 2  # it is not sent to a broker that has had it
    for requester, route in (("c", ("x",)), ("x", ("c", "y"))):
        read = Read(STOCKS, 1, requester, route, "a > 1", 1, 2, None, 100)
        net.receive("c", route[-1], read)
    assert net.marks("c")["request looped"] == 3


def test_a_request_with_too_many_hops_is_dropped() -> None:
    net = Net()
    route = tuple(f"hop{number}" for number in range(127))
    far = Read(STOCKS, 1, "x", route, "a > 1", 1, 2, None, 100)
    net.receive("b", "hop126", far)
    net.collect()
    assert len(net.of(Read)) == 1
    net.receive("p", "b", net.of(Read)[0][2])
    assert net.marks("p") == {"request with a wrong route": 1}
    assert net.pubend.requested == []


@pytest.mark.parametrize("route", [(), ("y",), ("x", "a"), ("a", "y", "a")])
def test_a_request_whose_route_does_not_end_with_its_sender_or_repeats_a_broker_is_dropped(
    route: tuple[str, ...],
) -> None:
    net = Net()
    net.receive("b", "a", Read(STOCKS, 1, "x", route, "a > 1", 1, 2, None, 100))
    net.collect()
    assert net.of(Read) == []
    assert net.marks("b") == {"request with a wrong route": 1}


def test_a_reply_that_would_go_round_is_dropped() -> None:
    net = Net()
    net.receive("b", "p", RequestDone(STOCKS, 1, ("x", *("a", "b") * 50)))
    net.collect()
    assert net.of(RequestDone) == []
    assert net.marks("b") == {"reply with a wrong route": 1}


def test_a_reply_for_another_broker_is_dropped() -> None:
    net = Net()
    for route in ((), ("a", "c")):
        net.receive("b", "p", RequestDone(STOCKS, 1, route))
    net.collect()
    assert net.marks("b") == {"reply with a wrong route": 2}
    assert net.sent == []


# --- limits and cancellation ----------------------------------------------------------------------


def test_reads_above_the_limit_are_queued_in_order() -> None:
    net = Net()
    net.pubend.at_once = False
    found = [net.read(low, low)[1] for low in range(1, 7)]
    done: list[bool] = []
    net.requests["a"].leave(STOCKS, HOST, MembershipId(1, 1), lambda: done.append(True))
    net.run()
    assert [read.low for read in net.pubend.requested[:3]] == [1, 2, 3]
    assert net.pubend.requested[3:] == [(HOST, MembershipId(1, 1))]  # only reads are limited
    net.pubend.waiting[1]()
    net.run()
    assert net.pubend.requested[4].low == 4
    assert found[1]
    net.pubend.waiting[0]()
    net.pubend.waiting[2]()
    net.run()
    assert [read.low for read in net.pubend.requested[5:]] == [5, 6]


def test_a_read_started_by_a_reply_is_queued_behind_waiting_reads() -> None:
    net = Net(parameters=Parameters(reads_per_shb_max=1))
    order: list[Tick] = []

    def more(reply: ReadReply) -> None:
        order.append(reply.done)
        if reply.done < 100:
            net.requests["a"].read(STOCKS, "a > 1", 100, 100, log_hold=None, then=more)

    for high in (1, 2):
        net.requests["a"].read(STOCKS, "a > 1", 1, high, log_hold=None, then=more)
    net.run(50)
    assert order == [1, 2, 100, 100]


def test_a_read_of_corrupt_rows_does_not_block_others_and_is_retried() -> None:
    # P8: a corrupt row may stay corrupt for ever
    net = Net(parameters=Parameters(reads_per_shb_max=1))
    net.pubend.corrupt = {1, 2}
    reads = [net.read(low, low) for low in (1, 2, 3)]
    net.run()
    assert [bool(answers) for _, answers in reads] == [False, False, True]
    requested = len(net.pubend.requested)
    net.run(4_000)
    assert {read.low for read in net.pubend.requested[requested:]} == {1, 2}
    assert len(net.pubend.requested) - requested <= 8, "the retries are spaced"
    net.pubend.corrupt = set()
    net.run(6_000)
    assert all(answers for _, answers in reads)
    assert net.requests["a"].statistics() == {"active": 0, "queued": 0, "ids": 0}


def test_a_read_that_yielded_its_turn_can_be_cancelled() -> None:
    net = Net(parameters=Parameters(reads_per_shb_max=1))
    net.pubend.corrupt = {1, 2}
    pending_requests = [net.read(low, low)[0] for low in (1, 2)]
    net.run()
    for pending_request in pending_requests:
        pending_request.cancel()
    requested = len(net.pubend.requested)
    net.run(4_000)
    assert len(net.pubend.requested) == requested
    assert net.requests["a"].statistics() == {"active": 0, "queued": 0, "ids": 0}
    assert net.read(3, 3)[0].has_turn


def test_a_cancelled_pending_request_is_not_called_back_and_not_repeated() -> None:
    net = Net()
    net.pubend.at_once = False
    pending_request, answers = net.read()
    net.run()
    pending_request.cancel()
    pending_request.cancel()
    net.pubend.waiting[0]()
    sent = len(net.of(Read))
    net.run(10_000)
    assert answers == []
    assert len(net.of(Read)) == sent
    assert net.marks("a")["reply to an ended request"] == 1
    assert net.requests["a"].statistics() == {"active": 0, "queued": 0, "ids": 0}


def test_cancelling_a_read_starts_the_next_and_queued_reads_can_be_cancelled() -> None:
    net = Net()
    net.pubend.at_once = False
    pending_requests = [net.read(low, low)[0] for low in range(1, 6)]
    pending_requests[3].cancel()
    pending_requests[0].cancel()
    net.run()
    assert [read.low for read in net.pubend.requested] == [1, 2, 3, 5]
    for pending_request in pending_requests:
        pending_request.cancel()
    assert net.requests["a"].statistics() == {"active": 0, "queued": 0, "ids": 0}


def test_a_request_to_a_local_pubend_that_is_cancelled_in_time_is_not_executed() -> None:
    net = Net()
    pending_request, answers = net.read(requester="p", log_hold=LOG_HOLD)
    pending_request.cancel()
    net.run()
    assert net.pubend.requested == []
    assert answers == []


def test_a_cancel_after_the_reply_has_no_effect() -> None:
    net = Net(parameters=Parameters(reads_per_shb_max=1))
    pending_request, _ = net.read()
    net.run()
    net.pubend.at_once = False
    net.read()
    pending_request.cancel()
    assert net.requests["a"].statistics()["active"] == 1
    net.read()
    assert net.requests["a"].statistics()["queued"] == 1


def test_a_request_that_a_local_pubend_leaves_unanswered_is_repeated() -> None:
    net = Net()
    net.pubend.at_once = False
    _, answers = net.read(requester="p")
    net.run(1_100)
    assert len(net.pubend.requested) == 2
    net.hosts.clear()  # the pubend has moved
    net.hops["p"] = ["b"]
    net.run(2_000)
    assert [target for _, target, _ in net.of(Read)] == ["b"]
    assert answers == []
