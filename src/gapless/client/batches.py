"""Batches of events that are sent to a pubend, and the calls that wait for them.

Events are added to a batch until it is sealed for its first sending, when it gets its sequences.
Until then an event can be removed again; a removed event was surely not published. After that a
batch does not change until it is answered: it is sent again under its sequences over every new
connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from gapless.client.position import Position
from gapless.content.plain import are_plain
from gapless.content.values import Attributes, Value, check_attributes, check_value, plain_scalar
from gapless.core.errors import AttributeValueError, GaplessError, UsageError, shortened
from gapless.core.limits import EVENT_TEXT_MAX
from gapless.core.ticks import Tick

__all__ = ["PublishBatch", "Receipt", "Waiter", "encoded", "encoded_plain"]

_ENCODE = msgspec.msgpack.Encoder().encode
_PLAIN = frozenset({bool, int, float, str})


def encoded(attributes: Attributes, payload: bytes | bytearray | memoryview) -> bytes:
    r"""Return an event in its wire form; raise if it is not a valid event.

    The event is encoded at once, so that later changes by its publisher do not affect it, and so
    that its size is known.

    >>> encoded({"price": 91.5}, b"...")[:1]
    b'\x92'
    """
    if type(payload) is not bytes:
        kind = type(payload)
        if not issubclass(kind, bytes | bytearray | memoryview):
            raise UsageError(f"a payload is bytes, not a {kind.__name__}; encode it first")
        payload = bytes(payload)
    plain = type(attributes) is dict
    if not plain and not issubclass(type(attributes), Mapping):
        shown = type(attributes).__name__
        raise AttributeValueError(f"attributes are a mapping from names, not a {shown}")
    for name, value in attributes.items():
        if not (type(value) is float or (type(value) is str and value.isascii())):
            is_plain = type(value) in _PLAIN
            check_value(name, value if is_plain else plain_scalar(value))
            plain = plain and is_plain
        if type(name) is not str or not name.isascii():
            check_attributes({name: True})
            plain = plain and type(name) is str
    if not plain:
        attributes = {
            str.__str__(name): _exact(plain_scalar(value))
            for name, value in attributes.items()
            if value is not None
        }
    whole: bytes = _ENCODE((attributes, payload))
    if len(whole) > EVENT_TEXT_MAX:
        _refuse_long_texts(attributes)
    return whole


def _refuse_long_texts(attributes: Attributes) -> None:
    """Refuse texts that brokers refuse: filters would search them."""
    for name, value in attributes.items():
        if isinstance(value, str) and len(value) > EVENT_TEXT_MAX:
            raise AttributeValueError(
                f"attribute {shortened(name)!r} has {len(value):,} characters, and may have "
                f"{EVENT_TEXT_MAX:,} (EVENT_TEXT_MAX): longer texts belong into the payload"
            )


def _exact(value: Value) -> Value:
    """Return a value of a derived type, such as a member of an enum, as its plain type.

    >>> _exact(type("Money", (float,), {})(91.5))
    91.5
    """
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return value if isinstance(value, bool) else int.__int__(value)


def encoded_plain(events: Sequence[object]) -> list[bytes] | None:
    """Return pairs of a dict and bytes in their wire form; None if not all are such pairs.

    >>> len(encoded_plain([({"price": 91.5}, b"...")])), encoded_plain([({"price": None}, b"")])
    (1, None)
    """
    if not are_plain(events):
        return None
    try:
        found = [*map(_ENCODE, events)]
    except UnicodeEncodeError:
        return None
    is_long = max(map(len, found), default=0) > EVENT_TEXT_MAX
    return None if is_long else found  # each is checked for long texts, one by one


class Waiter(NamedTuple):
    """A call that waits for one event."""

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
        """The encoded events; a removed one is None."""
        self.count = 0
        """How many events were not removed."""
        self.bytes = 0
        self.waiters: list[Waiter] = []
        self.receipts = 0
        """How many events have a receipt that was not awaited yet."""
        self.request = 0
        self.first = 0
        """The sequence of the first event; 0 until the batch is sealed."""
        self.sendings = 0
        """How often the batch was sent."""
        self.sent_indices: list[int] | None = None
        """For each event its index among the events that were sent; None if none was removed."""
        self.ticks: tuple[Tick, ...] | None = None
        self.error: GaplessError | None = None
        self.future: asyncio.Future[None] | None = None
        """Created when a call waits for the whole batch."""

    @property
    def is_open(self) -> bool:
        """Whether events may still be added and removed."""
        return self.first == 0

    @property
    def was_sent(self) -> bool:
        """Whether its events may be published."""
        return self.sendings > 0

    @property
    def is_done(self) -> bool:
        """Whether its outcome is known."""
        return self.ticks is not None or self.error is not None

    def add(self, event: bytes) -> int:
        """Add an event; return its index."""
        assert self.is_open
        self.events.append(event)
        self.bytes += len(event)
        self.count += 1
        return len(self.events) - 1

    def add_all(self, events: list[bytes], size: int) -> range:
        """Add events with this total size in bytes; return their indices."""
        assert self.is_open
        first = len(self.events)
        self.events += events
        self.bytes += size
        self.count += len(events)
        return range(first, len(self.events))

    def take_out(self, index: int) -> bool:
        """Remove an event; return False if the batch is sealed or answered."""
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
        """Assign the sequences; from now on the batch does not change."""
        if None in self.events:
            self.sent_indices, sent_index = [], 0
            for event in self.events:
                self.sent_indices.append(-1 if event is None else sent_index)
                sent_index += event is not None
        self.request, self.first = request, first

    def note_sent(self) -> None:
        """Count a sending, the first or a repeated one."""
        self.sendings += 1

    def add_waiter(self, waiter: Waiter) -> None:
        """Give the result of an event to a waiter."""
        self.waiters.append(waiter)

    def receipt(self, index: int, pubend: str, *, is_logged: bool) -> Receipt:
        """Return a receipt for an event."""
        self.receipts += 1
        return Receipt(self, index, pubend, is_logged=is_logged)

    def receipt_seen(self) -> None:
        """A receipt was awaited, so its error is not hidden any more."""
        self.receipts -= 1

    def wire_events(self) -> Any:
        """Return the events as part of a request, without encoding them again."""
        assert self.count, "an empty batch is not sent"
        head = _ENCODE((None,) * self.count)[: -self.count]  # the header of the array
        return msgspec.Raw(head + b"".join(filter(None, self.events)))

    # --- the outcome ---------------------------------------------------------------------------

    def succeed(self, ticks: tuple[Tick, ...], pubend: str, *, is_logged: bool) -> None:
        """Set the results of all waiters."""
        self.ticks = ticks
        for index, future, _ in self.waiters:
            if not future.done():
                future.set_result(self._position(index, pubend, is_logged=is_logged))
        self.waiters = []
        self.events = []
        if self.future is not None and not self.future.done():
            self.future.set_result(None)

    def fail(self, error: GaplessError) -> None:
        """Set an error for all waiters."""
        self.error = error
        for _, future, _ in self.waiters:
            if not future.done():
                future.set_exception(error)
        self.waiters = []
        self.events = []
        if self.future is not None and not self.future.done():
            self.future.set_result(None)  # the waiter reads the error

    def _position(self, index: int, pubend: str, *, is_logged: bool) -> Position:
        assert self.ticks is not None
        sent_index = index if self.sent_indices is None else self.sent_indices[index]
        return Position({pubend: self.ticks[sent_index]}) if is_logged else Position()

    def position(self, index: int, pubend: str, *, is_logged: bool) -> Position:
        """Return the position of an event whose outcome is known; raise if it was not published."""
        if self.error is not None:
            raise self.error
        return self._position(index, pubend, is_logged=is_logged)

    async def done(self) -> None:
        """Wait until the outcome is known."""
        if not self.is_done:
            if self.future is None:
                self.future = asyncio.get_running_loop().create_future()
            await asyncio.shield(self.future)


class Receipt:
    """The receipt of an event that was given to a publisher; await it for the event's position.

    Awaiting it is optional: ``flush()`` raises the error of a receipt that was not awaited.
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
        """Whether the outcome of the event is known."""
        return self._batch.is_done

    def __await__(self) -> Generator[Any, None, Position]:
        yield from self._batch.done().__await__()
        if not self._is_seen:
            self._is_seen = True
            self._batch.receipt_seen()
        return self._batch.position(self._index, self._pubend, is_logged=self._is_logged)
