"""Searching a text for characters at fixed distances, many positions at once.

Theory of operation. An int has a bit for each position of the text: bit ``i`` of the *places* of a
character is set if the text has it at ``i``. The places of a character that must stand ``d`` after
the start, shifted down by ``d``, are the possible starts. The AND over all characters is exact. Each
operation handles a machine word of positions, so a search costs a small part of a nanosecond for
each position and character, whatever the text is.

A text is searched in blocks, so that a search ends at the first position that is found, and many
segments of one pattern take no longer than one. The places in the blocks of the last text are kept:
usually many patterns search one text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from gapless.core.limits import FILTER_SEGMENT_MAX, PLACES_KEPT

__all__ = ["first_start", "starts"]

_BLOCK: Final = 16_384
"""Positions that are searched together. An operation on so many bits takes little longer than the
call of it."""


class _Places:
    """A text, and the places of some of its characters."""

    __slots__ = ("_known", "_planes", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        data = text.encode("utf-32-le", "surrogatepass")
        # the last character first, because int() reads the greatest bit first
        self._planes = [data[byte::4][::-1] for byte in range(1 if text.isascii() else 3)]
        self._known: dict[str, int] = {}

    def of(self, character: str) -> int:
        """Return the places of a character."""
        found = self._known.get(character)
        if found is None:
            number = ord(character)
            found = -1
            for place, plane in enumerate(self._planes):
                found &= int(plane.translate(_marks(number >> 8 * place & 0xFF)), 2)
            if number >> 8 * len(self._planes):
                found = 0  # beyond ASCII, in a text of ASCII
            if len(self._known) >= PLACES_KEPT:
                self._known.clear()
            self._known[character] = found
        return found


@lru_cache(maxsize=256)
def _marks(byte: int) -> bytes:
    """Return a table that translates one byte to the digit 1 and all others to 0."""
    return b"0" * byte + b"1" + b"0" * (255 - byte)


class _LastText:
    """The text that was searched last."""

    def __init__(self) -> None:
        self._text = ""
        self._blocks: dict[tuple[int, int], _Places] = {}

    def block(self, text: str, low: int, high: int) -> _Places:
        """Return the places of characters in a part of a text."""
        if self._text is not text and self._text != text:
            self._text, self._blocks = text, {}
        found = self._blocks.get((low, high))
        if found is None:
            found = self._blocks[low, high] = _Places(text[low:high])
        return found


_last: Final = _LastText()


def starts(text: str, runs: list[tuple[int, str]]) -> int:
    """Return, as bits, the positions of a text at which all runs stand at their offsets.

    >>> bin(starts("abcbbc", [(0, "b"), (2, "c")]))
    '0b1000'
    """
    return _starts_in(_last.block(text, 0, len(text)), runs)


def first_start(text: str, runs: list[tuple[int, str]], length: int, start: int, end: int) -> int:
    """Return the first index in ``text[start:end]`` where all runs stand at their offsets, or -1.

    ``length`` is the number of characters that they take.

    >>> (
    ...     first_start("abcbbc", [(0, "b"), (2, "c")], 3, 1, 6),
    ...     first_start("abc", [(0, "d")], 1, 0, 3),
    ... )
    (3, -1)
    """
    last = end - length
    overlap = -(-length // FILTER_SEGMENT_MAX) * FILTER_SEGMENT_MAX  # few kinds of blocks are kept
    for low in range(start // _BLOCK * _BLOCK, last + 1, _BLOCK):
        found = _starts_in(_last.block(text, low, low + _BLOCK + overlap), runs)
        found &= (1 << min(_BLOCK, last - low + 1)) - 1
        if low < start:
            found = found >> (start - low) << (start - low)
        if found:
            return low + (found & -found).bit_length() - 1
    return -1


def _starts_in(places: _Places, runs: list[tuple[int, str]]) -> int:
    found = -1
    for offset, run in runs:
        for distance, character in enumerate(run, offset):
            found &= places.of(character) >> distance
            if not found:
                return 0
    return found
