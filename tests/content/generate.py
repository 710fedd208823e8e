"""Random selectors and events over small, dense domains.

A uniform generator finds nothing: its selectors rarely use the values of its events. So each case
draws a *palette* first: a few attributes, for each a theme (small numbers, numbers beyond the
precision of floats, strings, booleans, a mixture) and a few literals in focus. Selectors use the
literals in focus, events use them and their nearest neighbours. So ends of ranges meet, selectors
overlap, and covering and intersection are common.

Everything takes a `random.Random`; nothing else is random. The strategies at the end pass a source
of randomness that Hypothesis can shrink; for that, simple choices come first.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

from hypothesis import strategies

from tests.content.reference import (
    COMPARISONS,
    INT_MAX,
    INT_MIN,
    ORDERINGS,
    And,
    Arithmetic,
    Attribute,
    Between,
    Compare,
    Constant,
    Flag,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Or,
    Sign,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.content.reference import Condition, Operand, Predicate, Value

NAMES = ("a", "b", "c", "x.y", "odd name", "_$é1")
PATTERN_LETTERS = ("a", "%", "_", "b")
ESCAPES = ("!", "\\", "a")

Event = dict[str, "Value | None"]


@dataclass(frozen=True, slots=True)
class Theme:
    """The literals that selectors use for an attribute."""

    name: str
    literals: tuple[Value, ...]


SMALL_NUMBERS = Theme("small numbers", (1, 2, 0, 1.0, 1.5, -1, -0.0, 0.5, 3, 0.1))
LARGE_NUMBERS = Theme(
    "large numbers",
    (2**53, 2**53 + 1, float(2**53), 2**53 + 2, INT_MAX, INT_MIN, 2.0**63, -(2.0**63), 1e308),
)
STRINGS = Theme("strings", ("a", "", "ab", "abc", "b", "%", "_", "it's", "\uffff", "a\U0001f600"))
BOOLEANS = Theme("booleans", (True, False))
MIXTURE = Theme("a mixture", (1, "a", True, 1.5, "", False, "1", 2**53 + 1, 0.0))
THEMES = (SMALL_NUMBERS, SMALL_NUMBERS, STRINGS, STRINGS, MIXTURE, LARGE_NUMBERS, BOOLEANS)

UNKNOWN_BROKERS: tuple[Value | None, ...] = (
    None,
    1,
    "a",
    True,
    1.0,
    math.nan,
    math.inf,
    -math.inf,
    False,
    "",
    0,
    "1",
    INT_MIN,
    INT_MAX,
)


@dataclass(frozen=True, slots=True)
class Palette:
    """The attributes in play and, for each, the literals in focus.

    A share of the literals strays from the focus. Patterns have up to `pattern_parts` parts.
    """

    focus: dict[str, tuple[Value, ...]]
    stray: float = 0.08
    pattern_parts: int = 4

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.focus)


def palette(rng: random.Random, most: int = 3) -> Palette:
    """One to `most` attributes with up to four literals each."""
    chosen = rng.sample(NAMES[:3] * 3 + NAMES[3:], rng.randint(1, most))
    focus: dict[str, tuple[Value, ...]] = {}
    for name in chosen:
        literals = rng.choice(THEMES).literals
        focus[name] = tuple(rng.choice(literals) for _ in range(rng.randint(1, 4)))
    return Palette(focus)


# Conditions.


def condition(rng: random.Random, colours: Palette, depth: int = 3) -> Condition:
    """Return any condition, nested up to `depth`."""
    if depth == 0 or rng.random() < 0.3:
        return predicate(rng, colours)
    if rng.random() < 0.25:
        return Not(condition(rng, colours, depth - 1))
    join = rng.choice((And, Or))
    return join(condition(rng, colours, depth - 1), condition(rng, colours, depth - 1))


def predicate(rng: random.Random, colours: Palette) -> Predicate:
    """One predicate of any kind."""
    kind = rng.random()
    if kind < 0.45:
        return simple_predicate(rng, colours)
    name = rng.choice(colours.names)
    if kind < 0.60:
        return like_predicate(rng, colours)
    if kind < 0.85:
        return arithmetic_predicate(rng, colours)
    if kind < 0.93:
        # Two attributes or two literals of any types.
        if rng.random() < 0.7:
            other = rng.choice(colours.names)
            return Compare(rng.choice(COMPARISONS), Attribute(name), Attribute(other))
        left, right = literal(rng, colours, name), literal(rng, colours, name)
        return Compare(comparison(rng, left, right), left, right)
    if kind < 0.97:
        return Flag(name)
    return Constant(rng.random() < 0.5)


def simple_predicate(rng: random.Random, colours: Palette) -> Predicate:
    """Return a predicate on the set of values of one attribute."""
    name = rng.choice(colours.names)
    negated = rng.random() < 0.4
    kind = rng.random()
    if kind < 0.60:
        constant = literal(rng, colours, name)
        operator = comparison(rng, constant)
        if rng.random() < 0.15:
            return Compare(operator, constant, Attribute(name))
        return Compare(operator, Attribute(name), constant)
    if kind < 0.73:
        return IsNull(negated, name)
    if kind < 0.87:
        low, high = literal(rng, colours, name), literal(rng, colours, name)
        if not isinstance(low.value, bool) and not isinstance(high.value, bool):
            return Between(negated, Attribute(name), low, high)
    count = rng.randint(1, 4)
    return In(negated, name, tuple(literal(rng, colours, name).value for _ in range(count)))


def arithmetic_predicate(rng: random.Random, colours: Palette) -> Predicate:
    """A comparison or range test in which at least one side is calculated."""
    left = compound(rng, colours, 2)
    if rng.random() < 0.2:
        low, high = calculation(rng, colours, 1), calculation(rng, colours, 1)
        return Between(rng.random() < 0.4, left, low, high)
    right = counterpart(rng, colours, left)
    if rng.random() < 0.2:
        left, right = right, left
    return Compare(comparison(rng, left, right), left, right)


def counterpart(rng: random.Random, colours: Palette, left: Operand) -> Operand:
    """Return an operand to compare a calculation with, preferably a result of it for some event.

    Any other number is rarely equal to the result, and an error in the last digit or in the sign
    would not be noticed.
    """
    kind = rng.random()
    if kind < 0.65:
        result = value_of(left, event(rng, colours))
        if is_number(result) and math.isfinite(result):
            return Literal(result)
    if kind < 0.85:
        return number(rng, colours)
    return calculation(rng, colours, 1)


def calculation(rng: random.Random, colours: Palette, depth: int) -> Operand:
    """Return an operand whose value is a number, if it has one."""
    kind = rng.random()
    if depth == 0 or kind < 0.2:
        return Attribute(numeric_name(rng, colours))
    if kind < 0.35:
        return number(rng, colours)
    return compound(rng, colours, depth)


def compound(rng: random.Random, colours: Palette, depth: int) -> Operand:
    """Return an operand with at least one step of arithmetic."""
    if rng.random() < 0.15:
        return Sign(rng.choice(("-", "+")), calculation(rng, colours, depth - 1))
    operator = rng.choice(("+", "-", "*", "/", "%"))
    right = calculation(rng, colours, depth - 1)
    return Arithmetic(operator, calculation(rng, colours, depth - 1), right)


def number(rng: random.Random, colours: Palette) -> Literal:
    """Return a number in focus, or any small one: arithmetic never has strings or booleans."""
    constant = literal(rng, colours, rng.choice(colours.names))
    return constant if is_number(constant.value) else Literal(rng.choice((1, 2, 3, -2, 0, 0.5, 10)))


def numeric_name(rng: random.Random, colours: Palette) -> str:
    """Return mostly an attribute with numbers in focus; arithmetic on others has no result."""
    numeric = having(colours, is_number)
    return rng.choice(numeric if numeric and rng.random() < 0.9 else colours.names)


def having(colours: Palette, kind: Callable[[Value], bool]) -> tuple[str, ...]:
    """Return the attributes that have a literal of some kind in focus."""
    return tuple(name for name, focus in colours.focus.items() if any(map(kind, focus)))


def is_number(value: Value | None) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def comparison(rng: random.Random, *sides: Operand) -> str:
    """Return an operator that is legal between these sides: TRUE and FALSE have no order."""
    boolean = any(isinstance(side, Literal) and isinstance(side.value, bool) for side in sides)
    return rng.choice(COMPARISONS[: -len(ORDERINGS)] if boolean else COMPARISONS)


def literal(rng: random.Random, colours: Palette, name: str) -> Literal:
    """Return a literal in focus for an attribute; sometimes one of another attribute."""
    if rng.random() < colours.stray:
        return Literal(rng.choice(MIXTURE.literals))
    return Literal(rng.choice(colours.focus[name]))


def like_predicate(rng: random.Random, colours: Palette) -> Predicate:
    """A short pattern over a tiny alphabet, with or without escape."""
    negated = rng.random() < 0.4
    escape = rng.choice(ESCAPES) if rng.random() < 0.25 else None
    pattern = ""
    for _ in range(rng.randint(0, colours.pattern_parts)):
        letter = rng.choice(PATTERN_LETTERS)
        if escape is not None and (letter == escape or rng.random() < 0.4):
            pattern += escape + rng.choice(("%", "_", escape))
        else:
            pattern += letter
    textual = having(colours, lambda value: isinstance(value, str))
    astray = not textual or rng.random() < colours.stray
    return Like(negated, rng.choice(colours.names if astray else textual), pattern, escape)


def simple_or_like_predicate(rng: random.Random, colours: Palette) -> Predicate:
    """A predicate of one attribute, without arithmetic."""
    return (like_predicate if rng.random() < 0.4 else simple_predicate)(rng, colours)


def conjunction(
    rng: random.Random, colours: Palette, make: Callable[[random.Random, Palette], Predicate]
) -> Condition:
    """One to three predicates joined by AND, each possibly under NOT."""
    result: Condition | None = None
    for _ in range(rng.randint(1, 3)):
        part: Condition = make(rng, colours)
        if rng.random() < 0.15:
            part = Not(part)
        result = part if result is None else And(result, part)
    assert result is not None
    return result


# Events.


def neighbours(value: Value) -> tuple[Value, ...]:
    """Return the value itself and those that an off-by-one error would confuse with it."""
    if isinstance(value, bool):
        return (value, not value, int(value))
    if isinstance(value, str):
        # One character of sixteen bits and one beyond: code points and code units are ordered differently.
        wide = value[:-1] + ("\U0001f600" if "\uffff" in value else "\uffff")
        return (value, value + "\x00", value[:-1], value + "a", "a" + value, value + "b", wide)
    near: list[Value] = [value, float(value), *beside(float(value))]
    if math.isfinite(value):
        whole = [math.floor(value), math.ceil(value), math.floor(value) + 1, math.ceil(value) - 1]
        near += [number for number in whole if INT_MIN <= number <= INT_MAX]
    return tuple(near)


def beside(value: float) -> tuple[float, float]:
    """The next smaller and the next larger float."""
    return math.nextafter(value, -math.inf), math.nextafter(value, math.inf)


def event(rng: random.Random, colours: Palette) -> Event:
    """Attributes near the literals in focus; some missing, some of another type."""
    attributes: Event = {}
    for name, focus in colours.focus.items():
        kind = rng.random()
        if kind < 0.45:
            attributes[name] = rng.choice(focus)
        elif kind < 0.75:
            attributes[name] = rng.choice(neighbours(rng.choice(focus)))
        elif kind < 0.85:
            attributes[name] = rng.choice(like_words(rng))
        elif kind < 0.93:
            attributes[name] = rng.choice(UNKNOWN_BROKERS)
    if rng.random() < 0.1:
        attributes["unheard of"] = 1
    return attributes


def like_words(rng: random.Random) -> tuple[Value, ...]:
    """A short word over the letters of the patterns, and a small number."""
    word = "".join(rng.choice("aab%_\U0001f600") for _ in range(rng.randint(0, 4)))
    return word, rng.choice((1, 2, 3, 0.5, 4.0, -2))


def events(rng: random.Random, colours: Palette) -> Iterator[Event]:
    """Events without end."""
    while True:
        yield event(rng, colours)


# For Hypothesis.


def sources() -> strategies.SearchStrategy[random.Random]:
    """Sources of randomness that shrink towards the first of every choice."""
    return strategies.randoms(use_true_random=False)


@strategies.composite
def cases(draw: strategies.DrawFn, most_events: int = 8) -> tuple[Condition, list[Event]]:
    """A condition and a few events of the same palette."""
    rng = draw(sources())
    colours = palette(rng)
    tree = condition(rng, colours, depth=2)
    return tree, [event(rng, colours) for _ in range(rng.randint(1, most_events))]
