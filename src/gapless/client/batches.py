"""Batches of events on their way to a pubend, and who waits for them.

Events gather in a batch until it is sent; its sequences are given when it is sent first. Until then
an event can be taken out again, and then it was surely not published. After that a batch stays as it
is until it is answered: it is sent again under its sequences over every new connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gapless.client.position import Position
from gapless.content.plain import are_plain
from gapless.content.values import Attributes, Value, check_attributes, check_value
from gapless.core.errors import AttributeValueError, GaplessError, UsageError
from gapless.core.ticks import Tick

__all__ = ["PublishBatch", "Receipt", "Waiter", "encoded", "encoded_plain"]

_ENCODE = msgspec.msgpack.Encoder().encode
_PLAIN = frozenset({bool, int, float, str})


def encoded(attributes: Attributes, payload: bytes | bytearray | memoryview) -> bytes:
    r"""Return an event as it travels; raise if it cannot be one.

    It is encoded at once, so that what its publisher changes later does not change it, and so that
    its size is known.

    >>> encoded({"price": 91.5}, b"...")[:1]
    b'\x92'
    """
    if type(payload) is not bytes and not isinstance(payload, bytearray | memoryview):
        raise UsageError(f"a payload is bytes, not a {type(payload).__name__}; encode it first")
    plain = type(attributes) is dict
    if not plain and not issubclass(type(attributes), Mapping):
        kind = type(attributes).__name__
        raise AttributeValueError(f"attributes are a mapping from names, not a {kind}")
    for name, value in attributes.items():
        if not (type(value) is float or (type(value) is str and value.isascii())):
            check_value(name, value)
            plain = plain and type(value) in _PLAIN
        if type(name) is not str or not name.isascii():
            check_attributes({name: value})
    if not plain:
        attributes = {
            name: _exact(value) for name, value in attributes.items() if value is not None
        }
    return _ENCODE((attributes, payload))


def _exact(value: Value) -> Value:
    """Return a value of a derived type, such as a float of numpy's, as what it is.

    >>> _exact(type("Money", (float,), {})(91.5))
    91.5
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return value if isinstance(value, bool) else int.__int__(value)


def encoded_plain(events: Sequence[object]) -> list[bytes] | None:
    """Return pairs of a dict and bytes as they travel, many at once; None if not all are such.

    >>> len(encoded_plain([({"price": 91.5}, b"...")])), encoded_plain([({"price": None}, b"")])
    (1, None)
    """
    if not are_plain(events):
        return None
    try:
        return [*map(_ENCODE, events)]
    except UnicodeEncodeError:
        return None


class Waiter(NamedTuple):
    """Somebody who waits for one event."""

    event_index: int
    future: asyncio.Future[Position]
    expires: float | None


class PublishBatch:
    """Events that are sent and answered together."""

    __slots__ = (
        "bytes",
        "count",
        "error",
        "events",
        "first",
        "future",
        "receipts",
        "request",
        "sendings",
        "sent_indices",
        "ticks",
        "waiters",
    )

    def __init__(self) -> None:
        self.events: list[bytes | None] = []
        """What was taken out again is None."""
        self.count = 0
        """How many were not taken out."""
        self.bytes = 0
        self.waiters: list[Waiter] = []
        self.receipts = 0
        """How many events have only a receipt, at which nobody has looked yet."""
        self.request = 0
        self.first = 0
        """The sequence of the first event; 0 until it is sent first."""
        self.sendings = 0
        """How often it was sent."""
        self.sent_indices: list[int] | None = None
        """For each event its place among those that were sent; None if none was taken out."""
        self.ticks: tuple[Tick, ...] | None = None
        self.error: GaplessError | None = None
        self.future: asyncio.Future[None] | None = None
        """Made when somebody waits for the whole batch."""

    @property
    def is_open(self) -> bool:
        """Whether more events may be added, and taken out again."""
        return self.first == 0

    @property
    def was_sent(self) -> bool:
        """Whether it may be published."""
        return self.sendings > 0

    @property
    def is_done(self) -> bool:
        """Whether its fate is known."""
        return self.ticks is not None or self.error is not None

    def add(self, event: bytes) -> int:
        """Add an event; return its index."""
        assert self.is_open
        self.events.append(event)
        self.bytes += len(event)
        self.count += 1
        return len(self.events) - 1

    def add_all(self, events: list[bytes], size: int) -> range:
        """Add events that have so many bytes together; return their indices."""
        assert self.is_open
        first = len(self.events)
        self.events += events
        self.bytes += size
        self.count += len(events)
        return range(first, len(self.events))

    def take_out(self, index: int) -> bool:
        """Take an event out, if that is still possible."""
        if not self.is_open or self.is_done:
            return False
        event = self.events[index]
        if event is None:
            return False
        self.bytes -= len(event)
        self.count -= 1
        self.events[index] = None
        return True

    def seal(self, request: int, first: int) -> None:
        """Give its sequences; from now on it stays as it is."""
        if None in self.events:
            self.sent_indices, sent_index = [], 0
            for event in self.events:
                self.sent_indices.append(-1 if event is None else sent_index)
                sent_index += event is not None
        self.request, self.first = request, first

    def note_sent(self) -> None:
        """The batch is sent, perhaps again."""
        self.sendings += 1

    def receipt(self, index: int, pubend: str, *, is_logged: bool) -> Receipt:
        """Return what stands for an event until its fate is known."""
        self.receipts += 1
        return Receipt(self, index, pubend, is_logged=is_logged)

    def receipt_seen(self) -> None:
        """Somebody has looked at the fate of an event by its receipt."""
        self.receipts -= 1

    def wire_events(self) -> Any:
        """Return the events as a part of a request, without encoding them again."""
        assert self.count, "an empty batch is not sent"
        head = _ENCODE((None,) * self.count)[: -self.count]  # of an array with a byte for each
        return msgspec.Raw(head + b"".join(filter(None, self.events)))

    # --- the outcome ---------------------------------------------------------------------------

    def succeed(self, ticks: tuple[Tick, ...], pubend: str, *, is_logged: bool) -> None:
        """Tell everybody where the events are."""
        self.ticks = ticks
        for index, future, _ in self.waiters:
            if not future.done():
                future.set_result(self._position(index, pubend, is_logged=is_logged))
        self.waiters = []
        self.events = []
        if self.future is not None and not self.future.done():
            self.future.set_result(None)

    def fail(self, error: GaplessError) -> None:
        """Tell everybody why there is no answer."""
        self.error = error
        for _, future, _ in self.waiters:
            if not future.done():
                future.set_exception(error)
        self.waiters = []
        self.events = []
        if self.future is not None and not self.future.done():
            self.future.set_result(None)  # who waits looks at the error

    def _position(self, index: int, pubend: str, *, is_logged: bool) -> Position:
        assert self.ticks is not None
        sent_index = index if self.sent_indices is None else self.sent_indices[index]
        return Position({pubend: self.ticks[sent_index]}) if is_logged else Position()

    def position(self, index: int, pubend: str, *, is_logged: bool) -> Position:
        """Return where an event is, once that is known; raise if it is nowhere."""
        if self.error is not None:
            raise self.error
        return self._position(index, pubend, is_logged=is_logged)

    async def done(self) -> None:
        """Wait until its fate is known."""
        if not self.is_done:
            if self.future is None:
                self.future = asyncio.get_running_loop().create_future()
            await asyncio.shield(self.future)


class Receipt:
    """Stands for an event that was given to a publisher; await it to know where the event is.

    It may be left alone: what becomes of the event shows in ``flush()`` too.
    """

    __slots__ = ("_batch", "_index", "_is_logged", "_is_seen", "_pubend")

    def __init__(self, batch: PublishBatch, index: int, pubend: str, *, is_logged: bool) -> None:
        self._batch = batch
        self._index = index
        self._pubend = pubend
        self._is_logged = is_logged
        self._is_seen = False

    @property
    def is_done(self) -> bool:
        """Whether the fate of the event is known."""
        return self._batch.is_done

    def __await__(self) -> Generator[Any, None, Position]:
        yield from self._batch.done().__await__()
        if not self._is_seen:
            self._is_seen = True
            self._batch.receipt_seen()
        return self._batch.position(self._index, self._pubend, is_logged=self._is_logged)
