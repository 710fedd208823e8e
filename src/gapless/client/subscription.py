"""Subscriptions: matching events as an asynchronous iterator, resumed after every lost connection.

This module has the calls of the program. The :mod:`.inbox` has the requests to the broker and what
has come.

The broker stores a durable subscription, which is hosted there until failover. A subscription that
is not durable continues wherever the session connects.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from gapless.client.arguments import check_filter, check_whole
from gapless.client.event import Event
from gapless.client.finding import HostSearch
from gapless.client.inbox import Inbox
from gapless.client.link import ReconnectingLink
from gapless.client.options import Unset, chosen
from gapless.client.position import Position
from gapless.client.prefetch import Item, PrefetchedEnd, PrefetchedGap
from gapless.client.settings import Acknowledge, OnGap, SubscriptionOptions
from gapless.client.starts import Start, start_point_of
from gapless.client.subscription_state import ClientSubscriptionState
from gapless.content.filter import Filter
from gapless.core.errors import (
    ClosedError,
    DeadlineError,
    GapError,
    GaplessError,
    RefusedError,
    UsageError,
    shown_value,
)
from gapless.core.ids import PubendId
from gapless.core.limits import GAPS_KEPT
from gapless.messages.clients import (
    FilterSet,
    Order,
    Seek,
    SetFilter,
    StartKind,
    StartPoint,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from gapless.messages.operating import GetSubscription, SubscriptionReply

if TYPE_CHECKING:
    from gapless.client.session import Session

__all__ = ["Acknowledge", "OnGap", "Subscription", "SubscriptionOptions"]

ACK_S: Final = 0.2
"""How long an acknowledgement may wait, so that one message covers many events."""

_NO_DEADLINE = Unset()


class Subscription:
    """Matching events. Made by :meth:`Session.subscribe`; use it with ``async with``.

    It is for one consumer. ``async for`` gives one event at a time, :meth:`batches` all that have
    come. An event counts as done when the next one is requested.
    """

    def __init__(
        self, session: Session, name: str, filter: str | None, settings: SubscriptionOptions
    ) -> None:
        self.name = name
        self.gaps: deque[GapError] = deque(maxlen=GAPS_KEPT)
        """The gaps, if they are reported and not raised."""
        self.closed: dict[str, int] = {}
        """The closed pubends of which everything was handed out, each with its last tick; 0 under
        best effort. The oldest are dropped beyond ``GAPS_KEPT``."""
        self.filter_changed_at: Position | None = None
        """If it is durable and was opened with a filter: the position after which that filter
        surely applies."""
        self._session = session
        self._settings = settings
        self._inbox = Inbox(name, filter, settings, on_end=self._ended)
        self._prefetch = self._inbox.prefetch
        self._done: Item | None = None
        self._auto = settings.durable and settings.ack == "auto"
        self._timer: asyncio.TimerHandle | None = None
        self._changing = asyncio.Lock()

    # --- opening and closing -------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Subscribe; return when the subscription has started on all reachable pubends."""
        inbox = self._inbox
        if inbox.state is not ClientSubscriptionState.UNOPENED:
            raise ClosedError("a subscription is opened once; make another with the session")
        deadline_s, filter_text = self._settings.deadline_s, inbox.text
        search = self._session.search_for(self.name)
        try:
            async with asyncio.timeout(deadline_s):
                if self._session.audit is not None:
                    inbox.write_to(self._session.audit)
                await self._open(search)
        except TimeoutError:
            waited_for = self._inbox.link or self._session.main
            error = search.late("Subscribe", deadline_s, waited_for)
            self._leave(error)
            raise error from None
        except BaseException:
            self._leave(ClosedError("the subscription was not opened"))
            raise
        self._session.opened(self)
        if inbox.is_new and inbox.text == filter_text:
            self.filter_changed_at = self.position  # the filter applies from the start on
        elif self._settings.durable and filter_text is not None:
            # it existed, and may have another filter
            try:
                self.filter_changed_at = await self._change_filter(filter_text, deadline_s)
            except BaseException:
                self._leave(ClosedError("the subscription was not opened"))
                raise
        return self

    async def _open(self, search: HostSearch) -> None:
        """Subscribe, at another broker if that hosts the subscription (MV-15)."""
        inbox, durable = self._inbox, self._settings.durable
        link = await self._session.link_for(durable=durable)
        while True:
            inbox.check()
            inbox.open_over(link)
            refused = await inbox.answered()
            if refused is None:
                return
            found = await search.next_link(refused)
            link = found or await self._session.link_for(durable=durable)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; without an exception, everything that was handed out counts as done."""
        await self.close(done=kind is None)

    async def close(self, *, done: bool = True) -> None:
        """Stop; a durable subscription is kept by its broker and can be resumed later.

        If all that was handed out is ``done``, it is acknowledged, unless ``ack`` is manual.
        """
        if self.is_over:
            return
        if done and self._prefetch.at is not None:
            self._done = self._prefetch.at
        if self._auto:
            self._acknowledge_done()
        self._leave(ClosedError("the subscription was closed"))

    def _leave(self, error: GaplessError) -> None:
        """End; at the broker a durable one stays, for any client, and another one ends too."""
        if not (self.is_over or self._inbox.link is None):
            self._inbox.leave()
        self._inbox.end(error)

    async def unsubscribe(self, *, deadline_s: float | Unset | None = _NO_DEADLINE) -> None:
        """End the subscription for good, also at the broker and on its disk."""
        link = self._opened()
        seconds = chosen(deadline_s, self._settings.deadline_s)
        link.remove(self._inbox)
        link.stop_listening(self.name, self._inbox)
        try:
            answer = await link.call(Unsubscribe(0, self.name, self._inbox.hosting), seconds)
            ReconnectingLink.expect(answer, Unsubscribed)
        except GaplessError as error:
            self._inbox.end(error)
            raise
        finally:
            self._inbox.end(ClosedError("the subscription was ended"))

    def _ended(self) -> None:
        """The inbox has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._session.closed(self)

    @property
    def is_over(self) -> bool:
        """Whether it was closed or cannot continue."""
        return self._inbox.is_over

    @property
    def is_new(self) -> bool:
        """If it is durable: whether opening has created it; else it continues where it was."""
        return self._inbox.is_new

    @property
    def order(self) -> Literal["publisher", "total"]:
        """The order of the events: of each pubend, or one of all pubends."""
        return "total" if self._inbox.order is Order.TOTAL else "publisher"

    @property
    def pending(self) -> dict[str, str]:
        """Pubends from which no events can come now, and why: the subscription has not started
        there yet, or the log is corrupt there.
        """
        return self._inbox.pending

    async def fetch_pending(
        self, *, deadline_s: float | Unset | None = _NO_DEADLINE
    ) -> dict[str, str]:
        """Query the broker: from which pubends no events can come now, and why.

        Beside the entries of ``pending``, these are started streams that are cut off: no broker on
        the path to their pubend can be reached. They lose nothing and continue when one can.
        """
        link, seconds = self._opened(), chosen(deadline_s, self._settings.deadline_s)
        found: dict[str, str] = {}
        after: PubendId | None = None
        while True:
            call = GetSubscription(0, self.name, after)
            answer = await link.call(call, seconds, changes=False)
            shown = ReconnectingLink.expect(answer, SubscriptionReply).entry
            for cursor in shown.cursors:
                after = cursor.pubend
                if cursor.pending_reason is not None:
                    found[str(after)] = cursor.pending_reason
            if not (shown.cursors and shown.cursors_omitted):
                return found

    def _opened(self) -> ReconnectingLink:
        self._inbox.check()
        if self._inbox.link is None:
            raise ClosedError("open the subscription first, as a block")
        return self._inbox.link

    # --- events --------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Return the next event; the one before counts as done."""
        inbox, prefetch = self._inbox, self._prefetch
        if self._auto:
            self._note_done()
        while True:
            while not prefetch.queue:
                if inbox.error is not None:
                    self._stop(inbox.error)
                await inbox.arrival()
            item = prefetch.pop()
            if prefetch.free >= inbox.half:
                inbox.give_credit()
            if type(item) is Event:
                return item
            self._report(item)

    async def get(self, *, deadline_s: float | Unset | None = _NO_DEADLINE) -> Event:
        """Return the next event, or raise DeadlineError if none comes in time."""
        seconds = chosen(deadline_s, self._settings.deadline_s)
        try:
            async with asyncio.timeout(seconds):
                return await self.__anext__()
        except TimeoutError:
            raise self._no_event(seconds) from None
        except StopAsyncIteration:
            raise ClosedError("the subscription is closed") from None

    async def next_batch(
        self, events_max: int | None = None, *, deadline_s: float | Unset | None = None
    ) -> list[Event]:
        """Return all events that have come, at least one; those of the batch before count as done.

        A gap ends a batch: the next call raises or reports it. The list is empty when the
        subscription is closed.
        """
        if events_max is None:
            events_max = self._prefetch.bound
        else:
            events_max = check_whole("events_max", events_max, 1)
        seconds = chosen(deadline_s, self._settings.deadline_s)
        if self._auto:
            self._note_done()
        try:
            if seconds is None:
                return await self._batch(events_max)
            async with asyncio.timeout(seconds):
                return await self._batch(events_max)
        except TimeoutError:
            raise self._no_event(seconds) from None
        except StopAsyncIteration:
            return []

    def _no_event(self, seconds: float | None) -> DeadlineError:
        link = self._inbox.link
        condition = "the subscription is not open" if link is None else link.condition
        return DeadlineError(f"no event came within {seconds:g} s: {condition}")

    async def _batch(self, events_max: int) -> list[Event]:
        inbox, prefetch = self._inbox, self._prefetch
        while True:
            found = prefetch.pop_many(events_max)
            if found:
                inbox.give_credit()
                return found
            if prefetch.queue:
                self._report(prefetch.pop())
            elif inbox.error is not None:
                self._stop(inbox.error)
            else:
                await inbox.arrival()

    async def batches(self, events_max: int | None = None) -> AsyncIterator[list[Event]]:
        """Yield all events that have come, again and again, as lists of at most ``events_max``."""
        while batch := await self.next_batch(events_max):
            yield batch

    def _stop(self, error: GaplessError) -> None:
        """End the iteration: without an error if the program closed it, else with the cause."""
        if isinstance(error, ClosedError):
            raise StopAsyncIteration
        raise error

    def _report(self, item: Item) -> None:
        """Report a gap, or the end of a pubend: the iteration continues with the others."""
        if isinstance(item, PrefetchedEnd):
            self.closed[str(item.run.pubend)] = item.last
            if len(self.closed) > GAPS_KEPT:
                del self.closed[next(iter(self.closed))]
            self._inbox.end_handed(item.run.pubend, item.high)
        else:
            assert isinstance(item, PrefetchedGap)
            self._report_gap(item)

    def _report_gap(self, gap: PrefetchedGap) -> None:
        error = GapError(gap.run.name, gap.low, gap.high)
        if self._settings.on_gap == "raise":
            raise error
        self.gaps.append(error)

    # --- acknowledging ---------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """The position of the application: everything up to here was handed out."""
        return Position.of(self._prefetch.handed())

    def position_after(self, event: Event | None) -> Position:
        """Return the position after an event; None: the position of the start or last seek."""
        if not (event is None or isinstance(event, Event)):
            raise UsageError(f"event is an Event or None, not {shown_value(event)}")
        return Position.of(self._prefetch.after(event))

    async def ack(self, done: Event | Position | None = None) -> None:
        """Acknowledge everything up to an event or a position.

        Without an argument: all that was handed out. What was not received is not acknowledged, also
        if a position is beyond it. The call does not wait for the broker;
        acknowledgements that are lost with a connection are sent again over the next one.
        """
        self._opened()
        if not self._settings.durable:
            raise UsageError("only a durable subscription is acknowledged; give it durable='name'")
        if isinstance(done, Event):
            ticks = done.run.after(done.tick)
        elif done is None:
            ticks = self._prefetch.handed()
        elif isinstance(done, Mapping):
            ticks = dict(Position(done).as_tuple())
        else:
            raise UsageError(f"done is an event or a position, not {shown_value(done)}")
        self._inbox.acknowledge(self._prefetch.bounded(ticks))

    def _note_done(self) -> None:
        at = self._prefetch.at
        if at is not self._done:
            self._done = at
            if self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(ACK_S, self._acknowledge_done)

    def _acknowledge_done(self) -> None:
        self._timer = None
        if self._done is not None:
            self._inbox.acknowledge(self._prefetch.after(self._done))

    # --- changing ------------------------------------------------------------------------------

    @property
    def filter(self) -> Filter:
        """The newest filter."""
        if self._inbox.text is None:
            raise ClosedError(
                f"open the subscription {self.name!r} first: its broker has its filter"
            )
        return Filter(self._inbox.text)

    async def set_filter(
        self, filter: str | Filter, *, deadline_s: float | Unset | None = _NO_DEADLINE
    ) -> Position:
        """Change the filter; return the position of the change.

        The old filter applies up to the position, the new one after it: nothing is lost, nothing
        comes twice. If the subscription is not durable and the connection is lost meanwhile, the
        new filter may apply before the position.
        """
        self._opened()
        text = str(check_filter("filter", filter))
        return await self._change_filter(text, chosen(deadline_s, self._settings.deadline_s))

    async def _change_filter(self, text: str, seconds: float | None) -> Position:
        link, inbox = self._opened(), self._inbox
        async with self._changing:
            inbox.filter.request(text)
            try:
                reply = await link.call(SetFilter(0, self.name, text), seconds)
                done = ReconnectingLink.expect(reply, FilterSet)
            except (RefusedError, DeadlineError, UsageError):  # it was not done
                inbox.filter.refused()
                raise
            except BaseException:
                inbox.filter.unknown()
                raise
            inbox.filter_set(text, done)
            return Position.of(dict(done.position))

    async def seek(
        self, start: Start, *, deadline_s: float | Unset | None = _NO_DEADLINE
    ) -> Position:
        """Continue at another position and return it. Waiting events are dropped.

        Streams that a position does not name continue where they are.
        """
        return await self.seek_then(start, deadline_s, _nothing)

    async def seek_then(
        self, start: Start, deadline_s: float | Unset | None, then: Callable[[], None]
    ) -> Position:
        """Seek, and call ``then`` at the point from which on events are after the new position."""
        link = self._opened()
        start_point = start_point_of(start)
        kind = start_point.kind
        if kind is StartKind.POSITION:
            ticks = {**self._prefetch.handed(), **dict(start_point.position)}
            start_point = StartPoint(kind, tuple(ticks.items()))

        def repositioned(notice: Any) -> None:
            self._done = None
            self._inbox.repositioned(ReconnectingLink.expect(notice, Subscribed).position, kind)
            then()

        seconds = chosen(deadline_s, self._settings.deadline_s)
        answer = await link.call(Seek(0, self.name, start_point), seconds, then=repositioned)
        return Position.of(dict(answer.position))


def _nothing() -> None:
    """Do nothing."""
