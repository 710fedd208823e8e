"""Packs with blanks: events that are ready for the log, but for their ticks and sequences.

A batch that was staged becomes publications when it is committed, all of it in one step, and only then
is it known which ticks it gets. While a broker is in a step it does nothing else, and neighbours take a
broker for dead that is silent for too long. So the work is done before, chunk by chunk: a chunk is packed
as the log will have it when it is staged, with *blanks* in the place of ticks and sequences. A blank takes
as many bytes as the greatest number. A commit writes the true ones over them, and decodes nothing: a tenth of a
microsecond for each event, where to decode and to pack it takes two.
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
"""In msgpack a mark and eight bytes, as every number above 2**32; smaller ones may be written so."""

_NUMBER_BYTES: Final = 8
_TAG_BYTES: Final = 1
"""What stands before a number, and before the fields of a publication."""

_BIG_ENDIAN: Final = np.dtype(">u8")

_encode: Final = msgspec.msgpack.Encoder().encode
_raws: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def pack_template(publisher: str, events: Events) -> bytes:
    """Return events as publications of somebody, without ticks and sequences."""
    return pack(
        Publication(_PLACEHOLDER, publisher, _PLACEHOLDER, attributes, payload)
        for attributes, payload in events
    )


class PackedTemplate:
    """Events that wait for their ticks.

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
        """Where the ticks stand, and where the sequences."""
        content = np.frombuffer(packed, np.uint8)
        for offsets in self._offsets:
            found = content[_byte_indexes(offsets)].view(_BIG_ENDIAN)
            assert (found == _PLACEHOLDER).all(), "this is no pack with blanks"

    def __len__(self) -> int:
        """Return how many events there are."""
        return len(self._offsets[0])

    def filled(self, tick: Tick, sequence: int) -> bytes:
        """Return the pack with ticks and sequences, both from a first one on without a gap."""
        content = np.array(np.frombuffer(self.packed, np.uint8))
        for offsets, first in zip(self._offsets, (tick, sequence), strict=True):
            numbers = np.arange(first, first + len(self), dtype=_BIG_ENDIAN)
            content[_byte_indexes(offsets)] = numbers.view(np.uint8).reshape(-1, _NUMBER_BYTES)
        return content.tobytes()


def _byte_indexes(offsets: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the places of all bytes of numbers that begin at some places, a row a number."""
    return offsets[:, None] + np.arange(_NUMBER_BYTES)
