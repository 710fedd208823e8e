"""Space that trims free is used again or given back, and the WAL stays bounded."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from gapless.core.parameters import Parameters
from gapless.messages.records import LifeRecord, PublisherRecord, Store, Trim
from gapless.storage import schema, wal
from gapless.storage import space_reclaim as upkeep
from gapless.storage.schema import PAGE_BYTES, wal_path
from tests.storage.harness import PATIENCE_S, TRADES, Desk, append, firsts

SIZE = 20_000


def wait_for_upkeep(desk: Desk) -> None:
    """Wait until nothing is left to be freed. A write makes a step, so this ends."""
    for life in range(10_000):
        if not desk.storage._upkeep.waits:
            return
        desk.write(Store(LifeRecord(life)))
    raise AssertionError("upkeep does not end")


def pages(desk: Desk) -> int:
    return int(desk.storage._reader.execute("PRAGMA page_count").fetchone()[0])


def test_a_log_of_steady_length_does_not_make_the_file_grow(tmp_path: Path) -> None:
    with Desk(tmp_path) as desk:
        sizes = []
        for tick in range(1, 601):
            desk.write(append(tick, size=SIZE), Trim(TRADES, tick - 20))
            sizes.append(pages(desk))
        assert max(sizes[100:]) <= 2 * sizes[99]
        assert firsts(desk.fetch(TRADES)) == list(range(581, 601))


def test_a_lone_event_of_a_busy_publisher_touches_few_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one each for the row, its index, the mark and the record, and now and then some for a new page;
    # a record with a full window must not move to pages of its own with every change
    monkeypatch.setattr(wal, "_COPY_COMMITS", 10_000)
    events, before, window = 200, 0, list[tuple[int, int, int]]()
    with Desk(tmp_path) as desk:
        wait_for_upkeep(desk)
        for number in range(events * 2):
            if number == events:
                before = wal_path(tmp_path).stat().st_size
            tick = 1_700_000_000_000_000 + number * 1_000
            window = [*window, (100_000 + number, tick, 1)][-Parameters().publisher_window :]
            record = PublisherRecord(TRADES, "ann", 3, number, tuple(window), tick)
            desk.write(append(tick, size=300), Store(record))
        grown = wal_path(tmp_path).stat().st_size - before
    assert grown / PAGE_BYTES / events < 5


def test_when_most_is_free_the_file_shrinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "FREE_PAGES_KEPT", 50)
    with Desk(tmp_path) as desk:
        for low in range(1, 1_001, 100):
            desk.write(*(append(tick, size=SIZE) for tick in range(low, low + 100)))
        large = pages(desk)
        assert large * PAGE_BYTES > 1_000 * SIZE
        desk.write(Trim(TRADES, 990))
        wait_for_upkeep(desk)
        assert pages(desk) < large // 4
        assert firsts(desk.fetch(TRADES)) == list(range(991, 1_001))


def test_a_trim_that_was_not_carried_out_is_carried_out_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(upkeep.Upkeep, "step", lambda *_: None)
        patch.setattr(upkeep.Upkeep, "waits", False)
        with Desk(tmp_path) as desk:
            desk.write(append(10), append(20), append(30))
            desk.write(Trim(TRADES, 20))
            assert firsts(desk.fetch(TRADES)) == [30]
            assert rows_in_table(desk) == 3
    with Desk(tmp_path) as desk:
        wait_for_upkeep(desk)
        assert rows_in_table(desk) == 1
        assert firsts(desk.fetch(TRADES)) == [30]


def rows_in_table(desk: Desk) -> int:
    return int(desk.storage._reader.execute("SELECT count(*) FROM log").fetchone()[0])


def test_a_wal_that_has_grown_large_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal, "WAL_BYTES_MAX", 100_000)
    monkeypatch.setattr(wal, "_COPY_COMMITS", 1)
    cut = threading.Event()
    real = schema.cut_wal
    sizes: list[int] = []

    def watched(connection: sqlite3.Connection) -> None:
        real(connection)
        sizes.append(wal_path(tmp_path).stat().st_size)
        cut.set()

    monkeypatch.setattr(wal, "cut_wal", watched)
    with Desk(tmp_path) as desk:
        desk.write(append(1, size=200_000))
        assert cut.wait(PATIENCE_S)
        assert sizes[0] == 0
        assert firsts(desk.fetch(TRADES)) == [1]


@pytest.mark.parametrize("here", [False, True])
def test_the_wal_is_copied_back_now_and_then_so_that_it_starts_over(
    tmp_path: Path, *, here: bool
) -> None:
    with Desk(tmp_path) as desk:
        wait_for_upkeep(desk)
        write = desk.write_here if here else desk.write
        for tick in range(1, 3_001):
            write(append(tick))
        assert wal_path(tmp_path).stat().st_size < 1_000 * 4 * PAGE_BYTES
