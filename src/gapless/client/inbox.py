"""The inbox of a subscription: what the broker is asked for and has sent, over all connections.

Theory of operation. Over each new connection the subscription is asked for again, under the same
name, from what was received; what waits to be handed out is kept. So nothing is lost and nothing
comes twice, whatever connection it came on.

A broker sends nothing of a subscription before it has answered that. What comes before the answer is of an
earlier visit: a session may have closed a durable subscription and opened it again while events of the
first were still under way. They come again, in their place, so they are passed over.

A durable subscription lives at one broker, its home. If that is out of reach for too long, the link goes
to another; there the subscription is asked for with the token of its home, and lives on from what was
received (:mod:`gapless.mobility`). If a filter change was under way, or its position not reached yet, the
new filter may govern from before that position, as for a subscription that is not durable.

States::

    NEW --asked and answered--> STARTED --connection lost--> ASKED AGAIN --answered--> STARTED
    any --closed, refused, taken over--> OVER

*Seeking back in a durable subscription.* The broker resumes a durable subscription behind what is
acknowledged. Who has sought back to before that must say so again after a reconnect; until that is
answered there is no credit, so nothing comes from the wrong place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gapless.client.link import ReconnectingLink, refusal
from gapless.client.prefetch import Prefetch
from gapless.client.settings import SubscriptionOptions
from gapless.core.errors import ClosedError, FencedError, GaplessError, SlowConsumerError
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Ack,
    Credit,
    Delivery,
    FilterChanged,
    Gap,
    HostingReference,
    Order,
    PastFilter,
    PositionTuple,
    Progress,
    RefusalCause,
    Refused,
    Seek,
    Stalled,
    StartGuarantees,
    StartKind,
    StartPoint,
    Subscribe,
    Subscribed,
    SubscriptionEnded,
    SubscriptionStarted,
)

if TYPE_CHECKING:
    from gapless.audit.clients import ClientAudit, SubscriptionAudit

__all__ = ["Inbox"]


class Inbox:
    """One subscription as its broker knows it, and what has come for it."""

    def __init__(
        self, name: str, text: str, settings: SubscriptionOptions, *, on_end: Callable[[], None]
    ) -> None:
        self.name = name
        self.text = text
        """The filter that governs in the end; it begins anew with it, should the connection be lost."""
        self.prefetch = Prefetch(settings.prefetch)
        self.half = (settings.prefetch + 1) // 2
        """When so many more could wait here, the broker may send more."""
        self._pending: dict[PubendId, str] = {}
        """Pubends of which nothing can come now, and why."""
        self.link: ReconnectingLink | None = None
        self.error: GaplessError | None = None
        """Why it is over, if it is."""
        self.is_started = False
        """Whether it was ever answered."""
        self.is_new = False
        """Of a durable one: whether it was made now, and not before."""
        self.is_answered = False
        """Whether it was answered on this connection."""
        self.is_changing = False
        """Whether another filter was asked for, and that is not answered."""
        self._is_repositioned = False
        """Whether it goes on from the right place on this connection."""
        self._settings = settings
        self._on_end = on_end
        self._audit: SubscriptionAudit | None = None
        self.hosting: HostingReference | None = None
        """Of a durable one: where it lives, to be shown at another broker (MV-13)."""
        self._seek_count = 0
        """How often an operator had moved it when it was last answered."""
        self._default_start = settings.start
        """Where it begins on streams of which it has no place."""
        self._sought_back_from: dict[PubendId, Tick] = {}
        """Streams that were sought back: up to here the broker would pass over what is owed."""
        self._earliest: set[PubendId] = set()
        """Streams that go on with the oldest that the log has: what it has lost is no gap."""
        self._acked: dict[PubendId, Tick] = {}
        self._has_moved = False
        """Whether this program has taken a durable subscription to another broker."""
        self._started_after: dict[PubendId, Tick] = {}
        """Where each stream began: nothing up to there was owed. No seek moves it: what was handed out
        before one is not acknowledged by it."""
        self._pending_after: dict[PubendId, Tick] = {}
        """Where streams go on that wait now: of a durable one those that had started once, and those that
        waited when the filter was changed."""
        self._quiet: dict[PubendId, tuple[Tick, Tick]] = {}
        """Where nothing comes: the place of the last that came, and how far the stream is told to be."""
        self._start_guarantees: StartGuarantees | None = None
        """Of a durable one: since when it is owed streams of which it has no place, as told with its filter."""
        self._past_filters: tuple[PastFilter, ...] = ()
        """Of a durable one: the filters before the present one, and up to where each governs."""
        self._excluded: dict[PubendId, bool] = {}
        """In total order: streams without which the others went on, and whether they still do. The broker is told
        where they stood, so that it can tell what was lost of them should they be back; until it has."""
        self._waiters: set[asyncio.Future[None]] = set()

    # --- the beginning and the end -------------------------------------------------------------

    @property
    def pending(self) -> dict[str, str]:
        """Pubends of which nothing can come now, and why."""
        return {str(pubend): reason for pubend, reason in self._pending.items()}

    @property
    def is_over(self) -> bool:
        """Whether it was closed, or cannot go on."""
        return self.error is not None

    def write_to(self, audit: ClientAudit) -> None:
        """Have all that comes written down."""
        total = self._settings.order is Order.TOTAL
        self._audit = audit.subscription(self.name, durable=self._settings.durable, total=total)
        self.prefetch.on_received = self._audit.received

    def open_over(self, link: ReconnectingLink) -> None:
        """Subscribe over a link, whenever it is up."""
        self.link = link
        link.listen(self.name, self)
        link.add(self)

    def end(self, error: GaplessError) -> None:
        """End for good; who waits gets the error."""
        if self.error is not None:
            return
        self.error = error
        self.prefetch.drop()
        if self._audit is not None:
            self._audit.ended(self.prefetch.received)
        if self.link is not None:
            self.link.remove(self)
            self.link.stop_listening(self.name, self)
        self._on_end()
        self._wake()

    def check(self) -> None:
        """Raise why it is over, if it is."""
        if self.error is not None:
            raise self.error

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def arrival(self) -> None:
        """Wait until something has come, or it is over."""
        if self.link is None:
            raise ClosedError("open the subscription with 'async with' first")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    # --- what the broker is told ---------------------------------------------------------------

    def give_credit(self) -> None:
        """Let the broker send more, if that is worth a message."""
        if self.prefetch.free < self.half or not self.is_answered or self._is_seeking:
            return
        assert self.link is not None
        self.link.send(Credit(self.name, self.prefetch.grant()))

    def acknowledge(self, ticks: dict[PubendId, Tick]) -> None:
        """Tell the broker what is done, as far as it does not know that."""
        newer = {each: tick for each, tick in ticks.items() if tick > self._acked.get(each, -1)}
        self._acked.update(newer)
        if newer and self._audit is not None:
            self._audit.acked(newer)
        if newer and self.is_answered and self.link is not None:
            self.link.send(Ack(self.name, tuple(newer.items())))

    def repositioned(self, position: PositionTuple, kind: StartKind) -> None:
        """Go on where the broker does; whatever comes from now on is from there."""
        prefetch, ticks = self.prefetch, dict(position)
        for pubend, tick in ticks.items():
            reached = max(prefetch.received.get(pubend, 0), self._sought_back_from.get(pubend, 0))
            if tick < reached:
                self._sought_back_from[pubend] = reached
            else:
                self._sought_back_from.pop(pubend, None)
        self._earliest = set(ticks) if kind is StartKind.EARLIEST else self._earliest - set(ticks)
        self._is_repositioned = True
        handed = prefetch.handed()
        prefetch.reposition(ticks)
        if self._audit is not None:
            self._audit.repositioned(handed, position, prefetch.received)
        self.give_credit()

    # --- the link ------------------------------------------------------------------------------

    @property
    def _is_seeking(self) -> bool:
        """Whether the broker is to be told again where a durable subscription was sought back to."""
        return bool(self._settings.durable and self._sought_back_from and not self._is_repositioned)

    def link_up(self) -> None:
        """Subscribe, or go on from what was received."""
        assert self.link is not None
        settings, prefetch = self._settings, self.prefetch
        self.is_answered = False
        self._is_repositioned = False
        if self.is_changing and not settings.durable:
            self.keep_starts(set())  # it begins anew, with the filter that was asked for
        prefetch.disconnected()
        credit = 0 if self._is_seeking else prefetch.grant()
        request = Subscribe(
            self.link.numbers.next(),
            self.name,
            self.text,
            settings.durable,
            self._start_point(),
            settings.order,
            credit,
            settings.expiry_s,
            self._seek_count,
            self.hosting,
            *(((), (), None) if self.hosting is None else self._resume_state()),
        )
        handshake = self.link.handshake
        if (
            self.hosting is not None
            and handshake is not None
            and handshake.broker != self.hosting.broker
        ):
            self.hosting = self.hosting.next_epoch()
            self._has_moved = True
        self.link.request(request, self._subscribed)

    def _resume_state(self) -> tuple[PositionTuple, tuple[PastFilter, ...], StartGuarantees | None]:
        """Return what another broker has to know of the subscription, should it go on there."""
        acked = {**self._pending_after, **self._started_after, **self._acked}
        # who was sought back gets again what it had acknowledged, by the filters of then
        received = self.prefetch.received
        done = {pubend: min(tick, received.get(pubend, tick)) for pubend, tick in acked.items()}
        # where it has no place it begins anew, with the present filter
        self._past_filters = tuple(
            each
            for each in self._past_filters
            if any(end > done.get(pubend, end) for pubend, end in each.ends)
        )
        return tuple(acked.items()), self._past_filters, self._start_guarantees

    def _start_point(self) -> StartPoint:
        start = self._default_start
        requested = dict(start.position) if start.kind is StartKind.POSITION else {}
        is_merged = self._settings.order is Order.TOTAL
        ticks = self.prefetch.resume_from(
            {**requested, **self._pending_after}, self._excluded, merged=is_merged
        )
        if not ticks:
            return start
        merged = None
        if is_merged:
            last = self.prefetch.last
            before = min(max(requested.values(), default=0), max(ticks.values()))
            merged = before if last is None else last[0]
        unnamed = start.for_unnamed()
        excluded = tuple(sorted(self._excluded)) if is_merged else ()
        return StartPoint(
            StartKind.POSITION, tuple(ticks.items()), unnamed.clock, unnamed.kind, merged, excluded
        )

    def _subscribed(self, notice: Any) -> None:
        if isinstance(notice, Refused):
            if notice.hosting is not None:
                self._move_here(notice.hosting)
            else:
                self.end(refusal(notice))
            return
        answer: Subscribed = ReconnectingLink.expect(notice, Subscribed)
        if self.is_started and answer.seek_count != self._seek_count:
            # its events would look like repetitions here, or like a gap
            self.end(FencedError(_moved(self.name)))
            return
        self.is_new |= answer.is_new and not self.is_started
        self._seek_count = answer.seek_count
        self.hosting, self._start_guarantees = answer.hosting, answer.start_guarantees
        if answer.filter:
            if answer.filter != self.text:
                self.keep_starts(set())
            self.text, self._past_filters = answer.filter, answer.past_filters
        if self._settings.durable and self._default_start.kind is not StartKind.POSITION:
            self._default_start = answer.start  # it may have been made by another program
        for pubend, tick in answer.position:
            self._start_at(pubend, tick)
        if self._audit is not None and self.link is not None and self.link.handshake is not None:
            broker = self.link.handshake.broker
            self._audit.opened(broker, self.text, answer.position, self.prefetch.received)
        self._pending = {each.pubend: each.reason for each in answer.pending}
        self._excluded = dict.fromkeys(self._excluded, False)  # which still are is told again
        self._pending_after = {
            each.pubend: after
            for each in answer.pending
            if (after := self._pending_after.get(each.pubend) if each.after is None else each.after)
            is not None
        }
        # what rests before everything is to go on with the oldest that there is
        self._earliest.update(pubend for pubend, tick in self._pending_after.items() if tick == 0)
        if not self.is_started and self._settings.start.kind is StartKind.EARLIEST:
            self._earliest.update(pubend for pubend, _ in answer.position)
        self.is_answered = self.is_started = True
        if self._is_seeking:
            self._seek_again()
        if self._acked and self.link is not None:
            self.link.send(Ack(self.name, tuple(self._acked.items())))
        self._wake()

    def _move_here(self, hosting: HostingReference) -> None:
        """Go on here: the subscription had moved before, and the answer that said so was lost.

        What this client knows of it is newer than what was taken along then. Who has answered last stays
        named in the token: only that broker knows what this client was told. Its own attempts count one by
        one; if it was not this client that moved it, another program has it, and the one that came last
        takes it over: one that has not moved yet.
        """
        last = hosting if self.hosting is None else self.hosting
        if self._has_moved and hosting.epoch > last.epoch + 1:
            self.end(
                FencedError(f"the subscription {self.name!r} was taken over at {hosting.broker}")
            )
            return
        self._has_moved = True
        self.hosting = HostingReference(hosting.incarnation_key, hosting.epoch + 1, last.broker)
        self.link_up()

    def _start_at(self, pubend: PubendId, tick: Tick) -> None:
        self._started_after.setdefault(pubend, tick)
        if pubend not in self._sought_back_from:
            self.prefetch.start(pubend, tick)

    def _seek_again(self) -> None:
        """Go back to where a durable subscription was sought to."""
        assert self.link is not None
        position = tuple(self.prefetch.received.items())
        request = Seek(
            self.link.numbers.next(), self.name, StartPoint(StartKind.POSITION, position)
        )
        self.link.request(request, self._seek_answered)

    def _seek_answered(self, notice: Any) -> None:
        if isinstance(notice, Refused):
            self.end(refusal(notice))
            return
        ReconnectingLink.expect(notice, Subscribed)
        self._is_repositioned = True
        self.give_credit()

    def link_down(self) -> None:
        """Nothing comes until the link is up."""
        self.is_answered = False

    def link_over(self, error: GaplessError) -> None:
        """There will be no connection any more."""
        self.end(error)

    # --- what the broker tells -----------------------------------------------------------------

    def delivered(self, notice: Delivery) -> None:
        """Take events; those that came before the answer are of an earlier visit of the session."""
        if not self.is_answered:
            return
        prefetch = self.prefetch
        prefetch.take(notice.runs)
        if self._sought_back_from:
            self._rise()
        if self._excluded:
            self._forget_excluded()
        if prefetch.repeated:
            self.give_credit()
        self._wake()

    def _rise(self) -> None:
        """Forget where streams were sought back from when that is reached again."""
        received = self.prefetch.received
        self._sought_back_from = {
            pubend: tick
            for pubend, tick in self._sought_back_from.items()
            if received.get(pubend, 0) < tick
        }

    def notified(
        self,
        notice: SubscriptionStarted | Stalled | Progress | Gap | SubscriptionEnded | FilterChanged,
    ) -> None:
        """Take what the broker says of the subscription itself, of this visit."""
        if not self.is_answered:
            return
        if isinstance(notice, SubscriptionEnded) and notice.hosting is not None:
            self._move_here(notice.hosting)
            return
        if isinstance(notice, SubscriptionEnded):
            # what waits here was not acknowledged: it is for whoever has the subscription now
            kind = SlowConsumerError if notice.cause is RefusalCause.SLOW_CONSUMER else FencedError
            self.end(kind(notice.reason))
            return
        if isinstance(notice, Stalled):
            self._stalled(notice)
            return
        if isinstance(notice, FilterChanged):
            self.filter_changed(notice.filter, notice.position, notice.start_guarantees)
            return
        if self._is_seeking:
            return  # it is of the place that the subscription leaves
        if isinstance(notice, Progress):
            self._progressed(notice.position)
            return
        pubend = notice.pubend
        if isinstance(notice, SubscriptionStarted):
            self._pending.pop(pubend, None)
            self._start_at(pubend, notice.after)
            if self._audit is not None:
                self._audit.started(pubend, notice.after)
        else:
            self._gap_reported(notice)
        self._wake()

    def _gap_reported(self, notice: Gap) -> None:
        """Take a gap; what was gone before the oldest that was asked for is none."""
        pubend = notice.pubend
        is_expected = pubend in self._earliest and notice.low <= 1
        if is_expected:
            self._started_after[pubend] = max(notice.high, self._started_after.get(pubend, 0))
            self.prefetch.start(pubend, notice.high)
        else:
            self.prefetch.add_gap(pubend, notice.low, notice.high)
        self._forget_excluded()
        if self._audit is not None:
            self._audit.gap_reported(pubend, notice.low, notice.high, expected=is_expected)

    def filter_changed(
        self, text: str, position: PositionTuple, start_guarantees: StartGuarantees | None
    ) -> None:
        """Another filter governs after a position, and is owed what is younger."""
        if text != self.text:
            if self._settings.durable:
                self._past_filters += (PastFilter(self.text, position),)
            self.keep_starts({*dict(position)})
        self.text, self._start_guarantees = text, start_guarantees
        if self._audit is not None:
            self._audit.filter_changed(text, position)

    def keep_starts(self, named: set[PubendId]) -> None:
        """Streams that wait begin where that was asked for; on others a new filter begins with the latest."""
        start = self._default_start
        if start.kind is StartKind.EARLIEST or start.kind is StartKind.TIME:
            after = max(0, start.clock - 1)
            pending = {*self._pending, *named} - self.prefetch.received.keys()
            self._pending_after = {**dict.fromkeys(sorted(pending), after), **self._pending_after}
            if start.kind is StartKind.EARLIEST:
                self._earliest |= pending
            self._default_start = StartPoint()

    def _progressed(self, position: PositionTuple) -> None:
        """Nothing was there for us up to here: go on from there after a lost connection."""
        for pubend, tick in position:
            if self._settings.durable:
                self._note_quiet(pubend, tick)
            self.prefetch.start(pubend, tick)
        self._forget_excluded()
        if self._audit is not None:
            self._audit.progressed(position)
        if self._sought_back_from:
            self._rise()

    def _note_quiet(self, pubend: PubendId, tick: Tick) -> None:
        """If all that came is acknowledged, so is that nothing came since (MV-13).

        Until then the broker keeps the log: if it dies, no other knows that nothing was there.
        """
        received = self.prefetch.received.get(pubend, 0)
        received_last, reported = self._quiet.get(pubend, (received, received))
        last = received_last if reported == received else received
        self._quiet[pubend] = (last, tick)
        if max(self._acked.get(pubend, 0), self._started_after.get(pubend, 0)) >= last:
            self.acknowledge({pubend: tick})

    def _stalled(self, notice: Stalled) -> None:
        """A stream stands still, or goes on; the others are as they were."""
        if notice.reason:
            self._pending[notice.pubend] = notice.reason
        else:
            self._pending.pop(notice.pubend, None)
        if notice.excluded:
            if notice.pubend not in self._excluded and not self._is_seeking:
                self._level(notice.pubend)
            self._excluded[notice.pubend] = True
        elif notice.pubend in self._excluded:
            self._excluded[notice.pubend] = False

    def _level(self, pubend: PubendId) -> None:
        """Note that a stream was looked at up to the last event, before the others go on without it."""
        tick = self.prefetch.level_of(pubend)
        if self.prefetch.received.get(pubend, tick) < tick:
            self._progressed(((pubend, tick),))

    def _forget_excluded(self) -> None:
        """Forget that streams were passed by that are back, and as far as the others."""
        self._excluded = {
            pubend: still
            for pubend, still in self._excluded.items()
            if still or self.prefetch.received.get(pubend, 0) < self.prefetch.level_of(pubend)
        }


def _moved(name: str) -> str:
    return (
        f"an operator moved the subscription {name!r} to another position; "
        "subscribe again to go on from there"
    )
