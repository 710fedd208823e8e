"""Detection and measurement of plain events in Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, cast

from gapless.core.limits import INT_MAX, INT_MIN

__all__ = ["are_plain", "size_bound"]

_PLAIN = frozenset({bool, int, float, str})

_ITEM_BYTES = 16
"""More than the heads of a value and of its container have together."""


def are_plain(events: Sequence[object]) -> bool:
    """Return whether all events are pairs of a dict and bytes, the dict from texts to values.

    Derived types are not plain. Lone surrogates are not checked; encoding a text finds them.

    >>> are_plain([({"price": 91.5}, b"...")]), are_plain([({"price": None}, b"")])
    (True, False)
    """
    if not _are_all(tuple, events):
        return False
    pairs = cast("Sequence[tuple[Any, ...]]", events)
    if not {2}.issuperset(map(len, pairs)):
        return False
    if not _are_all(dict, [pair[0] for pair in pairs]):
        return False
    if not _are_all(bytes, [pair[1] for pair in pairs]):
        return False
    if not _are_all(str, chain.from_iterable(pair[0] for pair in pairs)):
        return False
    values = [*chain.from_iterable(pair[0].values() for pair in pairs)]
    return _PLAIN.issuperset(map(type, values)) and all(
        INT_MIN <= value <= INT_MAX for value in values if type(value) is int
    )


def _are_all(kind: type, things: Iterable[object]) -> bool:
    """Return whether all objects are exactly of one type."""
    return {kind}.issuperset(map(type, things))


def size_bound(events: Sequence[tuple[dict[str, Any], bytes]]) -> int:
    """Return a number of bytes that the encoding of plain events does not exceed.

    >>> size_bound([({"price": 91.5}, b"...")])
    40
    """
    payloads = sum(len(payload) for _, payload in events)
    texts = [text for attributes, _ in events for text in attributes]
    texts += [
        value for attributes, _ in events for value in attributes.values() if type(value) is str
    ]
    items = len(events) + sum(len(attributes) for attributes, _ in events)
    return _ITEM_BYTES * items + payloads + sum(map(_text_bound, texts))


def _text_bound(text: str) -> int:
    return len(text) * (1 if text.isascii() else 4)
