"""Written data is read back, in order, in groups, and only when it is durable."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from gapless.core.effects import Write
from gapless.core.errors import (
    CorruptionError,
    DirectoryLockedError,
    NewerFormatError,
    StorageError,
)
from gapless.core.events import Fetched, Written
from gapless.core.ids import MembershipId, PubendId, ShbId, VectorEntry, VirtualTime
from gapless.messages.clients import HostTime, Order, StartKind, StartPoint
from gapless.messages.overlay import (
    CellMember,
    CellRecord,
    PubendProperties,
    Quality,
    ShapeVersion,
    Term,
)
from gapless.messages.pubend_requests import LogHoldId
from gapless.messages.records import (
    AppendPackedRow,
    AppendRow,
    CommitRecord,
    ConfigurationRecord,
    DeleteRecord,
    EndedMembershipRecord,
    FilterSegmentRecord,
    IncarnationRecord,
    JoinedPubendRecord,
    KnownHostRecord,
    LockRecord,
    LogHoldRecord,
    MemberRecord,
    MergeExclusionRecord,
    NeighbourhoodRecord,
    OperationPhase,
    OperationRecord,
    PromiseRecord,
    PubendLocationRecord,
    PubendRecord,
    PublisherRecord,
    PutRecord,
    Record,
    RetirementRecord,
    StagedRecord,
    StreamEpochRecord,
    SubscriptionRecord,
    TickCeilingRecord,
    TombstoneRecord,
    TrimLog,
)
from gapless.messages.records.plans import (
    NamedCell,
    NearCells,
    Newcomer,
    PlannedCell,
    PlannedStep,
    PlanOrder,
    PlanRecord,
)
from gapless.messages.reshape import (
    OperationId,
    OperationKind,
    OperationRequestId,
    Participant,
)
from gapless.storage import Storage
from gapless.storage.codec import encode_row
from gapless.storage.inspection import list_logs
from tests.storage.harness import (
    ALL,
    QUOTES,
    TIMEOUT_S,
    TRADES,
    StorageHarness,
    append,
    execute,
    firsts,
    row,
)

HOST = ShbId("b", "c")
TIME = VirtualTime(4, 7)
RECORDS: tuple[Record, ...] = (
    IncarnationRecord(4),
    ConfigurationRecord("b", "c", 1, 3, ()),
    NeighbourhoodRecord("c", 3, ()),
    TickCeilingRecord(1_700),
    PubendRecord(TRADES, PubendProperties("b", "c", "price > 1"), 2, 900, 100, ((10, 99),)),
    TombstoneRecord(PubendId("old"), 3, 90, Quality.GUARANTEED, 88, 1_700_000_000_000_000),
    StreamEpochRecord(TRADES, 3, 17, 2, ((HOST, VectorEntry(TIME, 1)),)),
    MemberRecord(
        QUOTES, HOST, MembershipId(4, 1), TIME, durable=True, inactive=False, ack_floor=12
    ),
    LogHoldRecord(TRADES, LogHoldId(HOST, "s"), 44, 5),
    EndedMembershipRecord(QUOTES, HOST, MembershipId(4, 1)),
    KnownHostRecord(QUOTES, HOST, ((TIME, 12),)),
    PublisherRecord(TRADES, "p", 3, 1_000, ((999, 50, 2),), 8, 77),
    StagedRecord(TRADES, "w", 7, 2, "a", 1, b"events"),
    CommitRecord(TRADES, "w", 6, 40, 49, 10, 1_010, 9),
    JoinedPubendRecord(PubendId("far#away"), MembershipId(4, 2)),
    PubendLocationRecord(PubendId("far#away"), "b7"),
    RetirementRecord(ShbId("b7", "c7"), 1_700_000_000_000_000, 9),
    SubscriptionRecord(
        "s",
        (FilterSegmentRecord("price > 1", TIME, ((TRADES, 30),), (HostTime(HOST, TIME),)),),
        ((TRADES, 20),),
        ((TRADES, 10),),
        Order.TOTAL,
        StartPoint(StartKind.EARLIEST),
        ((TRADES, "s/1"),),
        3_600,
        host_guarantees=((QUOTES, TIME),),
        confirmed_filter=("price > 0", TIME),
        confirmed_filter_times=(HostTime(HOST, TIME),),
        former_host_guarantees=((QUOTES, (HostTime(HOST, TIME),)),),
        merge_exclusions=(MergeExclusionRecord(TRADES, 20, 0, 25),),
    ),
    PlanRecord(
        PlanOrder(
            *("p", (("a", "b"),), ("a", "b", "c"), (("a", "b"), ("b", "c"))),
            newcomers=(Newcomer("c", CellMember("c1")),),
            near=(NearCells("a", "b", 2),),
        ),
        (PlannedStep("append", ("c", "b")),),
        *(3, 0),
        (PlannedCell("b", Term(), ShapeVersion(Term(), 1)),),
        (NamedCell("x", "x#b1.2"),),
    ),
    OperationRecord(
        OperationId("b", 3),
        OperationRequestId("plan", 4),
        OperationKind.READMIT,
        "c",
        Term(1, "b"),
        (Participant("c", CellMember("b"), Term(1, "b")),),
        (CellRecord.first("c", ["b"], []),),
        OperationPhase.COMMITTED,
    ),
    LockRecord(
        OperationId("b", 3),
        OperationKind.READMIT,
        ("c",),
        "b",
        "c",
        Term(1, "b"),
        CellRecord.first("c", ["b"], []),
        (Participant("c", CellMember("b"), Term(1, "b")),),
        (CellRecord.first("c", ["b"], []),),
        passed=True,
    ),
    PromiseRecord("c", Term(2, "d")),
)


def by_key(records: tuple[Record, ...]) -> list[Record]:
    return sorted(records, key=lambda record: record.key)


def test_every_kind_of_record_is_in_these_tests() -> None:
    # an unknown corrupt record would refuse the whole broker
    assert {type(each) for each in RECORDS} == set(get_args(Record))


def test_a_new_directory_is_created_empty(tmp_path: Path) -> None:
    with StorageHarness(tmp_path / "a" / "b") as harness:
        loaded = harness.storage.load()
        assert (loaded.records, loaded.corrupt, loaded.subscriptions) == ([], {}, {})
        assert harness.fetch(TRADES) == Fetched(1, ())


def test_every_kind_of_record_is_loaded_in_the_order_of_keys(tmp_path: Path) -> None:
    with StorageHarness(tmp_path, durable=True) as harness:
        harness.write(*map(PutRecord, RECORDS))
    with StorageHarness(tmp_path) as harness:
        assert harness.storage.load().records == by_key(RECORDS)


def test_the_last_change_of_a_record_counts_within_a_write_group(tmp_path: Path) -> None:
    key = IncarnationRecord(0).key
    with StorageHarness(tmp_path) as harness:
        harness.write(
            PutRecord(IncarnationRecord(1)), DeleteRecord(key), PutRecord(IncarnationRecord(2))
        )
        assert harness.storage.load().records == [IncarnationRecord(2)]
        harness.write(PutRecord(IncarnationRecord(3)), DeleteRecord(key))
        assert harness.storage.load().records == []
        harness.write(DeleteRecord(key))
        assert harness.storage.load().records == []


def test_rows_are_read_back_unchanged(tmp_path: Path) -> None:
    large = row(30, 39, size=100_000)
    with StorageHarness(tmp_path) as harness:
        harness.write(append(10, 14), append(20), append(20, 29, QUOTES))
        harness.write(append(30, 39, size=100_000))
    with StorageHarness(tmp_path) as harness:
        assert harness.fetch(TRADES).rows == (row(10, 14), row(20), large)
        assert harness.fetch(QUOTES).rows == (row(20, 29, QUOTES),)


def test_a_packed_row_is_read_back_like_any_other(tmp_path: Path) -> None:
    plain = msgspec.structs.replace(row(10, 11), control_version=0)
    packed_events = msgspec.msgpack.encode(plain.publications)
    known = row(20, 39)
    with StorageHarness(tmp_path) as harness:
        harness.write(
            AppendPackedRow(
                TRADES, 10, 11, plain.stream_epoch, plain.clock, plain.before, packed_events
            )
        )
        harness.write(AppendRow(known, msgspec.msgpack.encode(known.publications)))
    with StorageHarness(tmp_path) as harness:
        assert harness.fetch(TRADES).rows == (plain, known)
    (summary,) = list_logs(tmp_path)
    assert (summary.rows, summary.events) == (2, 4)


@pytest.mark.parametrize("count", [1, 15, 16, 300])
def test_a_row_is_encoded_alike_with_and_without_packed_events(count: int) -> None:
    event = row(10).publications[0]
    events = tuple(msgspec.structs.replace(event, tick=10 + place) for place in range(count))
    one = msgspec.structs.replace(row(10), last=9 + count, publications=events)
    assert encode_row(one, msgspec.msgpack.encode(one.publications)) == encode_row(one)


def test_a_fetch_returns_the_rows_that_overlap_its_range(tmp_path: Path) -> None:
    with StorageHarness(tmp_path) as harness:
        harness.write(append(10, 14), append(20, 24), append(30, 34))
        assert firsts(harness.fetch(TRADES, 14, 30)) == [10, 20, 30]
        assert firsts(harness.fetch(TRADES, 15, 29)) == [20]
        assert firsts(harness.fetch(TRADES, 22, 23)) == [20]
        assert firsts(harness.fetch(TRADES, 15, 19)) == []
        assert firsts(harness.fetch(TRADES, 35, 99)) == []
        assert harness.fetch(TRADES, 0, 9).complete


def test_a_fetch_returns_at_least_one_row_and_whether_there_are_more(tmp_path: Path) -> None:
    with StorageHarness(tmp_path) as harness:
        harness.write(append(10), append(20), append(30))
        some = harness.fetch(TRADES, bytes_max=1)
        assert (firsts(some), some.complete, some.corruption) == ([10], False, None)
        last = harness.fetch(TRADES, low=30, bytes_max=1)
        assert (firsts(last), last.complete) == ([30], True)


def test_a_trim_removes_the_rows_that_end_at_or_below_it(tmp_path: Path) -> None:
    with StorageHarness(tmp_path) as harness:
        harness.write(append(10, 14), append(20, 24), append(20, 24, QUOTES))
        harness.write(append(30, 34), TrimLog(TRADES, 23))
        assert firsts(harness.fetch(TRADES)) == [20, 30]
        harness.write(TrimLog(TRADES, 99), TrimLog(TRADES, 50))
        assert firsts(harness.fetch(TRADES)) == []
        harness.write(append(100))
        assert firsts(harness.fetch(TRADES)) == [100]
        assert firsts(harness.fetch(QUOTES)) == [20]
    with StorageHarness(tmp_path) as harness:
        assert firsts(harness.fetch(TRADES)) == [100]
        assert not harness.storage.load().corrupt


def test_a_row_below_the_end_of_the_log_is_an_error_of_the_caller(tmp_path: Path) -> None:
    with StorageHarness(tmp_path) as harness:
        harness.write(append(10, 14))
        for wrong in (append(14), append(20, 19)):
            with pytest.raises(AssertionError, match="not above the log"):
                harness.request_write(wrong)
        harness.write(TrimLog(TRADES, 30))
        with pytest.raises(AssertionError, match="not above the log"):
            harness.request_write(append(25))
    with (
        StorageHarness(tmp_path) as harness,
        pytest.raises(AssertionError, match="not above the log"),
    ):
        harness.request_write(append(12, 16))


def test_writes_are_reported_in_the_order_of_the_requests(tmp_path: Path) -> None:
    with StorageHarness(tmp_path) as harness:
        write_ids = [
            harness.request_write(append(tick), PutRecord(IncarnationRecord(tick)))
            for tick in range(1, 300)
        ]
        harness.wait_for(write_ids[-1])
        assert harness.written == write_ids
        assert harness.storage.pending_bytes == 0


class Gate:
    """Blocks a thread of a storage until the test opens the gate."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._opened = threading.Event()

    def hold(self) -> None:
        self.reached.set()
        assert self._opened.wait(TIMEOUT_S)

    def open(self) -> None:
        self._opened.set()


def test_writes_queued_during_a_commit_are_one_commit_and_one_call(tmp_path: Path) -> None:
    gate = Gate()

    def hold_first(events: list[Written | Fetched]) -> None:
        if Written(1) in events:
            gate.hold()

    statements: list[str] = []
    with StorageHarness(tmp_path, before_report=hold_first) as harness:
        harness.request_write(append(1))
        assert gate.reached.wait(TIMEOUT_S)
        harness.storage._writer.set_trace_callback(statements.append)
        write_ids = [
            harness.request_write(append(tick), PutRecord(IncarnationRecord(tick)))
            for tick in range(2, 102)
        ]
        assert harness.storage.pending_bytes > 100 * 20
        gate.open()
        harness.wait_for(write_ids[-1])
        assert statements.count("COMMIT") == 1
        assert harness.calls == [1, 100]
        assert sum(statement.startswith("INSERT INTO log(") for statement in statements) < 10
        counted = harness.storage.statistics()
        assert (counted.writes, counted.commits, counted.pending_bytes) == (101, 2, 0)


def test_a_fetch_does_not_wait_for_a_write(tmp_path: Path) -> None:
    gate = Gate()
    with StorageHarness(tmp_path) as harness:
        harness.write(append(10))
        harness.storage._writer.set_trace_callback(
            lambda statement: gate.hold() if statement == "COMMIT" else None
        )
        fetch_id = harness.request_write(append(20))
        assert gate.reached.wait(TIMEOUT_S)
        assert firsts(harness.fetch(TRADES)) == [10]
        assert fetch_id not in harness.written
        gate.open()
        harness.wait_for(fetch_id)
        assert firsts(harness.fetch(TRADES)) == [10, 20]


def test_a_fetch_shows_no_row_whose_write_was_not_reported(tmp_path: Path) -> None:
    gate = Gate()

    def hold_second(events: list[Written | Fetched]) -> None:
        if Written(2) in events:
            gate.hold()

    with StorageHarness(tmp_path, before_report=hold_second) as harness:
        harness.write(append(10))
        harness.request_write(append(20))
        assert gate.reached.wait(TIMEOUT_S)
        fetch = harness.request_fetch(TRADES, 0, ALL)
        assert not harness.is_answered(fetch, within_s=0.1)
        gate.open()
        assert firsts(harness.answer(fetch)) == [10, 20]
        assert 2 in harness.written


def test_a_fetch_after_the_report_of_a_write_returns_its_rows(tmp_path: Path) -> None:
    gate = Gate()

    def hold_second(events: list[Written | Fetched]) -> None:
        if Written(2) in events:
            gate.hold()

    with StorageHarness(tmp_path, after_report=hold_second) as harness:
        harness.write(append(10))
        harness.write(append(20))
        fetch = harness.request_fetch(TRADES, 0, ALL)
        harness.is_answered(fetch, within_s=0.1)  # an answer now would lack the rows
        gate.open()
        assert firsts(harness.answer(fetch)) == [10, 20]


def test_closing_completes_the_pending_requests(tmp_path: Path) -> None:
    with StorageHarness(tmp_path) as harness:
        fetch_id = harness.request_write(append(10))
        harness.request_fetch(TRADES, 0, 99)
    harness.collect()
    assert harness.written == [fetch_id]
    harness.storage.close()
    with pytest.raises(AssertionError, match="closed"):
        harness.request_write(append(20))
    with StorageHarness(tmp_path) as harness:
        assert firsts(harness.fetch(TRADES)) == [10]


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with (
        StorageHarness(tmp_path),
        pytest.raises(DirectoryLockedError, match=r"in use by process \d+: stop it"),
    ):
        StorageHarness(tmp_path)
    with StorageHarness(tmp_path) as harness:
        assert harness.storage.failure is None


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    StorageHarness(tmp_path).storage.close()
    execute(tmp_path, "PRAGMA user_version=9")
    with pytest.raises(NewerFormatError, match="format 9, this program knows formats up to 5"):
        StorageHarness(tmp_path)


def test_an_older_format_is_refused(tmp_path: Path) -> None:
    StorageHarness(tmp_path).storage.close()
    execute(tmp_path, "PRAGMA user_version=1")
    with pytest.raises(StorageError, match="format 1, this program reads format 5 only"):
        StorageHarness(tmp_path)


def test_a_database_of_another_program_is_refused_and_not_changed(tmp_path: Path) -> None:
    execute(tmp_path, "CREATE TABLE theirs (x)")
    before = (tmp_path / "broker.db").read_bytes()
    with pytest.raises(CorruptionError, match="not a database of gapless"):
        StorageHarness(tmp_path)
    assert (tmp_path / "broker.db").read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_not_changed(tmp_path: Path) -> None:
    (tmp_path / "broker.db").write_bytes(b"no database at all" * 500)
    with pytest.raises(CorruptionError, match="the database is corrupt"):
        StorageHarness(tmp_path)
    assert (tmp_path / "broker.db").read_bytes() == b"no database at all" * 500


def test_a_directory_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be created"):
        StorageHarness(tmp_path / "file" / "data")


def test_writes_are_synced_by_default(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path, on_done=lambda _: None, on_failure=lambda _: None)
    assert storage._writer.execute("PRAGMA synchronous").fetchone() == (2,)
    assert storage._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    storage.write(Write(1, ()))
    storage.close()
