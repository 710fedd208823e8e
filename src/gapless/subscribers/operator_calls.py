"""What operators ask of durable subscriptions, by name, without having their connection.

**A filter** is changed as if the subscription's own client had asked (R47): it takes over in the live
stream where that reaches it, and the operator is told the position. The client need not know. It sees
the events of the old filter up to the position and those of the new one after it. A client that
subscribes again gets what the operator set, unless it then sets a filter itself. A change goes on if
the client leaves meanwhile, and is answered.

**A seek** moves what the subscription has acknowledged, on disk, so it outlives connections and
crashes. It is refused while a client is connected, unless it is forced; then the client is told that
its subscription ended and has to subscribe again. Its stream never jumps inside a connection: a client
that drops what it saw before, as an exactly-once client does, would take the events of a seek back for
repetitions, and those that a seek forward leaves out for a gap.

A client that comes back with a position of its own would undo a seek back, since it goes on at
whichever is farther (R50). So every seek has a number. ``Subscribed`` tells it, a client that comes back
says which one its position is from, and on the streams that were moved a position from before the
last seek does not count. Of a client that says nothing the position counts again as soon as it has
acknowledged something that it was sent since the seek; until then it goes on from what it has
acknowledged, which is after the seek too. An acknowledgement of what it was not sent since the
seek is from before it, and is ignored.

**What a seek goes back to must still be there.** The log is held for it at the pubend (R49). The answer
waits a while for that and names the pubends that have not confirmed it. What was released before the
hold came is told to the client as a gap, never as silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gapless.content.filter import Filter
from gapless.core.errors import FilterError
from gapless.core.ids import PubendId
from gapless.core.machine import Context
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
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.protocols import Hosting
from gapless.subscribers.registry import Registry
from gapless.subscribers.seeks import NEGATIVE, seek_target
from gapless.subscribers.subscription import HostedSubscription

__all__ = ["OperatorCalls"]

_NOT_CONFIRMED = "this pubend has not confirmed yet that it keeps its log from there on"
_NOT_MOVED = "where this stream is now is not known here yet, so it was not moved"


class _PendingSeek(msgspec.Struct):
    """A seek that is on disk, and whose pubends have not all confirmed that they keep their logs."""

    operator: str
    request: int
    subscription: HostedSubscription
    position: PositionTuple
    unmoved: tuple[PendingStart, ...]
    deadline: int


class OperatorCalls:
    """The calls of operators on the durable subscriptions of a host."""

    def __init__(self, context: Context, registry: Registry, hosting: Hosting) -> None:
        self._context = context
        self._registry = registry
        self._hosting = hosting
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {
            SeekDurable: self._seek,
            SetDurableFilter: self._set_filter,
            RemoveDurable: self._remove,
        }

    def _refuse(self, operator: str, request: int, reason: str) -> None:
        self._context.notify(operator, Refused(request, reason))

    def _durable(self, operator: str, request: int, name: str) -> HostedSubscription | None:
        """Return a durable subscription that is on disk, or refuse the request and say why."""
        found = self._registry.subscriptions.get(name)
        if found is None:
            self._refuse(operator, request, f"there is no subscription {name!r} at this broker")
        elif not found.durable:
            reason = f"the subscription {name!r} is not durable: it is its connection's own"
            self._refuse(operator, request, reason)
        elif not found.stored:
            self._refuse(operator, request, f"{name!r} is being made; try again in a moment")
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
            "first, or force it, which tells the client that its subscription ended"
        )
        self._refuse(operator, call.request, reason)
        return False

    # --- the filter ----------------------------------------------------------------------------

    def _set_filter(self, operator: str, call: SetDurableFilter) -> None:
        found = self._durable(operator, call.request, call.subscription)
        if found is None:
            return
        try:
            wanted = Filter(call.filter)
        except FilterError as error:
            self._refuse(operator, call.request, str(error))
            return
        found.changes.request(operator, call.request, wanted)

    # --- the end -------------------------------------------------------------------------------

    def _remove(self, operator: str, call: RemoveDurable) -> None:
        found = self._durable(operator, call.request, call.subscription)
        if found is None or not self._may_end_connection(operator, call, found):
            return
        found.reply.send_ended(f"an operator removed the subscription {found.name!r}")
        self._registry.end(found)
        if found.epoch:
            self._hosting.forget_moved(found)
        self._context.write((), lambda: self._context.notify(operator, Unsubscribed(call.request)))

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
            "subscribe again to go on from there"
        )
        self._registry.disconnect(found)
        position, unmoved = self._move(found, call.start)
        wait = microseconds(ms=self._context.parameters.attach_timeout_ms)
        seek = _PendingSeek(
            operator, call.request, found, position, unmoved, self._context.now + wait
        )
        found.save(lambda: self._look_at(seek))

    def _invalid_reason(self, start: StartPoint, subscription: HostedSubscription) -> str | None:
        """Say why nobody should go there: what is skipped in the future would be lost unseen."""
        ticks = dict(start.position) if start.kind is StartKind.POSITION else {}
        if any(tick < 0 for tick in ticks.values()):
            return NEGATIVE
        unknown = [str(pubend) for pubend in ticks if pubend not in subscription.cursors]
        if unknown:
            return (
                f"the subscription {subscription.name!r} has nothing on {', '.join(unknown)}; "
                "it has streams on the pubends that its filter can match"
            )
        for cursor in subscription.cursors.values():
            tick = self._target(start, cursor)
            present = max(self._context.clock, cursor.subend.horizon)
            if tick is not None and tick > present:
                return f"{tick} is in the future of {cursor.pubend}, which is at {present}"
        return None

    def _target(self, start: StartPoint, cursor: Cursor) -> Tick | None:
        """Return after which tick a strand is to go on; None if it stays, or if nobody can say."""
        if start.kind is StartKind.LATEST and not cursor.subend.has_base:
            return None
        return seek_target(start, cursor)

    def _move(
        self, subscription: HostedSubscription, start: StartPoint
    ) -> tuple[PositionTuple, tuple[PendingStart, ...]]:
        """Move the strands; return where they are then, and those that could not be moved."""
        self._context.mark("operator moved a subscription")
        number = subscription.note_seek()
        position: list[tuple[PubendId, Tick]] = []
        unmoved = []
        for pubend, cursor in subscription.cursors.items():
            tick = self._target(start, cursor)
            if tick is not None:
                cursor.move_to(tick, earliest=start.kind is StartKind.EARLIEST)
                cursor.note_seek(number)
                position.append((pubend, tick))
            elif start.kind is StartKind.LATEST:
                unmoved.append(PendingStart(pubend, _NOT_MOVED))
        return tuple(position), tuple(unmoved)

    def _look_at(self, seek: _PendingSeek) -> None:
        """Answer when all logs are kept, or when that takes too long."""
        subscription = seek.subscription
        if subscription.ended:
            reason = f"the subscription {subscription.name!r} ended meanwhile"
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
        # where the oldest is, the pubend may have said meanwhile
        position = tuple((each.pubend, each.start.origin) for each in cursors)
        answer = DurableSeekDone(seek.request, position, (*pending, *seek.unmoved))
        self._context.notify(seek.operator, answer)
