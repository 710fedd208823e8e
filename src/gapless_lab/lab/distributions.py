"""Distributions in a row: counts by value as text, and their statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from gapless_lab.lab.points import Plain, Row

__all__ = ["below", "counts_of", "described", "share_within"]

SHARES = {"median": 0.5, "p90": 0.9, "p99": 0.99}


def described(values: Iterable[int]) -> Row:
    """Return the columns of a distribution; the counts are JSON, because rows are flat."""
    counts = Counter(values)
    total = counts.total()
    found: Row = {"least": min(counts)}
    for name, share in SHARES.items():
        found[name] = _quantile(counts, share * total)
    found["most"] = max(counts)
    found["mean"] = round(sum(value * count for value, count in counts.items()) / total, 3)
    found["counts"] = msgspec.json.encode(dict(sorted(counts.items()))).decode()
    return found


def _quantile(counts: Mapping[int, int], rank: float) -> int:
    """Return the least value with this rank."""
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= rank:
            return value
    raise AssertionError("there is no such rank")


def counts_of(row: Mapping[str, Plain]) -> dict[int, int]:
    """Return the counts by value of a row."""
    held = row["counts"]
    assert isinstance(held, str)
    return msgspec.json.decode(held, type=dict[int, int])


def share_within(counts: Mapping[int, int], most: int) -> float:
    """Return the share of values up to a limit, in percent."""
    return (
        100 * sum(count for value, count in counts.items() if value <= most) / sum(counts.values())
    )


def below(counts: Mapping[int, int]) -> list[tuple[float, float]]:
    """Return the cumulative share of each value, in percent, from 0 on: for a chart."""
    dots, seen, total = [(float(min(counts)), 0.0)], 0, sum(counts.values())
    for value in sorted(counts):
        seen += counts[value]
        dots.append((float(value), 100 * seen / total))
    return dots
