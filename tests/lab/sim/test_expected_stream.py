"""Filter changes, played by hand: one cut, where the answer says."""

from __future__ import annotations

import pytest

from gapless.messages.clients import StartKind, StartPoint
from tests.lab.sim.fixtures import LATEST, CheckerHarness, P


def changing() -> CheckerHarness:
    """Return a subscription to odd prices that changes to even ones; P has 10, 20 … 60."""
    stage = CheckerHarness("price = 1")
    for tick in (10, 20, 30, 40, 50, 60):
        stage.log(P, tick, price=1 + tick // 10 % 2)
    stage.checker.subscribed(LATEST, ((P, 0),))
    stage.checker.change_asked("price = 2")
    return stage  # 20, 40, 60 have price 1; 10, 30, 50 have price 2


def test_the_old_filter_governs_up_to_the_answer_and_the_new_one_after_it() -> None:
    stage = changing()
    stage.get(P, 20, 40, 50)
    stage.checker.change_done(((P, 45),), exact=True)
    assert stage.found() == []
    assert not stage.checker.changing


def test_the_answer_may_lie_ahead_of_what_has_come() -> None:
    stage = changing()
    stage.checker.change_done(((P, 35),), exact=True)
    stage.get(P, 20, 50)
    assert stage.found() == []


@pytest.mark.parametrize("answer", [15, 35, 55])
def test_a_cut_elsewhere_than_answered_is_found(answer: int) -> None:
    stage = changing()
    stage.get(P, 20, 40, 50)
    stage.checker.change_done(((P, answer),), exact=True)
    assert stage.found() == ["segments"]


def test_an_answer_to_a_second_asking_may_be_later_than_the_cut() -> None:
    stage = changing()
    stage.get(P, 20, 30)
    stage.checker.change_done(((P, 45),), exact=False)
    stage.get(P, 50)
    assert stage.found() == []
    stage = changing()
    stage.get(P, 20, 30)
    stage.checker.change_done(((P, 15),), exact=False)
    assert stage.found() == ["segments"]


def test_going_back_to_the_old_filter_is_no_cut() -> None:
    stage = changing()
    stage.get(P, 30, 40)
    stage.checker.change_done(((P, 45),), exact=False)
    stage.get(P, 50)
    assert stage.found() == ["segments"]


def test_an_event_that_both_filters_match_is_owed_all_along() -> None:
    stage = CheckerHarness("price < 2")
    stage.log(P, 10, 20)
    stage.checker.subscribed(LATEST, ((P, 0),))
    stage.checker.change_asked("price = 0")
    stage.get(P, 20)
    assert stage.found() == ["lost"]


def test_a_started_stream_must_be_in_the_answer() -> None:
    stage = changing()
    stage.get(P, 20)
    stage.checker.change_done((), exact=True)
    assert stage.found() == ["segments"]


def test_a_refused_change_leaves_the_old_filter() -> None:
    stage = changing()
    stage.get(P, 20)
    stage.checker.change_refused()
    stage.get(P, 40, 60)
    assert stage.found() == []
    stage = changing()
    stage.get(P, 30)
    stage.checker.change_refused()
    assert stage.found() == ["segments"]


def test_a_subscription_that_begins_anew_has_its_new_filter_from_there() -> None:
    stage = changing()
    stage.get(P, 20, 40)
    stage.checker.restarted()
    stage.checker.resumed(((P, 40),))
    stage.get(P, 50)
    assert stage.found() == []


def test_an_unanswered_change_is_unfinished() -> None:
    stage = changing()
    assert "the filter change is not answered" in stage.checker.unfinished([])[0]


def test_a_stream_that_starts_while_a_change_is_open_is_judged_from_its_start() -> None:
    stage = CheckerHarness("price = 1")
    for tick in (10, 20, 30, 40):
        stage.log(P, tick, price=1 + tick // 10 % 2)
    stage.checker.subscribed(LATEST, ())
    stage.checker.change_asked("price = 2")
    stage.checker.started(P, 25)
    stage.get(P, 30)
    stage.checker.change_done(((P, 25),), exact=True)
    assert stage.found() == []


def test_a_gap_inside_an_open_change_is_not_held_against_it() -> None:
    stage = changing()
    stage.release(P, 30)
    stage.checker.sought(StartPoint(StartKind.EARLIEST), ((P, 0),))
    stage.checker.gap(P, 1, 30)
    stage.get(P, 50)
    stage.checker.change_done(((P, 35),), exact=True)
    assert stage.found() == []
