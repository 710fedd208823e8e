"""Values of parameters as operators write them: numbers, or texts with a unit.

``retention_s = 7200``, ``retention_s = "2h"`` and ``--parameter retention_s=2h`` are the same.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from gapless.core.errors import UsageError, shortened
from gapless.core.parameters import Parameters, allowed
from gapless.runtime.toml import shown_value

__all__ = ["ParameterValue", "ParameterValues", "parameter_values", "read_option"]

ParameterValue: TypeAlias = bool | int | float | str
"""A value in a file; a text has a unit."""

ParameterValues: TypeAlias = dict[str, bool | int]

_KINDS: Final = {field.name: field.type for field in msgspec.structs.fields(Parameters)}

_TEXT: Final = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*([A-Za-z]*)", re.ASCII)
"""More digits exceed the range of every parameter."""

_MILLISECONDS: Final = {
    "ms": 1,
    "s": 1_000,
    "min": 60_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_BYTES: Final = {
    "B": 1,
    "kB": 1_000,
    "KB": 1_000,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}


def parameter_values(given: Mapping[str, ParameterValue]) -> ParameterValues:
    """Return checked values, texts as numbers.

    >>> parameter_values({"retention_s": "2h", "log_bytes_max": "10GB", "heartbeat_ms": 250})
    {'retention_s': 7200, 'log_bytes_max': 10000000000, 'heartbeat_ms': 250}

    Raises UsageError with the key, the value and the allowed values.
    """
    return {name: _checked(name, value) for name, value in given.items()}


def read_option(text: str) -> tuple[str, bool | int | None]:
    """Return the parameter and the value of an option, None for ``default``.

    >>> read_option("ordered_sessions=false"), read_option("retention_s=default")
    (('ordered_sessions', False), ('retention_s', None))
    """
    name, sign, value = text.partition("=")
    if not sign:
        raise UsageError(f"{shortened(text)!r} is no parameter: write NAME=VALUE")
    name, value = name.strip(), value.strip()
    _check_name(name)
    if value == "default":
        return name, None
    if _KINDS[name] is bool:
        words: dict[str, bool] = {"true": True, "false": False}
        return name, _checked(name, words.get(value, value))
    return name, _checked(name, value)


def _check_name(name: str) -> None:
    if name not in _KINDS:
        near = difflib.get_close_matches(name, _KINDS, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "docs/operations.md lists all"
        raise UsageError(f"there is no parameter {shortened(name)}; {hint}")


def _checked(name: str, value: ParameterValue) -> bool | int:
    _check_name(name)
    found = _number(name, value) if isinstance(value, str) and _KINDS[name] is int else value
    expected = allowed(name, found)
    if expected is None:
        assert isinstance(found, int), "only whole numbers and booleans are allowed"
        return found
    units = _units(name) if _KINDS[name] is int else ""
    written = f", or with a unit: {units}" if units else ""
    shown = shown_value(value)
    raise UsageError(f"parameters.{name} is {shown}: it must be {expected}{written}")


def _number(name: str, text: str) -> int | str:
    """Return the number of a text with a unit, or the text if it is not valid."""
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        return text
    amount, unit = found.groups()
    if not unit:
        return int(amount) if amount.isdecimal() else text
    if name.endswith(("_s", "_ms")):
        factor, scale = _MILLISECONDS.get(unit, 0), 1_000 if name.endswith("_s") else 1
    else:
        factor, scale = (_BYTES.get(unit, 0) if "bytes" in name else 0), 1
    number = float(amount) * factor / scale if "." in amount else int(amount) * factor / scale
    return int(number) if factor and number == int(number) else text


def _units(name: str) -> str:
    if name.endswith(("_s", "_ms")):
        return "90s, 15min, 2h, 7d"
    return "64MiB, 10GB" if "bytes" in name else ""
