"""Splits a filter's text into tokens, in one scan.

One regular expression matches every token; possessive quantifiers keep the scan linear on any
text. A token is a tuple ``(kind, value, start)``: the kind is the keyword in capitals, one of the
words below, or the bracket or comma itself; the value is its meaning (a number is converted, a
string is without quotes); the start is its offset.
"""

from __future__ import annotations

import re
from math import isfinite
from typing import Any, Final, TypeAlias

from gapless.content.expression import KEYWORDS, is_plain_name
from gapless.core.errors import FilterSyntaxError, shortened
from gapless.core.limits import INT_DIGITS_MAX

__all__ = [
    "COMPARE",
    "END",
    "NAME",
    "NUMBER",
    "PRODUCT",
    "STRING",
    "SUM",
    "Token",
    "shown",
    "tokenize",
]

NAME: Final = "name"
NUMBER: Final = "number"
STRING: Final = "string"
COMPARE: Final = "compare"
SUM: Final = "sum"
PRODUCT: Final = "product"
END: Final = "end"

Token: TypeAlias = tuple[str, Any, int]

_START = r"[^\s\x00-#%-@\[-^`{-\x7f]"  # no space, no ASCII digit or punctuation but $ and _
_PART = r"[^\s\x00-#%-/:-@\[-^`{-\x7f]"  # the same, and digits
# Only single characters repeat possessively: before Python 3.11.4 a possessive group matches
# wrongly. No group here can match one text in two ways, so plain repetition stays linear.
_TOKEN = re.compile(
    r"\s*+(?:"
    rf"({_START}{_PART}*+(?:\.{_START}{_PART}*+)*)"  # 1: a word, plain or dotted
    r"|(<>|<=|>=|!=|[=<>+\-*/%(),])"  # 2: a symbol
    rf"|(0[xX](?:{_PART}|\.)*|\.?[0-9](?:{_PART}|\.|(?<=[eE])[+-])*)"  # 3: a number
    r"|('[^']*+(?:''[^']*+)*'(?!'))"  # 4: a string
    r'|("[^"]*+(?:""[^"]*+)*"(?!"))'  # 5: a quoted name
    r"|(\Z)"  # 6: the end
    r"|(.))",  # 7: none of these
    re.DOTALL,
)
_WORD, _SYMBOL, _NUMBER, _STRING, _QUOTED, _END, _STRAY = range(1, 8)

_SYMBOLS: Final[dict[str, tuple[str, str]]] = {
    **{operator: (COMPARE, operator) for operator in ("=", "<>", "<", "<=", ">", ">=")},
    "!=": (COMPARE, "<>"),
    **{operator: (SUM, operator) for operator in "+-"},
    **{operator: (PRODUCT, operator) for operator in "*/%"},
    **{mark: (mark, mark) for mark in "(),"},
}
_KEYWORD_LENGTH_MAX: Final = max(map(len, KEYWORDS))

_FLOAT = re.compile(r"(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?[fFdD]?")
_WHOLE_FLOAT = re.compile(r"[1-9][0-9]*[fFdD]|0[fFdD]")
_DECIMAL = re.compile(r"(?:[1-9][0-9]*|0)[lL]?")
_HEXADECIMAL = re.compile(r"0[xX]([0-9a-fA-F]+)[lL]?")
_OCTAL = re.compile(r"0([0-7]+)[lL]?")
_DIGITS_LEADING_ZERO = re.compile(r"0[0-9]+[lL]?")
_TOO_LARGE: Final = 1 << 64

_HINTS: Final = {
    "&": "write AND",
    "|": "write OR",
    "!": "write NOT, or <> between two values",
    "`": "names are quoted with double quotes",
    **dict.fromkeys("\u2018\u2019\u201c\u201d", "strings are quoted with '"),
    ".": "a dot stands between the parts of a name or inside a number",
    ";": "a filter is one condition",
}


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a text, ending with one of kind END.

    >>> tokenize("a >= 0x1d")
    [('name', 'a', 0), ('compare', '>=', 2), ('number', 29, 5), ('end', '', 9)]

    Raises FilterSyntaxError where no token can be. An integer that is too long to convert is
    returned as a number above 64 bits; the parser checks the range together with the sign.
    """
    if not text.isascii():
        _check_characters(text)
    tokens: list[Token] = []
    append = tokens.append
    for match in _TOKEN.finditer(text):
        group = match.lastindex
        start = match.start(group)  # type: ignore[arg-type]
        value = match[group]  # type: ignore[index]
        if group == _WORD:
            upper = value.upper() if len(value) <= _KEYWORD_LENGTH_MAX else value
            if upper in KEYWORDS and value.isascii():
                append((upper, upper, start))
            else:
                append((NAME, value, start))
        elif group == _SYMBOL:
            kind, operator = _SYMBOLS[value]
            append((kind, operator, start))
        elif group == _NUMBER:
            append((NUMBER, _number(value, text, start), start))
        elif group == _STRING:
            append((STRING, value[1:-1].replace("''", "'"), start))
        elif group == _QUOTED:
            append((NAME, value[1:-1].replace('""', '"'), start))
        elif group == _END:
            append((END, "", start))
            break
        else:
            raise _stray(value, text, start)
    return tokens


def shown(token: Token) -> str:
    """Describe a token for an error message."""
    kind, value, _start = token
    if kind == END:
        return "the end of the filter"
    if kind == NAME:
        return f"the name {shortened(value)}"
    if kind == NUMBER:
        return f"the number {value}" if abs(value) < _TOO_LARGE else "a number"
    if kind == STRING:
        return "a string"
    return str(value) if value in KEYWORDS else f"'{value}'"


def _check_characters(text: str) -> None:
    """Refuse lone surrogates, and words that contain characters not allowed in names."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FilterSyntaxError("half of a surrogate pair", text, error.start) from None
    for match in _TOKEN.finditer(text):
        if match.lastindex == _STRAY:
            return  # tokenize reports it; what follows may be the inside of a string
        word = match[_WORD]
        if word is None or word.isascii() or is_plain_name(word):
            continue
        start = match.start(_WORD)
        for offset, character in enumerate(word):
            if character != "." and not is_plain_name(f"a{character}"):
                raise _stray(character, text, start + offset)
        first = next(part for part in word.split(".") if not is_plain_name(part))
        problem = f"a name cannot begin with {first[0]!r}; quote it with double quotes"
        raise FilterSyntaxError(problem, text, start + word.index(first))


def _stray(character: str, text: str, start: int) -> FilterSyntaxError:
    if character == "'":
        problem = "this string has no end; close it with ' (and write '' for a quote inside)"
    elif character == '"':
        problem = 'this quoted name has no end; close it with " (and write "" for a quote inside)'
    else:
        hint = _HINTS.get(character)
        problem = f"stray character {character!r}" + (f"; {hint}" if hint else "")
    return FilterSyntaxError(problem, text, start)


def _number(literal: str, text: str, start: int) -> int | float:
    """Return the value of a numeric literal."""
    if literal.isdecimal() and literal.isascii() and (literal[0] != "0" or literal == "0"):
        return int(literal) if len(literal) < INT_DIGITS_MAX else _TOO_LARGE
    if _FLOAT.fullmatch(literal) or _WHOLE_FLOAT.fullmatch(literal):
        value = float(literal.rstrip("fFdD"))
        if not isfinite(value):
            raise FilterSyntaxError("this number is too large for a float", text, start)
        return value
    if _DECIMAL.fullmatch(literal):
        return _whole(literal[:-1], 10)
    if match := _HEXADECIMAL.fullmatch(literal):
        return _whole(match[1], 16)
    if match := _OCTAL.fullmatch(literal):
        return _whole(match[1], 8)
    if _DIGITS_LEADING_ZERO.fullmatch(literal):
        problem = "a number with a leading 0 is octal, and octal has no 8 or 9; leave the 0 away"
        raise FilterSyntaxError(problem, text, start)
    raise FilterSyntaxError("this is not a number", text, start)


def _whole(digits: str, base: int) -> int:
    """Convert digits, unless there are so many that it takes long."""
    digits = digits.lstrip("0") or "0"
    return int(digits, base) if len(digits) < INT_DIGITS_MAX else _TOO_LARGE
