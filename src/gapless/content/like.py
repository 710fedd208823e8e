"""LIKE patterns: matched without backtracking, compared by meaning.

A pattern is a sequence of tokens: runs of literal characters, *one* (``_``: any one character) and
*many* (``%``: any run of characters). Its canonical form has no two *many* in a row and every
*one* before the *many* beside it, so equal tokens mean equal patterns of the common kinds.

Matching searches for the segments between two *many* from left to right, each at the first position
where it fits: a later position for one segment would only leave less for the next. A segment of
plain characters is found by ``str.find``, one with *one* inside by :mod:`.search`. None goes back, so
a match costs time linear in the text (times the pattern's length, in machine words).
"""

from __future__ import annotations

import itertools
from typing import Final

import msgspec

from gapless.content.search import first_start
from gapless.core.limits import PATTERN_CELLS_MAX, PATTERN_MEMORY_MAX

__all__ = ["MANY", "ONE", "Pattern", "forget_patterns"]

ONE: Final = "_"
MANY: Final = "%"
_ESCAPE: Final = "\\"


class Pattern(msgspec.Struct, frozen=True, order=True):
    """A LIKE pattern: tokens ``"_"``, ``"%"``, and literal runs marked by a leading ``"="``."""

    tokens: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, escape: str | None = None) -> Pattern:
        """Read a pattern; the character after ``escape`` is literal.

        >>> Pattern.parse("a%%_b").tokens
        ('=a', '_', '%', '=b')

        Raises ValueError if ``escape`` is the last character.
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
        """Return the pattern's text, with a backslash as escape character (:attr:`escape`)."""
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
        """Whether the pattern is only a prefix."""
        return (
            bool(self.tokens)
            and self.tokens[-1] == MANY
            and len(self.tokens) <= 2
            and (len(self.tokens) == 1 or self.tokens[0][0] == "=")
        )

    @property
    def is_searched(self) -> bool:
        """Whether texts have to be searched: the pattern is neither one text nor a prefix."""
        return self.literal is None and not self.is_prefix

    @property
    def segment_length(self) -> int:
        """The greatest number of characters between two *many*, if there is a *one* among them."""
        return max((len(each) for each in self._tabled()), default=0)

    @property
    def searches(self) -> int:
        """How many searches of a text it takes at most: those of plain characters are one."""
        return max(len(self._tabled()), 1) if self.is_searched else 0

    def _tabled(self) -> list[_Segment]:
        """Return the segments between two *many* that need a table, because of a *one*."""
        middle = _compiled[self.tokens].segments[1:-1]
        return [each for each in middle if not each.is_plain]

    def __len__(self) -> int:
        """Return the number of its characters and wildcards."""
        return _compiled[self.tokens].length

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches the pattern."""
        segments = _compiled[self.tokens].segments
        if len(segments) == 1:
            return len(text) == len(segments[0]) and segments[0].fits(text, 0)
        first, *middle, last = segments
        end = len(text) - len(last)
        if end < len(first) or not first.fits(text, 0) or not last.fits(text, end):
            return False
        at = len(first)
        for segment in middle:
            found = segment.find(text, at, end)
            if found < 0:
                return False
            at = found + len(segment)
        return True

    def implies(self, other: Pattern) -> bool:
        """Return whether every text that matches this pattern matches the other; may miss.

        ``other`` is run over this pattern's own symbols: its *one* takes a character or a *one*,
        its *many* takes any run of symbols, and nothing else takes a *many*. The positions that
        ``other`` has reached are the bits of an int. A pattern without any character only requires
        a length, which is counted.
        """
        theirs, length = other.tokens, len(other)
        if theirs and theirs[-1] == MANY and theirs.count(ONE) == len(theirs) - 1:
            return len(self) - self.tokens.count(MANY) >= len(theirs) - 1
        literals = _compiled[self.tokens].literals
        if not all(run in literals for run in _compiled[theirs].runs):
            return False  # its characters are only taken by the same characters
        if len(self) * length > PATTERN_CELLS_MAX:
            return self == other
        ones, manies, takes = _compiled[theirs].masks
        reached = 1 | (1 & manies) << 1
        for symbol in _compiled[self.tokens].symbols:
            reached = (reached & takes.get(symbol, ones)) << 1 | reached & manies << 1
            reached |= (reached & manies) << 1
        return bool(reached >> length)

    def meets(self, other: Pattern) -> bool:
        """Return whether some text may match both patterns; may be wrong if true, never if false.

        Both are processed at once: a position in this pattern, and the positions in the other that
        one text can have reached then.
        """
        length = len(other)
        if len(self) * length > PATTERN_CELLS_MAX:
            return True
        ones, manies, takes = _compiled[other.tokens].masks
        end = 1 << length
        anything = (end - 1) & ~manies
        reached = 1 | (1 & manies) << 1
        for symbol in _compiled[self.tokens].symbols:
            if symbol == MANY:
                least = reached & -reached
                reached = (end << 1) - least  # all positions from the first on
            else:
                taken = anything if symbol == ONE else takes.get(symbol, ones)
                reached = (reached & taken) << 1 | reached & manies
                reached |= (reached & manies) << 1
        return bool(reached & end)


class _Segment:
    """The segment between two *many*: characters, and free positions."""

    __slots__ = ("_characters", "_plain", "_runs")

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

    def __len__(self) -> int:
        return self._characters

    @property
    def is_plain(self) -> bool:
        """Whether it is found without a table: it has no *one*, or nothing else."""
        return self._plain is not None or not self._runs

    def fits(self, text: str, at: int) -> bool:
        return all(text.startswith(run, at + offset) for offset, run in self._runs)

    def find(self, text: str, start: int, end: int) -> int:
        """Return the first index in ``text[start:end]`` where the segment fits, or -1."""
        if self._plain is not None:
            return text.find(self._plain, start, end)
        if end - start < self._characters:
            return -1
        if not self._runs:
            return start
        return first_start(text, self._runs, self._characters, start, end)


class _Compiled:
    """The compiled forms of a pattern, each made when it is first needed."""

    __slots__ = ("_masks", "_segments", "_symbols", "_tokens", "length", "literals", "runs")

    def __init__(self, tokens: tuple[str, ...]) -> None:
        self._tokens = tokens
        self.length = _length(tokens)
        self.runs = [token[1:] for token in tokens if token[0] == "="]
        """The literal runs."""
        self.literals = _ESCAPE.join(self.runs)
        """All of them; another pattern's run in it may span two of them."""
        self._masks: tuple[int, int, dict[str, int]] | None = None
        self._segments: list[_Segment] | None = None
        self._symbols: tuple[str, ...] | None = None

    @property
    def segments(self) -> list[_Segment]:
        """The segments between two *many*."""
        if self._segments is None:
            groups: list[list[str]] = [[]]
            for token in self._tokens:
                if token == MANY:
                    groups.append([])
                else:
                    groups[-1].append(token)
            self._segments = [_Segment(group) for group in groups]
        return self._segments

    @property
    def symbols(self) -> tuple[str, ...]:
        """Wildcards as they are and each literal character marked by ``"="``."""
        if self._symbols is None:
            self._symbols = tuple(
                itertools.chain.from_iterable(
                    ["=" + character for character in token[1:]] if token[0] == "=" else [token]
                    for token in self._tokens
                )
            )
        return self._symbols

    @property
    def masks(self) -> tuple[int, int, dict[str, int]]:
        """The positions of *one*, of *many*, and those that take a given symbol, as bits."""
        if self._masks is None:
            symbols = self.symbols
            ones = sum(1 << place for place, symbol in enumerate(symbols) if symbol == ONE)
            manies = sum(1 << place for place, symbol in enumerate(symbols) if symbol == MANY)
            takes = {ONE: ones, MANY: 0}
            for place, symbol in enumerate(symbols):
                if symbol not in (ONE, MANY):
                    takes[symbol] = takes.get(symbol, ones) | 1 << place
            self._masks = ones, manies, takes
        return self._masks


class _Memory(dict[tuple[str, ...], _Compiled]):
    """A bounded cache of compiled patterns by their tokens.

    There are far fewer patterns than matches. Which pattern is needed next is unknown, so a full
    cache is cleared; that also needs no lock between threads.
    """

    __slots__ = ("weight",)

    def __init__(self) -> None:
        super().__init__()
        self.weight = 0
        """The approximate bytes of the compiled forms of all patterns."""

    def __missing__(self, tokens: tuple[str, ...]) -> _Compiled:
        compiled = _Compiled(tokens)
        weight = _weight(tokens)
        if weight > PATTERN_MEMORY_MAX // 8:
            return compiled
        if self.weight + weight > PATTERN_MEMORY_MAX:
            self.clear()
        self.weight += weight
        self[tokens] = compiled
        return compiled

    def clear(self) -> None:
        """Remove all patterns."""
        super().clear()
        self.weight = 0


def _weight(tokens: tuple[str, ...]) -> int:
    """Estimate the bytes of a pattern with all its forms: a bit table, a row a character."""
    length = _length(tokens)
    rows = len(set("".join(tokens)))
    return 1_000 + 150 * len(tokens) + 64 * length + rows * (length // 7 + 100)


def _length(tokens: tuple[str, ...]) -> int:
    """Count characters and wildcards."""
    return sum([len(token) - 1 if token[0] == "=" else 1 for token in tokens])


_compiled: Final = _Memory()


def forget_patterns() -> None:
    """Empty the cache of compiled patterns, so that memory can be measured without it."""
    _compiled.clear()
