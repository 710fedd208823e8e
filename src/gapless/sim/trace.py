"""What happened in a run: a digest always, readable lines if asked for.

The digest folds in every step (when, who, what kind of event, how many effects) and everything that
clients saw. It is made of numbers only, so it is the same under every ``PYTHONHASHSEED``. Lines
show contents too and have a digest of their own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

from gapless.core.machine import (
    Asked,
    ClientDown,
    ClientFree,
    ClientFull,
    ClientUp,
    Fetched,
    LinkDown,
    LinkFree,
    LinkFull,
    LinkUp,
    Received,
    Written,
)

__all__ = ["EVENT_CODES", "Trace", "shown"]

EVENT_CODES: dict[type, int] = {
    type(None): 0,
    Received: 1,
    Written: 2,
    Fetched: 3,
    Asked: 4,
    ClientUp: 5,
    ClientDown: 6,
    LinkUp: 7,
    LinkDown: 8,
    LinkFull: 9,
    LinkFree: 10,
    ClientFull: 11,
    ClientFree: 12,
}


class Trace:
    """Collects the digest, and hands lines to a sink if there is one."""

    __slots__ = ("_lines", "_sink", "digest", "full")

    def __init__(self, sink: Callable[[str], None] | None = None) -> None:
        self.full = sink is not None
        self._sink = sink
        self._lines = hashlib.blake2b(digest_size=8)
        self.digest = 0

    def fold(self, *numbers: int) -> None:
        """Mix numbers into the digest (hashes of numbers do not depend on the hash seed)."""
        self.digest = hash((self.digest, *numbers))

    def line(self, at: int, who: str, text: str) -> None:
        """Write a line; call only if ``full``."""
        line = f"{at / 1_000_000:12.6f} {who:<6} {text}"
        self._lines.update(line.encode())
        self._lines.update(b"\n")
        if self._sink is not None:
            self._sink(line)

    def step(self, at: int, who: str, event: Any, effects: list[Any]) -> None:
        """Write the lines of one step; call only if ``full``."""
        self.line(at, who, f"<- {shown(event)}")
        for effect in effects:
            self.line(at, who, f"   -> {shown(effect)}")

    @property
    def text_digest(self) -> str:
        """The digest of all lines."""
        return self._lines.hexdigest()

    @property
    def short_digest(self) -> str:
        """The digest of all steps, in hexadecimal."""
        return f"{self.digest & (2**64 - 1):016x}"


_SHORTER = (
    (re.compile(r"PubendId\(name='([^']*)', incarnation=1\)"), r"\1"),
    (re.compile(r"PubendId\(name='([^']*)', incarnation=(\d+)\)"), r"\1#\2"),
    (re.compile(r"ShbId\(broker='([^']*)', cell='([^']*)'\)"), r"\1@\2"),
    (re.compile(r"VirtualTime\(life=(\d+), counter=(\d+)\)"), r"\1:\2"),
    (re.compile(r"TickRange\(low=(\d+), high=(\d+)\)"), r"[\1, \2]"),
    (re.compile(r"<\w+\.(\w+): \d+>"), r"\1"),
)
"""How the forms that fill most of a line are written shorter."""


def shown(thing: Any) -> str:
    """Return an event, effect or notice as a line of text."""
    if thing is None:
        return "time passes"
    text = repr(thing)
    for pattern, shorter in _SHORTER:
        text = pattern.sub(shorter, text)
    return text
