"""Names in a filter that were probably meant as strings: ``symbol = "IBM"``, ``symbol = IBM``.

Strings have single quotes; double quotes and no quotes make the name of an attribute. Such a filter is
valid, and mostly matches nothing. A comparison of two attributes is also ordinary (``bid = ask``), so
only ``=`` and ``<>`` are looked at, and only where the way of writing suggests a string:

- the right name has double quotes and the left one has none;
- the right name begins with a capital, or has only capitals, and the left one does not;
- the left name has double quotes that it does not need, and the right one has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gapless.content.expression import attribute_text
from gapless.content.lexer import COMPARE, END, NAME, Token, tokenize
from gapless.core.errors import shortened

__all__ = ["doubtful_names"]

_BEFORE: Final = frozenset({"(", "AND", "OR", "NOT"})
_AFTER: Final = frozenset({")", "AND", "OR", END})
_OPERATORS: Final = frozenset({"=", "<>"})


def doubtful_names(text: str) -> list[str]:
    """Return a warning for each name that was probably meant as a string, of a valid filter.

    >>> doubtful_names("symbol = 'IBM' AND bid = ask")
    []
    >>> print(*doubtful_names("symbol = IBM"))
    symbol = IBM compares two attributes; write 'IBM' if IBM is a string
    """
    return [
        f"{_shown(left, text)} {operator} {_shown(right, text)} compares two attributes; "
        f"write {_string(meant)} if {shortened(meant)} is a string"
        for left, operator, right in _compared_names(tokenize(text))
        if (meant := _meant_as_string(left, right, text)) is not None
    ]


def _compared_names(tokens: list[Token]) -> Iterator[tuple[Token, str, Token]]:
    """Yield the comparisons whose two sides are names alone."""
    before = "("
    for index, token in enumerate(tokens[:-3]):
        comparison, right, after = tokens[index + 1 : index + 4]
        if (
            before in _BEFORE
            and (token[0], comparison[0], right[0]) == (NAME, COMPARE, NAME)
            and comparison[1] in _OPERATORS
            and after[0] in _AFTER
        ):
            yield token, comparison[1], right
        before = token[0]


def _meant_as_string(left: Token, right: Token, text: str) -> str | None:
    """Return the name that was probably meant as a string."""
    if _is_quoted(right, text):
        return None if _is_quoted(left, text) else str(right[1])
    begins = right[1][:1].isupper() and not left[1][:1].isupper()
    if begins or (right[1].isupper() and not left[1].isupper()):
        return str(right[1])
    if _is_quoted(left, text) and attribute_text(left[1]) == left[1]:
        return str(left[1])
    return None


def _is_quoted(token: Token, text: str) -> bool:
    return text[token[2]] == '"'


def _shown(token: Token, text: str) -> str:
    shown = shortened(token[1])
    return f'"{shown}"' if _is_quoted(token, text) else shown


def _string(name: str) -> str:
    return "'" + shortened(name).replace("'", "''") + "'"
