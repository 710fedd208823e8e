"""Named filters from a file: per line a JSON object with ``name`` and ``filter``, or a filter."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import msgspec

from gapless.content.filter import Filter
from gapless.content.matching import MatchIndex
from gapless.core.errors import FilterError, UsageError

__all__ = ["NamedFilter", "index_of", "parse_filters", "read_filters"]

_WRONG_SHOWN = 50
"""Wrong lines that an error names; the others are counted."""


class NamedFilter(msgspec.Struct, frozen=True):
    """A filter and its name."""

    name: str
    filter: Filter


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    filter: str


def read_filters(path: Path) -> list[NamedFilter]:
    """Return the filters of a file; an error names all wrong lines."""
    return parse_filters(path.read_text("utf-8").splitlines(), str(path))


def parse_filters(lines: Iterable[str], where: str = "the list") -> list[NamedFilter]:
    """Return the filters of some lines. Empty lines and lines that begin with # are skipped.

    >>> [each.name for each in parse_filters(["a = 1", '{"name": "cheap", "filter": "price < 5"}'])]
    ['line 1', 'cheap']
    """
    found: dict[str, NamedFilter] = {}
    wrong: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            named = _parsed(text, number)
        except (FilterError, msgspec.MsgspecError) as error:
            wrong.append(f"line {number}: {_one_line(error)}")
            continue
        if named.name in found:
            wrong.append(f"line {number}: the name {named.name!r} is used twice")
        found[named.name] = named
    if wrong:
        more = [f"and {len(wrong) - _WRONG_SHOWN} more"] if len(wrong) > _WRONG_SHOWN else []
        shown = "\n  ".join([*wrong[:_WRONG_SHOWN], *more])
        raise UsageError(f"{where} has {len(wrong)} wrong lines:\n  {shown}")
    if not found:
        raise UsageError(f"{where} has no filters")
    return list(found.values())


def _parsed(text: str, number: int) -> NamedFilter:
    if not text.startswith("{"):
        return NamedFilter(f"line {number}", Filter(text))
    line = msgspec.json.decode(text, type=_Line)
    return NamedFilter(line.name, Filter(line.filter))


def _one_line(error: Exception) -> str:
    """Return the message of an error without the excerpt below it."""
    return str(error).splitlines()[0]


@lru_cache(maxsize=1)
def index_of(texts: tuple[str, ...]) -> MatchIndex:
    """Build the index of filters in a task's process; later tasks of the process reuse it."""
    index = MatchIndex()
    for place, text in enumerate(texts):
        index.add(place, Filter(text))
    return index
