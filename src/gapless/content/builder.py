"""Filters in Python: ``(F.price > 90) & F.symbol.in_("IBM", "SAP")``.

An attribute of :data:`F` is an expression. Comparing it gives a :class:`Filter`, the same as its
text would, so ``&``, ``|`` and ``~`` are the filter's own. Python's ``and``, ``or``, ``not`` and
chained comparisons cannot be overloaded; they raise an error with the alternative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, NoReturn, TypeAlias

from gapless.content.comparisons import among, as_condition, between, compare, is_null, like
from gapless.content.condition import Condition
from gapless.content.expression import Attribute, Constant
from gapless.content.filter import Filter
from gapless.content.like import Pattern
from gapless.content.operands import Operand, OperandError, arithmetic, negative, positive
from gapless.content.values import Value, magnitude, plain_scalar
from gapless.core.errors import FilterError, FilterTypeError, shortened
from gapless.core.limits import INT_MAX, INT_MIN

__all__ = ["Expression", "F"]


class Expression:
    """A value that a filter computes from an event: an attribute, or arithmetic over attributes.

    ``F.order.price`` is the attribute ``order.price``; a name that is one of the methods here,
    or no Python name, is written ``F["like"]``.
    """

    __slots__ = ("_operand",)
    __array_ufunc__ = None  # so NumPy leaves comparisons and arithmetic to this class
    __hash__ = None  # type: ignore[assignment]  # == makes a filter, so a set cannot contain them

    _operand: Operand

    def __init__(self, operand: Operand) -> None:
        self._operand = operand

    def __getattr__(self, name: str) -> Expression:
        return self[_attribute_name(self, name)]

    def __getitem__(self, name: str) -> Expression:
        """Return the attribute with this name after a dot: ``F.order["unit price"]``."""
        term = self._operand.term
        if not isinstance(term, Attribute):
            raise FilterTypeError(
                f"only an attribute has parts; this is arithmetic: {shortened(str(term))}"
            )
        return _attribute(f"{term.name}.{_plain_name(name)}")

    # --- comparisons ---

    def __eq__(self, other: _Operable) -> Filter:  # type: ignore[override]
        return _compared("=", self, other)

    def __ne__(self, other: _Operable) -> Filter:  # type: ignore[override]
        return _compared("<>", self, other)

    def __lt__(self, other: _Operable) -> Filter:
        return _compared("<", self, other)

    def __le__(self, other: _Operable) -> Filter:
        return _compared("<=", self, other)

    def __gt__(self, other: _Operable) -> Filter:
        return _compared(">", self, other)

    def __ge__(self, other: _Operable) -> Filter:
        return _compared(">=", self, other)

    def between(self, low: _Operable, high: _Operable) -> Filter:
        """Return the condition that the value is between two others, both included."""
        return _filter(lambda: between(self._operand, _operand(low), _operand(high)))

    def in_(self, *values: Value | Iterable[Value]) -> Filter:
        """Return the condition that the value is one of these: ``in_(1, 2)`` or ``in_([1, 2])``."""
        first = values[0] if len(values) == 1 else None
        listed = values
        if isinstance(first, Iterable) and not isinstance(first, str | bytes):
            listed = tuple(first)
        literals = [_literal(value) for value in listed]
        if not literals:
            raise FilterError("in_() needs at least one value")
        return _filter(lambda: among(self._operand, literals))

    def like(self, pattern: str, escape: str | None = None) -> Filter:
        """Return the condition that a text matches: ``%`` is any run, ``_`` any character."""
        if not isinstance(pattern, str):
            raise FilterTypeError(f"a pattern is a str, not a {type(pattern).__name__}")
        if escape is not None and not isinstance(escape, str):
            raise FilterTypeError(f"escape is one character, not a {type(escape).__name__}")
        if escape is not None and len(escape) != 1:
            raise FilterError(f"escape needs exactly one character, not {shortened(escape)!r}")
        try:
            parsed = Pattern.parse(str(_literal(pattern)), escape)
        except FilterError:
            raise
        except ValueError as error:
            raise FilterError(f"{error}: {shortened(pattern)!r}") from None
        return _filter(lambda: like(self._operand, parsed))

    def is_null(self) -> Filter:
        """Return the condition that the attribute is missing."""
        return _filter(lambda: is_null(self._operand, wanted=True))

    def is_not_null(self) -> Filter:
        """Return the condition that the attribute exists."""
        return _filter(lambda: is_null(self._operand, wanted=False))

    # --- arithmetic ---

    def __add__(self, other: _Operable) -> Expression:
        return _computed("+", self, other)

    def __radd__(self, other: _Operable) -> Expression:
        return _computed("+", other, self)

    def __sub__(self, other: _Operable) -> Expression:
        return _computed("-", self, other)

    def __rsub__(self, other: _Operable) -> Expression:
        return _computed("-", other, self)

    def __mul__(self, other: _Operable) -> Expression:
        return _computed("*", self, other)

    def __rmul__(self, other: _Operable) -> Expression:
        return _computed("*", other, self)

    def __truediv__(self, other: _Operable) -> Expression:
        return _computed("/", self, other)

    def __rtruediv__(self, other: _Operable) -> Expression:
        return _computed("/", other, self)

    def __mod__(self, other: _Operable) -> Expression:
        """Return the remainder; it has the sign of the dividend, as in SQL, not as in Python."""
        return _computed("%", self, other)

    def __rmod__(self, other: _Operable) -> Expression:
        return _computed("%", other, self)

    def __neg__(self) -> Expression:
        return Expression(negative(self._operand))

    def __pos__(self) -> Expression:
        return Expression(positive(self._operand))

    # --- a bool attribute is a condition by itself ---

    def __and__(self, other: Filter | Expression) -> Filter:
        return _as_filter(self) & _as_filter(other)

    def __rand__(self, other: Filter) -> Filter:
        return other & _as_filter(self)

    def __or__(self, other: Filter | Expression) -> Filter:
        return _as_filter(self) | _as_filter(other)

    def __ror__(self, other: Filter) -> Filter:
        return other | _as_filter(self)

    def __invert__(self) -> Filter:
        return ~_as_filter(self)

    # --- unsupported protocols ---

    def __bool__(self) -> bool:
        raise FilterTypeError(
            f"{self!r} is neither true nor false by itself; compare it, and "
            "join conditions with & | ~ instead of and, or, not"
        )

    def __iter__(self) -> NoReturn:
        raise FilterTypeError(f"{self!r} cannot be iterated over")

    def __contains__(self, value: object) -> bool:
        raise FilterTypeError(f"'in' is not supported; use in_() or like() of {self!r}")

    def __repr__(self) -> str:
        term = self._operand.term
        if isinstance(term, Attribute):
            return f"F[{term.name!r}]"
        return f"<expression {term if term is not None else 'of an unknown value'}>"


class _Attributes:
    """The attributes of events, by name: ``F.price``, ``F["odd name"]``."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Expression:
        return _attribute(_attribute_name(self, name))

    def __getitem__(self, name: str) -> Expression:
        return _attribute(name)

    def __repr__(self) -> str:
        return "F"

    def __reduce__(self) -> str:
        return "F"


F: Final = _Attributes()
"""The attributes of events: ``F.price > 90`` is ``Filter("price > 90")``."""

_Operable: TypeAlias = Expression | bool | int | float | str


def _attribute_name(owner: object, name: str) -> str:
    """Refuse names of Python's own protocols, which copying and printing tools look up."""
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    return name


def _attribute(name: str) -> Expression:
    name = _plain_name(name)
    _check_text(name)
    return Expression(Operand(Attribute(name)))


def _plain_name(name: object) -> str:
    """Return a name as a plain str, because a member of an enum may print differently."""
    if not isinstance(name, str):
        raise FilterTypeError(f"an attribute's name is a str, not a {type(name).__name__}")
    return str.__str__(name)


def _operand(value: _Operable) -> Operand:
    if isinstance(value, Expression):
        return value._operand  # noqa: SLF001 - the builder's own
    return Operand(Constant(_literal(value)))


def _literal(value: object) -> Value:
    """Return a Python value, or a NumPy scalar, as a literal of the selector language."""
    value = plain_scalar(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise FilterError(f"{magnitude(value)} does not fit into 64 bits; use a float")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise FilterError(f"{value} is not a finite number, which a filter needs")
        return float(value)
    if isinstance(value, str):
        _check_text(value)
        return str.__str__(value)
    if value is None:
        raise FilterTypeError("None is not a value; use is_null() or is_not_null()")
    kind = type(value).__name__
    hint = "; use in_() for several values" if isinstance(value, list | tuple | set) else ""
    raise FilterTypeError(f"a filter compares with a bool, int, float or str, not a {kind}{hint}")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        problem = f"half of a surrogate pair at index {error.start} of {shortened(text)!r}"
        raise FilterError(problem) from None


def _as_filter(part: Filter | Expression) -> Filter:
    if isinstance(part, Filter):
        return part
    if not isinstance(part, Expression):
        raise FilterTypeError(f"a filter is joined with a filter, not a {type(part).__name__}")
    return _filter(lambda: as_condition(_operand(part)))


def _compared(operator: str, left: Expression, right: _Operable) -> Filter:
    return _filter(lambda: compare(operator, _operand(left), _operand(right)))


def _computed(operator: str, left: _Operable, right: _Operable) -> Expression:
    try:
        return Expression(arithmetic(operator, _operand(left), _operand(right)))
    except OperandError as misuse:
        raise FilterError(misuse.problem) from None


def _filter(make: Callable[[], Condition]) -> Filter:
    try:
        return Filter.of_condition(make())
    except OperandError as misuse:
        raise FilterError(misuse.problem) from None
