"""Ack reports of an SHB: up to which tick it needs no log, and its log holds (R49, R52)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.events import Stopping
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.clients import Progress, Seek, StartKind, StartPoint, Subscribed
from gapless.messages.pubend_requests import Read, ReadReply, ReleaseLogHold
from gapless.messages.streams import AckExpected, AckReport
from gapless.subscribers.cursor_state import CursorPhase
from gapless.subscribers.retention import LogRetention
from tests.broker.harness import BrokerHarness, P
from tests.scenarios.brokers import Publisher, Subscriber, of


def stage(**parameters: Any) -> tuple[BrokerHarness, Publisher]:
    """Return a world with a pubend P at p, next to the SHB n."""
    world = BrokerHarness("p-n", **parameters)
    return world, world.publisher("p")


def reported(world: BrokerHarness) -> Tick:
    """Return the tick that the router of n reported last."""
    last: AckReport = world.sent_over(AckReport, "n", "p")[-1]
    return dict(last.acknowledged)[P]


def from_position(tick: Tick) -> StartPoint:
    return StartPoint(StartKind.POSITION, ((P, tick),))


# --- the tick of a report (R52) -------------------------------------------------------------------


def test_without_lagging_cursors_a_report_is_the_horizon() -> None:
    world, ann = stage()
    world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    tick = ann.publish("e1")
    world.run(s=2)
    assert reported(world) >= tick


def test_ticks_that_were_not_sent_to_a_client_are_not_reported() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE", credit=1)
    world.run(s=1)
    ann.publish("e1")
    second = ann.publish("e2")
    world.run(s=2)
    assert reported(world) == second - 1
    assert world.released("p", P) < second
    x.give_credit(1)
    world.run(s=2)
    assert reported(world) >= second


def test_unacknowledged_ticks_of_a_durable_subscription_are_not_reported() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    first = ann.publish("e1")
    second = ann.publish("e2")
    world.run(s=2)
    assert x.events == ["e1", "e2"]
    assert reported(world) < first
    x.acknowledge(P, first)
    world.run(s=2)
    assert first <= reported(world) < second


def test_an_expected_report_is_repeated_although_nothing_is_new() -> None:
    # a report about an idle stream is repeated seldom, and a full log refuses until it comes
    world, ann = stage(idle_silence_max_ms=10_000)
    world.subscriber("n", "x", "TRUE")
    world.run(s=40)
    since = world.now
    world.wait(lambda: bool(world.sent_over(AckReport, "n", "p", since)), s=20)
    since = world.now + 1
    world.run(s=2)
    assert world.sent_over(AckReport, "n", "p", since) == []
    world.receive("n", "p", AckExpected(ann.pubend, world.horizon("n", P), pressure=True))
    world.run(s=1)
    assert len(world.sent_over(AckReport, "n", "p", since)) == 1


def test_an_acknowledgement_is_on_disk_before_a_report_uses_it() -> None:
    # R50, I13
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    tick = ann.publish("e1")
    world.run(ms=100)
    world.stop_disk("n")
    x.acknowledge(P, tick)
    world.run(s=3)
    assert reported(world) < tick
    world.resume_disk("n")
    world.run(s=2)
    assert reported(world) >= tick
    record = world.record("n", "x")
    assert record is not None
    assert dict(record.acked)[P] >= tick


def quiet(x: Subscriber) -> Tick:
    """Return the last progress tick that x received."""
    last: Progress = x.of_kind(Progress)[-1]
    return dict(last.position)[P]


def test_a_client_acknowledges_progress() -> None:
    # otherwise a quiet subscription would retain a log for ever
    world, ann = stage(aet_ms=1_000, progress_ms=500)
    x = world.subscriber("n", "x", "kind = 1", durable=True)
    world.run(s=1)
    tick = ann.publish("e1", kind=2)
    world.run(s=2)
    x.acknowledge(P, quiet(x))
    world.run(s=2)
    assert reported(world) >= tick
    assert world.released("p", P) >= tick


def test_unacknowledged_silence_is_not_reported() -> None:
    # MV-13: if this broker dies, no other knows that there were no events
    world, ann = stage(aet_ms=1_000, progress_ms=500)
    x = world.subscriber("n", "x", "kind = 1", durable=True)
    world.run(s=1)
    tick = ann.publish("e1", kind=2)
    world.run(s=5)
    assert quiet(x) > tick
    assert reported(world) < tick


def test_a_disconnected_durable_client_retains_the_log_above_its_acknowledged_tick() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    x.leave()
    tick = ann.publish("e1")
    world.run(s=5)
    assert reported(world) < tick
    x.come_back()
    world.run(s=1)
    assert (x.events, x.gaps) == (["e1"], [])


def test_a_report_examines_few_of_many_absent_subscriptions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # every broker reports twice a second, and thousands of subscriptions may be absent
    world, ann = stage()
    away = [world.subscriber("n", f"x{each}", "TRUE", durable=True) for each in range(20)]
    world.run(s=1)
    for each in away:
        each.leave()
    tick = ann.publish("e1")
    world.run(s=1)
    examined: list[LogRetention] = []
    needed = vars(LogRetention)["needed"].fget

    def counted(retention: LogRetention) -> Tick | None:
        examined.append(retention)
        found: Tick | None = needed(retention)
        return found

    monkeypatch.setattr(LogRetention, "needed", property(counted))
    world.run(ms=500)
    assert reported(world) < tick
    assert 1 <= len(examined) <= 3


def test_without_a_feeder_nothing_is_reported() -> None:
    world, _ = stage()
    world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    world.cut("p", "n")
    world.run(s=2)
    since = world.now
    world["n"].components.subends.reporter.report(world.subend("n", P))
    assert world["n"].context.take_messages_to("n") == []
    assert world.sent_over(AckReport, "n", "p", since) == []


def test_unacknowledged_events_of_an_older_filter_are_not_reported() -> None:
    # R50, R52, I9: the new filter cannot match events of P, but the client may read e1 again
    world = BrokerHarness("p-n")
    ann = world.publisher("p", advertisement="kind = 1")
    x = world.subscriber("n", "x", "kind = 1", durable=True)
    world.run(s=1)
    tick = ann.publish("e1", kind=1)
    world.run(ms=200)
    change = x.set_filter("kind = 2")
    world.run(s=3)
    assert x.filter_changed(change) is not None
    assert world.released("p", P) < tick
    x.leave()
    x.come_back()
    world.run(s=1)
    assert (x.events, x.gaps) == (["e1", "e1"], [])


# --- log holds (R49) ------------------------------------------------------------------------------


def slow_reader(
    *, durable: bool = False, **parameters: Any
) -> tuple[BrokerHarness, Publisher, Subscriber]:
    """Let x read from the past with credit for one event; only its log hold retains the log."""
    world, ann = stage(**{"retention_s": 3, "read_chunk_bytes": 1, **parameters})
    world.subscriber("n", "y", "TRUE")
    world.run(s=1)
    ticks = [ann.publish(f"e{number}") for number in range(4)]
    world.run(ms=500)
    start = from_position(ticks[0] - 1)
    x = world.subscriber("n", "x", "TRUE", start=start, credit=1, durable=durable)
    world.run(s=1)
    assert x.events == ["e0"]
    return world, ann, x


@pytest.mark.parametrize("durable", [False, True])
def test_a_log_hold_retains_the_log_for_a_cursor_below_the_reported_tick(durable: bool) -> None:
    world, ann, x = slow_reader(durable=durable, prefetch_max=1, backlog_bytes=0)
    (hold,) = world.log_holds("p")
    assert hold.tick < ann.ticks["e1"]
    world.run(s=8)
    assert world.released("p", P) < ann.ticks["e1"]
    x.give_credit(10)
    world.run(s=2)
    assert (x.events, x.gaps) == (["e0", "e1", "e2", "e3"], [])


def test_a_log_hold_is_released_when_reports_retain_the_log() -> None:
    world, ann, x = slow_reader()
    x.give_credit(10)
    world.run(s=3)
    assert world.cursor("n", "x").phase is CursorPhase.LIVE
    assert world.cursor("n", "x").log_holds.current is None
    assert world.log_holds("p") == []
    world.run(s=5)
    assert world.released("p", P) >= ann.ticks["e3"]


def test_a_durable_log_hold_is_released_when_the_acknowledged_tick_reaches_the_ack_floor() -> None:
    world, ann, x = slow_reader(durable=True, progress_ms=500)
    x.give_credit(10)
    world.run(s=2)
    assert x.events == ["e0", "e1", "e2", "e3"]
    assert world.log_holds("p"), "nothing is acknowledged"
    x.acknowledge(P, ann.ticks["e3"])
    world.run(s=2)
    x.acknowledge(P, quiet(x))
    world.run(s=15)
    assert world.log_holds("p") == []
    assert world.cursor("n", "x").log_holds.current is None


def test_a_log_hold_is_released_when_its_subscription_ends() -> None:
    world, _, x = slow_reader()
    lost = world.lose(of(ReleaseLogHold, source="n", target="p"))
    x.end()
    world.run(s=2)
    assert lost.messages
    assert world.log_holds("p")
    lost.end()
    world.run(s=6)
    assert world.log_holds("p") == [], "the request is repeated until it is done"


def test_a_log_hold_stays_until_the_subscription_is_deleted_on_disk() -> None:
    # I10: a crash before that restores the subscription, and it needs the same ticks
    world, _, x = slow_reader(durable=True, prefetch_max=1, backlog_bytes=0)
    world.stop_disk("n")
    x.end()
    world.run(s=2)
    assert world.log_holds("p")
    assert world.sent_over(ReleaseLogHold, "n", "p") == []
    world.resume_disk("n")
    world.run(s=2)
    assert world.log_holds("p") == []


def test_reports_exclude_unacknowledged_ticks_until_the_subscription_is_deleted_on_disk() -> None:
    # I9, as above
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    needed = ann.publish("e0")
    world.run(s=1)
    world.stop_disk("n")
    x.end()
    world.run(s=2)
    assert reported(world) < needed
    world.resume_disk("n")
    world.subscriber("n", "y", "TRUE")
    world.run(s=2)
    assert reported(world) >= needed


def test_a_log_hold_of_a_nondurable_subscription_is_released_when_its_client_disconnects() -> None:
    world, _, x = slow_reader()
    x.leave()
    world.run(s=2)
    assert world.log_holds("p") == []


def test_a_log_hold_in_use_is_refreshed() -> None:
    # R49: log_hold_ttl_s
    world, ann, x = slow_reader(log_hold_ttl_s=8, prefetch_max=1, backlog_bytes=0)
    world.run(s=20)
    assert len(world.log_holds("p")) == 1
    refreshes = [each for each in world.sent_over(Read, "n", "p") if each.filter == "FALSE"]
    assert len(refreshes) >= 3
    assert all(each.low > each.high for each in refreshes), "a refresh reads no events"
    x.give_credit(10)
    world.run(s=2)
    assert x.events == ["e0", "e1", "e2", "e3"]
    assert ann.ticks["e1"] > world.released("p", P) or world.log_holds("p") == []


def test_the_log_hold_of_a_cursor_that_became_live_without_reading_is_confirmed() -> None:
    # R49: otherwise its client would not learn that it has started
    world, _ = stage()
    lost = world.lose(of(ReadReply, source="p", target="n"))
    future = world.pubend("p", P).top + microseconds(s=60)
    x = world.subscriber("n", "x", "TRUE", start=from_position(future), durable=True)
    world.run(ms=100)
    x.leave()
    x.come_back()
    lost.end()
    world.run(ms=10)
    cursor = world.cursor("n", "x")
    assert cursor.phase is CursorPhase.LIVE, "it starts above the horizon"
    assert not cursor.log_holds.kept, "the read that would have confirmed the hold was stopped"
    world.run(s=2)
    assert cursor.log_holds.is_safe or cursor.log_holds.current is None
    assert x.starts == {P: future}


def test_a_log_hold_that_its_shb_lost_in_a_restart_expires() -> None:
    world, ann, _ = slow_reader(log_hold_ttl_s=8, interest_grace_s=1)
    assert world.log_holds("p")
    world.restart("n")
    y = world.subscriber("n", "again", "TRUE")
    world.run(s=15)
    assert world.log_holds("p") == []
    assert world.released("p", P) >= ann.ticks["e3"]
    assert y.events == []


def seeking_back(*, durable: bool) -> tuple[BrokerHarness, Publisher, Subscriber]:
    """Let x seek back below its acknowledged tick and read slowly."""
    world, ann = stage(retention_s=3, read_chunk_bytes=1, prefetch_max=2, backlog_bytes=0)
    x = world.subscriber("n", "x", "TRUE", durable=durable, credit=4)
    world.run(s=1)
    ticks = [ann.publish(f"e{number}") for number in range(4)]
    world.run(ms=200)
    x.acknowledge(P, ticks[-1])
    world.run(s=1)
    x.notices.clear()
    answer = x.call(Seek(50, "x", from_position(ticks[0] - 1)))
    assert isinstance(answer, Subscribed)
    world.run(s=8)
    x.give_credit(10)
    world.run(s=2)
    return world, ann, x


def test_a_nondurable_cursor_that_seeks_back_and_reads_slowly_gets_no_gap() -> None:
    # R49: the first read stores the log hold at the tick from which it reads
    _, _, x = seeking_back(durable=False)
    assert (x.events, x.gaps) == (["e0", "e1", "e2", "e3"], [])


def test_a_durable_cursor_that_seeks_back_and_reads_slowly_gets_no_gap() -> None:
    # R49, as above
    _, _, x = seeking_back(durable=True)
    assert (x.events, x.gaps) == (["e0", "e1", "e2", "e3"], [])


def test_a_log_hold_is_not_above_the_acknowledged_tick_on_disk() -> None:
    # I9, I13: after a crash the subscription continues from the acknowledged tick on disk
    world, ann, x = slow_reader(durable=True, prefetch_max=1, backlog_bytes=0)
    x.give_credit(1)
    world.run(ms=200)
    world.stop_disk("n")
    x.acknowledge(P, ann.ticks["e1"])
    x.give_credit(1)
    world.run(s=1)
    (hold,) = world.log_holds("p")
    record = world.record("n", "x")
    assert record is not None
    assert hold.tick <= dict(record.acked)[P]


def test_a_broker_saves_the_acknowledged_ticks_when_it_is_stopped() -> None:
    world = BrokerHarness("p-n", ack_ms=5_000, ack_report_ttl_ms=20_000)
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    tick = ann.publish("one")
    world.run(ms=50)
    x.acknowledge(P, tick)
    world.run(ms=50)

    def saved() -> Tick:
        record = world.record("n", "x")
        assert record is not None
        return dict(record.acked)[P]

    assert saved() < tick, "acknowledgements are saved periodically"
    world.happen("n", Stopping())
    world.run(ms=50)
    assert saved() >= tick
