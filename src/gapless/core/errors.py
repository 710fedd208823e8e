"""Every error of gapless, split by who has to act.

::

    GaplessError
    ├── ProtocolError             what came over a connection cannot be understood
    └── UsageError                the caller asked for something that cannot be
        ├── FilterError           (also a ValueError)
        │   ├── FilterSyntaxError     the text is not a filter; has .position
        │   ├── FilterTypeError       (also a TypeError) not a text, value or operand of a filter
        │   └── FilterLimitError      the filter is larger than a limit allows
        ├── IndexBusyError        (also a RuntimeError) an index is used inside its own search
        └── AttributeValueError   (also a TypeError) an attribute is not a value

An error says what was wrong and what to do about it.
"""

from __future__ import annotations

__all__ = [
    "AttributeValueError",
    "FilterError",
    "FilterLimitError",
    "FilterSyntaxError",
    "FilterTypeError",
    "GaplessError",
    "IndexBusyError",
    "ProtocolError",
    "UsageError",
    "shortened",
]

_EXCERPT_COLUMNS = 72
_QUOTED_MAX = 60


class GaplessError(Exception):
    """The root of all errors that gapless raises on purpose."""


class ProtocolError(GaplessError):
    """What came over a connection is malformed, too large or out of place; that connection ends."""


class UsageError(GaplessError):
    """The caller asked for something that cannot be; asking again will not help."""


class FilterError(UsageError, ValueError):
    """A filter could not be made."""


class FilterSyntaxError(FilterError):
    """The text is not a filter.

    ``position`` is the offset of the offending character, counted from zero; the message
    shows the line with a caret under it.

    >>> raise FilterSyntaxError("expected a value after '>'", "price >", 7)
    Traceback (most recent call last):
    gapless.core.errors.FilterSyntaxError: expected a value after '>' at column 8
      price >
             ^
    """

    def __init__(self, problem: str, text: str, position: int) -> None:
        self.problem = problem
        self.text = text
        self.position = position
        super().__init__(problem, text, position)

    def __str__(self) -> str:
        before = self.text[: self.position]
        row = before.count("\n")
        line_start = before.rfind("\n") + 1
        line_end = self.text.find("\n", self.position)
        line = self.text[line_start : line_end if line_end >= 0 else len(self.text)]
        column = self.position - line_start
        where = f"line {row + 1}, column {column + 1}" if row else f"column {column + 1}"
        excerpt, caret = _excerpt(line, column)
        return f"{self.problem} at {where}\n  {excerpt}\n  {' ' * caret}^"


class FilterTypeError(FilterError, TypeError):
    """A Python object was used where a filter takes a text, a value or another filter."""


class FilterLimitError(FilterError):
    """The filter is larger than a limit allows.

    ``limit`` is the limit's name in :mod:`gapless.core.limits`, ``allowed`` its value.
    """

    def __init__(self, problem: str, limit: str, allowed: int) -> None:
        self.problem = problem
        self.limit = limit
        self.allowed = allowed
        super().__init__(problem, limit, allowed)

    def __str__(self) -> str:
        return f"{self.problem} (limit {self.limit} = {self.allowed:,})"


class IndexBusyError(UsageError, RuntimeError):
    """An index was used while it was being searched: from another thread, or from a callback."""

    def __init__(self) -> None:
        super().__init__(
            "the index is being searched; it is for one thread at a time, and a search must not "
            "use it again (not even from a weak reference's callback or a key's __hash__)"
        )


class AttributeValueError(UsageError, TypeError):
    """An attribute of an event is not a bool, a 64-bit int, a float or a str."""


def shortened(text: str) -> str:
    """Cut a text that a message quotes: it may come from a stranger and be as long as a book."""
    return text if len(text) <= _QUOTED_MAX else text[:_QUOTED_MAX] + "…"


def _excerpt(line: str, column: int) -> tuple[str, int]:
    """Cut a long line to a window around the column; keep control characters off the screen."""
    shown = "".join(character if character.isprintable() else " " for character in line)
    if len(shown) <= _EXCERPT_COLUMNS:
        return shown, column
    start = max(0, column - _EXCERPT_COLUMNS // 2)
    window = shown[start : start + _EXCERPT_COLUMNS]
    lead = "…" if start else ""
    tail = "…" if start + _EXCERPT_COLUMNS < len(shown) else ""
    return lead + window + tail, column - start + len(lead)
