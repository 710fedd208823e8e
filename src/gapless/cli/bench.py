"""``gapless bench``: a quick measurement of an overlay on this computer.

One publisher at the first broker and one subscriber at the last, both in this process. It first
measures the throughput, then the delay of single events. The complete benchmarks are in the folder
``benchmarks``.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from gapless.cli.options import AsJson, settle
from gapless.cli.output import console, facts, print_json

if TYPE_CHECKING:
    from gapless.client import Publisher, Subscription

__all__ = ["bench"]

DRAIN_S: Final = 60.0
"""How long the last events may take to arrive."""

PACED_EVENTS: Final = 500
PACED_PAUSE_S: Final = 0.005


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The result and the settings of a measurement."""

    topology: str
    brokers: int
    payload_bytes: int
    durable: bool
    seconds: float
    events: int
    events_a_second: float
    """From the first event sent to the last received."""
    delay_ms_median: float
    delay_ms_p99: float
    """Of single events, from before it was sent until the subscriber has received it."""


def bench(
    context: typer.Context,
    *,
    topology: Annotated[
        str, typer.Option(metavar="TREE", help="line:3, star:5x2, tree:2x3 or a .toml file.")
    ] = "line:2",
    seconds: Annotated[float, typer.Option(min=0.1, help="How long to publish.")] = 3.0,
    payload: Annotated[int, typer.Option(min=0, max=1_000_000, help="Bytes per event.")] = 100,
    durable: Annotated[bool, typer.Option("--durable", help="With acknowledgements.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure an overlay on this computer: events per second, and their delay."""
    from gapless.cli.broker_calls import run
    from gapless.runtime.overlay_config import overlay_of

    settle(context, as_json=as_json)
    overlay = overlay_of(topology)
    screen = _Screen(as_json=as_json)
    with tempfile.TemporaryDirectory(prefix="gapless-") as directory:
        work = _measure(overlay, Path(directory), seconds, payload, durable, screen)
        events, taken, delays = run(work)
    measured = Measured(
        topology=topology,
        brokers=len(overlay.brokers),
        payload_bytes=payload,
        durable=durable,
        seconds=round(taken, 3),
        events=events,
        events_a_second=round(events / taken, 1),
        delay_ms_median=_quantile(delays, 0.5),
        delay_ms_p99=_quantile(delays, 0.99),
    )
    if as_json:
        print_json(measured)
    else:
        _show(measured)


class _Screen:
    """Shows the progress on a terminal."""

    def __init__(self, *, as_json: bool) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._quiet = as_json or not self._console.is_terminal

    def say(self, what: str) -> None:
        if not self._quiet:
            self._console.print(what, style="dim")


async def _measure(
    overlay: Any, directory: Path, seconds: float, payload: int, durable: bool, screen: _Screen
) -> tuple[int, float, list[float]]:
    from gapless.client import connect
    from gapless.runtime.supervisor import Supervisor

    screen.say(f"starting {len(overlay.brokers)} brokers …")
    async with Supervisor(overlay, directory, port=0) as supervisor:
        urls = supervisor.urls
        async with (
            connect(urls[0]) as first,
            connect(urls[-1]) as last,
            first.publisher("bench") as publisher,
        ):
            # from the earliest, so that the order of the two does not matter
            name = "bench" if durable else None
            async with last.subscribe("n >= 0", durable=name, start="earliest") as subscription:
                await publisher.publish({"n": 0})
                await subscription.next_batch(deadline_s=DRAIN_S)
                screen.say(f"publishing for {seconds:g} s …")
                events, taken = await _flood(publisher, subscription, seconds, payload)
                screen.say("measuring delays …")
                delays = await _pace(publisher, subscription, payload)
    return events, taken, delays


async def _flood(
    publisher: Publisher, subscription: Subscription, seconds: float, payload: int
) -> tuple[int, float]:
    """Publish as fast as possible; return how many events were received, and in what time."""
    body, sent, is_over = b"x" * payload, 0, False

    async def publish() -> None:
        nonlocal sent, is_over
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for _ in range(100):
                await publisher.send({"n": sent}, body)
                sent += 1
        await publisher.flush()
        is_over = True

    began = time.perf_counter()
    publishing = asyncio.create_task(publish())
    received = 0
    async with asyncio.timeout(seconds + DRAIN_S):
        while not is_over or received < sent:
            if is_over or received < sent:
                received += len(await subscription.next_batch())
            else:
                await asyncio.sleep(0)
    taken = time.perf_counter() - began
    await publishing
    return received, taken


async def _pace(publisher: Publisher, subscription: Subscription, payload: int) -> list[float]:
    """Publish one event at a time; return the delays in milliseconds."""
    body, delays = b"x" * payload, []
    for number in range(PACED_EVENTS):
        began = time.perf_counter()
        await publisher.send({"n": number}, body)
        await subscription.next_batch()
        delays.append((time.perf_counter() - began) * 1_000)
        await asyncio.sleep(PACED_PAUSE_S)
    await publisher.flush()
    return sorted(delays)


def _quantile(ordered: list[float], part: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * part))], 3)


def _show(measured: Measured) -> None:
    delay = f"{measured.delay_ms_median:g} ms median, {measured.delay_ms_p99:g} ms at most for 99 %"
    rows = [
        ("overlay", f"{measured.topology}, {measured.brokers} brokers on this computer"),
        ("events", f"{measured.events:,} of {measured.payload_bytes} bytes, stored and delivered"),
        ("speed", f"{measured.events_a_second:,.0f} events a second"),
        ("delay", delay),
    ]
    console().print(facts(rows))
