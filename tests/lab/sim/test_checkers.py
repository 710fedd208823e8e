"""The checkers, fed by hand: each anomaly is named, and what is lawful passes."""

from __future__ import annotations

import pytest

from gapless.core.ids import PubendId
from gapless.messages.clients import StartKind, StartPoint
from gapless.messages.overlay import Quality
from gapless.messages.records import AppendRow, DeleteRecord, LogRow, SubscriptionRecord
from gapless.messages.streams import Publication
from tests.lab.sim.fixtures import LATEST, CheckerHarness, P, Q, started

# --- order and completeness -------------------------------------------------------------------


def test_all_matching_events_in_order_are_what_is_owed() -> None:
    stage = started()
    stage.get(P, 10, 20, 30, 40)
    assert stage.found() == []
    assert stage.checker.unfinished(stage.oracle.streams.values()) == []
    assert dict(stage.checker.position()) == {P: 40, Q: 0}


def test_an_event_that_is_passed_over_is_lost() -> None:
    stage = started()
    stage.get(P, 10, 30)
    assert stage.found() == ["lost"]


def test_an_event_before_the_start_is_not_owed() -> None:
    stage = started(after=20)
    stage.get(P, 30, 40)
    assert stage.found() == []


def test_an_event_that_does_not_match_is_not_owed_and_spurious_if_it_comes() -> None:
    stage = CheckerHarness("price > 0")
    stage.log(P, 10)
    stage.log(P, 20, price=1)
    stage.checker.subscribed(LATEST, ((P, 0),))
    stage.get(P, 20)
    assert stage.found() == []
    stage = started(filter_text="price > 0")
    stage.get(P, 10)
    assert stage.found() == ["spurious"]


def test_an_event_that_comes_again_is_a_duplicate() -> None:
    stage = started()
    stage.get(P, 10, 20, 10)
    assert stage.found() == ["duplicate"]


def test_an_event_that_comes_too_late_is_nonmonotonic() -> None:
    stage = started(after=20)
    stage.get(P, 30, 10)
    assert stage.found() == ["nonmonotonic"]


def test_an_event_that_is_not_on_disk_is_undurable() -> None:
    stage = started()
    stage.get(P, 10, 20, 30, 40)
    stage.checker.delivered([(P, stage.send(P, 50))])
    assert stage.found() == ["undurable"]


def test_an_event_that_nobody_published_is_spurious() -> None:
    stage = started()
    stage.checker.delivered([(P, Publication(5, "x", 1, {}, b""))])
    stage.checker.delivered([(PubendId("X"), Publication(5, "x", 1, {}, b""))])
    assert stage.found() == ["spurious", "spurious"]


def test_an_event_after_the_end_is_spurious() -> None:
    stage = started()
    stage.checker.ended = True
    stage.get(P, 10)
    assert stage.found() == ["spurious"]


def test_what_has_not_come_is_unfinished() -> None:
    stage = started()
    stage.get(P, 10)
    assert stage.checker.unfinished([stage.oracle.streams[P]]) == ["s: P [20, 30, 40] of 3"]


def test_a_stream_that_intersects_and_has_not_started_is_unfinished() -> None:
    stage = CheckerHarness()
    stage.checker.subscribed(LATEST, ())
    assert stage.checker.unfinished([stage.oracle.streams[Q]]) == ["s: has not started on Q"]


# --- starting and resuming --------------------------------------------------------------------


def test_a_start_that_is_told_after_the_first_event_must_fit_it() -> None:
    stage = CheckerHarness()
    stage.log(P, 10, 20, 30)
    stage.get(P, 20)
    stage.checker.started(P, 10)
    assert stage.found() == []
    stage = CheckerHarness()
    stage.log(P, 10, 20, 30)
    stage.get(P, 20)
    stage.checker.started(P, 5)
    assert stage.found() == ["lost"]
    stage = CheckerHarness()
    stage.log(P, 10, 20, 30)
    stage.get(P, 20)
    stage.checker.started(P, 25)
    assert stage.found() == ["spurious"]


def test_events_that_came_before_a_lost_answer_count_when_the_client_resumes() -> None:
    stage = CheckerHarness()
    stage.log(P, 10, 20, 30)
    stage.get(P, 10, 20)
    stage.checker.resumed(((P, 20),))
    stage.get(P, 30)
    assert stage.found() == []


def test_resuming_above_the_own_position_loses_what_lies_between() -> None:
    stage = started()
    stage.get(P, 10)
    stage.checker.resumed(((P, 15),))
    assert stage.found() == []
    stage.checker.resumed(((P, 20),))
    assert stage.found() == ["lost"]


def test_a_client_without_memory_goes_on_up_to_what_it_acknowledged() -> None:
    stage = started()
    stage.get(P, 10, 20, 30)
    stage.checker.acked[P] = 20
    stage.checker.forgot()
    stage.checker.resumed(((P, 10),))
    stage.get(P, 20, 30, 40)
    assert stage.found() == []


def test_acknowledging_more_than_the_client_did_loses_events() -> None:
    stage = started()
    stage.get(P, 10, 20, 30)
    stage.checker.acked[P] = 10
    stage.checker.forgot()
    stage.checker.resumed(((P, 20),))
    assert stage.found() == ["lost"]


def test_a_position_in_the_past_must_be_kept_to() -> None:
    stage = CheckerHarness()
    stage.log(P, 10, 20)
    begin = StartPoint(StartKind.POSITION, ((P, 10),))
    stage.checker.subscribed(begin, ((P, 10),))
    assert stage.found() == []
    stage.checker.subscribed(begin, ((P, 15),))
    assert stage.found() == []  # nothing lies between
    stage.checker.subscribed(begin, ((P, 25),))
    assert set(stage.found()) == {"lost"}


def test_the_earliest_is_what_is_not_released() -> None:
    stage = CheckerHarness()
    stage.log(P, 10, 20, 30)
    stage.release(P, 10)
    stage.checker.subscribed(StartPoint(StartKind.EARLIEST), ((P, 10),))
    assert stage.found() == []
    stage = CheckerHarness()
    stage.log(P, 10, 20, 30)
    stage.checker.subscribed(StartPoint(StartKind.EARLIEST), ((P, 10),))
    assert stage.found() == ["lost"]


def test_a_time_in_the_past_is_the_clock_of_the_log() -> None:
    stage = CheckerHarness()
    stage.log(P, 10, 20, 30)
    stage.checker.subscribed(StartPoint(StartKind.TIME, clock=20), ((P, 19),))
    assert stage.found() == []
    stage = CheckerHarness()
    stage.log(P, 10, 20, 30)
    stage.checker.subscribed(StartPoint(StartKind.TIME, clock=20), ((P, 20),))
    assert stage.found() == ["lost"]


def test_after_a_seek_events_come_again() -> None:
    stage = started()
    stage.get(P, 10, 20, 30)
    stage.checker.sought(StartPoint(StartKind.POSITION, ((P, 10),)), ((P, 10),))
    stage.get(P, 20, 30, 40)
    assert stage.found() == []


# --- gaps -------------------------------------------------------------------------------------


def test_a_gap_over_what_is_not_released_is_dishonest() -> None:
    stage = started(durable=False)
    stage.checker.resumed(((P, 0),))
    stage.checker.gap(P, 1, 20)
    assert stage.found() == ["dishonest gap"]


def test_a_gap_where_nothing_kept_the_log_is_honest() -> None:
    stage = started(durable=False)
    stage.release(P, 20)
    stage.checker.resumed(((P, 0),))
    stage.checker.gap(P, 1, 20)
    stage.get(P, 30, 40)
    assert stage.found() == []


def test_a_gap_over_what_was_released_after_the_beginning_was_told_is_dishonest() -> None:
    stage = started(durable=False)
    stage.release(P, 10)
    stage.checker.resumed(((P, 0),))  # from here on a hold keeps the log
    stage.release(P, 20)
    stage.checker.gap(P, 1, 20)
    assert stage.found() == ["dishonest gap"]


def test_a_gap_after_a_seek_may_go_as_far_as_the_log_is_released() -> None:
    stage = started()
    stage.get(P, 10, 20, 30)
    stage.checker.sought(StartPoint(StartKind.POSITION, ((P, 0),)), ((P, 0),))
    stage.release(P, 20)
    stage.checker.gap(P, 1, 20)
    stage.get(P, 30, 40)
    assert stage.found() == []


def test_a_gap_in_a_durable_subscription_needs_an_expiry() -> None:
    stage = started()
    stage.get(P, 10)
    stage.release(P, 20)
    stage.checker.gap(P, 11, 20)
    assert stage.found() == ["dishonest gap"]


def test_what_lies_between_the_position_and_a_gap_is_lost() -> None:
    stage = started(durable=False)
    stage.release(P, 30)
    stage.checker.resumed(((P, 0),))
    stage.checker.gap(P, 15, 30)
    assert stage.found() == ["lost"]


# --- expiry -----------------------------------------------------------------------------------


def test_a_subscription_that_expired_owes_nothing_and_begins_where_it_was_asked_to() -> None:
    stage = started()
    stage.get(P, 10)
    stage.checker.expired(LATEST, ((P, 30), (Q, 0)))
    stage.get(P, 40)
    assert stage.found() == []
    assert dict(stage.checker.position()) == {P: 40, Q: 0}


def test_one_that_expired_and_was_asked_to_go_on_from_its_position_loses_nothing_after_it() -> None:
    stage = started()
    stage.get(P, 10)
    stage.checker.expired(StartPoint(StartKind.POSITION, ((P, 10),)), ((P, 20),))
    assert stage.found() == ["lost"]


def test_the_truth_counts_how_often_a_subscription_was_erased() -> None:
    stage = started()
    assert stage.oracle.erased == {}
    stage.oracle.durable(stage.host, DeleteRecord(SubscriptionRecord.key_of("s")))
    assert stage.oracle.erased == {("n0a", "s"): 1}


# --- total order ------------------------------------------------------------------------------


def test_total_order_is_by_tick_and_then_by_pubend() -> None:
    stage = CheckerHarness(total=True)
    stage.log(P, 10, 20)
    stage.log(Q, 10, 15)
    stage.checker.subscribed(LATEST, ((P, 0), (Q, 0)))
    stage.get(P, 10)
    stage.get(Q, 10, 15)
    stage.get(P, 20)
    assert stage.found() == []


@pytest.mark.parametrize("order", [(Q, P), (P, Q)])
def test_another_merge_is_disorder(order: tuple[PubendId, PubendId]) -> None:
    stage = CheckerHarness(total=True)
    stage.log(order[0], 20)
    stage.log(order[1], 10)
    stage.checker.subscribed(LATEST, ((P, 0), (Q, 0)))
    stage.get(order[0], 20)
    stage.get(order[1], 10)
    assert stage.found() == ["disorder"]


# --- best effort ------------------------------------------------------------------------------


def test_best_effort_may_lose_but_not_repeat_reorder_or_invent() -> None:
    stage = CheckerHarness()
    stage.open(PubendId("B"), Quality.BEST_EFFORT)
    events = [stage.send(PubendId("B"), tick) for tick in (1, 2, 3, 4)]
    for event in (events[0], events[2]):
        stage.checker.delivered([(PubendId("B"), event)])
    assert stage.found() == []
    for event in (events[2], events[1], Publication(9, "x", 9, {}, b"")):
        stage.checker.delivered([(PubendId("B"), event)])
    assert stage.found() == ["duplicate", "nonmonotonic", "spurious"]


# --- what goes into a log ---------------------------------------------------------------------


def test_a_sequence_that_is_logged_again_is_a_duplicate() -> None:
    stage = CheckerHarness()
    stage.log(P, 10)
    again = Publication(20, "p", 10, {"price": 0}, b"")
    stage.oracle.durable(stage.host, AppendRow(LogRow(P, 20, 20, 1, 0, 0, (again,))))
    assert stage.found() == ["duplicate"]


def test_a_publication_that_was_not_sent_so_is_spurious() -> None:
    stage = CheckerHarness()
    changed = Publication(20, "p", 10, {"price": 1}, b"")
    stage.send(P, 10)
    stage.oracle.durable(stage.host, AppendRow(LogRow(P, 20, 20, 1, 0, 0, (changed,))))
    assert stage.found() == ["spurious"]


def test_a_tick_that_was_read_as_silent_stays_silent() -> None:
    stage = CheckerHarness()
    stage.oracle.streams[P].promised = 15
    stage.log(P, 10)
    assert stage.found() == ["nonmonotonic"]


# --- streams that stand still -------------------------------------------------------------------


def test_a_client_is_told_once_of_a_corrupt_stream_and_then_that_it_goes_on() -> None:
    stage = started()
    stage.host.disk.corrupt_row(P, 20)
    stage.get(P, 10)
    stream = stage.oracle.streams[P]
    assert stage.checker.unreported_stalls(stream) == ["s: is not told why P stands still"]
    stage.checker.stalled(P, "row 20 is damaged")
    assert stage.checker.unreported_stalls(stream) == []
    stage.checker.stalled(P, "")
    assert stage.found() == []
    stage.checker.stalled(P, "")
    assert stage.found() == ["spurious"]


def test_a_client_that_has_everything_need_not_be_told_of_corruption() -> None:
    stage = started()
    stage.host.disk.corrupt_row(P, 20)
    stage.get(P, 10, 20, 30, 40)
    assert stage.checker.unreported_stalls(stage.oracle.streams[P]) == []


def test_to_say_that_a_sound_stream_stands_still_is_dishonest() -> None:
    stage = started()
    stage.checker.stalled(P, "row 20 is damaged")
    assert stage.found() == ["dishonest stall"]


def test_to_say_twice_that_a_stream_stands_still_is_spurious() -> None:
    stage = started()
    stage.host.disk.corrupt_row(P, 20)
    for _ in range(2):
        stage.checker.stalled(P, "row 20 is damaged")
    assert stage.found() == ["spurious"]
