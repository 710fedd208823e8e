"""Changes of recorded messages: of their bytes, and of the values in them."""

from __future__ import annotations

from random import Random
from typing import Any, Final

import msgspec

from gapless.core.limits import INT_MIN
from gapless_lab.fuzz.generation import WRONG
from gapless_lab.fuzz.vocabulary import EXTREME_FLOATS, EXTREME_INTS, EXTREME_TEXTS

__all__ = ["mutate_bytes", "mutate_values"]

_LENGTH_MARKERS: Final = b"\xdc\xdd\xde\xdf\xd9\xda\xdb\xc4\xc5\xc6\xc7\xc8\xc9"
"""The markers of msgpack that a length follows."""


def mutate_bytes(random: Random, body: bytes, other: bytes) -> bytes:
    """Change some bytes, or splice in a part of another message."""
    found = bytearray(body)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(found) + 1)
        match random.randrange(6):
            case 0:
                found[at : at + 1] = random.randbytes(1)
            case 1:
                del found[at:]
            case 2:
                del found[at : at + random.randrange(1, 8)]
            case 3:
                found[at:at] = random.randbytes(random.randrange(1, 5))
            case 4:
                found[at : at + 1] = bytes([random.choice(_LENGTH_MARKERS)])
            case _:
                start = random.randrange(len(other) + 1)
                found[at:at] = other[start : start + random.randrange(1, 40)]
    return bytes(found)


def mutate_values(random: Random, body: bytes) -> bytes:
    """Replace one to three values by extreme ones, mostly of the same type."""
    message = msgspec.msgpack.decode(body)
    for _ in range(random.choice((1, 1, 2, 3))):
        message = _changed(random, message, is_tag=True)
    return msgspec.msgpack.encode(message)


def _changed(random: Random, value: Any, *, is_tag: bool = False) -> Any:
    """Return a value with one change in it, at a random place."""
    if isinstance(value, list) and value and random.random() < 0.9:
        first = 1 if is_tag and len(value) > 1 else 0
        at = random.randrange(first, len(value))
        if random.random() < 0.1:  # repeat or remove an item instead
            return value[:at] + value[at : at + 1] * random.choice((0, 2, 100)) + value[at + 1 :]
        return [*value[:at], _changed(random, value[at]), *value[at + 1 :]]
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(sorted(value, key=repr))
        return {**value, key: _changed(random, value[key])}
    if random.random() < 0.1:
        return random.choice(WRONG)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        near = min(max(value + random.choice((-1, 1, 1_000_000)), INT_MIN), 2**64 - 1)
        return random.choice((near, random.choice(EXTREME_INTS)))
    if isinstance(value, str):
        return random.choice(EXTREME_TEXTS)
    if isinstance(value, float):
        return random.choice(EXTREME_FLOATS)
    return random.choice(WRONG)
