"""The values of attributes, and their comparison.

A value is a bool, a 64-bit int, a float or a str; None means that the attribute is missing.
Values fall into families: numbers (int and float together), texts, bools. Comparing across
families is *unknown*, and so is any comparison with NaN, which is present but equal to nothing.
Lone surrogates are not texts, because other programs cannot read them. ``bool`` is a subclass of
``int`` in Python, so every test here checks for it first.

A program may use NumPy's scalars as values. They become plain values where a program hands them over,
so no other module knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec

from gapless.core.errors import AttributeValueError, shortened, shown_value
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
    "plain_scalar",
    "plain_scalars",
    "too_large",
]

Number: TypeAlias = int | float
Value: TypeAlias = bool | Annotated[int, msgspec.Meta(ge=INT_MIN, le=INT_MAX)] | float | str
"""The type of an attribute; decoding a message checks it."""
Attributes: TypeAlias = Mapping[str, Value | None]

_Value = TypeVar("_Value", Number, Value)


def check_value(name: str, value: object) -> None:
    """Raise AttributeValueError unless an event may have ``value`` under ``name``."""
    if isinstance(value, str):
        if not value.isascii():  # Python knows it for every str without a scan
            _check_text(value, f"attribute {shortened(name)!r}")
        return
    if value is None or isinstance(value, bool | float):
        return
    if not isinstance(value, int):
        raise not_a_value(value, f"attribute {shortened(name)!r}")
    if not INT_MIN <= value <= INT_MAX:
        raise too_large(value, f"attribute {shortened(name)!r}")


def plain_scalar(value: Any) -> Any:
    """Return a NumPy scalar as the Python value that it stands for, and anything else as it is.

    The type is recognised by its base class, so that NumPy need not be installed.

    >>> plain_scalar(91.5), plain_scalar(None)
    (91.5, None)
    """
    for base in type(value).__mro__[1:]:
        if base.__name__ == "generic" and base.__module__ == "numpy":
            return value.item()
    return value


def plain_scalars(attributes: Attributes) -> dict[str, Value | None]:
    """Return attributes with every NumPy scalar replaced by its value.

    >>> plain_scalars({"price": 91.5})
    {'price': 91.5}
    """
    return {plain_scalar(name): plain_scalar(value) for name, value in attributes.items()}


def _check_text(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise AttributeValueError(
            f"{what} has half of a surrogate pair at index {error.start}, which is not a text"
        ) from None


def too_large(value: int, what: str = "an attribute") -> AttributeValueError:
    """Return the error for an int that does not fit into an attribute."""
    return AttributeValueError(
        f"{what} is {magnitude(value)}, which does not fit into 64 bits; "
        "send it as a float or as a str"
    )


def magnitude(value: int) -> str:
    """Return the approximate size of an int of any length, without converting all digits.

    >>> magnitude(-(10**400))
    'about -2**1328'
    """
    return f"about {'-' if value < 0 else ''}2**{value.bit_length() - 1}"


def not_a_value(value: object, what: str = "an attribute") -> AttributeValueError:
    """Return the error for an object that is not a value."""
    return AttributeValueError(
        f"{what} is a {type(value).__name__}; "
        "use a bool, an int, a float or a str (other data belongs into the payload)"
    )


def check_attributes(attributes: Attributes) -> None:
    """Raise AttributeValueError unless an event may have all these attributes."""
    for name, value in attributes.items():
        if not isinstance(name, str):
            raise AttributeValueError(f"attribute name {shown_value(name)} is not a str")
        if not name.isascii():
            _check_text(name, f"attribute name {shortened(name)!r}")
        check_value(name, value)


def canonical(value: _Value) -> _Value:
    """Return a number in the form that equal numbers share: an int for a whole 64-bit number.

    >>> canonical(5.0), canonical(-0.0), canonical(0.5), canonical("x")
    (5, 0, 0.5, 'x')
    """
    if isinstance(value, float) and value.is_integer() and INT_MIN <= value <= INT_MAX:
        return int(value)
    return value
