"""The workloads of the benchmarks: their forms are equivalent, and every run has the same ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest

from benchmarks.workloads import FAMILIES, Event, Workload, nested_texts, topics
from gapless import Filter

MAKERS = {**FAMILIES, "topics": topics}


@pytest.fixture(params=MAKERS.values(), ids=list(MAKERS))
def workload(request: pytest.FixtureRequest) -> Workload:
    made: Workload = request.param(300, 40)
    return made


def matches_by_text(workload: Workload) -> list[list[int]]:
    filters = [Filter(text) for text in workload.texts()]
    return [
        [number for number, one in enumerate(filters) if one.matches(event)]
        for event in workload.events
    ]


def test_texts_and_python_expressions_mean_the_same(workload: Workload) -> None:
    functions: list[Callable[[Event], bool]] = [
        eval(f"lambda d: {source}")  # noqa: S307 - our own expressions
        for source in workload.sources()
    ]
    assert len(functions) == workload.size
    by_source = [
        [number for number, holds in enumerate(functions) if holds(event)]
        for event in workload.events
    ]
    assert by_source == matches_by_text(workload)


def test_texts_and_table_rows_mean_the_same(workload: Workload) -> None:
    table = workload.table
    if table is None:
        return  # these filters do not fit the rows of a table
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE TABLE filter (number, {', '.join(table.columns)})")
    marks = ", ".join("?" * (1 + len(table.columns)))
    rows = ((number, *row) for number, row in enumerate(table.rows()))
    database.executemany(f"INSERT INTO filter VALUES ({marks})", rows)  # noqa: S608 - ours
    condition = table.condition.format_map({name: f":{name}" for name in workload.events[0]})
    query = f"SELECT number FROM filter WHERE {condition} ORDER BY number"  # noqa: S608 - ours
    by_row = [[number for (number,) in database.execute(query, e)] for e in workload.events]
    database.close()
    assert by_row == matches_by_text(workload)


def test_a_workload_is_the_same_each_time(workload: Workload) -> None:
    again = MAKERS["topics" if workload.name == "W4 by topic" else workload.name](300, 40)
    assert list(again.texts()) == list(workload.texts())
    assert again.events == workload.events


def test_many_nested_ranges_are_covered_by_others() -> None:
    filters = [Filter(text) for text in nested_texts(150)]
    covered = sum(
        any(wide is not narrow and wide.covers(narrow) for wide in filters) for narrow in filters
    )
    assert 50 < covered < 150
