"""Small writes are made durable by who asks for them, while that is quick."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from gapless.core.errors import StorageError
from gapless.core.machine import Write, Written
from gapless.messages.records import LifeRecord, Store, Trim
from gapless.storage import inline_commits as pace
from tests.storage.harness import PATIENCE_S, TRADES, Desk, append, firsts
from tests.storage.test_space_reclaim import wait_for_upkeep


@pytest.fixture(name="desk")
def rested_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A storage whose writer has nothing to do, on a disk that always counts as fast."""
    monkeypatch.setattr(pace, "QUICK_S", 2 * PATIENCE_S)
    desk = Desk(tmp_path)
    wait_for_upkeep(desk)
    return desk


def test_a_small_write_is_durable_when_the_call_returns(desk: Desk, tmp_path: Path) -> None:
    with desk:
        assert desk.write_here(append(10), Store(LifeRecord(7)))
        assert firsts(desk.fetch(TRADES)) == [10]
    with Desk(tmp_path) as again:
        assert again.storage.load().records == [LifeRecord(7)]
        assert firsts(again.fetch(TRADES)) == [10]


def test_what_was_gathered_is_reported_together_and_in_order(desk: Desk) -> None:
    with desk:
        for ticket in (101, 102, 103):
            desk.storage.gather(Write(ticket, (append(ticket),)))
        assert desk.storage.pending_bytes > 0
        assert desk.storage.flush(here=True) == [Written(101), Written(102), Written(103)]
        assert desk.storage.pending_bytes == 0
        assert desk.storage.flush(here=True) == []


def test_the_writer_takes_what_is_not_small(desk: Desk) -> None:
    with desk:
        assert not desk.write_here(append(10, size=pace.SMALL_BYTES))
        assert desk.write_here(append(20))
        assert firsts(desk.fetch(TRADES)) == [10, 20]


def test_the_writer_takes_what_is_not_allowed_here(desk: Desk) -> None:
    with desk:
        desk.storage.gather(Write(50, (append(10),)))
        assert desk.storage.flush() == []
        desk.wait_for(50)


def test_after_a_commit_that_was_not_quick_the_writer_goes_on(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with desk:
        with monkeypatch.context() as patch:
            patch.setattr(pace, "QUICK_S", 0.0)
            patch.setattr(pace, "DEBT_FACTOR", 10**9)
            assert desk.write_here(append(10))
        assert not desk.write_here(append(20))


def test_a_trim_is_carried_out_by_the_writer(desk: Desk) -> None:
    with desk:
        desk.write_here(append(10), append(20))
        assert desk.write_here(Trim(TRADES, 10))
        assert firsts(desk.fetch(TRADES)) == [20]
        wait_for_upkeep(desk)
        assert desk.storage._reader.execute("SELECT count(*) FROM log").fetchone() == (1,)


def test_nothing_is_written_here_while_the_writer_is_at_work(desk: Desk) -> None:
    with desk:
        with desk.storage._writing:
            desk.storage.gather(Write(50, (append(10),)))
            assert desk.storage.flush(here=True) == []
            assert 50 not in desk.written
        desk.wait_for(50)


class Broken:
    """A connection that fails at the next statement."""

    def execute(self, *_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    def close(self) -> None:
        """Nothing is open."""


def test_a_write_that_fails_here_is_the_last(desk: Desk, tmp_path: Path) -> None:
    with desk:
        real, desk.storage._writer = desk.storage._writer, Broken()  # type: ignore[assignment]
        desk.storage.gather(Write(50, (append(10),)))
        assert desk.storage.flush(here=True) == []
        assert isinstance(desk.failure(), StorageError)
        desk.storage._writer = real
        desk.storage.gather(Write(51, (append(20),)))
        desk.storage.flush()
    assert not any(thread.is_alive() for thread in desk.storage._threads)
    assert {50, 51}.isdisjoint(desk.written)
    with Desk(tmp_path) as again:
        assert firsts(again.fetch(TRADES)) == []
