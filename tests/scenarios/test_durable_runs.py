"""Runs that once lost events of a durable subscriber, or stopped it without a fault of its own.

Each was found by comparing the rules with the code, and is a scenario of whole brokers.
"""

from __future__ import annotations

from typing import Any

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Delivery,
    Order,
    Refused,
    Seek,
    StartKind,
    StartPoint,
    Subscribe,
    SubscriptionEnded,
)
from gapless.messages.operating import RetireBroker
from gapless.messages.pubend_requests import Read
from gapless.messages.streams import AckReport
from tests.scenarios.brokers import Client, World, of

P = PubendId("P")


def at(tick: Tick) -> StartPoint:
    return StartPoint(StartKind.POSITION, ((P, tick),))


def test_a_client_connected_longer_than_its_expiry_keeps_its_subscription_over_a_crash() -> None:
    world = World("p-s")
    ann = world.publisher("p")
    desk = world.subscriber("s", "desk", "TRUE", durable=True)
    desk.end()
    world.run(s=1)
    desk.notices.clear()
    desk.request(Subscribe(desk.number(), "desk", "TRUE", True, credit=1000, expiry_s=5))
    world.run(s=8)
    ann.publish("e1")
    world.run(s=1)
    desk.acknowledge(P, ann.ticks["e1"])
    world.run(s=1)
    world.crash("s")
    ann.publish("e2")
    world.run(ms=200)
    world.start("s")
    world.run(s=1)
    desk.connect()
    desk.request(Subscribe(desk.number(), "desk", "TRUE", True, credit=1000, expiry_s=5))
    world.run(s=3)
    assert (desk.events, desk.gaps) == (["e1", "e2"], [])


def test_a_gap_that_did_not_reach_the_client_is_sent_again() -> None:
    # P5: a gap is not acknowledged by the silence after it
    class Deaf:
        def take_notice(self, notice: Any) -> None:
            del notice

    world = World(
        "p-s", member_expiry_s=200, inactive_after_s=100, log_hold_ttl_s=50, stale_table_ttl_s=1_800
    )
    ann = world.publisher("p")
    desk = world.subscriber("s", "desk", "TRUE", durable=True)
    world.run(s=2)
    ann.publish("e1")
    world.run(s=1)
    position = ann.ticks["e1"]
    desk.acknowledge(P, position)
    world.run(s=2)
    desk.leave()
    world.run(s=1)
    world.cut("p", "s")
    ann.publish("e2")
    world.run(s=250)  # the membership expires, and e2 is released
    assert world.released("p", P) >= ann.ticks["e2"]
    world.heal("p", "s")
    world.run(s=3)
    desk.connect()
    desk.subscribe(at(position))
    world.nodes["s"].clients["desk"] = Deaf()  # type: ignore[assignment]
    world.run(s=3)
    desk.leave()
    world.run(s=1)
    desk.notices.clear()
    desk.come_back(at(position))
    world.run(s=3)
    (gap,) = desk.gaps
    assert position < gap.low <= ann.ticks["e2"] <= gap.high


def test_a_log_hold_survives_a_partition_that_is_longer_than_its_ttl() -> None:
    # R49: when the partition heals, the SHB needs a while to refresh its log holds
    world = World("p-a-s", log_hold_ttl_s=20)
    ann = world.publisher("p")
    ann.publish("e0")
    world.run(ms=100)
    start = at(world.pubend("p", P).top)
    desk = world.subscriber("s", "desk", "TRUE", durable=True, start=start)
    world.run(s=2)
    for label in ("e1", "e2", "e3"):
        ann.publish(label)
    world.run(s=5)
    desk.leave()
    world.run(s=1)
    world.cut("p", "a")
    world.run(s=40)
    world.heal("p", "a")
    world.run(s=8)
    desk.notices.clear()
    desk.come_back()
    world.run(s=3)
    assert (desk.events, desk.gaps) == (["e1", "e2", "e3"], [])


def test_the_log_is_retained_for_a_host_whose_reports_of_a_durable_subscription_were_lost() -> None:
    # R55: a report without durable subscriptions is true only until there is one
    world = World("p-s", member_grace_s=1, retention_s=0)
    ann = world.publisher("p")
    world.subscriber("s", "passing by", "TRUE")
    world.run(s=2)
    lost = world.lose(of(AckReport, source="s", target="p"))
    desk = world.subscriber("s", "desk", "TRUE", durable=True)
    world.run(s=1)
    ann.publish("e1")
    world.crash("s")
    world.start("s")
    world.run(s=5)
    lost.end()
    world.run(s=2)
    desk.come_back(at(ann.ticks["e1"] - 1))
    world.run(s=2)
    assert (desk.events, desk.gaps) == (["e1"], [])


def test_an_shb_that_lost_all_its_subscriptions_in_a_crash_leaves() -> None:
    # R43: so its broker's new incarnation need not count as the end of its membership
    world = World("p-s", interest_grace_s=1)
    world.publisher("p")
    world.subscriber("s", "passing by", "TRUE")
    world.run(s=2)
    assert world.member("p", P, "s") is not None
    world.crash("s")
    world.start("s")
    world.run(s=3)
    assert world.member("p", P, "s") is None


def test_a_seek_back_loses_nothing_when_the_shb_crashes_then() -> None:
    # I13: the name of the log hold is on disk before a report relies on it
    world = World("p-s", log_hold_ttl_s=20)
    ann = world.publisher("p")
    world.subscriber("s", "other", "TRUE")
    desk = world.subscriber("s", "desk", "TRUE", durable=True, credit=2)
    world.run(s=2)
    ann.publish("e1")
    world.run(s=1)
    desk.acknowledge(P, ann.ticks["e1"])
    world.run(s=1)
    for number in range(2, 6):
        ann.publish(f"e{number}")
    world.run(s=1)
    desk.request(Seek(desk.number(), "desk", at(ann.ticks["e1"] - 10)))
    world.run(s=3)
    world.restart("s")
    world.run(s=60)
    desk.notices.clear()
    desk.credit = 100
    desk.come_back()
    world.run(s=3)
    assert (desk.events, desk.gaps) == (["e2", "e3", "e4", "e5"], [])


def test_a_log_hold_is_released_only_when_its_successor_is_stored() -> None:
    # R49
    world = World("p-s")
    ann = world.publisher("p")
    world.subscriber("s", "other", "TRUE")
    world.run(s=2)
    top = world.pubend("p", P).top
    world.run(s=2)
    desk = world.subscriber("s", "desk", "TRUE", durable=True, start=at(top), credit=0)
    world.run(ms=300)
    labels = [f"e{number}" for number in range(1, 6)]
    for label in labels:
        ann.publish(label)
    world.run(s=3)
    lost = world.lose(of(Read, source="s"))
    desk.request(Seek(desk.number(), "desk", at(top + 1)))
    world.run(ms=900)
    lost.end()
    world.run(s=3)
    desk.give_credit(100)
    world.run(s=3)
    assert desk.events == labels
    assert all(gap.high < ann.ticks["e1"] for gap in desk.gaps)


def test_a_fenced_connection_cannot_end_the_subscription() -> None:
    world = World("p-s")
    ann = world.publisher("p")
    desk = world.subscriber("s", "desk", "TRUE", durable=True)
    world.run(s=1)
    newer = Client(world, "s", "desk again")
    newer.request(Subscribe(1, "desk", "TRUE", True, credit=100))
    world.run(s=1)
    assert any(isinstance(notice, SubscriptionEnded) for notice in desk.notices)
    desk.end()
    world.run(s=1)
    assert any(isinstance(notice, Refused) for notice in desk.notices)
    ann.publish("e1")
    world.run(s=2)
    assert any(isinstance(notice, Delivery) for notice in newer.notices)


def test_a_released_log_hold_stops_no_read_that_names_it() -> None:
    world = World("p-s", read_chunk_bytes=60)
    ann = world.publisher("p")
    world.subscriber("p", "keeper", "TRUE", durable=True, credit=0)
    world.run(s=2)
    top = world.pubend("p", P).top
    for number in range(40):
        ann.publish(f"e{number}")
    world.subscriber("s", "slow", "TRUE", credit=0)
    world.run(s=2)
    ann.publish("z1")
    world.run(s=2)
    for number in range(40):
        ann.publish(f"f{number}")
    reader = world.subscriber("s", "reader", "TRUE", start=at(top))
    assert world.wait(lambda: "z1" in reader.events)
    lost = world.lose(of(Read, source="s"))
    world.run(ms=600)
    lost.end()
    world.run(s=10)
    assert len(reader.events) == 81


def test_total_order_continues_above_the_ticks_merged_before_a_crash() -> None:
    # R51: also if the client resumes without its position
    world = World("p-s-c")
    world.set_clock("c", -4)
    ann = world.publisher("p", "P")
    desk = world.subscriber("s", "desk", "TRUE", durable=True, order=Order.TOTAL)
    world.run(s=2)
    ann.publish("a1")
    world.run(ms=50)
    desk.acknowledge(P, ann.ticks["a1"])
    world.run(ms=600)
    world.restart("s")
    world.run(ms=300)
    cid = world.publisher("c", "C")
    desk.come_back()
    world.run(ms=1_200)
    cid.publish("c1")
    world.run(s=1)
    ann.publish("a2")
    world.run(s=8)
    merged = [each.tick for _, each in desk.publications]
    assert merged == sorted(merged)


# --- retirement (R26) -----------------------------------------------------------------------------


def test_a_host_that_returned_from_retirement_is_not_retired_again() -> None:
    # b has restarted meanwhile: if the retirement it received then counted as recent from then on,
    # b would forward it again, and the log would be released under the subscription
    world = World("p-a-n", "a-b", tombstone_ttl_s=60)
    ann = world.publisher("p")
    world.crash("n")
    world.run(s=3)
    operator = Client(world, "a", "operator")
    assert operator.call(RetireBroker(operator.number(), "n", "n")) is not None
    world.run(s=30)
    world.restart("b")
    world.run(s=40)
    world.start("n")
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=5)
    x.leave()
    world.cut("a", "b")
    world.run(s=1)
    world.heal("a", "b")
    world.run(s=5)
    ann.publish("e1")
    world.run(s=20)
    x.come_back()
    world.run(s=5)
    assert (x.events, x.gaps) == (["e1"], [])
