"""Column scans: the compiled one and its fallback agree, and a column filter is never wrong."""

from __future__ import annotations

import contextlib
import json
import math
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.content.filter import Filter
from gapless.content.values import Value
from gapless.messages.streams import Publication
from gapless.packed.pick import pack, unpack
from gapless.packed.scan import COMPILED, ColumnFilter, ColumnScan, fallback
from gapless.packed.scan.fields import NAMED, PAYLOAD, PUBLISHER, SEQUENCE, TEXT, TICK
from tests.cases import scaled

BOTH: list[type[ColumnScan]] = (
    [fallback.ColumnScan] if COMPILED is None else [fallback.ColumnScan, COMPILED]
)
NAMES = ("a", "ü", "much longer than eight")
WHOLE = st.integers(-(2**63), 2**63 - 1)
VALUES: st.SearchStrategy[Value] = st.one_of(
    st.booleans(),
    WHOLE,
    st.integers(-200, 300),
    # one NaN, for there are many and none is equal to itself
    st.floats(allow_nan=False),
    st.just(math.nan),
    st.text(max_size=40),
    st.sampled_from(['"', "\\", "\0\n\t\b\f\r\x1f\x7f", "é€😀", "x" * 300]),
)
EVENTS = st.builds(
    Publication,
    st.integers(0, 2**62),
    st.text(max_size=20),
    st.integers(0, 2**62),
    st.dictionaries(st.sampled_from([*NAMES, "b", "", "x" * 40]), VALUES, max_size=20),
    st.binary(max_size=300),
)
PACKED = st.lists(st.lists(EVENTS, max_size=20).map(pack), max_size=3)


def facts(column_scan: ColumnScan) -> list[Any]:
    """Return all results of a column scan."""
    fields = range(NAMED + len(NAMES))
    sent: list[Any] = [column_scan.kinds(field).tolist() for field in fields]
    sent += [column_scan.words(field).tolist() for field in fields]
    sent += [column_scan.sizes(field).tolist() for field in fields]
    for offsets, data in (*map(column_scan.texts, fields), column_scan.json()):
        sent += [offsets.tolist(), bytes(data)]
    return [
        *sent,
        column_scan.part(range(len(column_scan))),
        column_scan.part(range(0, len(column_scan), 3)),
    ]


@pytest.mark.skipif(COMPILED is None, reason="there is no compiled column scan")
@settings(max_examples=scaled(200))
@given(PACKED)
def test_the_compiled_column_scan_and_its_fallback_return_the_same(
    packed_rows: list[bytes],
) -> None:
    assert COMPILED is not None
    assert facts(COMPILED(packed_rows, NAMES)) == facts(fallback.ColumnScan(packed_rows, NAMES))


@pytest.mark.parametrize("column_scan", BOTH)
@settings(max_examples=scaled(50))
@given(packed_rows=PACKED)
def test_a_column_scan_returns_the_packed_values(
    column_scan: type[ColumnScan], packed_rows: list[bytes]
) -> None:
    events, found = unpack(packed_rows), column_scan(packed_rows, NAMES)
    assert len(found) == len(events)
    assert found.words(TICK).tolist() == [each.tick for each in events]
    assert found.words(SEQUENCE).tolist() == [each.sequence for each in events]
    for field, wanted in (
        (PUBLISHER, [each.publisher.encode() for each in events]),
        (PAYLOAD, [each.payload for each in events]),
    ):
        assert cut(*found.texts(field)) == wanted
    assert [repr(json.loads(each)) for each in cut(*found.json())] == [
        repr(each.attributes) for each in events
    ]
    assert pack(unpack([found.part(range(len(events)))])) == pack(events)


def cut(offsets: Any, data: Any) -> list[bytes]:
    return [bytes(data[begin:end]) for begin, end in pairwise(offsets)]


@pytest.mark.parametrize("column_scan", BOTH)
def test_fields_that_a_later_version_adds_to_a_publication_are_skipped(
    column_scan: type[ColumnScan],
) -> None:
    more = {"new": [1, None, {"deep": b"x"}]}
    row = msgspec.msgpack.encode([[7, "ann", 1, {"a": "x"}, b"-", more, 3], [8, "ann", 2, {}, b""]])
    found = column_scan([row], ["a"])
    assert found.words(TICK).tolist() == [7, 8]
    assert (found.kinds(NAMED) == TEXT).tolist() == [True, False]


@pytest.mark.parametrize("column_scan", BOTH)
def test_the_words_of_texts_are_in_the_order_of_the_texts(column_scan: type[ColumnScan]) -> None:
    texts = sorted(["", "a", "ab", "abcdefgh", "abcdefghi", "b", "é", "€", "😀", "\U0010ffff"])
    events = [Publication(1, "ann", 1, {"a": each}, b"") for each in texts]
    words = column_scan([pack(events)], ["a"]).words(NAMED).tolist()
    assert words == sorted(words) == [fallback.word_of_text(each) for each in texts]


@pytest.mark.parametrize("column_scan", BOTH)
def test_packed_events_that_end_early_are_refused(column_scan: type[ColumnScan]) -> None:
    whole = pack([Publication(2**40, "ann", 300, {"a": 1.5, "b": -2, "c": "x" * 40}, b"y" * 40)])
    for size in range(len(whole)):
        with pytest.raises(msgspec.DecodeError):
            column_scan([whole[:size]], NAMES)
    with pytest.raises(msgspec.DecodeError):
        column_scan([whole + b"\0"], NAMES)


@pytest.mark.parametrize(
    "row",
    [
        [1],
        7,
        [[1, "ann", 1, {}]],
        [["1", "ann", 1, {}, b""]],
        [[1, 1, 1, {}, b""]],
        [[1, "ann", 1.5, {}, b""]],
        [[1, "ann", 1, [], b""]],
        [[1, "ann", 1, {"a": None}, b""]],
        [[1, "ann", 1, {"a": [1]}, b""]],
        [[1, "ann", 1, {"a": 2**63}, b""]],
        [[1, "ann", 1, {1: 1}, b""]],
        [[1, "ann", 1, {}, "text"]],
    ],
)
@pytest.mark.parametrize("column_scan", BOTH)
def test_an_invalid_publication_is_refused(column_scan: type[ColumnScan], row: Any) -> None:
    with pytest.raises(msgspec.DecodeError):
        column_scan([msgspec.msgpack.encode(row)], NAMES)


@settings(max_examples=scaled(200))
@given(
    st.binary(max_size=200), st.lists(EVENTS, max_size=3), st.integers(0, 400), st.integers(0, 255)
)
def test_corrupt_bytes_are_refused_or_read_without_a_crash(
    noise: bytes, events: list[Publication], index: int, byte: int
) -> None:
    corrupt = bytearray(pack(events))
    corrupt[index % len(corrupt)] = byte
    for each in (noise, bytes(corrupt)):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            facts(BOTH[-1]([each], NAMES))


@pytest.mark.parametrize("column_scan", BOTH)
def test_an_index_out_of_range_is_an_error(column_scan: type[ColumnScan]) -> None:
    found = column_scan([pack([Publication(1, "ann", 1, {}, b"")])])
    with pytest.raises(IndexError):
        found.part([1])


# --- the column filter ---------------------------------------------------------------------------

FILTERS = (
    "TRUE",
    "FALSE",
    "a = 'x'",
    "a = 'xxxxxxxx'",
    "a IN ('x', 'xxxxxxxx', 1, 2.5)",
    "a > 'much longer' AND a <= 'much longer than eight'",
    "a LIKE 'much lon%' OR a LIKE '%x'",
    "a NOT LIKE 'x%'",
    "a IN ('x', 'y', 'much longer than eight', 'much longer than nine', 3)",
    "a > 1 AND a < 2.5",
    "a <> 1",
    "a = 9007199254740993",
    "a < 9007199254740993",
    "a > 9223372036854775806",
    "a >= 1.5 OR b = TRUE",
    "a IS NULL",
    "a IS NOT NULL AND b IS NULL",
    "NOT (a = 1)",
    "a = FALSE",
    "a + b > 2",
    "a = 'x' AND a + b > 2",
    " OR ".join(f"a{index} = 1" for index in range(80)),
)
SOME: st.SearchStrategy[Value] = st.sampled_from(
    [
        *("x\0", "xxxxxxxx", "xxxxxxxxx", "xxxxxxxx\0"),
        *("x", "y", "xx", "", "ü", "\U0010ffff" * 3, "much longer", "much longer than eight"),
        *("much longer than ninety", True, False, 0, 1, 2, -(2**63), 2**63 - 1, 2**63 - 2),
        *(2**53, 2**53 + 1, 2**53 + 2, 1.0, 1.5, 2.5, -0.0, math.nan, math.inf, -math.inf),
    ]
)
SOME_EVENTS = st.dictionaries(st.sampled_from(["a", "b", "a3"]), SOME)


@pytest.mark.parametrize("column_scan", BOTH)
@settings(max_examples=scaled(200))
@given(attributes=st.lists(SOME_EVENTS, max_size=12), text=st.sampled_from(FILTERS))
def test_a_column_filter_drops_no_match_and_is_certain_of_matches_only(
    column_scan: type[ColumnScan], attributes: list[dict[str, Value]], text: str
) -> None:
    wanted = Filter(text)
    column_filter = ColumnFilter(wanted)
    packed = pack([Publication(1, "ann", 1, each, b"") for each in attributes])
    indexes, is_sure = column_filter.left(column_scan([packed], column_filter.names))
    matching = {index for index, each in enumerate(attributes) if wanted.matches(each)}
    assert matching <= set(indexes.tolist())
    assert set(indexes[is_sure].tolist()) <= matching


def test_a_column_filter_is_certain_inside_a_span_and_uncertain_at_its_ends() -> None:
    column_filter = ColumnFilter(Filter("a > 1 AND a < 3"))
    packed = pack([Publication(1, "ann", 1, {"a": each}, b"") for each in (0, 1, 2, 2.5, 3, 4)])
    indexes, is_sure = column_filter.left(ColumnScan([packed], column_filter.names))
    assert indexes.tolist() == [1, 2, 3, 4]
    assert np.flatnonzero(is_sure).tolist() == [1, 2]


def test_a_column_filter_is_certain_of_one_short_text_and_of_one_small_number() -> None:
    column_filter = ColumnFilter(Filter("a IN ('short', 'longer than eight', 7, 9007199254740993)"))
    values = ("short", "short\0", "longer than eight", 7, 7.0, 2**53 + 1)
    packed = pack([Publication(1, "ann", 1, {"a": each}, b"") for each in values])
    indexes, is_sure = column_filter.left(ColumnScan([packed], column_filter.names))
    assert indexes.tolist() == [0, 1, 2, 3, 4, 5]
    assert np.flatnonzero(is_sure).tolist() == [0, 3, 4]
