"""Recovery of streams: when a stream counts as flowing, and that a stopped stream is reported."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from gapless_lab.chaos import flow as flow_module
from gapless_lab.chaos.flow import (
    Counts,
    Failover,
    FailoverRow,
    ObservedStream,
    StreamRecovery,
    tabulate,
)
from tests.client.running import async_test

if TYPE_CHECKING:
    from gapless.client import Event

NYSE, LSE = ObservedStream("tape", "nyse"), ObservedStream("tape", "lse")
TEMPORARY = ObservedStream("visitor", "nyse")
SHORT_S = 0.01


class Clock:
    """A clock that the test sets, in microseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at_us = 1_000_000
        monkeypatch.setattr(flow_module, "now_us", lambda: self.at_us)


def take(flow: StreamRecovery, stream: ObservedStream, tick: int, at_us: int) -> None:
    """Give one event to a subscriber."""
    event = cast("Event", SimpleNamespace(tick=tick, pubend=stream.pubend))
    flow.took(stream.subscriber, [event], at_us)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@async_test
async def test_a_stream_without_events_is_named_at_the_timeout() -> None:
    flow = StreamRecovery()
    flow.reset()
    assert await flow.await_all([NYSE, LSE], SHORT_S) == [LSE, NYSE]
    assert flow.slowest_s([NYSE, LSE]) is None


def test_events_published_before_the_fault_do_not_count(clock: Clock) -> None:
    flow = StreamRecovery()
    flow.reset()
    take(flow, NYSE, clock.at_us, clock.at_us + 300_000)
    assert flow.slowest_s([NYSE]) is None, "it was published before the fault"
    take(flow, NYSE, clock.at_us + 1, clock.at_us + 500_000)
    assert flow.slowest_s([NYSE]) == 0.5


def test_the_first_event_of_the_slowest_stream_counts(clock: Clock) -> None:
    flow = StreamRecovery()
    flow.reset()
    for after_us in (200_000, 900_000):
        take(flow, NYSE, clock.at_us + after_us, clock.at_us + after_us)
    take(flow, LSE, clock.at_us + 300_000, clock.at_us + 400_000)
    assert flow.slowest_s([NYSE]) == 0.2
    assert flow.slowest_s([NYSE, LSE]) == 0.4


@async_test
async def test_a_flowing_stream_does_not_hide_a_stopped_one() -> None:
    flow = StreamRecovery()
    flow.reset()
    take(flow, NYSE, 2**60, 2**60)
    assert await flow.await_all([NYSE], SHORT_S) == []
    assert await flow.await_all([NYSE, LSE], SHORT_S) == [LSE]


@async_test
async def test_after_a_reset_all_streams_have_to_flow_again() -> None:
    flow = StreamRecovery()
    flow.reset()
    take(flow, NYSE, 2**60, 2**60)
    flow.reset()
    assert await flow.await_all([NYSE], SHORT_S) == [NYSE]


def test_a_later_subscriber_is_measured_from_its_own_start(clock: Clock) -> None:
    flow = StreamRecovery()
    flow.reset()
    clock.at_us += 700_000
    flow.reset_for(["visitor"])
    take(flow, TEMPORARY, clock.at_us - 1, clock.at_us + 10_000)
    assert flow.slowest_s([TEMPORARY]) is None, "it was published before the subscriber came"
    take(flow, TEMPORARY, clock.at_us + 1, clock.at_us + 20_000)
    take(flow, NYSE, clock.at_us - 1, clock.at_us + 10_000)
    assert flow.slowest_s([TEMPORARY]) == 0.02
    assert flow.slowest_s([NYSE]) == 0.71


def test_failovers_are_tabulated_by_kind() -> None:
    found = [
        Failover("crash", 1.0, 0.5, 4.0, 0.25),
        Failover("crash", 3.0, None, counts=Counts(9, 6, 3)),
        Failover("cut", None, None),
    ]
    assert tabulate(found) == [
        FailoverRow("crash", 2, 2.0, 3.0, 0.5, 0.5, 4.0, 4.0, 0.25, 0.25, waited_most=3),
        FailoverRow("cut", 1, *(None,) * 8),
    ]


def test_a_stream_without_a_new_event_is_still_waiting(clock: Clock) -> None:
    flow = StreamRecovery()
    flow.reset()
    assert flow.still([NYSE, LSE]) == {NYSE, LSE}
    take(flow, NYSE, clock.at_us + 1, clock.at_us + 2)
    take(flow, LSE, clock.at_us - 1, clock.at_us + 2)
    assert flow.still([NYSE, LSE]) == {LSE}, "the event was published before"


def test_the_summary_of_a_fault_counts_the_streams_with_a_route_and_those_that_waited() -> None:
    found = Failover("δ + 1 cells in a row", 0.1, 2.0, 1.5, 0.25, Counts(26, 7, 19))
    assert found.story == (
        "7 of 26 streams had a route, and flowed again after 0.10 s; failovers took 1.50 s; "
        "new subscriptions flowed after 0.25 s; 19 waited until it was over; "
        "all flowed 2.00 s after healing"
    )
    without_streams = Failover("freeze", None, None, counts=Counts(3, 0, 0))
    assert without_streams.story == "0 of 3 streams had a route"
