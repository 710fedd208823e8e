"""A program as users write it, checked by mypy and run by a test of the public types."""

from __future__ import annotations

from datetime import UTC, datetime

import gapless
from gapless import Event, F, Position
from gapless.errors import GapError


async def use(url: str) -> tuple[Position, list[Event], Position]:
    """Publish and subscribe once."""
    started = datetime.now(UTC)
    async with gapless.connect(url, name="typed", deadline_s=20) as session:
        async with session.publisher("quotes", advertisement=F.price > 0) as publisher:
            position: Position = await publisher.publish({"symbol": "IBM", "price": 91.5}, b"...")
        found: list[Event] = []
        async with session.subscribe(F.symbol == "IBM", durable="desk", start=started) as events:
            try:
                async for event in events:
                    found.append(event)
                    price: bool | int | float | str = event.attributes["price"]
                    assert price == 91.5
                    payload: bytes = event.payload
                    assert payload == b"..."
                    break
            except GapError as gap:
                raise AssertionError(gap.low) from gap
            switch: Position = await events.set_filter("symbol = 'IBM' AND price > 90")
    return position, found, switch


def use_sync(url: str) -> list[str]:
    """Read the published events, without an event loop."""
    with gapless.connect_sync(url) as session:
        with session.subscribe("price > 0", start="earliest") as events:
            event: Event = events.get(deadline_s=20)
            return [event.pubend, str(event.position)]
