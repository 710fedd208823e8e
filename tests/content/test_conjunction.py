"""Conjunctions: building, matching, covering, intersecting."""

from __future__ import annotations

import pickle

import msgspec

from gapless.content.conjunction import EVERYTHING, Conjunction
from gapless.content.expression import Arithmetic, Attribute, Comparison
from gapless.content.filter import Filter
from gapless.content.valueset import (
    ANY,
    ANY_NUMBER,
    MISSING,
    NOTHING,
    PRESENT,
    ValueSet,
    numbers,
    one_of,
)

SUM = Arithmetic("+", Attribute("a"), Attribute("b"))
LESS = Comparison(Attribute("a"), Attribute("b"))


def only(text: str) -> Conjunction:
    (one,) = Filter(text).conjunctions
    return one


def positive() -> ValueSet:
    return only("x > 0").constraints[0][1]


def test_conditions_are_sorted_and_those_of_one_subject_are_intersected() -> None:
    made = Conjunction.of([("b", one_of([1, 2])), ("a", PRESENT), ("b", one_of([2, 3]))])
    assert made is not None
    assert made.constraints == (("a", PRESENT), ("b", one_of([2])))
    many = Conjunction.of([("a", one_of(range(place, 9))) for place in range(5)])  # type: ignore[arg-type]
    assert many is not None
    assert many.constraints == (("a", one_of([4, 5, 6, 7, 8])),)


def test_conditions_that_allow_everything_are_omitted() -> None:
    assert Conjunction.of([("a", ANY)]) == EVERYTHING
    assert Conjunction.of([]) == EVERYTHING


def test_unsatisfiable_conditions_give_no_conjunction() -> None:
    assert Conjunction.of([("a", NOTHING)]) is None
    assert Conjunction.of([("a", MISSING), ("a", PRESENT)]) is None
    assert Conjunction.of([], [(SUM, NOTHING)]) is None
    assert Conjunction.of([], [(SUM, one_of([1])), (SUM, one_of([2]))]) is None
    assert Conjunction.of([("a", one_of(["x"]))], [(SUM, one_of([1]))]) is None


def test_terms_add_the_constraints_of_their_attributes() -> None:
    made = Conjunction.of([("a", positive())], [(SUM, one_of([5]))])
    assert made is not None
    assert made.constraints == (("a", positive()), ("b", ANY_NUMBER))
    assert made.residuals == ((SUM, one_of([5])),)
    both = Conjunction.of([], [(LESS, one_of([-1])), (SUM, one_of([5])), (SUM, one_of([5, 6]))])
    assert both is not None
    assert both.constraints == (("a", ANY_NUMBER), ("b", ANY_NUMBER))
    assert both.residuals == ((SUM, one_of([5])), (LESS, one_of([-1])))


def test_every_condition_must_be_met() -> None:
    made = only("a > 1 AND b = 'x' AND a < c")
    assert made.matches({"a": 2, "b": "x", "c": 3})
    assert not made.matches({"a": 1, "b": "x", "c": 3})
    assert not made.matches({"a": 2, "c": 3})
    assert not made.matches({"a": 2, "b": "x", "c": 2})
    assert EVERYTHING.matches({})


def test_fewer_and_wider_conditions_cover() -> None:
    assert EVERYTHING.covers(only("a = 1"))
    assert not only("a = 1").covers(EVERYTHING)
    assert only("a > 1").covers(only("a > 2 AND b = 1"))
    assert not only("a > 1 AND b = 1").covers(only("a > 2"))
    assert only("a + b > 1").covers(only("a + b > 2 AND c = 1"))
    assert not only("a + b > 1").covers(only("a > 1 AND b > 1"))  # not found: it would need algebra
    assert only("a IS NOT NULL").covers(only("a + b > 1"))


def test_conditions_that_exclude_each_other_do_not_intersect() -> None:
    assert EVERYTHING.intersects(only("a = 1"))
    assert only("a = 1").intersects(only("b = 1"))
    assert not only("a = 1 AND b = 1").intersects(only("a = 1 AND b = 2"))
    assert not only("a + b > 1").intersects(only("a + b < 0"))
    assert only("a + b > 1").intersects(only("a > 5"))


def test_a_conjunction_can_be_printed_and_pickled() -> None:
    made = only("a > 1 AND b LIKE '%x' AND a < c")
    assert str(made) == "a > 1 AND b LIKE '%x' AND a < c"
    assert pickle.loads(pickle.dumps(made)) == made  # noqa: S301
    assert str(EVERYTHING) == "TRUE"
    assert msgspec.structs.replace(made, residuals=()) != made
    assert numbers(()) == NOTHING
