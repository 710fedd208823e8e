"""A flipped bit of the database changes nothing or is reported as corruption."""

from __future__ import annotations

from pathlib import Path
from random import Random

from gapless.core.errors import StorageError
from gapless.messages.records import LogRow, PublisherRecord, PutRecord, Record, TrimLog
from gapless.storage.schema import PAGE_BYTES
from tests.cases import scaled
from tests.storage.harness import QUOTES, TRADES, StorageHarness, append
from tests.storage.test_storage import RECORDS


def fill(directory: Path) -> None:
    """Write enough for tables of several levels and for rows with overflow pages."""
    with StorageHarness(directory) as harness:
        harness.write(*map(PutRecord, RECORDS))
        harness.write(
            *(PutRecord(PublisherRecord(TRADES, f"p{n}", 3, 9, (), 8)) for n in range(60))
        )
        for tick in range(10, 600, 10):
            size = 9_000 if tick % 90 == 0 else tick
            harness.write(append(tick, tick + 4, size=size), append(tick, tick + 3, QUOTES))
        harness.write(TrimLog(TRADES, 35))


def read_all(directory: Path) -> tuple[list[Record], tuple[LogRow, ...], tuple[LogRow, ...]] | str:
    """Return the whole contents, or the report of corruption."""
    try:
        with StorageHarness(directory) as harness:
            loaded = harness.storage.load()
            if loaded.corrupt or loaded.subscriptions:
                return f"{loaded.corrupt} {loaded.subscriptions}"
            trades, quotes = harness.fetch(TRADES), harness.fetch(QUOTES)
            if trades.corruption or quotes.corruption:
                return f"{trades.corruption} {quotes.corruption}"
            return loaded.records, trades.rows, quotes.rows
    except StorageError as error:
        return str(error)


def test_a_flipped_bit_changes_nothing_or_is_reported(tmp_path: Path) -> None:
    fill(tmp_path / "sound")
    sound = read_all(tmp_path / "sound")
    assert not isinstance(sound, str)
    content = (tmp_path / "sound" / "broker.db").read_bytes()
    random = Random(1)
    reports = 0
    for case in range(scaled(150)):
        page = random.randrange(len(content) // PAGE_BYTES)
        # half of them in the header of a page, which decides what is found in the page
        offset = random.randrange(PAGE_BYTES if case % 2 else 12)
        flipped = bytearray(content)
        flipped[page * PAGE_BYTES + offset] ^= 1 << random.randrange(8)
        directory = tmp_path / str(case)
        directory.mkdir()
        (directory / "broker.db").write_bytes(flipped)
        found = read_all(directory)
        reports += isinstance(found, str)
        assert isinstance(found, str) or found == sound, (page, offset)
    assert reports > 50
