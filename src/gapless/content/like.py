"""LIKE patterns: matched without backtracking, compared by meaning.

A pattern is a line of tokens: runs of literal characters, *one* (``_``: any one character) and
*many* (``%``: any run of characters). Its canonical form has no two *many* in a row and every
*one* before the *many* beside it, so equal tokens mean equal patterns of the common kinds.

Matching takes the pieces between two *many* from left to right, each at the first place where it
fits: what a later piece can use is only made smaller by taking an earlier one later. A piece of
plain characters is found by ``str.find``; one that has *one* inside by the shift-and automaton,
whose state is a bit set held in an int. Neither ever goes back, so a match costs time linear in
the text (times the pattern's length in machine words).
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Final

import msgspec

__all__ = ["MANY", "ONE", "Pattern"]

ONE: Final = "_"
MANY: Final = "%"
_ESCAPE: Final = "\\"
_CELLS_MAX: Final = 4_000_000
"""Two patterns whose lengths multiply to more are not compared; the careful answer is given."""

_PATTERNS_KEPT: Final = 512
"""Patterns whose symbols are remembered between two comparisons."""


class Pattern(msgspec.Struct, frozen=True, order=True):
    """A LIKE pattern: tokens ``"_"``, ``"%"``, and literal runs marked by a leading ``"="``."""

    tokens: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, escape: str | None = None) -> Pattern:
        """Read a pattern; ``escape`` takes away the meaning of the character after it.

        >>> Pattern.parse("a%%_b").tokens
        ('=a', '_', '%', '=b')

        Raises ValueError where ``escape`` stands last.
        """
        tokens: list[str] = []
        literal: list[str] = []
        ones = manies = 0

        def flush_wild() -> None:
            nonlocal ones, manies
            tokens.extend([ONE] * ones + [MANY] * bool(manies))
            ones = manies = 0

        def flush_literal() -> None:
            if literal:
                tokens.append("=" + "".join(literal))
                literal.clear()

        characters = iter(text)
        for character in characters:
            if character == escape:
                try:
                    character = next(characters)  # noqa: PLW2901
                except StopIteration:
                    raise ValueError("the escape character stands last in the pattern") from None
            elif character in (ONE, MANY):
                flush_literal()
                ones += character == ONE
                manies += character == MANY
                continue
            flush_wild()
            literal.append(character)
        flush_literal()
        flush_wild()
        return cls(tuple(tokens))

    def __str__(self) -> str:
        """Return the pattern's text, in which a backslash escapes (see :attr:`escape`)."""
        parts = []
        for token in self.tokens:
            if token[0] == "=":
                for special in (_ESCAPE, ONE, MANY):
                    token = token.replace(special, _ESCAPE + special)  # noqa: PLW2901
                parts.append(token[1:])
            else:
                parts.append(token)
        return "".join(parts)

    @property
    def escape(self) -> str | None:
        """The escape character that ``str()`` of this pattern uses, or None if it uses none."""
        special = (_ESCAPE, ONE, MANY)
        literals = (token[1:] for token in self.tokens if token[0] == "=")
        return _ESCAPE if any(mark in run for run in literals for mark in special) else None

    @property
    def literal(self) -> str | None:
        """The only text that matches, or None if there are several."""
        if not self.tokens:
            return ""
        return self.tokens[0][1:] if len(self.tokens) == 1 and self.tokens[0][0] == "=" else None

    @property
    def prefix(self) -> str:
        """The literal characters that every matching text begins with."""
        return self.tokens[0][1:] if self.tokens and self.tokens[0][0] == "=" else ""

    @property
    def is_prefix(self) -> bool:
        """Whether the pattern asks only for how a text begins."""
        return (
            bool(self.tokens)
            and self.tokens[-1] == MANY
            and len(self.tokens) <= 2
            and (len(self.tokens) == 1 or self.tokens[0][0] == "=")
        )

    def matches(self, text: str) -> bool:
        """Say whether the whole text fits the pattern."""
        pieces = _pieces(self.tokens)
        if len(pieces) == 1:
            return len(text) == len(pieces[0]) and pieces[0].fits(text, 0)
        first, *middle, last = pieces
        end = len(text) - len(last)
        if end < len(first) or not first.fits(text, 0) or not last.fits(text, end):
            return False
        at = len(first)
        for piece in middle:
            found = piece.find(text, at, end)
            if found < 0:
                return False
            at = found + len(piece)
        return True

    def implies(self, other: Pattern) -> bool:
        """Say whether every text that fits this pattern fits the other; may miss, never lies.

        ``other`` is run over this pattern's own symbols: its *one* takes a character or a
        *one*, its *many* takes any run of symbols, and nothing else takes a *many*. The places
        that ``other`` has reached are the bits of an int. A pattern without any character asks
        for a length only, which is counted.
        """
        ours, theirs = _symbols(self.tokens), _symbols(other.tokens)
        if theirs and theirs[-1] == MANY and theirs.count(ONE) == len(theirs) - 1:
            return len(ours) - ours.count(MANY) >= len(theirs) - 1
        if len(ours) * len(theirs) > _CELLS_MAX:
            return self == other
        ones, manies, takes = _masks(other.tokens)
        reached = 1 | (1 & manies) << 1
        for symbol in ours:
            reached = (reached & takes.get(symbol, ones)) << 1 | reached & manies << 1
            reached |= (reached & manies) << 1
        return bool(reached >> len(theirs))

    def meets(self, other: Pattern) -> bool:
        """Say whether some text may fit both patterns; may say so wrongly, never misses.

        Both are walked at once: a place in this pattern, and the places in the other that one
        text can have reached then.
        """
        ours, theirs = _symbols(self.tokens), _symbols(other.tokens)
        if len(ours) * len(theirs) > _CELLS_MAX:
            return True
        ones, manies, takes = _masks(other.tokens)
        end = 1 << len(theirs)
        anything = (end - 1) & ~manies
        reached = 1 | (1 & manies) << 1
        for symbol in ours:
            if symbol == MANY:
                least = reached & -reached
                reached = (end << 1) - least  # from the first place on, all
            else:
                taken = anything if symbol == ONE else takes.get(symbol, ones)
                reached = (reached & taken) << 1 | reached & manies
                reached |= (reached & manies) << 1
        return bool(reached & end)


class _Piece:
    """What stands between two *many*: characters, some of them free (None)."""

    __slots__ = ("_characters", "_plain", "_runs", "_shifts")

    def __init__(self, tokens: list[str]) -> None:
        self._runs: list[tuple[int, str]] = []
        at = 0
        for token in tokens:
            if token == ONE:
                at += 1
            else:
                self._runs.append((at, token[1:]))
                at += len(token) - 1
        self._characters = at
        self._plain = tokens[0][1:] if len(tokens) == 1 and tokens[0] != ONE else None
        self._shifts: tuple[dict[str, int], int] | None = None

    def __len__(self) -> int:
        return self._characters

    def fits(self, text: str, at: int) -> bool:
        return all(text.startswith(run, at + offset) for offset, run in self._runs)

    def find(self, text: str, start: int, end: int) -> int:
        """Return the first place in ``text[start:end]`` where the piece fits, or -1."""
        if self._plain is not None:
            return text.find(self._plain, start, end)
        if not self._runs:
            return start if start + self._characters <= end else -1
        masks, free = self._automaton()
        state, goal = 0, 1 << (self._characters - 1)
        for at in range(start, end):
            state = ((state << 1) | 1) & masks.get(text[at], free)
            if state & goal:
                return at - self._characters + 1
        return -1

    def _automaton(self) -> tuple[dict[str, int], int]:
        if self._shifts is None:
            fixed = {offset + i: c for offset, run in self._runs for i, c in enumerate(run)}
            free = sum(1 << i for i in range(self._characters) if i not in fixed)
            masks = dict.fromkeys(fixed.values(), free)
            for i, character in fixed.items():
                masks[character] |= 1 << i
            self._shifts = masks, free
        return self._shifts


_pieces_of: dict[tuple[str, ...], list[_Piece]] = {}
_PIECES_KEPT: Final = 4_096


def _pieces(tokens: tuple[str, ...]) -> list[_Piece]:
    """Return the pieces of a pattern, remembered: there are far fewer patterns than matches."""
    pieces = _pieces_of.get(tokens)
    if pieces is None:
        if len(_pieces_of) >= _PIECES_KEPT:
            _pieces_of.clear()
        groups: list[list[str]] = [[]]
        for token in tokens:
            if token == MANY:
                groups.append([])
            else:
                groups[-1].append(token)
        pieces = _pieces_of[tokens] = [_Piece(group) for group in groups]
    return pieces


@lru_cache(maxsize=_PATTERNS_KEPT)
def _masks(tokens: tuple[str, ...]) -> tuple[int, int, dict[str, int]]:
    """Return the places of *one*, of *many*, and those that take a given symbol, as bits."""
    symbols = _symbols(tokens)
    ones = sum(1 << place for place, symbol in enumerate(symbols) if symbol == ONE)
    manies = sum(1 << place for place, symbol in enumerate(symbols) if symbol == MANY)
    takes = {ONE: ones, MANY: 0}
    for place, symbol in enumerate(symbols):
        if symbol not in (ONE, MANY):
            takes[symbol] = takes.get(symbol, ones) | 1 << place
    return ones, manies, takes


@lru_cache(maxsize=_PATTERNS_KEPT)
def _symbols(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """Return wildcards as they are and each literal character marked by ``"="``."""
    return tuple(
        itertools.chain.from_iterable(
            ["=" + character for character in token[1:]] if token[0] == "=" else [token]
            for token in tokens
        )
    )
