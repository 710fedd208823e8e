"""The encoding of publications and its size; recent results are cached.

The same publications pass several components within a short time: they are written to the log,
measured in queues, and sent to all receivers. Their encoding, an array in msgpack, is *packed
events*. A receiver of all publications of an encoding gets its bytes: to encode them again would
cost as much as to match them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from operator import is_
from typing import Final, NamedTuple

import msgspec

from gapless.core.limits import ENCODING_CACHE_BYTES_MAX, ROW_BYTES_MAX, ROW_EVENTS_MAX
from gapless.messages.streams import KnowledgeRange, Publication

__all__ = [
    "PUBLICATION_BYTES",
    "Row",
    "cached_encoding",
    "content_bytes",
    "count_within",
    "encode_publications",
    "encoded_bytes",
    "forget_encodings",
    "in_rows",
]

PUBLICATION_BYTES: Final = 256
"""The assumed size of a publication besides its payload and texts."""

_encode: Final = msgspec.msgpack.Encoder().encode


def encoded_bytes(publications: tuple[Publication, ...]) -> int:
    """Return the encoded size of publications in bytes.

    The head of the array is not counted, so that the sizes of parts add up to that of the whole.
    """
    known = _encodings.measure(publications)
    return len(_body(publications)) if known is None else known


def encode_publications(publications: tuple[Publication, ...]) -> bytes:
    """Return the encoding of publications, and cache it and its size."""
    packed = _encode(publications)
    _note(publications, packed)
    return packed


class Row(NamedTuple):
    """Publications within the limits of a row, and their encoding."""

    publications: tuple[Publication, ...]
    packed: bytes

    def cache(self) -> None:
        """Cache the encoding and its size: the publications will be sent or measured later."""
        _note(self.publications, self.packed)


def in_rows(publications: tuple[Publication, ...]) -> list[Row]:
    """Divide publications into rows within the limits of a row, as few as halving makes.

    >>> event = Publication(1, "p", 1, {}, bytes(ROW_BYTES_MAX // 2))
    >>> [len(row.publications) for row in in_rows((event,) * 3)]
    [1, 1, 1]
    """
    rows: list[Row] = []
    waiting = [publications]
    while waiting:
        part = waiting.pop()
        packed = _encode(part) if len(part) <= ROW_EVENTS_MAX else b""
        if len(part) > 1 and not 0 < len(packed) <= ROW_BYTES_MAX:
            middle = len(part) // 2
            waiting += (part[middle:], part[:middle])
        else:
            rows.append(Row(part, packed))
    return rows


def count_within(publications: Sequence[Publication], bytes_max: int) -> int:
    """Return how many of the first publications fit into so many bytes, at least one."""
    count, left = 0, bytes_max
    for publication in publications:
        left -= len(_body((publication,)))
        if left < 0 and count:
            break
        count += 1
    return count


def cached_encoding(publications: Sequence[Publication]) -> bytes | None:
    """Return the encoding of publications if they include all of a cached one, otherwise None."""
    return _encodings.put_together(publications)


def content_bytes(knowledge: KnowledgeRange) -> int:
    """Return the encoded size of the publications of a knowledge range."""
    return _contents.measure(knowledge.publications)


def _note(publications: tuple[Publication, ...], packed: bytes) -> None:
    _contents.note(publications, len(packed) - _head_bytes(len(publications)))
    _encodings.note(publications, packed)


def _held_bytes(publications: tuple[Publication, ...], size: int) -> int:
    """Return the approximate memory of publications of an encoded size."""
    return size + PUBLICATION_BYTES * len(publications)


def _head_bytes(count: int) -> int:
    """Return the size of the head of a msgpack array."""
    return 1 if count < 2**4 else 3 if count < 2**16 else 5


def _body(publications: Sequence[Publication]) -> bytes:
    """Return the encoding of publications without the head of the array."""
    return _encode(publications)[_head_bytes(len(publications)) :] if publications else b""


def _head(count: int) -> bytes:
    """Return the head of a msgpack array."""
    return _encode((None,) * count)[:-count]  # each element of this array is one byte


class _Contents:
    """Measures publications and caches the last results."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[tuple[Publication, ...], int]] = OrderedDict()
        """By identity; it keeps the publications alive, so that their ids are not reused."""
        self._held = 0

    def clear(self) -> None:
        self._known.clear()
        self._held = 0

    def measure(self, publications: tuple[Publication, ...]) -> int:
        if not publications:
            return 0
        known = self._known.get(id(publications))
        if known is not None:
            return known[1]
        size = encoded_bytes(publications)
        self.note(publications, size)
        return size

    def note(self, publications: tuple[Publication, ...], size: int) -> None:
        """Cache the size of publications."""
        if id(publications) in self._known:
            return
        self._known[id(publications)] = (publications, size)
        self._held += _held_bytes(publications, size)
        while self._held > ENCODING_CACHE_BYTES_MAX and len(self._known) > 1:
            self._held -= _held_bytes(*self._known.popitem(last=False)[1])


class _PackedEvents(NamedTuple):
    publications: tuple[Publication, ...]
    body: memoryview
    """The encoding without its head."""


class _EncodingCache:
    """The last encodings, by the identity of the first publication, which it keeps alive."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, _PackedEvents] = OrderedDict()
        self._held = 0

    def clear(self) -> None:
        self._known.clear()
        self._held = 0

    def note(self, publications: tuple[Publication, ...], packed: bytes) -> None:
        """Cache an encoding; a single publication is encoded as fast as it is found."""
        if len(publications) < 2 or id(publications[0]) in self._known:
            return
        body = memoryview(packed)[_head_bytes(len(publications)) :]
        self._known[id(publications[0])] = _PackedEvents(publications, body)
        self._held += _held_bytes(publications, len(body))
        while self._held > ENCODING_CACHE_BYTES_MAX and len(self._known) > 1:
            old = self._known.popitem(last=False)[1]
            self._held -= _held_bytes(old.publications, len(old.body))

    def put_together(self, run: Sequence[Publication]) -> bytes | None:
        """Return the encoding of a run from cached encodings and what is between them."""
        parts = self._parts(run)
        return None if parts is None else b"".join((_head(len(run)), *parts))

    def measure(self, run: Sequence[Publication]) -> int | None:
        """Return the encoded size of a run without the head, or None if nothing is cached."""
        parts = self._parts(run)
        return None if parts is None else sum(map(len, parts))

    def _parts(self, run: Sequence[Publication]) -> list[bytes | memoryview] | None:
        """Return a run as cached encodings and what is between them; None if nothing is cached."""
        index = self._first(run)
        if index is None:
            return None
        parts: list[bytes | memoryview] = [_body(run[:index])]
        while packed := self._whole(run, index):
            parts.append(packed.body)
            index += len(packed.publications)
        parts.append(_body(run[index:]))
        return parts

    def _first(self, run: Sequence[Publication]) -> int | None:
        """Return the index of the first cached encoding; sparse runs are not searched."""
        if len(run) > 1 and run[1].tick == run[0].tick + 1:
            known = self._known
            for index, publication in enumerate(run):
                if id(publication) in known:
                    return index if self._whole(run, index) else None
        return None

    def _whole(self, run: Sequence[Publication], index: int) -> _PackedEvents | None:
        """Return the cached encoding that a run contains completely from an index on."""
        packed = self._known.get(id(run[index])) if index < len(run) else None
        if packed is None:
            return None
        part = run[index : index + len(packed.publications)]
        is_whole = len(part) == len(packed.publications) and all(
            map(is_, part, packed.publications)
        )
        return packed if is_whole else None


_contents: Final = _Contents()
_encodings: Final = _EncodingCache()


def forget_encodings() -> None:
    """Empty the caches, so that memory can be measured without them."""
    _contents.clear()
    _encodings.clear()
