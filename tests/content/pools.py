"""Pools of filters over one dense domain, for comparing all of them with each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless import Filter, FilterLimitError
from tests.content import generate
from tests.content.domain import Domain, dense
from tests.content.surface import to_text

if TYPE_CHECKING:
    import random

    from tests.content.reference import Condition, Value

SIMPLE = "conjunctions of comparisons with literals, IN, BETWEEN and NULL tests"
PATTERNS = "the same with LIKE"
CONJUNCTIONS = "conjunctions of any predicates, with arithmetic and several attributes"
ANYTHING = "conditions of any form"
KINDS = (SIMPLE, PATTERNS, CONJUNCTIONS, ANYTHING)
PREDICATES = {
    SIMPLE: generate.simple_predicate,
    PATTERNS: generate.simple_or_like_predicate,
    CONJUNCTIONS: generate.predicate,
}

SHORT_THEMES = (generate.SMALL_NUMBERS, generate.LARGE_NUMBERS, generate.BOOLEANS)
WORDY_THEMES = (generate.STRINGS, generate.MIXTURE)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A filter of a pool, with the events of the domain that it matches by definition."""

    tree: Condition
    text: str
    filter: Filter
    matching: int


@dataclass(frozen=True, slots=True)
class Pool:
    """Candidates over one domain; `refused` of them were too large for the library."""

    palette: generate.Palette
    domain: Domain
    candidates: list[Candidate]
    refused: int


def pool(rng: random.Random, size: int, kind: str) -> Pool:
    """Up to `size` candidates of a kind over two or three attributes."""
    colours = pool_palette(rng, kind)
    domain = Domain({name: dense(focus) for name, focus in colours.focus.items()})
    candidates = []
    refused = 0
    for _ in range(size):
        tree = pool_condition(rng, colours, kind)
        text = to_text(tree, rng)
        try:
            parsed = Filter(text)
        except FilterLimitError:
            refused += 1
            continue
        candidates.append(Candidate(tree, text, parsed, domain.truths(tree).true))
    return Pool(colours, domain, candidates, refused)


def pool_condition(rng: random.Random, colours: generate.Palette, kind: str) -> Condition:
    if kind == ANYTHING:
        return generate.condition(rng, colours, depth=2)
    return generate.conjunction(rng, colours, PREDICATES[kind])


def pool_palette(rng: random.Random, kind: str) -> generate.Palette:
    """Return a palette of few literals, all in focus, so that the domain can be dense around them.

    Strings need all the words of the patterns in the domain, so only the first attribute has them.
    The second has strings only if it shares the literals of the first: comparing the two then meets
    equal values.
    """
    themes = [rng.choice(SHORT_THEMES) for _ in range(rng.randint(2, 3))]
    if kind != SIMPLE or rng.random() < 0.5:
        themes[0] = rng.choice(WORDY_THEMES)
    focus: dict[str, tuple[Value, ...]] = {}
    for name, theme in zip("abc", themes, strict=False):
        focus[name] = tuple(rng.sample(theme.literals, min(3, len(theme.literals))))
    if themes[0] in WORDY_THEMES:
        focus["a"] = ("a", *focus["a"][1:])
    if rng.random() < 0.4:
        focus["b"] = focus["a"]
    return generate.Palette(focus, stray=0.0, pattern_parts=3)
