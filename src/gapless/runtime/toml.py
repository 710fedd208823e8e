"""TOML files: read into structs, with errors that name the file and the key; and written."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from gapless.core.errors import UsageError

__all__ = ["read_toml", "toml_text"]

T = TypeVar("T")


def read_toml(path: Path, kind: type[T]) -> T:
    """Read a file into a struct; unknown keys are refused, because most are misspelt."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {_reason(error)}") from None
    try:
        return msgspec.convert(tomllib.loads(text), kind)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {_named(str(error), kind)}") from None


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return str(error.strerror if isinstance(error, OSError) else error)


def _named(problem: str, kind: type) -> str:
    """Name the key and list the valid keys."""
    problem = problem.replace("Object contains unknown field", "there is no key")
    problem = problem.replace("Object missing required field", "there must be a key")
    problem = problem.replace(" - at `$", " - at `").replace("at `.", "at `")
    if "there is no key" in problem and " - at " not in problem:
        keys = ", ".join(field.encode_name for field in msgspec.structs.fields(kind))
        return f"{problem}; valid keys: {keys}"
    return problem


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
