"""The trace of a run: always a digest, and readable lines on request.

The digest includes every step (time, broker, kind of event, number of effects) and everything that
clients saw. It consists of numbers only, so it is the same under every ``PYTHONHASHSEED``.

A line has the time, the broker or client, the event and, after an arrow, the effects; those that do
not fit have their own lines. Steps in which only time passed, without effects, have no line. Lines
are short forms (:mod:`.trace_format`), so a run with lines has a second digest, of the complete
contents.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

from gapless.core.events import (
    ClientDown,
    ClientDrained,
    ClientFull,
    ClientRequest,
    ClientUp,
    Fetched,
    LinkDown,
    LinkDrained,
    LinkFull,
    LinkUp,
    Received,
    Written,
)
from gapless_lab.sim.trace_format import TraceFormatter, cut, since_the_start

__all__ = ["EVENT_CODES", "Trace"]

WIDTH: Final = 160
"""A longer step has a line for each effect."""

SHOWN_MAX: Final = 400
"""The maximum number of characters shown of an event or effect."""

EVENT_CODES: dict[type, int] = {
    type(None): 0,
    Received: 1,
    Written: 2,
    Fetched: 3,
    ClientRequest: 4,
    ClientUp: 5,
    ClientDown: 6,
    LinkUp: 7,
    LinkDown: 8,
    LinkFull: 9,
    LinkDrained: 10,
    ClientFull: 11,
    ClientDrained: 12,
}


class Trace:
    """Computes the digest, and passes lines to a sink if there is one."""

    __slots__ = ("_contents", "_formatter", "_sink", "digest", "full")

    def __init__(self, sink: Callable[[str], None] | None = None) -> None:
        self.full = sink is not None
        self._sink = sink
        self._formatter = TraceFormatter()
        self._contents = hashlib.blake2b(digest_size=8)
        self.digest = 0

    def fold(self, *numbers: int) -> None:
        """Mix numbers into the digest (hashes of numbers do not depend on the hash seed)."""
        self.digest = hash((self.digest, *numbers))

    def note(self, at: int, who: str, text: str) -> None:
        """Write an entry that is not a step; call only if ``full``."""
        self._digest(at, who, text)
        self._line(at, who, f"** {since_the_start(text)}")

    def message(self, at: int, who: str, verb: str, message: Any) -> None:
        """Write a request or notice of a client; call only if ``full``."""
        self._digest(at, who, verb, message)
        self._line(at, who, f"{verb} {self._formatted(message)}")

    def step(self, at: int, who: str, event: Any, effects: list[Any]) -> None:
        """Write one step; call only if ``full``."""
        self._digest(at, who, event, effects)
        if event is None and not effects:
            return
        happened = "time passes" if event is None else self._formatted(event)
        followed = [self._formatted(effect) for effect in effects]
        whole = f"{happened} => {'; '.join(followed)}" if followed else happened
        if len(whole) <= WIDTH:
            self._line(at, who, whole)
            return
        self._line(at, who, happened)
        for each in followed:
            self._line(at, who, f"  => {each}")

    def _formatted(self, item: Any) -> str:
        return cut(self._formatter.format(item), SHOWN_MAX)

    def _line(self, at: int, who: str, text: str) -> None:
        if self._sink is not None:
            self._sink(f"{at / 1_000_000:12.6f} {who:<6} {text}")

    def _digest(self, *contents: Any) -> None:
        self._contents.update(repr(contents).encode())

    @property
    def text_digest(self) -> str:
        """The digest of all complete contents."""
        return self._contents.hexdigest()

    @property
    def short_digest(self) -> str:
        """The digest of all steps, in hexadecimal."""
        return f"{self.digest & (2**64 - 1):016x}"
