"""Publications as they are written, and how large they are; what was found out is kept for a while.

The same publications pass several rooms within a moment: they are written to the log, measured where
they wait, and told to all who take them. What was written is a *pack*, an array in msgpack. Whoever
takes all publications of a pack gets its bytes: to encode them again would cost as much as to match
them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from operator import is_
from typing import Final, NamedTuple

import msgspec

from gapless.core.limits import ENCODING_CACHE_BYTES_MAX
from gapless.messages.streams import KnowledgeRange, Publication

__all__ = [
    "PUBLICATION_BYTES",
    "cached_encoding",
    "content_bytes",
    "encode_publications",
    "encoded_bytes",
]

PUBLICATION_BYTES: Final = 256
"""What a publication takes beside its payload and texts."""

_encode: Final = msgspec.msgpack.Encoder().encode


def encoded_bytes(publications: tuple[Publication, ...]) -> int:
    """Return how many bytes publications take when they are written.

    Without the head of the array, so that the sizes of parts add up to that of the whole.
    """
    known = _encodings.measure(publications)
    return len(_body(publications)) if known is None else known


def encode_publications(publications: tuple[Publication, ...]) -> bytes:
    """Return publications as they are written; nobody has to measure or to encode them after that."""
    packed = _encode(publications)
    _contents.note(publications, len(packed) - _head_bytes(len(publications)))
    _encodings.note(publications, packed)
    return packed


def cached_encoding(publications: Sequence[Publication]) -> bytes | None:
    """Return publications as they would be written if there is a whole pack among them, else None."""
    return _encodings.put_together(publications)


def content_bytes(knowledge: KnowledgeRange) -> int:
    """Return how many bytes the publications of a piece take when they are written."""
    return _contents.measure(knowledge.publications)


def _held_bytes(publications: tuple[Publication, ...], size: int) -> int:
    """Return about how much memory publications take that have so many bytes when they are written."""
    return size + PUBLICATION_BYTES * len(publications)


def _head_bytes(count: int) -> int:
    """Return how many bytes of msgpack say that so many things follow."""
    return 1 if count < 2**4 else 3 if count < 2**16 else 5


def _body(publications: Sequence[Publication]) -> bytes:
    """Return publications without the head of an array."""
    return _encode(publications)[_head_bytes(len(publications)) :] if publications else b""


def _head(count: int) -> bytes:
    """Return the bytes that say that so many things follow."""
    return _encode((None,) * count)[:-count]  # of an array with a byte for each


class _Contents:
    """Measures publications. The same ones pass several rooms, so the last answers are kept."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[tuple[Publication, ...], int]] = OrderedDict()
        """By identity; it holds the publications, so that no others can have it."""
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
        """Remember how large publications are."""
        if id(publications) in self._known:
            return
        self._known[id(publications)] = (publications, size)
        self._held += _held_bytes(publications, size)
        while self._held > ENCODING_CACHE_BYTES_MAX and len(self._known) > 1:
            self._held -= _held_bytes(*self._known.popitem(last=False)[1])


class _PackedEvents(NamedTuple):
    publications: tuple[Publication, ...]
    body: memoryview
    """The pack without its head."""


class _EncodingCache:
    """What was written last, by the identity of its first publication, which it holds."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, _PackedEvents] = OrderedDict()
        self._held = 0

    def note(self, publications: tuple[Publication, ...], packed: bytes) -> None:
        """Remember a pack; one publication alone is encoded as fast as it is found."""
        if len(publications) < 2 or id(publications[0]) in self._known:
            return
        body = memoryview(packed)[_head_bytes(len(publications)) :]
        self._known[id(publications[0])] = _PackedEvents(publications, body)
        self._held += _held_bytes(publications, len(body))
        while self._held > ENCODING_CACHE_BYTES_MAX and len(self._known) > 1:
            old = self._known.popitem(last=False)[1]
            self._held -= _held_bytes(old.publications, len(old.body))

    def put_together(self, run: Sequence[Publication]) -> bytes | None:
        """Return a run as an array, of packs that it has whole and what is between them."""
        parts = self._parts(run)
        return None if parts is None else b"".join((_head(len(run)), *parts))

    def measure(self, run: Sequence[Publication]) -> int | None:
        """Return how many bytes a run takes when it is written, without the head."""
        parts = self._parts(run)
        return None if parts is None else sum(map(len, parts))

    def _parts(self, run: Sequence[Publication]) -> list[bytes | memoryview] | None:
        """Return a run as parts: packs that it has whole, and what is between them; None if it has none."""
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
        """Return where the first whole pack of a run begins; not looked for in runs that leave much out."""
        if len(run) > 1 and run[1].tick == run[0].tick + 1:
            known = self._known
            for index, publication in enumerate(run):
                if id(publication) in known:
                    return index if self._whole(run, index) else None
        return None

    def _whole(self, run: Sequence[Publication], index: int) -> _PackedEvents | None:
        """Return the pack that is whole in a run from a place on."""
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
