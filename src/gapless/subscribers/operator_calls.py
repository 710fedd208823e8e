"""Requests of operators on durable subscriptions, by name, without the connection of their client.

**Filter change.** It works like a change by the client (R47): the new filter applies where the live
stream serves it, and the operator is sent the position of the change. The client needs to do
nothing. It receives the events of the old filter up to the position and those of the new filter
after it. A client that subscribes again keeps the operator's filter unless it sets one itself. If
the client disconnects meanwhile, the change continues and is answered.

**Seek.** A seek sets the acknowledged position on disk, so it survives connections and crashes. It
is refused while a client is connected, unless it is forced. A forced seek ends the subscription of
the client, which must subscribe again. A stream never jumps inside a connection: an exactly-once
client drops events that it has received, so it would drop those of a seek back as duplicates, and
take the range that a seek forward skips for a gap.

A client that returns with its own position would undo a seek back, because it continues at the
greater of both positions (R50). So every seek has a number. ``Subscribed`` contains it, and a
returning client states the seek number of its position. On streams that were moved, a position from
before the last seek is ignored. If a client states no number, its position counts again once it has
acknowledged an event that it was sent after the seek. Until then it continues from the acknowledged
position, which the seek has set. An acknowledgement of events that were not sent after the seek is
from before the seek, and is ignored.

**Another broker.** If another broker hosts the subscription, the operator is redirected to it
(MV-15).

**Log holds.** The PHB holds its log for a seek back (R49). The reply waits for that, at most
``attach_timeout_ms``, and names the pubends that have not confirmed it. A range that was released
before the log hold was on disk becomes a gap for the client, never silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gapless.content.filter import Filter
from gapless.core.context import Context
from gapless.core.errors import FilterError
from gapless.core.ids import PubendId
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    PendingStart,
    PositionTuple,
    Refused,
    StartKind,
    StartPoint,
    Unsubscribed,
)
from gapless.messages.operating import (
    DurableSeekDone,
    RemoveDurable,
    SeekDurable,
    SetDurableFilter,
)
from gapless.subscribers.corrupt import CorruptSubscriptions
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.protocols import Hosting, HostingSearch
from gapless.subscribers.registry import Registry
from gapless.subscribers.seeks import NEGATIVE, seek_target
from gapless.subscribers.subscription import HostedSubscription

__all__ = ["OperatorCalls"]

_NOT_CONFIRMED = "this pubend has not confirmed yet that it keeps its log from there on"
_NOT_MOVED = "this stream was not moved: this broker does not know its latest tick yet"


class _PendingSeek(msgspec.Struct):
    """A seek that is on disk, and whose logs are not all held yet."""

    operator: str
    request: int
    subscription: HostedSubscription
    position: PositionTuple
    unmoved: tuple[PendingStart, ...]
    deadline: int


class OperatorCalls:
    """The calls of operators on the durable subscriptions of this SHB."""

    def __init__(
        self,
        context: Context,
        registry: Registry,
        corrupt: CorruptSubscriptions,
        hosting: Hosting,
        search: HostingSearch,
    ) -> None:
        self._context = context
        self._registry = registry
        self._corrupt = corrupt
        self._hosting = hosting
        self._search = search
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {
            SeekDurable: self._where_hosted(self._seek),
            SetDurableFilter: self._where_hosted(self._set_filter),
            RemoveDurable: self._where_hosted(self._remove),
        }

    def _where_hosted(self, execute: Callable[[str, Any], None]) -> Callable[[str, Any], None]:
        """Return a handler that executes a call unless another broker hosts the subscription."""

        def handle(operator: str, call: Any) -> None:
            if isinstance(call, RemoveDurable) and call.here:
                execute(operator, call)
                return
            name, request = call.subscription, call.request
            self._search.resolve(operator, request, name, lambda: execute(operator, call))

        return handle

    def _refuse(self, operator: str, request: int, reason: str) -> None:
        self._context.notify(operator, Refused(request, reason))

    def _durable(self, operator: str, request: int, name: str) -> HostedSubscription | None:
        """Return a durable subscription that is on disk, or refuse the request and return None."""
        found = self._registry.subscriptions.get(name)
        if found is None:
            missing = f"there is no subscription {name!r} at this broker"
            self._refuse(operator, request, self._corrupt.refusal(name) or missing)
        elif not found.durable:
            reason = f"the subscription {name!r} is not durable: it belongs to its connection"
            self._refuse(operator, request, reason)
        elif not found.stored:
            self._refuse(operator, request, f"{name!r} is not on disk yet; try again later")
        else:
            return found
        return None

    def _may_end_connection(
        self, operator: str, call: SeekDurable | RemoveDurable, found: HostedSubscription
    ) -> bool:
        if found.client is None or call.force:
            return True
        reason = (
            f"the subscription {found.name!r} is connected ({found.client}): stop that client "
            "first, or use force, which ends the subscription of that client"
        )
        self._refuse(operator, call.request, reason)
        return False

    # --- the filter ----------------------------------------------------------------------------

    def _set_filter(self, operator: str, call: SetDurableFilter) -> None:
        found = self._durable(operator, call.request, call.subscription)
        if found is None:
            return
        try:
            new_filter = Filter(call.filter)
        except FilterError as error:
            self._refuse(operator, call.request, str(error))
            return
        found.changes.request(operator, call.request, new_filter)

    # --- the end -------------------------------------------------------------------------------

    def _remove(self, operator: str, call: RemoveDurable) -> None:
        def removed() -> None:
            self._context.notify(operator, Unsubscribed(call.request))

        if call.subscription in self._corrupt.names:
            self._corrupt.remove(call.subscription, removed)
            return
        found = self._durable(operator, call.request, call.subscription)
        if found is None or not self._may_end_connection(operator, call, found):
            return
        found.reply.send_ended(f"an operator removed the subscription {found.name!r}")
        self._registry.end(found)
        if found.epoch:
            self._hosting.forget_moved(found)
        self._context.write((), removed)

    # --- seeking -------------------------------------------------------------------------------

    def _seek(self, operator: str, call: SeekDurable) -> None:
        found = self._durable(operator, call.request, call.subscription)
        if found is None:
            return
        fault = self._invalid_reason(call.start, found)
        if fault is not None:
            self._refuse(operator, call.request, fault)
            return
        if not self._may_end_connection(operator, call, found):
            return
        found.reply.send_ended(
            f"an operator moved the subscription {found.name!r} to another position; "
            "subscribe again to continue from there"
        )
        self._registry.disconnect(found)
        position, unmoved = self._move(found, call.start)
        wait = microseconds(ms=self._context.parameters.attach_timeout_ms)
        seek = _PendingSeek(
            operator, call.request, found, position, unmoved, self._context.now + wait
        )
        found.save(lambda: self._look_at(seek))

    def _invalid_reason(self, start: StartPoint, subscription: HostedSubscription) -> str | None:
        """Return why a seek is invalid. A seek into the future would skip events without a gap."""
        ticks = dict(start.position) if start.kind is StartKind.POSITION else {}
        if any(tick < 0 for tick in ticks.values()):
            return NEGATIVE
        unknown = [str(pubend) for pubend in ticks if pubend not in subscription.cursors]
        if unknown:
            return (
                f"the subscription {subscription.name!r} has no stream on {', '.join(unknown)}; "
                "it has streams on the pubends that its filter can match"
            )
        for cursor in subscription.cursors.values():
            tick = self._target(start, ticks, cursor)
            present = max(self._context.clock, cursor.subend.horizon)
            if tick is not None and tick > present:
                return f"{tick} is in the future of {cursor.pubend}, which is at {present}"
        return None

    def _target(
        self, start: StartPoint, named: Mapping[PubendId, Tick], cursor: Cursor
    ) -> Tick | None:
        """Return the tick after which a cursor continues; None if it is not moved, or not known."""
        if start.kind is StartKind.LATEST and not cursor.subend.has_base:
            return None
        return seek_target(start, named, cursor)

    def _move(
        self, subscription: HostedSubscription, start: StartPoint
    ) -> tuple[PositionTuple, tuple[PendingStart, ...]]:
        """Move the cursors. Return their new position, and the pubends that could not be moved."""
        self._context.mark("operator moved a subscription")
        number = subscription.note_seek()
        position: list[tuple[PubendId, Tick]] = []
        unmoved, named = [], dict(start.position)
        for pubend, cursor in subscription.cursors.items():
            tick = self._target(start, named, cursor)
            if tick is not None:
                cursor.move_to(tick, earliest=start.kind is StartKind.EARLIEST)
                cursor.note_seek(number)
                position.append((pubend, tick))
            elif start.kind is StartKind.LATEST:
                unmoved.append(PendingStart(pubend, _NOT_MOVED))
        return tuple(position), tuple(unmoved)

    def _look_at(self, seek: _PendingSeek) -> None:
        """Answer when all logs are held, or at the deadline."""
        subscription = seek.subscription
        if subscription.ended:
            reason = f"the subscription {subscription.name!r} has ended"
            self._refuse(seek.operator, seek.request, reason)
            return
        found = [subscription.cursors.get(pubend) for pubend, _ in seek.position]
        cursors = [each for each in found if each is not None]
        open_ones = [each.pubend for each in cursors if not each.is_resumable]
        if open_ones and self._context.now < seek.deadline:
            pause = microseconds(ms=self._context.parameters.retry_ms)
            self._context.call_later(pause, lambda: self._look_at(seek))
            return
        pending = tuple(PendingStart(pubend, _NOT_CONFIRMED) for pubend in open_ones)
        # the reply of a PHB may have moved a start at the earliest event since
        position = tuple((each.pubend, each.start.origin) for each in cursors)
        answer = DurableSeekDone(seek.request, position, (*pending, *seek.unmoved))
        self._context.notify(seek.operator, answer)
