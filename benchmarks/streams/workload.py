"""The events and filters: stock quotes of 250 bytes with four attributes."""

from __future__ import annotations

from random import Random
from typing import Final, TypeAlias

__all__ = [
    "PAYLOAD_BYTES",
    "SYMBOLS",
    "Quote",
    "expected_deliveries",
    "filters",
    "idle_filters",
    "quotes",
]

Quote: TypeAlias = tuple[dict[str, bool | int | float | str], bytes]

PAYLOAD_BYTES: Final = 250
SYMBOLS: Final = tuple(f"S{number:02}" for number in range(50))
PRICE_MAX: Final = 100


def quotes(count: int, seed: int = 1) -> list[Quote]:
    """Return quotes, the same in every run."""
    random = Random(seed)
    payload = random.randbytes(PAYLOAD_BYTES)
    return [
        (
            {
                "symbol": random.choice(SYMBOLS),
                "price": random.randrange(PRICE_MAX) + 0.5,
                "volume": random.randrange(10_000),
                "exchange": random.choice(("NYSE", "XETRA")),
            },
            payload,
        )
        for _ in range(count)
    ]


def filters(count: int) -> list[tuple[str, str, int]]:
    """Return filters that each match about one quote in a hundred: text, symbol, least price."""
    if count == 1:
        return [("volume >= 0", "", 0)]
    found = []
    for number in range(count):
        symbol, least = SYMBOLS[number % len(SYMBOLS)], PRICE_MAX // 2 + number % 7 - 3
        found.append((f"symbol = '{symbol}' AND price > {least}", symbol, least))
    return found


def idle_filters(count: int) -> list[str]:
    """Return filters that look like the others and match nothing."""
    return [f"symbol = 'N{number}' AND price > {number % PRICE_MAX}" for number in range(count)]


def expected_deliveries(published: list[Quote], wanted: list[tuple[str, str, int]]) -> int:
    """Return how many deliveries all subscriptions together must receive, by plain comparison."""
    if wanted[0][1] == "":
        return len(published) * len(wanted)
    by_symbol: dict[str, list[int]] = {}
    for _, symbol, least in wanted:
        by_symbol.setdefault(symbol, []).append(least)
    return sum(
        float(attributes["price"]) > least
        for attributes, _ in published
        for least in by_symbol.get(str(attributes["symbol"]), ())
    )
