"""Events as the engines take them: plain names, plain values.

A search keeps references to an event's values while it runs. With plain types no code of the caller
runs in between: no ``__hash__`` of a subclass of ``str``, no lookup in another mapping. Events with
other types are copied first; the ordinary ones, dicts of plain values, are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.core.errors import AttributeValueError

__all__ = ["plain_event"]

_PLAIN = frozenset((float, int, str, bool, type(None)))


def plain_event(attributes: object) -> dict[str, Any]:
    """Return a copy of an event with plain names and values; refuse what is no event.

    An invalid value is left unchanged: it matters only if a filter constrains its attribute.
    """
    if not isinstance(attributes, Mapping):
        raise AttributeValueError(
            f"an event is a mapping from attribute names to values, not a {type(attributes).__name__}"
        )
    return {_plain_name(name): _plain_value(value) for name, value in attributes.items()}


def _plain_name(name: object) -> str:
    if not isinstance(name, str):
        raise AttributeValueError(f"the attribute name {name!r} is not a str")
    return str.__str__(name)


def _plain_value(value: object) -> object:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__pos__(value)
    if isinstance(value, int):
        return int.__pos__(value)
    return value
