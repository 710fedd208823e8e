"""A corrupt row of a log: subscriptions report it, publishing is refused, other streams continue."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import gapless
from gapless.client import Session
from gapless.errors import RefusedError
from gapless.runtime.metrics import Metrics
from gapless.testing import Overlay
from tests.client.running import async_test, soon

LAST = 3


def corrupt_second_row(directory: Path, pubend: str) -> None:
    """Change a row of a log, but not its checksum."""
    with closing(sqlite3.connect(directory / "broker.db")) as database:
        rows = database.execute(
            "SELECT first FROM log WHERE pubend=? ORDER BY first", (f"{pubend}#1",)
        ).fetchall()
        changed = database.execute(
            "UPDATE log SET events=events+1 WHERE pubend=? AND first=?", (f"{pubend}#1", rows[1][0])
        )
        assert changed.rowcount == 1
        database.commit()


async def corrupt(overlay: Overlay) -> None:
    """Publish three events to quotes, a row each, and corrupt the second row."""
    async with gapless.connect(overlay.url()) as session:
        async with session.publisher("quotes") as publisher:
            for number in range(1, LAST + 1):
                await publisher.publish({"n": number})
    data = overlay.node("b1").settings.data
    assert data is not None
    await overlay.kill("b1")
    corrupt_second_row(data, "quotes")
    await overlay.restart("b1")


async def numbers_until_stalled(session: Session) -> tuple[list[object], dict[str, str]]:
    """Read quotes from the earliest until it stalls and another stream has delivered."""
    found: list[object] = []
    async with session.publisher("trades") as other:
        async with session.subscribe("n > 0", start="earliest") as events:
            found.append((await events.get(deadline_s=30)).attributes["n"])
            await soon(lambda: "quotes" in events.pending)
            await other.publish({"n": 10})
            found.append((await events.get(deadline_s=30)).attributes["n"])
            return found, dict(events.pending)


@async_test
async def test_a_subscription_names_its_stalled_stream_and_other_streams_continue() -> None:
    async with Overlay() as overlay:
        await corrupt(overlay)
        async with gapless.connect(overlay.url()) as session:
            found, waiting = await numbers_until_stalled(session)
            assert found == [1, 10]
            assert [*waiting] == ["quotes"]
            assert "is corrupt" in waiting["quotes"]


@async_test
async def test_a_seek_past_the_corruption_ends_the_stall() -> None:
    async with Overlay() as overlay:
        await corrupt(overlay)
        async with gapless.connect(overlay.url()) as session:
            async with session.subscribe("n > 0", start="earliest", on_gap="report") as events:
                first = await events.get(deadline_s=30)
                await soon(lambda: "quotes" in events.pending)
                behind = gapless.Position({"quotes": first.position["quotes"] + 10_000_000_000})
                await events.seek(behind)
                await soon(lambda: not events.pending)


@async_test
async def test_publishing_to_a_log_that_is_known_to_be_corrupt_is_refused() -> None:
    async with Overlay() as overlay:
        await corrupt(overlay)
        async with gapless.connect(overlay.url()) as session:
            await numbers_until_stalled(session)
            async with session.publisher("quotes") as publisher:
                with pytest.raises(RefusedError, match="gapless log verify"):
                    await publisher.publish({"n": 4})


@async_test
async def test_a_read_of_the_log_ends_with_the_reason() -> None:
    async with Overlay() as overlay:
        await corrupt(overlay)
        async with gapless.connect(overlay.url()) as session:
            found = []
            with pytest.raises(RefusedError, match="is corrupt"):
                async for event in session.read("quotes"):
                    found.append(event.attributes["n"])  # noqa: PERF401 - it ends by raising
            assert found == [1]


def test_a_corruption_is_logged_once_and_is_always_in_health_and_metrics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def corruption_lines() -> list[str]:
        return [each.message for each in caplog.records if "log is corrupt" in each.message]

    @async_test
    async def scenario() -> None:
        async with Overlay() as overlay:
            await corrupt(overlay)
            node = overlay.node("b1")
            assert node.health().corrupt == {}
            async with gapless.connect(overlay.url()) as session:
                await numbers_until_stalled(session)
            assert "is corrupt" in node.health().corrupt["quotes"]
            assert b"gapless_pubends_corrupt 1.0" in Metrics(node).text()
            await soon(lambda: len(corruption_lines()) > 0)
            node._log_corruptions()

    with caplog.at_level(logging.INFO, logger="gapless"):
        scenario()
    assert len(corruption_lines()) == 1
