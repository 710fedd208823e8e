"""Groups of the fallback engine: their bit rows, and the comparison of ranges.

A bit row is an int with a bit a position, because Python combines long ints fast. The layout of
rows is the kernel's (`_kernel.h`): missing, FALSE, TRUE, NaN, twelve rows of texts by hash, 48 rows
of numbers by bounds, and one for the positions that have a condition at all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from gapless.content.matching.plan import Access, AccessKind, Alternative, Plan, Ranges, ValueKind
from gapless.content.matching.work import Check
from gapless.content.values import Value

__all__ = [
    "ABSENT",
    "CONSTRAINED_ROW",
    "NUMBER",
    "ONE_TEXT",
    "TEXT",
    "BitColumn",
    "BucketBounds",
    "EventValue",
    "Positions",
    "SlotGroup",
    "SlotRule",
    "cover",
    "end_rows",
    "ends",
    "places",
    "positions",
]

SMALL: Final = 6
"""The largest group whose slots are verified one by one."""
RESLICE_FACTOR: Final = 8
COLUMN_SHARE: Final = 16
"""An attribute has rows in a group if one in so many of its slots constrains it."""
_SAMPLE: Final = 2_048
_FEW_BITS: Final = 16

# plain ints: to look up a member of an enum costs more than the comparison
_MISSING: Final = ValueKind.MISSING.value
NUMBER: Final = ValueKind.NUMBER.value
TEXT: Final = ValueKind.TEXT.value
ONE_TEXT: Final = ValueKind.ONE_TEXT.value

_TEXT_ROW: Final = 4
_TEXT_ROWS: Final = 12
_NUMBER_ROW: Final = 16
_NUMBER_ROWS: Final = 48
CONSTRAINED_ROW: Final = 64
_BOUNDS_MAX: Final = _NUMBER_ROWS - 1
_ALL_ROWS: Final = (1 << CONSTRAINED_ROW) - 1
_TEXT_BITS: Final = ((1 << _TEXT_ROWS) - 1) << _TEXT_ROW
_NUMBER_BITS: Final = ((1 << _NUMBER_ROWS) - 1) << _NUMBER_ROW

EventValue: TypeAlias = tuple[int, tuple[float, int], Value | None]
"""(kind, number as a pair, the value itself)"""

ABSENT: Final[EventValue] = (_MISSING, (0.0, 0), None)

Positions: TypeAlias = npt.NDArray[np.intp]


class SlotRule:
    """The conditions of a slot."""

    __slots__ = ("access", "check", "choices", "intervals", "locations", "ranges", "verified")

    def __init__(self, plan: Plan) -> None:
        self.access = plan.access
        self.ranges = plan.ranges
        self.verified = tuple(
            part for part in plan.ranges if not (plan.implied and part[0] == plan.access.attribute)
        )
        intervals, choices = [], []
        for name, alternatives in self.verified:
            kind, low, low_step, high, high_step, _ = alternatives[0]
            if len(alternatives) == 1 and kind == NUMBER:
                intervals.append((name, (low, low_step), (high, high_step)))
            else:
                choices.append((name, alternatives))
        self.intervals = tuple(intervals)
        """Attributes that must be a number between two pairs: by far the most frequent."""
        self.choices = tuple(choices)
        """Attributes with other conditions."""
        self.check: Check | None = plan.check
        self.locations: list[tuple[SlotGroup, int]] = []


class BucketBounds:
    """The starts of the number buckets of a column; caches the bucket of the current event."""

    __slots__ = ("_epoch", "_row", "at")

    def __init__(self, sample: list[float]) -> None:
        distinct = sorted(set(sample))
        if len(distinct) > _BOUNDS_MAX:
            # by rank in the sample, not by value: dense ranges get narrow buckets
            ranked, steps = sorted(sample), _BOUNDS_MAX + 1
            distinct = sorted({ranked[i * len(ranked) // steps] for i in range(1, steps)})
        self.at = distinct
        self._epoch = -1
        self._row = 0

    def row(self, number: float) -> int:
        """Return the row of a number's bucket."""
        return _NUMBER_ROW + bisect_right(self.at, number)

    def row_now(self, number: float, epoch: int) -> int:
        """Return the row of the current event's number, computed once per event."""
        if self._epoch != epoch:
            self._epoch = epoch
            self._row = _NUMBER_ROW + bisect_right(self.at, number)
        return self._row


class BitColumn:
    """The bit rows of one attribute in one group."""

    __slots__ = ("bounds", "ever_allowed", "rows")

    def __init__(self, bounds: BucketBounds) -> None:
        self.bounds = bounds
        self.rows = [0] * (CONSTRAINED_ROW + 1)
        self.ever_allowed = 0

    def allowed(self, alternatives: tuple[Alternative, ...]) -> int:
        """Return the buckets in which some value satisfies the condition, a bit each."""
        rows = 0
        for kind, low, _, high, _, text in alternatives:
            if kind == NUMBER:
                first, last = self.bounds.row(low), self.bounds.row(high)
                rows |= ((2 << (last - first)) - 1) << first
            elif kind == TEXT:
                rows |= _TEXT_BITS
            else:
                rows |= 1 << (_text_row(text) if kind == ONE_TEXT else kind)
        return rows

    def mark(self, alternatives: tuple[Alternative, ...], position: int) -> None:
        """Set the bit of a position in the buckets in which its condition cannot hold."""
        allowed = self.allowed(alternatives)
        self.ever_allowed |= allowed
        bit = 1 << position
        for row in places((_ALL_ROWS & ~allowed) | 1 << CONSTRAINED_ROW):
            self.rows[row] |= bit

    def unmark(self, position: int) -> None:
        """Clear the bits of a position."""
        keep = ~(1 << position)
        self.rows = [row & keep for row in self.rows]


class SlotGroup:
    """The slots that events find by one key."""

    __slots__ = (
        "_slot_array",
        "access",
        "columns",
        "count",
        "holes",
        "key",
        "live",
        "sliced_at",
        "slots",
    )

    def __init__(self, access: Access, key: Hashable) -> None:
        self.access = access
        self.key = key
        self.slots: list[int] = []
        self._slot_array: npt.NDArray[np.int64] | None = None
        self.holes: list[int] = []
        self.live = 0
        self.count = 0
        self.columns: dict[str, BitColumn] | None = None
        self.sliced_at = 0

    def take_position(self, slot: int) -> int:
        """Give a slot a position: a free one if there is one, otherwise a new one at the end."""
        if self.holes:
            position = self.holes.pop()
            self.slots[position] = slot
        else:
            position = len(self.slots)
            self.slots.append(slot)
        self._slot_array = None
        self.live |= 1 << position
        self.count += 1
        return position

    def release_position(self, position: int) -> None:
        """Remove the slot at a position."""
        for column in (self.columns or {}).values():
            column.unmark(position)
        self.holes.append(position)
        self.live &= ~(1 << position)
        self.count -= 1

    def slice(self, columns: dict[str, BitColumn]) -> None:
        """Give the group new, empty bit rows."""
        self.columns = columns
        self.sliced_at = self.count

    def survivors(self, event: dict[str, EventValue], epoch: int) -> int:
        """Return the positions that the bit rows do not exclude."""
        excluded = 0
        for name, column in (self.columns or {}).items():
            kind, pair, text = event.get(name, ABSENT)
            if kind == NUMBER:
                excluded |= column.rows[column.bounds.row_now(pair[0], epoch)]
            else:
                excluded |= column.rows[_text_row(text) if kind == TEXT else kind]
        return self.live & ~excluded

    def slot_array(self, bits: int) -> npt.NDArray[np.int64]:
        """Return the slots at the set bits as an array."""
        if self._slot_array is None:
            self._slot_array = np.array(self.slots, dtype=np.int64)
        return self._slot_array[positions(bits)]

    def slot_list(self, bits: int) -> list[int]:
        """Return the slots at the set bits."""
        slots = self.slots
        return [slots[position] for position in places(bits)]

    @property
    def must_slice(self) -> bool:
        """Whether the group has grown so much that it needs (new) bit rows."""
        return self.count > SMALL and self.count > RESLICE_FACTOR * self.sliced_at

    def sample(self, rules: list[SlotRule]) -> dict[str, list[float]]:
        """Return ends of number ranges by attribute, from which bounds can be computed.

        Only attributes that a fair share of the slots constrains are included: rows for rare ones
        would cost more than they exclude.
        """
        stride = 1 + len(rules) // _SAMPLE
        uses: Counter[str] = Counter()
        sample: dict[str, list[float]] = {}
        for number, rule in enumerate(rules):
            for name, alternatives in rule.verified:
                uses[name] += 1
                found = sample.setdefault(name, [])
                if number % stride == 0:
                    found += ends(alternatives)
        return {
            name: found for name, found in sample.items() if uses[name] * COLUMN_SHARE >= len(rules)
        }

    def has_key_on(self, name: str) -> bool:
        """Return whether the key itself constrains the attribute's value."""
        keyed = self.access.kind in (AccessKind.EQUAL, AccessKind.PREFIX)
        return keyed and self.access.attribute == name


def ends(alternatives: tuple[Alternative, ...]) -> list[float]:
    """Return the finite ends of the number ranges."""
    pairs = [(a[1], a[3]) for a in alternatives if a[0] == NUMBER]
    return [end for pair in pairs for end in pair if abs(end) != float("inf")]


def positions(bits: int) -> Positions:
    """Return the indexes of the set bits as an array."""
    size = (bits.bit_length() + 7) // 8
    octets = np.frombuffer(bits.to_bytes(size, "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(octets, bitorder="little").view(np.bool_))


def places(bits: int) -> list[int]:
    """Return the indexes of the set bits."""
    if bits.bit_count() > _FEW_BITS:
        many: list[int] = positions(bits).tolist()
        return many
    found = []
    while bits:
        found.append((bits & -bits).bit_length() - 1)
        bits &= bits - 1
    return found


def end_rows(rows: int) -> list[int]:
    """Return the rows; of the number rows only the first and the last."""
    number_rows = rows & _NUMBER_BITS
    first_and_last = {
        (number_rows & -number_rows).bit_length() - 1,
        number_rows.bit_length() - 1,
    } - {-1}
    return [*places(rows & ~_NUMBER_BITS), *first_and_last]


def cover(wide: Ranges, narrow: dict[str, tuple[Alternative, ...]]) -> bool:
    """Return whether ``wide`` allows everything that ``narrow`` allows, by their ranges."""
    return all(
        name in narrow
        and all(any(_is_inside(inner, outer) for outer in outers) for inner in narrow[name])
        for name, outers in wide
    )


def _is_inside(inner: Alternative, outer: Alternative) -> bool:
    if outer[0] == NUMBER:
        return inner[0] == NUMBER and outer[1:3] <= inner[1:3] and inner[3:5] <= outer[3:5]
    if outer[0] == ONE_TEXT:
        return inner[0] == ONE_TEXT and inner[5] == outer[5]
    return inner[0] == outer[0] or (outer[0] == TEXT and inner[0] == ONE_TEXT)


def _text_row(text: object) -> int:
    return _TEXT_ROW + hash(text) % _TEXT_ROWS
