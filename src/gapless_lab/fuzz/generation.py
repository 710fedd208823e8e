"""Messages from types: every field is drawn from its type, so new messages need no code here.

A message is built as lists, texts and numbers, because a struct cannot hold what its type forbids.
A *boldness* between 0 and 1 is the share of values that are extreme or of another type. With 0 every
message is well-formed.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import inspect

from gapless.core.ids import PubendId, ShbId
from gapless.wire import CLIENT_REQUESTS, LINK_PACKETS
from gapless.wire.codec import INSIDE_TYPES
from gapless_lab.fuzz.vocabulary import EXTREME_FLOATS, EXTREME_INTS, Vocabulary

__all__ = ["Generator", "link_types", "peer_message_types", "request_types", "shape_of"]

LENGTHS: Final = (0, 1, 1, 2, 3)
"""Lengths of sequences that may be meant."""

EXTREME_LENGTHS: Final = (0, 1, 50, 1_000)

WRONG: Final[tuple[Any, ...]] = (
    None,
    -1,
    2**64 - 1,
    1.5,
    "text",
    b"\xff",
    [],
    [[]],
    {},
    {"k": [1]},
    True,
)
"""Values of which most are of another type than the field."""

WRONG_SHARE: Final = 0.05
"""The share of these among bold values: each makes its message malformed."""

KNOWN_KEYS: Final = 0.5
"""The share of keys that are those of questions of the broker."""

DEPTH_MAX: Final = 6
"""Nesting below which long sequences are drawn."""

ITEMS_MAX: Final = 2_000
"""Values in a message; then sequences are empty."""

EXTREME_CHARACTERS_MAX: Final = 150_000
"""Characters of extreme texts and bytes in a message; then they are short. Large frames come from other
generators, and most frames should be cheap to send."""

Shape: TypeAlias = inspect.Type


@cache
def shape_of(kind: Any) -> inspect.StructType:
    """Return the fields of a message type."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType), f"{kind} is no message"
    return found


def request_types() -> dict[str, Any]:
    """Return the messages that a client sends, by tag."""
    return _by_tag(CLIENT_REQUESTS.types)


def link_types() -> dict[str, Any]:
    """Return the frames of a link, by tag."""
    return _by_tag(LINK_PACKETS.types)


def peer_message_types() -> dict[str, Any]:
    """Return the messages that a packet between brokers contains, by tag."""
    packet = shape_of(link_types()["Packet"])
    items = next(field.type for field in packet.fields if field.name == "messages")
    assert isinstance(items, inspect.VarTupleType)
    assert isinstance(items.item_type, inspect.UnionType)
    structs = [each for each in items.item_type.types if isinstance(each, inspect.StructType)]
    return _by_tag(tuple(each.cls for each in structs))


def _by_tag(kinds: tuple[Any, ...]) -> dict[str, Any]:
    return {str(shape_of(kind).tag): kind for kind in kinds}


class Generator:
    """Draws messages."""

    def __init__(self, vocabulary: Vocabulary, boldness: float) -> None:
        self._vocabulary = vocabulary
        self._random = vocabulary.random
        self._boldness = boldness
        self._items = self._characters = 0

    def message(self, kind: Any) -> list[Any]:
        """Return a message of a type."""
        self._items = self._characters = 0
        found: list[Any] = self._struct(shape_of(kind), "", 0)
        if self._is_bold() and self._is_bold():
            cut = self._random.randrange(len(found) + 1)
            found = found[:cut] if self._random.random() < 0.5 else [*found, *found[1:]]
        return found

    def encoded(self, kind: Any) -> bytes:
        """Return a message of a type in msgpack."""
        return msgspec.msgpack.encode(self.message(kind))

    def _is_bold(self) -> bool:
        return self._random.random() < self._boldness

    def _struct(self, shape: inspect.StructType, field: str, depth: int) -> list[Any]:
        del field
        tag = [] if shape.tag is None else [shape.tag]
        return tag + [self.value(each.type, each.name, depth + 1) for each in shape.fields]

    def value(self, shape: Shape, field: str, depth: int = 0) -> Any:
        """Return a value of a type for a field of this name."""
        self._items += 1
        if field == "key" and self._vocabulary.keys and self._random.random() < KNOWN_KEYS:
            return self._random.choice(self._vocabulary.keys)
        if self._boldness and self._random.random() < self._boldness * WRONG_SHARE:
            return self._random.choice(WRONG)
        match shape:
            case inspect.IntType():
                return self._int(shape, field)
            case inspect.StrType():
                return self._text(field)
            case inspect.BoolType():
                return self._random.random() < 0.5
            case inspect.FloatType():
                return self._random.choice(EXTREME_FLOATS)
            case inspect.BytesType():
                return self._bytes()
            case inspect.EnumType():
                return self._enum(shape)
            case inspect.NoneType():
                return None
            case inspect.UnionType():
                return self.value(self._random.choice(shape.types), field, depth)
            case _:
                return self._composed(shape, field, depth)

    def _composed(self, shape: Shape, field: str, depth: int) -> Any:
        match shape:
            case inspect.StructType():
                return self._struct(shape, field, depth)
            case inspect.NamedTupleType():
                return self._named_tuple(shape, depth)
            case inspect.TupleType():
                return [self.value(each, field, depth + 1) for each in shape.item_types]
            case inspect.VarTupleType() | inspect.ListType():
                length = self._length(depth)
                return [self.value(shape.item_type, field, depth + 1) for _ in range(length)]
            case inspect.DictType():
                keys = [self.value(shape.key_type, field, depth + 1) for _ in range(3)]
                return {
                    _hashable(key): self.value(shape.value_type, field, depth + 1) for key in keys
                }
            case inspect.RawType() | inspect.AnyType():
                return self._inner(depth)
        raise AssertionError(f"no value can be made for {shape!r}; teach the generator this type")

    def _text(self, field: str) -> str:
        if self._characters > EXTREME_CHARACTERS_MAX or not self._is_bold():
            return self._vocabulary.text(field)
        text = self._vocabulary.extreme_text(field)
        self._characters += len(text)
        return text

    def _int(self, shape: inspect.IntType, field: str) -> int:
        if self._is_bold():
            return self._random.choice(EXTREME_INTS)
        found = self._vocabulary.integer(field)
        if shape.ge is not None:
            found = max(found, int(shape.ge))
        return found if shape.le is None else min(found, int(shape.le))

    def _bytes(self) -> bytes:
        if self._characters > EXTREME_CHARACTERS_MAX or not self._is_bold():
            return self._random.randbytes(self._random.choice((0, 1, 20)))
        size = self._random.choice((0, 70_000))
        self._characters += size
        return self._random.randbytes(size)

    def _enum(self, shape: inspect.EnumType) -> Any:
        if self._is_bold():
            return self._random.choice(EXTREME_INTS)
        return self._random.choice([each.value for each in shape.cls])

    def _named_tuple(self, shape: inspect.NamedTupleType, depth: int) -> list[Any]:
        if not self._is_bold():
            if shape.cls is PubendId:
                return [*self._vocabulary.pubend()]
            if shape.cls is ShbId:
                return [*self._vocabulary.shb()]
        return [self.value(each.type, each.name, depth + 1) for each in shape.fields]

    def _length(self, depth: int) -> int:
        if self._items > ITEMS_MAX or depth > DEPTH_MAX:
            return 0
        return self._random.choice(EXTREME_LENGTHS if self._is_bold() else LENGTHS)

    def _inner(self, depth: int) -> Any:
        """Return the packet inside a relayed one."""
        if depth > DEPTH_MAX:
            return None
        return self._struct(shape_of(self._random.choice(INSIDE_TYPES)), "", depth + 2)


def _hashable(key: Any) -> Any:
    try:
        hash(key)
    except TypeError:
        return str(key)
    return key
