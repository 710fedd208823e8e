"""Limits: no collection grows beyond its parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.broker import Broker
from gapless.core.machine import Event
from gapless.sim.probes.insight import Insight
from gapless.sim.probes.watch import Invariant

if TYPE_CHECKING:
    from gapless.sim.world import Process

__all__ = ["Limits"]

SCAN_STEPS = 16
"""After so many steps of the world the next broker's collections are looked at."""

EVENT_BYTES_MIN = 8
"""What an event of an answer to a read takes at least."""


class Limits(Invariant):
    """I14: the caches of the router and of the subends are within ``cache_bytes`` after every step.
    Now and then, each broker in its turn: attachments, curious ranges, the buffers of strands (what
    may be prefetched, what is held while joining, and one answer to a read), what is joined while
    it is held, unfinished segments. Tables are counted with I5.
    """

    def __init__(self, insight: Insight) -> None:
        super().__init__(insight)
        parameters = insight.parameters
        self._cache = parameters.cache_bytes
        chunk = parameters.read_chunk_bytes // EVENT_BYTES_MIN + 2
        self._buffer = parameters.prefetch_max + parameters.join_hold + chunk + 1
        self._steps = 0

    def moved(self, process: Process, machine: Broker, event: Event) -> None:
        """Check the caches, and now and then the rest."""
        del event
        used = machine.router._account.bytes
        if used > self._cache:
            self._over(process, "the router's cache", used, self._cache)
        used = machine.host._account.bytes
        if used > self._cache:
            self._over(process, "the subends' cache", used, self._cache)
        self._steps += 1
        if self._steps >= SCAN_STEPS:
            self._steps = 0
            self._scan(process, machine)

    def _over(self, process: Process, what: str, count: int, limit: int) -> None:
        self.world.violate("I14", f"{process.host.broker}: {what}: {count}, at most {limit}")

    def _scan(self, process: Process, machine: Broker) -> None:
        parameters, router = self.insight.parameters, machine.router
        count = 0
        for routed in router._routed.values():
            count += len(routed.attachments)
            for attachment in routed.attachments.values():
                if len(attachment.curious) > parameters.curious_ranges_max:
                    limit = parameters.curious_ranges_max
                    self._over(process, "curious ranges", len(attachment.curious), limit)
        if count > parameters.attachments_max or count != router._attachment_count:
            self._over(process, "attachments", count, router._attachment_count)
        for subscription in machine.host.subscriptions.values():
            most = parameters.segments_max + 1
            if len(subscription.segments) + len(subscription.changes) > most:
                self._over(process, "segments", len(subscription.segments), most)
            for strand in subscription.strands.values():
                if len(strand.buffer) > self._buffer:
                    self._over(process, "a strand's buffer", len(strand.buffer), self._buffer)
                if len(strand._held) > parameters.join_hold:
                    limit = parameters.join_hold
                    self._over(process, "events held while joining", len(strand._held), limit)
            if len(subscription.best_effort) > parameters.prefetch_max:
                count = len(subscription.best_effort)
                self._over(process, "best effort events", count, parameters.prefetch_max)
