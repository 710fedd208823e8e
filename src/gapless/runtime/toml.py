"""TOML files: read into structs, with errors that name the file and the key; and written."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import msgspec.inspect

from gapless.content.values import magnitude
from gapless.core.errors import UsageError, shortened

__all__ = ["read_toml", "shown_value", "toml_text"]

T = TypeVar("T")


def read_toml(path: Path, kind: type[T], *, secret: bool = False) -> T:
    """Read a file into a struct; unknown keys are refused, because most are misspelt.

    An error names the key, the value that it has, and the values that it may have. The error of a
    file with secrets shows no value.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {_reason(error)}") from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply") from None
    except ValueError:  # of a conversion in Python
        raise UsageError(f"{path} contains a number with too many digits") from None
    try:
        return msgspec.convert(values, kind)
    except UsageError as error:  # of the struct itself
        raise UsageError(f"{path}: {error}") from None
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ValueError):  # the struct itself refused it
            raise UsageError(f"{path}: {error.__cause__}") from None
        raise UsageError(f"{path}: {_problem(str(error), values, kind, secret)}") from None


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return str(error.strerror if isinstance(error, OSError) else error)


def _problem(problem: str, values: Any, kind: type, secret: bool) -> str:
    """Describe a validation error by the key, its value and the allowed values."""
    what, _, at = problem.partition(" - at `$")
    found = _KEY.findall(at.rstrip("`"))
    keys = [name for name, _ in found]
    shape: Any = msgspec.inspect.type_info(kind)
    for name, index in found:
        values = values[int(index) if index else name] if _has(values, name, index) else None
        shape = _inside(shape, name)
    where = ".".join(filter(None, keys))
    if "unknown field" in what or "missing required field" in what:
        missing = what.partition("`")[2].rstrip("`")
        names = ", ".join(each.encode_name for each in getattr(shape, "fields", ()))
        key = f"{where}.{missing}" if where else missing
        if "unknown" in what:
            return f"there is no key `{key}`; valid keys: {names}"
        return f"there must be a key `{key}`"
    if secret:
        return f"{where} is invalid: it must be {_allowed(shape)}"
    return f"{where} is {shown_value(values)}: it must be {_allowed(shape)}"


def shown_value(value: Any) -> str:
    """Return a value of a file as an error shows it.

    >>> shown_value("x" * 100) == '"' + "x" * 59 + "…", shown_value(16**6_000)
    (True, 'about 2**24000')
    """
    try:
        return shortened(msgspec.json.encode(value, enc_hook=str).decode())
    except ValueError:  # Python converts no integer of thousands of digits
        return magnitude(value) if isinstance(value, int) else "a value with such a number"


_KEY: Final = re.compile(r"\.(\w+)|\[(\d*|\.\.\.)\]")


def _has(values: Any, name: str, index: str) -> bool:
    if index:
        return isinstance(values, list) and index.isdecimal() and int(index) < len(values)
    return isinstance(values, dict) and name in values


def _inside(shape: Any, name: str) -> Any:
    """Return the type of a key, or of the entries of a list or table."""
    shape = _plain(shape)
    for each in getattr(shape, "fields", ()):
        if each.encode_name == name:
            return _plain(each.type)
    for part in ("value_type", "item_type"):
        if hasattr(shape, part):
            return _plain(getattr(shape, part))
    return shape


def _plain(shape: Any) -> Any:
    """Return the type itself of one that may also be absent."""
    types = [each for each in getattr(shape, "types", ()) if type(each).__name__ != "NoneType"]
    return types[0] if len(types) == 1 else shape


def _allowed(shape: Any) -> str:
    """Describe the values of a type."""
    name = type(shape).__name__
    if name == "UnionType":
        return " or ".join(map(_allowed, shape.types))
    if name == "LiteralType":
        return f"one of {', '.join(map(str, shape.values))}"
    if name == "EnumType":
        return f"one of {', '.join(str(each.value) for each in shape.cls)}"
    if name == "IntType":
        least = "" if shape.ge is None else f" from {shape.ge:,}"
        most = "" if shape.le is None else f" to {shape.le:,}"
        return f"a whole number{least}{most}"
    if name == "StrType" and shape.pattern:
        return f"a text in quotes that matches {shape.pattern}"
    if name in {"TupleType", "ListType", "VarTupleType"}:
        return "a list" if name != "TupleType" else f"a list of {len(shape.item_types)}"
    return _DESCRIPTIONS.get(name, "a table")


_DESCRIPTIONS: Final = {
    "StrType": "a text in quotes",
    "BoolType": "true or false",
    "FloatType": "a number",
    "DateTimeType": "a date and time, such as 2027-01-31T00:00:00Z",
}


def toml_text(values: Mapping[str, Any]) -> str:
    """Return values as TOML: plain ones first, then a table for each mapping.

    >>> print(toml_text({"name": "b1", "log": {"level": "info"}}), end="")
    name = "b1"
    <BLANKLINE>
    [log]
    level = "info"
    """
    plain = {key: value for key, value in values.items() if not isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {_value(value)}\n" for key, value in plain.items()]
    for key, table in values.items():
        if isinstance(table, Mapping) and table:
            lines.append(f"\n[{_key(key)}]\n")
            lines += [f"{_key(name)} = {_value(value)}\n" for name, value in table.items()]
    return "".join(lines)


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "a").replace("-", "a").isalnum()
    return name if bare else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    # JSON strings, numbers and booleans are valid TOML, except for some control characters
    return msgspec.json.encode(value).decode()
