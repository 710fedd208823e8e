"""The values of attributes, and what it means to compare two of them.

A value is a bool, a 64-bit int, a float or a str; None means that the attribute is missing.
Values fall into families: numbers (int and float together), texts, bools. Comparing across
families is *unknown*, and so is any comparison with NaN, which is present but equal to
nothing. Lone surrogates are not texts: no other program could read them. ``bool`` is a subclass of ``int`` in Python, so every test here asks for it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias, TypeVar

import msgspec

from gapless.core.errors import AttributeValueError, shortened
from gapless.core.limits import INT_MAX, INT_MIN

__all__ = [
    "Attributes",
    "Number",
    "Value",
    "canonical",
    "check_attributes",
    "check_value",
    "magnitude",
    "not_a_value",
    "too_large",
]

Number: TypeAlias = int | float
Value: TypeAlias = bool | Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)] | float | str
"""What an attribute may be; a message from outside is checked for it when it is read."""
Attributes: TypeAlias = Mapping[str, Value | None]

_Value = TypeVar("_Value", Number, Value)


def check_value(name: str, value: object) -> None:
    """Raise unless ``value`` may stand in an event under ``name``."""
    if isinstance(value, str):
        if not value.isascii():  # that much is known of every str without looking
            _check_text(value, f"attribute {shortened(name)!r}")
        return
    if value is None or isinstance(value, bool | float):
        return
    if not isinstance(value, int):
        raise not_a_value(value, f"attribute {shortened(name)!r}")
    if not INT_MIN <= value <= INT_MAX:
        raise too_large(value, f"attribute {shortened(name)!r}")


def _check_text(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise AttributeValueError(
            f"{what} has half of a surrogate pair at index {error.start}, which is not a text"
        ) from None


def too_large(value: int, what: str = "an attribute") -> AttributeValueError:
    """Return the error for an int that no attribute can hold."""
    return AttributeValueError(
        f"{what} is {magnitude(value)}, which does not fit into 64 bits; "
        "send it as a float or as a str"
    )


def magnitude(value: int) -> str:
    """Say about how large an int is, however large: neither as a float nor digit by digit.

    >>> magnitude(-(10**400))
    'about -2**1328'
    """
    return f"about {'-' if value < 0 else ''}2**{value.bit_length() - 1}"


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
        if not name.isascii():
            _check_text(name, f"attribute name {shortened(name)!r}")
        check_value(name, value)


def canonical(value: _Value) -> _Value:
    """Give equal numbers one form: an int where the value is a whole 64-bit number.

    >>> canonical(5.0), canonical(-0.0), canonical(0.5), canonical("x")
    (5, 0, 0.5, 'x')
    """
    if isinstance(value, float) and value.is_integer() and INT_MIN <= value <= INT_MAX:
        return int(value)
    return value
