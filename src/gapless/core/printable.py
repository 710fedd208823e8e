r"""Texts of other programs on a terminal: no control character reaches it.

A name or a reason may contain any character. Printed as it is, an escape sequence could clear the
screen, hide lines or change what later lines look like, and so could characters that reverse the
direction of a text. So whatever is not printable is shown as an escape sequence of Python.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["printable", "printable_json", "printable_line"]

_LINES: Final = re.compile(r"[^\n\t]+")

_UNSAFE_IN_JSON: Final = re.compile(
    r"[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)
"""What JSON does not escape: control characters beyond ASCII, and those that change the direction."""


def printable_line(text: str) -> str:
    r"""Return a text without line ends, in which everything that is not printable is escaped.

    >>> printable_line("desk\x1b[2J\nb1 is ready")
    'desk\\x1b[2J\\nb1 is ready'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def printable(text: str) -> str:
    r"""Return a text of one or more lines; only tabs and line ends are not escaped.

    >>> printable("one\x9b\n\ttwo")
    'one\\x9b\n\ttwo'
    """
    return text if text.isprintable() else _LINES.sub(lambda line: printable_line(line[0]), text)


def printable_json(encoded: bytes) -> str:
    r"""Return a JSON document as a text of the same value, with all control characters escaped.

    >>> printable_json(b'["\xc2\x9b"]')
    '["\\u009b"]'
    """
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", encoded.decode())
