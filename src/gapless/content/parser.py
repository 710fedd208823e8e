"""Parses a filter's text to its condition, by recursive descent.

Precedence, loosest first::

    OR
    AND
    NOT
    = <> < <= > >=   [NOT] BETWEEN   [NOT] IN   [NOT] LIKE   IS [NOT] NULL
    + -
    * / %
    the sign of a value

A parenthesis may contain a condition or a value; its content decides which. So every caller checks
for what it needs, and fails with an error if it finds the other. Chains (``a OR b OR c``) are
loops; only parentheses, NOTs and signs recurse, at most FILTER_NESTING_MAX deep.
"""

from __future__ import annotations

from typing import Final, NoReturn, TypeAlias

from gapless.content.comparisons import (
    among,
    as_condition,
    between,
    compare,
    is_null,
    like,
    number_test,
    range_test,
    text_test,
)
from gapless.content.condition import (
    AttributeCondition,
    Condition,
    ConstantCondition,
    all_of,
    any_of,
    negated,
)
from gapless.content.expression import Attribute, Constant
from gapless.content.lexer import COMPARE, END, NAME, NUMBER, PRODUCT, STRING, SUM, shown, tokenize
from gapless.content.like import Pattern
from gapless.content.operands import Operand, OperandError, arithmetic, negative, positive
from gapless.content.values import Number, Value
from gapless.core.errors import FilterLimitError, FilterSyntaxError
from gapless.core.limits import FILTER_NESTING_MAX, FILTER_TEXT_MAX, INT_MAX, INT_MIN

__all__ = ["parse"]

_Found: TypeAlias = Condition | Operand

_BINDING: Final = {SUM: 1, PRODUCT: 2}
_TAKES_VALUES: Final = frozenset((COMPARE, SUM, PRODUCT, "BETWEEN", "IN", "LIKE", "IS", "NOT"))
_MISSPELT: Final = {"==": "=", "=>": ">=", "=<": "<=", "><": "<>"}


def parse(text: str) -> Condition:
    """Return the condition of a text; that of a blank text is always true.

    Raises FilterSyntaxError or FilterLimitError.
    """
    if len(text) > FILTER_TEXT_MAX:
        raise FilterLimitError(
            f"the filter has {len(text):,} characters; shorten it or split it into several",
            "FILTER_TEXT_MAX",
            FILTER_TEXT_MAX,
        )
    return _Parser(text).parse()


class _Parser:
    """The tokens of one text, and the index of the next one."""

    __slots__ = ("_at", "_depth", "_text", "_tokens")

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._at = 0
        self._depth = 0

    def parse(self) -> Condition:
        tokens = self._tokens
        if tokens[0][0] == END:
            return ConstantCondition(True)
        found = self._conditions()
        if tokens[self._at][0] != END:
            self._refuse_rest(found)
        return self._condition(found, 0)

    # --- conditions ---

    def _conditions(self, expected: str = "a condition") -> _Found:
        """Read an OR of ANDs, or a single condition, or a value."""
        tokens = self._tokens
        start = self._at
        found = self._comparison(expected)
        kind = tokens[self._at][0]
        if kind not in ("AND", "OR"):
            return found
        parts = [self._condition(found, start)]
        alternatives = []
        while kind in ("AND", "OR"):
            if kind == "OR":
                alternatives.append(all_of(parts))
                parts = []
            self._at = start = self._at + 1
            found = self._comparison()
            parts.append(
                found if type(found) is AttributeCondition else self._condition(found, start)
            )
            kind = tokens[self._at][0]
        alternatives.append(all_of(parts))
        return any_of(alternatives)

    def _comparison(self, expected: str = "a condition") -> _Found:
        """Read an operand of AND: a comparison, a negation or a value."""
        tokens, start = self._tokens, self._at
        kind = tokens[start][0]
        if kind == NAME:
            plain = self._plain_test(start)
            if plain is not None:
                return plain
        elif kind == "NOT":
            self._enter(start)
            self._at = start + 1
            operand = self._condition(self._comparison(), start + 1)
            self._depth -= 1
            return negated(operand)
        left = self._operand(expected)
        kind = tokens[self._at][0]
        if kind == COMPARE:
            return self._relation(left, start)
        wanted = True
        if kind == "NOT":
            kind = tokens[self._at + 1][0]
            if kind not in ("BETWEEN", "IN", "LIKE"):
                self._fail("expected BETWEEN, IN or LIKE after NOT", self._at + 1)
            self._at += 1
            wanted = False
        if kind not in ("BETWEEN", "IN", "LIKE", "IS"):
            return left
        value = self._value(left, start, kind)
        if kind == "IS":
            return self._null_test(value, start)
        if kind == "BETWEEN":
            condition = self._range(value, start)
        elif kind == "IN":
            condition = self._membership(value, start)
        else:
            condition = self._likeness(value, start)
        return condition if wanted else negated(condition)

    def _plain_test(self, start: int) -> AttributeCondition | None:
        """Read ``name operator literal`` or ``name BETWEEN number AND number``, if it is one.

        Most conditions are of this form; the general rules parse them too, but slower.
        """
        tokens = self._tokens
        kind, operator, _ = tokens[start + 1]
        if kind == COMPARE:
            family, value, _ = tokens[start + 2]
            if family == NUMBER:
                if value <= INT_MAX and tokens[start + 3][0] not in (SUM, PRODUCT, COMPARE):
                    self._at = start + 3
                    return number_test(tokens[start][1], operator, value)
            elif family == STRING and tokens[start + 3][0] not in (SUM, PRODUCT, COMPARE):
                self._at = start + 3
                return text_test(tokens[start][1], operator, value)
        elif kind == "BETWEEN" and tokens[start + 2][0] == NUMBER and tokens[start + 3][0] == "AND":
            low = tokens[start + 2][1]
            family, high, _ = tokens[start + 4]
            if (
                family == NUMBER
                and low <= INT_MAX
                and high <= INT_MAX
                and tokens[start + 5][0] not in (SUM, PRODUCT, COMPARE)
            ):
                self._at = start + 5
                return range_test(tokens[start][1], low, high)
        return None

    def _relation(self, left: _Found, start: int) -> Condition:
        operator = self._tokens[self._at][1]
        if not isinstance(left, Operand):
            self._fail_at(
                "a condition is not compared; use it as it is, or with NOT before it", start
            )
        self._at = right_start = self._at + 1
        if self._tokens[right_start][0] == COMPARE:
            self._refuse_operator(operator, right_start)
        right = self._value(self._operand(f"a value after '{operator}'"), right_start, operator)
        try:
            condition = compare(operator, left, right)
        except OperandError as misuse:
            self._fail_at(misuse.problem, (start, right_start)[misuse.operand])
        if self._tokens[self._at][0] == COMPARE:
            self._fail_at("comparisons do not chain; join two of them with AND", self._at)
        return condition

    def _refuse_operator(self, operator: str, place: int) -> NoReturn:
        """Refuse two operators in a row, which may be one operator of another language."""
        _, second, start = self._tokens[place]
        meant = _MISSPELT.get(operator + second)
        if meant is not None and start == self._tokens[place - 1][2] + len(operator):
            self._fail_at(f"write {meant} instead of {operator}{second}", place - 1)
        self._fail(f"expected a value after '{operator}'", place)

    def _null_test(self, value: Operand, start: int) -> Condition:
        self._at += 1
        wanted = self._tokens[self._at][0] != "NOT"
        self._at += not wanted
        if self._tokens[self._at][0] != "NULL":
            self._fail("expected NULL" if not wanted else "expected NULL or NOT NULL", self._at)
        self._at += 1
        try:
            return is_null(value, wanted=wanted)
        except OperandError as misuse:
            self._fail_at(misuse.problem, start)

    def _range(self, value: Operand, start: int) -> Condition:
        self._at = low_start = self._at + 1
        low = self._value(self._operand("a value after BETWEEN"), low_start, "BETWEEN")
        if self._tokens[self._at][0] != "AND":
            self._fail("expected AND and the upper end of BETWEEN", self._at)
        self._at = high_start = self._at + 1
        high = self._value(self._operand("the upper end of BETWEEN"), high_start, "BETWEEN")
        try:
            return between(value, low, high)
        except OperandError as misuse:
            self._fail_at(misuse.problem, (start, low_start, high_start)[misuse.operand])

    def _membership(self, value: Operand, start: int) -> Condition:
        tokens = self._tokens
        self._at += 1
        if tokens[self._at][0] != "(":
            self._fail("expected '(' and a list of literals after IN", self._at)
        if tokens[self._at + 1][0] == ")":
            self._fail_at("IN needs at least one literal", self._at + 1)
        values: list[Value] = []
        starts = [start]
        while tokens[self._at][0] != ")":
            self._at += 1
            starts.append(self._at)
            values.append(self._literal())
            if tokens[self._at][0] not in (",", ")"):
                self._fail("expected ',' or ')' in the list after IN", self._at)
        self._at += 1
        try:
            return among(value, values)
        except OperandError as misuse:
            self._fail_at(misuse.problem, starts[misuse.operand])

    def _likeness(self, value: Operand, start: int) -> Condition:
        tokens = self._tokens
        self._at = pattern_start = self._at + 1
        kind, text, _ = tokens[pattern_start]
        if kind != STRING:
            self._fail("expected a pattern in '…' after LIKE", pattern_start)
        self._at += 1
        escape = None
        if tokens[self._at][0] == "ESCAPE":
            kind, escape, _ = tokens[self._at + 1]
            if kind != STRING:
                self._fail("expected one character in '…' after ESCAPE", self._at + 1)
            if len(escape) != 1:
                self._fail_at("ESCAPE needs exactly one character", self._at + 1)
            self._at += 2
        try:
            pattern = Pattern.parse(text, escape)
        except ValueError as error:
            self._fail_at(str(error), pattern_start)
        try:
            return like(value, pattern)
        except OperandError as misuse:
            self._fail_at(misuse.problem, start)

    # --- values ---

    def _operand(self, expected: str) -> _Found:
        """Read a value with its arithmetic; two stacks instead of a recursion per precedence."""
        start = self._at
        found = self._single(expected)
        if self._tokens[self._at][0] not in _BINDING:
            return found
        values = [(found, start)]
        pending: list[tuple[int, str]] = []
        while True:
            kind, operator, _ = self._tokens[self._at]
            binding = _BINDING.get(kind, 0)
            while pending and pending[-1][0] >= binding:
                self._combine(values, pending.pop()[1])
            if not binding:
                return values[0][0]
            pending.append((binding, operator))
            self._at = start = self._at + 1
            values.append((self._single(f"a value after '{operator}'"), start))

    def _combine(self, values: list[tuple[_Found, int]], operator: str) -> None:
        """Replace the last two values by the result of the operator."""
        right, right_start = values.pop()
        left, left_start = values.pop()
        first = self._value(left, left_start, operator)
        second = self._value(right, right_start, operator)
        try:
            values.append((arithmetic(operator, first, second), left_start))
        except OperandError as misuse:
            self._fail_at(misuse.problem, (left_start, right_start)[misuse.operand])

    def _single(self, expected: str) -> _Found:
        """Read a literal, a name, a parenthesis, or one of these with a sign."""
        start = self._at
        kind, value, _ = self._tokens[start]
        self._at = start + 1
        if kind == NAME:
            return Operand(Attribute(value))
        if kind == NUMBER:
            return Operand(Constant(self._checked(value, start)))
        if kind == STRING:
            return Operand(Constant(value))
        if kind in ("TRUE", "FALSE"):
            return Operand(Constant(kind == "TRUE"))
        if kind == "(":
            self._enter(start)
            found = self._conditions("a condition or a value")
            if self._tokens[self._at][0] != ")":
                self._refuse_rest(found, start)
            self._at += 1
            self._depth -= 1
            return found
        if kind == SUM:
            return self._signed(value, start)
        raise self._no_value(expected, start)

    def _signed(self, sign: str, start: int) -> Operand:
        kind, value, _ = self._tokens[start + 1]
        if kind == NUMBER:  # one literal with its sign, not a level
            self._at = start + 2
            if sign == "-" and value == -INT_MIN and isinstance(value, int):
                return Operand(Constant(INT_MIN))
            number = self._checked(value, start + 1)
            return Operand(Constant(-number if sign == "-" else number))
        self._enter(start)
        operand = self._value(self._single(f"a value after '{sign}'"), start + 1, sign)
        self._depth -= 1
        try:
            return negative(operand) if sign == "-" else positive(operand)
        except OperandError as misuse:
            self._fail_at(misuse.problem, start + 1)

    def _literal(self) -> Value:
        """Read a literal of an IN list."""
        start = self._at
        kind, value, _ = self._tokens[start]
        if kind == SUM and self._tokens[start + 1][0] == NUMBER:
            self._at += 1
            term = self._signed(value, start).term
            assert isinstance(term, Constant)  # the sign of a literal is folded
            return term.literal
        self._at += 1
        if kind == NUMBER:
            return self._checked(value, start)
        if kind == STRING:
            return str(value)
        if kind in ("TRUE", "FALSE"):
            return kind == "TRUE"
        raise self._no_value("a literal in the list after IN", start)

    def _checked(self, number: Number, place: int) -> Number:
        if isinstance(number, int) and number > INT_MAX:
            problem = "this number does not fit into 64 bits; write it with a point, as a float"
            self._fail_at(problem, place)
        return number

    # --- conversions and errors ---

    def _condition(self, found: _Found, start: int) -> Condition:
        if not isinstance(found, Operand):
            return found
        try:
            return as_condition(found)
        except OperandError as misuse:
            self._fail_at(misuse.problem, start)

    def _value(self, found: _Found, start: int, operator: str) -> Operand:
        if not isinstance(found, Operand):
            self._fail_at(f"this is a condition, not a value; {operator} needs values", start)
        return found

    def _no_value(self, expected: str, place: int) -> FilterSyntaxError:
        token = self._tokens[place]
        if token[0] == "NULL":
            problem = "NULL is not a value; use IS NULL or IS NOT NULL"
        else:
            problem = f"expected {expected}, found {shown(token)}"
        return FilterSyntaxError(problem, self._text, token[2])

    def _enter(self, place: int) -> None:
        self._depth += 1
        if self._depth > FILTER_NESTING_MAX:
            column = self._tokens[place][2] + 1
            raise FilterLimitError(
                "parentheses, NOTs and signs are nested too deeply "
                f"(at column {column}); write the filter flatter",
                "FILTER_NESTING_MAX",
                FILTER_NESTING_MAX,
            )

    def _refuse_rest(self, found: _Found, opened: int | None = None) -> NoReturn:
        """Refuse a token that cannot follow what was parsed."""
        kind, value, _ = self._tokens[self._at]
        if opened is not None and kind == END:
            self._fail_at("this '(' has no ')'", opened)
        if kind == ")":
            self._fail_at("this ')' has no '('", self._at)
        if kind in _TAKES_VALUES and not isinstance(found, Operand):
            self._fail_at(f"{value} needs a value on its left, and this is a condition", self._at)
        if isinstance(found, Operand):
            expected = "an operator"
        else:
            expected = "AND, OR or " + ("')'" if opened is not None else "the end of the filter")
        self._fail(f"expected {expected}", self._at)

    def _fail(self, expected: str, place: int) -> NoReturn:
        self._fail_at(f"{expected}, found {shown(self._tokens[place])}", place)

    def _fail_at(self, problem: str, place: int) -> NoReturn:
        raise FilterSyntaxError(problem, self._text, self._tokens[place][2])
