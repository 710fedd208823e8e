"""The audit records that brokers and clients write of real traffic."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

import gapless
from gapless.audit import AuditEntry, read
from gapless.audit.facts import Control, facts_of
from gapless.audit.records import (
    Acked,
    AuditDelivered,
    AuditEnded,
    AuditFilterChanged,
    AuditOpened,
    AuditPublished,
    AuditRecord,
    Closing,
    Confirmed,
    LogReadSent,
    Stored,
)
from gapless.audit.segments import segments_of
from gapless.audit.timelines import AuditedSubscription, subscriptions_of
from gapless.core.ids import PubendId
from gapless.messages.staging import CommitBatch
from gapless.testing import Overlay
from tests.client.running import async_test, soon
from tests.tokens import Principals

R = TypeVar("R", bound=AuditRecord)


def of(kind: type[R], entries: list[AuditEntry], side: str) -> list[R]:
    found = [entry.record for entry in entries if entry.header.side == side]
    return [record for record in found if isinstance(record, kind)]


def ticks_of(records: list[AuditDelivered], subscription: str) -> list[int]:
    return [
        tick
        for record in records
        if record.subscription == subscription
        for _, ticks, _ in record.runs
        for tick in ticks
    ]


def judged(directory: Path, tail_us: int = 10**12) -> list[AuditedSubscription]:
    facts = [fact for path in segments_of(directory) for fact in facts_of(path.read_bytes())]
    controls = [
        msgspec.msgpack.decode(fact.control, type=Control)
        for fact in facts
        if fact.control is not None
    ]
    return subscriptions_of(controls, tail_us)


@async_test
async def test_brokers_and_clients_record_publications_and_deliveries(
    tmp_path: Path,
) -> None:
    async with (
        Overlay("line:2", audit=tmp_path) as overlay,
        gapless.connect(overlay.url("b1"), name="feed", audit=tmp_path) as feeding,
        gapless.connect(overlay.url("b2"), name="tape", audit=tmp_path) as watching,
        feeding.publisher("quotes", name="p") as publisher,
        watching.subscribe("n >= 5", durable="tape") as events,
    ):
        await soon(lambda: "quotes" in events.position)
        await publisher.publish_many([{"n": n} for n in range(10)])
        got = [await events.get() for _ in range(5)]
        switch = await events.set_filter("n >= 100")
        await publisher.publish({"n": 50})
        await publisher.publish({"n": 100})
        got.append(await events.get())
    entries = [*read(tmp_path)]
    published = of(AuditPublished, entries, "broker")
    assert [a["n"] for each in published for a in each.attributes or ()] == [*range(10), 50, 100]
    assert {each.publisher for each in published} == {"p"}
    ticks = [tick for each in published for tick in each.ticks]
    assert [tick for each in of(Confirmed, entries, "client") for tick in each.ticks] == ticks
    assert of(Stored, entries, "broker")[-1].tick == ticks[-1]
    cells = {entry.header.cell for entry in entries if isinstance(entry.record, AuditPublished)}
    assert cells == {"c1"}
    for side in ("broker", "client"):
        assert ticks_of(of(AuditDelivered, entries, side), "tape") == [event.tick for event in got]
        (opened,) = of(AuditOpened, entries, side)
        assert (opened.filter, opened.durable, opened.broker) == ("n >= 5", True, "b2")
        assert [each.filter for each in of(AuditFilterChanged, entries, side)] == ["n >= 100"]
        assert (
            dict(of(AuditFilterChanged, entries, side)[-1].position)[got[0].run.pubend]
            == switch["quotes"]
        )
        assert of(AuditEnded, entries, side)
    assert of(Acked, entries, "client")[-1].position[-1][1] == got[-1].tick
    assert of(Acked, entries, "broker")
    assert [each.sequence for each in got] == [
        sequence
        for each in of(AuditDelivered, entries, "client")
        for _, _, sequences in each.runs
        for sequence in sequences
    ]
    assert sum(isinstance(entry.record, Closing) for entry in entries) == 3


@async_test
async def test_staged_events_are_recorded_as_published_when_they_are_committed(
    tmp_path: Path,
) -> None:
    async with (
        Overlay("line:2", audit=tmp_path) as overlay,
        gapless.connect(overlay.url("b1"), audit=tmp_path) as session,
    ):
        parts = []
        for partition in range(2):
            writer = session.staged_writer("quotes", writer="w", batch=1, partition=partition)
            async with writer:
                await writer.add({"n": n, "partition": partition} for n in range(1_500))
                parts.append(await writer.finish())
        await session.staged_writer(
            "quotes", writer="w", batch=1
        ).open()  # this one is never committed
        assert of(AuditPublished, [*read(tmp_path)], "broker") == []
        await session.commit_staged(parts)
        logged = [each async for each in session.read("quotes")]
    published = of(AuditPublished, [*read(tmp_path)], "broker")
    assert {(each.pubend.name, each.publisher) for each in published} == {("quotes", "w")}
    assert [tick for each in published for tick in each.ticks] == [each.tick for each in logged]
    attributes = [a for each in published for a in each.attributes or ()]
    assert attributes == [dict(each.attributes) for each in logged]
    firsts = [each.first for each in published]
    assert firsts == [1, 1_001, 1_501, 2_501]
    assert of(Stored, [*read(tmp_path)], "broker")[-1].tick == logged[-1].tick


@async_test
async def test_publications_have_the_principal_that_opened_the_publisher_or_committed(
    tmp_path: Path,
) -> None:
    principals = Principals(tmp_path, "feed", "heir", "mole")
    logs = tmp_path / "audit"

    def connect(name: str) -> gapless.client.Session:
        return gapless.connect(overlay.url(), token=principals[name])

    async with Overlay(audit=logs, tokens=principals.path) as overlay:
        async with connect("feed") as feed, connect("heir") as heir, connect("mole") as mole:
            async with feed.publisher("quotes", name="tape") as publisher:
                await publisher.publish({"n": 1})
                commit = CommitBatch(0, PubendId("quotes"), "tape", 1, ((0, "a", 1),))
                with pytest.raises(gapless.errors.RefusedError):
                    await mole.request(commit)
                await publisher.publish({"n": 2})
                async with heir.publisher("quotes", name="tape") as successor:
                    await successor.publish({"n": 3})
            async with mole.staged_writer("quotes", writer="loader", batch=1) as writer:
                await writer.add([{"n": 4}])
                part = await writer.finish()
            await heir.commit_staged([part])
        async with connect("mole") as again, again.publisher("quotes", name="other") as publisher:
            await publisher.publish({"n": 5})
        async with connect("feed") as feed:
            assert [event.attributes["n"] async for event in feed.read("quotes", filter="n < 3")]
    written = [
        ((each.attributes or [])[0]["n"], each.principal)
        for each in of(AuditPublished, [*read(logs)], "broker")
    ]
    assert written == [(1, "feed"), (2, "feed"), (3, "heir"), (4, "heir"), (5, "mole")]
    (out,) = of(LogReadSent, [*read(logs)], "broker")
    assert (out.principal, out.filter, out.low <= written[0][0]) == ("feed", "n < 3", True)


@async_test
async def test_a_timeline_has_filters_from_start_to_end(tmp_path: Path) -> None:
    async with (
        Overlay(audit=tmp_path) as overlay,
        gapless.connect(overlay.url(), audit=tmp_path) as session,
        session.publisher("quotes") as publisher,
        session.subscribe("n >= 5") as events,
    ):
        first = await publisher.publish({"n": 7})
        await events.get()
        switch = await events.set_filter("n < 5")
        last = await publisher.publish({"n": 1})
        await events.get()
    (found,) = judged(tmp_path)
    assert found.side == "client"
    spans = [(each.filter, each.high, each.settled) for each in found.intervals]
    assert spans == [("n >= 5", switch["quotes"], True), ("n < 5", last["quotes"], True)]
    assert found.intervals[0].low < first["quotes"]


@async_test
async def test_after_a_seek_skipped_events_are_not_expected_and_repeated_ones_are_no_duplicates(
    tmp_path: Path,
) -> None:
    async with (
        Overlay(audit=tmp_path) as overlay,
        gapless.connect(overlay.url(), audit=tmp_path) as session,
        session.publisher("quotes") as publisher,
        session.subscribe("", start="earliest") as events,
    ):
        ticks = [await publisher.publish({"n": n}) for n in range(3)]
        for _ in range(3):
            await events.get()
        await events.seek(ticks[0])
        assert [(await events.get()).attributes["n"] for _ in range(2)] == [1, 2]
    (found,) = judged(tmp_path)
    assert [audited.rank for audited in found.client_sessions] == [0, 1]
    assert found.client_sessions[1].fresh_up_to == -1
    assert all(each.settled for each in found.intervals)


@async_test
async def test_a_killed_broker_has_recorded_all_its_publications(tmp_path: Path) -> None:
    async with (
        Overlay(audit=tmp_path) as overlay,
        gapless.connect(overlay.url(), audit=tmp_path) as session,
        session.publisher("quotes") as publisher,
        session.subscribe("") as events,
    ):
        for n in range(20):
            await publisher.publish({"n": n})
        await overlay.restart("b1")
        await publisher.publish({"n": 20})
        got = [await events.get() for _ in range(21)]
    entries = [*read(tmp_path)]
    ticks = [tick for each in of(AuditPublished, entries, "broker") for tick in each.ticks]
    assert {event.tick for event in got} <= set(ticks)
    runs = {entry.header.run for entry in entries if entry.header.side == "broker"}
    assert len(runs) == 2
    (found,) = judged(tmp_path)
    assert [each.settled for each in found.intervals] == [True]


@async_test
async def test_without_logs_of_clients_those_of_brokers_are_used(tmp_path: Path) -> None:
    async with (
        Overlay(audit=tmp_path) as overlay,
        gapless.connect(overlay.url()) as session,
        session.publisher("quotes") as publisher,
        session.subscribe("n > 0") as events,
    ):
        position = await publisher.publish({"n": 1})
        await events.get()
    (found,) = judged(tmp_path)
    assert found.side == "broker"
    assert found.intervals[-1].high == position["quotes"]


@async_test
async def test_best_effort_events_are_not_recorded(tmp_path: Path) -> None:
    async with (
        Overlay(audit=tmp_path) as overlay,
        gapless.connect(overlay.url(), audit=tmp_path) as session,
        session.publisher("best effort", guaranteed=False) as publisher,
        session.subscribe("") as events,
    ):
        await publisher.publish({"n": 1})
        await events.get()
    entries = [*read(tmp_path)]
    assert not of(AuditPublished, entries, "broker")
    assert not of(AuditDelivered, entries, "client")


def test_the_audit_of_a_broker_is_set_in_its_configuration_file(tmp_path: Path) -> None:
    from gapless.runtime import load_config

    path = tmp_path / "b1.toml"
    path.write_text('name = "b1"\ndata = "d"\n[audit]\ndirectory = "a"\nflush_ms = 5\n')
    audit = load_config(path).settings.audit
    assert audit is not None
    assert (audit.directory, audit.flush_ms) == (str(tmp_path / "a"), 5)
    path.write_text('name = "b1"\ndata = "d"\n[audit]\ndirectory = "a"\nflush = 5\n')
    with pytest.raises(gapless.errors.UsageError, match=r"there is no key `audit\.flush`"):
        load_config(path)


def test_all_brokers_of_an_overlay_get_the_same_audit_options(tmp_path: Path) -> None:
    from gapless.audit import AuditOptions
    from gapless.runtime import Supervisor, generate, load_config

    options = AuditOptions(directory=str(tmp_path / "audit"), flush_ms=7)
    supervisor = Supervisor(generate("line:2"), tmp_path / "data", port=0, audit=options)
    supervisor.take_directory()
    for broker in supervisor.brokers:
        assert load_config(broker.config_path).settings.audit == options
    supervisor.release_directory()


@async_test
async def test_a_broker_that_cannot_write_its_audit_log_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(gapless.errors.UsageError, match="cannot be written"):
        async with Overlay(audit=tmp_path / "file"):
            pass
