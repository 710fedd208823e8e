"""Temporary subscribers: every client session is a new subscription, and no event between is missed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import msgspec

import gapless
from gapless.client import Publisher
from gapless.testing import Overlay
from gapless_lab.chaos.subscribers import TemporarySubscriber
from gapless_lab.demo.audit import audit
from gapless_lab.demo.clients import DemoCounters
from gapless_lab.demo.records import (
    DemoDelivered,
    DemoOpened,
    DemoPublished,
    RecordFile,
    read_notes,
)
from gapless_lab.demo.workload import DemoFilter, PayloadHeader, SubscriberRole
from tests.client.running import async_test, soon

ALL = DemoFilter("TRUE", lambda _: True, frozenset({"quotes", "trades"}))
PART = SubscriberRole("visitor", ALL, ("b1",))


async def publish(publisher: Publisher, numbers: Iterable[int]) -> list[DemoPublished]:
    """Publish numbers to a pubend; return the records of a publisher."""
    done, pubend = [], publisher.pubend
    for number in numbers:
        payload = msgspec.json.encode(PayloadHeader(pubend, number))
        position = await publisher.publish({"n": number}, payload)
        done.append(DemoPublished(pubend, number, pubend, {"n": number}, 0, "ok", position[pubend]))
    return done


@async_test
async def test_a_temporary_subscriber_that_returns_misses_no_event_since_its_first_start(
    tmp_path: Path,
) -> None:
    path = tmp_path / "visitor.delivered"
    async with (
        Overlay("line:2", on_disk=False) as overlay,
        gapless.connect(overlay.url("b2")) as session,
        session.publisher("quotes") as quotes,
    ):
        early = await publish(quotes, range(1, 4))
        tally = DemoCounters()
        temporary = TemporarySubscriber(PART, [overlay.url("b1")], tally)
        with RecordFile(path) as record:
            visiting = asyncio.create_task(temporary.run(record))
            await soon(lambda: temporary.session is not None and temporary.session.broker == "b1")
            done: list[DemoPublished] = []
            while not tally.delivered:  # events before its start are not expected
                done += await publish(quotes, [4 + len(done)])
                await asyncio.sleep(0.02)
            assert not temporary.ready.is_set(), "one of its streams does not exist yet"
            async with session.publisher("trades") as trades:
                await soon(temporary.ready.is_set)
                done += await publish(trades, range(1, 4))
                await soon(lambda: tally.delivered >= 4)
                temporary.leave()
                await soon(lambda: temporary.session is None)
                done += await publish(trades, range(4, 9))
                temporary.come_back()
                done += await publish(trades, range(9, 12))
                await soon(lambda: done[-1].tick in ticks(record, path))
            temporary.end()
            await visiting
    notes = [*read_notes(path)]
    assert sum(isinstance(each, DemoOpened) for each in notes) == 1
    found = audit([*early, *done], {"visitor": notes}, {ALL.text: ALL.test})
    assert found.is_clean, found
    assert found.total.expected == found.total.delivered >= 12


def ticks(record: RecordFile, path: Path) -> set[int]:
    """Return the ticks that a subscriber has received so far."""
    record.flush()
    return {each.tick for each in read_notes(path) if isinstance(each, DemoDelivered)}
