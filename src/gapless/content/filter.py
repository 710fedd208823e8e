"""Filters: conditions on events in their normal form."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from gapless.content.condition import Condition, both, either, negated
from gapless.content.conjunction import Conjunction
from gapless.content.evaluate import Matcher, matcher
from gapless.content.normal import disjoined, normalise, searches_of
from gapless.content.parser import parse
from gapless.content.values import Attributes, plain_scalars
from gapless.core.errors import AttributeValueError, FilterError, FilterTypeError
from gapless.core.limits import FILTERS_KEPT

__all__ = ["EVERYTHING", "Filter"]


class Filter:
    """A condition on the attributes of events, in its normal form. Immutable.

    >>> cheap = Filter("symbol = 'IBM' AND price BETWEEN 80 AND 90")
    >>> cheap.matches({"symbol": "IBM", "price": 85.5})
    True
    >>> Filter("symbol = 'IBM' AND price > 0").covers(cheap)
    True

    Two filters are equal if their normal forms are. ``&``, ``|`` and ``~`` are AND, OR and NOT
    of the selector language. NOT depends on where a condition is *unknown*, which the normal
    form does not contain. So ``~`` negates the original condition: the given text, or the condition
    of the builder and the operators, also after pickling. For a filter made of conjunctions it
    negates the condition of its ``str()``.
    """

    __slots__ = ("_conjunctions", "_matcher", "_source")

    _conjunctions: tuple[Conjunction, ...]
    _matcher: Matcher | None
    """Created when first needed: a filter that is only indexed never needs it."""

    _source: str | Condition | None
    """The text or condition that the filter was made from; None if it was made of conjunctions."""

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise FilterTypeError(
                f"a filter is made from its text, not from a {type(text).__name__}; "
                "in Python code F builds one: F.price > 90"
            )
        self._source = str.__str__(text)  # a plain str, also for a member of an enum
        found = _normal_form(self._source)
        if isinstance(found, FilterError):
            raise found.with_traceback(None)
        self._conjunctions = found
        self._matcher = None

    @classmethod
    def of(cls, conjunctions: Iterable[Conjunction]) -> Filter:
        """Return the filter that matches if one of the conjunctions does."""
        return cls._made(disjoined(conjunctions), None)

    @classmethod
    def of_condition(cls, condition: Condition) -> Filter:
        """Return the filter of a condition; the builder uses it."""
        return cls._made(normalise(condition), condition)

    @classmethod
    def _made(cls, conjunctions: tuple[Conjunction, ...], source: Condition | None) -> Filter:
        made = cls.__new__(cls)
        made._conjunctions = conjunctions  # noqa: SLF001
        made._source = source  # noqa: SLF001
        made._matcher = None  # noqa: SLF001
        return made

    @property
    def conjunctions(self) -> tuple[Conjunction, ...]:
        """The normal form: an event matches if one of these does. If empty, no event matches."""
        return self._conjunctions

    @property
    def source_text(self) -> str | None:
        """The text that the filter was made from; None if it was made in another way."""
        return self._source if isinstance(self._source, str) else None

    @property
    def attributes(self) -> frozenset[str]:
        """The names of the attributes on which the normal form depends."""
        return frozenset(name for one in self._conjunctions for name, _ in one.constraints)

    @property
    def searches(self) -> int:
        """How many searches of texts a match takes at most, by LIKE patterns.

        >>> Filter("a LIKE '%x%' OR b LIKE 'y%'").searches
        1
        """
        return searches_of(self._conjunctions)

    def matches(self, attributes: Attributes) -> bool:
        """Return whether an event with these attributes matches (None is the same as missing).

        Raises AttributeValueError if an attribute that the filter names is not a valid value.
        """
        if self._matcher is None:
            self._matcher = matcher(self._conjunctions)
        try:
            return self._matcher(attributes)
        except AttributeValueError:
            plain = plain_scalars(attributes)
            if all(value is attributes[name] for name, value in plain.items()):
                raise
            return self._matcher(plain)

    def covers(self, other: Filter) -> bool:
        """Return whether every event that matches ``other`` matches this; may miss a covering."""
        _check_filter(other, "covers")
        return all(
            any(ours.covers(theirs) for ours in self._conjunctions)
            for theirs in other._conjunctions
        )

    def intersects(self, other: Filter) -> bool:
        """Return whether some event may match both; may be wrong if true, never if false."""
        _check_filter(other, "intersects")
        return any(
            ours.intersects(theirs) for ours in self._conjunctions for theirs in other._conjunctions
        )

    def __and__(self, other: Filter) -> Filter:
        if not isinstance(other, Filter):
            return NotImplemented
        return self.of_condition(both(self._condition(), other._condition()))

    def __or__(self, other: Filter) -> Filter:
        if not isinstance(other, Filter):
            return NotImplemented
        return self.of_condition(either(self._condition(), other._condition()))

    def __invert__(self) -> Filter:
        return self.of_condition(negated(self._condition()))

    def _condition(self) -> Condition:
        if self._source is None:
            return parse(str(self))
        return parse(self._source) if isinstance(self._source, str) else self._source

    def __bool__(self) -> bool:
        raise FilterTypeError(
            "a filter is neither true nor false by itself; join filters with & | ~ instead of "
            "and, or, not, and write F.x.between(1, 5) or (F.x > 1) & (F.x < 5) "
            "instead of 1 < F.x < 5"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Filter):
            return NotImplemented
        return self._conjunctions == other._conjunctions

    def __hash__(self) -> int:
        return hash(self._conjunctions)

    def __str__(self) -> str:
        """Return the canonical text; ``Filter(str(f)) == f``."""
        return " OR ".join(map(str, self._conjunctions)) or "FALSE"

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"

    def __copy__(self) -> Filter:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Filter:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self._source, str):
            return (Filter, (self._source,))
        if self._source is None:
            return (Filter.of, (self._conjunctions,))
        return (Filter.of_condition, (self._source,))


@lru_cache(maxsize=FILTERS_KEPT)
def _normal_form(text: str) -> tuple[Conjunction, ...] | FilterError:
    """Return the normal form of a text, or why it is no filter; both may take long."""
    try:
        return normalise(parse(text))
    except FilterError as error:
        return error


def _check_filter(other: object, method: str) -> None:
    if not isinstance(other, Filter):
        hint = f"; write {method}(Filter(…))" if isinstance(other, str) else ""
        raise FilterTypeError(f"{method}() takes a Filter, not a {type(other).__name__}{hint}")


EVERYTHING: Final = Filter("TRUE")
"""Matches every event."""
