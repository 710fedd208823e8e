"""The storage and the simulated disk give equal results for equal requests."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, TypeAlias, cast
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.events import Fetched
from gapless.core.ids import PubendId
from gapless.messages.records import (
    AppendRow,
    DeleteRecord,
    IncarnationRecord,
    PublisherRecord,
    PutRecord,
    StorageChange,
    TrimLog,
)
from gapless.packed.pick import packed
from gapless.storage.codec import encode_row
from gapless_lab.sim import disk as simulated
from tests.cases import scaled
from tests.storage.harness import QUOTES, TRADES, StorageHarness, flip_row, row

PUBENDS = st.sampled_from([TRADES, QUOTES])
SMALL = st.integers(0, 12)


class Draft:
    """A change whose ticks are relative to the end of its log."""

    def __init__(self, kind: str, pubend: PubendId, number: int, length: int) -> None:
        self.kind = kind
        self.pubend = pubend
        self.number = number
        self.length = length

    def __repr__(self) -> str:
        return f"{self.kind}({self.pubend}, {self.number}, {self.length})"


Step: TypeAlias = tuple[str, Any]

DRAFTS = st.builds(
    Draft, st.sampled_from(["append"] * 4 + ["trim", "store", "erase"]), PUBENDS, SMALL, SMALL
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(DRAFTS, min_size=1, max_size=6)),
        st.tuples(st.just("write"), st.lists(DRAFTS, min_size=1, max_size=6)),
        st.tuples(
            st.just("read"), st.tuples(PUBENDS, st.integers(0, 80), SMALL, st.integers(0, 900))
        ),
        st.tuples(st.just("corrupt"), st.tuples(PUBENDS, SMALL)),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=25,
)


class Pair:
    """A storage and a simulated disk that get the same requests."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.harness = StorageHarness(directory)
        world = SimpleNamespace(disk_listeners=[])  # a disk that is written directly needs no more
        self.disk = simulated.SimulatedDisk(cast("Any", world), cast("Any", None), Random(0))
        self._tops: dict[PubendId, int] = {}
        self._last_write_id = 0

    def write(self, drafts: list[Draft]) -> None:
        changes = tuple(map(self._change, drafts))
        self.disk._apply(changes)
        self._last_write_id = self.harness.request_write(*changes)

    def read(self, what: tuple[PubendId, int, int, int]) -> None:
        pubend, low, length, bytes_max = what
        self._settle()
        expected = self.disk.read(pubend, low, low + length, bytes_max)
        self._same(self.harness.fetch(pubend, low, low + length, bytes_max), expected)
        rows, corrupt, complete = expected
        undecoded = self.harness.fetch(pubend, low, low + length, bytes_max, packed=True)
        self._same(undecoded, (tuple(map(packed, rows)), corrupt, complete))

    def corrupt(self, what: tuple[PubendId, int]) -> None:
        pubend, index = what
        self._settle()
        valid = [
            each.first
            for each in self.disk.logs.get(pubend, [])
            if each.first not in self.disk.corrupt_rows.get(pubend, [])
        ]
        if valid:
            first = valid[index % len(valid)]
            self.disk.corrupt_row(pubend, first)
            flip_row(self.directory, pubend, first)

    def reopen(self, _: None) -> None:
        self.harness.storage.close()
        self.harness = StorageHarness(self.directory)
        self._last_write_id = 0
        loaded = self.harness.storage.load()
        assert (loaded.records, loaded.corrupt) == (self.disk.load(), {})

    def end(self) -> None:
        """Compare the whole contents."""
        self._settle()
        for pubend in (TRADES, QUOTES):
            self._same(
                self.harness.fetch(pubend, 0, 10**6), self.disk.read(pubend, 0, 10**6, 2**62)
            )
        self.reopen(None)

    def _settle(self) -> None:
        if self._last_write_id:
            self.harness.wait_for(self._last_write_id)

    def _same(self, fetched: Fetched, expected: tuple[tuple[Any, ...], str | None, bool]) -> None:
        rows, corrupt, complete = expected
        assert (fetched.rows, fetched.complete) == (rows, complete)
        if corrupt is None:
            assert fetched.corruption is None
        else:
            assert fetched.corruption is not None
            assert fetched.corruption.startswith(corrupt)

    def _change(self, draft: Draft) -> StorageChange:
        top = self._tops.get(draft.pubend, 0)
        if draft.kind == "append":
            first = top + 1 + draft.number % 4
            self._tops[draft.pubend] = first + draft.length % 3
            return AppendRow(row(first, first + draft.length % 3, draft.pubend, size=draft.number))
        if draft.kind == "trim":
            return TrimLog(draft.pubend, max(0, top - draft.number))
        name = f"p{draft.number % 3}"
        if draft.kind == "store":
            if draft.number == 0:
                return PutRecord(IncarnationRecord(draft.length))
            return PutRecord(PublisherRecord(draft.pubend, name, draft.length, 0, (), 0))
        return DeleteRecord(("publisher", str(draft.pubend), name))


@settings(max_examples=scaled(60))
@given(STEPS)
def test_the_same_changes_give_the_same_reads(steps: list[Step]) -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        # both count the bytes of a row as they are on disk
        mock.patch.object(simulated, "row_bytes", lambda each: len(encode_row(each))),
    ):
        pair = Pair(Path(directory))
        try:
            for kind, what in steps:
                getattr(pair, kind)(what)
            pair.end()
        finally:
            pair.harness.storage.close()
