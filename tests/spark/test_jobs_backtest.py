"""Backtests: equal to evaluating every filter at every event; sketches are estimates."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason='Spark is not installed: pip install "gapless[spark]"')

import numpy as np
import pyarrow.parquet as pq

from gapless.cli.main import main
from gapless.content.filter import Filter
from gapless.core.errors import UsageError
from gapless.spark.jobs import backtest, overlaps
from gapless.spark.jobs.backtesting import Alike, events_at
from gapless.spark.jobs.filters import NamedFilter, parse_filters, read_filters
from gapless.spark.jobs.overlaps import most_alike
from gapless.spark.jobs.sketches import Sketches, event_hashes
from gapless.spark.jobs.tallies import attributes_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND = 1_000_000
COLUMNS = "pubend string, tick long, attributes string"


def made_filters(dice: random.Random, count: int) -> list[NamedFilter]:
    """Return filters with and without an equality, some of them equivalent."""
    forms = (
        lambda: f"symbol = 'S{dice.randrange(5)}'",
        lambda: f"price > {dice.randrange(100)} AND size < {dice.randrange(100)}",
        lambda: f"price < {dice.randrange(50)} OR hot",
        lambda: f"symbol LIKE 'S%' AND price BETWEEN {dice.randrange(50)} AND 70",
        lambda: "price <> price",
    )
    return [NamedFilter(f"f{n}", Filter(dice.choice(forms)())) for n in range(count)]


def made_events(dice: random.Random, count: int) -> list[tuple[str, int, dict[str, Any]]]:
    return [
        (
            dice.choice(["quotes", "eu/trades"]),
            SECOND * n,
            {
                "symbol": f"S{dice.randrange(8)}",
                "price": dice.choice([dice.uniform(0, 100), dice.randrange(100), float("nan")]),
                "size": dice.randrange(100),
                "hot": dice.random() < 0.1,
            },
        )
        for n in range(count)
    ]


def frame_of(spark: SparkSession, events: list[tuple[str, int, dict[str, Any]]]) -> DataFrame:
    rows = [(pubend, tick, json.dumps(attributes)) for pubend, tick, attributes in events]
    return spark.createDataFrame(rows, COLUMNS)


def test_a_backtest_equals_evaluating_every_filter_at_every_event(
    spark: SparkSession,
) -> None:
    dice = random.Random(7)
    filters, events = made_filters(dice, 40), made_events(dice, 400)
    found = backtest(spark, frame_of(spark, events), filters, top=10_000)
    matched = {
        each.name: {tick for _, tick, attributes in events if each.filter.matches(attributes)}
        for each in filters
    }
    for report in found.filters:
        ticks = matched[report.name]
        assert report.count == len(ticks)
        assert report.share == len(ticks) / 400
        assert report.per_second == len(ticks) / 399
        assert (report.first, report.last) == ((min(ticks), max(ticks)) if ticks else (None, None))
    covered = set().union(*matched.values())
    assert (found.events, found.matched, found.coverage) == (400, len(covered), len(covered) / 400)
    assert found.alike == alike_by_hand(filters, matched)
    meanings = {each.filter for each in filters}
    assert sum(len(group) - 1 for group in found.equal) == len(filters) - len(meanings)


def alike_by_hand(filters: list[NamedFilter], matched: dict[str, set[int]]) -> list[Alike]:
    """Return all pairs of different filters that share events, the most alike first."""
    distinct = list({each.filter: each.name for each in reversed(filters)}.values())[::-1]
    order = {each.name: index for index, each in enumerate(filters)}
    distinct.sort(key=order.__getitem__)
    found = []
    for left, right in itertools.combinations(distinct, 2):
        both = len(matched[left] & matched[right])
        if both:
            either = len(matched[left] | matched[right])
            found.append(Alike(left, right, both / either, both, exact=True))
    return sorted(
        found, key=lambda each: (-each.jaccard, -each.shared, order[each.left], order[each.right])
    )


def test_no_matches_and_no_events_are_valid_results(spark: SparkSession) -> None:
    filters = [NamedFilter("none", Filter("a = 1"))]
    found = backtest(spark, frame_of(spark, made_events(random.Random(1), 5)), filters)
    assert (found.events, found.matched, found.filters[0].first, found.alike) == (5, 0, None, [])
    empty = backtest(spark, spark.createDataFrame([], COLUMNS), filters)
    assert (empty.events, empty.coverage, empty.first) == (0, 0.0, None)


def test_tables_have_the_same_columns_if_nothing_matched(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = frame_of(spark, made_events(random.Random(1), 5))
    schemas = []
    for text in ("nothing = 1", "size >= 0"):
        filters = [NamedFilter("one", Filter(text)), NamedFilter("two", Filter(f"{text} AND TRUE"))]
        paths = backtest(spark, events, filters).save(tmp_path / text[0])
        schemas.append([spark.read.parquet(str(path)).schema for path in paths])
    assert schemas[0] == schemas[1]
    names = [field.dataType.simpleString() for field in schemas[0][0]]
    assert names == ["string", "string", "bigint", *["double"] * 3, "bigint", "bigint"]
    names = [field.dataType.simpleString() for field in schemas[0][1]]
    assert names == ["string", "string", "double", "bigint", "boolean"]


def test_events_need_the_columns_of_the_source(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="no column tick, attributes"):
        backtest(spark, spark.createDataFrame([("a",)], "pubend string"), [])


def test_the_command_prints_and_stores_filters_and_pairs(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setenv("GAPLESS_SPARK_MASTER", str(spark.sparkContext.master))
    events = tmp_path / "events"
    frame_of(spark, made_events(random.Random(3), 50)).write.parquet(str(events))
    listed = tmp_path / "filters"
    listed.write_text('{"name": "cheap", "filter": "size < 50"}\nsize <= 60\nsize < 50.0\n')
    arguments = ["spark", "backtest", str(events), "--filters", str(listed)]
    assert main([*arguments, "--json", "--out", str(tmp_path / "out")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["events"] == 50
    assert found["equal"] == [["cheap", "line 3"]]
    kept = pq.read_table(tmp_path / "out" / "filters.parquet")
    assert kept.column("name").to_pylist() == ["cheap", "line 2", "line 3"]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "cheap = line 3" in shown
    assert "both match" in shown
    listed.write_text("size <\nsize = 1\n")
    assert main(arguments) == 2
    assert "line 1" in capsys.readouterr().err


def test_a_missing_path_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it does not exist"):
        events_at(spark, tmp_path / "nowhere")


# --- filters ---------------------------------------------------------------------------------------


def test_all_invalid_filters_are_named_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "filters"
    path.write_text(
        '# prices\nprice > 5\n\nprice >\n{"name": "a"}\n{"name": "b", "filter": "(("}\n'
    )
    with pytest.raises(UsageError) as caught:
        read_filters(path)
    output = str(caught.value).splitlines()
    assert "has 3 wrong lines" in output[0]
    assert [line.split(":")[0].strip() for line in output[1:]] == ["line 4", "line 5", "line 6"]


def test_repeated_names_and_empty_lists_are_refused() -> None:
    twice = '{"name": "a", "filter": "b = 1"}'
    with pytest.raises(UsageError, match="line 2: the name 'a' is used twice"):
        parse_filters([twice, twice])
    with pytest.raises(UsageError, match="has no filters"):
        parse_filters(["# nothing"])


def test_attributes_that_are_not_finite_are_read() -> None:
    assert attributes_of(['{"a":1}', '{"a":Infinity}', None]) == [{"a": 1}, {"a": np.inf}, {}]


# --- sketches --------------------------------------------------------------------------------------


def sketched(sets: list[range], size: int) -> tuple[Any, Any, Any]:
    made = Sketches(len(sets), size)
    for index, events in enumerate(sets):
        ticks = np.array(events, np.int64)
        hashes = event_hashes(np.full(len(ticks), 5), ticks)
        for begin in range(0, len(ticks), 100):  # in batches
            part = hashes[begin : begin + 100]
            made.add(np.full(len(part), index), part)
            made.squeezed()
    return np.array([len(each) for each in sets]), *made.squeezed()


def test_a_sketch_has_the_smallest_hashes_in_any_order() -> None:
    counts, keys, hashes = sketched([range(1_000), range(3)], 16)
    assert counts.tolist() == [1_000, 3]
    ticks = np.arange(1_000)
    every = np.sort(event_hashes(np.full(1_000, 5), ticks))
    assert hashes[keys == 0].tolist() == every[:16].tolist()
    assert (keys == 1).sum() == 3


def test_an_estimate_is_marked_and_close() -> None:
    found = most_alike(
        *sketched([range(3_000), range(1_000, 4_000), range(9_000, 9_010)], 512), 512, 5
    )
    (pair,) = found.pairs
    assert not pair.exact
    assert abs(pair.jaccard - 0.5) < 0.08
    assert abs(pair.shared - 2_000) < 300


def test_too_many_pairs_shorten_the_sketches_and_then_reduce_the_filters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sets = [range(400 - index) for index in range(20)]
    whole = most_alike(*sketched(sets, 512), 512, 3)
    assert (whole.chosen_by, whole.looked_at) == (512, 20)
    monkeypatch.setattr(overlaps, "PAIRS_MAX", 20_000)
    shorter = most_alike(*sketched(sets, 512), 512, 3)
    assert shorter.chosen_by < 512
    assert shorter.looked_at == 20
    monkeypatch.setattr(overlaps, "PAIRS_MAX", 1_000)
    fewer = most_alike(*sketched(sets, 512), 512, 3)
    assert fewer.looked_at < 20
    assert all(pair.exact for pair in fewer.pairs)
