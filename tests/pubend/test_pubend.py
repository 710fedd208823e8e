"""The pubend: events are logged before they are sent, silence is final, a tick has one epoch."""

from __future__ import annotations

import itertools

from gapless.core.ids import ShbId, VirtualTime
from gapless.core.limits import CHANGE_BURST
from gapless.core.parameters import DEFAULTS, Parameters, microseconds
from gapless.messages.records import MemberRecord, PutRecord, StreamEpochRecord
from gapless.pubend.retention import Retention
from gapless_lab.sim.planted_bugs import patched
from tests.pubend.small_disk import STOCKS, Bench

HOST = ShbId("s", "s")


def test_an_answer_and_the_event_wait_for_the_disk() -> None:
    # P1, I2: no broker has received an event that a crash could undo
    bench = Bench()
    session = bench.open()
    answers = bench.publish(session, 1, 7)
    assert answers == []
    assert bench.sent == []
    bench.sync()
    ((tick,),) = answers
    assert [
        publication.tick for knowledge in bench.sent for publication in knowledge.publications
    ] == [tick]
    assert bench.rows[0].last == tick


def test_knowledge_ranges_are_contiguous() -> None:
    bench = Bench()
    session = bench.open()
    for sequence in range(1, 30):
        bench.publish(session, sequence, sequence)
        bench.run(ms=sequence * 7 % 40, sync=sequence % 3 == 0)
    bench.sync()
    for before, after in itertools.pairwise(bench.sent):
        assert after.low == before.high + 1
    ticks = [publication.tick for knowledge in bench.sent for publication in knowledge.publications]
    assert ticks == sorted(set(ticks))
    assert len(ticks) == 29


def test_silence_does_not_overtake_a_batch_that_waits_for_its_sync() -> None:
    # R30: without this, events are lost in two runs of three
    bench = Bench()
    session = bench.open()
    bench.run(ms=300)
    bench.publish(session, 1, 1)
    sent = len(bench.sent)
    bench.run(ms=2_000, sync=False)
    assert len(bench.sent) == sent
    bench.sync()
    assert bench.sent[sent].publications[0].attributes == {"a": 1}


def test_an_idle_pubend_sends_silence_less_and_less_often_but_never_stops() -> None:
    bench = Bench(Parameters(retention_s=0, idle_silence_max_ms=1_000))
    bench.run(ms=10_000)
    assert 10 <= len(bench.sent) <= 25
    assert bench.pubend.top >= bench.clock - microseconds(ms=1_100)


def test_silence_begins_anew_after_an_event() -> None:
    bench = Bench()
    session = bench.open()
    bench.run(ms=9_000)
    assert bench.pubend.top < bench.clock - microseconds(ms=1_000)
    bench.publish(session, 1, 1)
    bench.run(ms=1_000)
    assert bench.pubend.top >= bench.clock - microseconds(ms=600)
    count = len(bench.sent)
    for sequence in range(2, 22):
        bench.publish(session, sequence, 1)
        bench.run(ms=50)
    assert len(bench.sent) - count <= 22, "a stream in use declares no silence of its own"


def test_an_idle_pubend_is_reviewed_seldom_and_soon_after_a_report() -> None:
    bench, reviews = Bench(), list[int]()
    bench.run(ms=30_000)
    review = Retention.expect_acks

    def counted(retention: Retention) -> bool:
        reviews.append(bench.now)
        return review(retention)

    with patched(Retention, "expect_acks", counted):
        bench.run(ms=30_000)
        assert 1 <= len(reviews) <= 3
        bench.run(ms=1_000)
        reviews.clear()
        bench.report("s")
        bench.run(ms=600)
        assert reviews


def test_silence_sent_before_a_crash_stays_silent_although_the_clock_is_set_back() -> None:
    # R29, A8
    bench = Bench()
    bench.run(ms=3_000)
    silent = bench.pubend.top
    bench.clock -= microseconds(s=3_600)
    bench.start()
    session = bench.open()
    answers = bench.publish(session, 1, 1)
    bench.sync()
    assert answers[0][0] > silent


def test_a_clock_set_back_does_not_stop_silence() -> None:
    # R30, A27
    bench = Bench()
    bench.run(ms=1_000)
    bench.clock -= microseconds(s=3_600)
    before = bench.pubend.top
    bench.run(ms=3_000)
    assert bench.pubend.top > before


def test_a_stream_epoch_opens_with_its_own_tick_even_when_idle() -> None:
    # R31, R53: a report and a claim make a member
    bench = Bench()
    bench.run(ms=500)
    bench.report("s")
    bench.run(ms=300)
    assert bench.opened == []
    bench.claim("s", 4)
    bench.run(ms=300)
    stream_epoch = bench.opened[-1]
    assert dict(stream_epoch.entries)[HOST].time == VirtualTime(1, 4)
    opening = next(knowledge for knowledge in bench.sent if knowledge.low == stream_epoch.start)
    assert opening.high == stream_epoch.start
    assert opening.stream_epoch == stream_epoch.number


def test_member_row_and_stream_epoch_are_one_write_and_retain_the_log_from_the_first_tick() -> None:
    # R53, A10, example 14.7
    bench = Bench()
    bench.claim("s", 1)
    bench.report("s")
    bench.collect()
    (write,) = bench.writes
    records = [change.record for change in write.changes if isinstance(change, PutRecord)]
    (member,) = [each for each in records if isinstance(each, MemberRecord)]
    (stream_epoch,) = [each for each in records if isinstance(each, StreamEpochRecord)]
    assert member.ack_floor == stream_epoch.start - 1


def test_a_claim_alone_makes_no_member() -> None:
    # A11: it never joined the pubend, so it would never acknowledge
    bench = Bench()
    bench.claim("s", 1)
    bench.run(ms=1_000)
    assert bench.pubend.members.rows() == []


def claims(bench: Bench, first: int, count: int) -> int:
    """Change the claim of a member every millisecond; return how many stream epochs opened."""
    before = len(bench.opened)
    for counter in range(first, first + count):
        bench.claim("s", counter)
        bench.run(ms=1)
    return len(bench.opened) - before


def test_the_first_stream_epochs_after_a_pause_open_at_once() -> None:
    # R31: a few subscriptions in a row do not wait for each other
    bench = Bench()
    bench.report("s")
    assert claims(bench, 1, CHANGE_BURST) == CHANGE_BURST
    bench.run(ms=CHANGE_BURST * DEFAULTS.stream_epoch_interval_ms)
    assert claims(bench, 101, CHANGE_BURST) == CHANGE_BURST


def test_stream_epochs_are_not_opened_too_often() -> None:
    # R31: they stay on disk for the retention
    bench = Bench()
    bench.report("s")
    interval = DEFAULTS.stream_epoch_interval_ms
    opened = claims(bench, 1, 100)
    assert CHANGE_BURST <= opened <= CHANGE_BURST + 100 // interval + 1
    assert 4 <= claims(bench, 101, 5 * interval) <= 6, "without a pause one in an interval"
    bench.run(ms=2 * interval)
    assert dict(bench.opened[-1].entries)[HOST].time == VirtualTime(1, 100 + 5 * interval)
    assert 2 <= claims(bench, 301, interval) <= 4, (
        "a short pause allows as many as it has intervals"
    )


def test_the_stream_epoch_of_a_tick_is_the_same_after_a_restart() -> None:
    # I6: a start point is a function of the log
    bench = Bench()
    session = bench.open()
    bench.report("s")
    for counter in range(1, 5):
        bench.claim("s", counter)
        bench.run(ms=50)
        bench.publish(session, counter, counter)
        bench.run(ms=50)
    sent = {
        publication.tick: knowledge.stream_epoch
        for knowledge in bench.sent
        for publication in knowledge.publications
    }
    bench.start()
    for tick, stream_epoch in sent.items():
        assert bench.pubend.stream_epoch_of(tick) == stream_epoch
    assert bench.pubend.stream_epoch == bench.opened[-1].number


def test_the_log_is_released_up_to_the_least_ack_floor_and_no_further() -> None:
    # R56, I10
    bench = Bench()
    session = bench.open()
    for broker in ("s", "t"):
        bench.claim(broker, 1)
        bench.report(broker)
    bench.run(ms=100)
    ticks = []
    for sequence in range(1, 4):
        answer = bench.publish(session, sequence, sequence)
        bench.sync()
        ticks.append(answer[0][0])
        bench.run(ms=20)
    bench.report("s", ticks[2])
    bench.report("t", ticks[0])
    bench.run(ms=2_000)
    assert bench.releases[-1] == ticks[0]
    assert [row.last for row in bench.rows] == ticks[1:]
    bench.report("t", ticks[1])
    bench.run(ms=2_000)
    assert [row.last for row in bench.rows] == ticks[2:]


def test_the_retention_time_retains_more_of_the_log_than_members_need() -> None:
    bench = Bench(Parameters(retention_s=60))
    session = bench.open()
    bench.publish(session, 1, 1)
    bench.run(ms=30_000)
    assert len(bench.rows) == 1
    bench.run(ms=40_000)
    assert bench.rows == []


def test_a_silent_member_becomes_inactive_and_keeps_its_ack_floor() -> None:
    # R54, A17
    bench = Bench(Parameters(retention_s=0, inactive_after_s=10))
    bench.claim("s", 1)
    bench.report("s")
    bench.run(ms=100)
    floor = bench.pubend.members.ack_floor()
    bench.run(ms=12_000)
    assert bench.opened[-1].entries == ()
    assert bench.pubend.members.ack_floor() == floor
    bench.report("s", 0)
    bench.run(ms=200)
    assert HOST in dict(bench.opened[-1].entries)


def test_ticks_stay_near_the_clocks_of_the_neighbours() -> None:
    # R27, A20 (a): a clock a year ahead must not stall every total order for a year
    bench = Bench()
    session = bench.open()
    bench.clock_view = lambda: bench.clock  # type: ignore[method-assign]
    bench.context.clock = bench.clock + microseconds(s=86_400 * 365)
    answers = bench.publish(session, 1, 1)
    bench.sync()
    assert answers[0][0] <= bench.clock + microseconds(ms=Parameters().tick_lead_ms)


def test_log_rows_name_their_pubend() -> None:
    bench = Bench()
    bench.publish(bench.open(), 1, 1)
    bench.sync()
    assert {row.pubend for row in bench.rows} == {STOCKS}


# --- AckExpected (GD 3.2; R57) --------------------------------------------------------------------


def lagging_bench() -> Bench:
    """Return a pubend whose member s has acknowledged no event."""
    bench = Bench(Parameters(retention_s=0, aet_ms=2_000))
    bench.claim("s", 1)
    bench.report("s")
    bench.run(ms=100)
    bench.publish(bench.open(), 1, 1)
    bench.sync()
    return bench


def test_ack_expected_is_sent_for_a_tick_that_is_not_acknowledged_for_long() -> None:
    bench = lagging_bench()
    tick = bench.rows[0].last
    bench.run(ms=1_500)
    assert bench.expected == []
    bench.run(ms=1_500)
    ((_, expected_tick, pressure),) = bench.expected
    assert expected_tick >= tick
    assert expected_tick <= bench.clock - microseconds(ms=2_000)
    assert not pressure


def test_no_ack_expected_is_sent_to_a_member_that_acknowledges_in_time() -> None:
    bench = lagging_bench()
    for _ in range(20):
        bench.report("s", bench.pubend.top)
        bench.run(ms=500)
    assert bench.expected == []


def test_ack_expected_is_repeated_for_a_lagging_member_but_not_too_often() -> None:
    bench = lagging_bench()
    bench.run(ms=15_000)
    times = [at for at, _, _ in bench.expected]
    assert len(times) >= 5
    for before, after in itertools.pairwise(times):
        assert after - before >= microseconds(ms=1_000)


def test_after_a_restart_ack_expected_is_sent_for_the_logged_ticks() -> None:
    # GD 3.2: after a crash of the pubend AckExpected makes subends request missed ticks
    bench = lagging_bench()
    tick = bench.rows[0].last
    bench.start()
    bench.run(ms=1_900)
    assert bench.expected == []  # members have time to return
    bench.run(ms=1_100)
    assert bench.expected
    assert bench.expected[0][1] >= tick


def test_a_first_silence_over_many_ticks_is_not_overdue_at_once() -> None:
    # its first stream epoch opens at tick 1, its first silence reaches up to the present
    bench = Bench(Parameters(retention_s=0, aet_ms=2_000), start=microseconds(s=86_400))
    bench.claim("s", 1)
    bench.report("s")
    bench.run(ms=1_000)
    assert bench.pubend.top > microseconds(s=86_000)
    bench.report("s", bench.pubend.top)
    bench.run(ms=2_000)
    assert bench.expected == []


# --- requested silence (R51) ----------------------------------------------------------------------


def test_a_pubend_advances_to_a_requested_tick_after_it_has_stored_the_tick_ceiling() -> None:
    bench = Bench()
    bench.run(ms=500)
    wanted = bench.clock + microseconds(ms=1_500)
    bench.pubend.advance(wanted)
    assert bench.pubend.top < wanted  # not before the tick ceiling is on disk (R29)
    bench.sync()
    assert bench.pubend.top == wanted


def test_a_pubend_advances_to_a_requested_tick_above_its_clock() -> None:
    # R51: the event that waits exists, so a clock that was set back must not delay it
    bench = Bench()
    bench.run(ms=500)
    wanted = bench.clock + microseconds(s=3_600)
    bench.pubend.advance(wanted)
    bench.sync()
    assert bench.pubend.top == wanted


def test_silence_is_eager_while_a_receiver_waits_and_lazy_otherwise() -> None:
    # R30
    bench = Bench()
    bench.run(ms=5_000)
    sent = len(bench.sent)
    bench.pubend.set_eager(True)
    bench.run(ms=100)
    assert len(bench.sent) >= sent + 15
    bench.pubend.set_eager(False)
    bench.run(ms=5_000)
    sent = len(bench.sent)
    bench.run(ms=5_000)
    assert len(bench.sent) <= sent + 10
