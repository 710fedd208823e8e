"""Ack reports of peers are taken in parts, and are bounded where they enter (R52)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from gapless.core.context import StepTime
from gapless.core.effects import Write
from gapless.core.events import Written
from gapless.core.ids import PubendId, ShbId
from gapless.core.limits import (
    NACK_RANGES_MAX,
    REPORT_ITEMS_MAX,
    REPORTS_PER_STEP_MAX,
    REPORTS_WAITING_MAX,
)
from gapless.core.parameters import DEFAULTS
from gapless.core.ticks import TickRange
from gapless.messages.streams import AckReport, DefineMemberSet, Nack
from tests.routing.test_reports import STOCKS, Relay, member

MEMBERS = tuple(member(f"s{number}") for number in range(100))
PUBENDS = tuple((PubendId(f"p{number}"), 5) for number in range(100))


class Broker(Relay):
    """A router with pubends of its own, whose steps a test makes."""

    def __init__(self) -> None:
        super().__init__()
        self.here = {pubend for pubend, _ in PUBENDS}
        self.begin_step()

    def begin_step(self) -> None:
        self.context.begin_step(StepTime(self.context.now + 1, 0))

    def next_step(self) -> bool:
        """Complete the writes of the last step; return whether there were any."""
        writes = [each for each in self.context.take_effects() if isinstance(each, Write)]
        self.begin_step()
        for write in writes:
            self.context.resume(Written(write.write_id))
        return bool(writes)

    def sends(self, peer: str, number: int = 1, *, tick: int = 5) -> None:
        acknowledged = tuple((pubend, tick) for pubend, _ in PUBENDS)
        self.reports.define(peer, DefineMemberSet(number, MEMBERS))
        self.reports.report(peer, AckReport(number, acknowledged))


def test_a_step_takes_a_bounded_number_of_reports_and_the_next_ones_take_the_rest() -> None:
    broker = Broker()
    broker.sends("x")
    broker.sends("y", tick=6)
    counts = [len(broker.hosted)]
    while broker.next_step():
        counts.append(len(broker.hosted))
    assert counts[0] == REPORTS_PER_STEP_MAX
    assert all(after - before <= REPORTS_PER_STEP_MAX for before, after in pairwise(counts))
    expected = [
        (pubend, each.shb.broker, tick)
        for tick in (5, 6)
        for pubend, _ in PUBENDS
        for each in MEMBERS
    ]
    assert broker.hosted == expected


def test_a_report_uses_the_set_that_was_defined_when_it_arrived() -> None:
    broker = Broker()
    broker.sends("x")
    broker.reports.define("x", DefineMemberSet(1, (member("other"),)))
    while broker.next_step():
        pass
    assert {name for _, name, _ in broker.hosted} == {each.shb.broker for each in MEMBERS}


def test_the_reports_of_a_closed_session_are_not_taken_any_more() -> None:
    broker = Broker()
    broker.sends("x")
    broker.sends("y", tick=6)
    broker.reports.session_closed("x")
    taken = len(broker.hosted)
    while broker.next_step():
        pass
    assert {tick for _, _, tick in broker.hosted[taken:]} == {6}
    assert len(broker.hosted) == taken + len(MEMBERS) * len(PUBENDS)


def test_reports_beyond_the_limit_are_dropped() -> None:
    broker = Broker()
    for _ in range(2 * REPORTS_WAITING_MAX // (len(MEMBERS) * len(PUBENDS))):
        broker.sends("x")
    assert broker.context.coverage_marks["reports dropped"]
    broker.reports.session_closed("x")
    broker.next_step()
    broker.sends("y", tick=9)
    assert broker.hosted[-1][2] == 9, "there is room again"


def test_a_router_divides_large_groups_and_long_reports() -> None:
    relay = Relay()
    many = [f"s{number:04}" for number in range(REPORT_ITEMS_MAX + 1)]
    relay.reports.define("x", DefineMemberSet(1, tuple(map(member, many))))
    relay.reports.report("x", AckReport(1, ((STOCKS, 5),)))
    relay.reports.define("x", DefineMemberSet(2, (member("a"),)))
    pubends = tuple((PubendId(f"p{number}"), 5) for number in range(REPORT_ITEMS_MAX + 1))
    relay.reports.report("x", AckReport(2, pubends))
    for _ in range(9):
        for write in [each for each in relay.context.take_effects() if isinstance(each, Write)]:
            relay.context.begin_step(StepTime(relay.context.now, 0))
            relay.context.resume(Written(write.write_id))
    relay.run(ms=600)
    messages = relay.posted()
    sets = [each for each in messages if isinstance(each, DefineMemberSet)]
    reports = [each for each in messages if isinstance(each, AckReport)]
    assert max(len(each.members) for each in sets) == REPORT_ITEMS_MAX
    assert max(len(each.acknowledged) for each in reports) == REPORT_ITEMS_MAX
    assert {each.shb.broker for found in sets for each in found.members} == {*many, "a"}
    assert {pubend for each in reports for pubend, _ in each.acknowledged} == {
        STOCKS,
        *(pubend for pubend, _ in pubends),
    }


@pytest.mark.parametrize(
    ("fits", "too_long"),
    [
        (
            Nack(STOCKS, (TickRange(1, 1),) * NACK_RANGES_MAX),
            Nack(STOCKS, (TickRange(1, 1),) * (NACK_RANGES_MAX + 1)),
        ),
        (
            AckReport(1, ((STOCKS, 1),) * REPORT_ITEMS_MAX),
            AckReport(1, ((STOCKS, 1),) * (REPORT_ITEMS_MAX + 1)),
        ),
        (
            DefineMemberSet(1, (member("a"),) * REPORT_ITEMS_MAX),
            DefineMemberSet(1, (member("a"),) * (REPORT_ITEMS_MAX + 1)),
        ),
    ],
    ids=["nack", "report", "set"],
)
def test_a_longer_list_than_a_router_sends_is_malformed(
    fits: msgspec.Struct, too_long: msgspec.Struct
) -> None:
    decoder = msgspec.msgpack.Decoder(type(fits))
    assert decoder.decode(msgspec.msgpack.encode(fits)) == fits
    with pytest.raises(msgspec.ValidationError):
        decoder.decode(msgspec.msgpack.encode(too_long))


def test_no_parameter_allows_a_longer_nack() -> None:
    assert DEFAULTS.nack_ranges_max <= NACK_RANGES_MAX
    msgspec.structs.replace(DEFAULTS, nack_ranges_max=NACK_RANGES_MAX)
    with pytest.raises(Exception, match="nack_ranges_max"):
        msgspec.structs.replace(DEFAULTS, nack_ranges_max=NACK_RANGES_MAX + 1)


def test_reports_that_wait_for_a_feeder_are_not_looked_at_in_every_step() -> None:
    """Otherwise each step with a new member looks at all reports that wait."""
    relay = Relay()
    relay.feeds = None
    relay.receives("x", ["s"], STOCKS, 5)
    looked: list[ShbId] = []

    class Counted(dict[ShbId, Any]):
        def __getitem__(self, shb: ShbId) -> Any:
            looked.append(shb)
            return super().__getitem__(shb)

    last = relay.reports._last_reports
    last[STOCKS] = Counted(last[STOCKS])
    for number in range(50):
        relay.receives("x", [f"s{number}"], STOCKS, 5)
        relay.reports.flush()
    assert looked == []
    relay.feeds = "up"
    relay.run(ms=600)
    assert [len(names) for names in relay.passed_on()] == [51]
