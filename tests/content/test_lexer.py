"""Tokens of the selector language, and texts that are refused."""

from __future__ import annotations

import pytest

from gapless.content.expression import KEYWORDS
from gapless.content.lexer import COMPARE, END, NAME, NUMBER, STRING, shown, tokenize
from gapless.core.errors import FilterSyntaxError


def values(text: str) -> list[object]:
    return [value for _kind, value, _start in tokenize(text)[:-1]]


def kinds(text: str) -> list[str]:
    return [kind for kind, _value, _start in tokenize(text)]


def test_tokens_carry_their_kind_their_value_and_their_offset() -> None:
    assert tokenize(" price>= 90") == [
        (NAME, "price", 1),
        (COMPARE, ">=", 6),
        (NUMBER, 90, 9),
        (END, "", 11),
    ]


@pytest.mark.parametrize("text", ["", " ", "\t\r\n ", "\u00a0\u3000"])
def test_blank_text_is_only_an_end(text: str) -> None:
    assert tokenize(text) == [(END, "", len(text))]


@pytest.mark.parametrize("text", ["and", "AND", "And", "aNd"])
def test_keywords_are_read_in_any_case(text: str) -> None:
    assert kinds(text) == ["AND", END]


def test_every_keyword_is_a_keyword_token() -> None:
    words = sorted(word.lower() for word in KEYWORDS)
    assert kinds(" ".join(words))[:-1] == [word.upper() for word in words]


@pytest.mark.parametrize(
    "name",
    [
        "price",
        "Price",
        "_hidden",
        "$cash",
        "a1",
        "order.total",
        "a.b.c",
        "größe",
        "価格",
        "हिन्दी",
        "цена.всего",
        "android",
        "in.x",
        "x.in",
        "TRUEish",
        "\u0131s",
        "I\u017f",
    ],
)
def test_a_plain_name_follows_the_java_rule_with_dots(name: str) -> None:
    assert tokenize(name) == [(NAME, name, 0), (END, "", len(name))]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('"odd name"', "odd name"),
        ('"AND"', "AND"),
        ('"say ""hi"""', 'say "hi"'),
        ('""', ""),
        ('"a\nb"', "a\nb"),
        ('"it\'s"', "it's"),
    ],
)
def test_any_name_may_be_in_double_quotes(text: str, name: str) -> None:
    assert tokenize(text) == [(NAME, name, 0), (END, "", len(text))]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("''", ""),
        ("'IBM'", "IBM"),
        ("'it''s'", "it's"),
        ("''''", "'"),
        ("'a\nb'", "a\nb"),
        ("'\U0001f600'", "\U0001f600"),
        ("'\"'", '"'),
        ("'\\'", "\\"),
    ],
)
def test_a_string_is_in_single_quotes(text: str, value: str) -> None:
    assert tokenize(text) == [(STRING, value, 0), (END, "", len(text))]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("12", 12),
        ("12L", 12),
        ("12l", 12),
        ("0L", 0),
        ("0x1d", 29),
        ("0X1D", 29),
        ("0x1dL", 29),
        ("0x1f", 31),
        ("0x000000000000000000000000000000000000000000000000000000000000000000000001", 1),
        ("035", 29),
        ("035L", 29),
        ("00", 0),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 2**63),
    ],
)
def test_whole_numbers_are_decimal_hexadecimal_or_octal(text: str, value: int) -> None:
    (found,) = values(text)
    assert (found, type(found)) == (value, int)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7.", 7.0),
        (".5", 0.5),
        ("7.5", 7.5),
        ("7E3", 7000.0),
        ("7e+3", 7000.0),
        ("1.5e-3", 0.0015),
        ("7.E3", 7000.0),
        (".5e1", 5.0),
        ("08.5", 8.5),
        ("00.5", 0.5),
        ("08e1", 80.0),
        ("1.5f", 1.5),
        ("1.5D", 1.5),
        ("7f", 7.0),
        ("0d", 0.0),
        ("1e-400", 0.0),
        ("9223372036854775808.", 2.0**63),
    ],
)
def test_a_point_an_exponent_or_a_suffix_makes_a_float(text: str, value: float) -> None:
    (found,) = values(text)
    assert (found, type(found)) == (value, float)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a<>1", ["a", "<>", 1]),
        ("a!=1", ["a", "<>", 1]),
        ("a<=-1", ["a", "<=", "-", 1]),
        ("0x1e-3", [30, "-", 3]),
        ("1e-3-2", [0.001, "-", 2]),
        ("7L-3", [7, "-", 3]),
        ("a.5", ["a", 0.5]),
        ("(a,'b')", ["(", "a", ",", "b", ")"]),
        ("a*b/c%d+e", ["a", "*", "b", "/", "c", "%", "d", "+", "e"]),
        ("'a''b''c'", ["a'b'c"]),
        ("'a' 'b'", ["a", "b"]),
        ("a\u00a0=\u30001", ["a", "=", 1]),
    ],
)
def test_unambiguous_tokens_need_no_space(text: str, expected: list[object]) -> None:
    assert values(text) == expected


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("a = 'IBM", 4, "this string has no end"),
        ("a = 'it''s", 4, "this string has no end"),
        ("a = '''", 4, "this string has no end"),
        ("a = 'caf\u00e9 \u2192", 4, "this string has no end"),
        ('"odd = 1', 0, "this quoted name has no end"),
        ("a = 1;", 5, "stray character ';'; a filter is one condition"),
        ("a && b", 2, "stray character '&'; write AND"),
        ("a || b", 2, "stray character '|'; write OR"),
        ("!a", 0, "stray character '!'; write NOT"),
        ("a = #1", 4, "stray character '#'"),
        ("a..b = 1", 1, "stray character '.'; a dot stands between"),
        ("`a` = 1", 0, "stray character '`'; names are quoted with double quotes"),
        ("a = \u2018x\u2019", 4, "strings are quoted with '"),
        ("a \u2264 5", 2, "stray character '\u2264'"),
        ("a = 5\u20ac", 4, "this is not a number"),
        ("a\x00 = 1", 1, "stray character '\\x00'"),
        ("\u0663a = 1", 0, "a name cannot begin with '\u0663'"),
        ("x.\u0301y = 1", 2, "a name cannot begin with"),
        ("a = '\ud800'", 5, "half of a surrogate pair"),
        ("a = 08", 4, "a number with a leading 0 is octal"),
        ("a = 0192L", 4, "a number with a leading 0 is octal"),
        ("a = 12abc", 4, "this is not a number"),
        ("a = 1_000", 4, "this is not a number"),
        ("a = 0x", 4, "this is not a number"),
        ("a = 0xg", 4, "this is not a number"),
        ("a = 1.2.3", 4, "this is not a number"),
        ("a = 1e", 4, "this is not a number"),
        ("a = 1e+", 4, "this is not a number"),
        ("a = 035f", 4, "this is not a number"),
        ("a = 1\u0663", 4, "this is not a number"),
        ("a = 1e999", 4, "this number is too large for a float"),
    ],
)
def test_an_invalid_token_is_refused_with_its_position(
    text: str, position: int, problem: str
) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        tokenize(text)
    assert problem in caught.value.problem
    assert caught.value.position == position


@pytest.mark.parametrize("digits", ["9" * 60_000, "0x" + "f" * 60_000, "0" + "7" * 60_000])
def test_a_number_of_many_digits_is_not_computed(digits: str) -> None:
    (value,) = values(digits)
    assert value == 2**64  # a number that does not fit; its digits are not read


def test_tokens_are_described_for_messages() -> None:
    tokens = tokenize("a 5 'x' AND = (")
    assert [shown(token) for token in tokens] == [
        "the name a",
        "the number 5",
        "a string",
        "AND",
        "'='",
        "'('",
        "the end of the filter",
    ]
    assert shown(tokenize("9" * 100)[0]) == "a number"
