"""The search of long texts finds what a comparison of each position finds."""

from __future__ import annotations

import random

import pytest

from gapless.content import search
from gapless.content.like import Pattern
from gapless.content.search import first_start, starts
from gapless.core.limits import EVENT_TEXT_MAX, FILTER_PATTERN_MAX, FILTER_SEGMENT_MAX

ALPHABETS = ("ab", "abé", "a€b", "a😀b\0", "a\ud7ffb")


def naive(text: str, runs: list[tuple[int, str]]) -> int:
    return sum(
        1 << place
        for place in range(len(text))
        if all(text.startswith(run, place + offset) for offset, run in runs)
    )


def naive_match(pattern: str, text: str) -> bool:
    """Return whether a text matches, from the ends that each part of the pattern can reach."""
    ends = {0}
    for symbol in pattern:
        if symbol == "%":
            ends = set(range(min(ends), len(text) + 1)) if ends else ends
        else:
            allowed = {*text} if symbol == "_" else {symbol}
            ends = {end + 1 for end in ends if text[end : end + 1] in allowed}
    return len(text) in ends


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_all_positions_are_those_of_a_comparison_one_by_one(alphabet: str) -> None:
    dice = random.Random(alphabet)
    for _ in range(200):
        text = "".join(dice.choices(alphabet, k=dice.choice((1, 7, 8, 9, 64, 100))))
        runs = [(0, dice.choice(alphabet)), (2, "".join(dice.choices(alphabet, k=2)))]
        assert starts(text, runs) == naive(text, runs)


@pytest.mark.parametrize("alphabet", ALPHABETS)
@pytest.mark.parametrize("length", [6, 40, 500, 1_000])
def test_a_text_of_any_length_matches_as_by_all_positions_that_it_can_reach(
    alphabet: str, length: int
) -> None:
    dice = random.Random(alphabet)
    matched = 0
    for _ in range(100):
        text = "".join(dice.choices(alphabet, k=length + dice.randrange(20)))
        wild = "".join(dice.choices(alphabet + "__%", k=dice.choice((3, 9, 18))))
        matches = naive_match(f"%{wild}%", text)
        assert Pattern.parse(f"%{wild}%").matches(text) is matches
        matched += matches
    assert matched


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
@pytest.mark.parametrize(
    "text",
    ["a" * 390, "a" * EVENT_TEXT_MAX, ("a" * 999 + "b") * 65],
    ids=["short", "of one character", "of two characters"],
)
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
    blocks = -(-len(text) // search._BLOCK)
    assert 0 < looks <= blocks * FILTER_SEGMENT_MAX + len(pattern)


def test_a_character_that_is_absent_ends_the_search_of_a_long_pattern_at_once() -> None:
    text = "a" * 900_000
    assert not Pattern.parse(f"%x_{'a' * 4_000}%").matches(text)
    assert Pattern.parse("%a_aaa%").matches(text)


def test_the_places_of_more_characters_than_are_kept_are_found() -> None:
    letters = "".join(chr(ord("a") + index) for index in range(200))
    assert starts(letters * 3, [(0, letters)]) == 1 | 1 << 200 | 1 << 400
