"""Looks ahead for a stream: up to where the next micro-batch goes.

A pubend's stream comes forward all the time, mostly in silence, and silence is not worth a batch. So
before the driver says that there is something new it looks for an event that matches. What it has looked
at in vain it remembers, and does not look at again.

With a limit it counts: the ticks of the events that match, at most as many as a batch may have, and then
lets each pubend have a fair share. A pubend with few events gets them all, and what it leaves goes to
the others.

A query whose filter matches nothing for long must come forward all the same: logs are released behind
it, and after a restart its position would lie in what is gone. So it takes an empty batch now and then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gapless.core.ticks import Tick
from gapless.messages.streams import ReadForm
from gapless.packed.pick import unpack_ticks
from gapless.spark.network import OverlayClient

__all__ = ["ADVANCE_US", "Lookahead", "shares"]

ADVANCE_US: Final = 60_000_000
"""A stream in which nothing matches comes forward at least so often: far less than logs are kept for."""


_LOOK_BYTES: Final = 1_048_576
"""What one look may cover of a log."""


class _Quiet(msgspec.Struct):
    """Nothing matches after ``begin`` up to ``seen``."""

    start: Tick
    seen: Tick

    def extend(self, seen: Tick) -> None:
        """Nothing matches up to a tick either; never back."""
        self.seen = max(self.seen, seen)


class Lookahead:
    """Finds out what is new between positions and the ends of logs."""

    def __init__(self, network: OverlayClient, wanted: str) -> None:
        self._network = network
        self._wanted = wanted
        self._quiet: dict[str, _Quiet] = {}

    def seen(self, pubend: str, start: Tick) -> Tick:
        """Return up to where it is known that nothing matches after a tick."""
        return self._quiet_after(pubend, start).seen

    def _quiet_after(self, pubend: str, start: Tick) -> _Quiet:
        known = self._quiet.get(pubend)
        if known is None or known.start != start:
            known = self._quiet[pubend] = _Quiet(start, start)
        return known

    def skip(self, pubend: str, start: Tick, released: Tick) -> None:
        """Look no more at what is gone."""
        self._quiet_after(pubend, start).extend(released)

    def _found(self, pubend: str, start: Tick, goal: Tick, most: int) -> tuple[list[Tick], Tick]:
        """Return ticks of events that match, at most so many, and up to where was looked."""
        known = self._quiet_after(pubend, start)
        ticks: list[Tick] = []
        reached = known.seen
        while reached < goal and len(ticks) < most:
            part = self._network.part(
                pubend,
                self._wanted,
                reached + 1,
                goal,
                form=ReadForm.TICKS,
                bytes_max=_LOOK_BYTES,
            )
            ticks += unpack_ticks(part.rows) or [each.tick for each in part.publications]
            if part.done <= reached:
                break  # the log cannot say more now
            reached = part.done
            if not ticks:
                known.extend(reached)
        return ticks, reached

    def all_new(
        self, starts: Mapping[str, Tick], goals: Mapping[str, Tick], *, always: bool
    ) -> dict[str, Tick]:
        """Return the goals if anything matches on the way, or it is time; else where it begins."""
        is_due = always or any(goals[each] - starts[each] >= ADVANCE_US for each in starts)
        if is_due or any(self._found(each, starts[each], goals[each], 1)[0] for each in starts):
            return {each: max(starts[each], goals[each]) for each in starts}
        return dict(starts)

    def some_new(
        self, starts: Mapping[str, Tick], goals: Mapping[str, Tick], most: int, *, always: bool
    ) -> dict[str, Tick]:
        """Return a position with at most so many matching events on the way to it."""
        found = {each: self._found(each, starts[each], goals[each], most) for each in starts}
        ends = {}
        taken = shares({each: len(ticks) for each, (ticks, _) in found.items()}, most)
        for each, (ticks, reached) in found.items():
            count = taken[each]
            if count == len(ticks) <= most and reached >= goals[each]:
                ends[each] = max(starts[each], goals[each])
            else:
                ends[each] = ticks[count - 1] if count else starts[each]
        is_due = always or any(ends[each] - starts[each] >= ADVANCE_US for each in starts)
        return ends if is_due or any(taken.values()) else dict(starts)


def shares(pending: Mapping[str, int], most: int) -> dict[str, int]:
    """Divide what a batch may have: who wants little gets it all, the others get the same.

    >>> shares({"a": 2, "b": 100, "c": 100}, 12)
    {'a': 2, 'b': 5, 'c': 5}
    """
    taken = dict.fromkeys(pending, 0)
    left = most
    for index, name in enumerate(sorted(pending, key=lambda each: (pending[each], each))):
        fair = -(-left // (len(pending) - index))
        taken[name] = min(pending[name], fair, left)
        left -= taken[name]
    return taken
