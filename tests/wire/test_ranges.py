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
from gapless.core.limits import INT_MAX, INT_MIN
from gapless.wire import CLIENT_NOTICES, CLIENT_REQUESTS, LINK_PACKETS, decode_handshake
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
