"""Planted bugs of the kinds that brokers were shipped with.

Each kind occurred in a released broker: a dropped nack, silence over an event, an off-by-one version,
a session or a publisher that is not fenced, unreported corruption, a record that is not written, an
unbounded queue. They are hunted with those of :mod:`.broker_bugs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from gapless.core.ids import VirtualTime
from gapless.messages.overlay import Packet
from gapless.overlay.session import PeerSession, PeerSessionState
from gapless.pubend.pubend import Pubend
from gapless.pubend.publishers import Publishers
from gapless.routing.nacks import UpstreamRequests
from gapless.routing.sending import StreamSender
from gapless.subscribers.filter_segments import FilterSegment
from gapless.subscribers.stalls import StallNotifier
from gapless.subscribers.subend import Subend
from gapless.subscribers.subscription import HostedSubscription
from gapless_lab.sim.planted_bugs import PlantedBug, constant, replaced

__all__ = ["SHIPPED_BUGS"]

NEVER: Final = 2**62


def _drops_nacks(self: Any, routed: Any, unknown: Any) -> None:
    del self, routed, unknown


def _omits_events(original: Any) -> Any:
    """Omit the events from the reply to a nack."""

    def send(self: Any, routed: Any, attachment: Any, ranges: Any, *, first: bool) -> None:
        if not first:
            ranges = [msgspec.structs.replace(knowledge, publications=()) for knowledge in ranges]
        original(self, routed, attachment, ranges, first=first)

    return send


def _one_version_early(original: Any) -> Any:
    """Treat the version before a filter's as one that has it."""

    def is_served_at(self: FilterSegment, time: VirtualTime | None) -> bool:
        if time is not None:
            time = VirtualTime(time.incarnation, time.counter + 1)
        return bool(original(self, time))

    return is_served_at


def _accepts_every_session(original: Any) -> Any:
    def packet(self: PeerSession, packet: Packet) -> None:
        if self.theirs is not None and self.state is PeerSessionState.OPEN:
            self._expected = packet.sequence
            packet = msgspec.structs.replace(packet, sender=self.theirs, receiver=self.mine)
        original(self, packet)

    return packet


def _ignores_lost_packets(original: Any) -> Any:
    def packet(self: PeerSession, packet: Packet) -> None:
        self._expected = packet.sequence
        original(self, packet)

    return packet


def _any_session_publishes(original: Any) -> Any:
    def get(self: Publishers, publisher: str, session: int) -> Any:
        held = self._records.get(publisher)
        return original(self, publisher, session if held is None else held.session)

    return get


def _silence_for_corrupt_rows(original: Any) -> Any:
    """Treat the ticks behind a corrupt row as silence."""

    def ranges_between(self: Any, low: int, high: int, then: Any, bytes_max: int = 0) -> None:
        fetch = self._context.fetch

        def fetch_without_corruption(
            pubend: Any, low: int, high: int, size: int, fetched: Callable[[Any], None]
        ) -> None:
            def valid(event: Any) -> None:
                if event.corruption is not None:
                    event = msgspec.structs.replace(event, corruption=None, complete=True)
                fetched(event)

            fetch(pubend, low, high, size, valid)

        self._context.fetch = fetch_without_corruption
        try:
            original(self, low, high, then, bytes_max)
        finally:
            self._context.fetch = fetch

    return ranges_between


def _saves_once(original: Any) -> Any:
    """Write a durable subscription when it is created, but not when it changes."""

    def save(self: Any, then: Callable[[], None]) -> None:
        if not self.stored:
            original(self, then)
            return
        context = self.resources.context
        write = context.write
        context.write = lambda _, done: write((), done)
        try:
            original(self, then)
        finally:
            context.write = write

    return save


SHIPPED_BUGS: Final = (
    PlantedBug(
        "drops nacks",
        "a router does not forward nacks for ticks that it does not know (R37)",
        ((UpstreamRequests, "request_ticks", replaced(_drops_nacks)),),
    ),
    PlantedBug(
        "omits events from nack replies",
        "the reply to a nack omits its events (I3)",
        ((StreamSender, "_send", _omits_events),),
    ),
    PlantedBug(
        "starts a filter one version early",
        "a filter starts where the streams serve the SHB's version before it (R44)",
        ((FilterSegment, "is_served_at", _one_version_early),),
    ),
    PlantedBug(
        "accepts packets of older sessions",
        "a packet of an older session or incarnation is accepted in the present one (R1, I12)",
        ((PeerSession, "_packet", _accepts_every_session),),
    ),
    PlantedBug(
        "ignores packets lost in a session",
        "a packet lost in the middle of a session is not noticed (R1)",
        ((PeerSession, "_packet", _ignores_lost_packets),),
    ),
    PlantedBug(
        "does not fence publishers",
        "a batch from an older connection of a publisher is published (R28)",
        ((Publishers, "get", _any_session_publishes),),
    ),
    PlantedBug(
        "sends silence for corrupt rows",
        "unreadable ticks are reported as silence (P8)",
        ((Pubend, "ranges_between", _silence_for_corrupt_rows),),
    ),
    PlantedBug(
        "does not report corrupt rows",
        "a subscription that waits for an unreadable row gets no reason (P8)",
        ((StallNotifier, "review", constant(None)),),
    ),
    PlantedBug(
        "does not store changes of a subscription",
        "a durable subscription changes, and its record does not (I13)",
        ((HostedSubscription, "save", _saves_once),),
    ),
    PlantedBug(
        "caches without a limit",
        "a subend caches everything without a limit (R38, I14)",
        ((Subend, "_bound", constant(None)),),
    ),
)
"""Each must be detected within the same number of seeds as the others."""
