"""Filters and events for benchmarks, the same in every run.

A workload has its filters in three equivalent forms: selector texts, Python expressions over an
event ``d`` (for a scan of compiled functions), and rows of a table (for the databases). Filters are
numbered from 0; events are dicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "FAMILIES",
    "Event",
    "Family",
    "Table",
    "Workload",
    "nested_texts",
    "ranges",
    "topics",
]

Event: TypeAlias = dict[str, bool | int | float | str | None]
_Floats: TypeAlias = npt.NDArray[np.float64]
_Ints: TypeAlias = npt.NDArray[np.int64]

SYMBOLS = 10_000
RANGE_ATTRIBUTES = 20
RANGES_PER_FILTER = 5
RANGE_DOMAIN = 1_000.0
RANGE_WIDTHS = (1 / 10, 1 / 3)
WIDE_RANGE_WIDTHS = (1 / 3, 1 / 2)
"""The least and the greatest part of the domain that a range of W4 takes."""


class Table(NamedTuple):
    """Filters as rows; ``{name}`` in the condition stands for the event's value of ``name``."""

    columns: dict[str, str]
    rows: Callable[[], Iterator[tuple[Any, ...]]]
    indexed: tuple[str, ...]
    condition: str


@dataclass(frozen=True, slots=True)
class Workload:
    """A number of filters, and events to match with them."""

    name: str
    size: int
    texts: Callable[[], Iterator[str]]
    sources: Callable[[], Iterator[str]]
    table: Table | None
    events: Sequence[Event]

    @property
    def title(self) -> str:
        """The name with the number of filters."""
        return f"{self.name} {self.size:,}"


Family: TypeAlias = Callable[[int, int], Workload]
"""Makes a workload with a number of filters and a number of events."""


def _zipf(generator: np.random.Generator, ranks: int, count: int) -> _Ints:
    """Draw ranks from 0 on, each with a probability of one by its position."""
    weights = 1.0 / np.arange(1, ranks + 1)
    drawn = generator.choice(ranks, size=count, p=weights / weights.sum())
    return np.asarray(drawn, dtype=np.int64)


# --- W1: quotes ---------------------------------------------------------------------------------


def wide_quotes(size: int, events: int) -> Workload:
    """W1 with wider ranges: an event matches about three per cent of its symbol's filters."""
    return quotes(size, events, wide=True)


def quotes(size: int, events: int, *, wide: bool = False) -> Workload:
    """W1: ``symbol = s AND price BETWEEN a AND b AND volume BETWEEN c AND d``.

    Symbols are drawn by Zipf's law for filters and events alike. A symbol has its price level;
    prices scatter around it, and so do the ranges, so that an event matches about one per cent
    of its symbol's filters.
    """
    generator = np.random.default_rng((1, size))
    levels = np.random.default_rng(1).lognormal(4.0, 1.0, SYMBOLS)
    symbol = _zipf(generator, SYMBOLS, size)
    centre = levels[symbol] * generator.normal(1.0, 0.1, size)
    reach = levels[symbol] * generator.uniform(*((0.01, 0.05) if wide else (0.005, 0.02)), size)
    low, high = np.round(centre - reach, 2), np.round(centre + reach, 2)
    usual = generator.lognormal(7.0, 1.2, size)
    below, above = (0.7, 1.43) if wide else (0.8, 1.25)
    least, most = (usual * below).astype(np.int64), (usual * above).astype(np.int64) + 1

    def rows() -> Iterator[tuple[Any, ...]]:
        for at in range(0, size, 10_000):
            part = slice(at, at + 10_000)
            columns = (symbol, low, high, least, most)
            for s, a, b, c, d in zip(*(column[part].tolist() for column in columns), strict=True):
                yield f"S{s}", a, b, c, d

    def texts() -> Iterator[str]:
        for s, a, b, c, d in rows():
            yield f"symbol = '{s}' AND price BETWEEN {a} AND {b} AND volume BETWEEN {c} AND {d}"

    def sources() -> Iterator[str]:
        for s, a, b, c, d in rows():
            yield f"d['symbol'] == {s!r} and {a} <= d['price'] <= {b} and {c} <= d['volume'] <= {d}"

    table = Table(
        {"symbol": "TEXT", "a": "DOUBLE", "b": "DOUBLE", "c": "BIGINT", "d": "BIGINT"},
        rows,
        ("symbol", "a", "b", "c", "d"),
        "symbol = {symbol} AND a <= {price} AND b >= {price} AND c <= {volume} AND d >= {volume}",
    )
    name = "W1 wide" if wide else "W1"
    return Workload(name, size, texts, sources, table, _quote_events(levels, events))


def _quote_events(levels: _Floats, count: int) -> list[Event]:
    generator = np.random.default_rng(101)
    symbol = _zipf(generator, SYMBOLS, count)
    price = np.round(levels[symbol] * generator.normal(1.0, 0.1, count), 2).tolist()
    volume = generator.lognormal(7.0, 1.2, count).astype(np.int64).tolist()
    return [
        {"symbol": f"S{s}", "price": p, "volume": v}
        for s, p, v in zip(symbol.tolist(), price, volume, strict=True)
    ]


# --- W2 and W3: one attribute -------------------------------------------------------------------


def thresholds(size: int, events: int) -> Workload:
    """W2: ``a > v`` with v by Zipf's law on 1 to 20; events are even, and match about 72 %."""
    bounds = (_zipf(np.random.default_rng((2, size)), 20, size) + 1).tolist()
    values = (np.random.default_rng(102).permutation(events) % 20 + 1).tolist()
    return Workload(
        "W2",
        size,
        lambda: (f"a > {bound}" for bound in bounds),
        lambda: (f"d['a'] > {bound}" for bound in bounds),
        Table({"v": "BIGINT"}, lambda: ((bound,) for bound in bounds), ("v",), "v < {a}"),
        [{"a": value} for value in values],
    )


def points(size: int, events: int) -> Workload:
    """W3: ``a = v`` with v from 10,000 values."""
    wanted = np.random.default_rng((3, size)).integers(0, 10_000, size).tolist()
    values = np.random.default_rng(103).integers(0, 10_000, events).tolist()
    return Workload(
        "W3",
        size,
        lambda: (f"a = {value}" for value in wanted),
        lambda: (f"d['a'] == {value}" for value in wanted),
        Table({"v": "BIGINT"}, lambda: ((value,) for value in wanted), ("v",), "v = {a}"),
        [{"a": value} for value in values],
    )


# --- W4: ranges without an equality -------------------------------------------------------------


def ranges(size: int, events: int, widths: tuple[float, float] = RANGE_WIDTHS) -> Workload:
    """W4: five ranges out of twenty attributes, each a tenth to a third of the domain wide."""
    generator = np.random.default_rng((4, size))
    shape = (size, RANGES_PER_FILTER)
    width = generator.uniform(*widths, shape) * RANGE_DOMAIN
    chosen = _some_attributes(generator, size)
    low = generator.uniform(0, 1, shape) * (RANGE_DOMAIN - width)
    name = "W4" if widths == RANGE_WIDTHS else "W4 wide"
    return _range_workload(name, chosen, low, low + width, events)


def wide_ranges(size: int, events: int) -> Workload:
    """W4 with ranges a third to a half of the domain wide: events match far more."""
    return ranges(size, events, WIDE_RANGE_WIDTHS)


def topics(size: int, events: int) -> Workload:
    """W4 with interests in common: each filter is a slightly different view of one of 100 topics.

    A topic is five ranges out of twenty attributes, a fifth to two fifths of the domain wide.
    """
    generator = np.random.default_rng((7, size))
    count = 100
    of = generator.integers(0, count, size)
    shape = (size, RANGES_PER_FILTER)
    width = generator.uniform(1 / 5, 2 / 5, (count, RANGES_PER_FILTER)) * RANGE_DOMAIN
    low = generator.uniform(0, 1, width.shape) * (RANGE_DOMAIN - width)
    cut_below, cut_above = (generator.uniform(0, 0.2, shape) * width[of] for _ in range(2))
    chosen = _some_attributes(generator, count)[of]
    return _range_workload(
        "W4 by topic", chosen, low[of] + cut_below, (low + width)[of] - cut_above, events
    )


def _some_attributes(generator: np.random.Generator, count: int) -> _Ints:
    """Draw five different attributes out of twenty, this many times."""
    lots = np.argsort(generator.random((count, RANGE_ATTRIBUTES)), axis=1)
    return np.asarray(np.sort(lots[:, :RANGES_PER_FILTER], axis=1), dtype=np.int64)


def _range_workload(
    name: str, chosen: _Ints, exact_low: _Floats, exact_high: _Floats, events: int
) -> Workload:
    size = len(chosen)
    names = [f"x{number}" for number in range(RANGE_ATTRIBUTES)]
    low, high = np.round(exact_low, 2), np.round(exact_high, 2)

    def filters() -> Iterator[list[tuple[int, float, float]]]:
        for at in range(size):
            yield list(zip(*(part[at].tolist() for part in (chosen, low, high)), strict=True))

    def rows() -> Iterator[tuple[Any, ...]]:
        for parts in filters():
            row: list[float | None] = [None] * (2 * RANGE_ATTRIBUTES)
            for number, a, b in parts:
                row[2 * number], row[2 * number + 1] = a, b
            yield tuple(row)

    def texts() -> Iterator[str]:
        for parts in filters():
            yield " AND ".join(f"{names[n]} BETWEEN {a} AND {b}" for n, a, b in parts)

    def sources() -> Iterator[str]:
        for parts in filters():
            yield " and ".join(f"{a} <= d['{names[n]}'] <= {b}" for n, a, b in parts)

    table = Table(
        {f"{end}_{name}": "DOUBLE" for name in names for end in ("low", "high")},
        rows,
        (),
        " AND ".join(
            f"(low_{n} IS NULL OR low_{n} <= {{{n}}} AND high_{n} >= {{{n}}})" for n in names
        ),
    )
    drawn = np.random.default_rng(104).uniform(0, RANGE_DOMAIN, (events, RANGE_ATTRIBUTES))
    values = np.round(drawn, 2).tolist()
    sample: list[Event] = [dict(zip(names, event, strict=True)) for event in values]
    return Workload(name, size, texts, sources, table, sample)


# --- W5: many types of events -------------------------------------------------------------------

_TYPES = 200
_TYPE_ATTRIBUTES = 10
_ATTRIBUTES = 500
_WORDS = 2_000


class _Draw:
    """Random choices, drawn in blocks because single draws from NumPy are slow."""

    def __init__(self, *seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        self._block: list[float] = []

    def below(self, bound: int) -> int:
        if not self._block:
            self._block = self._generator.random(4_096).tolist()
        return int(self._block.pop() * bound)

    def several(self, bound: int, count: int) -> list[int]:
        chosen: dict[int, None] = {}
        while len(chosen) < count:
            chosen[self.below(bound)] = None
        return list(chosen)


def _is_text(attribute: int) -> bool:
    return attribute % 3 == 0


def _word(number: int) -> str:
    """Return one of the words, spread over the alphabet: ``w`` and four letters."""
    mixed = (number * 7_919) % 456_976
    letters = ""
    for _ in range(4):
        mixed, letter = divmod(mixed, 26)
        letters += chr(ord("a") + letter)
    return letters


def _types() -> list[list[int]]:
    draw = _Draw(5)
    return [draw.several(_ATTRIBUTES, _TYPE_ATTRIBUTES) for _ in range(_TYPES)]


def _condition(attribute: int, draw: _Draw) -> tuple[str, str]:
    """Return a condition on an attribute as a selector and as a Python expression."""
    name = f"p{attribute}"
    kind = draw.below(10)
    present = f"(v := d.get('{name}')) is not None and "
    if _is_text(attribute):
        word = _word(draw.below(_WORDS))
        if kind < 5:
            return f"{name} LIKE '{word[:2]}%'", f"{present}v.startswith('{word[:2]}')"
        if kind < 7:
            words = tuple(sorted({word, *(_word(draw.below(_WORDS)) for _ in range(4))}))
            return f"{name} IN {words}", f"d.get('{name}') in {words}"
        return f"{name} <> '{word}'", f"{present}v != '{word}'"
    if kind < 7:
        low = draw.below(800)
        high = low + 20 + draw.below(180)
        return f"{name} BETWEEN {low} AND {high}", f"{present}{low} <= v <= {high}"
    if kind < 9:
        bound = 700 + draw.below(300)
        return f"{name} > {bound}", f"{present}v > {bound}"
    return f"{name} <> {kind}", f"{present}v != {kind}"


def _mixed_filter(attributes: list[int], draw: _Draw) -> tuple[str, str]:
    picked = draw.several(_TYPE_ATTRIBUTES, 2 + draw.below(3))
    parts = [_condition(attributes[at], draw) for at in picked]
    if draw.below(10) == 0:  # an attribute of other types must be missing
        absent = f"p{draw.below(_ATTRIBUTES)}"
        parts.append((f"{absent} IS NULL", f"d.get('{absent}') is None"))
    if draw.below(10) == 0:  # the last two as alternatives
        (first, first_source), (second, second_source) = parts[-2:]
        parts[-2:] = [(f"({first} OR {second})", f"({first_source} or {second_source})")]
    return " AND ".join(text for text, _ in parts), " and ".join(source for _, source in parts)


def mixture(size: int, events: int) -> Workload:
    """W5: 200 types of events with ten attributes each, out of 500; filters that fit the types.

    Two to four conditions: ranges, prefixes, IN, ``<>``; now and then IS NULL or a disjunction.
    """
    types = _types()

    def filters() -> Iterator[tuple[str, str]]:
        draw = _Draw(5, size)
        for _ in range(size):
            yield _mixed_filter(types[draw.below(_TYPES)], draw)

    draw = _Draw(105)
    sample: list[Event] = [
        {
            f"p{attribute}": _word(draw.below(_WORDS)) if _is_text(attribute) else draw.below(1_000)
            for attribute in types[draw.below(_TYPES)]
        }
        for _ in range(events)
    ]
    return Workload(
        "W5",
        size,
        lambda: (text for text, _ in filters()),
        lambda: (source for _, source in filters()),
        None,
        sample,
    )


# --- a set in which coverings are common --------------------------------------------------------


def nested_texts(size: int) -> Iterator[str]:
    """Ranges on one to three of twenty attributes, of widely varying widths, many inside others.

    Two thirds narrow one that was drawn before, perhaps by one attribute more; they come in any
    order.
    """
    draw = _Draw(6, size)
    drawn: list[dict[int, tuple[int, int]]] = []
    for _ in range(size):
        if drawn and draw.below(3):
            drawn.append(_narrower(drawn[draw.below(len(drawn))], draw))
        else:
            drawn.append(_outermost(draw))
    for at in np.random.default_rng((6, size)).permutation(size).tolist():
        parts = sorted(drawn[at].items())
        yield " AND ".join(f"x{number} BETWEEN {low} AND {high}" for number, (low, high) in parts)


def _outermost(draw: _Draw) -> dict[int, tuple[int, int]]:
    """Return new ranges, the narrower the fewer they are; otherwise a few would cover all others."""
    count = 1 + draw.below(3)
    most = (300, 30_000, 200_000)[count - 1]
    result = {}
    for number in draw.several(RANGE_ATTRIBUTES, count):
        start = draw.below(1_000_000)
        result[number] = _inside(start, start + most, draw)
    return result


def _narrower(ranges_: dict[int, tuple[int, int]], draw: _Draw) -> dict[int, tuple[int, int]]:
    """Return ranges inside the given ones; now and then one attribute more."""
    result = {
        number: _inside(low, high, draw) if draw.below(2) else (low, high)
        for number, (low, high) in ranges_.items()
    }
    if len(result) < 3 and draw.below(2):
        result.setdefault(draw.below(RANGE_ATTRIBUTES), _inside(0, 1_000_000, draw))
    return result


def _inside(low: int, high: int, draw: _Draw) -> tuple[int, int]:
    """Return a range inside a range: from all of it down to a thousandth."""
    width = int((high - low) * 0.001 ** (draw.below(1_000) / 1_000))
    start = low + draw.below(high - low - width + 1)
    return start, start + width


FAMILIES: dict[str, Family] = {
    "W1": quotes,
    "W1 wide": wide_quotes,
    "W2": thresholds,
    "W3": points,
    "W4": ranges,
    "W4 wide": wide_ranges,
    "W5": mixture,
}
"""The workloads by name."""
