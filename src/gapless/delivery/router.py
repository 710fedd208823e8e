"""The router's streams: knowledge comes in by a feed and goes out by attachments (R10, R34 to R40).

Per pubend a router has an input stream (what it knows), a feed that it gets it from unless it is the
pubend's own broker, and attachments: the receivers it feeds, each with how far it was sent and what it
is curious about. A piece goes to a receiver filtered by the tables of its direction where these are
sufficient, and whole where they are not. First-time knowledge without any event for the receiver is
withheld and told by a timer, many pubends in one message; everything else is sent at once.

A router makes F only by filtering, and never claims a tick that it does not know: the receiver sees the
gap and asks. What it cannot answer it asks its feeder for, once for all receivers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.machine import Context
from gapless.core.parameters import us
from gapless.core.ticks import Tick, TickRange
from gapless.delivery.cache import shrink
from gapless.delivery.curiosity import Asked, Curious
from gapless.delivery.feed import Candidate, Feed
from gapless.delivery.istream import Account, Stream
from gapless.delivery.knowledge import filtered, joined
from gapless.delivery.regimes import Regimes, RegimeTeller
from gapless.messages.records import RegimeRecord
from gapless.messages.streams import (
    Attach,
    Attached,
    AttachKind,
    Detach,
    Frame,
    Nack,
    Piece,
    Publication,
    Regime,
    RegimeWant,
    Released,
    Silence,
    Unfed,
    UnfedReason,
)

__all__ = ["Attachment", "Log", "ReceiverRef", "Router", "Routing"]


class ReceiverRef(NamedTuple):
    """What a receiver is: a cell in some direction, a leaf of this cell, or a router at home."""

    kind: AttachKind
    name: str


class Routing(Protocol):
    """What the tables of this broker say of events and receivers."""

    def tables_for(self, pubend: PubendId, piece: Piece, receiver: ReceiverRef) -> int | None:
        """Return the tables that decide for a receiver, a bit each; None if none may (R25)."""

    def matching_tables(self, publication: Publication) -> int:
        """Return the tables that want a publication, a bit each."""

    def candidates(self, pubend: PubendId) -> list[Candidate]:
        """Return who may feed this router, best first (R7)."""

    def attach_kind(self, pubend: PubendId) -> AttachKind:
        """Return what this router is to its feeder: of another cell, or at home with the pubend."""

    def may_feed(self, pubend: PubendId, receiver: ReceiverRef) -> bool:
        """Say whether a receiver lies beyond this broker, as seen from the pubend (R10)."""

    def is_announced(self, pubend: PubendId) -> bool:
        """Say whether the pubend is known."""


class Log(Protocol):
    """A pubend that this broker hosts: its log is the input stream (R32)."""

    @property
    def top(self) -> Tick:
        """The highest tick that may be told."""

    def pieces_between(
        self, low: Tick, high: Tick, then: Callable[[list[Piece], Tick], None]
    ) -> None:
        """Read the log; call back with pieces and up to where they go."""


class Attachment:
    """One receiver of one pubend."""

    __slots__ = ("curious", "eager", "number", "peer", "receiver", "refreshed", "sent", "waiting")

    def __init__(
        self, peer: BrokerId, number: int, receiver: ReceiverRef, curious: Curious
    ) -> None:
        self.peer = peer
        self.number = number
        self.receiver = receiver
        self.eager = False
        self.sent: Tick = 0
        self.curious = curious
        self.refreshed = 0
        self.waiting = True
        """Whether it still waits for this router to have a feed itself."""


class _Routed:
    """All that a router has of one pubend."""

    __slots__ = ("asked", "attachments", "feed", "log", "regimes", "released", "stream")

    def __init__(self, stream: Stream, asked: Asked, log: Log | None) -> None:
        self.stream = stream
        self.asked = asked
        self.log = log
        self.feed: Feed | None = None
        self.attachments: dict[tuple[BrokerId, int], Attachment] = {}
        self.regimes = Regimes()
        self.released: Tick = 0


class _FeedOwner:
    """Lets a router hear from the feed of one pubend."""

    def __init__(self, router: Router, pubend: PubendId) -> None:
        self._router = router
        self._pubend = pubend

    def fed(self, at: Tick) -> None:
        self._router.feed_found(self._pubend, at)

    def fed_up_to(self, at: Tick) -> None:
        self._router.feed_sent(self._pubend, at)

    def unfed(self) -> None:
        self._router.feed_lost(self._pubend)


class Router:
    """The streams of one broker as a router."""

    def __init__(self, context: Context, routing: Routing) -> None:
        self._context = context
        self._routing = routing
        self._account = Account()
        self._routed: dict[PubendId, _Routed] = {}
        self._teller = RegimeTeller(context)
        self._silences: dict[BrokerId, list[tuple[PubendId, int, Piece, bool]]] = {}
        self._attachment_count = 0
        context.after(us(ms=context.parameters.silence_ms), self._tell_silence)
        context.after(us(ms=context.parameters.attach_refresh_ms), self._expire)

    # --- the pubends of this broker ----------------------------------------------------------

    def host(self, pubend: PubendId, log: Log, released: Tick) -> None:
        """Serve a pubend from its own log."""
        routed = self._get(pubend)
        routed.log = log
        routed.released = released
        routed.stream.raise_top(log.top)

    def spread(self, pubend: PubendId, piece: Piece, opened: RegimeRecord | None) -> None:
        """Send out a new piece of a pubend of this broker."""
        routed = self._get(pubend)
        if opened is not None:
            routed.regimes.learn_record(opened)
        self._take(pubend, routed, piece, first=True, opens=opened is not None)

    def learn_regimes(self, pubend: PubendId, records: list[RegimeRecord]) -> None:
        """Take over the regimes that a hosted pubend had before a restart."""
        for record in records:
            self._get(pubend).regimes.learn_record(record)

    def set_released(self, pubend: PubendId, up_to: Tick) -> None:
        """A log no longer has ticks up to this one."""
        routed = self._get(pubend)
        routed.released = max(routed.released, up_to)
        routed.stream.forget_up_to(up_to)

    def is_eager(self, pubend: PubendId) -> bool:
        """Say whether a receiver of the pubend waits in total order."""
        routed = self._routed.get(pubend)
        return routed is not None and any(each.eager for each in routed.attachments.values())

    # --- receivers ---------------------------------------------------------------------------

    def attach(self, peer: BrokerId, message: Attach) -> None:
        """Feed a receiver, or say why not (R10)."""
        pubend, number = message.pubend, message.number
        receiver = ReceiverRef(message.kind, message.receiver)
        routed = self._routed.get(pubend)
        held = None if routed is None else routed.attachments.get((peer, number))
        if held is not None:
            assert routed is not None
            held.refreshed = self._context.now
            self._set_eager(pubend, routed, held, message.eager)
            if not held.waiting:
                self._context.post(peer, Attached(pubend, number, held.sent, self._relayed(routed)))
            return
        reason = self._refusal(pubend, receiver)
        if reason is not None:
            self._context.post(peer, Unfed(pubend, number, reason))
            return
        routed = self._get(pubend)
        held = Attachment(peer, number, receiver, Curious(self._context.parameters))
        held.refreshed = self._context.now
        for key, other in list(routed.attachments.items()):
            if other.peer == peer and other.receiver == receiver:
                self._drop(routed, key)  # the receiver asks anew and has forgotten the old one
        routed.attachments[peer, number] = held
        self._attachment_count += 1
        self._set_eager(pubend, routed, held, message.eager)
        if self._has_source(routed):
            self._welcome(pubend, routed, held)
        else:
            self._seek_feed(pubend, routed)
            self._context.after(
                us(ms=self._context.parameters.attach_timeout_ms),
                lambda: self._still_unfed(pubend, routed, held),
            )

    def detach(self, peer: BrokerId, message: Detach) -> None:
        """Stop feeding a receiver."""
        routed = self._routed.get(message.pubend)
        if routed is not None and (peer, message.number) in routed.attachments:
            self._drop(routed, (peer, message.number))
            self._review_need(message.pubend, routed)

    def nack(self, peer: BrokerId, message: Nack) -> None:
        """Answer what is known, ask for the rest (R37)."""
        routed = self._routed.get(message.pubend)
        if routed is None:
            return
        receivers = [each for each in routed.attachments.values() if each.peer == peer]
        unknown: list[TickRange] = []
        for low, high in message.ranges:
            if low <= routed.released:
                self._context.post(peer, Released(message.pubend, routed.released))
                low = routed.released + 1  # noqa: PLW2901 - the rest of the range
            if low > high:
                continue
            for attachment in receivers:
                attachment.curious.add(low, high, self._context.now)
                self._answer(message.pubend, routed, attachment, low, high)
            unknown += routed.stream.gaps(low, min(high, routed.stream.top))
        self._inquire(message.pubend, routed, unknown)

    def regime_want(self, peer: BrokerId, message: RegimeWant) -> None:
        """Tell a regime, or ask the feeder for it (R39)."""
        routed = self._routed.get(message.pubend)
        if routed is None:
            return
        if not self._teller.answer(peer, message, routed.regimes):
            self._ask_feeder(routed, message)

    def _refusal(self, pubend: PubendId, receiver: ReceiverRef) -> UnfedReason | None:
        if not self._routing.is_announced(pubend):
            return UnfedReason.UNKNOWN_PUBEND
        if not self._routing.may_feed(pubend, receiver):
            return UnfedReason.NOT_NEARER
        if self._attachment_count >= self._context.parameters.attachments_max:
            return UnfedReason.LIMIT
        return None

    def _welcome(self, pubend: PubendId, routed: _Routed, attachment: Attachment) -> None:
        attachment.waiting = False
        attachment.sent = routed.stream.top
        answer = Attached(pubend, attachment.number, attachment.sent, self._relayed(routed))
        self._context.post(attachment.peer, answer)

    def _still_unfed(self, pubend: PubendId, routed: _Routed, attachment: Attachment) -> None:
        key = (attachment.peer, attachment.number)
        if attachment.waiting and routed.attachments.get(key) is attachment:
            self._context.post(
                attachment.peer, Unfed(pubend, attachment.number, UnfedReason.NO_FEED)
            )

    def _drop(self, routed: _Routed, key: tuple[BrokerId, int]) -> None:
        del routed.attachments[key]
        self._attachment_count -= 1

    def _set_eager(
        self, pubend: PubendId, routed: _Routed, attachment: Attachment, eager: bool
    ) -> None:
        if attachment.eager != eager:
            attachment.eager = eager
            if routed.feed is not None:
                routed.feed.set_eager(self.is_eager(pubend))

    # --- the own feed ------------------------------------------------------------------------

    def attached(self, peer: BrokerId, message: Attached) -> None:
        """A feeder has answered."""
        routed = self._routed.get(message.pubend)
        if routed is not None and routed.feed is not None:
            routed.feed.attached(peer, message)
        else:
            self._context.post(peer, Detach(message.pubend, message.number))

    def unfed(self, peer: BrokerId, message: Unfed) -> None:
        """A feeder cannot feed."""
        routed = self._routed.get(message.pubend)
        if routed is not None and routed.feed is not None:
            routed.feed.unfed(peer, message)

    def frame(self, message: Frame) -> None:
        """Take knowledge with data."""
        self._receive(message.pubend, message.piece, message.first)

    def silence(self, pubend: PubendId, piece: Piece, first: bool) -> None:
        """Take knowledge without data."""
        self._receive(pubend, piece, first)

    def regime(self, message: Regime) -> None:
        """Learn what a regime number means."""
        routed = self._routed.get(message.pubend)
        if routed is not None and routed.regimes.learn(message):
            self._teller.pass_on(message.pubend, message.number, routed.regimes)

    def released(self, message: Released) -> None:
        """Learn that a log has lost its past, and tell those who asked for it."""
        routed = self._routed.get(message.pubend)
        if routed is None or message.up_to <= routed.released:
            return
        routed.released = message.up_to
        for attachment in routed.attachments.values():
            if attachment.curious.take(0, message.up_to):
                self._context.post(attachment.peer, message)

    def feed_found(self, pubend: PubendId, at: Tick) -> None:
        """There is a feeder: those who waited are fed too."""
        routed = self._routed[pubend]
        # also when nothing is cached: a router that forgot this would offer tick 0 (A24)
        routed.stream.raise_top(at)
        routed.asked.clear()
        for attachment in routed.attachments.values():
            if attachment.waiting:
                self._welcome(pubend, routed, attachment)

    def feed_sent(self, pubend: PubendId, at: Tick) -> None:
        """The feeder has sent everything up to a tick."""
        self._routed[pubend].stream.raise_top(at)

    def feed_lost(self, pubend: PubendId) -> None:
        """There is no feeder; if none is found soon, receivers must look elsewhere."""
        routed = self._routed[pubend]
        routed.asked.clear()
        self._context.after(
            us(ms=self._context.parameters.attach_timeout_ms), lambda: self._say_unfed(pubend)
        )

    def _say_unfed(self, pubend: PubendId) -> None:
        routed = self._routed.get(pubend)
        if routed is None or self._has_source(routed):
            return
        for attachment in routed.attachments.values():
            attachment.waiting = True
            self._context.post(
                attachment.peer, Unfed(pubend, attachment.number, UnfedReason.NO_FEED)
            )

    def _seek_feed(self, pubend: PubendId, routed: _Routed) -> None:
        if routed.feed is None and routed.log is None:
            routed.feed = Feed(
                self._context,
                pubend,
                self._routing.attach_kind(pubend),
                self._context.identity.cell,
                _FeedOwner(self, pubend),
                lambda: self._routing.candidates(pubend),
                eager=self.is_eager(pubend),
            )

    def _has_source(self, routed: _Routed) -> bool:
        return routed.log is not None or (
            routed.feed is not None and routed.feed.feeder is not None
        )

    def _relayed(self, routed: _Routed) -> bool:
        return routed.feed is not None and routed.feed.relayed

    def _review_need(self, pubend: PubendId, routed: _Routed) -> None:
        """A router without receivers needs no feed."""
        if not routed.attachments and routed.feed is not None:
            routed.feed.close()
            routed.feed = None
            del self._routed[pubend]

    # --- knowledge ---------------------------------------------------------------------------

    def _receive(self, pubend: PubendId, piece: Piece, first: bool) -> None:
        routed = self._routed.get(pubend)
        if routed is None or routed.log is not None:
            return  # nobody here needs it any more, or it is our own
        if not routed.regimes.knows(piece.regime):
            self._ask_feeder(routed, RegimeWant(pubend, piece.regime))
        self._take(pubend, routed, piece, first=first, opens=False)

    def _take(
        self, pubend: PubendId, routed: _Routed, piece: Piece, *, first: bool, opens: bool
    ) -> None:
        """Accumulate a piece and pass on what is new (R34)."""
        top = routed.stream.top
        news = routed.stream.accumulate(piece)
        routed.asked.answered(piece.low, piece.high)
        if routed.feed is not None and routed.stream.top > top:
            routed.feed.note_progress()
        opens = opens or routed.regimes.opens_at(piece)
        for attachment in routed.attachments.values():
            if attachment.waiting:
                continue
            for new in news:
                self._answer(pubend, routed, attachment, new.low, new.high)
            if first and piece.high > attachment.sent:
                self._first_time(pubend, routed, attachment, piece, opens=opens)
        shrink(
            self._account,
            (each.stream for each in self._routed.values()),
            self._context.parameters.cache_bytes,
        )

    def _first_time(
        self,
        pubend: PubendId,
        routed: _Routed,
        attachment: Attachment,
        piece: Piece,
        *,
        opens: bool,
    ) -> None:
        """Send new knowledge now if it matters to the receiver, else leave it to the timer (R35)."""
        if opens or attachment.eager or any(self._wanted(pubend, attachment, piece)):
            self._send_through(pubend, routed, attachment, piece.high)

    def _send_through(
        self, pubend: PubendId, routed: _Routed, attachment: Attachment, high: Tick
    ) -> None:
        """Send everything known above what was sent, up to a tick; what is Q stays a gap."""
        known = routed.stream.known(attachment.sent + 1, high)
        attachment.sent = max(attachment.sent, high)
        self._send(pubend, routed, attachment, known, first=True)

    def _answer(
        self, pubend: PubendId, routed: _Routed, attachment: Attachment, low: Tick, high: Tick
    ) -> None:
        """Send what a receiver is curious about and this router knows (R36)."""
        if not attachment.curious.wants(low, high):
            return
        for known in routed.stream.known(low, high):
            for part_low, part_high in attachment.curious.take(known.low, known.high):
                pieces = routed.stream.known(part_low, part_high)
                self._send(pubend, routed, attachment, pieces, first=False)

    def _send(
        self,
        pubend: PubendId,
        routed: _Routed,
        attachment: Attachment,
        pieces: list[Piece],
        *,
        first: bool,
    ) -> None:
        passed = [self._filtered(pubend, attachment, piece) for piece in pieces]
        for piece in joined(passed, self._context.parameters.frame_events_max):
            self._teller.tell(attachment.peer, pubend, piece.regime, routed.regimes)
            if piece.publications:
                frame = Frame(pubend, attachment.number, piece, first)
                self._context.post(attachment.peer, frame)
            else:
                # told together with those of other pubends when the step ends
                waiting = self._silences.setdefault(attachment.peer, [])
                waiting.append((pubend, attachment.number, piece, first))
        self._post_silences(attachment.peer)

    def _post_silences(self, peer: BrokerId) -> None:
        waiting = self._silences.pop(peer, None)
        if waiting:
            self._context.post(peer, Silence(tuple(waiting)))

    def _filtered(self, pubend: PubendId, attachment: Attachment, piece: Piece) -> Piece:
        if not piece.publications:
            return piece
        wanted = {publication.tick for publication in self._wanted(pubend, attachment, piece)}
        return filtered(piece, lambda publication: publication.tick in wanted)

    def _wanted(self, pubend: PubendId, attachment: Attachment, piece: Piece) -> list[Publication]:
        """Return the publications of a piece that a receiver is sent (R25)."""
        if attachment.receiver.kind is AttachKind.HOME or not piece.publications:
            return list(piece.publications)
        tables = self._routing.tables_for(pubend, piece, attachment.receiver)
        if tables is None:
            return list(piece.publications)
        return [
            publication
            for publication in piece.publications
            if self._routing.matching_tables(publication) & tables
        ]

    # --- curiosity ---------------------------------------------------------------------------

    def _inquire(self, pubend: PubendId, routed: _Routed, unknown: list[TickRange]) -> None:
        """Ask for what nobody here knows: the log, or the feeder, once for all receivers."""
        if not unknown:
            return
        ranges = routed.asked.ask(unknown, self._context.now)
        if routed.log is not None:
            for low, high in ranges:
                self._read_log(pubend, routed, routed.log, low, high)
        elif ranges and routed.feed is not None and routed.feed.feeder is not None:
            self._context.post(routed.feed.feeder, Nack(pubend, tuple(ranges)))

    def _read_log(self, pubend: PubendId, routed: _Routed, log: Log, low: Tick, high: Tick) -> None:
        def read(pieces: list[Piece], done: Tick) -> None:
            for piece in pieces:
                self._take(pubend, routed, piece, first=False, opens=False)
            if pieces and done < high:
                self._read_log(pubend, routed, log, done + 1, high)

        log.pieces_between(low, high, read)

    def _ask_feeder(self, routed: _Routed, message: RegimeWant) -> None:
        if routed.feed is not None and routed.feed.feeder is not None:
            self._context.post(routed.feed.feeder, message)

    # --- sessions and time -------------------------------------------------------------------

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        """Somebody can be asked who could not before."""
        del peer, cell
        for routed in self._routed.values():
            if routed.feed is not None:
                routed.feed.session_opened()

    def session_closed(self, peer: BrokerId) -> None:
        """What belonged to a session is gone with it (R2)."""
        self._teller.forget(peer)
        for pubend, routed in list(self._routed.items()):
            for key in [key for key in routed.attachments if key[0] == peer]:
                self._drop(routed, key)
            if routed.feed is not None:
                routed.feed.session_closed(peer)
            self._review_need(pubend, routed)

    def _tell_silence(self) -> None:
        """Tell every receiver what was withheld, all pubends of a peer in one message (R35)."""
        self._context.after(us(ms=self._context.parameters.silence_ms), self._tell_silence)
        for pubend, routed in self._routed.items():
            for attachment in routed.attachments.values():
                if not attachment.waiting and attachment.sent < routed.stream.top:
                    self._send_through(pubend, routed, attachment, routed.stream.top)

    def _expire(self) -> None:
        """End attachments that were not refreshed: their receiver is gone (R10)."""
        self._context.after(us(ms=self._context.parameters.attach_refresh_ms), self._expire)
        oldest = self._context.now - us(ms=self._context.parameters.attach_expiry_ms)
        for pubend, routed in list(self._routed.items()):
            for key, attachment in list(routed.attachments.items()):
                if attachment.refreshed < oldest:
                    self._context.mark("attachment expired")
                    self._drop(routed, key)
            self._review_need(pubend, routed)

    def _get(self, pubend: PubendId) -> _Routed:
        routed = self._routed.get(pubend)
        if routed is None:
            stream = Stream(pubend, self._account)
            routed = self._routed[pubend] = _Routed(stream, Asked(self._context.parameters), None)
        return routed
