"""The simulated disk: durability, crashes and corruption."""

from __future__ import annotations

import pytest

from gapless.core.effects import Fetch, Write
from gapless.core.events import Fetched, Written
from gapless.core.ids import PubendId
from gapless.messages.records import (
    AppendRow,
    DeleteRecord,
    IncarnationRecord,
    LogRow,
    PutRecord,
    TrimLog,
)
from gapless.messages.streams import Publication
from gapless_lab.sim.world import SimulatedHost, World
from tests.lab.sim.recorder import do, machine, make_world, pass_ms

P = PubendId("P")


def row(first: int, last: int | None = None) -> LogRow:
    publication = Publication(first, "p", first, {}, b"x" * 10)
    return LogRow(P, first, last or first, 1, 0, 0, 0, (publication,))


def one(**options: float) -> tuple[World, SimulatedHost]:
    world = make_world(cells=1, **{"survive": 0.0, **options})
    return world, next(iter(world.hosts.values()))


def append(world: World, host: SimulatedHost, *ticks: int) -> None:
    for tick in ticks:
        do(world, host, [Write(tick, (AppendRow(row(tick)),))])


def test_a_write_is_reported_when_it_is_durable_and_not_before() -> None:
    world, host = one(sync_us_min=1_000, sync_us_max=1_001)
    do(world, host, [Write(7, (PutRecord(IncarnationRecord(3)),))])
    assert host.disk.records == {}
    assert machine(host).events(Written) == []
    pass_ms(world, 2)
    assert host.disk.load() == [IncarnationRecord(3)]
    assert machine(host).events(Written) == [Written(7)]


def test_writes_become_durable_in_the_order_of_the_requests() -> None:
    world, host = one()
    append(world, host, *range(1, 20))
    pass_ms(world, 100)
    assert [row.first for row in host.disk.logs[P]] == list(range(1, 20))
    assert machine(host).events(Written) == [Written(write_id) for write_id in range(1, 20)]


def test_writes_that_wait_share_the_next_sync() -> None:
    world, host = one(sync_us_min=1_000, sync_us_max=1_001)
    append(world, host, 1, 2, 3, 4)
    pass_ms(world, 1.1)
    assert len(host.disk.logs[P]) == 1
    pass_ms(world, 1.1)
    assert len(host.disk.logs[P]) == 4


def test_a_crash_loses_exactly_the_writes_that_were_not_synced() -> None:
    world, host = one(sync_us_min=1_000, sync_us_max=1_001)
    append(world, host, 1, 2)
    pass_ms(world, 5)
    append(world, host, 3, 4)
    pass_ms(world, 0.5)
    world.crash(host)
    world.start(host)
    pass_ms(world, 5)
    assert [row.first for row in host.disk.logs[P]] == [1, 2]
    assert machine(host).events(Written) == [], "a write of an earlier incarnation is not reported"


def test_a_crash_leaves_a_prefix_of_the_unsynced_writes() -> None:
    kept = []
    for seed in range(40):
        world, host = one(seed=seed, survive=1.0, sync_us_min=1_000)
        append(world, host, 1, 2, 3)
        world.crash(host)
        ticks = [row.first for row in host.disk.logs.get(P, [])]
        assert ticks == [1, 2, 3][: len(ticks)]
        kept.append(len(ticks))
    assert set(kept) == {0, 1, 2, 3}


def test_a_change_is_applied_whole_or_not_at_all() -> None:
    for seed in range(20):
        world, host = one(seed=seed, survive=0.5)
        do(world, host, [Write(1, (PutRecord(IncarnationRecord(9)), AppendRow(row(1))))])
        world.crash(host)
        assert bool(host.disk.records) == bool(host.disk.logs.get(P))


def test_a_torn_last_write_is_counted_and_never_seen() -> None:
    world, host = one(torn=1.0, sync_us_min=1_000)
    append(world, host, 1)
    world.crash(host)
    assert world.faults == {"torn write": 1}
    assert host.disk.logs.get(P, []) == []


def test_a_new_incarnation_gets_the_durable_records_in_the_order_of_their_keys() -> None:
    world, host = one()
    do(world, host, [Write(1, (PutRecord(IncarnationRecord(1)), PutRecord(IncarnationRecord(2))))])
    pass_ms(world, 10)
    world.crash(host)
    world.start(host)
    assert machine(host).records == [IncarnationRecord(2)]


def test_a_record_can_be_erased_and_a_log_trimmed_from_its_low_end() -> None:
    world, host = one()
    do(world, host, [Write(1, (PutRecord(IncarnationRecord(1)), DeleteRecord(("incarnation",))))])
    append(world, host, 1, 2, 3)
    do(world, host, [Write(9, (TrimLog(P, 2),))])
    pass_ms(world, 20)
    assert host.disk.records == {}
    assert [row.first for row in host.disk.logs[P]] == [3]


def test_a_row_below_the_log_is_a_violation() -> None:
    world, host = one()
    append(world, host, 5, 5)
    pass_ms(world, 10)
    assert [violation.name for violation in world.violations] == ["duplicate"]


@pytest.mark.parametrize(
    ("low", "high", "bytes_max", "ticks"),
    [
        (0, 100, 10_000, [10, 20, 30]),
        (11, 20, 10_000, [10, 20]),
        (16, 29, 10_000, [20]),
        (15, 100, 10_000, [10, 20, 30]),
        (31, 100, 10_000, []),
        (0, 100, 1, [10]),
        (0, 100, 170, [10, 20]),
    ],
)
def test_a_fetch_returns_the_rows_that_overlap_its_range_and_at_least_one(
    low: int, high: int, bytes_max: int, ticks: list[int]
) -> None:
    world, host = one()
    rows = (AppendRow(row(10, 15)), AppendRow(row(20)), AppendRow(row(30)))
    do(world, host, [Write(1, rows)])
    pass_ms(world, 10)
    do(world, host, [Fetch(5, P, low, high, bytes_max)])
    pass_ms(world, 10)
    (fetched,) = machine(host).events(Fetched)
    assert isinstance(fetched, Fetched)
    assert [row.first for row in fetched.rows] == ticks
    assert fetched.corruption is None


def test_a_fetch_stops_before_a_corrupt_row_and_names_it() -> None:
    world, host = one()
    append(world, host, 1, 2, 3)
    pass_ms(world, 10)
    host.disk.corrupt_row(P, 2)
    rows, corruption, _ = host.disk.read(P, 0, 10, 10_000)
    assert [row.first for row in rows] == [1]
    assert corruption == "P: row 2 to 2 is corrupt"
    assert host.disk.read(P, 3, 3, 10_000) == ((row(3),), None, True)


def test_trimming_a_corrupt_row_removes_the_corruption() -> None:
    world, host = one()
    append(world, host, 1, 2, 3)
    pass_ms(world, 10)
    host.disk.corrupt_row(P, 2)
    do(world, host, [Write(9, (TrimLog(P, 2),))])
    pass_ms(world, 10)
    assert host.disk.read(P, 0, 10, 10_000) == ((row(3),), None, True)


def test_a_full_disk_ends_the_process_and_loses_the_write() -> None:
    world, host = one()
    host.disk.full = True
    append(world, host, 1)
    pass_ms(world, 10)
    assert host.process is None
    assert host.disk.logs.get(P, []) == []
