"""Checks of the arguments of calls, before anything is sent.

Each function returns the argument in its plain form, or raises UsageError with the name of the
argument, what it must be, and what it is. NumPy scalars count as the values that they are.
"""

from __future__ import annotations

import contextlib
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from gapless.content.doubtful import doubtful_names
from gapless.content.filter import Filter
from gapless.content.values import plain_scalar
from gapless.core.errors import (
    FilterTypeError,
    FilterWarning,
    UsageError,
    shortened,
    shown_value,
)
from gapless.core.limits import NAME_MAX, OPTION_MAX

__all__ = [
    "check_choice",
    "check_filter",
    "check_flag",
    "check_name",
    "check_new_name",
    "check_pubend_name",
    "check_seconds",
    "check_text",
    "check_whole",
    "iterated",
]

_INCARNATION_DIGITS: Final = 18
"""Decimal digits that always fit into 64 bits with a sign."""

_Choice = TypeVar("_Choice")


def check_text(name: str, value: Any) -> str:
    """Return a text, which may be empty."""
    if not isinstance(value, str):
        raise UsageError(f"{name} is a str, not {shown_value(value)}")
    text = str.__str__(value)  # a plain str, also for a member of an enum
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name} has half of a surrogate pair, which is not a text") from None
    return text


def check_name(name: str, value: Any) -> str:
    """Return the name of something that may exist, with any characters."""
    text = check_text(name, value)
    if not 0 < len(text) <= NAME_MAX:
        raise UsageError(f"{name} has 1 to {NAME_MAX} characters, not {len(text):,}")
    return text


def check_new_name(name: str, value: Any) -> str:
    """Return a name under which something may be created: it has no control characters.

    >>> check_new_name("durable", "risk desk")
    'risk desk'
    """
    text = check_name(name, value)
    found = next((each for each in text if unicodedata.category(each) == "Cc"), None)
    if found is not None:
        raise UsageError(f"{name} has the control character {found!r}; use a name without it")
    return text


def check_pubend_name(value: Any, *, is_new: bool = False) -> str:
    """Return the name of a pubend, perhaps with its number: ``quotes#81402361``."""
    text = check_new_name("pubend", value) if is_new else check_name("pubend", value)
    plain, mark, number = text.partition("#")
    is_number = number.isascii() and number.isdigit() and len(number) <= _INCARNATION_DIGITS
    if not plain or (mark and not is_number):
        raise UsageError(
            f"{shortened(text)!r} is no name of a pubend: only a number may follow a number sign"
        )
    return text


def check_whole(name: str, value: Any, low: int, high: int = OPTION_MAX) -> int:
    """Return a whole number in a range."""
    number = plain_scalar(value)
    if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
        raise UsageError(
            f"{name} is a whole number from {low:,} to {high:,}, not {shown_value(value)}"
        )
    return int(number)


def check_flag(name: str, value: Any) -> bool:
    """Return True or False. Another value, such as ``"no"``, is refused."""
    flag = plain_scalar(value)
    if not isinstance(flag, bool):
        raise UsageError(f"{name} is True or False, not {shown_value(value)}")
    return flag


def check_choice(name: str, value: Any, choices: Mapping[str, _Choice]) -> _Choice:
    """Return what a word stands for."""
    found = choices.get(str.__str__(value)) if isinstance(value, str) else None
    if found is None:
        words = " or ".join(map(repr, choices))
        raise UsageError(f"{name} is {words}, not {shown_value(value)}")
    return found


def check_seconds(name: str, value: Any) -> float | None:
    """Return a time above 0 in seconds, or None."""
    number = plain_scalar(value)
    if number is None:
        return None
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not 0 < number <= OPTION_MAX:  # false for NaN
        raise UsageError(f"{name} is a time above 0 in seconds, or None; not {shown_value(value)}")
    return float(number)


def check_filter(name: str, value: Any) -> Filter:
    """Return a filter; warn if it probably compares with a name where a string was meant."""
    if isinstance(value, Filter):
        found, text = value, value.source_text
    elif isinstance(value, str):
        found, text = Filter(value), str.__str__(value)
    else:
        raise FilterTypeError(
            f"{name} is a text or a Filter, not {shown_value(value)}; in Python code F builds one: "
            "F.price > 90"
        )
    for warning in () if text is None else doubtful_names(text):
        warnings.warn(warning, FilterWarning, stacklevel=_frames_of_the_library())
    return found


def _frames_of_the_library() -> int:
    """Return the stack level of the line of the program that has called the library."""
    frame, level = sys._getframe(1), 1  # noqa: SLF001 - there is no other way to find it
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("gapless."):
        frame, level = frame.f_back, level + 1
    return level


def iterated(name: str, value: Any, what: str) -> Iterator[Any]:
    """Return an iterator over something that is no single mapping and no text."""
    if not isinstance(value, Mapping | str | bytes) and isinstance(value, Iterable):
        with contextlib.suppress(TypeError):  # such as an array without dimensions
            return iter(value)
    raise UsageError(f"{name} are an iterable of {what}, not {shown_value(value)}")
