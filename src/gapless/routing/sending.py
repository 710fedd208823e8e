"""Sending to receivers: filtered or whole, at once or by the timer (R25, R35, R36).

A publication is matched once for all receivers: the match gives the tables that contain it, and the
test for a receiver is a mask. Ranges found silent for a receiver are not matched again when they
are sent later.

Silence is queued here until an event for that peer is sent, or until the end of the step. So the
silence of many pubends is one message.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import Final

from gapless.core.context import Context
from gapless.core.ids import BrokerId, PubendId
from gapless.core.limits import NACK_REPLY_FRAMES_MAX, ROW_BYTES_MAX
from gapless.core.ticks import Tick
from gapless.messages.streams import (
    KnowledgeRange,
    Publication,
    StreamData,
    StreamSilence,
)
from gapless.packed.encode import content_bytes, count_within
from gapless.routing.attachment import Attachment
from gapless.routing.attachment_state import AttachmentState
from gapless.routing.epoch_sender import StreamEpochSender
from gapless.routing.protocols import Filtering
from gapless.routing.routed import RoutedPubend
from gapless.stream.ranges import (
    cut,
    divided,
    joined,
    publications_between,
    tick_of,
)

__all__ = ["MatchMasks", "StreamSender", "by_events"]


def _head(knowledge: KnowledgeRange, bytes_max: int) -> KnowledgeRange:
    """Return the beginning of a range that fits into so many bytes; a row may be larger."""
    if content_bytes(knowledge) <= bytes_max:
        return knowledge
    last = knowledge.publications[count_within(knowledge.publications, bytes_max) - 1]
    return cut(knowledge, knowledge.low, last.tick)


def by_events(knowledge: KnowledgeRange, events_max: int) -> list[KnowledgeRange]:
    """Divide a range that is no larger than a row by events, lowest part first."""
    fits = len(knowledge.publications) <= events_max
    return [knowledge] if fits else divided(knowledge, events_max)


def _in_frames(knowledge: KnowledgeRange, events_max: int) -> list[KnowledgeRange]:
    """Divide a range by events and by bytes, lowest part first; an old row may have too many."""
    waiting = by_events(knowledge, events_max)[::-1]
    parts = []
    while waiting:
        part = waiting.pop()
        count = len(part.publications)
        if count > 1 and content_bytes(part) > ROW_BYTES_MAX:
            waiting += reversed(divided(part, -(-count // 2)))
        else:
            parts.append(part)
    return parts


_FED: Final = AttachmentState.FED


class MatchMasks:
    """The tables that match each publication of one pubend; each publication is matched once."""

    __slots__ = ("_filtering", "_found", "_last")

    def __init__(self, filtering: Filtering) -> None:
        self._filtering = filtering
        self._found: dict[Tick, int] = {}
        self._last: tuple[tuple[Publication, ...], list[int]] = ((), [])
        """The last query and its result: the queries of consecutive receivers are mostly equal."""

    def of(self, publications: tuple[Publication, ...]) -> list[int]:
        """Return for each publication the tables that match it, a bit each."""
        if publications is not self._last[0]:
            self._last = (publications, self._look_up(publications))
        return self._last[1]

    def _look_up(self, publications: tuple[Publication, ...]) -> list[int]:
        found = self._found
        found.update(zip(map(tick_of, self._last[0]), self._last[1], strict=True))
        if not found:
            return self._filtering.matching_tables(publications)
        missing = [each for each in publications if each.tick not in found]
        if missing:
            masks = self._filtering.matching_tables(missing)
            found.update(zip(map(tick_of, missing), masks, strict=True))
        return [found[each.tick] for each in publications]


class StreamSender:
    """Sends knowledge ranges to attachments."""

    def __init__(
        self, context: Context, filtering: Filtering, epoch_sender: StreamEpochSender
    ) -> None:
        self._context = context
        self._filtering = filtering
        self._epoch_sender = epoch_sender
        self._silences: dict[BrokerId, list[tuple[PubendId, int, KnowledgeRange, bool]]] = {}

    # --- guaranteed --------------------------------------------------------------------------

    def forward(
        self,
        routed: RoutedPubend,
        knowledge: KnowledgeRange,
        new_ranges: list[KnowledgeRange],
        *,
        first: bool,
        opens: bool,
    ) -> None:
        """Send new ranges to receivers that nacked them, and first knowledge to all (R35, R36)."""
        masks = MatchMasks(self._filtering)
        whole = len(new_ranges) == 1 and new_ranges[0] is knowledge
        for attachment in routed.attachments.values():
            if attachment.state is not _FED:
                continue
            for new in new_ranges:
                if new.low <= attachment.silent:
                    attachment.doubt_from(new.low)
                self.answer(routed, attachment, new.low, new.high, masks)
            if not first or knowledge.high <= attachment.sent:
                continue
            must_send = opens or attachment.eager
            if whole and knowledge.low == attachment.sent + 1:
                self._send_next(routed, attachment, knowledge, masks, must_send=must_send)
            elif must_send or self._is_wanted(routed, attachment, knowledge, masks):
                self.send_through(routed, attachment, knowledge.high, masks)
            elif whole and knowledge.low <= max(attachment.sent, attachment.silent) + 1:
                attachment.silent_through(knowledge.high)
        self.flush()

    def _send_next(
        self,
        routed: RoutedPubend,
        attachment: Attachment,
        knowledge: KnowledgeRange,
        masks: MatchMasks,
        *,
        must_send: bool,
    ) -> None:
        """Send the next range of an attachment, or withhold it if it is silent and may wait."""
        passed = self._filtered(routed, attachment, knowledge, masks, 0)
        if passed.publications or must_send:
            attachment.sent_through(knowledge.high)
            self._send(routed, attachment, [passed], first=True)
        else:
            attachment.silent_through(knowledge.high)

    def send_through(
        self, routed: RoutedPubend, attachment: Attachment, high: Tick, masks: MatchMasks
    ) -> None:
        """Send everything known above the last tick sent, up to a tick; Q ticks remain a gap."""
        known = routed.stream.known(attachment.sent + 1, high)
        attachment.sent_through(high)
        passed = [
            self._filtered(routed, attachment, knowledge, masks, attachment.silent)
            for knowledge in known
        ]
        self._send(routed, attachment, passed, first=True)

    def answer(
        self, routed: RoutedPubend, attachment: Attachment, low: Tick, high: Tick, masks: MatchMasks
    ) -> None:
        """Send the known ticks that a receiver is curious about (R36).

        Silence is sent to its end, beyond the requested ticks: a long gap is requested in many
        small ranges, and one reply covers them all.
        """
        if attachment.is_congested or not attachment.curious.has_any(low, high):
            return
        remaining = NACK_REPLY_FRAMES_MAX * self._context.parameters.frame_bytes_max
        for whole in routed.stream.known(low, high):
            if remaining <= 0:
                self._context.mark("rest of a reply left for the next nack")
                return
            known = _head(whole, max(remaining, ROW_BYTES_MAX))
            remaining -= content_bytes(whole)
            for part_low, part_high in attachment.curious.take(known.low, known.high):
                ranges = routed.stream.around(part_low, part_high)
                for knowledge in ranges:
                    attachment.curious.take(knowledge.low, knowledge.high)
                passed = [
                    self._filtered(routed, attachment, knowledge, masks, 0) for knowledge in ranges
                ]
                self._send(routed, attachment, passed, first=False)

    def send_silence(self, all_routed: Iterable[RoutedPubend]) -> None:
        """Send the withheld ranges to all receivers, all pubends of a peer in one message (R35)."""
        for routed in all_routed:
            masks = MatchMasks(self._filtering)
            for attachment in routed.attachments.values():
                if attachment.state is _FED and attachment.sent < routed.stream.top:
                    self.send_through(routed, attachment, routed.stream.top, masks)
        self.flush()

    def flush(self) -> None:
        """Send the queued silence."""
        silences, self._silences = self._silences, {}
        for peer, waiting in silences.items():
            self._context.send(peer, StreamSilence(tuple(waiting)))

    def _send(
        self,
        routed: RoutedPubend,
        attachment: Attachment,
        ranges: list[KnowledgeRange],
        *,
        first: bool,
    ) -> None:
        peer, most = attachment.peer, self._context.parameters.frame_events_max
        for knowledge in ranges if len(ranges) == 1 else joined(ranges, most):
            self._epoch_sender.send(
                peer, routed.pubend, knowledge.stream_epoch, routed.stream_epochs
            )
            if not knowledge.publications:
                waiting = self._silences.setdefault(peer, [])
                waiting.append((routed.pubend, attachment.number, knowledge, first))
                continue
            if peer in self._silences:
                # silence before an event is sent before it
                self._context.send(peer, StreamSilence(tuple(self._silences.pop(peer))))
            for part in _in_frames(knowledge, most):
                self._context.send(peer, StreamData(routed.pubend, attachment.number, part, first))

    # --- filtering (R25) ---------------------------------------------------------------------

    def _filtered(
        self,
        routed: RoutedPubend,
        attachment: Attachment,
        knowledge: KnowledgeRange,
        masks: MatchMasks,
        silent: Tick,
    ) -> KnowledgeRange:
        """Return the filtered range for a receiver; up to ``silent`` it is known to be silent."""
        if not knowledge.publications:
            return knowledge
        tables = None
        if attachment.is_filtered:
            tables = self._tables(routed, attachment, knowledge)
        publications = knowledge.publications
        if silent >= publications[0].tick:
            publications = publications_between(knowledge, silent + 1, knowledge.high)
        if tables is not None:
            matches = [mask & tables for mask in masks.of(publications)]
            if not all(matches):
                publications = tuple(compress(publications, matches))
        if len(publications) == len(knowledge.publications):
            return knowledge
        return KnowledgeRange(
            knowledge.low,
            knowledge.high,
            knowledge.stream_epoch,
            knowledge.control_version,
            publications,
        )

    def _is_wanted(
        self,
        routed: RoutedPubend,
        attachment: Attachment,
        knowledge: KnowledgeRange,
        masks: MatchMasks,
    ) -> bool:
        """Return whether any publication of a range passes the filter of a receiver."""
        if not knowledge.publications:
            return False
        if not attachment.is_filtered:
            return True
        tables = self._tables(routed, attachment, knowledge)
        return tables is None or any(mask & tables for mask in masks.of(knowledge.publications))

    def _tables(
        self, routed: RoutedPubend, attachment: Attachment, knowledge: KnowledgeRange
    ) -> int | None:
        """Return the tables that decide for a receiver, or None if everything passes."""
        vector = routed.stream_epochs.get(knowledge.stream_epoch)
        return self._filtering.tables_for(routed.pubend, knowledge, vector, attachment.receiver)
