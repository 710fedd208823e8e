"""Durable subscriptions that are restored from disk after a crash (R47, R50)."""

from __future__ import annotations

from typing import Any

import msgspec

from gapless.core.ids import VirtualTime
from gapless.messages.clients import FilterSet, Order, SetFilter, StartKind, StartPoint
from gapless.messages.propagation import TableDelta, TableFull
from gapless.messages.records import FilterSegmentRecord
from gapless.subscribers.cursor_state import CursorPhase
from gapless.subscribers.record import record_of
from tests.broker.harness import BrokerHarness, P, Requester, position, started
from tests.scenarios.brokers import Publisher, of


def stage(**parameters: Any) -> tuple[BrokerHarness, Publisher]:
    """Return a world with a pubend P at p, next to the SHB n."""
    world = BrokerHarness("p-n", **parameters)
    return world, world.publisher("p")


def test_a_restored_durable_subscription_receives_all_unacknowledged_events() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE", durable=True, order=Order.TOTAL)
    world.run(s=1)
    first = ann.publish("e1")
    world.run(ms=100)
    x.acknowledge(P, first)
    world.run(s=1)
    world.restart("n")
    world.run(s=1)
    back = world.subscription("n", "x")
    assert (back.client, back.order, back.durable) == (None, Order.TOTAL, True)
    assert world.cursor("n", "x").phase is CursorPhase.DISCONNECTED
    assert world.cursor("n", "x").start.acked == first
    ann.publish("e2")
    world.run(s=3)
    x.come_back()
    world.run(s=1)
    assert x.events == ["e1", "e2"]
    assert x.gaps == []


def test_a_restored_subscription_has_the_same_record() -> None:
    world, _ = stage()
    x = Requester(world, "n", "x")
    x.subscribe("kind = 1", durable=True, expiry_s=77)
    before = world.record("n", "x")
    assert before is not None
    assert before.expiry_s == 77
    assert dict(before.started_after).keys() == {P}
    world.restart("n")
    world.run(ms=50)
    after = record_of(world.subscription("n", "x"))
    assert after == before


def test_a_filter_that_applies_to_no_pubend_is_not_restored() -> None:
    # P7: it would count against segments_max for ever, as no cursor ends it
    world = BrokerHarness("n", segments_max=1)
    x = Requester(world, "n", "x")
    x.subscribe("kind = 1", durable=True)
    x.request(SetFilter(x.number(), "x", "kind = 2"))
    world.wait(lambda: len(segments_on_disk(world)) == 2)
    world.restart("n")
    x.connect()
    x.subscribe("kind = 2", durable=True)
    assert isinstance(x.call(SetFilter(x.number(), "x", "kind = 3")), FilterSet)


def segments_on_disk(world: BrokerHarness) -> tuple[FilterSegmentRecord, ...]:
    """Return the filters of x that are on the disk of n."""
    record = world.record("n", "x")
    return () if record is None else record.segments


def test_after_a_restart_the_leaf_table_contains_the_filters_of_disconnected_clients() -> None:
    # R50: leaf table with all durable filters, for interest_grace_s
    world, _ = stage(interest_grace_s=3)
    world.subscriber("n", "x", "kind = 1", durable=True)
    world.run(s=1)
    world.restart("n")
    world.run(s=1)
    assert [str(each) for each in world["n"].components.exchange.roots] == ["kind = 1"]
    world.run(s=4)
    assert world["n"].components.exchange.roots == frozenset()


def test_a_subscription_that_was_not_on_disk_is_lost_and_was_never_confirmed() -> None:
    world, _ = stage()
    world.stop_disk("n")
    x = Requester(world, "n", "x")
    assert x.subscribe(durable=True) is None
    world.restart("n")
    world.run(s=1)
    assert world["n"].components.registry.subscriptions == {}
    x.connect()
    assert position(x.subscribe(durable=True)).keys() == {P}


def test_a_filter_change_keeps_its_position_across_a_crash() -> None:
    # R47: old filter up to the position, new filter after it
    world, ann = stage()
    x = world.subscriber("n", "x", "kind = 1", durable=True)
    world.run(s=1)
    ann.publish("a1", kind=1)
    world.run(ms=100)
    change = x.set_filter("kind = 2")
    world.run(s=1)
    switched = x.filter_changed(change)
    assert switched is not None
    ann.publish("a2", kind=1)
    ann.publish("b2", kind=2)
    world.run(ms=100)
    world.restart("n")
    world.run(s=1)
    cursor = world.cursor("n", "x")
    assert [(segment.text, end) for segment, end in cursor.segments.ended] == [
        ("kind = 1", switched[P])
    ]
    assert cursor.segments.current.text == "kind = 2"
    x.notices.clear()
    x.come_back()
    world.run(s=1)
    assert x.events == ["a1", "b2"]


def test_a_filter_change_that_a_crash_interrupts_completes_when_the_client_returns() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "kind = 1", durable=True)
    world.run(s=1)
    world.hold(of(TableDelta, TableFull, source="n", target="p"))
    x.set_filter("kind = 2")
    world.run(ms=100)
    record = world.record("n", "x")
    assert record is not None
    assert [(each.filter, each.ends) for each in record.segments] == [
        ("kind = 1", ()),
        ("kind = 2", ()),
    ]
    ann.publish("a1", kind=1)
    world.run(ms=100)
    world.faults.clear()
    world.restart("n")
    world.run(s=1)
    cursor = world.cursor("n", "x")
    assert cursor.segments.next is not None
    assert (cursor.segments.current.text, cursor.segments.next.text) == ("kind = 1", "kind = 2")
    x.notices.clear()
    x.come_back()
    world.run(s=1)
    ann.publish("a2", kind=1)
    ann.publish("b2", kind=2)
    world.run(s=1)
    assert x.events == ["a1", "b2"]


def test_a_subscription_that_had_not_started_starts_by_its_virtual_time_before_the_crash() -> None:
    # R46: the virtual time of its record decides which events it must receive
    world, ann = stage()
    table_updates = world.hold(of(TableDelta, TableFull, source="n", target="p"))
    x = Requester(world, "n", "x")
    x.subscribe(durable=True)
    assert world.cursor("n", "x").phase is CursorPhase.PENDING
    table_updates.end()
    world.restart("n")
    world.run(s=2)
    assert world.cursor("n", "x").phase is CursorPhase.DISCONNECTED, (
        "started, also without its client"
    )
    ann.publish("e1")
    world.run(s=1)
    x.connect()
    answer = x.subscribe(durable=True)
    assert position(answer)[P] < ann.ticks["e1"]
    assert started(x) == {}


def test_a_pending_start_in_the_past_starts_there_after_the_crash() -> None:
    world, ann = stage(retention_s=3_600)
    ann.publish("e1")
    world.run(ms=100)
    world.cut("p", "n")
    x = world.subscriber("n", "x", "TRUE", durable=True, start=StartPoint(StartKind.EARLIEST))
    world.run(s=2)
    world.restart("n")
    world.heal("p", "n")
    world.run(s=2)
    x.come_back()
    world.run(s=2)
    assert x.events == ["e1"]


def test_a_log_hold_keeps_its_name_across_a_restart() -> None:
    # R49
    world, ann = stage(retention_s=3, read_chunk_bytes=1)
    ticks = [ann.publish(f"e{number}") for number in range(3)]
    world.run(ms=500)
    start = StartPoint(StartKind.POSITION, ((P, ticks[0] - 1),))
    x = world.subscriber("n", "x", "TRUE", durable=True, start=start, credit=1)
    world.run(s=1)
    (hold,) = world.log_holds("p")
    world.restart("n")
    world.run(s=8)
    cursor = world.cursor("n", "x")
    assert cursor.log_holds.current == hold.log_hold
    assert [each.log_hold for each in world.log_holds("p")] == [hold.log_hold]
    assert world.released("p", P) < ticks[0]
    x.credit = 10
    x.come_back()
    world.run(s=2)
    assert (x.events[-3:], x.gaps) == (["e0", "e1", "e2"], [])


def test_segments_of_a_record_that_apply_to_no_tick_are_ignored() -> None:
    world, _ = stage()
    world.subscriber("n", "x", "kind = 1", durable=True)
    world.run(s=1)
    record = world.record("n", "x")
    assert record is not None
    older = FilterSegmentRecord("kind = 0", VirtualTime(1, 1), ((P, 0),))
    stored = msgspec.structs.replace(record, segments=(older, *record.segments))
    world.crash("n")
    world.nodes["n"].disk.records[stored.key] = stored
    world.start("n")
    world.run(s=1)
    cursor = world.cursor("n", "x")
    assert cursor.segments.ended == []
    assert cursor.segments.current.text == "kind = 1"


def test_a_record_from_before_host_times_were_stored_can_be_read() -> None:
    # fields added since have defaults, and a record is a list
    world, _ = stage()
    x = Requester(world, "n", "x")
    x.subscribe("kind = 1", durable=True)
    record = world.record("n", "x")
    assert record is not None
    fields = msgspec.to_builtins(record)
    fields[2] = [segment[:3] for segment in fields[2]]
    old = msgspec.convert(fields[: fields.index("x") + 17], type(record))
    assert (old.segments[0].since, old.confirmed_filter_times, old.former_host_guarantees) == (
        (),
        (),
        (),
    )
    assert (
        msgspec.structs.replace(record, confirmed_filter_times=(), former_host_guarantees=()) == old
    )
