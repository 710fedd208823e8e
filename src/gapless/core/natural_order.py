"""The order in which people count names: b10 comes after b2."""

from __future__ import annotations

import re

__all__ = ["natural_key"]


def natural_key(name: str) -> tuple[tuple[str, int], ...]:
    """Return the sort key of a name: b10 comes after b2, and b10a after b2b.

    >>> sorted(["b10", "b2b", "b10a", "b2"], key=natural_key)
    ['b2', 'b2b', 'b10', 'b10a']
    """
    parts = re.split("([0-9]+)", name)
    return tuple(zip(parts[::2], (int(each) for each in [*parts[1::2], "0"]), strict=True))
