"""Every field of every message is checked for its range and its form where it enters.

The messages and their fields are found in the types of the codecs, so no field can be forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args

import msgspec
import pytest
from msgspec import inspect

from gapless.core.errors import ProtocolError
from gapless.core.limits import CLIENT_COUNT_MAX, EVENT_TEXT_MAX, INT_MAX, INT_MIN
from gapless.wire import (
    CLIENT_NOTICES,
    CLIENT_REQUESTS,
    LINK_PACKETS,
    decode_handshake,
    request_number,
)
from gapless.wire.codec import Message, Notice, Request, _Envelope
from gapless.wire.handshake import Handshake

NESTING = 5_000
"""Far deeper than Python recurses."""

Path = tuple[int | str, ...]


def _in_packet(message: Any) -> bytes:
    return msgspec.msgpack.encode(["Packet", [1, 1], [1, 1], 1, [message]])


def _alone(message: Any) -> bytes:
    return msgspec.msgpack.encode(message)


GROUPS: dict[str, tuple[Any, Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    "request": (Request, _alone, CLIENT_REQUESTS.decode),
    "notice": (Notice, _alone, CLIENT_NOTICES.decode),
    "peer": (Message, _in_packet, LINK_PACKETS.decode),
    "packet": (_Envelope, _alone, LINK_PACKETS.decode),
    "handshake": (Handshake, _alone, decode_handshake),
}

KINDS = [
    (group, kind)
    for group, (union, _, _) in GROUPS.items()
    for kind in (get_args(union) or (union,))
]


def sample(info: Any) -> Any:
    """Return a value of a type, with one element in every collection."""
    match info:
        case inspect.StructType():
            fields = [sample(field.type) for field in info.fields]
            return [info.tag, *fields] if info.tag else fields
        case inspect.NamedTupleType():
            return [sample(field.type) for field in info.fields]
        case inspect.UnionType():
            return sample(
                next(each for each in info.types if not isinstance(each, inspect.NoneType))
            )
        case inspect.VarTupleType():
            return [sample(info.item_type)]
        case inspect.TupleType():
            return [sample(each) for each in info.item_types]
        case inspect.DictType():
            return {sample(info.key_type): sample(info.value_type)}
        case inspect.IntType():
            return 1
        case inspect.FloatType():
            return 1.5
        case inspect.BytesType():
            return b"x"
        case inspect.StrType():
            return "x"
        case inspect.BoolType():
            return True
        case inspect.EnumType():
            return next(iter(info.cls)).value
        case inspect.RawType():
            return ["Hello", "b", "c", [1, 1], None, 1, 1]
    raise AssertionError(f"{info} is no type of a field")


def leaves(info: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Return the place and the type of every number, text and flag in a sample."""
    match info:
        case inspect.StructType():
            shift = 1 if info.tag else 0
            for index, field in enumerate(info.fields):
                yield from leaves(field.type, (*path, index + shift))
        case inspect.NamedTupleType():
            for index, field in enumerate(info.fields):
                yield from leaves(field.type, (*path, index))
        case inspect.UnionType():
            chosen = next(each for each in info.types if not isinstance(each, inspect.NoneType))
            others = () if isinstance(chosen, inspect.StructType) else info.types[1:]
            for each in (chosen, *others):
                yield from leaves(each, path)
        case inspect.VarTupleType():
            yield from leaves(info.item_type, (*path, 0))
        case inspect.TupleType():
            for index, each in enumerate(info.item_types):
                yield from leaves(each, (*path, index))
        case inspect.DictType():
            yield from leaves(info.value_type, (*path, "x"))
        case _:
            yield path, info


def replaced(value: Any, path: Path, leaf: Any) -> Any:
    """Return a value with another leaf."""
    if not path:
        return leaf
    first, *rest = path
    if isinstance(value, dict):
        return {**value, first: replaced(value[first], tuple(rest), leaf)}
    assert isinstance(first, int)
    return [*value[:first], replaced(value[first], tuple(rest), leaf), *value[first + 1 :]]


@pytest.mark.parametrize(("group", "kind"), KINDS)
def test_a_sample_of_every_message_is_understood(group: str, kind: type) -> None:
    _, wrap, decode = GROUPS[group]
    decode(wrap(sample(inspect.type_info(kind))))


@pytest.mark.parametrize(("group", "kind"), KINDS)
def test_every_number_has_64_bits_at_most(group: str, kind: type) -> None:
    _, wrap, decode = GROUPS[group]
    info = inspect.type_info(kind)
    message = sample(info)
    for path, leaf in leaves(info):
        if not isinstance(leaf, inspect.IntType):
            continue
        assert leaf.ge is not None, (kind, path)
        assert leaf.le is not None, (kind, path)
        assert INT_MIN <= leaf.ge <= leaf.le <= INT_MAX, (kind, path)
        decode(wrap(replaced(message, path, leaf.ge)))
        decode(wrap(replaced(message, path, leaf.le)))
        for extreme in {leaf.ge - 1, leaf.le + 1, INT_MIN - 1, INT_MAX + 1, 2**64 - 1}:
            if -(2**63) <= extreme < 2**64 and not leaf.ge <= extreme <= leaf.le:
                with pytest.raises(ProtocolError):
                    decode(wrap(replaced(message, path, extreme)))


TEXTS = {
    *(
        "filter",
        "advertisement",
        "conjunctions",
        "added",
        "removed",
        "pattern",
    ),  # filters, patterns
    *("reason", "fault", "token", "client", "addresses", "attributes", "events"),  # other texts
}
"""Fields that contain texts of any length."""

REFUSED_BY_THE_MACHINE = {
    *("OpenPubend.name", "OpenPublisher.publisher", "Publish.publisher", "Subscribe.subscription"),
    *(f"{kind}.writer" for kind in ("StageChunk", "CommitBatch", "DropBatch")),
    *("StageChunk.attempt", "CommitBatch.parts"),
}
"""Names whose length the machine checks, to refuse them with a better reason."""

UNKNOWN_NAMES = {"Credit.subscription", "Ack.subscription", "ListSubscriptions.after"}
"""Names that are only compared with existing ones."""

DISCONNECTED_IF_UNKNOWN = {"Connect.name", "Connect.overlay", "Disconnect.reason"}
"""Fields of handshakes, which are compared with the configuration, or cut to a length."""


def texts(info: Any, owner: str = "", field: str = "") -> Iterator[tuple[str, Any]]:
    """Return the fields of a type that are texts, each with its type."""
    match info:
        case inspect.StructType() | inspect.NamedTupleType():
            for each in info.fields:
                yield from texts(each.type, info.cls.__name__, each.name)
        case inspect.UnionType():
            for kind in info.types:
                yield from texts(kind, owner, field)
        case inspect.VarTupleType():
            yield from texts(info.item_type, owner, field)
        case inspect.TupleType():
            for kind in info.item_types:
                yield from texts(kind, owner, field)
        case inspect.StrType() if field not in TEXTS:
            yield f"{owner}.{field}", info


@pytest.mark.parametrize("group", ["request", "peer", "packet", "handshake"])
def test_every_name_has_a_greatest_length(group: str) -> None:
    union, _, _ = GROUPS[group]
    kinds = get_args(union) or (union,)
    found = {place: info for kind in kinds for place, info in texts(inspect.type_info(kind))}
    unlimited = {place for place, info in found.items() if info.max_length is None}
    allowed = REFUSED_BY_THE_MACHINE | UNKNOWN_NAMES | DISCONNECTED_IF_UNKNOWN
    assert unlimited - allowed == set()


@pytest.mark.parametrize(("group", "kind"), KINDS)
def test_a_value_of_another_form_is_refused_in_every_field(group: str, kind: type) -> None:
    _, wrap, decode = GROUPS[group]
    info = inspect.type_info(kind)
    message = sample(info)
    for path, leaf in leaves(info):
        if isinstance(leaf, inspect.NoneType | inspect.RawType) or path == ():
            continue
        with pytest.raises(ProtocolError):
            decode(wrap(replaced(message, path, [[]])))


@pytest.mark.parametrize(("group", "kind"), KINDS)
def test_deep_nesting_is_refused_in_every_field_and_behind_the_last(group: str, kind: type) -> None:
    _, wrap, decode = GROUPS[group]
    info = inspect.type_info(kind)
    message = sample(info)
    mark = b"\xa9the place"
    deep = b"\x91" * NESTING + b"\xc0"
    places = [path for path, _ in leaves(info) if path]
    bodies = [wrap(replaced(message, path, "the place")) for path in places]
    bodies.append(wrap([*message, "the place"]))
    for body in bodies:
        assert body.count(mark) == 1
        with pytest.raises(ProtocolError):
            decode(_longer(body, mark, deep))


def _longer(body: bytes, mark: bytes, deep: bytes) -> bytes:
    return body.replace(mark, deep)


def test_a_request_is_refused_by_its_number_only_if_a_notice_can_contain_the_number() -> None:
    for number, refused in ((0, 0), (CLIENT_COUNT_MAX, CLIENT_COUNT_MAX)):
        assert request_number(_alone(["Unsubscribe", number, 5])) == refused
    for wrong in (-1, CLIENT_COUNT_MAX + 1, INT_MAX + 1, 2**64 - 1):
        assert request_number(_alone(["Unsubscribe", wrong, "name"])) is None


@pytest.mark.parametrize(
    "head", [["Publish", 7, ["p", 1], "desk", 1, 1], ["StageChunk", 7, ["p", 1], "w", 1, 1, "a", 1]]
)
def test_an_event_with_a_text_that_is_too_long_to_be_searched_is_refused(head: list[Any]) -> None:
    CLIENT_REQUESTS.decode(_alone([*head, [[{"text": "é" * EVENT_TEXT_MAX}, b""]]]))
    body = _alone([*head, [[{"text": "é" * (EVENT_TEXT_MAX + 1)}, b""]]])
    with pytest.raises(ProtocolError, match="length <= 65536"):
        CLIENT_REQUESTS.decode(body)
    assert request_number(body) == 7


HELLO = ["Hello", "b", "c", [1, 1], None, 1, 1]
RELAYED = ["Relayed", ["a", "b"], 1, HELLO]
WRONG_INNER = {
    "nothing": None,
    "another message": ["KeepAlive"],
    "a session with a negative number": ["Packet", [1, -1], [1, 1], 1, []],
    "a relayed packet": ["Packet", [1, 1], [1, 1], 1, [RELAYED]],
    "a probe": ["Packet", [1, 1], [1, 1], 1, [["RelayProbe", "b", [1, 1], ["a"]]]],
    "a malformed message": ["Packet", [1, 1], [1, 1], 1, [["Nack", ["p", 1], [[1, "x"]]]]],
}


@pytest.mark.parametrize("route", [["a", "b"], ["a", "b", "c"]])
@pytest.mark.parametrize("what", WRONG_INNER)
def test_a_relay_and_the_end_of_a_route_check_a_relayed_packet(what: str, route: list[str]) -> None:
    LINK_PACKETS.decode(_in_packet(["Relayed", route, 1, HELLO]))
    with pytest.raises(ProtocolError, match="a relayed packet is malformed"):
        LINK_PACKETS.decode(_in_packet(["Relayed", route, 1, WRONG_INNER[what]]))


@pytest.mark.parametrize("depth", [50, 330, 335, 5_000])
def test_nested_relayed_packets_are_refused(depth: int) -> None:
    body = _in_packet(RELAYED)
    head = body[: body.index(msgspec.msgpack.encode(HELLO))]
    with pytest.raises(ProtocolError):
        LINK_PACKETS.decode(head * depth + msgspec.msgpack.encode(HELLO))


@pytest.mark.parametrize("head", [b"\x91", b"\x81\xa1a", b"\xdd\0\0\0\x01", b"\xdf\0\0\0\x01\xa1a"])
def test_a_body_that_is_only_nesting_is_refused(head: bytes) -> None:
    for _, _, decode in GROUPS.values():
        with pytest.raises(ProtocolError):
            decode(head * NESTING + b"\xc0")


@pytest.mark.parametrize(
    "head", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"]
)
def test_a_body_that_promises_much_is_refused(head: bytes) -> None:
    for _, _, decode in GROUPS.values():
        with pytest.raises(ProtocolError):
            decode(head + b"\xc0" * 100)
