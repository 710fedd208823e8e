"""What a router sends to its receivers: filtered or whole, now or by the timer (R25, R35, R36).

A publication is matched once for all receivers: the match gives the tables that want it, and a
receiver's test is a mask. What was found to hold nothing for a receiver is not matched again when it
is told, however late that is.

Silence waits here until the step's other messages to that peer go out, or the step ends: so the
silence of many pubends is one message.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress

from gapless.core.ids import BrokerId, PubendId
from gapless.core.limits import ANSWER_FRAMES_MAX
from gapless.core.machine import Context
from gapless.core.ticks import Tick
from gapless.messages.streams import AttachKind, Frame, Piece, Publication, Silence
from gapless.packed.encode import content_bytes
from gapless.routing.attachments import Attachment, Routed, Routing
from gapless.routing.epoch_sender import RegimeTeller
from gapless.stream.epochs import Vector
from gapless.stream.ranges import (
    divided,
    joined,
    publications_between,
    tick_of,
)

__all__ = ["Masks", "Sender"]


class Masks:
    """Which tables want which publications of one pubend; each publication is matched once."""

    __slots__ = ("_found", "_last", "_routing")

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._found: dict[Tick, int] = {}
        self._last: tuple[tuple[Publication, ...], list[int]] = ((), [])
        """What was asked for last: mostly the same is asked for every receiver."""

    def of(self, publications: tuple[Publication, ...]) -> list[int]:
        """Return for each publication the tables that want it, a bit each."""
        if publications is not self._last[0]:
            self._last = (publications, self._look_up(publications))
        return self._last[1]

    def _look_up(self, publications: tuple[Publication, ...]) -> list[int]:
        found = self._found
        found.update(zip(map(tick_of, self._last[0]), self._last[1], strict=True))
        if not found:
            return self._routing.matching_tables(publications)
        missing = [each for each in publications if each.tick not in found]
        if missing:
            masks = self._routing.matching_tables(missing)
            found.update(zip(map(tick_of, missing), masks, strict=True))
        return [found[each.tick] for each in publications]


class Sender:
    """Sends pieces to attachments."""

    def __init__(self, context: Context, routing: Routing, teller: RegimeTeller) -> None:
        self._context = context
        self._me = context.identity.broker
        self._routing = routing
        self._teller = teller
        self.slow: set[BrokerId] = set()
        """Peers for which too much waits to be sent: they get nothing now (R40)."""
        self._silences: dict[BrokerId, list[tuple[PubendId, int, Piece, bool]]] = {}

    # --- guaranteed --------------------------------------------------------------------------

    def spread(
        self, routed: Routed, piece: Piece, news: list[Piece], *, first: bool, opens: bool
    ) -> None:
        """Pass on what a piece brought: to those who asked, and to all if it is new (R35, R36)."""
        masks = Masks(self._routing)
        whole = len(news) == 1 and news[0] is piece
        for attachment in routed.attachments.values():
            if attachment.waiting or attachment.peer in self.slow:
                continue
            for new in news:
                if new.low <= attachment.silent:
                    attachment.doubt_from(new.low)
                self.answer(routed, attachment, new.low, new.high, masks)
            if not first or piece.high <= attachment.sent:
                continue
            told = opens or attachment.eager
            if whole and piece.low == attachment.sent + 1:
                self._send_next(routed, attachment, piece, masks, told=told)
            elif told or self._is_wanted(routed, attachment, piece, masks):
                self.send_through(routed, attachment, piece.high, masks)
            elif whole and piece.low <= max(attachment.sent, attachment.silent) + 1:
                attachment.silent = piece.high
        self.flush()

    def _send_next(
        self, routed: Routed, attachment: Attachment, piece: Piece, masks: Masks, *, told: bool
    ) -> None:
        """Send a piece that follows what was sent; one without an event only if it is to be told."""
        passed = self._filtered(routed, attachment, piece, masks, 0)
        if passed.publications or told:
            attachment.sent = piece.high
            self._send(routed, attachment, [passed], first=True)
        else:
            attachment.silent = piece.high

    def send_through(
        self, routed: Routed, attachment: Attachment, high: Tick, masks: Masks
    ) -> None:
        """Send everything known above what was sent, up to a tick; what is Q stays a gap."""
        known = routed.stream.known(attachment.sent + 1, high)
        attachment.sent = max(attachment.sent, high)
        passed = [
            self._filtered(routed, attachment, piece, masks, attachment.silent) for piece in known
        ]
        self._send(routed, attachment, passed, first=True)

    def answer(
        self, routed: Routed, attachment: Attachment, low: Tick, high: Tick, masks: Masks
    ) -> None:
        """Send what a receiver is curious about and this router knows (R36).

        Silence is sent as far as it goes, not only as far as it was asked for: a long gap is asked
        for in many small ranges, and one answer ends them all.
        """
        if attachment.peer in self.slow or not attachment.curious.wants(low, high):
            return
        room = ANSWER_FRAMES_MAX * self._context.parameters.frame_bytes_max
        for known in routed.stream.known(low, high):
            if room <= 0:
                self._context.mark("rest of an answer left for the next nack")
                return
            room -= content_bytes(known)
            for part_low, part_high in attachment.curious.take(known.low, known.high):
                pieces = routed.stream.around(part_low, part_high)
                for piece in pieces:
                    attachment.curious.take(piece.low, piece.high)
                passed = [self._filtered(routed, attachment, piece, masks, 0) for piece in pieces]
                self._send(routed, attachment, passed, first=False)

    def tell_silence(self, all_routed: Iterable[Routed]) -> None:
        """Tell every receiver what was withheld, all pubends of a peer in one message (R35)."""
        for routed in all_routed:
            masks = Masks(self._routing)
            for attachment in routed.attachments.values():
                if attachment.waiting or attachment.peer in self.slow:
                    continue
                if attachment.sent < routed.stream.top:
                    self.send_through(routed, attachment, routed.stream.top, masks)
        self.flush()

    def flush(self) -> None:
        """Post the silences that wait for the end of a step."""
        silences, self._silences = self._silences, {}
        for peer, waiting in silences.items():
            self._context.post(peer, Silence(tuple(waiting)))

    def _send(
        self, routed: Routed, attachment: Attachment, pieces: list[Piece], *, first: bool
    ) -> None:
        peer, most = attachment.peer, self._context.parameters.frame_events_max
        for piece in pieces if len(pieces) == 1 else joined(pieces, most):
            self._teller.tell(peer, routed.pubend, piece.regime, routed.regimes)
            if not piece.publications:
                waiting = self._silences.setdefault(peer, [])
                waiting.append((routed.pubend, attachment.number, piece, first))
                continue
            if peer in self._silences:
                # what lies before an event is told before it
                self._context.post(peer, Silence(tuple(self._silences.pop(peer))))
            # what came in one row of the log, or from a client in one frame, may be more
            fits = len(piece.publications) <= most
            for part in (piece,) if fits else divided(piece, most):
                self._context.post(peer, Frame(routed.pubend, attachment.number, part, first))

    # --- best effort -------------------------------------------------------------------------

    def relay(self, routed: Routed, piece: Piece) -> bool:
        """Pass on events of best effort, in order and once; nothing of them is kept (R33).

        The regime of the piece is the life of the pubend's broker. What is not above the last tick
        of that life came twice, by an old feeder and a new one; an older life is over. Of events
        that do not pass nothing is told. Returns whether there was anything new.
        """
        life, last = routed.passed
        if piece.regime > life:
            last = 0
        new = tuple(each for each in piece.publications if each.tick > last)
        if piece.regime < life or not new:
            return False
        piece = Piece(new[0].tick, new[-1].tick, piece.regime, piece.control_version, new)
        routed.passed = (piece.regime, piece.high)
        routed.stream.raise_top(piece.high)
        masks = Masks(self._routing)
        for attachment in routed.attachments.values():
            if attachment.waiting or attachment.peer in self.slow:
                continue
            attachment.sent = max(attachment.sent, piece.high)
            passed = self._filtered(routed, attachment, piece, masks, 0, best_effort=True)
            if passed.publications:
                for part in divided(passed, self._context.parameters.frame_events_max):
                    frame = Frame(routed.pubend, attachment.number, part, first=True)
                    self._context.post(attachment.peer, frame)
        return True

    # --- filtering (R25) ---------------------------------------------------------------------

    def _filtered(
        self,
        routed: Routed,
        attachment: Attachment,
        piece: Piece,
        masks: Masks,
        silent: Tick,
        *,
        best_effort: bool = False,
    ) -> Piece:
        """Return a piece as a receiver is sent it; up to ``silent`` nothing in it is for it."""
        if not piece.publications:
            return piece
        tables = self._tables(routed, attachment, piece, best_effort=best_effort)
        publications = piece.publications
        if silent >= publications[0].tick:
            publications = publications_between(piece, silent + 1, piece.high)
        if tables is not None:
            wants = [mask & tables for mask in masks.of(publications)]
            if not all(wants):
                publications = tuple(compress(publications, wants))
        if len(publications) == len(piece.publications):
            return piece
        return Piece(piece.low, piece.high, piece.regime, piece.control_version, publications)

    def _is_wanted(
        self, routed: Routed, attachment: Attachment, piece: Piece, masks: Masks
    ) -> bool:
        """Say whether a receiver is sent any publication of a piece."""
        if not piece.publications:
            return False
        tables = self._tables(routed, attachment, piece)
        return tables is None or any(mask & tables for mask in masks.of(piece.publications))

    def _tables(
        self, routed: Routed, attachment: Attachment, piece: Piece, *, best_effort: bool = False
    ) -> int | None:
        if attachment.receiver.kind is AttachKind.HOME or attachment.peer == self._me:
            return None  # the leaf of this broker looks at all its filters anyway
        vector = Vector(piece.regime, 0, {}) if best_effort else routed.regimes.get(piece.regime)
        return self._routing.tables_for(routed.pubend, piece, vector, attachment.receiver)
