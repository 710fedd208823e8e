"""Plain events: the compiled form and its fallback recognize them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from types import ModuleType
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.content import plain
from gapless.content.plain import fallback

Form = Callable[[Sequence[object]], bool]


class Text(str):
    """A text of another type."""

    __slots__ = ()


class Money(float):
    """A float of another type."""


class Side(IntEnum):
    """An int of another type."""

    BUY = 1


class Table(dict[str, Any]):
    """A dict of another type."""


class Pair(tuple[Any, ...]):
    """A tuple of another type."""

    __slots__ = ()


FORMS: dict[str, ModuleType] = {"fallback": fallback}
if plain.COMPILED is not None:
    FORMS["compiled"] = plain.COMPILED

PLAIN = ({"symbol": "IBM", "price": float("nan"), "volume": -(2**63), "new": True}, b"payload")

ODD: tuple[Any, ...] = (
    {"price": 1},
    None,
    ({},),
    ({}, b"", b""),
    [{}, b""],
    Pair(({}, b"")),
    (Table(), b""),
    (None, b""),
    ({}, ""),
    ({}, bytearray()),
    ({5: 1}, b""),
    ({Text("price"): 1}, b""),
    ({"price": None}, b""),
    ({"price": b"1"}, b""),
    ({"price": Money(1)}, b""),
    ({"side": Side.BUY}, b""),
    ({"symbol": Text("IBM")}, b""),
    ({"volume": 2**63}, b""),
    ({"volume": -(2**63) - 1}, b""),
    ({"volume": 2**700}, b""),
)


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> ModuleType:
    """Return one of the forms."""
    return FORMS[request.param]


@pytest.fixture
def are_plain(form: ModuleType) -> Form:
    """Return the detection of one of the forms."""
    return cast("Form", form.are_plain)


def test_dicts_of_plain_values_with_bytes_are_plain(are_plain: Form) -> None:
    assert are_plain([])
    assert are_plain([PLAIN, ({}, b""), ({"volume": 2**63 - 1}, b"")])
    assert are_plain((PLAIN, PLAIN))


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_event_that_is_not_plain_is_found_among_others(are_plain: Form, odd: object) -> None:
    assert not are_plain([PLAIN, odd, PLAIN])


def test_the_characters_of_texts_are_not_checked(are_plain: Form) -> None:
    assert are_plain([({"symbol": "\ud800"}, b"")])


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.builds(Money, st.floats()),
)
_NAMES = st.one_of(st.text(max_size=3), st.integers(), st.builds(Text, st.text(max_size=3)))
_EVENTS = st.one_of(
    st.tuples(st.dictionaries(_NAMES, _VALUES, max_size=3), st.binary(max_size=3)),
    st.tuples(_VALUES, _VALUES),
    _VALUES,
)


@pytest.mark.skipif(plain.COMPILED is None, reason="the compiled form was not built")
@given(st.lists(_EVENTS, max_size=3))
def test_both_forms_agree(events: list[object]) -> None:
    assert plain.COMPILED is not None
    assert plain.COMPILED.are_plain(events) == fallback.are_plain(events)


_PLAIN_VALUES = st.one_of(
    st.booleans(),
    st.integers(min_value=-(2**63), max_value=2**63 - 1),
    st.floats(),
    st.text(max_size=300),
)
_PLAIN_EVENTS = st.tuples(
    st.dictionaries(st.text(max_size=40), _PLAIN_VALUES, max_size=20), st.binary(max_size=300)
)


@given(st.lists(_PLAIN_EVENTS, max_size=5))
def test_both_forms_bound_the_encoded_size_alike_and_not_far_above(events: list[Any]) -> None:
    bounds = {form.size_bound(events) for form in FORMS.values()}
    assert len(bounds) == 1
    (bound,) = bounds
    values = sum(1 + len(attributes) for attributes, _ in events)
    encoded = msgspec.msgpack.encode(events)
    assert len(encoded) <= bound + 5  # the head of the list
    assert bound <= 4 * len(encoded) + 16 * values
