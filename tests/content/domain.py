"""Every event of a small domain at once.

A domain gives each of a few attributes a list of values; its events are all the combinations. The
truth of a condition over a whole domain is two big integers with one bit for each event: where it
is true and where it is false. NOT, AND and OR of the three-valued logic are then a few bit
operations, and only predicates are evaluated, by the reference, on the attributes they use.

A domain is *dense* around a set of literals if it has representatives of any two values that some
comparison with these literals distinguishes. Then a covering that holds on the domain holds
everywhere, as far as comparisons with these literals go. For LIKE the domain has all short words
over the letters of the patterns. For arithmetic it is not dense: there a covering may hold on the
domain by accident.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING

from tests.content.reference import INT_MAX, INT_MIN, And, Not, Or, evaluate, names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.content.generate import Event
    from tests.content.reference import Condition, Predicate, Value

WORDS = tuple("".join(letters) for length in range(5) for letters in product("ab", repeat=length))
OTHER_WORDS = ("%", "_", "a%", "c", "ac", "ca", "cc", "ccc", "\U0001f600")
UNKNOWN_BROKERS: tuple[Value | None, ...] = (None, math.nan, True, False, 1, "a")


@dataclass(frozen=True, slots=True)
class Truths:
    """Where a condition is true and where it is false; it is unknown elsewhere."""

    true: int
    false: int


class Domain:
    """All combinations of the given values; each event has an index."""

    def __init__(self, values: dict[str, tuple[Value | None, ...]]) -> None:
        self.values = values
        self.size = math.prod(len(choices) for choices in values.values())
        self.everything = (1 << self.size) - 1
        self._strides: dict[str, int] = {}
        self._places: dict[str, list[int]] = {}
        stride = 1
        for name, choices in values.items():
            self._strides[name] = stride
            block = (1 << stride) - 1
            period = stride * len(choices)
            repeated = sum(block << start for start in range(0, self.size, period))
            self._places[name] = [repeated << (stride * index) for index in range(len(choices))]
            stride = period

    def event(self, index: int) -> Event:
        """Return the event with this index, without the values that are None."""
        event: Event = {}
        for name, choices in self.values.items():
            value = choices[index // self._strides[name] % len(choices)]
            if value is not None:
                event[name] = value
        return event

    def first(self, mask: int) -> Event:
        """Return the first event of a set that is not empty."""
        assert mask, "no event in this set"
        return self.event((mask & -mask).bit_length() - 1)

    def truths(self, tree: Condition) -> Truths:
        """Return the truth of a condition for every event."""
        match tree:
            case Not(part):
                inner = self.truths(part)
                return Truths(true=inner.false, false=inner.true)
            case And(left, right):
                one, two = self.truths(left), self.truths(right)
                return Truths(true=one.true & two.true, false=one.false | two.false)
            case Or(left, right):
                one, two = self.truths(left), self.truths(right)
                return Truths(true=one.true | two.true, false=one.false & two.false)
            case _:
                return self._predicate(tree)

    def _predicate(self, tree: Predicate) -> Truths:
        spoken_of = [name for name in names(tree) if name in self.values]
        true = false = 0
        for indexes in product(*(range(len(self.values[name])) for name in spoken_of)):
            event: Event = {}
            where = self.everything
            for name, index in zip(spoken_of, indexes, strict=True):
                event[name] = self.values[name][index]
                where &= self._places[name][index]
            truth = evaluate(tree, event)
            if truth is True:
                true |= where
            elif truth is False:
                false |= where
        return Truths(true, false)


def dense(literals: Iterable[Value]) -> tuple[Value | None, ...]:
    """Return values that represent all that comparisons with these literals distinguish."""
    numbers: list[int | float] = []
    strings: list[str] = []
    for literal in literals:
        if isinstance(literal, str):
            strings.append(literal)
        elif not isinstance(literal, bool):
            numbers.append(literal)
    chosen: list[Value | None] = [*UNKNOWN_BROKERS]
    if numbers:
        chosen += dense_numbers(numbers)
    if strings:
        chosen += dense_strings(strings)
    return unique(chosen)


def dense_numbers(literals: list[int | float]) -> list[int | float]:
    """Return the literals, a number in every gap between two of them, and some on either side."""
    ascending = sorted(literals)
    inside = [middle for low, high in pairwise(ascending) for middle in between(low, high)]
    low, high = ascending[0], ascending[-1]
    outside = [-math.inf, math.inf, *between(-2 * abs(low) - 2, low), *between(high, 2 * high + 2)]
    return [*ascending, *inside, *outside]


def between(low: float, high: float) -> list[int | float]:
    """Return one number strictly between two others, or none if there is no such number.

    Where floats are further apart than ints, an int may fit where no float does.
    """
    middle = low / 2 + high / 2
    if low < middle < high:
        return [middle]
    if math.isfinite(low) and math.isfinite(high):
        whole = (math.floor(low) + math.floor(high)) // 2
        if low < whole < high and INT_MIN <= whole <= INT_MAX:
            return [whole]
    return []


def dense_strings(literals: list[str]) -> list[str]:
    """Return the literals, their next string, one after that, and short words for patterns.

    A string with a NUL at its end follows the one without immediately; nothing lies between.
    """
    after = [word + "\x00" * count for word in literals for count in range(3)]
    return ["", *after, *WORDS, *OTHER_WORDS]


def unique(values: list[Value | None]) -> tuple[Value | None, ...]:
    """Return the values without repetition; 1, 1.0 and TRUE are different here."""
    return tuple({(type(value), repr(value)): value for value in values}.values())
