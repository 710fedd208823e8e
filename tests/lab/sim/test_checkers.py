"""The checkers with hand-made input: each violation is named, and correct behaviour passes."""

from __future__ import annotations

import pytest

from gapless.core.ids import PubendId
from gapless.messages.clients import StartKind, StartPoint
from gapless.messages.overlay import Quality
from gapless.messages.records import AppendRow, DeleteRecord, LogRow, SubscriptionRecord
from gapless.messages.streams import Publication
from tests.lab.sim.fixtures import LATEST, CheckerHarness, P, Q, started

# --- order and completeness -------------------------------------------------------------------


def test_all_matching_events_in_order_pass() -> None:
    harness = started()
    harness.get(P, 10, 20, 30, 40)
    assert harness.found() == []
    assert harness.checker.unfinished(harness.oracle.streams.values()) == []
    assert dict(harness.checker.position()) == {P: 40, Q: 0}


def test_a_skipped_event_is_lost() -> None:
    harness = started()
    harness.get(P, 10, 30)
    assert harness.found() == ["lost"]


def test_an_event_before_the_start_is_not_expected() -> None:
    harness = started(after=20)
    harness.get(P, 30, 40)
    assert harness.found() == []


def test_an_event_that_does_not_match_is_not_expected_and_spurious_if_delivered() -> None:
    harness = CheckerHarness("price > 0")
    harness.log(P, 10)
    harness.log(P, 20, price=1)
    harness.checker.subscribed(LATEST, ((P, 0),))
    harness.get(P, 20)
    assert harness.found() == []
    harness = started(filter_text="price > 0")
    harness.get(P, 10)
    assert harness.found() == ["spurious"]


def test_a_repeated_event_is_a_duplicate() -> None:
    harness = started()
    harness.get(P, 10, 20, 10)
    assert harness.found() == ["duplicate"]


def test_a_late_event_is_nonmonotonic() -> None:
    harness = started(after=20)
    harness.get(P, 30, 10)
    assert harness.found() == ["nonmonotonic"]


def test_an_event_that_is_not_on_disk_is_undurable() -> None:
    harness = started()
    harness.get(P, 10, 20, 30, 40)
    harness.checker.delivered([(P, harness.send(P, 50))])
    assert harness.found() == ["undurable"]


def test_an_event_that_was_not_published_is_spurious() -> None:
    harness = started()
    harness.checker.delivered([(P, Publication(5, "x", 1, {}, b""))])
    harness.checker.delivered([(PubendId("X"), Publication(5, "x", 1, {}, b""))])
    assert harness.found() == ["spurious", "spurious"]


def test_an_event_after_the_end_is_spurious() -> None:
    harness = started()
    harness.checker.ended = True
    harness.get(P, 10)
    assert harness.found() == ["spurious"]


def test_events_that_were_not_delivered_are_unfinished() -> None:
    harness = started()
    harness.get(P, 10)
    assert harness.checker.unfinished([harness.oracle.streams[P]]) == ["s: P [20, 30, 40] of 3"]


def test_a_stream_that_intersects_and_has_not_started_is_unfinished() -> None:
    harness = CheckerHarness()
    harness.checker.subscribed(LATEST, ())
    assert harness.checker.unfinished([harness.oracle.streams[Q]]) == ["s: has not started on Q"]


# --- starting and resuming --------------------------------------------------------------------


def test_a_start_that_is_received_after_the_first_event_must_fit_it() -> None:
    harness = CheckerHarness()
    harness.log(P, 10, 20, 30)
    harness.get(P, 20)
    harness.checker.started(P, 10)
    assert harness.found() == []
    harness = CheckerHarness()
    harness.log(P, 10, 20, 30)
    harness.get(P, 20)
    harness.checker.started(P, 5)
    assert harness.found() == ["lost"]
    harness = CheckerHarness()
    harness.log(P, 10, 20, 30)
    harness.get(P, 20)
    harness.checker.started(P, 25)
    assert harness.found() == ["spurious"]


def test_events_before_a_lost_reply_count_when_the_client_resumes() -> None:
    harness = CheckerHarness()
    harness.log(P, 10, 20, 30)
    harness.get(P, 10, 20)
    harness.checker.resumed(((P, 20),))
    harness.get(P, 30)
    assert harness.found() == []


def test_resuming_above_the_own_position_loses_the_events_between() -> None:
    harness = started()
    harness.get(P, 10)
    harness.checker.resumed(((P, 15),))
    assert harness.found() == []
    harness.checker.resumed(((P, 20),))
    assert harness.found() == ["lost"]


def test_a_client_without_its_position_resumes_at_its_acknowledgement() -> None:
    harness = started()
    harness.get(P, 10, 20, 30)
    harness.checker.acked[P] = 20
    harness.checker.forgot()
    harness.checker.resumed(((P, 10),))
    harness.get(P, 20, 30, 40)
    assert harness.found() == []


def test_resuming_above_the_acknowledgement_loses_events() -> None:
    harness = started()
    harness.get(P, 10, 20, 30)
    harness.checker.acked[P] = 10
    harness.checker.forgot()
    harness.checker.resumed(((P, 20),))
    assert harness.found() == ["lost"]


def test_a_start_position_in_the_past_must_be_respected() -> None:
    harness = CheckerHarness()
    harness.log(P, 10, 20)
    start_point = StartPoint(StartKind.POSITION, ((P, 10),))
    harness.checker.subscribed(start_point, ((P, 10),))
    assert harness.found() == []
    harness.checker.subscribed(start_point, ((P, 15),))
    assert harness.found() == []  # there is no event between
    harness.checker.subscribed(start_point, ((P, 25),))
    assert set(harness.found()) == {"lost"}


def test_the_earliest_start_is_after_the_released_range() -> None:
    harness = CheckerHarness()
    harness.log(P, 10, 20, 30)
    harness.release(P, 10)
    harness.checker.subscribed(StartPoint(StartKind.EARLIEST), ((P, 10),))
    assert harness.found() == []
    harness = CheckerHarness()
    harness.log(P, 10, 20, 30)
    harness.checker.subscribed(StartPoint(StartKind.EARLIEST), ((P, 10),))
    assert harness.found() == ["lost"]


def test_a_start_time_in_the_past_is_by_the_clock_of_the_log() -> None:
    harness = CheckerHarness()
    harness.log(P, 10, 20, 30)
    harness.checker.subscribed(StartPoint(StartKind.TIME, clock=20), ((P, 19),))
    assert harness.found() == []
    harness = CheckerHarness()
    harness.log(P, 10, 20, 30)
    harness.checker.subscribed(StartPoint(StartKind.TIME, clock=20), ((P, 20),))
    assert harness.found() == ["lost"]


def test_after_a_seek_events_are_repeated() -> None:
    harness = started()
    harness.get(P, 10, 20, 30)
    harness.checker.seek_done(StartPoint(StartKind.POSITION, ((P, 10),)), ((P, 10),))
    harness.get(P, 20, 30, 40)
    assert harness.found() == []


# --- gaps -------------------------------------------------------------------------------------


def test_a_gap_over_a_range_that_is_not_released_is_dishonest() -> None:
    harness = started(durable=False)
    harness.checker.resumed(((P, 0),))
    harness.checker.gap(P, 1, 20)
    assert harness.found() == ["dishonest gap"]


def test_a_gap_where_nothing_kept_the_log_is_honest() -> None:
    harness = started(durable=False)
    harness.release(P, 20)
    harness.checker.resumed(((P, 0),))
    harness.checker.gap(P, 1, 20)
    harness.get(P, 30, 40)
    assert harness.found() == []


def test_a_gap_over_a_range_released_after_the_start_was_confirmed_is_dishonest() -> None:
    harness = started(durable=False)
    harness.release(P, 10)
    harness.checker.resumed(((P, 0),))  # from here on a log hold keeps the log
    harness.release(P, 20)
    harness.checker.gap(P, 1, 20)
    assert harness.found() == ["dishonest gap"]


def test_a_gap_after_a_seek_may_cover_the_released_range() -> None:
    harness = started()
    harness.get(P, 10, 20, 30)
    harness.checker.seek_done(StartPoint(StartKind.POSITION, ((P, 0),)), ((P, 0),))
    harness.release(P, 20)
    harness.checker.gap(P, 1, 20)
    harness.get(P, 30, 40)
    assert harness.found() == []


def test_a_gap_in_a_durable_subscription_needs_an_expiry() -> None:
    harness = started()
    harness.get(P, 10)
    harness.release(P, 20)
    harness.checker.gap(P, 11, 20)
    assert harness.found() == ["dishonest gap"]


def test_events_between_the_position_and_a_gap_are_lost() -> None:
    harness = started(durable=False)
    harness.release(P, 30)
    harness.checker.resumed(((P, 0),))
    harness.checker.gap(P, 15, 30)
    assert harness.found() == ["lost"]


# --- expiry -----------------------------------------------------------------------------------


def test_an_expired_subscription_starts_again_at_its_start_point() -> None:
    harness = started()
    harness.get(P, 10)
    harness.checker.expired(LATEST, ((P, 30), (Q, 0)))
    harness.get(P, 40)
    assert harness.found() == []
    assert dict(harness.checker.position()) == {P: 40, Q: 0}


def test_an_expired_subscription_with_a_position_loses_no_event_after_it() -> None:
    harness = started()
    harness.get(P, 10)
    harness.checker.expired(StartPoint(StartKind.POSITION, ((P, 10),)), ((P, 20),))
    assert harness.found() == ["lost"]


def test_the_oracle_counts_how_often_a_subscription_was_erased() -> None:
    harness = started()
    assert harness.oracle.erased == {}
    harness.oracle.durable(harness.host, DeleteRecord(SubscriptionRecord.key_of("s")))
    assert harness.oracle.erased == {("n0a", "s"): 1}


# --- total order ------------------------------------------------------------------------------


def test_total_order_is_by_tick_and_then_by_pubend() -> None:
    harness = CheckerHarness(total=True)
    harness.log(P, 10, 20)
    harness.log(Q, 10, 15)
    harness.checker.subscribed(LATEST, ((P, 0), (Q, 0)))
    harness.get(P, 10)
    harness.get(Q, 10, 15)
    harness.get(P, 20)
    assert harness.found() == []


@pytest.mark.parametrize("order", [(Q, P), (P, Q)])
def test_another_merge_is_disorder(order: tuple[PubendId, PubendId]) -> None:
    harness = CheckerHarness(total=True)
    harness.log(order[0], 20)
    harness.log(order[1], 10)
    harness.checker.subscribed(LATEST, ((P, 0), (Q, 0)))
    harness.get(order[0], 20)
    harness.get(order[1], 10)
    assert harness.found() == ["disorder"]


# --- best effort ------------------------------------------------------------------------------


def test_best_effort_may_lose_but_not_repeat_reorder_or_invent() -> None:
    harness = CheckerHarness()
    harness.open(PubendId("B"), Quality.BEST_EFFORT)
    events = [harness.send(PubendId("B"), tick) for tick in (1, 2, 3, 4)]
    for event in (events[0], events[2]):
        harness.checker.delivered([(PubendId("B"), event)])
    assert harness.found() == []
    for event in (events[2], events[1], Publication(9, "x", 9, {}, b"")):
        harness.checker.delivered([(PubendId("B"), event)])
    assert harness.found() == ["duplicate", "nonmonotonic", "spurious"]


# --- log contents -----------------------------------------------------------------------------


def test_a_sequence_that_is_logged_again_is_a_duplicate() -> None:
    harness = CheckerHarness()
    harness.log(P, 10)
    again = Publication(20, "p", 10, {"price": 0}, b"")
    harness.oracle.durable(harness.host, AppendRow(LogRow(P, 20, 20, 1, 0, 0, 0, (again,))))
    assert harness.found() == ["duplicate"]


def test_a_publication_that_was_sent_differently_is_spurious() -> None:
    harness = CheckerHarness()
    changed = Publication(20, "p", 10, {"price": 1}, b"")
    harness.send(P, 10)
    harness.oracle.durable(harness.host, AppendRow(LogRow(P, 20, 20, 1, 0, 0, 0, (changed,))))
    assert harness.found() == ["spurious"]


def test_an_event_at_a_tick_that_was_silent_is_nonmonotonic() -> None:
    harness = CheckerHarness()
    harness.oracle.streams[P].promised = 15
    harness.log(P, 10)
    assert harness.found() == ["nonmonotonic"]


# --- stalled streams ----------------------------------------------------------------------------


def test_a_client_gets_one_notice_of_a_corrupt_stream_and_one_when_it_continues() -> None:
    harness = started()
    harness.host.disk.corrupt_row(P, 20)
    harness.get(P, 10)
    stream = harness.oracle.streams[P]
    assert harness.checker.unreported_stalls(stream) == ["s: got no reason why P is stalled"]
    harness.checker.stalled(P, "row 20 is corrupt")
    assert harness.checker.unreported_stalls(stream) == []
    harness.checker.stalled(P, "")
    assert harness.found() == []
    harness.checker.stalled(P, "")
    assert harness.found() == ["spurious"]


def test_a_client_that_has_every_event_needs_no_notice_of_corruption() -> None:
    harness = started()
    harness.host.disk.corrupt_row(P, 20)
    harness.get(P, 10, 20, 30, 40)
    assert harness.checker.unreported_stalls(harness.oracle.streams[P]) == []


def test_reporting_a_stall_of_a_valid_stream_is_dishonest() -> None:
    harness = started()
    harness.checker.stalled(P, "row 20 is corrupt")
    assert harness.found() == ["dishonest stall"]


def test_reporting_a_stall_twice_is_spurious() -> None:
    harness = started()
    harness.host.disk.corrupt_row(P, 20)
    for _ in range(2):
        harness.checker.stalled(P, "row 20 is corrupt")
    assert harness.found() == ["spurious"]
