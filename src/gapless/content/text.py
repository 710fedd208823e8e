"""The canonical text of value sets and conjunctions.

The text parses back to the same object, so a normal form can be shown, stored and sent as text. Of
several forms the shortest common one is used: a point is ``=``, a gap ``<>``, a prefix interval
``LIKE 'ab%'``, a closed interval BETWEEN. A text with an OR is in parentheses, so texts can be
joined by AND.
"""

from __future__ import annotations

import itertools
from typing import Final

from gapless.content import spans
from gapless.content.comparisons import OUTCOMES
from gapless.content.conjunction import Conjunction
from gapless.content.expression import Comparison, Term, attribute_text, literal_text
from gapless.content.like import MANY, Pattern
from gapless.content.spans import ALL_NUMBERS, ALL_TEXTS, Spans
from gapless.content.values import Value, canonical
from gapless.content.valueset import PRESENT, ValueSet

__all__ = ["conjunction_text", "set_text"]


def conjunction_text(conjunction: Conjunction) -> str:
    """Return the text of a conjunction, without constraints that its terms imply."""
    implied: dict[str, ValueSet] = {}
    for term, _ in conjunction.residuals:
        for name, needed in term.requires().items():
            known = implied.get(name)
            implied[name] = needed if known is None else known.intersection(needed)
    parts = [
        set_text(attribute_text(name), allowed)
        for name, allowed in conjunction.constraints
        if implied.get(name) != allowed
    ]
    parts += [_term_text(term, allowed) for term, allowed in conjunction.residuals]
    return " AND ".join(parts) or "TRUE"


def set_text(subject: str, allowed: ValueSet) -> str:
    """Return the text of the condition that a subject (given as text) has an allowed value.

    >>> from gapless.content.valueset import one_of
    >>> set_text("a", one_of([1, 2, "x"]))
    "a IN (1, 2, 'x')"
    """
    if allowed == PRESENT:
        return f"{subject} IS NOT NULL"
    assert not allowed.nan, "NaN is allowed only where everything is"
    if allowed.patterns:
        return _patterns_text(subject, allowed)
    points: list[Value] = []
    choices: list[str] = []
    for cuts, everything in ((allowed.numbers, ALL_NUMBERS), (allowed.texts, ALL_TEXTS)):
        values, texts = _line_choices(subject, cuts, everything)
        points += values
        choices += texts
    points += [value for value, bit in ((False, 1), (True, 2)) if allowed.bools & bit]
    if points:
        choices.insert(0, _points_text(subject, points, "=", "IN"))
    if allowed.null:
        choices.append(f"{subject} IS NULL")
    if not choices:
        return "FALSE"
    return choices[0] if len(choices) == 1 else f"({' OR '.join(choices)})"


def _term_text(term: Term, allowed: ValueSet) -> str:
    if isinstance(term, Comparison):
        outcomes = spans.points(allowed.numbers)
        operators = _operators_of().get(frozenset(outcomes)) if outcomes is not None else None
        assert operators is not None, "a set of outcomes is made of operators"
        choices = [
            " AND ".join(f"{term.left} {operator} {term.right}" for operator in choice)
            for choice in operators
        ]
        return choices[0] if len(choices) == 1 else f"({' OR '.join(choices)})"
    return set_text(str(term), allowed)


# --- one family ---------------------------------------------------------------------------------


def _line_choices(subject: str, cuts: Spans, everything: Spans) -> tuple[list[Value], list[str]]:
    """Return the single points of a set of one family, and texts for the rest of it."""
    if not cuts:
        return [], []
    if cuts == everything:
        if everything is ALL_TEXTS:
            return [], [f"{subject} LIKE '%'"]
        return [], [f"{subject} <= 0", f"{subject} > 0"]
    inverse = spans.complement(cuts, everything)
    if len(inverse) == 2 and inverse[0] != everything[0] and inverse[1] != everything[1]:
        text = _closed_text(subject, inverse[0], inverse[1], negation="NOT ")
        if text is not None:
            return [], [text]
    points: list[Value] = []
    choices: list[str] = []
    at = 0
    while at < len(cuts):
        low, high = cuts[at], cuts[at + 1]
        if high == (low[0], 1) and not low[1]:
            points.append(canonical(low[0]))
            at += 2
            continue
        holes: list[Value] = []
        while at + 2 < len(cuts) and cuts[at + 2] == (high[0], 1) and not high[1]:
            holes.append(canonical(high[0]))
            at += 2
            high = cuts[at + 1]
        choices.append(_interval_text(subject, low, high, everything, holes))
        at += 2
    return points, choices


def _interval_text(
    subject: str, low: spans.Cut, high: spans.Cut, everything: Spans, holes: list[Value]
) -> str:
    """Return the text of an interval without some points."""
    parts = []
    bounded = (low != everything[0]) + (high != everything[1])
    whole = _closed_text(subject, low, high) if bounded == 2 else None
    if whole is not None:
        parts.append(whole)
    else:
        if low != everything[0]:
            parts.append(_low_text(subject, low))
        if high != everything[1]:
            parts.append(_high_text(subject, high))
    if holes:
        parts.append(_points_text(subject, holes, "<>", "NOT IN"))
    return " AND ".join(parts)


def _closed_text(subject: str, low: spans.Cut, high: spans.Cut, negation: str = "") -> str | None:
    """Return an interval as BETWEEN or as a prefix; None if it is neither."""
    if low[1]:
        return None
    if isinstance(low[0], str) and low[0] and spans.prefix(low[0]) == (low, high):
        return _prefix_text(subject, low[0], negation)
    if not high[1] or _before_surrogates(low[0]) is not None:
        return None
    least, most = canonical(low[0]), canonical(high[0])
    if least == most:
        return f"{subject} {'<>' if negation else '='} {literal_text(least)}"
    return f"{subject} {negation}BETWEEN {literal_text(least)} AND {literal_text(most)}"


def _points_text(subject: str, values: list[Value], single: str, several: str) -> str:
    if len(values) == 1:
        return f"{subject} {single} {literal_text(values[0])}"
    return f"{subject} {several} ({', '.join(map(literal_text, values))})"


def _low_text(subject: str, low: spans.Cut) -> str:
    value, above = low
    if (beginning := _before_surrogates(value)) is not None:
        return (
            f"{subject} >= {literal_text(beginning)} AND {_prefix_text(subject, beginning, 'NOT ')}"
        )
    return f"{subject} {'>' if above else '>='} {literal_text(canonical(value))}"


def _high_text(subject: str, high: spans.Cut) -> str:
    value, above = high
    if (beginning := _before_surrogates(value)) is not None:
        return f"({subject} < {literal_text(beginning)} OR {_prefix_text(subject, beginning)})"
    return f"{subject} {'<=' if above else '<'} {literal_text(canonical(value))}"


def _before_surrogates(value: Value) -> str | None:
    """Return the text whose prefix interval ends at a cut that no literal can name, or None."""
    if isinstance(value, str) and value.endswith("\ud800"):
        return value[:-1] + "\ud7ff"
    return None


# --- patterns -----------------------------------------------------------------------------------


def _patterns_text(subject: str, allowed: ValueSet) -> str:
    parts = [
        _like_text(subject, pattern, "" if wanted else "NOT ")
        for pattern, wanted in allowed.patterns
    ]
    bounds = spans.intersection_of(
        [ALL_TEXTS]
        + [spans.prefix(pattern.prefix) for pattern, wanted in allowed.patterns if wanted]
    )
    if allowed.texts != bounds:
        parts.insert(0, set_text(subject, ValueSet(texts=allowed.texts)))
    return " AND ".join(parts)


def _prefix_text(subject: str, beginning: str, negation: str = "") -> str:
    return _like_text(subject, Pattern(("=" + beginning, MANY)), negation)


def _like_text(subject: str, pattern: Pattern, negation: str) -> str:
    escape = f" ESCAPE '{pattern.escape}'" if pattern.escape else ""
    return f"{subject} {negation}LIKE {literal_text(str(pattern))}{escape}"


# --- comparisons of two terms -------------------------------------------------------------------

_operators: Final[dict[frozenset[int], tuple[tuple[str, ...], ...]]] = {}


def _operators_of() -> dict[frozenset[int], tuple[tuple[str, ...], ...]]:
    """Return an OR of ANDs of operators for each set of outcomes, the shortest one found first.

    ``<=`` AND ``>=`` is the one outcome that no operator has by itself: equal, and not two bools.
    """
    if not _operators:
        meanings: dict[tuple[str, ...], frozenset[int]] = {
            (operator,): frozenset(spans.points(outcomes.numbers) or ())
            for operator, outcomes in OUTCOMES.items()
        }
        meanings["<=", ">="] = meanings["<=",] & meanings[">=",]
        for count in range(1, 4):
            for choice in itertools.combinations(meanings, count):
                together = frozenset().union(*(meanings[part] for part in choice))
                _operators.setdefault(together, choice)
    return _operators
