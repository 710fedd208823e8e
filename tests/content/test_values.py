"""Valid values of attributes."""

from __future__ import annotations

import pytest

from gapless.content.values import (
    Number,
    Value,
    canonical,
    check_attributes,
    check_value,
)
from gapless.core.errors import AttributeValueError


@pytest.mark.parametrize(
    "value", [None, True, 0, -(2**63), 2**63 - 1, 0.5, float("nan"), float("inf"), "", "x"]
)
def test_values_are_bools_64_bit_ints_floats_texts_or_missing(value: Value | None) -> None:
    check_value("a", value)
    check_attributes({"a": value})


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"x", "attribute 'a' is a bytes; use a bool, an int, a float or a str"),
        ([1], "attribute 'a' is a list"),
        (2**63, "attribute 'a' is about 2**63, which does not fit into 64 bits"),
        (-(2**63) - 1, "attribute 'a' is about -2**63, which does not fit into 64 bits"),
        (10**400, "attribute 'a' is about 2**1328, which does not fit into 64 bits"),
        ("x\ud800", "attribute 'a' has half of a surrogate pair at index 1, which is not a text"),
    ],
)
def test_other_values_are_refused_with_the_name_of_the_attribute(
    value: object, problem: str
) -> None:
    with pytest.raises(AttributeValueError) as caught:
        check_value("a", value)
    assert problem in str(caught.value)


def test_names_are_texts() -> None:
    with pytest.raises(AttributeValueError, match="attribute name 5 is not a str"):
        check_attributes({5: 1})  # type: ignore[dict-item]
    with pytest.raises(AttributeValueError, match="has half of a surrogate pair at index 0"):
        check_attributes({"\udfff": 1})


def test_a_long_name_is_shortened_in_the_message() -> None:
    with pytest.raises(AttributeValueError) as caught:
        check_value("n" * 60_000, [])
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5),
        (5.0, 5),
        (-0.0, 0),
        (0.5, 0.5),
        (1e18, 10**18),
        (2.0**63, 2.0**63),
        (-(2.0**63), -(2**63)),
        (1e300, 1e300),
        (float("inf"), float("inf")),
    ],
)
def test_a_whole_number_has_one_form(value: Number, expected: Number) -> None:
    found = canonical(value)
    assert (found, type(found)) == (expected, type(expected))
