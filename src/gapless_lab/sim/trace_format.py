"""Readable forms of values in a trace.

Times of any kind (ticks, clocks, incarnations of brokers) are seconds since the start of the run,
as in the first column: ``0.025087``. Long lists and texts are cut, with a count of the rest.

>>> from gapless.messages.streams import Nack
>>> TraceFormatter().format(
...     Nack(PubendId("P0"), (TickRange(WALL_START + 25_087, WALL_START + 30_000),))
... )
'Nack P0 ([0.025087, 0.030000])'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, Final

import msgspec

from gapless.core.ids import MembershipId, PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.ticks import TickRange
from gapless.messages.propagation import TableDelta, TableFull, TableId
from gapless.messages.streams import StreamSilence
from gapless_lab.sim.trace_forms import FORMS

__all__ = ["WALL_START", "TraceFormatter", "cut", "since_the_start"]

WALL_START: Final = 1_700_000_000_000_000
"""The wall clock at the start of every world, in microseconds."""

NEAR_US: Final = 1_000_000_000_000
"""A number this near to the start is a time: clocks jump by seconds, and digests are spread widely.
"""

LISTED: Final = 4
"""The number of members of a list that are shown."""

TEXT_SHOWN: Final = 60
"""The number of characters of a text that are shown."""

THE_END: Final = 2**62
"""The greatest tick that is ever requested: everything."""

_NAME: Final = re.compile(r"[\w@./#-]+")
_TIME: Final = re.compile(r"\b1[67]\d{14}\b")
_OPTIONAL: Final = re.compile(r"<([^<>]*)>")
_FIELD: Final = re.compile(r"\{(\w+)\}")
_SEPARATE: Final = frozenset({"messages", "changes"})
"""Fields whose members are shown side by side, not as a list in brackets."""


def since_the_start(text: str) -> str:
    """Return a text with its times relative to the start of the run.

    >>> since_the_start("row 1700000000453025 of P0 is corrupt")
    'row 0.453025 of P0 is corrupt'
    """
    return _TIME.sub(lambda found: _number(int(found[0])), text)


def cut(text: str, shown: int) -> str:
    """Return the first characters of a text, and the number of further ones.

    >>> cut("abcdefgh", 5)
    'abcde… 3 more characters'
    """
    left = len(text) - shown
    return text if left <= 0 else f"{text[:shown]}… {left} more characters"


class TraceFormatter:
    """Formats a trace; it keeps the vectors of tables, to show the constraints of changes."""

    def __init__(self) -> None:
        self._vectors: dict[tuple[TableId, int], dict[ShbId, VectorEntry]] = {}

    def format(self, item: Any) -> str:
        """Return an event, effect, message or value as text."""
        kind = type(item)
        form = FORMS.get(kind)
        if form is not None:
            return self._formed(item, form)
        simple = _SIMPLE.get(kind)
        if simple is not None:
            return simple(item)
        match item:
            case None:
                return "nothing"
            case IntEnum():
                return item.name.lower().replace("_", " ")
            case dict():
                pairs = (f"{name}={self.format(value)}" for name, value in item.items())
                return f"{{{' '.join(pairs)}}}"
            case tuple() | list():
                return f"({_listed(map(self._member, item), ', ')})"
            case msgspec.Struct():
                return self._unformed(item)
            case _:
                return repr(item)

    def constraint(self, delta: TableDelta) -> str:
        """Return VT's constraint of a change: the vector of the only table to which it applies
        (R19).
        """
        vector = self._vectors.get((delta.table, delta.base))
        entries = None if vector is None else ", ".join(map(self._member, vector.items()))
        return "(unknown)" if entries is None else f"({entries})"

    # --- tables ------------------------------------------------------------------------------

    def _note(self, message: TableFull | TableDelta) -> None:
        """Keep the vector of a table at a version."""
        key = (message.table, message.version)
        if isinstance(message, TableFull):
            self._vectors.setdefault(key, {}).update(message.entries)
            return
        base = self._vectors.get((message.table, message.base))
        if base is not None:
            vector = {**base, **dict(message.entries)}
            self._vectors[key] = {
                shb: entry for shb, entry in vector.items() if shb not in message.removed_hosts
            }

    # --- forms -------------------------------------------------------------------------------

    def _formed(self, item: Any, form: str) -> str:
        if isinstance(item, TableFull | TableDelta):
            self._note(item)

        def optional(found: re.Match[str]) -> str:
            first = _FIELD.search(found[1])
            assert first is not None, f"{found[0]} has no field"
            return found[1] if getattr(item, first[1]) else ""

        return _FIELD.sub(lambda found: self._field(item, found[1]), _OPTIONAL.sub(optional, form))

    def _field(self, item: Any, name: str) -> str:
        if name == "constraint":
            return self.constraint(item)
        if isinstance(item, StreamSilence):
            return self._silence(item)
        value = getattr(item, name)
        if name in _SEPARATE:
            return _listed(map(self.format, value), "; ")
        return name if value is True else self.format(value)

    def _unformed(self, item: Any) -> str:
        parts = (
            f"{name} {self.format(value)}"
            for name, value in msgspec.structs.asdict(item).items()
            if value not in (None, (), "")
        )
        return " ".join((type(item).__name__, *parts))

    def _silence(self, silence: StreamSilence) -> str:
        shown = (
            f"{pubend} #{number}{' first' if first else ''} {self.format(knowledge)}"
            for pubend, number, knowledge, first in silence.ranges
        )
        return f"({_listed(shown, ', ')})"

    def _member(self, item: Any) -> str:
        """Return a member of a list; a pair in a list of pairs has no brackets."""
        if type(item) is tuple:
            return " ".join(map(self.format, item))
        return self.format(item)


# --- values -----------------------------------------------------------------------------------------


def _listed(members: Iterable[str], between: str) -> str:
    """Return the first members of a list, and the number of further ones."""
    shown = list(members)
    left = len(shown) - LISTED
    return between.join(shown if left <= 0 else [*shown[:LISTED], f"… {left} more"])


def _number(value: int) -> str:
    """Return a number; a time is shown as seconds since the start of the run.

    >>> _number(7), _number(WALL_START + 40_214), _number((WALL_START + 40_214) * 1_000 + 9)
    ('7', '0.040214', '0.040214/9')
    """
    incarnation, count = divmod(value, 1_000)
    if _is_time(value):
        return f"{(value - WALL_START) / 1_000_000:.6f}"
    if _is_time(incarnation):  # request numbers start from the incarnation of their broker
        return f"{_number(incarnation)}/{count}"
    return "the end" if value == THE_END else str(value)


def _is_time(value: int) -> bool:
    return abs(value - WALL_START) < NEAR_US


def _text(value: str) -> str:
    """Return a text, in quotes unless it is a name.

    >>> _text("s1/1700000000039002.3"), _text("price < 3")
    ('s1/0.039002.3', '"price < 3"')
    """
    return since_the_start(value) if _NAME.fullmatch(value) else f'"{cut(value, TEXT_SHOWN)}"'


def _entry(entry: VectorEntry) -> str:
    version = f" cv{entry.control_version}" if entry.control_version else ""
    return f"{_virtual_time(entry.time)}{version}{' retired' if entry.retired else ''}"


def _virtual_time(time: VirtualTime | MembershipId) -> str:
    return f"{_number(time.incarnation)}:{time.counter}"


def _bytes(value: bytes) -> str:
    return repr(value) if len(value) <= 12 else f"{len(value)} bytes"


_SIMPLE: Final[dict[type, Callable[[Any], str]]] = {
    bool: lambda value: "yes" if value else "no",
    int: _number,
    float: repr,
    str: _text,
    bytes: _bytes,
    PubendId: str,
    ShbId: str,
    VirtualTime: _virtual_time,
    MembershipId: _virtual_time,
    VectorEntry: _entry,
    TickRange: lambda ticks: f"[{_number(ticks.low)}, {_number(ticks.high)}]",
}
"""The forms of values that are not messages."""
