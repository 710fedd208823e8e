"""A filter that is served already applies behind the horizon, in the step of the request (R44, R47)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.ids import PubendId
from gapless.messages.clients import FilterChanged, FilterSet, Order, Subscribed
from gapless.messages.overlay import Quality
from gapless.messages.pubend_requests import Read
from gapless.messages.streams import KnowledgeRange, Released, StreamData, StreamSilence
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import CursorPhase
from gapless.subscribers.groups import CursorGroups
from gapless_lab.sim.planted_bugs import patched
from tests.broker.harness import BrokerHarness, P
from tests.scenarios.brokers import Publisher, Subscriber, of


def live(*links: str, **parameters: Any) -> tuple[BrokerHarness, Publisher, Subscriber]:
    """Return a world in which x at n has a filter, and P at p is idle."""
    world = BrokerHarness(*(links or ("p-n",)), **parameters)
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "kind > 0")
    world.run(s=3)
    assert world.cursor("n", "x").phase is CursorPhase.LIVE
    return world, ann, x


def test_a_covered_subscription_starts_in_the_step_of_its_request() -> None:
    world, ann, _ = live()
    horizon = world.horizon("n", P)
    y = world.subscriber("n", "y", "kind > 5")
    assert y.starts == {P: horizon}, "no time has passed"
    ann.publish("e7", kind=7)
    world.run(ms=50)
    assert y.events == ["e7"]


def test_a_covered_durable_subscription_starts_when_it_is_on_disk() -> None:
    world, ann, _ = live(idle_silence_max_ms=1_000)
    y = world.subscriber("n", "y", "kind > 5", durable=True)
    assert y.starts == {}, "nothing is answered before the record is on disk"
    world.run(ms=5)
    assert y.starts.keys() == {P}, "not with the next silence"
    ann.publish("e7", kind=7)
    world.run(ms=50)
    assert y.events == ["e7"]


@pytest.mark.parametrize("durable", [False, True])
def test_a_narrower_filter_applies_at_once(durable: bool) -> None:
    world, ann, _ = live()
    y = world.subscriber("n", "y", "kind > 5", durable=durable)
    world.run(s=3)
    horizon = world.horizon("n", P)
    request = y.set_filter("kind > 7")
    world.run(ms=3 if durable else 0)
    assert y.filter_changed(request) == {P: horizon}
    ann.publish("e7", kind=7)
    ann.publish("e8", kind=8)
    world.run(ms=50)
    assert y.events == ["e8"]


def test_filter_changes_that_wait_for_each_other_apply_in_one_step() -> None:
    world, _, x = live()
    first, second = x.set_filter("kind > 1"), x.set_filter("kind > 2")
    assert x.filter_changed(first) == x.filter_changed(second) == {P: world.horizon("n", P)}
    assert x.of_kind(FilterChanged) == [], "the client made the changes itself"


def test_a_filter_that_is_not_covered_starts_with_the_stream_epoch_that_serves_it() -> None:
    world, _, _ = live()
    y = world.subscriber("n", "y", "price > 0")
    assert y.starts == {}
    assert world.cursor("n", "y").phase is CursorPhase.PENDING
    world.run(s=1)
    assert y.starts.keys() == {P}


def test_a_subscription_does_not_start_below_ticks_that_are_missing() -> None:
    # it would receive events that are older than the request
    world, ann, x = live()
    lost = world.lose(of(StreamData, source="p", target="n"))
    ann.publish("e1", kind=1)
    lost.end()
    world.lose(of(StreamSilence, source="p", target="n"))
    subend = world.subend("n", P)
    at = subend.horizon
    subend.receive(KnowledgeRange(at + 90_000, at + 90_001, subend.stream_epochs.newest, 0))
    y = world.subscriber("n", "y", "kind > 0")
    assert y.starts == {}
    world.run(s=5)
    assert y.starts.keys() == {P}
    assert x.events[:1] == ["e1"]


def test_a_subscription_waits_while_the_stream_is_cut_off() -> None:
    world, ann, _ = live("p-a-n")
    world.cut("a", "n")
    world.run(s=5)
    y = world.subscriber("n", "y", "kind > 5")
    world.run(s=2)
    (answer,) = [each for each in y.notices if hasattr(each, "pending")]
    assert [each.pubend for each in answer.pending] == [P]
    ann.publish("before", kind=7)
    world.heal("a", "n")
    world.run(s=5)
    assert y.starts.keys() == {P}
    assert y.events in ([], ["before"])
    ann.publish("after", kind=7)
    world.run(ms=100)
    assert y.events[-1] == "after"


def inactive_behind_the_horizon() -> tuple[BrokerHarness, Subscriber]:
    """Start y behind the horizon; publish its event in a stream epoch that does not list n."""
    times = {"attach_expiry_ms": 5_000, "inactive_after_s": 7, "stale_table_ttl_s": 9}
    world, ann, _ = live("p-a-n", "a-m", **times)
    world.subscriber("m", "z", "kind = 1")  # a keeps what it receives
    y = world.subscriber("n", "y", "kind > 5")
    assert y.starts.keys() == {P}
    world.cut("a", "n")
    world.run(s=20)  # a and p have forgotten the tables of n
    row = world.member("p", P, "n")
    assert row is not None
    assert row.inactive
    ann.publish("e7", kind=7)
    world.run(s=1)
    world.heal("a", "n")
    world.run(s=3)
    return world, y


def test_a_range_above_a_start_behind_the_horizon_is_read_if_it_is_not_covered() -> None:
    world, y = inactive_behind_the_horizon()
    assert y.events == ["e7"]
    assert {read.filter for read in world.sent_over(Read, "n", "a")} == {"kind > 0"}


def test_without_the_test_of_coverage_an_event_above_the_start_is_missed() -> None:
    with patched(CursorGroups, "is_covered", lambda *_: True):
        _, y = inactive_behind_the_horizon()
    assert y.events == []
    assert y.gaps == []


def test_a_gap_wholly_below_the_start_is_not_reported() -> None:
    world, _, x = live()
    subend = world.subend("n", P)
    y = world.subscriber("n", "y", "price > 0")
    assert world.cursor("n", "y").phase is CursorPhase.PENDING
    subend.released(Released(P, subend.horizon + 5))
    world.run(s=1)
    assert y.starts.keys() == {P}
    assert y.gaps == []
    assert len(x.gaps) == 1, "x had started"


def test_a_gap_above_a_start_behind_the_horizon_is_reported() -> None:
    # P5: the subscription has a start, so nothing above it is skipped silently
    world, _, _ = live()
    subend = world.subend("n", P)
    y = world.subscriber("n", "y", "kind > 5")
    start = y.starts[P]
    subend.released(Released(P, start + 5))
    world.run(s=1)
    assert [(each.low, each.high) for each in y.gaps] == [(start + 1, start + 5)]


def test_a_subscription_that_ends_in_the_step_of_its_start_leaves_no_cursor() -> None:
    world, _, _ = live()
    y = world.subscriber("n", "y", "kind > 5")
    y.end()
    y.leave()
    assert [*world.subend("n", P).cursors] == ["x"]


# --- how long calls wait, in virtual time -----------------------------------------------------------


def waited_ms(world: BrokerHarness, client: Subscriber, kind: type) -> float:
    """Return how long a client waits for a notice."""
    since = world.now
    assert world.wait(lambda: bool(client.of_kind(kind)))
    return (world.now - since) / 1_000


@pytest.mark.parametrize("order", [Order.PUBLISHER, Order.TOTAL])
@pytest.mark.parametrize("durable", [False, True])
def test_no_call_on_an_idle_stream_waits_for_an_interval(order: Order, durable: bool) -> None:
    # a hop and a write take a millisecond each; the pubends are two hops away
    world = BrokerHarness("p-a-n")
    for name in ("P", "Q"):
        world.publisher("p", name)
    world.publisher("p", "fast", quality=Quality.BEST_EFFORT)
    options: dict[str, Any] = {"order": order, "durable": durable}
    world.subscriber("n", "x", "kind > 0", order=order)
    world.run(s=5)
    search = 4 if durable else 0
    writes = 2 if durable else 0  # the subscription, and its start
    y = world.subscriber("n", "y", "kind > 5", **options)
    assert waited_ms(world, y, Subscribed) <= search + writes + 0.1
    world.run(s=5)
    y.set_filter("kind > 7")
    assert waited_ms(world, y, FilterSet) <= (1 if durable else 0) + 0.1
    world.run(s=5)
    z = world.subscriber("n", "z", "price > 7", **options)
    assert waited_ms(world, z, Subscribed) <= search + writes + 5.1, "two hops, a write, two hops"
    world.run(s=5)
    z.set_filter("price < 7")
    assert waited_ms(world, z, FilterSet) <= 6.1
    for each in (y, z):
        assert each.starts.keys() == {P, PubendId("Q")}


# --- total order ----------------------------------------------------------------------------------


def cursors_examined(world: BrokerHarness, absent: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often a cursor was tested for a merge when a pubend opened beside absent ones."""
    for number in range(absent):
        away = world.subscriber(
            "p", f"away {number}", f"kind = {number}", durable=True, order=Order.TOTAL
        )
        world.run(ms=3)
        away.leave()
    world.publisher("p", "P0")
    world.run(s=1)
    count = 0
    in_merge = vars(Cursor)["in_merge"].fget

    def counted(cursor: Cursor) -> bool:
        nonlocal count
        count += 1
        return bool(in_merge(cursor))

    monkeypatch.setattr(Cursor, "in_merge", property(counted))
    world.publisher("p", "P1")
    world.run(s=1)
    assert len(world.subend("p", PubendId("P1")).cursors) == absent
    monkeypatch.undo()
    return count


def test_opening_a_pubend_beside_absent_subscriptions_takes_linear_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = cursors_examined(BrokerHarness("p"), 20, monkeypatch)
    many = cursors_examined(BrokerHarness("p"), 80, monkeypatch)
    assert 0 < many <= 5 * few


def test_a_stream_is_eager_only_while_a_merge_waits_for_it() -> None:
    world = BrokerHarness("p")
    world.publisher("p", "P0")
    x = world.subscriber("p", "x", "TRUE", order=Order.TOTAL, durable=True)
    world.run(s=1)
    p0 = PubendId("P0")
    assert not world.subend("p", p0).groups.is_merged, "one stream waits for no other"
    ann = world.publisher("p", "P1")
    world.run(s=1)
    assert world.subend("p", p0).groups.is_merged
    assert world.subend("p", ann.pubend).groups.is_merged
    x.leave()
    assert not world.subend("p", p0).groups.is_merged
    x.come_back()
    assert world.subend("p", p0).groups.is_merged
    x.end()
    world.run(s=1)
    assert not world.subend("p", p0).groups.is_merged
