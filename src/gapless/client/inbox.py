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

from gapless.client.link import Link, refusal
from gapless.client.prefetch import Prefetch
from gapless.client.settings import Settings
from gapless.core.errors import ClosedError, GaplessError, TakenOverError, TooSlowError
from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Ack,
    Begin,
    BeginKind,
    Cause,
    Credit,
    Delivery,
    Ended,
    Gap,
    Governed,
    Home,
    Order,
    Owed,
    PositionTuple,
    Progress,
    Refused,
    Seek,
    Stalled,
    Started,
    Subscribe,
    Subscribed,
    Switched,
)

if TYPE_CHECKING:
    from gapless.audit.clients import ClientAudit, SubscriptionAudit

__all__ = ["Inbox"]


class Inbox:
    """One subscription as its broker knows it, and what has come for it."""

    def __init__(
        self, name: str, text: str, settings: Settings, *, on_end: Callable[[], None]
    ) -> None:
        self.name = name
        self.text = text
        """The filter that governs in the end; it begins anew with it, should the connection be lost."""
        self.prefetch = Prefetch(settings.prefetch)
        self.half = (settings.prefetch + 1) // 2
        """When so many more could wait here, the broker may send more."""
        self._waiting: dict[PubendId, str] = {}
        """Pubends of which nothing can come now, and why."""
        self.link: Link | None = None
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
        self._is_placed = False
        """Whether it goes on from the right place on this connection."""
        self._settings = settings
        self._on_end = on_end
        self._audit: SubscriptionAudit | None = None
        self.home: Home | None = None
        """Of a durable one: where it lives, to be shown at another broker (MV-13)."""
        self._seeks = 0
        """How often an operator had moved it when it was last answered."""
        self._beginning = settings.begin
        """Where it begins on streams of which it has no place."""
        self._floor: dict[PubendId, Tick] = {}
        """Streams that were sought back: up to here the broker would pass over what is owed."""
        self._earliest: set[PubendId] = set()
        """Streams that go on with the oldest that the log has: what it has lost is no gap."""
        self._acked: dict[PubendId, Tick] = {}
        self._has_moved = False
        """Whether this program has taken a durable subscription to another broker."""
        self._bases: dict[PubendId, Tick] = {}
        """Where each stream began: nothing up to there was owed. No seek moves it: what was handed out
        before one is not acknowledged by it."""
        self._resting: dict[PubendId, Tick] = {}
        """Where streams go on that wait now: of a durable one those that had started once, and those that
        waited when the filter was changed."""
        self._quiet: dict[PubendId, tuple[Tick, Tick]] = {}
        """Where nothing comes: the place of the last that came, and how far the stream is told to be."""
        self._owed: Owed | None = None
        """Of a durable one: since when it is owed streams of which it has no place, as told with its filter."""
        self._earlier: tuple[Governed, ...] = ()
        """Of a durable one: the filters before the present one, and up to where each governs."""
        self._passed_by: dict[PubendId, bool] = {}
        """In total order: streams without which the others went on, and whether they still do. The broker is told
        where they stood, so that it can tell what was lost of them should they be back; until it has."""
        self._waiters: set[asyncio.Future[None]] = set()

    # --- the beginning and the end -------------------------------------------------------------

    @property
    def waiting(self) -> dict[str, str]:
        """Pubends of which nothing can come now, and why."""
        return {str(pubend): reason for pubend, reason in self._waiting.items()}

    @property
    def is_over(self) -> bool:
        """Whether it was closed, or cannot go on."""
        return self.error is not None

    def write_to(self, audit: ClientAudit) -> None:
        """Have all that comes written down."""
        total = self._settings.order is Order.TOTAL
        self._audit = audit.subscription(self.name, durable=self._settings.durable, total=total)
        self.prefetch.watch = self._audit.took

    def open_over(self, link: Link) -> None:
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
        self.link.say(Credit(self.name, self.prefetch.grant()))

    def acknowledge(self, ticks: dict[PubendId, Tick]) -> None:
        """Tell the broker what is done, as far as it does not know that."""
        news = {each: tick for each, tick in ticks.items() if tick > self._acked.get(each, -1)}
        self._acked.update(news)
        if news and self._audit is not None:
            self._audit.acked(news)
        if news and self.is_answered and self.link is not None:
            self.link.say(Ack(self.name, tuple(news.items())))

    def sought(self, position: PositionTuple, kind: BeginKind) -> None:
        """Go on where the broker does; whatever comes from now on is from there."""
        prefetch, ticks = self.prefetch, dict(position)
        for pubend, tick in ticks.items():
            reached = max(prefetch.received.get(pubend, 0), self._floor.get(pubend, 0))
            if tick < reached:
                self._floor[pubend] = reached
            else:
                self._floor.pop(pubend, None)
        self._earliest = set(ticks) if kind is BeginKind.EARLIEST else self._earliest - set(ticks)
        self._is_placed = True
        handed = prefetch.handed()
        prefetch.place(ticks)
        if self._audit is not None:
            self._audit.sought(handed, position, prefetch.received)
        self.give_credit()

    # --- the link ------------------------------------------------------------------------------

    @property
    def _is_seeking(self) -> bool:
        """Whether the broker is to be told again where a durable subscription was sought back to."""
        return bool(self._settings.durable and self._floor and not self._is_placed)

    def link_up(self) -> None:
        """Subscribe, or go on from what was received."""
        assert self.link is not None
        settings, prefetch = self._settings, self.prefetch
        self.is_answered = False
        self._is_placed = False
        if self.is_changing and not settings.durable:
            self.keep_beginnings(set())  # it begins anew, with the filter that was asked for
        prefetch.disconnected()
        credit = 0 if self._is_seeking else prefetch.grant()
        request = Subscribe(
            self.link.numbers.next(),
            self.name,
            self.text,
            settings.durable,
            self._begin(),
            settings.order,
            credit,
            settings.expiry_s,
            self._seeks,
            self.home,
            *(((), (), None) if self.home is None else self._luggage()),
        )
        welcome = self.link.welcome
        if self.home is not None and welcome is not None and welcome.broker != self.home.broker:
            self.home = self.home.after_a_flight()
            self._has_moved = True
        self.link.ask(request, self._subscribed)

    def _luggage(self) -> tuple[PositionTuple, tuple[Governed, ...], Owed | None]:
        """Return what another broker has to know of the subscription, should it go on there."""
        acked = {**self._resting, **self._bases, **self._acked}
        # who was sought back gets again what it had acknowledged, by the filters of then
        received = self.prefetch.received
        done = {pubend: min(tick, received.get(pubend, tick)) for pubend, tick in acked.items()}
        # where it has no place it begins anew, with the present filter
        self._earlier = tuple(
            each
            for each in self._earlier
            if any(end > done.get(pubend, end) for pubend, end in each.ends)
        )
        return tuple(acked.items()), self._earlier, self._owed

    def _begin(self) -> Begin:
        begin = self._beginning
        asked = dict(begin.position) if begin.kind is BeginKind.POSITION else {}
        is_merged = self._settings.order is Order.TOTAL
        ticks = self.prefetch.resume_from(
            {**asked, **self._resting}, self._passed_by, merged=is_merged
        )
        if not ticks:
            return begin
        merged = None
        if is_merged:
            last = self.prefetch.last
            before = min(max(asked.values(), default=0), max(ticks.values()))
            merged = before if last is None else last[0]
        others = begin.elsewhere()
        passed = tuple(sorted(self._passed_by)) if is_merged else ()
        return Begin(
            BeginKind.POSITION, tuple(ticks.items()), others.clock, others.kind, merged, passed
        )

    def _subscribed(self, notice: Any) -> None:
        if isinstance(notice, Refused):
            if notice.home is not None:
                self._move_here(notice.home)
            else:
                self.end(refusal(notice))
            return
        answer: Subscribed = Link.expect(notice, Subscribed)
        if self.is_started and answer.seeks != self._seeks:
            # its events would look like repetitions here, or like a gap
            self.end(TakenOverError(_moved(self.name)))
            return
        self.is_new |= answer.is_new and not self.is_started
        self._seeks = answer.seeks
        self.home, self._owed = answer.home, answer.owed
        if answer.filter:
            if answer.filter != self.text:
                self.keep_beginnings(set())
            self.text, self._earlier = answer.filter, answer.earlier
        if self._settings.durable and self._beginning.kind is not BeginKind.POSITION:
            self._beginning = answer.begin  # it may have been made by another program
        for pubend, tick in answer.position:
            self._begin_at(pubend, tick)
        if self._audit is not None and self.link is not None and self.link.welcome is not None:
            broker = self.link.welcome.broker
            self._audit.opened(broker, self.text, answer.position, self.prefetch.received)
        self._waiting = {each.pubend: each.reason for each in answer.waiting}
        self._passed_by = dict.fromkeys(self._passed_by, False)  # which still are is told again
        self._resting = {
            each.pubend: after
            for each in answer.waiting
            if (after := self._resting.get(each.pubend) if each.after is None else each.after)
            is not None
        }
        # what rests before everything is to go on with the oldest that there is
        self._earliest.update(pubend for pubend, tick in self._resting.items() if tick == 0)
        if not self.is_started and self._settings.begin.kind is BeginKind.EARLIEST:
            self._earliest.update(pubend for pubend, _ in answer.position)
        self.is_answered = self.is_started = True
        if self._is_seeking:
            self._seek_again()
        if self._acked and self.link is not None:
            self.link.say(Ack(self.name, tuple(self._acked.items())))
        self._wake()

    def _move_here(self, home: Home) -> None:
        """Go on here: the subscription had moved before, and the answer that said so was lost.

        What this client knows of it is newer than what was taken along then. Who has answered last stays
        named in the token: only that broker knows what this client was told. Its own attempts count one by
        one; if it was not this client that moved it, another program has it, and the one that came last
        takes it over: one that has not moved yet.
        """
        last = home if self.home is None else self.home
        if self._has_moved and home.epoch > last.epoch + 1:
            self.end(
                TakenOverError(f"the subscription {self.name!r} was taken over at {home.broker}")
            )
            return
        self._has_moved = True
        self.home = Home(home.birth, home.epoch + 1, last.broker)
        self.link_up()

    def _begin_at(self, pubend: PubendId, tick: Tick) -> None:
        self._bases.setdefault(pubend, tick)
        if pubend not in self._floor:
            self.prefetch.begin(pubend, tick)

    def _seek_again(self) -> None:
        """Go back to where a durable subscription was sought to."""
        assert self.link is not None
        places = tuple(self.prefetch.received.items())
        request = Seek(self.link.numbers.next(), self.name, Begin(BeginKind.POSITION, places))
        self.link.ask(request, self._placed)

    def _placed(self, notice: Any) -> None:
        if isinstance(notice, Refused):
            self.end(refusal(notice))
            return
        Link.expect(notice, Subscribed)
        self._is_placed = True
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
        if self._floor:
            self._rise()
        if self._passed_by:
            self._forget_passed()
        if prefetch.repeated:
            self.give_credit()
        self._wake()

    def _rise(self) -> None:
        """Forget where streams were sought back from when that is reached again."""
        received = self.prefetch.received
        self._floor = {
            pubend: tick for pubend, tick in self._floor.items() if received.get(pubend, 0) < tick
        }

    def told(self, notice: Started | Stalled | Progress | Gap | Ended | Switched) -> None:
        """Take what the broker says of the subscription itself, of this visit."""
        if not self.is_answered:
            return
        if isinstance(notice, Ended) and notice.home is not None:
            self._move_here(notice.home)
            return
        if isinstance(notice, Ended):
            # what waits here was not acknowledged: it is for whoever has the subscription now
            kind = TooSlowError if notice.cause is Cause.TOO_SLOW else TakenOverError
            self.end(kind(notice.reason))
            return
        if isinstance(notice, Stalled):
            self._stalled(notice)
            return
        if isinstance(notice, Switched):
            self.switched(notice.filter, notice.position, notice.owed)
            return
        if self._is_seeking:
            return  # it is of the place that the subscription leaves
        if isinstance(notice, Progress):
            self._progressed(notice.position)
            return
        pubend = notice.pubend
        if isinstance(notice, Started):
            self._waiting.pop(pubend, None)
            self._begin_at(pubend, notice.after)
            if self._audit is not None:
                self._audit.started(pubend, notice.after)
        else:
            self._lost(notice)
        self._wake()

    def _lost(self, notice: Gap) -> None:
        """Take a gap; what was gone before the oldest that was asked for is none."""
        pubend = notice.pubend
        is_expected = pubend in self._earliest and notice.low <= 1
        if is_expected:
            self._bases[pubend] = max(notice.high, self._bases.get(pubend, 0))
            self.prefetch.begin(pubend, notice.high)
        else:
            self.prefetch.lose(pubend, notice.low, notice.high)
        self._forget_passed()
        if self._audit is not None:
            self._audit.lost(pubend, notice.low, notice.high, expected=is_expected)

    def switched(self, text: str, position: PositionTuple, owed: Owed | None) -> None:
        """Another filter governs after a position, and is owed what is younger."""
        if text != self.text:
            if self._settings.durable:
                self._earlier += (Governed(self.text, position),)
            self.keep_beginnings({*dict(position)})
        self.text, self._owed = text, owed
        if self._audit is not None:
            self._audit.switched(text, position)

    def keep_beginnings(self, named: set[PubendId]) -> None:
        """Streams that wait begin where that was asked for; on others a new filter begins with the latest."""
        begin = self._beginning
        if begin.kind is BeginKind.EARLIEST or begin.kind is BeginKind.TIME:
            after = max(0, begin.clock - 1)
            waiting = {*self._waiting, *named} - self.prefetch.received.keys()
            self._resting = {**dict.fromkeys(sorted(waiting), after), **self._resting}
            if begin.kind is BeginKind.EARLIEST:
                self._earliest |= waiting
            self._beginning = Begin()

    def _progressed(self, position: PositionTuple) -> None:
        """Nothing was there for us up to here: go on from there after a lost connection."""
        for pubend, tick in position:
            if self._settings.durable:
                self._note_quiet(pubend, tick)
            self.prefetch.begin(pubend, tick)
        self._forget_passed()
        if self._audit is not None:
            self._audit.progressed(position)
        if self._floor:
            self._rise()

    def _note_quiet(self, pubend: PubendId, tick: Tick) -> None:
        """If all that came is acknowledged, so is that nothing came since (MV-13).

        Until then the broker keeps the log: if it dies, no other knows that nothing was there.
        """
        received = self.prefetch.received.get(pubend, 0)
        came, told = self._quiet.get(pubend, (received, received))
        last = came if told == received else received
        self._quiet[pubend] = (last, tick)
        if max(self._acked.get(pubend, 0), self._bases.get(pubend, 0)) >= last:
            self.acknowledge({pubend: tick})

    def _stalled(self, notice: Stalled) -> None:
        """A stream stands still, or goes on; the others are as they were."""
        if notice.reason:
            self._waiting[notice.pubend] = notice.reason
        else:
            self._waiting.pop(notice.pubend, None)
        if notice.passed:
            if notice.pubend not in self._passed_by and not self._is_seeking:
                self._level(notice.pubend)
            self._passed_by[notice.pubend] = True
        elif notice.pubend in self._passed_by:
            self._passed_by[notice.pubend] = False

    def _level(self, pubend: PubendId) -> None:
        """Note that a stream was looked at up to the last event, before the others go on without it."""
        tick = self.prefetch.level_of(pubend)
        if self.prefetch.received.get(pubend, tick) < tick:
            self._progressed(((pubend, tick),))

    def _forget_passed(self) -> None:
        """Forget that streams were passed by that are back, and as far as the others."""
        self._passed_by = {
            pubend: still
            for pubend, still in self._passed_by.items()
            if still or self.prefetch.received.get(pubend, 0) < self.prefetch.level_of(pubend)
        }


def _moved(name: str) -> str:
    return (
        f"an operator moved the subscription {name!r} to another position; "
        "subscribe again to go on from there"
    )
