"""The names and numbers of generated messages: those that mean something, and extreme ones.

Names come from small pools, so that what a run legitimately stores at the brokers is bounded, and
memory that grows is memory left behind.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec

from gapless.core.ids import PubendId, ShbId
from gapless.core.limits import (
    FILTER_PATTERN_MAX,
    FILTER_SEARCHES_MAX,
    FILTER_SEGMENT_MAX,
    FILTER_TEXT_MAX,
    INT_MAX,
    INT_MIN,
    NAME_MAX,
    SEQUENCE_MAX,
)

__all__ = [
    "BROKERS",
    "EXTREME_FILTERS",
    "EXTREME_INTS",
    "EXTREME_TEXTS",
    "HOSTILE",
    "OVERLAY",
    "PAIR_PUBEND",
    "PUBENDS",
    "Vocabulary",
    "tame_name",
]

OVERLAY: Final = "fuzz"
"""The name of the overlay."""

HOSTILE: Final = "a0"
"""The neighbour that the fuzzer plays. Its name is the first, so that it dials the others."""

BROKERS: Final = {"a0": "c0", "b1": "c1", "b2": "c2", "b3": "c3"}
"""The brokers of the overlay, a line, each with its cell."""

PAIR_PUBEND: Final = "pair"
"""The pubend of the healthy pair."""

PUBENDS: Final = tuple(f"f{number}" for number in range(6))
"""The pubends that attackers use."""

_DURABLES: Final = tuple(f"fd{number}" for number in range(8))
_PUBLISHERS: Final = tuple(f"fp{number}" for number in range(8))

EXTREME_INTS: Final = (
    *(0, 1, -1, 2, 255, 65_535, 65_536, 2**31 - 1, 2**31, 2**32, 2**53 + 1),
    *(SEQUENCE_MAX, SEQUENCE_MAX + 1, INT_MAX - 1, INT_MAX, INT_MIN, INT_MIN + 1),
    *(2**63, 2**64 - 1),
)
"""Integers at limits; the last two are valid in msgpack, but have more than 63 bits."""

EXTREME_FLOATS: Final = (0.0, -0.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), 1e19)

EXTREME_TEXTS: Final = (
    *(
        "",
        " ",
        "\0",
        "\x1b[2J",
        "\u202ename",
        "é" * 40,
        "𝄞",
        "a\nb",
        "../..",
        "a@b@c",
        "#1",
        "TRUE",
    ),
    *("n" * NAME_MAX, "n" * (NAME_MAX + 1), "n" * 5_000, "b1@c1", "a0", "%", "'"),
)
"""Names that are unusual, too long, or look like something else."""


def _product(factors: int) -> str:
    return " AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(factors))


EXTREME_FILTERS: Final = (
    *("", "FALSE", "a", "a =", "((((", "NOT", "1 = 1", "a = 'x", "a LIKE '%' ESCAPE ''"),
    "(" * 99 + "a = 1" + ")" * 99,
    "(" * 20_000,
    "NOT " * 16_000 + "a",
    "-" * 60_000 + "1 = a",
    " OR ".join(f"a = {number}" for number in range(4_000)),
    " AND ".join(f"a{number} > {number}" for number in range(3_000)),
    _product(8),
    _product(9),
    _product(40),
    "a IN (" + ", ".join(f"'{number}'" for number in range(5_000)) + ")",
    "a LIKE '" + "_%" * (FILTER_PATTERN_MAX // 2) + "'",
    "a LIKE '%" + "a_" * 2_000 + "%'",
    "p LIKE '%" + "a_" * (FILTER_SEGMENT_MAX // 2) + "%'",
    "p LIKE '%" + "a_a%" * (FILTER_SEARCHES_MAX - 1) + "'",
    " AND ".join(f"p LIKE '%a_b{number}%'" for number in range(FILTER_SEARCHES_MAX)),
    " OR ".join(f"p LIKE '%ab{number}%'" for number in range(FILTER_SEARCHES_MAX + 1)),
    "a = " + "9" * 60_000,
    "a + " * 97 + "a = 1",
    "x" * FILTER_TEXT_MAX,
    "x" * (FILTER_TEXT_MAX + 1),
)
"""Filters that are wrong, at a limit, or expensive."""

_FILTERS: Final = (
    *("TRUE", "FALSE", "a = 1", "price > 90", "symbol = 'IBM' AND price > 90"),
    *("a = 1 OR b = 2", "symbol LIKE 'I%'", "NOT (a = 1)", "hot = TRUE", "a BETWEEN 1 AND 5"),
)

_ATTRIBUTE_NAMES: Final = ("a", "b", "symbol", "price", "hot", "p", "", "n" * 300, "\0")


def tame_name(name: str) -> str:
    """Return the name itself if it comes from a pool, otherwise one of few others.

    >>> tame_name("f1"), tame_name("some other name")
    ('f1', 'm7')
    """
    if name in _KNOWN_NAMES:
        return name
    return f"m{sum(name.encode(errors='replace')) % _TAMED_NAMES}"


_TAMED_NAMES: Final = 8
_KNOWN_NAMES: Final = {
    *(*PUBENDS, *_DURABLES, *_PUBLISHERS, *BROKERS, *BROKERS.values(), *EXTREME_TEXTS),
    PAIR_PUBEND,
}


class Vocabulary:
    """The values that mean something at present, and a generator.

    ``is_peer``: a neighbour states nothing about the healthy pair's pubend and brokers, because a
    neighbour with a valid handshake is believed.
    """

    def __init__(self, random: Random, now_us: int, *, is_peer: bool) -> None:
        self.random = random
        self.now_us = now_us
        self.request = 0
        self.numbers: list[int] = [1, 2, 3]
        """Numbers that the broker has sent: sessions, sequences, ticks."""
        self.pubends = [*PUBENDS] if is_peer else [*PUBENDS, PAIR_PUBEND]
        self.is_peer = is_peer
        self.keys: list[Any] = []
        """Keys of the questions that the broker has asked last: answers use them again."""

    def integer(self, field: str) -> int:
        """Return an integer that may be meant."""
        random = self.random
        if field == "request":
            self.request += 1
            return self.request
        drawn = random.random()
        if drawn < 0.5:
            return random.randrange(4)
        if drawn < 0.75:
            return random.choice(self.numbers)
        return self.now_us + random.randrange(-10_000_000, 10_000_000)

    def text(self, field: str) -> str:
        """Return a text that a field of this name may contain."""
        random = self.random
        match field:
            case "filter" | "advertisement" | "conjunctions" | "added" | "removed":
                return random.choice(_FILTERS)
            case "subscription":
                return random.choice(_DURABLES)
            case "publisher" | "writer" | "attempt":
                return random.choice(_PUBLISHERS)
            case "broker" | "requester" | "target" | "detector" | "route" | "excluded":
                return random.choice(("a0", "b1", "x9") if self.is_peer else ("a0", "x9"))
            case "cell" | "cells" | "path" | "neighbours" | "path_epochs":
                return random.choice(("c0", "c1", "c9"))
            case "direction" | "receiver":
                return random.choice(("c0", "c1", "a0@c0", "b1@c1", "c9"))
            case "name":
                return random.choice(self.pubends)
            case "attributes" | "events":
                return random.choice(_ATTRIBUTE_NAMES)
            case "incarnation_key":
                return random.choice(("key1", "key2", "key3"))
            case _:
                return random.choice(("reason", "b1", "f1"))

    def extreme_text(self, field: str) -> str:
        """Return a text that is hardly meant."""
        if field in {"filter", "advertisement", "conjunctions", "added", "removed"}:
            return self.random.choice(EXTREME_FILTERS)
        return self.random.choice(EXTREME_TEXTS)

    def pubend(self) -> PubendId:
        """Return a pubend."""
        return PubendId(self.random.choice(self.pubends), 1)

    def shb(self) -> ShbId:
        """Return an SHB."""
        broker = self.random.choice(("a0", "b1"))
        return ShbId(broker, BROKERS[broker])

    def learn(self, message: Any) -> None:
        """Remember the numbers of a message of the broker, to use them again."""
        found = [each for each in msgspec.structs.astuple(message) if type(each) is int]
        self.numbers = [*self.numbers, *found][-32:]
        key = getattr(message, "key", None)
        if isinstance(key, tuple):
            self.keys = [*self.keys, [*key]][-8:]
