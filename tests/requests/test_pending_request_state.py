"""The states of a pending request: every state with every input, and the class (R48)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.context import Context, Identity
from gapless.core.ids import PubendId, ShbId
from gapless.core.parameters import Parameters, microseconds
from gapless.messages.pubend_requests import LogHoldId, Read, ReadReply, ReleaseLogHold, RequestDone
from gapless.requests.pending import PendingRequest, PendingRequests, PubendRequest
from gapless.requests.pending_request_state import (
    NEXT_STATES,
    PendingRequestInput,
    PendingRequestState,
)

P = PubendId("P")
LOG_HOLD = LogHoldId(ShbId("a", "a"), "mine")


class Bench:
    """The pending requests of a broker with a hop that a test removes and restores."""

    def __init__(self, reads_max: int = 1) -> None:
        self.context = Context(Identity("a", "a", 1), Parameters(reads_per_shb_max=reads_max))
        self.requests = PendingRequests(self.context, self)
        self.has_hop = True
        self.sent: list[int] = []
        self.faults: list[str] = []
        self.on_fault: Callable[[], None] = lambda: None
        self.all: list[PendingRequest] = []

    def send(self, request: PubendRequest) -> bool:
        if self.has_hop:
            self.sent.append(request.request)
        return self.has_hop

    def read(self) -> PendingRequest:
        def fault(reason: str) -> None:
            self.faults.append(reason)
            self.on_fault()

        def made(number: int) -> Read:
            return Read(P, number, "a", (), "TRUE", 1, 9, None, 1, 0)

        self.all.append(self.requests.read(P, made, lambda _: None, fault))
        return self.all[-1]

    def release(self) -> PendingRequest:
        def made(number: int) -> ReleaseLogHold:
            return ReleaseLogHold(P, number, "a", (), LOG_HOLD)

        self.all.append(self.requests.request(P, made, lambda _: None))
        return self.all[-1]

    def reply(self, pending: PendingRequest, fault: str = "") -> None:
        """Answer the oldest attempt."""
        number = pending.ids[0]
        if pending.is_read:
            self.requests.answered(ReadReply(P, number, ("a",), (), 9, 9, 0, 0, fault))
        else:
            self.requests.answered(RequestDone(P, number, ("a",)))

    def run(self, ms: int) -> None:
        self.context.now += microseconds(ms=ms)
        self.context.run_timers()


def queued() -> tuple[Bench, PendingRequest]:
    bench = Bench()
    bench.read()
    return bench, bench.read()


def sent() -> tuple[Bench, PendingRequest]:
    bench = Bench()
    return bench, bench.read()


def unsent() -> tuple[Bench, PendingRequest]:
    bench, pending = sent()
    bench.has_hop = False
    bench.run(60_000)
    return bench, pending


def yielded() -> tuple[Bench, PendingRequest]:
    bench, pending = sent()
    bench.reply(pending, "a row is corrupt")
    return bench, pending


def ended() -> tuple[Bench, PendingRequest]:
    bench, pending = sent()
    bench.reply(pending)
    return bench, pending


MADE: dict[PendingRequestState, Callable[[], tuple[Bench, PendingRequest]]] = {
    PendingRequestState.QUEUED: queued,
    PendingRequestState.UNSENT: unsent,
    PendingRequestState.SENT: sent,
    PendingRequestState.YIELDED: yielded,
    PendingRequestState.ENDED: ended,
}


@pytest.mark.parametrize("cause", PendingRequestInput)
@pytest.mark.parametrize("state", PendingRequestState)
def test_every_input_in_every_state_leads_to_the_state_of_the_table(
    state: PendingRequestState, cause: PendingRequestInput
) -> None:
    _, pending = MADE[state]()
    assert pending.state is state
    if (state, cause) in NEXT_STATES:
        pending.enter(cause)
        assert pending.state is NEXT_STATES[state, cause]
    else:
        with pytest.raises(AssertionError, match=cause.name):
            pending.enter(cause)


def test_the_table_names_every_state_and_every_input() -> None:
    assert {state for state, _ in NEXT_STATES} == set(PendingRequestState)
    assert {cause for _, cause in NEXT_STATES} == set(PendingRequestInput)


def test_a_read_that_ends_with_a_fault_frees_its_turn_once() -> None:
    bench = Bench()
    first, second, third = bench.read(), bench.read(), bench.read()
    bench.on_fault = first.cancel
    bench.reply(first, "a row is corrupt")
    assert first.state is PendingRequestState.ENDED
    assert second.state is PendingRequestState.SENT
    assert third.state is PendingRequestState.QUEUED


def test_a_read_without_a_turn_and_without_a_hop_is_sent_when_a_session_opens() -> None:
    bench, pending = sent()
    bench.has_hop = False
    bench.run(60_000)
    bench.reply(pending, "a row is corrupt")
    assert pending.state is PendingRequestState.YIELDED
    bench.has_hop = True
    bench.requests.session_opened()
    assert (pending.state, pending.is_sent) == (PendingRequestState.YIELDED, True)


STEPS = st.one_of(
    st.sampled_from(["read", "release", "session", "lose hop", "find hop"]),
    st.tuples(st.sampled_from(["reply", "fault", "cancel"]), st.integers(0, 5)),
    st.tuples(st.just("time"), st.integers(1, 5_000)),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_with_random_inputs_turns_and_queues_agree_with_the_states(
    steps: list[str | tuple[str, int]],
) -> None:
    bench = Bench(reads_max=2)
    for step in steps:
        match step:
            case "read":
                bench.read()
            case "release":
                bench.release()
            case "session":
                bench.requests.session_opened()
            case "lose hop":
                bench.has_hop = False
            case "find hop":
                bench.has_hop = True
            case "time", ms:
                bench.run(ms)
            case kind, index if index < len(bench.all):
                pending = bench.all[index]
                if kind == "cancel":
                    pending.cancel()
                elif pending.ids and bench.requests.is_awaited(pending.ids[0]):
                    bench.reply(pending, "corrupt" if kind == "fault" and pending.is_read else "")
            case _:
                continue
        turns = sum(each.has_turn for each in bench.all)
        assert turns == bench.requests._reading.get(P, 0) <= 2
        waiting = bench.requests._queue.get(P, {})
        states = {each.number: each.state for each in bench.all}
        assert set(waiting) == {
            number for number, state in states.items() if state is PendingRequestState.QUEUED
        }
        assert not waiting or turns == 2, "a turn is free and a read waits"
        for each in bench.all:
            if each.state in {PendingRequestState.SENT, PendingRequestState.UNSENT}:
                assert each.is_sent == (each.state is PendingRequestState.SENT)
