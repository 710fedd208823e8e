"""The values of attributes, and what it means to compare two of them.

A value is a bool, a 64-bit int, a float or a str; None means that the attribute is missing.
Values fall into families: numbers (int and float together), texts, bools. Comparing across
families is *unknown*, and so is any comparison with NaN, which is present but equal to
nothing. ``bool`` is a subclass of ``int`` in Python, so every test here asks for it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from gapless.core.errors import AttributeValueError
from gapless.core.limits import INT_MAX, INT_MIN

__all__ = [
    "Attributes",
    "Number",
    "Value",
    "canonical_number",
    "check_attributes",
    "check_value",
    "not_a_value",
]

Number: TypeAlias = int | float
Value: TypeAlias = bool | int | float | str
Attributes: TypeAlias = Mapping[str, Value | None]


def check_value(name: str, value: object) -> None:
    """Raise unless ``value`` may stand in an event under ``name``."""
    if value is None or isinstance(value, bool | float | str):
        return
    if not isinstance(value, int):
        raise not_a_value(value, f"attribute {name!r}")
    if not INT_MIN <= value <= INT_MAX:
        raise AttributeValueError(
            f"attribute {name!r} is {value:.6g}, which does not fit into 64 bits; "
            "send it as a float or as a str"
        )


def not_a_value(value: object, what: str = "an attribute") -> AttributeValueError:
    """Return the error for something that no attribute can hold."""
    return AttributeValueError(
        f"{what} is a {type(value).__name__}; "
        "use a bool, an int, a float or a str (other data belongs into the payload)"
    )


def check_attributes(attributes: Attributes) -> None:
    """Raise unless every attribute may stand in an event."""
    for name, value in attributes.items():
        if not isinstance(name, str):
            raise AttributeValueError(f"attribute name {name!r} is not a str")
        check_value(name, value)


def canonical_number(value: Number) -> Number:
    """Give equal numbers one form: an int where the value is a whole 64-bit number.

    >>> canonical_number(5.0), canonical_number(-0.0), canonical_number(0.5)
    (5, 0, 0.5)
    """
    if isinstance(value, float) and value.is_integer() and INT_MIN <= value <= INT_MAX:
        return int(value)
    return value
