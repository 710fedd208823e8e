"""Subscriptions: matching events as an asynchronous iterator, resumed after every lost connection.

Theory of operation. Over each new connection the subscription is asked for again, under the same
name, from what was received; what waits to be handed out is kept. So nothing is lost and nothing
comes twice, whatever connection it came on. A durable subscription is also kept by its broker, which
is why it stays at that broker; one that is not durable goes on wherever the session connects.

States::

    NEW --asked and answered--> STARTED --connection lost--> ASKED AGAIN --answered--> STARTED
    any --closed, refused, taken over--> OVER

*Seeking back in a durable subscription.* The broker resumes a durable subscription behind what is
acknowledged. Who has sought back to before that must say so again after a reconnect; until that is
answered there is no credit, so nothing comes from the wrong place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from gapless.client.event import Event
from gapless.client.link import Link, refusal
from gapless.client.options import Unset, chosen
from gapless.client.position import Position
from gapless.client.prefetch import Item, Lost, Prefetch
from gapless.client.starts import Start, begin_of
from gapless.content.filter import Filter
from gapless.core.errors import (
    ClosedError,
    DeadlineError,
    GapError,
    GaplessError,
    RefusedError,
    TakenOverError,
    TooSlowError,
    UsageError,
)
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
    FilterSet,
    Gap,
    Order,
    PositionTuple,
    Refused,
    Seek,
    SetFilter,
    Stalled,
    Started,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)

if TYPE_CHECKING:
    from gapless.client.session import Session

__all__ = ["Acknowledge", "OnGap", "Settings", "Subscription"]

Acknowledge = Literal["auto", "manual"]
OnGap = Literal["raise", "report"]

ACK_S: Final = 0.2
"""How long what is done may wait for its acknowledgement, so that one message speaks for many."""

GAPS_KEPT: Final = 1_000
"""Gaps that were reported and not raised; the oldest go first."""

NUMBER_MAX: Final = 2**31 - 1
"""No option is larger: neither events that may wait, nor seconds."""

_NO_DEADLINE = Unset()


class Settings:
    """What a subscription was asked for, beside its filter."""

    __slots__ = ("ack", "begin", "deadline", "durable", "expiry_s", "on_gap", "order", "prefetch")

    def __init__(
        self,
        *,
        durable: bool,
        begin: Begin,
        order: Order,
        prefetch: int,
        ack: Acknowledge,
        on_gap: OnGap,
        expiry_s: int,
        deadline: float | None,
    ) -> None:
        _check_number("prefetch", prefetch)
        _check_number("expiry_s", expiry_s)
        if ack not in {"auto", "manual"}:
            raise UsageError(f"ack is 'auto' or 'manual', not {ack!r}")
        if on_gap not in {"raise", "report"}:
            raise UsageError(f"on_gap is 'raise' or 'report', not {on_gap!r}")
        self.durable = durable
        self.begin = begin
        self.order = order
        self.prefetch = prefetch
        self.ack = ack
        self.on_gap = on_gap
        self.expiry_s = expiry_s
        self.deadline = deadline


class Subscription:
    """Matching events, as they come. Made by :meth:`Session.subscribe`; use it with ``async with``.

    It is for one consumer. ``async for`` gives one event at a time, :meth:`batches` all that are
    there at once. An event counts as done when the next one is asked for.
    """

    def __init__(
        self, session: Session, name: str, wanted: str | Filter, settings: Settings
    ) -> None:
        self.name = name
        self.gaps: deque[GapError] = deque(maxlen=GAPS_KEPT)
        """Gaps that were met, if they are reported and not raised."""
        self.waiting: dict[str, str] = {}
        """Pubends of which nothing can come now, and why: it has not started there yet, or the log
        is damaged there."""
        self.switched: Position | None = None
        """Of a durable one: from where on the filter that it was opened with surely governs."""
        self._session = session
        self._text = _text_of(wanted)
        self._settings = settings
        self._link: Link | None = None
        self._prefetch = Prefetch(settings.prefetch)
        self._is_started = False
        """Whether it was ever answered."""
        self._is_answered = False
        """Whether it was answered on this connection."""
        self._is_placed = False
        """Whether it goes on from the right place on this connection."""
        self._half = (settings.prefetch + 1) // 2
        self._seeks = 0
        """How often an operator had moved it when it was last answered."""
        self._floor: dict[PubendId, Tick] = {}
        """Streams that were sought back: up to here the broker would pass over what is owed."""
        self._earliest: set[PubendId] = set()
        """Streams that go on with the oldest that the log has: what it has lost is no gap."""
        self._done: Item | None = None
        self._acked: dict[PubendId, Tick] = {}
        self._auto = settings.durable and settings.ack == "auto"
        self._timer: asyncio.TimerHandle | None = None
        self._arrived: asyncio.Future[None] | None = None
        self._error: GaplessError | None = None
        self._is_closed = False
        self._changing = asyncio.Lock()

    # --- opening and closing -------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Subscribe; return when it has started on all pubends that are in reach."""
        if self._link is not None or self._is_closed:
            raise ClosedError("a subscription is opened once; ask the session for another")
        deadline = self._settings.deadline
        try:
            async with asyncio.timeout(deadline):
                link = self._link = await self._session.link_for(durable=self._settings.durable)
                link.listen(self.name, self)
                link.add(self)
                while not self._is_started:
                    self._check()
                    await self._arrival()
        except TimeoutError:
            link = self._link or self._session.main
            error = link.late("Subscribe", deadline, sent=False)
            self._leave(error)
            raise error from None
        except BaseException:
            self._leave(ClosedError("the subscription was not opened"))
            raise
        self._session.opened(self)
        if self._settings.durable:
            # it may be there already, with another filter
            try:
                self.switched = await self._change_filter(self._text, deadline)
            except BaseException:
                self._leave(ClosedError("the subscription was not opened"))
                raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave; without an exception, everything that was handed out counts as done."""
        await self.close(done=kind is None)

    async def close(self, *, done: bool = True) -> None:
        """Stop; a durable subscription stays at its broker, to be gone on with later.

        If all that was handed out is ``done``, it is acknowledged, where that is automatic.
        """
        if self._is_closed:
            return
        if done and self._prefetch.at is not None:
            self._done = self._prefetch.at
        if self._auto and self._error is None:
            self._acknowledge_done()
        self._leave(ClosedError("the subscription was closed"))

    def _leave(self, error: GaplessError) -> None:
        """End; the broker need not send any more, and keeps it if it is durable."""
        if not (self._is_closed or self._settings.durable or self._link is None):
            number = self._link.numbers.next()
            self._link.ask(Unsubscribe(number, self.name), _ignore)
        self._end(error)

    async def unsubscribe(self, *, deadline: float | Unset | None = _NO_DEADLINE) -> None:
        """End it for good, also at the broker and on its disk."""
        link = self._opened()
        seconds = chosen(deadline, self._settings.deadline)
        link.remove(self)
        try:
            answer = await link.call(Unsubscribe(0, self.name), seconds)
            Link.expect(answer, Unsubscribed)
        except GaplessError as error:
            self._end(error)
            raise
        finally:
            self._end(ClosedError("the subscription was ended"))

    def _end(self, error: GaplessError) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._error = self._error or error
        self._prefetch.drop()
        if self._link is not None:
            self._link.remove(self)
            self._link.stop_listening(self.name, self)
        if self._timer is not None:
            self._timer.cancel()
        self._session.closed(self)
        self._wake()

    def _fail(self, error: GaplessError) -> None:
        """It is over, and not because its user wanted that."""
        self._end(error)

    @property
    def is_over(self) -> bool:
        """Whether it was closed, or cannot go on."""
        return self._is_closed

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _opened(self) -> Link:
        self._check()
        if self._link is None:
            raise ClosedError("open the subscription with 'async with' first")
        return self._link

    # --- events --------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Return the next event; the one before is done."""
        prefetch = self._prefetch
        if self._auto:
            self._note_done()
        while True:
            while not prefetch.queue:
                if self._error is not None:
                    self._stop()
                await self._arrival()
            item = prefetch.pop()
            if prefetch.free >= self._half:
                self._give_credit()
            if type(item) is Event:
                return item
            assert isinstance(item, Lost)
            self._meet(item)

    async def get(self, *, deadline: float | Unset | None = _NO_DEADLINE) -> Event:
        """Return the next event, or raise DeadlineError if none comes in time."""
        seconds = chosen(deadline, self._settings.deadline)
        try:
            async with asyncio.timeout(seconds):
                return await self.__anext__()
        except TimeoutError:
            raise DeadlineError(f"no event came within {seconds:g} s") from None
        except StopAsyncIteration:
            raise ClosedError("the subscription is closed") from None

    async def next_batch(
        self, most: int | None = None, *, deadline: float | Unset | None = None
    ) -> list[Event]:
        """Return all events that are there, at least one; those of the batch before are done.

        A gap ends a batch: it is raised, or reported, by the call after. The list is empty when the
        subscription is closed.
        """
        if most is not None and most < 1:
            raise UsageError(f"a batch has at least one event; {most} cannot be the most")
        seconds = chosen(deadline, self._settings.deadline)
        prefetch = self._prefetch
        if self._auto:
            self._note_done()
        try:
            async with asyncio.timeout(seconds):
                while True:
                    found = prefetch.pop_many(prefetch.bound if most is None else most)
                    if found:
                        self._give_credit()
                        return found
                    if prefetch.queue:
                        lost = prefetch.pop()
                        assert isinstance(lost, Lost)
                        self._meet(lost)
                    elif self._error is not None:
                        self._stop()
                    else:
                        await self._arrival()
        except TimeoutError:
            raise DeadlineError(f"no event came within {seconds:g} s") from None
        except StopAsyncIteration:
            return []

    async def batches(self, most: int | None = None) -> AsyncIterator[list[Event]]:
        """Give all events that are there, again and again, as lists of at most so many."""
        while batch := await self.next_batch(most):
            yield batch

    def _stop(self) -> None:
        """End the iteration: quietly if the user wanted it, else with the reason."""
        assert self._error is not None
        if isinstance(self._error, ClosedError):
            raise StopAsyncIteration
        raise self._error

    def _meet(self, lost: Lost) -> None:
        error = GapError(lost.run.name, lost.low, lost.high)
        if self._settings.on_gap == "raise":
            raise error
        self.gaps.append(error)

    def _give_credit(self) -> None:
        """Let the broker send more, if that is worth a message."""
        if self._prefetch.free < self._half or not self._is_answered or self._is_seeking:
            return
        assert self._link is not None
        self._link.say(Credit(self.name, self._prefetch.grant()))

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
        self._arrived = None

    async def _arrival(self) -> None:
        """Wait until something has come, or it is over."""
        if self._link is None:
            raise ClosedError("open the subscription with 'async with' first")
        if self._arrived is None:
            self._arrived = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._arrived)

    # --- acknowledging ---------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Where the application is: everything up to here was handed out."""
        return Position.of(self._prefetch.handed())

    async def ack(self, done: Event | Position | None = None) -> None:
        """Say that the application needs no more what is up to an event or a position.

        Without an argument: all that was handed out. The broker is not waited for; what is lost with
        a connection is said again over the next one.
        """
        self._check()
        if not self._settings.durable:
            raise UsageError("only a durable subscription is acknowledged; give it durable='name'")
        if isinstance(done, Event):
            ticks = done.run.after(done.tick)
        elif done is None:
            ticks = self._prefetch.handed()
        else:
            ticks = dict(Position(done).as_tuple())
        self._acknowledge(ticks)

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
            self._acknowledge(self._prefetch.after(self._done))

    def _acknowledge(self, ticks: dict[PubendId, Tick]) -> None:
        news = {each: tick for each, tick in ticks.items() if tick > self._acked.get(each, -1)}
        self._acked.update(news)
        if news and self._is_answered and self._link is not None:
            self._link.say(Ack(self.name, tuple(news.items())))

    # --- changing ------------------------------------------------------------------------------

    @property
    def filter(self) -> Filter:
        """The filter that governs in the end."""
        return Filter(self._text)

    async def set_filter(
        self, wanted: str | Filter, *, deadline: float | Unset | None = _NO_DEADLINE
    ) -> Position:
        """Change the filter; return the position of the change.

        Up to the position the old filter governs, after it the new one: nothing is lost, nothing
        comes twice. If the subscription is not durable and the connection is lost meanwhile, the new
        filter may have begun before the position.
        """
        self._opened()
        text = _text_of(wanted)
        return await self._change_filter(text, chosen(deadline, self._settings.deadline))

    async def _change_filter(self, text: str, seconds: float | None) -> Position:
        link = self._opened()
        async with self._changing:
            before = self._text
            if not self._settings.durable:
                self._text = text  # what it begins anew with, should the connection be lost
            try:
                answer = await link.call(SetFilter(0, self.name, text), seconds)
            except (RefusedError, DeadlineError):  # it was surely not done
                self._text = before
                raise
            self._text = text
            return Position.of(dict(Link.expect(answer, FilterSet).position))

    async def seek(
        self, start: Start, *, deadline: float | Unset | None = _NO_DEADLINE
    ) -> Position:
        """Go on from another place; return it. What waits to be handed out is dropped.

        Streams that a position does not name go on where they are.
        """
        link = self._opened()
        begin = begin_of(start)
        kind = begin.kind
        if kind is BeginKind.POSITION:
            ticks = {**self._prefetch.handed(), **dict(begin.position)}
            begin = Begin(kind, tuple(ticks.items()))

        def sought(notice: Any) -> None:
            self._sought(Link.expect(notice, Subscribed).position, kind)

        seconds = chosen(deadline, self._settings.deadline)
        answer = await link.call(Seek(0, self.name, begin), seconds, then=sought)
        return Position.of(dict(answer.position))

    def _sought(self, position: PositionTuple, kind: BeginKind) -> None:
        """Go on where the broker does; whatever comes from now on is from there."""
        prefetch, ticks = self._prefetch, dict(position)
        for pubend, tick in ticks.items():
            reached = max(prefetch.received.get(pubend, 0), self._floor.get(pubend, 0))
            if tick < reached:
                self._floor[pubend] = reached
            else:
                self._floor.pop(pubend, None)
        self._earliest = set(ticks) if kind is BeginKind.EARLIEST else self._earliest - set(ticks)
        self._done = None
        self._is_placed = True
        prefetch.place(ticks)
        self._give_credit()

    # --- the link ------------------------------------------------------------------------------

    @property
    def _is_seeking(self) -> bool:
        """Whether the broker is to be told again where a durable subscription was sought back to."""
        return bool(self._settings.durable and self._floor and not self._is_placed)

    def link_up(self) -> None:
        """Subscribe, or go on from what was received."""
        assert self._link is not None
        settings, prefetch = self._settings, self._prefetch
        self._is_answered = False
        self._is_placed = False
        prefetch.disconnected()
        credit = 0 if self._is_seeking else prefetch.grant()
        request = Subscribe(
            self._link.numbers.next(),
            self.name,
            self._text,
            settings.durable,
            self._begin(),
            settings.order,
            credit,
            settings.expiry_s,
            self._seeks,
        )
        self._link.ask(request, self._subscribed)

    def _begin(self) -> Begin:
        ticks = self._prefetch.resume_from(merged=self._settings.order is Order.TOTAL)
        if not ticks:
            return self._settings.begin
        return Begin(BeginKind.POSITION, tuple(ticks.items()))

    def _subscribed(self, notice: Any) -> None:
        if isinstance(notice, Refused):
            self._fail(refusal(notice))
            return
        answer: Subscribed = Link.expect(notice, Subscribed)
        if self._is_started and answer.seeks != self._seeks:
            # its events would look like repetitions here, or like a gap
            self._fail(TakenOverError(_moved(self.name)))
            return
        self._seeks = answer.seeks
        for pubend, tick in answer.position:
            self._begin_at(pubend, tick)
        self.waiting = {str(each.pubend): each.reason for each in answer.waiting}
        if not self._is_started and self._settings.begin.kind is BeginKind.EARLIEST:
            self._earliest.update(pubend for pubend, _ in answer.position)
        self._is_answered = self._is_started = True
        if self._is_seeking:
            self._seek_again()
        if self._acked and self._link is not None:
            self._link.say(Ack(self.name, tuple(self._acked.items())))
        self._wake()

    def _begin_at(self, pubend: PubendId, tick: Tick) -> None:
        if pubend not in self._floor:
            self._prefetch.begin(pubend, tick)

    def _seek_again(self) -> None:
        """Go back to where a durable subscription was sought to."""
        assert self._link is not None
        places = tuple(self._prefetch.received.items())
        request = Seek(self._link.numbers.next(), self.name, Begin(BeginKind.POSITION, places))
        self._link.ask(request, self._placed)

    def _placed(self, notice: Any) -> None:
        if isinstance(notice, Refused):
            self._fail(refusal(notice))
            return
        Link.expect(notice, Subscribed)
        self._is_placed = True
        self._give_credit()

    def link_down(self) -> None:
        """Nothing comes until the link is up."""
        self._is_answered = False

    def link_over(self, error: GaplessError) -> None:
        """There will be no connection any more."""
        self._fail(error)

    # --- what the broker tells -----------------------------------------------------------------

    def delivered(self, notice: Delivery) -> None:
        """Take events."""
        prefetch = self._prefetch
        prefetch.take(notice.runs)
        if self._floor:
            self._rise()
        if prefetch.repeated:
            self._give_credit()
        self._wake()

    def _rise(self) -> None:
        """Forget where streams were sought back from when that is reached again."""
        received = self._prefetch.received
        self._floor = {
            pubend: tick for pubend, tick in self._floor.items() if received.get(pubend, 0) < tick
        }

    def told(self, notice: Started | Stalled | Gap | Ended) -> None:
        """Take what the broker says of the subscription itself."""
        if isinstance(notice, Ended):
            # what waits here was not acknowledged: it is for whoever has the subscription now
            kind = TooSlowError if notice.cause is Cause.TOO_SLOW else TakenOverError
            self._fail(kind(notice.reason))
            return
        if isinstance(notice, Stalled):
            self._stalled(str(notice.pubend), notice.reason)
            return
        if self._is_seeking:
            return  # it is of the place that the subscription leaves
        pubend = notice.pubend
        if isinstance(notice, Started):
            self.waiting.pop(str(pubend), None)
            self._begin_at(pubend, notice.after)
        elif pubend in self._earliest and notice.low <= 1:
            self._prefetch.begin(pubend, notice.high)
        else:
            self._prefetch.lose(pubend, notice.low, notice.high)
        self._wake()

    def _stalled(self, pubend: str, reason: str) -> None:
        """A stream stands still, or goes on; the others are as they were."""
        if reason:
            self.waiting[pubend] = reason
        else:
            self.waiting.pop(pubend, None)


def _check_number(name: str, value: object) -> None:
    if type(value) is not int or not 0 < value <= NUMBER_MAX:
        raise UsageError(f"{name} is a whole number from 1 to {NUMBER_MAX:,}, not {value!r}")


def _text_of(wanted: str | Filter) -> str:
    """Return the text of a filter, if it is one."""
    return str(wanted) if isinstance(wanted, Filter) else str(Filter(wanted))


def _moved(name: str) -> str:
    return (
        f"an operator moved the subscription {name!r} to another position; "
        "subscribe again to go on from there"
    )


def _ignore(notice: Any) -> None:
    """Nobody waits for this answer."""
