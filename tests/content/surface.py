"""Write a tree as selector text, with random use of every freedom of the language.

Keywords change case, parentheses are added, numbers appear in all their forms, identifiers are
sometimes quoted, and white space varies. Two texts of one tree must therefore be equivalent, and
the library must treat them as equal.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, assert_never

from tests.content.reference import (
    INT_MIN,
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
)

if TYPE_CHECKING:
    import random

    from tests.content.reference import Condition, Operand, Predicate, Value

KEYWORDS = frozenset(
    ("and", "or", "not", "between", "like", "in", "is", "null", "escape", "true", "false")
)
PLAIN_NAME = re.compile(r"[^\W\d][\w$]*(\.[^\W\d][\w$]*)*|\$[\w$]*")
SPACES = (" ", " ", " ", "  ", "\n", "\t", "\r\n", " \f ")

# How tightly a form binds; a part that binds less tightly than its position requires needs
# parentheses.
OR, AND, NOT, PREDICATE = range(4)
SUM, PRODUCT, UNARY = range(3)
LEVELS = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "%": PRODUCT}


def to_text(tree: Condition, rng: random.Random) -> str:
    """Return one of the many texts of a condition."""
    return _joined(_condition(tree, OR, rng), rng)


def plain_text(tree: Condition) -> str:
    """Return the plain text of a condition, for messages."""
    return _joined(_condition(tree, OR, None), None)


# Conditions.


def _condition(tree: Condition, place: int, rng: random.Random | None) -> list[str]:
    match tree:
        case Or(left, right):
            level = OR
            tokens = [*_condition(left, OR, rng), _keyword("or", rng), *_condition(right, OR, rng)]
        case And(left, right):
            level = AND
            tokens = [
                *_condition(left, AND, rng),
                _keyword("and", rng),
                *_condition(right, AND, rng),
            ]
        case Not(part):
            level = NOT
            tokens = [_keyword("not", rng), *_condition(part, NOT, rng)]
        case _:
            level = PREDICATE
            tokens = _predicate(tree, rng)
    return _wrapped(tokens, needed=level < place, rng=rng)


def _predicate(tree: Predicate, rng: random.Random | None) -> list[str]:
    match tree:
        case Constant(value):
            return [_keyword("true" if value else "false", rng)]
        case Flag(name):
            return [_name(name, rng)]
        case Compare(operator, left, right):
            sign = "!=" if operator == "<>" and _chance(rng, 0.4) else operator
            return [*_operand(left, SUM, rng), sign, *_operand(right, SUM, rng)]
        case Between(negated, operand, low, high):
            return [
                *_operand(operand, SUM, rng),
                *_negation(rng, negated=negated),
                _keyword("between", rng),
                *_operand(low, SUM, rng),
                _keyword("and", rng),
                *_operand(high, SUM, rng),
            ]
        case In(negated, name, values):
            items: list[str] = []
            for candidate in values:
                items += [",", *_literal(candidate, rng)]
            return [
                _name(name, rng),
                *_negation(rng, negated=negated),
                _keyword("in", rng),
                "(",
                *items[1:],
                ")",
            ]
        case Like(negated, name, pattern, escape):
            ending = [] if escape is None else [_keyword("escape", rng), _string(escape)]
            return [
                _name(name, rng),
                *_negation(rng, negated=negated),
                _keyword("like", rng),
                _string(pattern),
                *ending,
            ]
        case IsNull(negated, name):
            return [
                _name(name, rng),
                _keyword("is", rng),
                *_negation(rng, negated=negated),
                _keyword("null", rng),
            ]


def _negation(rng: random.Random | None, *, negated: bool) -> list[str]:
    return [_keyword("not", rng)] if negated else []


# Operands.


def _operand(operand: Operand, place: int, rng: random.Random | None) -> list[str]:
    level = UNARY
    match operand:
        case Attribute(name):
            tokens = [_name(name, rng)]
        case Literal(value):
            tokens = _literal(value, rng)
        case Sign(operator, inner):
            tokens = [operator, *_operand(inner, UNARY, rng)]
        case Arithmetic(operator, left, right):
            # All operators bind to the left, and none is associative once results are rounded
            # or overflow: the right part needs parentheses on the same level.
            level = LEVELS[operator]
            right_tokens = _operand(right, level + 1, rng)
            tokens = [*_operand(left, level, rng), operator, *right_tokens]
        case _:
            assert_never(operand)
    return _wrapped(tokens, needed=level < place, rng=rng)


def _literal(value: Value, rng: random.Random | None) -> list[str]:
    if isinstance(value, bool):
        return [_keyword("true" if value else "false", rng)]
    if isinstance(value, str):
        return [_string(value)]
    if isinstance(value, int):
        sign = ["-"] if value < 0 else []
        return [*sign, _integer(abs(value), rng)]
    # The sign of a negative zero is part of its text.
    sign = ["-"] if repr(value).startswith("-") else []
    return [*sign, _decimal(abs(value), rng)]


def _integer(size: int, rng: random.Random | None) -> str:
    """Decimal, with `L`, hexadecimal or octal; the size of the least int is decimal only."""
    if rng is None or size == -INT_MIN:
        return str(size)
    forms = (str(size), str(size), f"0x{size:x}", f"0X{size:X}", f"0{size:o}")
    return rng.choice(forms) + rng.choice(("", "", "", "L", "l"))


def _decimal(size: float, rng: random.Random | None) -> str:
    """Any decimal fraction, with or without exponent, that stands for exactly this float."""
    exact = Decimal(repr(size))
    _, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int), "literals are finite"
    whole = "".join(map(str, digits))
    forms = [f"{whole}E{exponent}", f"{whole[0]}.{whole[1:] or '0'}e{exponent + len(whole) - 1}"]
    if abs(exponent) < 20:
        plain = format(exact, "f")
        plain = plain if "." in plain else plain + ".0"
        pointed = f".{whole}E{exponent + len(whole):+d}"
        forms = [plain, plain, plain + "0", f"{plain}E0", pointed, *forms]
        if plain.endswith(".0"):
            forms.append(plain.removesuffix("0"))
        if plain.startswith("0."):
            forms.append(plain.removeprefix("0"))
    return forms[0] if rng is None else rng.choice(forms)


def _string(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(name: str, rng: random.Random | None) -> str:
    plain = PLAIN_NAME.fullmatch(name) is not None and name.lower() not in KEYWORDS
    return name if plain and not _chance(rng, 0.15) else f'"{name}"'


def _keyword(word: str, rng: random.Random | None) -> str:
    if rng is None or rng.random() < 0.5:
        return word.upper()
    if rng.random() < 0.5:
        return word
    return "".join(rng.choice((letter.lower(), letter.upper())) for letter in word)


# Joining.


def _chance(rng: random.Random | None, share: float) -> bool:
    return rng is not None and rng.random() < share


def _wrapped(tokens: list[str], *, needed: bool, rng: random.Random | None) -> list[str]:
    while needed or _chance(rng, 0.07):
        tokens = ["(", *tokens, ")"]
        needed = False
    return tokens


def _joined(tokens: list[str], rng: random.Random | None) -> str:
    """Tokens with white space where it is needed, and sometimes where it is not."""
    text = "" if not _chance(rng, 0.05) else "\n "
    for index, token in enumerate(tokens):
        if index > 0:
            before, after = tokens[index - 1][-1], token[0]
            # Two words would run together. Two signs would not, but many languages read `--`
            # as the start of a comment.
            needed = (_in_word(before) and _in_word(after)) or (before in "+-" and after in "+-")
            if rng is None:
                bracket = before == "(" or after in "),"
                text += " " if needed or not bracket else ""
            elif needed or rng.random() < 0.75:
                text += rng.choice(SPACES)
        text += token
    return text + ("  " if _chance(rng, 0.05) else "")


def _in_word(character: str) -> bool:
    return character.isalnum() or character in "_$."
