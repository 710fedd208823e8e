"""The market: publishers of quotes, subscribers with their filters, and their brokers.

Beside the text of every filter stands an equivalent Python function. Brokers use the text, the
audit calls the function.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, Literal, NamedTuple

import msgspec

from gapless.core.ids import BrokerId
from gapless.runtime.overlay_config import OverlayConfig
from gapless_lab.demo.audit import Test

__all__ = [
    "TESTS",
    "DemoFilter",
    "DemoRoles",
    "PayloadHeader",
    "PublisherRole",
    "SubscriberRole",
    "assign_roles",
    "quotes",
]


class DemoFilter(NamedTuple):
    """A filter as text and as a function."""

    text: str
    test: Test
    pubends: frozenset[str] = frozenset({"nyse", "nasdaq", "lse", "tse"})
    """Pubends on which it can match; on the others a subscription does not start."""


EVERYTHING = DemoFilter("TRUE", lambda _: True)
BLUE = DemoFilter(
    "symbol LIKE 'I%' AND price > 100",
    lambda quote: str(quote["symbol"]).startswith("I") and quote["price"] > 100,
)
DESK_FIRST = DemoFilter(
    "symbol = 'IBM' AND price > 95",
    lambda quote: quote["symbol"] == "IBM" and quote["price"] > 95,
)
DESK_LATER = DemoFilter(
    "symbol IN ('SONY', 'VOD') OR volume >= 900",
    lambda quote: quote["symbol"] in {"SONY", "VOD"} or quote["volume"] >= 900,
)
LARGE = DemoFilter(
    "price * volume > 40000",
    lambda quote: quote["price"] * quote["volume"] > 40_000,
)
ABROAD = DemoFilter(
    "exchange <> 'NYSE' AND NOT (volume < 200)",
    lambda quote: quote["exchange"] != "NYSE" and quote["volume"] >= 200,
    frozenset({"nasdaq", "lse", "tse"}),
)
LONDON = DemoFilter(
    "exchange = 'LSE' AND price BETWEEN 20 AND 120",
    lambda quote: quote["exchange"] == "LSE" and 20 <= quote["price"] <= 120,
    frozenset({"lse"}),
)

TESTS: Final = {
    each.text: each.test
    for each in (EVERYTHING, BLUE, DESK_FIRST, DESK_LATER, LARGE, ABROAD, LONDON)
}
"""The functions of all filters, by text."""

_SYMBOLS: Final = {
    "NYSE": {"IBM": 100.0, "INTC": 110.0, "GE": 45.0, "KO": 60.0},
    "NASDAQ": {"AAPL": 180.0, "ISRG": 101.0, "MSFT": 240.0},
    "LSE": {"VOD": 70.0, "IHG": 99.0, "BP": 30.0, "RIO": 118.0},
    "TSE": {"SONY": 85.0, "TM": 140.0},
}


class PayloadHeader(msgspec.Struct, frozen=True):
    """The start of an event's payload: its publisher, and its number."""

    publisher: str
    number: int
    text: str = "a note of a broker of the old kind, with nothing that a filter could look at"


class PublisherRole(NamedTuple):
    """A publisher: its broker and its rate."""

    name: str
    exchange: str
    brokers: tuple[BrokerId, ...]
    share: float
    """Its fraction of all events."""
    deadline_s: float | None = None
    """How long it waits for a reply; None means without limit."""

    @property
    def pubend(self) -> str:
        """The pubend, which publishers of one exchange share."""
        return self.exchange.lower()


class SubscriberRole(NamedTuple):
    """A subscriber: its broker and its filter."""

    name: str
    filter: DemoFilter
    brokers: tuple[BrokerId, ...]
    is_durable: bool = False
    order: Literal["publisher", "total"] = "publisher"
    start: Literal["latest", "earliest"] = "latest"

    @property
    def story(self) -> str:
        """Describe the subscriber in a few words."""
        words = ["durable" if self.is_durable else "not durable"]
        if self.order == "total":
            words.append("total order")
        if self.start == "earliest":
            words.append("from the earliest")
        return f"{', '.join(words)}, at {' or '.join(self.brokers)}"


class DemoRoles(NamedTuple):
    """All clients, and the router that is killed."""

    publishers: tuple[PublisherRole, ...]
    subscribers: tuple[SubscriberRole, ...]
    router: BrokerId
    """An inner broker; its crash splits the tree."""

    def publisher(self, name: str) -> PublisherRole:
        """Return a publisher by name."""
        return next(each for each in self.publishers if each.name == name)

    def subscriber(self, name: str) -> SubscriberRole:
        """Return a subscriber by name."""
        return next(each for each in self.subscribers if each.name == name)


def assign_roles(overlay: OverlayConfig) -> DemoRoles:
    """Assign brokers to all clients, leaves of the tree if possible."""
    lonely = {cell.name for cell in overlay.topology.cells if len(cell.neighbours) <= 1}
    leaves = [broker for broker, cell in overlay.brokers if cell in lonely]
    inner = [broker for broker, cell in overlay.brokers if cell not in lonely] or leaves

    def leaf(index: int) -> BrokerId:
        return leaves[index % len(leaves)]

    nyse = (leaf(0),)
    return DemoRoles(
        publishers=(
            PublisherRole("nyse-1", "NYSE", nyse, 0.3),
            PublisherRole("nyse-2", "NYSE", nyse, 0.1),
            PublisherRole("nasdaq", "NASDAQ", (leaf(2),), 0.3),
            PublisherRole("lse", "LSE", (inner[-1],), 0.15),
            PublisherRole("tse", "TSE", (leaf(3),), 0.15, deadline_s=0.4),
        ),
        subscribers=(
            SubscriberRole("tape", EVERYTHING, (leaf(1),)),
            SubscriberRole("blue", BLUE, (leaf(2), inner[0])),
            SubscriberRole("desk", DESK_FIRST, (leaf(3),), is_durable=True),
            SubscriberRole("ledger", LARGE, (leaf(1),), is_durable=True, order="total"),
            SubscriberRole("abroad", ABROAD, (leaf(0),), is_durable=True),
            SubscriberRole("late", LONDON, (inner[0],), start="earliest"),
        ),
        router=inner[0],
    )


def quotes(exchange: str, random: Random) -> Iterator[dict[str, bool | int | float | str]]:
    """Yield quotes with prices that walk randomly around their base."""
    prices = dict(_SYMBOLS[exchange])
    names = sorted(prices)
    while True:
        symbol = random.choice(names)
        base_price = _SYMBOLS[exchange][symbol]
        step = random.gauss(0, 0.6) + (base_price - prices[symbol]) / 50
        prices[symbol] = max(1.0, round(prices[symbol] + step, 2))
        volume = random.choice((50, 100, 100, 200, 300, 500, 1_000))
        yield {
            "symbol": symbol,
            "price": prices[symbol],
            "volume": volume,
            "exchange": exchange,
        }
