"""LIKE patterns: meaning, canonical form, linear cost, comparison."""

from __future__ import annotations

import itertools
import re
import sys
from typing import SupportsIndex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.content import like
from gapless.content.like import MANY, ONE, Pattern
from gapless.core.limits import PATTERN_MEMORY_MAX

TEXTS = ["".join(word) for size in range(6) for word in itertools.product("ab", repeat=size)]
TEXTS += ["z", "az", "za", "zz", "abz", "zab", "azb", "a\n", "\n"]
PATTERNS = sorted(
    {
        Pattern.parse("".join(word))
        for size in range(5)
        for word in itertools.product("ab_%", repeat=size)
    }
)
FITTING = {one: frozenset(filter(one.matches, TEXTS)) for one in PATTERNS}


def by_definition(pattern: str, text: str) -> bool:
    """Match by trying everything: exponential and obviously right."""
    if not pattern:
        return not text
    if pattern[0] == MANY:
        return any(by_definition(pattern[1:], text[skip:]) for skip in range(len(text) + 1))
    return bool(text) and pattern[0] in (ONE, text[0]) and by_definition(pattern[1:], text[1:])


@given(st.text("ab_%", max_size=8), st.text("abc", max_size=8))
def test_a_pattern_matches_by_definition(pattern: str, text: str) -> None:
    assert Pattern.parse(pattern).matches(text) == by_definition(pattern, text)


def test_all_short_patterns_agree_with_regular_expressions() -> None:
    for pattern in PATTERNS:
        expression = re.compile(str(pattern).replace("%", ".*").replace("_", "."), re.DOTALL)
        assert FITTING[pattern] == {text for text in TEXTS if expression.fullmatch(text)}


@pytest.mark.parametrize(
    ("pattern", "escape", "text", "expected"),
    [
        ("10%", None, "10% off", True),
        ("10!%%", "!", "10% off", True),
        ("10!%%", "!", "100 off", False),
        ("!_x", "!", "_x", True),
        ("!_x", "!", "ax", False),
        ("!!", "!", "!", True),
        ("!a", "!", "a", True),
        ("%%", "%", "%", True),
        ("a%_b", "%", "a_b", True),
        ("a%_b", "%", "axb", False),
        ("", None, "", True),
        ("", None, "a", False),
        ("_", None, "\U0001f600", True),
        ("a%", None, "a\nb", True),
        ("A%", None, "abc", False),
        ("a.c", None, "abc", False),
    ],
)
def test_escapes_and_special_characters(
    pattern: str, escape: str | None, text: str, expected: bool
) -> None:
    assert Pattern.parse(pattern, escape).matches(text) is expected


def test_an_escape_at_the_end_is_refused() -> None:
    with pytest.raises(ValueError, match="stands last"):
        Pattern.parse("abc!", "!")
    Pattern.parse("abc!!", "!")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", ()),
        ("abc", ("=abc",)),
        ("a%%b", ("=a", MANY, "=b")),
        ("%_%_%", (ONE, ONE, MANY)),
        ("a_%b", ("=a", ONE, MANY, "=b")),
        ("a%_b", ("=a", ONE, MANY, "=b")),
        ("=a", ("==a",)),
    ],
)
def test_the_canonical_form_has_one_percent_sign_after_underscores(
    text: str, tokens: tuple[str, ...]
) -> None:
    assert Pattern.parse(text).tokens == tokens


@given(st.text("a_%\\=!", max_size=8), st.sampled_from([None, "!", "a", "\\", "%"]))
def test_the_text_of_a_pattern_parses_to_an_equal_pattern(text: str, escape: str | None) -> None:
    try:
        pattern = Pattern.parse(text, escape)
    except ValueError:
        return
    assert Pattern.parse(str(pattern), pattern.escape) == pattern


@pytest.mark.parametrize(
    ("text", "literal", "prefix", "is_prefix"),
    [
        ("", "", "", False),
        ("abc", "abc", "abc", False),
        ("abc%", None, "abc", True),
        ("%", None, "", True),
        ("ab%c", None, "ab", False),
        ("_b%", None, "", False),
        ("_", None, "", False),
        ("ab_%", None, "ab", False),
    ],
)
def test_a_pattern_has_its_literal_and_its_prefix(
    text: str, literal: str | None, prefix: str, is_prefix: bool
) -> None:
    pattern = Pattern.parse(text)
    assert pattern.literal == literal
    assert pattern.prefix == prefix
    assert pattern.is_prefix is is_prefix


# --- cost ---------------------------------------------------------------------------------------


class Watched(str):
    """A text that counts the characters and comparisons that are requested."""

    __slots__ = ("examined",)

    examined: int

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        self.examined += 1
        return super().__getitem__(key)

    def startswith(self, *arguments: object) -> bool:
        self.examined += len(str(arguments[0]))
        return super().startswith(*arguments)  # type: ignore[arg-type]

    def find(self, *arguments: object) -> int:
        found = super().find(*arguments)  # type: ignore[arg-type]
        end = found if found >= 0 else int(str(arguments[2]))
        self.examined += end - int(str(arguments[1])) + len(str(arguments[0]))
        return found


@pytest.mark.parametrize(
    "pattern",
    [
        "%a_b%" * 50,
        "%_a%" * 200,
        "%a%" * 200,
        "a%" * 300 + "b",
        "%" + "a_" * 30 + "b",
        "%" + "_a" * 100 + "%c",
        "_%" * 100 + "a",
        "%aab%" * 60 + "_",
    ],
)
def test_matching_costs_time_linear_in_the_text(pattern: str) -> None:
    # str.find itself is linear in CPython; here each call counts as the characters it passes.
    parsed = Pattern.parse(pattern)
    size = 20_000
    for characters in ("a", "ab", "aab"):
        text = Watched((characters * size)[:size])
        text.examined = 0
        parsed.matches(text)
        assert text.examined <= size + 2 * len(pattern)


def test_the_cache_of_patterns_is_bounded_by_their_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(like, "PATTERN_MEMORY_MAX", 100_000)
    memory = like._compiled
    memory.clear()
    kept = 0
    for number in range(200):
        assert Pattern.parse(f"%{number}_").matches(f"x{number}y")
        assert memory.weight == sum(map(like._weight, memory)) <= 100_000
        kept = max(kept, len(memory))
    assert 10 < kept < 100
    assert Pattern.parse("%1_").matches("x1y")


def test_a_pattern_too_heavy_for_the_cache_is_not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(like, "PATTERN_MEMORY_MAX", 100_000)
    like._compiled.clear()
    heavy = Pattern.parse("%x_" + "".join(map(chr, range(1_000, 3_000))) + "%")
    assert not heavy.matches("x" * 3_000)
    assert not like._compiled


def test_thousands_of_patterns_of_the_usual_size_are_cached() -> None:
    usual = like._weight(Pattern.parse("%customer-0001_z%").tokens)
    assert PATTERN_MEMORY_MAX // usual > 4_000


def test_the_weight_of_a_pattern_is_at_least_its_memory() -> None:
    for text in ("%a_b%", "%x_" + "".join(map(chr, range(1_000, 3_000))) + "%", "a%" * 300):
        pattern = Pattern.parse(text)
        pattern.matches("x" * 3_000)
        compiled = like._compiled[pattern.tokens]
        tables = [compiled.masks[2]]
        taken = sum(sys.getsizeof(bits) for table in tables for bits in table.values())
        taken += sum(map(sys.getsizeof, tables)) + sum(map(sys.getsizeof, compiled.symbols))
        assert taken <= like._weight(pattern.tokens)


# --- comparing patterns -------------------------------------------------------------------------


def test_implication_is_never_claimed_falsely_and_seldom_missed() -> None:
    held = missed = 0
    for narrow, wide in itertools.product(PATTERNS, PATTERNS):
        truth = FITTING[narrow] <= FITTING[wide]
        claimed = narrow.implies(wide)
        assert truth or not claimed, (str(narrow), str(wide))
        held += truth
        missed += truth and not claimed
    assert missed < held / 10  # some of these hold only for short texts


def test_disjointness_is_never_claimed_falsely_and_seldom_missed() -> None:
    apart = missed = 0
    for left, right in itertools.product(PATTERNS, PATTERNS):
        truth = not FITTING[left] & FITTING[right]
        claimed = not left.meets(right)
        assert truth or not claimed, (str(left), str(right))
        apart += truth
        missed += truth and not claimed
    assert missed < apart / 50


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [("abc", "a%"), ("a%c%e", "a%e"), ("%abc%", "%b%"), ("a_c", "___"), ("a_%", "a%"), ("_", "_")],
)
def test_common_implications_are_found(narrow: str, wide: str) -> None:
    assert Pattern.parse(narrow).implies(Pattern.parse(wide))


def test_huge_patterns_are_compared_at_limited_cost() -> None:
    huge = Pattern.parse("a%b_" * 2_000)
    other = Pattern.parse("a%b_" * 2_000 + "c")
    assert huge.implies(huge)
    assert not huge.implies(other)
    assert huge.meets(other)
