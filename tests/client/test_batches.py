"""Batches of events: they are checked and encoded together as one by one, and sent as they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gapless.client.batches import PublishBatch, encoded, encoded_plain
from gapless.content.values import Value
from gapless.core.errors import AttributeValueError, GaplessError
from gapless.core.limits import EVENT_TEXT_MAX


class Text(str):
    """A text of another type."""

    __slots__ = ()


class Blob(bytes):
    """Bytes of another type."""


class Table(dict[str, Any]):
    """A dict of another type."""


PLAIN: tuple[dict[str, Value], bytes] = (
    {"symbol": "IBM", "price": 91.5, "volume": 2**63 - 1, "new": True},
    b"payload",
)

ODD: dict[str, Any] = {
    "a list for a pair": [{}, b""],
    "a triple": ({}, b"", b""),
    "a bare dict": {"price": 1},
    "a derived dict": (Table(price=1), b""),
    "a bytearray": ({}, bytearray(b"x")),
    "derived bytes": ({}, Blob(b"x")),
    "a name that is no text": ({5: 1}, b""),
    "a derived name": ({Text("price"): 1}, b""),
    "a derived value": ({"symbol": Text("IBM")}, b""),
    "nothing as a value": ({"price": None}, b""),
    "bytes as a value": ({"price": b"1"}, b""),
    "a large int": ({"volume": 2**63}, b""),
    "a huge int": ({"volume": 2**70}, b""),
    "half a surrogate pair": ({"symbol": "\ud800"}, b""),
    "half a surrogate pair as a name": ({"\ud800": 1}, b""),
}


def test_plain_events_are_encoded_together_as_one_by_one() -> None:
    events: list[tuple[dict[str, Value], bytes]] = [PLAIN, ({}, b""), ({"price": 0.5}, b"x" * 300)]
    assert encoded_plain(events) == [encoded(*event) for event in events]


@pytest.mark.parametrize("odd", ODD)
def test_a_batch_with_an_event_that_is_not_plain_is_not_encoded_together(odd: str) -> None:
    assert encoded_plain([PLAIN, ODD[odd], PLAIN]) is None


@pytest.mark.parametrize("odd", ["a large int", "a huge int", "half a surrogate pair"])
def test_encoding_an_invalid_event_names_the_wrong_attribute(odd: str) -> None:
    attributes, payload = ODD[odd]
    with pytest.raises(GaplessError, match="attribute"):
        encoded(attributes, payload)


def test_a_text_that_brokers_refuse_is_refused_before_it_is_sent() -> None:
    longest, payload = "é" * EVENT_TEXT_MAX, b"x" * 2 * EVENT_TEXT_MAX
    assert encoded({"text": longest}, payload)
    events: list[tuple[dict[str, Value], bytes]] = [({"text": longest + "x"}, b"")]
    assert encoded_plain(events) is None
    with pytest.raises(
        AttributeValueError, match="'text' has 65,537 characters, and may have 65,536"
    ):
        encoded(*events[0])


@pytest.mark.parametrize("count", [1, 15, 16, 500, 70_000])
def test_a_batch_is_sent_as_an_array_of_its_events(count: int) -> None:
    batch = PublishBatch()
    for number in range(count + 2):
        batch.add(encoded({"number": number}, b"p"))
    batch.take_out(0)
    batch.take_out(count + 1)
    sent = msgspec.msgpack.encode(batch.wire_events())
    assert msgspec.msgpack.decode(sent) == [[{"number": n}, b"p"] for n in range(1, count + 1)]
