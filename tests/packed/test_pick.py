"""Packed filters choose the same events without decoding as a filter does of publications."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.content.filter import Filter
from gapless.content.values import Value
from gapless.messages.records import PackedRow
from gapless.messages.streams import Publication
from gapless.packed import pick
from gapless.packed.pick import PackedFilter, pack, packed_ticks, ticks_of, unpack, unpack_ticks
from gapless.packed.scan import COMPILED, ColumnScan, fallback
from tests.cases import scaled

PLENTY = 1_000_000
FILTERS = (
    "TRUE",
    "FALSE",
    "a = 'x'",
    "a IN ('x', 'y') AND b > 1",
    "a = 'x' OR a = 'y' AND b IS NULL",
    "a = 'x' OR b = 'x'",
    "a = 'x' OR a = 1",
    "a = 'x' OR a IS NULL",
    "a LIKE '%x%' AND a <> 'x'",
    "a IS NULL",
    "NOT (a = 1)",
    "a = TRUE",
    "a = 1 OR b = 1.5",
    "a + b > 2",
    "b = b",
    "a = 'x' AND a + b > 2",
    "odd_name > 3",
    "b > 0.5 OR a LIKE 'x%'",
    " OR ".join(f"a{index} = 1" for index in range(30)),
)
VALUES: st.SearchStrategy[Value] = st.sampled_from(
    ["x", "y", "xx", "", "ü", True, False, 0, 1, 2, -(2**63), 1.0, 1.5, math.nan, math.inf]
)
ATTRIBUTES = st.dictionaries(st.sampled_from(["a", "b", "odd_name", "a3", "c"]), VALUES)


def made(tick: int, attributes: dict[str, Value], payload: bytes = b"-") -> Publication:
    return Publication(tick, "ann", tick, attributes, payload)


def rows_of(publications: list[Publication], length: int) -> list[PackedRow]:
    """Return publications in rows of so many."""
    parts = [publications[begin : begin + length] for begin in range(0, len(publications), length)]
    return [PackedRow(part[0].tick, part[-1].tick, 0, pack(part)) for part in parts]


@pytest.mark.parametrize(
    "column_scan", [fallback.ColumnScan] if COMPILED is None else [fallback.ColumnScan, COMPILED]
)
@settings(max_examples=scaled(100))
@given(
    events=st.lists(ATTRIBUTES, max_size=12),
    length=st.integers(1, 5),
    text=st.sampled_from(FILTERS),
)
def test_a_packed_filter_chooses_the_events_that_its_filter_matches(
    column_scan: type[ColumnScan], events: list[dict[str, Value]], length: int, text: str
) -> None:
    wanted = Filter(text)
    publications = [made(tick, attributes) for tick, attributes in enumerate(events, 10)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pick, "ColumnScan", column_scan)
        picked = PackedFilter(wanted).pick(rows_of(publications, length), 0, 99, PLENTY)
    matching = [each for each in publications if wanted.matches(each.attributes)]
    # as bytes: a NaN is not equal to itself
    assert pack(unpack(picked.rows)) == pack(matching)
    assert picked.done == 99
    assert all(unpack([row]) for row in picked.rows)


@pytest.mark.parametrize("text", ["TRUE", "a > 3"])
def test_a_packed_filter_stays_within_its_ticks(text: str) -> None:
    publications = [made(tick, {"a": tick}) for tick in range(1, 10)]
    rows = rows_of(publications, 4)
    for low in range(11):
        for high in range(low, 11):
            picked = PackedFilter(Filter(text)).pick(rows, low, high, PLENTY)
            least = low if text == "TRUE" else max(low, 4)
            ticks = [each.tick for each in unpack(picked.rows)]
            assert ticks == [tick for tick in range(1, 10) if least <= tick <= high]
            assert picked.done == high


@pytest.mark.parametrize("bytes_max", [0, 1, 50, 120, 10_000])
@pytest.mark.parametrize("length", [1, 3, 20])
def test_events_beyond_the_limit_are_in_the_next_part(bytes_max: int, length: int) -> None:
    publications = [made(tick, {"a": tick}, b"-" * tick) for tick in range(1, 20)]
    rows, found, position = rows_of(publications, length), [], 0
    largest = len(pack([publications[-1]]))
    while position < 30:
        picked = PackedFilter(Filter("TRUE")).pick(rows, position + 1, 30, bytes_max)
        assert sum(map(len, picked.rows)) <= bytes_max + largest
        assert picked.done > position
        found += unpack(picked.rows)
        position = picked.done
    assert found == publications


def test_a_row_that_matches_completely_is_not_copied() -> None:
    (row,) = rows_of([made(tick, {"a": tick}) for tick in range(1, 4)], 3)
    (taken,) = PackedFilter(Filter("TRUE")).pick([row], 1, 3, PLENTY).rows
    assert taken is row.publications


def test_ticks_are_read_without_decoding_the_events() -> None:
    packed_rows = [pack([made(1, {}), made(5, {"a": "x"})]), pack([made(7, {})])]
    assert [ticks_of(each) for each in packed_rows] == [[1, 5], [7]]
    assert unpack_ticks(packed_ticks(packed_rows)) == [1, 5, 7]
    assert packed_ticks([]) == ()
