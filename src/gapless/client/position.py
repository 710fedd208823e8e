"""Positions: for each pubend the tick up to which a subscriber has received everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

from gapless.content.values import plain_scalar
from gapless.core.errors import PositionError, shortened, shown_value
from gapless.core.ids import PubendId
from gapless.core.limits import CLIENT_COUNT_MAX, INT_DIGITS_MAX, NAME_MAX, SEQUENCE_MAX
from gapless.core.ticks import Tick
from gapless.messages.clients import PositionTuple

__all__ = ["Position", "pubend_id"]

_PLAIN = "!$&'()*+-./;<=>?@[]^_`{|}~ "
"""Characters that are not quoted in a text. A percent sign, a comma, a colon and unprintable
characters are. A number sign is never part of a name: it precedes the incarnation."""


class Position(Mapping[str, Tick]):
    """A tick for each pubend, up to which everything was received. Immutable.

    >>> position = Position({"quotes": 1700, "orders": 1650})
    >>> str(position)
    'orders:1650,quotes:1700'
    >>> Position.parse("orders:1650,quotes:1700") == position
    True

    ``a >= b`` means that a subscriber at ``a`` has received all that one at ``b`` has. That is a
    partial order: two positions may be incomparable. ``a | b`` is the least position that is ahead
    of both.

    >>> later = position | {"orders": 1800}
    >>> later >= position, position >= later, dict(later)
    (True, False, {'orders': 1800, 'quotes': 1700})

    For JSON use ``dict(position)``; ``Position(mapping)`` reads it back.
    """

    __slots__ = ("_hash", "_ticks")

    def __init__(self, ticks: Mapping[str, Tick] | None = None) -> None:
        found: dict[str, Tick] = {}
        for name, tick in sorted(_mapping({} if ticks is None else ticks).items(), key=_named):
            whole = plain_scalar(tick)
            _check(name, whole)
            found[name] = whole
        self._ticks = found
        self._hash: int | None = None

    @classmethod
    def parse(cls, text: str) -> Position:
        """Return the position of a text in the form of ``str()``, which may be empty."""
        ticks: dict[str, Tick] = {}
        if not isinstance(text, str):
            raise PositionError(f"a position is parsed from a str, not {shown_value(text)}")
        for part in text.split(",") if text else ():
            name, colon, tick = part.rpartition(":")
            is_tick = tick.isascii() and tick.isdigit() and len(tick) <= INT_DIGITS_MAX
            if not (colon and name and is_tick):
                raise PositionError(
                    f"{shortened(part)!r} is no part of a position; it reads like quotes:1700"
                )
            ticks[unquote(name)] = int(tick)
        return cls(ticks)

    @classmethod
    def of(cls, ticks: Mapping[PubendId, Tick]) -> Position:
        """Return the position of ticks by pubend."""
        return cls({str(pubend): tick for pubend, tick in ticks.items()})

    def as_tuple(self) -> PositionTuple:
        """Return the position in its wire form."""
        return tuple((pubend_id(name), tick) for name, tick in self._ticks.items())

    def __getitem__(self, pubend: str) -> Tick:
        return self._ticks[pubend]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ticks)

    def __len__(self) -> int:
        """Return the number of pubends in the position."""
        return len(self._ticks)

    def __or__(self, other: Mapping[str, Tick]) -> Position:
        if not isinstance(other, Mapping):
            return NotImplemented
        merged = dict(self._ticks)
        for name, tick in (other if isinstance(other, Position) else Position(other)).items():
            merged[name] = max(tick, merged.get(name, tick))
        return Position(merged)

    __ror__ = __or__

    def merge(self, other: Mapping[str, Tick]) -> Position:
        """Return the least position that is ahead of both, the same as ``|``."""
        return self | _mapping(other)

    def __ge__(self, other: Mapping[str, Tick]) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return all(self._ticks.get(name, -1) >= tick for name, tick in other.items())

    def __le__(self, other: Mapping[str, Tick]) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return all(other.get(name, -1) >= tick for name, tick in self._ticks.items())

    def __gt__(self, other: Mapping[str, Tick]) -> bool:
        return self >= other and self != other

    def __lt__(self, other: Mapping[str, Tick]) -> bool:
        return self <= other and self != other

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._ticks.items()))
        return self._hash

    def __str__(self) -> str:
        """Return the compact text; ``Position.parse(str(p)) == p``."""
        return ",".join(
            f"{quote(name, safe=_PLAIN + '#')}:{tick}" for name, tick in self._ticks.items()
        )

    def __repr__(self) -> str:
        return f"Position({self._ticks!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Position, (self._ticks,))


def pubend_id(name: str) -> PubendId:
    """Return the id of a pubend name: ``quotes``, or ``quotes#2`` for a later incarnation."""
    plain, mark, incarnation = name.partition("#")
    return PubendId(plain, int(incarnation)) if mark else PubendId(plain)


def _mapping(given: Any) -> Mapping[str, Tick]:
    if not isinstance(given, Mapping):
        raise PositionError(
            f"a position is a mapping from pubends to ticks, not {shown_value(given)}"
        )
    return given


def _named(item: tuple[str, Tick]) -> str:
    return str(item[0])


def _check(name: object, tick: object) -> None:
    if not isinstance(name, str) or not name:
        raise PositionError(f"{shown_value(name)} is no name of a pubend")
    if not name.isascii() and not _is_encodable(name):
        raise PositionError(
            f"{shown_value(name)} is no name of a pubend: it has half of a surrogate pair"
        )
    bare, mark, incarnation = name.partition("#")
    if len(bare) > NAME_MAX:
        raise PositionError(f"{shortened(name)!r} is longer than a name of a pubend ({NAME_MAX})")
    if mark and not (
        incarnation.isascii()
        and incarnation.isdigit()
        and len(incarnation) <= INT_DIGITS_MAX
        and int(incarnation) <= CLIENT_COUNT_MAX
    ):
        raise PositionError(f"{shortened(name)!r} is no name of a pubend")
    if not isinstance(tick, int) or isinstance(tick, bool) or not 0 <= tick <= SEQUENCE_MAX:
        raise PositionError(
            f"{shown_value(tick)} is no tick of {shortened(name)!r}; "
            f"a tick is a whole number up to {SEQUENCE_MAX:,}, and 0 is before the first"
        )


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
