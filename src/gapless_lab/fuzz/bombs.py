"""Bodies of frames that are small to send and expensive or confusing to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

import msgspec

from gapless.core.limits import EVENT_TEXT_MAX

__all__ = ["BOMBS"]

_DEPTHS: Final = (200, 900, 1_100, 5_000, 100_000)
"""Around the recursion limit of Python, and far above it."""


def _nested_arrays(random: Random, tag: str) -> bytes:
    depth = random.choice(_DEPTHS)
    return b"\x92" + _text(tag) + b"\x91" * depth + b"\xc0"


def _nested_maps(random: Random, tag: str) -> bytes:
    depth = random.choice(_DEPTHS)
    return b"\x92" + _text(tag) + b"\x81\xa1k" * depth + b"\xc0"


def _nested_in_an_event(random: Random, tag: str) -> bytes:
    """Nesting where a Publish has its attributes."""
    del tag
    head = msgspec.msgpack.encode(["Publish", 1, ["f1", 1], "fp1", 1, 1])
    deep = (b"\x91" if random.random() < 0.5 else b"\x81\xa1k") * random.choice(_DEPTHS)
    return b"\x97" + head[1:] + b"\x91\x92\x81\xa1a" + deep + b"\xc0" + b"\xc4\0"


def _declared_lengths(random: Random, tag: str) -> bytes:
    """A huge declared length, with hardly any bytes behind it."""
    markers = (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9")
    size = random.choice((2**32 - 1, 2**31, 2**30, 10_000_000))
    huge = random.choice(markers) + size.to_bytes(4, "big") + random.randbytes(random.randrange(9))
    return random.choice((huge, b"\x92" + _text(tag) + huge, b"\x93" + _text(tag) + b"\x01" + huge))


def _extensions(random: Random, tag: str) -> bytes:
    """Extension types, also malformed timestamps, where a field is expected."""
    found = random.choice(
        (
            *(b"\xd4\x01a", b"\xd6\xff\0\0\0\0", b"\xd7\xff" + b"\xff" * 8, b"\xc7\0\x05"),
            *(b"\xc7\x0c\xff" + b"\xff" * 12, b"\xd8\x7f" + b"x" * 16, b"\xc9\0\0\0\x02\x07ab"),
            *(b"\xc1", b"\xc8\xff\xff\x01"),
        )
    )
    return b"\x94" + _text(tag) + b"\x01" + found * 2


def _invalid_texts(random: Random, tag: str) -> bytes:
    """Bytes that are not UTF-8 where a text is expected, and as the name of the message."""
    bad = random.choice((b"\xff\xfe", b"\xc3(", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\x80"))
    text = bytes([0xA0 + len(bad)]) + bad
    if random.random() < 0.3:
        return b"\x92" + text + b"\x01"
    return b"\x94" + _text(tag) + b"\x01" + text * 2


def _duplicate_keys(random: Random, tag: str) -> bytes:
    """Attributes with one name many times."""
    del tag
    count = random.choice((2, 100, 60_000))
    head = msgspec.msgpack.encode(["Publish", 1, ["f1", 1], "fp1", 1, 1])
    items = b"\xdf" + count.to_bytes(4, "big") + b"\xa1a\x01" * count
    return b"\x97" + head[1:] + b"\x91\x92" + items + b"\xc4\0"


def _many_keys(random: Random, tag: str) -> bytes:
    """An event with very many attributes."""
    del tag
    attributes = {f"k{number}": number for number in range(random.choice((1_000, 60_000)))}
    return msgspec.msgpack.encode(
        ["Publish", 1, ["f1", 1], "fp1", 1, random.randrange(100), [[attributes, b""]]]
    )


def _long_texts(random: Random, tag: str) -> bytes:
    """Events with texts that take long to search, and some that are too long."""
    del tag
    text = random.choice(("a" * EVENT_TEXT_MAX, "a" * (EVENT_TEXT_MAX + 1), "ab" * 30_000))
    events = [[{"p": text}, b""]] * random.choice((1, 4, 14))
    return msgspec.msgpack.encode(
        ["Publish", 1, ["f1", 1], "fp1", 1, random.randrange(100), events]
    )


def _many_empty_events(random: Random, tag: str) -> bytes:
    """Very many events of no size: small here, large with a publisher and a tick each."""
    del tag
    count = random.choice((1_000, 60_000))
    head = msgspec.msgpack.encode(["Publish", 1, ["f1", 1], "n" * 256, 1, random.randrange(100)])
    return b"\x97" + head[1:] + b"\xdd" + count.to_bytes(4, "big") + b"\x92\x80\xc4\0" * count


def _many_positions(random: Random, tag: str) -> bytes:
    """A position that names very many unknown pubends."""
    del tag
    count = random.choice((100, 20_000))
    position = [[[f"u{number % 64}", number], number] for number in range(count)]
    return msgspec.msgpack.encode(["Subscribe", 1, "fs", "TRUE", False, [2, position, 0, 0], 0, 10])


def _nothing(random: Random, tag: str) -> bytes:
    """No message, or not much of one."""
    return random.choice(
        (b"", b"\xc0", b"\x90", b"\x80", b"\x91" + _text(tag), _text(tag), b"\x91\xc0", b"\0" * 64)
    )


def _two_messages(random: Random, tag: str) -> bytes:
    """Bytes behind the end of a message."""
    return b"\x92" + _text(tag) + b"\x01" + random.randbytes(random.randrange(1, 40))


def _noise(random: Random, tag: str) -> bytes:
    del tag
    return random.randbytes(random.choice((1, 16, 300, 5_000)))


def _text(text: str) -> bytes:
    return msgspec.msgpack.encode(text)


BOMBS: Final[Mapping[str, Callable[[Random, str], bytes]]] = {
    "nested arrays": _nested_arrays,
    "nested maps": _nested_maps,
    "nested in an event": _nested_in_an_event,
    "declared lengths": _declared_lengths,
    "extensions": _extensions,
    "invalid texts": _invalid_texts,
    "duplicate keys": _duplicate_keys,
    "many keys": _many_keys,
    "many empty events": _many_empty_events,
    "long texts": _long_texts,
    "many positions": _many_positions,
    "nothing": _nothing,
    "two messages": _two_messages,
    "noise": _noise,
}
"""Each makes a body from a generator and the name of a message that is expected."""
