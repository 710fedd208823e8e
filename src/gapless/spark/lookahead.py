"""The end of the next micro-batch of a stream.

A pubend's stream advances all the time, mostly with silence, and silence is not worth a batch. So
the driver searches for a matching event before it reports a new offset. It remembers the ticks that
it has searched without a match.

With a limit it collects the ticks of matching events, at most as many as a batch may have, and
gives each pubend a fair share. A pubend with few events gets them all, and the rest of its share
goes to the others.

A query whose filter matches nothing for long must advance too: logs are released behind it, and
after a restart its position would be in a released range. So it makes an empty batch from time to
time.
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
"""A stream without matches advances at least so often: far less than logs are kept for."""


_LOOK_BYTES: Final = 1_048_576
"""How many bytes of a log one search request may cover."""


class _Quiet(msgspec.Struct):
    """No event matches after ``start`` up to ``seen``."""

    start: Tick
    seen: Tick

    def extend(self, seen: Tick) -> None:
        """Move ``seen`` forward."""
        self.seen = max(self.seen, seen)


class Lookahead:
    """Searches for new matching events between positions and the ends of logs."""

    def __init__(self, network: OverlayClient, filter_text: str) -> None:
        self._network = network
        self._filter_text = filter_text
        self._quiet: dict[str, _Quiet] = {}

    def seen(self, pubend: str, start: Tick) -> Tick:
        """Return the tick up to which no event is known to match after ``start``."""
        return self._quiet_after(pubend, start).seen

    def _quiet_after(self, pubend: str, start: Tick) -> _Quiet:
        known = self._quiet.get(pubend)
        if known is None or known.start != start:
            known = self._quiet[pubend] = _Quiet(start, start)
        return known

    def skip(self, pubend: str, start: Tick, released: Tick) -> None:
        """Do not search in a released range again."""
        self._quiet_after(pubend, start).extend(released)

    def _found(self, pubend: str, start: Tick, goal: Tick, most: int) -> tuple[list[Tick], Tick]:
        """Return at most so many ticks of matching events, and the tick up to which it searched."""
        known = self._quiet_after(pubend, start)
        ticks: list[Tick] = []
        reached = known.seen
        while reached < goal and len(ticks) < most:
            part = self._network.part(
                pubend,
                self._filter_text,
                reached + 1,
                goal,
                form=ReadForm.TICKS,
                bytes_max=_LOOK_BYTES,
            )
            ticks += unpack_ticks(part.rows) or [each.tick for each in part.publications]
            if part.done <= reached:
                break  # the log has no more now
            reached = part.done
            if not ticks:
                known.extend(reached)
        return ticks, reached

    def all_new(
        self, starts: Mapping[str, Tick], goals: Mapping[str, Tick], *, always: bool
    ) -> dict[str, Tick]:
        """Return the goals if an event matches before them or it is time; otherwise the starts."""
        is_due = always or any(goals[each] - starts[each] >= ADVANCE_US for each in starts)
        if is_due or any(self._found(each, starts[each], goals[each], 1)[0] for each in starts):
            return {each: max(starts[each], goals[each]) for each in starts}
        return dict(starts)

    def some_new(
        self, starts: Mapping[str, Tick], goals: Mapping[str, Tick], most: int, *, always: bool
    ) -> dict[str, Tick]:
        """Return a position with at most so many matching events before it."""
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
    """Divide the events of a batch: pubends with few events get all, the others get equal shares.

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
