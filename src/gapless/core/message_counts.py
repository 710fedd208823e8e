"""How many messages of each kind a broker has sent to its peers and received from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

__all__ = ["MessageCount", "MessageCounts"]


class MessageCount(NamedTuple):
    """The number of messages of one kind in one direction."""

    direction: str
    """``in`` or ``out``."""
    kind: str
    number: int


class MessageCounts:
    """Counts messages, a packet at a time: the cost is a tenth of a microsecond for each."""

    __slots__ = ("_received", "_sent")

    def __init__(self) -> None:
        self._sent: dict[type, int] = {}
        self._received: dict[type, int] = {}

    def sent(self, messages: Iterable[Any]) -> None:
        """Count the messages of a packet that is sent."""
        _add(self._sent, messages)

    def received(self, messages: Iterable[Any]) -> None:
        """Count the messages of a packet that was received."""
        _add(self._received, messages)

    def __iter__(self) -> Iterator[MessageCount]:
        """Return all counts, in the order of kinds."""
        for direction, counts in (("in", self._received), ("out", self._sent)):
            for kind, number in sorted(counts.items(), key=lambda each: each[0].__name__):
                yield MessageCount(direction, kind.__name__, number)


def _add(counts: dict[type, int], messages: Iterable[Any]) -> None:
    for message in messages:
        kind = type(message)
        counts[kind] = counts.get(kind, 0) + 1
