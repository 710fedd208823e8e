"""``gapless log trim`` and ``gapless durable rm --directory``: brokers that stopped, full disks."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import gapless
from gapless.cli.main import EXIT_DISK, EXIT_WRONG_INPUT, main
from gapless.cli.stopped import read_tick
from gapless.core.errors import DiskFullError, UsageError
from gapless.core.parameters import Parameters
from gapless.errors import GaplessError
from gapless.storage import list_logs
from tests.runtime.nodes import World, run, until, world

Captured = pytest.CaptureFixture[str]


async def prepare(data: Path) -> list[int]:
    """Run a broker with two durable subscriptions and three events, then stop it."""
    async with world(data=data) as nodes, gapless.connect(nodes["b1"].url) as session:
        for name in ("desk", "other"):
            async with session.subscribe("TRUE", durable=name, ack="manual"):
                pass
        async with session.publisher("quotes") as publisher:
            positions = [await publisher.publish({"n": number}) for number in (1, 2, 3)]
            return [each["quotes"] for each in positions]


async def received(data: Path, count: int) -> tuple[list[object], list[int]]:
    """Start the broker again; return events and the ends of gaps that ``desk`` receives."""
    async with world(data=data) as nodes, gapless.connect(nodes["b1"].url) as session:
        subscription = session.subscribe("TRUE", durable="desk", ack="manual", on_gap="report")
        async with subscription as events:
            found: list[object] = [(await events.get()).attributes["n"] for _ in range(count)]
            await until(lambda: events.gaps)
            return found, [gap.high for gap in events.gaps]


def test_a_trimmed_log_gives_its_subscriber_a_gap_and_then_the_remaining_events(
    tmp_path: Path, capsys: Captured
) -> None:
    ticks = run(prepare(tmp_path))
    store = str(tmp_path / "b1")
    assert main(["log", "trim", store, "quotes", "--up-to", str(ticks[1]), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["logs"] == [{"pubend": "quotes", "released": ticks[1], "events": 2}]
    assert run(received(tmp_path, 1)) == ([3], [ticks[1]])


def test_all_logs_are_trimmed_completely_with_latest(tmp_path: Path, capsys: Captured) -> None:
    run(prepare(tmp_path))
    store = tmp_path / "b1"
    assert main(["log", "trim", str(store), "--all", "--up-to", "latest"]) == 0
    shown = capsys.readouterr().out
    assert "events removed" in shown
    assert "are free again" in shown
    assert [log.events for log in list_logs(store)] == [0]
    assert main(["log", "trim", str(store), "--all", "--up-to", "latest"]) == 0
    assert "nothing was released" in capsys.readouterr().out
    assert main(["log", "verify", str(store)]) == 0


def test_a_running_broker_is_not_trimmed(tmp_path: Path, capsys: Captured) -> None:
    async def body() -> None:
        async with world(data=tmp_path):
            arguments = ["log", "trim", str(tmp_path / "b1"), "--all", "--up-to", "latest"]
            assert await asyncio.to_thread(main, arguments) == EXIT_DISK
            rm = ["durable", "rm", "desk", "--directory", str(tmp_path / "b1")]
            assert await asyncio.to_thread(main, rm) == EXIT_DISK

    run(body())
    assert capsys.readouterr().err.count(f"in use by process {os.getpid()}: stop it") == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--up-to", "latest"], "name the pubends"),
        (["quotes", "--all", "--up-to", "latest"], "name the pubends"),
        (["quotas", "--up-to", "latest"], "has no log of quotas; it has quotes"),
        (["quotes", "--up-to", "yesterday"], "neither a tick nor a time"),
    ],
)
def test_wrong_arguments_are_explained(
    tmp_path: Path, capsys: Captured, arguments: list[str], text: str
) -> None:
    run(prepare(tmp_path))
    assert main(["log", "trim", str(tmp_path / "b1"), *arguments]) == EXIT_WRONG_INPUT
    assert text in " ".join(capsys.readouterr().err.split())


def test_ticks_and_times_are_read() -> None:
    assert read_tick("1700000000000000") == 1_700_000_000_000_000
    assert read_tick("2026-03-01T09:30:00.5Z") == 1_772_357_400_500_000
    with pytest.raises(UsageError):
        read_tick("-5")


def test_a_removed_subscription_is_gone_after_the_start_and_others_remain(
    tmp_path: Path, capsys: Captured
) -> None:
    run(prepare(tmp_path))
    store = str(tmp_path / "b1")
    assert main(["durable", "rm", "desk", "--directory", store]) == 0
    assert "desk is removed; 1 durable subscription left" in capsys.readouterr().out
    assert main(["durable", "rm", "desk", "--directory", store]) == EXIT_WRONG_INPUT
    assert "there are: other" in capsys.readouterr().err

    async def names() -> list[str]:
        async with world(data=tmp_path) as nodes:
            return [*nodes["b1"].broker.components.registry.subscriptions]

    assert run(names()) == ["other"]


# --- a full disk -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 24 MiB."""
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(tmp_path)]
    if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small file system")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


async def publish_until_full(nodes: World) -> None:
    node = nodes["b1"]
    async with gapless.connect(node.url, deadline_s=2.0) as session:
        async with session.subscribe("TRUE", durable="desk", ack="manual"):
            pass
        try:
            async with session.publisher("quotes") as publisher:
                while node.failure is None:
                    await publisher.publish({"n": 1}, b"x" * 100_000)
        except GaplessError:
            pass
    await until(lambda: node.failure is not None)


def test_a_broker_that_filled_its_disk_starts_again_after_its_log_was_trimmed(
    small_disk: Path, capsys: Captured
) -> None:
    async def fill() -> None:
        unlimited = Parameters(all_logs_bytes_max=2**40)
        async with world(data=small_disk, parameters=unlimited) as nodes:
            await publish_until_full(nodes)
            assert isinstance(nodes["b1"].failure, DiskFullError)

    async def again() -> int:
        async with world(data=small_disk) as nodes, gapless.connect(nodes["b1"].url) as session:
            subscription = session.subscribe("TRUE", durable="desk", on_gap="report")
            async with subscription as events, session.publisher("quotes") as publisher:
                await publisher.publish({"n": 2}, b"x" * 100_000)
                assert (await events.get()).attributes["n"] == 2
                await until(lambda: events.gaps)
                return len(events.gaps)

    run(fill())
    store = str(small_disk / "b1")
    assert main(["log", "trim", store, "quotes", "--up-to", "latest", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["logs"][0]["events"] > 50
    assert answer["freed_bytes"] > 10_000_000
    assert run(again()) == 1
