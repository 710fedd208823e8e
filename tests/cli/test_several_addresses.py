"""``gapless sub`` with several addresses: its broker is killed for good; no loss, no duplicate."""

from __future__ import annotations

import json

import pytest

from gapless.cli.main import main
from tests.cli.overlays import Overlay, Running, events, gapless, overlay, running

Captured = pytest.CaptureFixture[str]


def index_of(brokers: Overlay, name: str) -> int:
    """Return the index of the broker with a name."""
    return [each["name"] for each in brokers.brokers].index(name)


def take(reader: Running, count: int) -> list[int]:
    """Return the numbers of the next printed events."""
    return [reader.line()["attributes"]["n"] for _ in range(count)]


def write(writer: Running, *numbers: int) -> None:
    """Let a command publish numbers."""
    assert writer.process.stdin is not None
    writer.process.stdin.write(events(*numbers))
    writer.process.stdin.flush()


def subscriptions_at(url: str, captured: Captured) -> int:
    """Return the number of subscriptions of a broker."""
    assert main(["subscriptions", "--json", "--url", url]) == 0
    return len(json.loads(captured.readouterr().out))


@pytest.mark.parametrize(
    ("durable", "spelled"),
    [((), "gapless://{},{}"), (("--durable", "desk"), "gapless://{},gapless://{}")],
    ids=["passing", "durable"],
)
def test_sub_continues_at_its_second_address_when_the_first_broker_is_killed(
    durable: tuple[str, ...], spelled: str, capsys: Captured
) -> None:
    with overlay("--no-restart", topology="line:2x2") as brokers:
        near, first, second = (
            brokers.url(index_of(brokers, name)) for name in ("b1a", "b2a", "b2b")
        )
        to = spelled.format(*(each.removeprefix("gapless://") for each in (first, second)))
        reading = ("sub", "n >= 0", "--start", "earliest", *durable, "--url", to)
        with (
            running("pub", "-p", "quotes", "--url", near) as writer,
            running(*reading, "--count", "501") as reader,
        ):
            write(writer, *range(100))
            assert take(reader, 100) == [*range(100)]
            assert [subscriptions_at(each, capsys) for each in (first, second)] == [1, 0]
            write(writer, *range(100, 300))
            seen = take(reader, 20)
            brokers.kill(
                index_of(brokers, "b2a")
            )  # the rest is printed, in flight, or not yet sent
            write(writer, *range(300, 500))
            assert seen + take(reader, 380) == [*range(100, 500)]
            assert subscriptions_at(second, capsys) == 1
            write(writer, 500, 501, 502)
            assert take(reader, 1) == [500]
            assert reader.wait() == 0, "a gap would change the exit code"
            again = gapless(*reading, "--count", "2")  # no broker is at the first address now
            numbers = [json.loads(line)["attributes"]["n"] for line in again.stdout.splitlines()]
            assert numbers == ([501, 502] if durable else [0, 1]), again.stderr
