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

__all__ = ["BlankPack", "packed_blank"]

_BLANK: Final = 2**62
"""In msgpack a mark and eight bytes, as every number above 2**32; smaller ones may be written so."""

_NUMBER_BYTES: Final = 8
_MARK_BYTES: Final = 1
"""What stands before a number, and before the fields of a publication."""

_BIG_ENDIAN: Final = np.dtype(">u8")

_encode: Final = msgspec.msgpack.Encoder().encode
_raws: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def packed_blank(publisher: str, events: Events) -> bytes:
    """Return events as publications of somebody, without ticks and sequences."""
    return pack(
        Publication(_BLANK, publisher, _BLANK, attributes, payload)
        for attributes, payload in events
    )


class BlankPack:
    """Events that wait for their ticks.

    >>> from gapless.packed.pick import unpack
    >>> blank = BlankPack(packed_blank("w", (({"n": 1}, b""), ({"n": 2}, b""))), "w")
    >>> [(each.tick, each.sequence) for each in unpack([blank.filled(1700, 8)])]
    [(1700, 8), (1701, 9)]
    """

    __slots__ = ("_places", "pack")

    def __init__(self, pack: bytes, publisher: str) -> None:
        self.pack = pack
        sizes = [len(raw) for raw in _raws(pack)]
        head = len(pack) - sum(sizes)
        starts = list(accumulate(sizes, initial=head))[:-1]
        ticks = np.array(starts, np.int64) + 2 * _MARK_BYTES
        behind = _NUMBER_BYTES + len(_encode(publisher)) + _MARK_BYTES
        self._places = ticks, ticks + behind
        """Where the ticks stand, and where the sequences."""
        content = np.frombuffer(pack, np.uint8)
        for places in self._places:
            found = content[_spread(places)].view(_BIG_ENDIAN)
            assert (found == _BLANK).all(), "this is no pack with blanks"

    def __len__(self) -> int:
        """Return how many events there are."""
        return len(self._places[0])

    def filled(self, tick: Tick, sequence: int) -> bytes:
        """Return the pack with ticks and sequences, both from a first one on without a gap."""
        content = np.array(np.frombuffer(self.pack, np.uint8))
        for places, first in zip(self._places, (tick, sequence), strict=True):
            numbers = np.arange(first, first + len(self), dtype=_BIG_ENDIAN)
            content[_spread(places)] = numbers.view(np.uint8).reshape(-1, _NUMBER_BYTES)
        return content.tobytes()


def _spread(places: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return the places of all bytes of numbers that begin at some places, a row a number."""
    return places[:, None] + np.arange(_NUMBER_BYTES)
