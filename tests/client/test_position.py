"""Positions: text, JSON, order, merging."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless import Position
from gapless.core.ids import PubendId
from gapless.core.limits import CLIENT_COUNT_MAX, NAME_MAX
from gapless.errors import PositionError

NAMES = st.text(st.characters(exclude_characters="#", exclude_categories=["Cs"]), min_size=1)
POSITIONS = st.builds(Position, st.dictionaries(NAMES, st.integers(0, 2**62), max_size=4))
SMALL = st.builds(Position, st.dictionaries(st.sampled_from("abc"), st.integers(0, 3), max_size=3))


@given(POSITIONS)
def test_a_position_survives_its_text(position: Position) -> None:
    text = str(position)
    assert Position.parse(text) == position
    assert "\n" not in text


@given(POSITIONS)
def test_a_position_survives_json_and_pickle(position: Position) -> None:
    assert Position(json.loads(json.dumps(dict(position)))) == position
    assert pickle.loads(pickle.dumps(position)) == position
    assert copy.deepcopy(position) == position


@given(POSITIONS)
def test_a_position_survives_the_wire(position: Position) -> None:
    assert Position.of(dict(position.as_tuple())) == position


@given(SMALL, SMALL)
def test_the_merged_position_is_the_least_that_is_ahead_of_both(a: Position, b: Position) -> None:
    merged = a | b
    assert merged >= a
    assert merged >= b
    assert merged == b.merge(a)
    assert all(merged[name] in {a.get(name), b.get(name)} for name in merged)


@given(SMALL, SMALL, SMALL)
def test_being_ahead_is_a_partial_order(a: Position, b: Position, c: Position) -> None:
    assert a >= a
    assert (a >= b) == (b <= a)
    assert (a > b) == (a >= b and a != b)
    assert (a < b) == (b > a)
    if a >= b >= c:
        assert a >= c
    if a >= b >= a:
        assert a == b
        assert hash(a) == hash(b)


def test_a_position_without_a_pubend_is_before_its_first_tick() -> None:
    assert Position({"a": 0}) > Position()
    assert not Position() >= Position({"a": 0})


def test_two_positions_may_be_incomparable() -> None:
    a, b = Position({"a": 2, "b": 1}), Position({"a": 1, "b": 2})
    assert not a >= b
    assert not b >= a
    assert a | b == {"a": 2, "b": 2}


def test_the_text_is_short_and_sorted() -> None:
    assert str(Position({"b": 2, "a": 1})) == "a:1,b:2"
    assert str(Position({"x,y:z%": 3})) == "x%2Cy%3Az%25:3"
    assert str(Position()) == ""
    assert Position.parse("") == Position()


def test_an_incarnation_follows_a_number_sign() -> None:
    position = Position.of({PubendId("a", 2): 7})
    assert dict(position) == {"a#2": 7}
    assert position.as_tuple() == ((PubendId("a", 2), 7),)


def test_the_longest_name_of_a_pubend_has_positions_in_every_incarnation() -> None:
    longest = PubendId("n" * NAME_MAX, CLIENT_COUNT_MAX)
    position = Position.of({longest: 7})
    assert Position.parse(str(position)) == position
    assert position.as_tuple() == ((longest, 7),)


@pytest.mark.parametrize("text", ["a", "a:", ":1", "a:x", "a:-1", "a:1,", "a:1 ", "a#x:1", "a#:1"])
def test_an_invalid_text_is_refused(text: str) -> None:
    with pytest.raises(PositionError):
        Position.parse(text)


@pytest.mark.parametrize("ticks", [{"": 1}, {"a": -1}, {"a": True}, {"a": 1.5}, {1: 1}])
def test_an_invalid_mapping_is_refused(ticks: dict[str, int]) -> None:
    with pytest.raises(PositionError):
        Position(ticks)


def test_a_position_is_compared_only_with_mappings() -> None:
    with pytest.raises(TypeError):
        _ = Position() >= 3  # type: ignore[operator]
    with pytest.raises(TypeError):
        _ = Position() <= 3  # type: ignore[operator]
