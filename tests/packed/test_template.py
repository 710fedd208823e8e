"""Packed templates: filled by a commit, they equal events that were packed with ticks at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.content.values import Value
from gapless.messages.streams import Events, Publication
from gapless.packed.pick import pack, unpack
from gapless.packed.template import PackedTemplate, pack_template
from tests.cases import scaled

VALUES: st.SearchStrategy[Value] = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=9)
)
EVENTS = st.lists(
    st.tuples(st.dictionaries(st.text(max_size=3), VALUES, max_size=3), st.binary(max_size=40)),
    min_size=1,
    max_size=20,
)
NUMBERS = st.one_of(st.integers(1, 300), st.integers(2**32 - 3, 2**32 + 3), st.integers(1, 2**60))


def filled(publisher: str, events: Events, tick: int, sequence: int) -> list[Publication]:
    template = PackedTemplate(pack_template(publisher, events), publisher)
    assert len(template) == len(events)
    return unpack([template.filled(tick, sequence)])


def stamped(publisher: str, events: Events, tick: int, sequence: int) -> list[Publication]:
    return [
        Publication(tick + index, publisher, sequence + index, *event)
        for index, event in enumerate(events)
    ]


@given(st.text(max_size=40), EVENTS, NUMBERS, NUMBERS)
@settings(max_examples=scaled(200), deadline=None)
def test_a_filled_template_has_the_events_with_their_ticks_and_sequences(
    publisher: str, events: list[tuple[dict[str, Value], bytes]], tick: int, sequence: int
) -> None:
    arguments = (publisher, tuple(events), tick, sequence)
    assert filled(*arguments) == stamped(*arguments)


@pytest.mark.parametrize("count", [1, 15, 16, 65_535, 65_536])
def test_the_header_of_a_template_may_have_any_size(count: int) -> None:
    events: Events = tuple(({"n": n}, b"") for n in range(count))
    assert filled("w" * 256, events, 7, 9) == stamped("w" * 256, events, 7, 9)


def test_a_payload_that_looks_like_a_placeholder_is_not_changed() -> None:
    payload = pack_template("w", (({}, b""),))
    (found,) = filled("w", (({}, payload),), 1, 1)
    assert found.payload == payload


def test_a_template_may_be_filled_more_than_once() -> None:
    template = PackedTemplate(pack_template("w", (({}, b"x"),)), "w")
    ticks = [unpack([template.filled(tick, 1)])[0].tick for tick in (5, 9)]
    assert ticks == [5, 9]


def test_packed_events_without_placeholders_are_refused_as_a_template() -> None:
    with pytest.raises(AssertionError, match="packed events without placeholders"):
        PackedTemplate(pack([Publication(2**40, "w", 2**40, {}, b"")]), "w")
