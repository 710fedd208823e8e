"""Replies to operators about subscriptions: lists, one subscription, and who is behind."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from gapless.content.like import Pattern
from gapless.core.context import Context
from gapless.core.ids import PubendId
from gapless.core.limits import (
    LAG_CURSORS_MAX,
    LAG_MEASUREMENTS_MAX,
    NAME_PATTERN_MAX,
    SHOWN_CURSORS_LISTED_MAX,
    SHOWN_CURSORS_MAX,
    SHOWN_ENTRIES_MAX,
    SHOWN_LAGS_MAX,
)
from gapless.inspection.lag import LagMeter, Lags, StreamLag
from gapless.inspection.show import page
from gapless.messages.clients import Refused
from gapless.messages.operating import (
    CursorState,
    GetLag,
    GetSubscription,
    LagReply,
    ListSubscriptions,
    StreamLagState,
    SubscriptionList,
    SubscriptionReply,
    SubscriptionState,
)
from gapless.subscribers import CorruptSubscriptions, Registry
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import Started
from gapless.subscribers.subscription import HostedSubscription

__all__ = ["SubscriptionInspection", "name_pattern"]

_CURSOR_COST = 512
"""A cursor counts like so many characters of a page: the broker looks at all of them."""


def name_pattern(text: str) -> Pattern:
    """Return the pattern of a text in which ``*`` stands for any characters and ``?`` for one.

    >>> name_pattern("orders-?_*").matches("orders-1_eu"), name_pattern("a*").matches("ba")
    (True, False)
    """
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return Pattern.parse(escaped.replace("*", "%").replace("?", "_"), "\\")


class RequestResolver(Protocol):
    """Requests for a durable subscription by its name alone (MV-15)."""

    def resolve(self, client: str, request: int, name: str, execute: Callable[[], None]) -> None:
        """Execute a request here unless another broker hosts the subscription; else redirect it."""


class SubscriptionInspection:
    """Answers the read-only requests of operators about subscriptions."""

    def __init__(
        self,
        context: Context,
        registry: Registry,
        corrupt: CorruptSubscriptions,
        meter: LagMeter,
        search: RequestResolver,
    ) -> None:
        self._context = context
        self._registry = registry
        self._corrupt = corrupt
        self._meter = meter
        self._search = search
        self._surveyors: list[tuple[str, int]] = []
        """The clients that wait for the running survey, each with its request."""
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {
            ListSubscriptions: self._list,
            GetSubscription: self._find,
            GetLag: self._get_lag,
        }

    # --- lists ---------------------------------------------------------------------------------

    def _list(self, client: str, call: ListSubscriptions) -> None:
        if len(call.pattern) > NAME_PATTERN_MAX:
            reason = f"the pattern of names has more than {NAME_PATTERN_MAX} characters"
            self._context.notify(client, Refused(call.request, reason))
            return
        most = min(call.most, SHOWN_ENTRIES_MAX) if call.most > 0 else SHOWN_ENTRIES_MAX
        names = self._names(call, most + 1)
        found = (self._registry.subscriptions[name] for name in names[:most])
        listed, more = page(found, _cost)
        more = more or len(names) > most

        def answer(lags: Lags) -> None:
            clock = self._context.clock
            states = [self._state(each, None, SHOWN_CURSORS_LISTED_MAX, lags) for each in listed]
            entries = tuple(
                _summed(state, each, lags, clock)
                for state, each in zip(states, listed, strict=True)
            )
            self._context.notify(client, SubscriptionList(call.request, entries, more))

        self._measured(
            (cursor for each in listed for cursor in each.cursors.values()), call, answer
        )

    def _names(self, call: ListSubscriptions, most: int) -> list[str]:
        """Return the next names that match, in order."""
        pattern = name_pattern(call.pattern) if call.pattern else None
        matching = (
            name
            for name, found in self._registry.subscriptions.items()
            if name > call.after
            and (found.durable or not call.durable)
            and (pattern is None or pattern.matches(name))
        )
        return heapq.nsmallest(most, matching)

    def _find(self, client: str, call: GetSubscription) -> None:
        if call.durable:
            name, request = call.subscription, call.request
            self._search.resolve(client, request, name, lambda: self._show(client, call))
        else:
            self._show(client, call)

    def _show(self, client: str, call: GetSubscription) -> None:
        found = self._registry.subscriptions.get(call.subscription)
        if found is None:
            missing = f"there is no subscription {call.subscription!r} at this broker"
            reason = self._corrupt.refusal(call.subscription) or missing
            self._context.notify(client, Refused(call.request, reason))
            return

        def answer(lags: Lags) -> None:
            state = self._state(found, call.after, SHOWN_CURSORS_MAX, lags)
            entry = _summed(state, found, lags, self._context.clock)
            self._context.notify(client, SubscriptionReply(call.request, entry, found.past_filters))

        self._measured(found.cursors.values(), call, answer)

    def _measured(
        self,
        cursors: Iterable[Cursor],
        call: ListSubscriptions | GetSubscription,
        answer: Callable[[Lags], None],
    ) -> None:
        if call.lag:
            self._meter.measure(cursors, answer)
        else:
            answer({})

    def _state(
        self, subscription: HostedSubscription, after: PubendId | None, most: int, lags: Lags
    ) -> SubscriptionState:
        cursors = subscription.cursors
        names = [each for each in sorted(cursors) if after is None or each > after]
        disconnected_for = self._context.now - subscription.disconnected_since
        clock = self._context.clock
        return SubscriptionState(
            subscription.name,
            subscription.durable,
            subscription.newest.text,
            subscription.order,
            subscription.client,
            None if subscription.client is not None else clock - disconnected_for,
            subscription.expiry_s,
            subscription.changes.current is not None,
            subscription.delivery.credit,
            tuple(_cursor(cursors[each], lags, clock) for each in names[:most]),
            max(0, len(names) - most),
        )

    # --- metrics -------------------------------------------------------------------------------

    def _get_lag(self, client: str, call: GetLag) -> None:
        """Survey all durable subscriptions; clients that ask meanwhile get the same survey."""
        if len(self._surveyors) >= LAG_MEASUREMENTS_MAX:
            reason = f"{LAG_MEASUREMENTS_MAX} requests for the lag wait already; request it later"
            self._context.notify(client, Refused(call.request, reason))
            return
        self._surveyors.append((client, call.request))
        if len(self._surveyors) == 1:
            _Survey(self._context, self._registry.durable(), self._meter).start(self._surveyed)

    def _surveyed(self, found: LagReply) -> None:
        surveyors, self._surveyors = self._surveyors, []
        for client, request in surveyors:
            self._context.notify(client, replace(found, request=request))


class _Survey:
    """The lag of all durable subscriptions, determined in parts, a step each."""

    def __init__(
        self, context: Context, subscriptions: list[HostedSubscription], meter: LagMeter
    ) -> None:
        self._context = context
        self._meter = meter
        self._clock = context.clock
        self._durable = len(subscriptions)
        self._left = iter(subscriptions)
        self._behind = self._unknown = self._events_max = 0
        self._seconds_max = 0.0
        self._worst: list[StreamLagState] = []
        self._waiting = 0
        """Parts whose PHBs have not all answered."""
        self._is_complete = False
        """Whether all parts were started."""

    def start(self, then: Callable[[LagReply], None]) -> None:
        """Call back with the result."""
        self._then = then
        self._continue()

    def _continue(self) -> None:
        part: list[HostedSubscription] = []
        cursors = 0
        for each in self._left:
            part.append(each)
            cursors += 1 + len(each.cursors)
            if cursors >= LAG_CURSORS_MAX:
                break
        if part:
            self._waiting += 1
            self._context.call_later(1, self._continue)
        else:
            self._is_complete = True

        def measured(lags: Lags) -> None:
            for each in part:
                self._add(each, lags)
            self._worst = heapq.nlargest(SHOWN_LAGS_MAX, self._worst, key=_rank)
            self._waiting -= 1
            self._finish()

        if part:
            cursors_of = (cursor for each in part for cursor in each.cursors.values())
            self._meter.measure(cursors_of, measured)
        else:
            self._finish()

    def _finish(self) -> None:
        if self._is_complete and not self._waiting:
            self._then(self._result())

    def _add(self, subscription: HostedSubscription, lags: Lags) -> None:
        started = [each for each in subscription.cursors.values() if _has_lag(each)]
        known = [(each, lags[each]) for each in started if each in lags]
        streams = [
            StreamLagState(subscription.name, each.pubend, lag.events, lag.seconds(self._clock))
            for each, lag in known
        ]
        self._worst += streams
        behind = [each for each in streams if each.events]
        self._behind += bool(behind)
        self._unknown += len(known) < len(started)
        self._events_max = max(self._events_max, sum(each.events for each in behind))
        seconds = max((each.seconds for each in behind), default=0.0)
        self._seconds_max = max(self._seconds_max, seconds)

    def _result(self) -> LagReply:
        return LagReply(
            0,
            self._durable,
            self._behind,
            self._unknown,
            self._events_max,
            self._seconds_max,
            tuple(self._worst),
        )


def _rank(lag: StreamLagState) -> tuple[float, int]:
    return lag.seconds, lag.events


def _cost(subscription: HostedSubscription) -> int:
    return len(subscription.newest.text) + _CURSOR_COST * len(subscription.cursors)


def _has_lag(cursor: Cursor) -> bool:
    """Whether the cursor has a position, so that it can be behind."""
    return isinstance(cursor.start, Started) or cursor.awaits_earliest


def _is_waiting(cursor: Cursor) -> bool:
    """Whether the cursor has not started or cannot continue."""
    has_started = isinstance(cursor.start, Started)
    return bool(cursor.fault) or not has_started or cursor.subend.feeder is None


def _summed(
    state: SubscriptionState, subscription: HostedSubscription, lags: Lags, clock: int
) -> SubscriptionState:
    """Add the sums over all streams, also those on other pages."""
    cursors = subscription.cursors.values()
    found = [lags.get(each) for each in cursors if _has_lag(each)]
    known = [each for each in found if each is not None]
    is_known = len(known) == len(found) and (bool(lags) or not found)
    return replace(
        state,
        streams=len(cursors),
        streams_pending=sum(map(_is_waiting, cursors)),
        lag_events=sum(each.events for each in known) if is_known else None,
        lag_s=max((each.seconds(clock) for each in known), default=0.0) if is_known else None,
    )


def _cursor(cursor: Cursor, lags: Lags, clock: int) -> CursorState:
    subscription, subend = cursor.subscription, cursor.subend
    lag: StreamLag | None = lags.get(cursor)
    return CursorState(
        cursor.pubend,
        cursor.phase.shown,
        cursor.buffered_up_to,
        cursor.start.acked,
        subend.horizon if subend.has_base else None,
        None if lag is None else lag.events,
        None if lag is None else lag.seconds(clock),
        len(cursor.buffer),
        subscription.reply.reason(cursor) if _is_waiting(cursor) else None,
    )
