"""A short tour of the content layer: filters, their algebra, and the matching index.

Run it with ``make tour``.
"""

from __future__ import annotations

import random
import time

from gapless import F, Filter, FilterSyntaxError, MatchIndex

FILTERS = 50_000
EVENTS = 2_000


def say(text: str) -> None:
    """Print a heading."""
    print(f"\n{text}")


def show_filters() -> None:
    """A filter is text or Python, with the same meaning."""
    say("A filter is text. Only true matches; a missing attribute is unknown, not false.")
    parsed = Filter("symbol IN ('IBM', 'SUN') AND NOT price <= 90")
    print(f"  {parsed}")
    events: list[dict[str, bool | int | float | str | None]] = [
        {"symbol": "IBM", "price": 95.5},
        {"symbol": "IBM", "price": 80},
        {"symbol": "IBM"},
        {"symbol": "IBM", "price": "high"},
    ]
    for event in events:
        print(f"    {parsed.matches(event)!s:5}  {event}")

    say("The same filter, built in Python:")
    built = F.symbol.in_("IBM", "SUN") & ~(F.price <= 90)
    print(f"  equal: {built == parsed}")

    say("Filters can be compared without any event:")
    for other in ("symbol = 'SUN' AND price BETWEEN 100 AND 110", "price > 50", "price < 50"):
        covers, intersects = parsed.covers(Filter(other)), parsed.intersects(Filter(other))
        print(f"  {other:45} covered: {covers!s:5}  intersects: {intersects}")


def show_an_error() -> None:
    """An error message shows the position of the mistake."""
    say("An error message shows the position of the mistake:")
    try:
        Filter("symbol = 'IBM' AND price >")
    except FilterSyntaxError as error:
        print("  " + str(error).replace("\n", "\n  "))


def show_matching() -> None:
    """Many filters, one event, all matches."""
    draw = random.Random(1)  # noqa: S311 - a seed, so that every run shows the same
    index = MatchIndex()
    filters = []
    for key in range(FILTERS):
        low = draw.randrange(1000)
        symbol = f"S{draw.randrange(1000)}"
        filters.append((F.symbol == symbol) & F.price.between(low, low + 50))
        index.add(key, filters[-1])
    events: list[dict[str, bool | int | float | str | None]] = [
        {"symbol": f"S{draw.randrange(1000)}", "price": draw.random() * 1000} for _ in range(EVENTS)
    ]
    say(f"{FILTERS:,} filters such as  {filters[0]}")

    started = time.perf_counter()
    results = [index.match(event) for event in events]
    each = (time.perf_counter() - started) / EVENTS
    found = sum(map(len, results))
    print(f"  index: {each * 1e6:9,.1f} µs an event, {found / EVENTS:.1f} matches an event")

    for each_filter in filters:  # the first use prepares a filter and must not be timed
        each_filter.matches(events[0])
    started = time.perf_counter()
    expected = {key for key, each_filter in enumerate(filters) if each_filter.matches(events[0])}
    one_by_one = time.perf_counter() - started
    agree = expected == set(results[0])
    print(f"  one by one: {one_by_one * 1e6:,.0f} µs for one event, the same answer: {agree}")


def main() -> None:
    """Run all parts of the tour in turn."""
    show_filters()
    show_an_error()
    show_matching()
    say('More: docs/filters.md, or  .venv/bin/gapless explain "price > 90" \'{"price": 95}\'')


if __name__ == "__main__":
    main()
