"""The search of long texts finds what a comparison of each position finds."""

from __future__ import annotations

import random

import pytest

from gapless.content import search
from gapless.content.like import Pattern
from gapless.content.search import SEARCHED_TEXT_MIN, first_start, starts
from gapless.core.limits import EVENT_TEXT_MAX, FILTER_PATTERN_MAX, FILTER_SEGMENT_MAX

ALPHABETS = ("ab", "abé", "a€b", "a😀b\0", "a\ud7ffb")


def naive(text: str, runs: list[tuple[int, str]]) -> int:
    return sum(
        1 << place
        for place in range(len(text))
        if all(text.startswith(run, place + offset) for offset, run in runs)
    )


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_all_positions_are_those_of_a_comparison_one_by_one(alphabet: str) -> None:
    dice = random.Random(alphabet)
    for _ in range(200):
        text = "".join(dice.choices(alphabet, k=dice.choice((1, 7, 8, 9, 64, 100))))
        runs = [(0, dice.choice(alphabet)), (2, "".join(dice.choices(alphabet, k=2)))]
        assert starts(text, runs) == naive(text, runs)


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_a_long_text_matches_as_a_short_one_does(
    alphabet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(alphabet)
    cases = []
    for _ in range(100):
        text = "".join(dice.choices(alphabet, k=SEARCHED_TEXT_MIN + dice.randrange(20)))
        pattern = Pattern.parse(
            f"%{''.join(dice.choices(alphabet + '__%', k=dice.choice((5, 9, 18))))}%"
        )
        cases.append((pattern, text, pattern.matches(text)))
    monkeypatch.setattr("gapless.content.like.SEARCHED_TEXT_MIN", 10**9)
    assert [pattern.matches(text) for pattern, text, _ in cases] == [each for _, _, each in cases]
    assert 0 < sum(each for _, _, each in cases) < len(cases)


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_the_first_place_is_found_in_any_block(
    alphabet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_BLOCK", 32)
    monkeypatch.setattr(search, "FILTER_SEGMENT_MAX", 4)
    dice = random.Random(alphabet)
    found = set()
    for _ in range(500):
        text = "".join(dice.choices(alphabet, k=dice.choice((5, 31, 32, 33, 64, 100, 150))))
        runs = [(0, dice.choice(alphabet)), (3, "".join(dice.choices(alphabet, k=3)))]
        start, end = sorted((dice.randrange(len(text)), dice.randrange(len(text) + 1)))
        places = [at for at in range(start, end - 5) if naive(text, runs) >> at & 1]
        place = first_start(text, runs, 6, start, end)
        assert place == min(places, default=-1), (text, runs, start, end)
        found.add(place // 32)
    assert found >= {-1, 0, 1, 2}


PATTERNS = {
    "one part": f"%{'a_' * (FILTER_SEGMENT_MAX // 2 - 1)}ab%",
    "many parts": "%" + "a_a%" * (FILTER_PATTERN_MAX // 4),
    "parts that are found late": "%" + "b_a%" * (FILTER_PATTERN_MAX // 4),
}


@pytest.mark.parametrize("what", PATTERNS)
@pytest.mark.parametrize("text", ["a" * EVENT_TEXT_MAX, ("a" * 999 + "b") * 65])
def test_the_work_of_a_search_is_bounded(
    what: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each block is looked at by one part of the pattern, apart from those that are found in it."""
    looks, pattern = 0, Pattern.parse(PATTERNS[what])
    of = search._Places.of

    def counted(places: search._Places, character: str) -> int:
        nonlocal looks
        looks += 1
        return of(places, character)

    monkeypatch.setattr(search._Places, "of", counted)
    pattern.matches(text)
    blocks = -(-EVENT_TEXT_MAX // search._BLOCK)
    assert looks <= blocks * FILTER_SEGMENT_MAX + len(pattern)


def test_a_character_that_is_absent_ends_the_search_of_a_long_pattern_at_once() -> None:
    text = "a" * 900_000
    assert not Pattern.parse(f"%x_{'a' * 4_000}%").matches(text)
    assert Pattern.parse("%a_aaa%").matches(text)


def test_the_places_of_more_characters_than_are_kept_are_found() -> None:
    letters = "".join(chr(ord("a") + index) for index in range(200))
    assert starts(letters * 3, [(0, letters)]) == 1 | 1 << 200 | 1 << 400
