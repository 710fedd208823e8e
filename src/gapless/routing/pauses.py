"""How long streams pause while the tree changes, as far as a router can know it (HA, section V).

Theory of operation
-------------------
A step of the tree that touches the path of a feed lets the router attach again (RS-11). The stream
*pauses* from the step on. The reply of the new feeder names the tick up to which it has sent the
stream. If nothing up to that tick is missing here, the stream has resumed with the reply; else it
resumes with the first range that has one of the missing ticks. HA calls this time the publication
delivery resumption delay; it begins here with the step and not with the request, so it is never
shorter than HA's. An idle stream has resumed with the reply.

The publications up to the tick in the reply that are received after it have *waited*: their
receivers could have had them earlier. A best-effort stream resumes with the reply. What the new
feeder replays arrives in the same step, and has waited.

A stream that is touched again before it has resumed continues its pause. At rest a router has no
pause, and measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from gapless.core.context import Context
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.streams import KnowledgeRange

__all__ = ["StreamPauses"]


class _Pause:
    """A stream whose feed a step has touched."""

    __slots__ = ("is_over", "missing", "replied_at", "since", "up_to")

    def __init__(self, since: int) -> None:
        self.since = since
        self.is_over = False
        """Whether the stream has resumed; publications may still have waited."""
        self.replied_at: int | None = None
        self.up_to: Tick = 0
        """The tick in the reply, of a guaranteed stream."""
        self.missing = 0
        """How many ticks up to that one have not been received."""

    def feeder_replied(self, at: Tick, top: Tick) -> None:
        """The new feeder has sent everything up to ``at``, and ``top`` is known here."""
        self.up_to, self.missing = at, max(0, at - top)

    def best_effort_feeder_replied(self, now: int) -> None:
        """The new feeder of a best-effort stream has replied."""
        self.replied_at = now

    def received(self, low: Tick, high: Tick) -> None:
        """Count ticks that were missing."""
        self.missing -= min(high, self.up_to) - low + 1

    def resume(self) -> None:
        """The stream has resumed."""
        self.is_over = True


class StreamPauses:
    """The pauses of the streams of one router, and what they have amounted to."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.under_way: dict[PubendId, _Pause] = {}
        """What is measured now: nothing at rest."""
        self.resumed = 0
        """How many streams have resumed."""
        self.time_us = 0
        """The time that they have paused."""
        self.longest_us = 0
        self.waited = 0
        """How many publications have waited."""

    @property
    def paused(self) -> int:
        """How many streams pause now."""
        return sum(not pause.is_over for pause in self.under_way.values())

    def begin(self, pubend: PubendId) -> None:
        """A step has touched the feed of a stream: it has no feeder now."""
        pause = self.under_way.get(pubend)
        since = self._context.now if pause is None or pause.is_over else pause.since
        self.under_way[pubend] = _Pause(since)

    def found(self, pubend: PubendId, at: Tick, top: Tick) -> None:
        """A feeder has replied: it has sent everything up to ``at``, and ``top`` is known here."""
        pause = self.under_way.get(pubend)
        if pause is None or pause.is_over:
            return
        pause.feeder_replied(at, top)
        if not pause.missing:
            self._end(pubend, pause)

    def found_best_effort(self, pubend: PubendId) -> None:
        """A feeder of a best-effort stream has replied; what it replays follows in the same step."""
        pause = self.under_way.get(pubend)
        if pause is not None and not pause.is_over:
            pause.best_effort_feeder_replied(self._context.now)
            self._resume(pause)

    def received(self, pubend: PubendId, new_ranges: Iterable[KnowledgeRange]) -> None:
        """Ranges were received that were not known before."""
        for new in new_ranges:
            pause = self.under_way.get(pubend)
            if pause is None:
                return
            if pause.replied_at is not None:
                self._received_best_effort(pubend, pause, new)
            elif pause.missing and new.low <= pause.up_to:
                self._received_missing(pubend, pause, new)

    def forget(self, pubend: PubendId) -> None:
        """The router does not need a stream any more."""
        self.under_way.pop(pubend, None)

    def statistics(self) -> dict[str, int]:
        """Return the streams that have resumed, their times, and the publications that waited."""
        return {
            "paused": self.paused,
            "resumed": self.resumed,
            "time_us": self.time_us,
            "longest_us": self.longest_us,
            "publications": self.waited,
        }

    def _received_missing(self, pubend: PubendId, pause: _Pause, new: KnowledgeRange) -> None:
        if not pause.is_over:
            self._resume(pause)
        self.waited += sum(each.tick <= pause.up_to for each in new.publications)
        pause.received(new.low, new.high)
        if pause.missing <= 0:
            del self.under_way[pubend]

    def _received_best_effort(self, pubend: PubendId, pause: _Pause, new: KnowledgeRange) -> None:
        if pause.replied_at == self._context.now:
            self.waited += len(new.publications)
        else:
            del self.under_way[pubend]

    def _resume(self, pause: _Pause) -> None:
        paused_us = self._context.now - pause.since
        pause.resume()
        self.resumed += 1
        self.time_us += paused_us
        self.longest_us = max(self.longest_us, paused_us)

    def _end(self, pubend: PubendId, pause: _Pause) -> None:
        self._resume(pause)
        del self.under_way[pubend]
