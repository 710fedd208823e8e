"""Packed events with placeholders: ready for the log except for their ticks and sequences.

A staged batch becomes publications when it is committed, all in one step, and only then are its
ticks known. A broker does nothing else during a step, and its neighbours take a broker that is
silent for too long for failed. So the work is done before, for each chunk: when a chunk is staged,
it is packed as the log will store it, with *placeholders* for ticks and sequences. A placeholder
has as many bytes as the greatest number. A commit overwrites the placeholders and decodes nothing.
That takes a tenth of a microsecond an event, where decoding and packing takes two.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from gapless.core.ticks import Tick
from gapless.messages.streams import Events, Publication
from gapless.packed.pick import pack

__all__ = ["PackedTemplate", "pack_template"]

_PLACEHOLDER: Final = 2**62
"""In msgpack a tag and eight bytes, like all numbers above 2**32; smaller ones may be so too."""

_NUMBER_BYTES: Final = 8
_TAG_BYTES: Final = 1
"""The bytes before a number, and before the fields of a publication."""

_BIG_ENDIAN: Final = np.dtype(">u8")

_encode: Final = msgspec.msgpack.Encoder().encode
_raws: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def pack_template(publisher: str, events: Events) -> bytes:
    """Return events as packed publications with placeholders for ticks and sequences."""
    return pack(
        Publication(_PLACEHOLDER, publisher, _PLACEHOLDER, attributes, payload)
        for attributes, payload in events
    )


class PackedTemplate:
    """Packed events with placeholders for their ticks and sequences.

    >>> from gapless.packed.pick import unpack
    >>> template = PackedTemplate(pack_template("w", (({"n": 1}, b""), ({"n": 2}, b""))), "w")
    >>> [(each.tick, each.sequence) for each in unpack([template.filled(1700, 8)])]
    [(1700, 8), (1701, 9)]
    """

    __slots__ = ("_offsets", "packed")

    def __init__(self, packed: bytes, publisher: str) -> None:
        self.packed = packed
        sizes = [len(raw) for raw in _raws(packed)]
        head = len(packed) - sum(sizes)
        starts = list(accumulate(sizes, initial=head))[:-1]
        ticks = np.array(starts, np.int64) + 2 * _TAG_BYTES
        behind = _NUMBER_BYTES + len(_encode(publisher)) + _TAG_BYTES
        self._offsets = ticks, ticks + behind
        """The offsets of the ticks, and those of the sequences."""
        content = np.frombuffer(packed, np.uint8)
        for offsets in self._offsets:
            found = content[_byte_indexes(offsets)].view(_BIG_ENDIAN)
            assert (found == _PLACEHOLDER).all(), "packed events without placeholders"

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self._offsets[0])

    def filled(self, tick: Tick, sequence: int) -> bytes:
        """Return the packed events with consecutive ticks and sequences from the given ones on."""
        content = np.array(np.frombuffer(self.packed, np.uint8))
        for offsets, first in zip(self._offsets, (tick, sequence), strict=True):
            numbers = np.arange(first, first + len(self), dtype=_BIG_ENDIAN)
            content[_byte_indexes(offsets)] = numbers.view(np.uint8).reshape(-1, _NUMBER_BYTES)
        return content.tobytes()


def _byte_indexes(offsets: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the indexes of all bytes of the numbers at some offsets, one row a number."""
    return offsets[:, None] + np.arange(_NUMBER_BYTES)
