"""Filter changes in the checker: one cut at the position of the reply."""

from __future__ import annotations

import pytest

from gapless.messages.clients import StartKind, StartPoint
from tests.lab.sim.fixtures import LATEST, CheckerHarness, P


def changing() -> CheckerHarness:
    """Return a subscription with a pending change from odd to even prices; P has 10, 20 … 60."""
    harness = CheckerHarness("price = 1")
    for tick in (10, 20, 30, 40, 50, 60):
        harness.log(P, tick, price=1 + tick // 10 % 2)
    harness.checker.subscribed(LATEST, ((P, 0),))
    harness.checker.change_requested("price = 2")
    return harness  # 20, 40, 60 have price 1; 10, 30, 50 have price 2


def test_the_old_filter_applies_up_to_the_reply_and_the_new_one_after_it() -> None:
    harness = changing()
    harness.get(P, 20, 40, 50)
    harness.checker.change_done(((P, 45),), exact=True)
    assert harness.found() == []
    assert not harness.checker.changing


def test_the_position_of_the_reply_may_be_ahead_of_the_delivered_events() -> None:
    harness = changing()
    harness.checker.change_done(((P, 35),), exact=True)
    harness.get(P, 20, 50)
    assert harness.found() == []


@pytest.mark.parametrize("answer", [15, 35, 55])
def test_a_cut_at_another_position_than_the_reply_is_found(answer: int) -> None:
    harness = changing()
    harness.get(P, 20, 40, 50)
    harness.checker.change_done(((P, answer),), exact=True)
    assert harness.found() == ["segments"]


def test_the_reply_to_a_repeated_request_may_be_later_than_the_cut() -> None:
    harness = changing()
    harness.get(P, 20, 30)
    harness.checker.change_done(((P, 45),), exact=False)
    harness.get(P, 50)
    assert harness.found() == []
    harness = changing()
    harness.get(P, 20, 30)
    harness.checker.change_done(((P, 15),), exact=False)
    assert harness.found() == ["segments"]


def test_returning_to_the_old_filter_is_a_violation() -> None:
    harness = changing()
    harness.get(P, 30, 40)
    harness.checker.change_done(((P, 45),), exact=False)
    harness.get(P, 50)
    assert harness.found() == ["segments"]


def test_an_event_that_both_filters_match_is_always_expected() -> None:
    harness = CheckerHarness("price < 2")
    harness.log(P, 10, 20)
    harness.checker.subscribed(LATEST, ((P, 0),))
    harness.checker.change_requested("price = 0")
    harness.get(P, 20)
    assert harness.found() == ["lost"]


def test_a_started_stream_must_be_in_the_reply() -> None:
    harness = changing()
    harness.get(P, 20)
    harness.checker.change_done((), exact=True)
    assert harness.found() == ["segments"]


def test_a_refused_change_keeps_the_old_filter() -> None:
    harness = changing()
    harness.get(P, 20)
    harness.checker.change_refused()
    harness.get(P, 40, 60)
    assert harness.found() == []
    harness = changing()
    harness.get(P, 30)
    harness.checker.change_refused()
    assert harness.found() == ["segments"]


def test_a_restarted_subscription_has_its_new_filter_from_its_start() -> None:
    harness = changing()
    harness.get(P, 20, 40)
    harness.checker.restarted()
    harness.checker.resumed(((P, 40),))
    harness.get(P, 50)
    assert harness.found() == []


def test_an_unanswered_change_is_unfinished() -> None:
    harness = changing()
    assert "the filter change is not answered" in harness.checker.unfinished([])[0]


def test_a_stream_that_starts_during_a_change_is_checked_from_its_start() -> None:
    harness = CheckerHarness("price = 1")
    for tick in (10, 20, 30, 40):
        harness.log(P, tick, price=1 + tick // 10 % 2)
    harness.checker.subscribed(LATEST, ())
    harness.checker.change_requested("price = 2")
    harness.checker.started(P, 25)
    harness.get(P, 30)
    harness.checker.change_done(((P, 25),), exact=True)
    assert harness.found() == []


def test_a_gap_during_a_change_is_no_violation() -> None:
    harness = changing()
    harness.release(P, 30)
    harness.checker.seek_done(StartPoint(StartKind.EARLIEST), ((P, 0),))
    harness.checker.gap(P, 1, 30)
    harness.get(P, 50)
    harness.checker.change_done(((P, 35),), exact=True)
    assert harness.found() == []
