"""Durable subscriptions as they come back from disk after a crash (R47, R50)."""

from __future__ import annotations

from typing import Any

import msgspec

from gapless.core.ids import VirtualTime
from gapless.messages.clients import Begin, BeginKind, FilterSet, Order, SetFilter
from gapless.messages.propagation import TableDelta, TableFull
from gapless.messages.records import SegmentRecord
from gapless.subscribers.cursor_state import State
from tests.broker.harness import Asker, Desk, P, position, started
from tests.scenarios.brokers import Publisher, of


def stage(**parameters: Any) -> tuple[Desk, Publisher]:
    """Return a world with a pubend P at p, next to the host n."""
    world = Desk("p-n", **parameters)
    return world, world.publisher("p")


def test_a_durable_subscription_comes_back_without_a_client_and_is_owed_what_it_was() -> None:
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
    assert world.strand("n", "x").state is State.AWAY
    assert world.strand("n", "x").acked == first
    ann.publish("e2")
    world.run(s=3)
    x.come_back()
    world.run(s=1)
    assert x.events == ["e1", "e2"]
    assert x.gaps == []


def test_a_record_says_what_a_subscription_comes_back_as() -> None:
    world, _ = stage()
    x = Asker(world, "n", "x")
    x.subscribe("kind = 1", durable=True, expiry_s=77)
    before = world.record("n", "x")
    assert before is not None
    assert before.expiry_s == 77
    assert dict(before.base).keys() == {P}
    world.restart("n")
    world.run(ms=50)
    after = world.subscription("n", "x").record()
    assert after == before


def test_a_filter_that_governs_nothing_does_not_come_back() -> None:
    # P7: it would count against segments_max for ever, as no strand ends it
    world = Desk("n", segments_max=1)
    x = Asker(world, "n", "x")
    x.subscribe("kind = 1", durable=True)
    x.ask(SetFilter(x.number(), "x", "kind = 2"))
    world.wait(lambda: len(segments_on_disk(world)) == 2)
    world.restart("n")
    x.connect()
    x.subscribe("kind = 2", durable=True)
    assert isinstance(x.call(SetFilter(x.number(), "x", "kind = 3")), FilterSet)


def segments_on_disk(world: Desk) -> tuple[SegmentRecord, ...]:
    """Return the filters of x that are on the disk of n."""
    record = world.record("n", "x")
    return () if record is None else record.segments


def test_the_host_says_anew_what_absent_clients_want() -> None:
    # section 10: leaf table with all durable filters, for linger_s
    world, _ = stage(linger_s=3)
    world.subscriber("n", "x", "kind = 1", durable=True)
    world.run(s=1)
    world.restart("n")
    world.run(s=1)
    assert [str(each) for each in world["n"].tables.roots] == ["kind = 1"]
    world.run(s=4)
    assert world["n"].tables.roots == frozenset()


def test_a_subscription_that_was_not_on_disk_is_gone_and_nobody_was_told_of_it() -> None:
    world, _ = stage()
    world.stop_disk("n")
    x = Asker(world, "n", "x")
    assert x.subscribe(durable=True) is None
    world.restart("n")
    world.run(s=1)
    assert world["n"].host.subscriptions == {}
    x.connect()
    assert position(x.subscribe(durable=True)).keys() == {P}


def test_a_filter_change_that_crosses_a_crash_keeps_its_place() -> None:
    # R47: old filter up to the position, new filter after it
    world, ann = stage()
    x = world.subscriber("n", "x", "kind = 1", durable=True)
    world.run(s=1)
    ann.publish("a1", kind=1)
    world.run(ms=100)
    change = x.set_filter("kind = 2")
    world.run(s=1)
    switched = x.switched(change)
    assert switched is not None
    ann.publish("a2", kind=1)
    ann.publish("b2", kind=2)
    world.run(ms=100)
    world.restart("n")
    world.run(s=1)
    strand = world.strand("n", "x")
    assert [(segment.text, end) for segment, end in strand.course] == [("kind = 1", switched[P])]
    assert strand.segment.text == "kind = 2"
    x.notices.clear()
    x.come_back()
    world.run(s=1)
    assert x.events == ["a1", "b2"]


def test_a_filter_that_had_not_taken_over_before_the_crash_does_so_when_the_client_is_back() -> (
    None
):
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
    strand = world.strand("n", "x")
    assert strand.next is not None
    assert (strand.segment.text, strand.next.text) == ("kind = 1", "kind = 2")
    x.notices.clear()
    x.come_back()
    world.run(s=1)
    ann.publish("a2", kind=1)
    ann.publish("b2", kind=2)
    world.run(s=1)
    assert x.events == ["a1", "b2"]


def test_a_subscription_that_had_not_started_starts_by_what_it_was_owed_before_the_crash() -> None:
    # section 16: the virtual time of its record decides what it is owed
    world, ann = stage()
    news = world.hold(of(TableDelta, TableFull, source="n", target="p"))
    x = Asker(world, "n", "x")
    x.subscribe(durable=True)
    assert world.strand("n", "x").state is State.WAITING
    news.end()
    world.restart("n")
    world.run(s=2)
    assert world.strand("n", "x").state is State.AWAY, "started, also without its client"
    ann.publish("e1")
    world.run(s=1)
    x.connect()
    answer = x.subscribe(durable=True)
    assert position(answer)[P] < ann.ticks["e1"]
    assert started(x) == {}


def test_a_beginning_in_the_past_that_had_not_begun_begins_there_after_the_crash() -> None:
    world, ann = stage(retention_s=3_600)
    ann.publish("e1")
    world.run(ms=100)
    world.cut("p", "n")
    x = world.subscriber("n", "x", "TRUE", durable=True, begin=Begin(BeginKind.EARLIEST))
    world.run(s=2)
    world.restart("n")
    world.heal("p", "n")
    world.run(s=2)
    x.come_back()
    world.run(s=2)
    assert x.events == ["e1"]


def test_a_hold_goes_on_under_its_name() -> None:
    # R49
    world, ann = stage(retention_s=3, read_chunk_bytes=1)
    ticks = [ann.publish(f"e{number}") for number in range(3)]
    world.run(ms=500)
    begin = Begin(BeginKind.POSITION, ((P, ticks[0] - 1),))
    x = world.subscriber("n", "x", "TRUE", durable=True, begin=begin, credit=1)
    world.run(s=1)
    (hold,) = world.holds("p")
    world.restart("n")
    world.run(s=8)
    strand = world.strand("n", "x")
    assert strand.holding.current == hold.hold
    assert [each.hold for each in world.holds("p")] == [hold.hold]
    assert world.released("p", P) < ticks[0]
    x.credit = 10
    x.come_back()
    world.run(s=2)
    assert (x.events[-3:], x.gaps) == (["e0", "e1", "e2"], [])


def test_a_record_may_name_segments_that_govern_nothing_any_more() -> None:
    world, _ = stage()
    world.subscriber("n", "x", "kind = 1", durable=True)
    world.run(s=1)
    record = world.record("n", "x")
    assert record is not None
    older = SegmentRecord("kind = 0", VirtualTime(1, 1), ((P, 0),))
    stored = msgspec.structs.replace(record, segments=(older, *record.segments))
    world.crash("n")
    world.nodes["n"].disk.records[stored.key] = stored
    world.start("n")
    world.run(s=1)
    strand = world.strand("n", "x")
    assert strand.course == []
    assert strand.segment.text == "kind = 1"


def test_a_record_of_before_subscriptions_brought_moments_along_comes_back() -> None:
    # what was added since has a default, and a record is a list
    world, _ = stage()
    x = Asker(world, "n", "x")
    x.subscribe("kind = 1", durable=True)
    record = world.record("n", "x")
    assert record is not None
    fields = msgspec.to_builtins(record)
    fields[2] = [segment[:3] for segment in fields[2]]
    old = msgspec.convert(fields[: fields.index("x") + 17], type(record))
    assert (old.segments[0].since, old.told_since, old.owed) == ((), (), ())
    assert msgspec.structs.replace(record, told_since=(), owed=()) == old
