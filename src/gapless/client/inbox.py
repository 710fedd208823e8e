"""The inbox of a subscription: its requests and what it has received, over all connections.

:mod:`.subscription_state` has the states and the theory of operation, :mod:`.resume` where the
subscription continues, :mod:`.requested_filter` the filter and its changes, :mod:`.hosting` the hosting
reference of a durable subscription, :mod:`.prefetch` the events that wait to be handed out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gapless.client.finding import ELSEWHERE, find_wait_ms
from gapless.client.hosting import ClientHosting
from gapless.client.inbox_texts import moved, other_order
from gapless.client.link import ReconnectingLink, SubscriptionNotice
from gapless.client.prefetch import Prefetch
from gapless.client.requested_filter import RequestedFilter
from gapless.client.requests import refusal
from gapless.client.resume import ResumeState
from gapless.client.settings import SubscriptionOptions
from gapless.client.subscription_state import (
    NEXT_STATE,
    TAKEN,
    ClientSubscriptionInput,
    ClientSubscriptionState,
)
from gapless.core.errors import (
    ClosedError,
    FencedError,
    GaplessError,
    RefusedError,
    SlowConsumerError,
    UsageError,
)
from gapless.core.ids import PubendId
from gapless.core.limits import ACK_PUBENDS_MAX
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Ack,
    Closed,
    Credit,
    Delivery,
    FilterChanged,
    FilterSet,
    Gap,
    HostingReference,
    LeaveSubscription,
    Order,
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
    Unsubscribe,
)

if TYPE_CHECKING:
    from gapless.audit.clients import ClientAudit, SubscriptionAudit

__all__ = ["Inbox"]

_State = ClientSubscriptionState
_Input = ClientSubscriptionInput


class Inbox:
    """One subscription as its broker knows it, and the events that have come."""

    def __init__(
        self,
        name: str,
        text: str | None,
        settings: SubscriptionOptions,
        *,
        on_end: Callable[[], None],
    ) -> None:
        self.name = name
        self.filter = RequestedFilter(text, durable=settings.durable)
        self.prefetch = Prefetch(settings.prefetch)
        self.half = (settings.prefetch + 1) // 2
        """The broker gets new credit when at least so many events fit into the prefetch."""
        self.link: ReconnectingLink | None = None
        """None until the subscription is opened."""
        self.error: GaplessError | None = None
        """Why the subscription is over; only in OVER."""
        self.is_started = False
        """Whether a broker has ever replied to Subscribe."""
        self.is_new = False
        """Whether opening has created the durable subscription."""
        self._state = _State.UNOPENED
        self._taken = TAKEN[_State.UNOPENED]
        self._settings = settings
        self._on_end = on_end
        self._audit: SubscriptionAudit | None = None
        self._hosting = ClientHosting()
        self._resume = ResumeState(settings, self.prefetch)
        self._seek_count = 0
        """How many operator seeks the last reply counted."""
        self._seek_request = 0
        """The request number of the Seek of RESEEKING."""
        self._refused: Refused | None = None
        """Why the broker that was asked last does not host the subscription."""
        self._waiters: set[asyncio.Future[None]] = set()

    # --- states --------------------------------------------------------------------------------

    @property
    def state(self) -> ClientSubscriptionState:
        """What the subscription has requested, and whether events come."""
        return self._state

    @property
    def is_answered(self) -> bool:
        """Whether the broker has replied to Subscribe on this connection."""
        return self._state is _State.ACTIVE or self._state is _State.RESEEKING

    @property
    def is_over(self) -> bool:
        """Whether it was closed or cannot continue."""
        return self._state is _State.OVER

    def _take(self, given: ClientSubscriptionInput) -> ClientSubscriptionState:
        following = NEXT_STATE.get((self._state, given))
        assert following is not None, f"{given} in {self._state}"
        self._state, self._taken = following, TAKEN[following]
        return following

    @property
    def text(self) -> str | None:
        """The newest filter; None until the broker has sent the one that a subscription has."""
        return self.filter.text

    @property
    def order(self) -> Order:
        """The order in which the events come."""
        return self._resume.order

    @property
    def hosting(self) -> HostingReference | None:
        """The reference that a durable subscription presents at another broker (MV-13)."""
        return self._hosting.reference

    @property
    def pending(self) -> dict[str, str]:
        """Pubends from which no events can come now, and why."""
        return {str(pubend): reason for pubend, reason in self._resume.pending.items()}

    # --- opening and ending --------------------------------------------------------------------

    def write_to(self, audit: ClientAudit) -> None:
        """Record everything that comes in an audit log."""
        self._audit = audit.subscription(self.name, durable=self._settings.durable)
        self.prefetch.report_to(self._audit.received)

    def open_over(self, link: ReconnectingLink) -> None:
        """Subscribe over a link, whenever it is up."""
        if not self._settings.take_over and link.has_listener(self.name):
            raise RefusedError(
                f"this session has the subscription {self.name!r} already; close it first"
            )
        self._take(_Input.OPENED)
        self.link = link
        link.listen(self.name, self)
        link.add(self)

    async def answered(self) -> Refused | None:
        """Wait for the first reply; return None, or why the broker does not host it."""
        while not self.is_started:
            self.check()
            refused, self._refused = self._refused, None
            if refused is not None:
                return refused
            await self.arrival()
        return None

    def end(self, error: GaplessError) -> None:
        """End for good; waiting calls get the error."""
        if self._state is _State.OVER:
            return
        self._take(_Input.ENDED)
        self.error = error
        self.prefetch.drop()
        if self._audit is not None:
            self._audit.ended(self.prefetch.received)
        if self.link is not None:
            self.link.remove(self)
            self.link.stop_listening(self.name, self)
        self._on_end()
        self._wake()

    def leave(self) -> None:
        """Let the broker continue without this client, before the end."""
        assert self.link is not None
        if self._settings.durable:
            self.link.send(LeaveSubscription(self.name))
        else:
            self.link.request(Unsubscribe(self.link.numbers.next(), self.name), _ignore)

    def check(self) -> None:
        """Raise the error with which the subscription ended, if it has ended."""
        if self.error is not None:
            raise self.error

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def arrival(self) -> None:
        """Wait until something has come, or the subscription is over."""
        if self.link is None:
            raise ClosedError("open the subscription first, as a block")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    # --- what the program does -----------------------------------------------------------------

    def give_credit(self) -> None:
        """Send credit if at least half of the prefetch is free."""
        if self.prefetch.free < self.half or self._state is not _State.ACTIVE:
            return
        assert self.link is not None
        self.link.send(Credit(self.name, self.prefetch.grant()))

    def acknowledge(self, ticks: dict[PubendId, Tick]) -> None:
        """Send the acknowledgements that are new to the broker."""
        newer = self._resume.acknowledge(ticks)
        if newer and self._audit is not None:
            self._audit.acked(newer)
        if newer and self.is_answered:
            self._send_acks(tuple(newer.items()))
        self._acknowledge_ends()

    def end_handed(self, pubend: PubendId, tick: Tick) -> None:
        """The program was handed the end of a closed pubend."""
        self._resume.end_handed(pubend, tick)
        self._acknowledge_ends()

    def _acknowledge_ends(self) -> None:
        due = self._resume.due_ends()  # also of ticks that are not new to the broker
        if due and self.is_answered:
            self._send_acks(tuple(due.items()))

    def _send_acks(self, position: PositionTuple) -> None:
        assert self.link is not None
        for first in range(0, len(position), ACK_PUBENDS_MAX):
            self.link.send(Ack(self.name, position[first : first + ACK_PUBENDS_MAX]))

    def repositioned(self, position: PositionTuple, kind: StartKind) -> None:
        """A seek was executed: everything that comes from now on is after its position."""
        self._take(_Input.SEEK_DONE)
        handed = self.prefetch.handed()
        self._resume.repositioned(dict(position), kind)
        if self._audit is not None:
            self._audit.repositioned(handed, position, self.prefetch.received)
        if self._state is _State.RESEEKING:
            self._reseek()  # the broker executes the earlier Seek after the program's
        self.give_credit()

    def filter_set(self, text: str, reply: FilterSet) -> None:
        """The broker has made the filter change that the program requested."""
        if self.filter.changed(text):
            self._resume.keep_starts({*reply.pending, *dict(reply.position)})
        self._filter_changed(text, reply.position, reply.start_guarantees)

    # --- the link ------------------------------------------------------------------------------

    def link_up(self) -> None:
        """Subscribe, from what was received."""
        if self._take(_Input.LINK_UP) is not _State.OVER:
            self._subscribe()

    def link_down(self) -> None:
        """Nothing comes until the link is up again."""
        self._take(_Input.LINK_DOWN)

    def link_over(self, error: GaplessError) -> None:
        """There will be no connection any more."""
        self.end(error)

    def _subscribe(self) -> None:
        """Send Subscribe, with credit unless the broker would continue at the wrong position."""
        assert self.link is not None
        settings, hosting = self._settings, self._hosting.reference
        if self.filter.is_changing and not settings.durable:
            self._resume.keep_starts(set())  # it starts again, with the requested filter
        self.prefetch.disconnected()
        credit = 0 if self._resume.is_sought_back else self.prefetch.grant()
        request = Subscribe(
            self.link.numbers.next(),
            self.name,
            self.filter.text,
            settings.durable,
            self._resume.start_point(),
            self._resume.order,
            credit,
            settings.expiry_s,
            self._seek_count,
            hosting,
            *(((), (), None) if hosting is None else self._resume.presented()),
            take_over=settings.take_over or self.is_started,
            create=settings.create,
            wait_ms=find_wait_ms(settings.deadline_s) if settings.durable else 0,
        )
        handshake = self.link.handshake
        if handshake is not None:
            self._hosting.requested_at(handshake.broker)
        self._request(request, self._subscribed)

    def _request(self, request: Subscribe | Seek, then: Callable[[Any], None]) -> None:
        """Send a request; end if it is too large for the broker, because nothing could be repeated."""
        assert self.link is not None
        try:
            self.link.request(request, then)
        except UsageError as error:
            self.end(error)

    def _subscribed(self, notice: Any) -> None:
        if self._state is _State.OVER:
            return
        if isinstance(notice, Refused):
            if not self.is_started and notice.cause in ELSEWHERE:
                self._redirected(notice)
            elif notice.hosting is not None:
                self._follow(notice.hosting)
            else:
                self.end(refusal(notice))
            return
        answer: Subscribed = ReconnectingLink.expect(notice, Subscribed)
        if self.is_started and answer.seek_count != self._seek_count:
            # the events would look like repetitions, or like a gap
            self.end(FencedError(moved(self.name)))
            return
        requested = self._settings.order
        if (
            not self.is_started
            and answer.order is not None
            and requested not in {None, answer.order}
        ):
            self.leave()
            self.end(UsageError(other_order(self.name, answer.order)))
            return
        self.is_new |= answer.is_new and not self.is_started
        self._seek_count = answer.seek_count
        self._hosting.confirmed(answer.hosting)
        text = answer.filter if self.filter.text is None else self.filter.text
        self._resume.subscribed(answer, text, is_first=not self.is_started)
        if answer.filter:
            self.filter.replace(answer.filter)
        if self._audit is not None and self.link is not None and self.link.handshake is not None:
            broker = self.link.handshake.broker
            text = answer.filter or text
            total = self.order is Order.TOTAL
            self._audit.opened(broker, text, answer.position, self.prefetch.received, total=total)
        self.is_started = True
        if self._resume.is_sought_back:
            self._take(_Input.SUBSCRIBED_BEHIND)
            self._reseek()
        else:
            self._take(_Input.SUBSCRIBED)
        self._send_acks(self._resume.acked)
        self._wake()

    def _redirected(self, notice: Refused) -> None:
        """Leave the link: the subscription has no state with which it could be taken over."""
        assert self.link is not None
        self._take(_Input.REDIRECTED)
        self.link.remove(self)
        self.link.stop_listening(self.name, self)
        self._refused = notice
        self._wake()

    def _follow(self, hosting: HostingReference) -> None:
        """Subscribe with the next epoch, unless another program has the subscription."""
        if not self._hosting.follow(hosting):
            self.end(
                FencedError(f"the subscription {self.name!r} was taken over at {hosting.broker}")
            )
            return
        self._take(_Input.HOSTED_ELSEWHERE)
        self._subscribe()

    def _reseek(self) -> None:
        """Return to the position to which the program has sought back."""
        assert self.link is not None
        self.link.forget(self._seek_request)
        self._seek_request = self.link.numbers.next()
        start = StartPoint(StartKind.POSITION, tuple(self.prefetch.received.items()))
        self._request(Seek(self._seek_request, self.name, start), self._reseek_done)

    def _reseek_done(self, notice: Any) -> None:
        if self._state is not _State.RESEEKING:
            return  # the subscription was requested again, or has ended
        if isinstance(notice, Refused):
            self.end(refusal(notice))
            return
        ReconnectingLink.expect(notice, Subscribed)
        self._take(_Input.RESEEK_DONE)
        self.give_credit()

    # --- notices of the broker -----------------------------------------------------------------

    def delivered(self, notice: Delivery) -> None:
        """Take events."""
        if Delivery not in self._taken:
            return
        prefetch = self.prefetch
        prefetch.take(notice.runs)
        self._resume.events_taken()
        if prefetch.repeated:
            self.give_credit()
        self._wake()

    def notified(self, notice: SubscriptionNotice) -> None:
        """Process a notice about the subscription itself."""
        if type(notice) not in self._taken:
            return
        match notice:
            case SubscriptionEnded():
                self._ended(notice)
            case Stalled():
                self._stalled(notice)
            case FilterChanged():
                self._filter_changed(notice.filter, notice.position, notice.start_guarantees)
            case Progress():
                self._progressed(notice.position)
            case SubscriptionStarted():
                self._resume.started(notice.pubend, notice.after)
                if self._audit is not None:
                    self._audit.started(notice.pubend, notice.after)
                self._wake()
            case Closed():
                if self._resume.take_end(notice.pubend, notice.last):
                    self.prefetch.add_end(notice.pubend, notice.last)
                    self._wake()
            case Gap():
                is_expected = self._resume.take_gap(notice)
                if self._audit is not None:
                    self._audit.gap_reported(
                        notice.pubend, notice.low, notice.high, expected=is_expected
                    )
                self._wake()

    def _ended(self, notice: SubscriptionEnded) -> None:
        """The broker has ended the subscription: follow it to another broker, or end."""
        if notice.hosting is not None:
            self._follow(notice.hosting)
            return
        # prefetched events are not acknowledged: the new owner of the subscription receives them
        kind = SlowConsumerError if notice.cause is RefusalCause.SLOW_CONSUMER else FencedError
        self.end(kind(notice.reason))

    def _filter_changed(
        self, text: str, position: PositionTuple, start_guarantees: StartGuarantees | None
    ) -> None:
        """Another filter applies after a position, with new guarantees for pubends without one."""
        before = self.filter.text
        assert before is not None, "a filter changes after the subscription has started"
        self._resume.filter_changed(before, text, position, start_guarantees)
        self.filter.replace(text)
        if self._audit is not None:
            self._audit.filter_changed(text, position)

    def _progressed(self, position: PositionTuple) -> None:
        """No event matched up to here: a lost connection is resumed from here."""
        for pubend, tick in position:
            if self._settings.durable and self._resume.note_quiet(pubend, tick):
                self.acknowledge({pubend: tick})
            self.prefetch.start(pubend, tick)
        if self._audit is not None:
            self._audit.progressed(position)
        self._resume.events_taken()

    def _stalled(self, notice: Stalled) -> None:
        """A stream has stalled or continues."""
        is_excluded = self._resume.stalled(notice)
        if not is_excluded or self._state is not _State.ACTIVE:
            return
        # the stream was examined up to the last event before the others continue without it
        tick = self.prefetch.level_of(notice.pubend)
        if self.prefetch.received.get(notice.pubend, tick) < tick:
            self._progressed(((notice.pubend, tick),))


def _ignore(notice: Any) -> None:
    """The answer is not needed."""
