"""The staged writer of a session: chunks survive faults, and a batch is committed once."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

import gapless
from gapless.client import CommitResult, Session, StagedPart
from gapless.core.backoff import Backoff
from gapless.core.parameters import Parameters
from gapless.errors import (
    AttributeValueError,
    GaplessError,
    OutcomeUnknownError,
    RefusedError,
    UsageError,
    WrongBrokerError,
)
from gapless.messages.clients import OpenPubend
from gapless.messages.staging import BatchCommitted, ChunkStaged, CommitBatch, StageChunk
from gapless.testing import Overlay
from tests.client.proxy import Proxy
from tests.client.running import async_test

QUICK = Backoff(first_s=0.002, longest_s=0.02)


async def numbers(session: Session) -> list[object]:
    """Return the numbers in the log of quotes."""
    return [event.attributes["n"] async for event in session.read("quotes")]


async def staged(
    session: Session, events: Iterable[int], *, batch: int = 1, partition: int = 0
) -> StagedPart:
    """Stage numbers and return the staged part."""
    writer = session.staged_writer("quotes", writer="w", batch=batch, partition=partition)
    async with writer:
        await writer.add({"n": n} for n in events)
        return await writer.finish()


@async_test
async def test_only_the_committed_attempts_of_a_staged_batch_are_published() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        late = await staged(session, range(10, 20), partition=1)
        await staged(session, range(10), partition=0)
        early = await staged(session, range(10), partition=0)
        assert await numbers(session) == []
        done = await session.commit_staged([late, early])
        assert (done.events, done.repeated) == (20, False)
        assert await numbers(session) == [*range(20)]
        again = await session.commit_staged([late, early])
        assert again == CommitResult(done.position, 20, repeated=True)
        assert await numbers(session) == [*range(20)]


@async_test
async def test_many_events_are_staged_in_chunks_and_published_in_order() -> None:
    async with Overlay() as overlay, gapless.connect(overlay.url()) as session:
        part = await staged(session, range(25_000))
        assert (part.chunks, part.events) == (25, 25_000)
        await session.commit_staged([part])
        assert await numbers(session) == [*range(25_000)]


@pytest.mark.parametrize(
    "fault",
    [
        ("cut_before", StageChunk),
        ("cut_after", StageChunk),
        ("cut_before", ChunkStaged),
        ("cut_before", CommitBatch),
        ("cut_after", CommitBatch),
        ("cut_before", BatchCommitted),
        ("cut_before", OpenPubend),
        ("repeat", ChunkStaged),
        ("repeat", BatchCommitted),
    ],
)
@async_test
async def test_a_batch_is_published_once_wherever_the_connection_breaks(
    fault: tuple[str, type],
) -> None:
    async with Overlay(on_disk=False) as overlay, Proxy(overlay.url()) as proxy:
        getattr(proxy, fault[0])(fault[1])
        async with gapless.connect(proxy.url, backoff=QUICK) as session:
            part = await staged(session, range(3_000))
            await session.commit_staged([part])
            assert await numbers(session) == [*range(3_000)]


@async_test
async def test_a_commit_waits_for_a_broker_that_was_killed_after_staging() -> None:
    async with Overlay("line:2") as overlay:
        url = overlay.url("b1", "b2")
        async with gapless.connect(url, backoff=QUICK) as session:
            part = await staged(session, range(100))
            await overlay.kill("b1")
        # another process commits and reaches only the neighbour
        async with gapless.connect(url, backoff=QUICK) as other:
            with pytest.raises(GaplessError):
                await other.commit_staged([part], deadline_s=0.5)
            await overlay.restart("b1")
            done = await other.commit_staged([part])
            assert (done.events, done.repeated) == (100, False)
            assert await numbers(other) == [*range(100)]


@async_test
async def test_every_batch_is_published_once_while_the_broker_is_killed_repeatedly() -> None:
    random = Random(4)
    async with Overlay() as overlay, gapless.connect(overlay.url(), backoff=QUICK) as session:
        for batch in range(4):
            part = await staged(session, range(batch * 50, batch * 50 + 50), batch=batch)
            if random.random() < 0.7:
                await overlay.restart("b1")
            with pytest.raises(OutcomeUnknownError):
                await session.commit_staged([part], deadline_s=1e-6)
            await overlay.restart("b1")
            await session.commit_staged([part])
        assert await numbers(session) == [*range(200)]


@async_test
async def test_a_dropped_batch_has_to_be_staged_again() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        part = await staged(session, range(3))
        await session.drop_staged("quotes", "w", 1)
        with pytest.raises(RefusedError, match="is not staged here"):
            await session.commit_staged([part])
        await session.commit_staged([await staged(session, range(3))])
        assert await numbers(session) == [0, 1, 2]


@async_test
async def test_a_batch_above_the_limit_is_refused_with_a_remedy() -> None:
    parameters = Parameters(staged_bytes_max=20_000)
    async with (
        Overlay(on_disk=False, parameters=parameters) as overlay,
        gapless.connect(overlay.url()) as session,
    ):
        with pytest.raises(RefusedError, match="write smaller batches"):
            await staged(session, range(10_000))


@async_test
async def test_an_event_outside_the_advertisement_is_refused_before_the_commit() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        writer = session.staged_writer("quotes", writer="w", batch=1, advertisement="n > 10")
        async with writer:
            await writer.add([{"n": 5}])
            with pytest.raises(RefusedError, match="advertisement"):
                await writer.finish()


@async_test
async def test_committing_an_empty_part_publishes_nothing() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        part = await staged(session, [])
        assert (part.chunks, part.events) == (0, 0)
        assert (await session.commit_staged([part])).events == 0


@async_test
async def test_invalid_calls_are_refused() -> None:
    async with Overlay(on_disk=False) as overlay, gapless.connect(overlay.url()) as session:
        writer = session.staged_writer("quotes", writer="w", batch=1)
        async with writer:
            with pytest.raises(AttributeValueError):
                await writer.add([{"n": [1]}])  # type: ignore[dict-item]
            with pytest.raises(UsageError, match="does not fit into a frame"):
                await writer.add([({}, b"x" * 40_000_000)])
        parts = [await staged(session, [1], batch=batch) for batch in (1, 2)]
        with pytest.raises(UsageError, match="one batch"):
            await session.commit_staged(parts)


@async_test
async def test_a_pubend_of_a_broker_outside_the_addresses_is_refused_at_once() -> None:
    async with Overlay("line:2", on_disk=False) as overlay:
        async with gapless.connect(overlay.url("b1")) as session:
            await staged(session, [1])
        async with gapless.connect(overlay.url("b2")) as session:
            with pytest.raises(WrongBrokerError, match="b1"):
                await session.drop_staged("quotes", "w", 1)
