"""Searching a long text for characters at fixed distances, many positions at once.

Theory of operation. An int has a bit for each position of the text: bit ``i`` of the *places* of a
character is set if the text has it at ``i``. The places of a character that must stand ``d`` after
the start, shifted down by ``d``, are the possible starts. The AND over all characters is exact. Each
operation handles a machine word of positions, so a search costs a small part of a nanosecond for
each position and character, whatever the text is.

The places in the last text are kept: usually many patterns search one text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from gapless.core.limits import PLACES_KEPT

__all__ = ["SEARCHED_TEXT_MIN", "starts"]

SEARCHED_TEXT_MIN: Final = 512
"""Characters of a text below which a search one by one is faster."""


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
        self._places = _Places("")

    def places_in(self, text: str) -> _Places:
        """Return the places of characters in a text."""
        places = self._places
        if places.text is not text and places.text != text:
            places = self._places = _Places(text)
        return places


_last: Final = _LastText()


def starts(text: str, runs: list[tuple[int, str]]) -> int:
    """Return, as bits, the positions of a text at which all runs stand at their offsets.

    >>> bin(starts("abcbbc", [(0, "b"), (2, "c")]))
    '0b1000'
    """
    places = _last.places_in(text)
    found = -1
    for offset, run in runs:
        for distance, character in enumerate(run, offset):
            found &= places.of(character) >> distance
            if not found:
                return 0
    return found
