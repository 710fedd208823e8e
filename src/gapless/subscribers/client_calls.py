"""What subscribers ask of their host: to subscribe, resume, seek, acknowledge, end (R46, R50).

A durable subscription belongs to its name. Whoever subscribes under that name takes it over: the
connection before it, which may be dead without anybody knowing, gets nothing more. Whatever comes
late from it is refused or ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from gapless.content.filter import Filter
from gapless.core.errors import FilterError
from gapless.core.ids import PubendId
from gapless.core.limits import NAME_MAX
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Ack,
    Credit,
    HostingReference,
    Order,
    RefusalCause,
    Refused,
    Seek,
    SetFilter,
    StartKind,
    StartPoint,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import CursorPhase
from gapless.subscribers.host import SubscriberHost
from gapless.subscribers.start_guarantee import StartGuarantee, invalid_reason
from gapless.subscribers.subscription import ConfirmedFilter, HostedSubscription, PendingReply

__all__ = ["NEGATIVE", "Hosting", "SubscriberCalls", "seek_target"]

NEGATIVE = "a position cannot be negative; 0 is before the first event"


class Hosting(Protocol):
    """Who knows of subscriptions that have moved."""

    def newer_hosting(self, reference: HostingReference) -> HostingReference | None:
        """Return where a subscription lives, if it has moved on since its client was told."""

    def forget_moved(self, subscription: HostedSubscription) -> None:
        """A subscription that had moved here was ended by its client."""

    def end_remote(self, reference: HostingReference) -> None:
        """A subscription that lives elsewhere was ended here by its client."""


class _NoHosting:
    """Nothing moves."""

    def newer_hosting(self, reference: HostingReference) -> HostingReference | None:
        del reference
        return None

    def forget_moved(self, subscription: HostedSubscription) -> None:
        """Nobody has it elsewhere."""

    def end_remote(self, reference: HostingReference) -> None:
        """Nobody has it elsewhere."""


class SubscriberCalls:
    """The calls of all clients of a subscriber host."""

    def __init__(self, host: SubscriberHost) -> None:
        self._host = host
        self._context = host.context
        self._by_client: dict[str, dict[str, HostedSubscription]] = {}
        self._arrivals: dict[str, int] = {}
        """In which order clients came."""
        self._arrived = 0
        self._made = 0
        self.hosting: Hosting = _NoHosting()
        self._handlers: dict[type, Callable[[str, Any], None]] = {
            Subscribe: self._subscribe,
            SetFilter: self._set_filter,
            Seek: self._seek,
            Ack: self._ack,
            Credit: self._credit,
            Unsubscribe: self._unsubscribe,
        }

    def handle(self, client: str, request: Any) -> bool:
        """Take a request of a client; False if it is not one of a subscriber."""
        handler = self._handlers.get(type(request))
        if handler is not None:
            handler(client, request)
        return handler is not None

    def _refuse(
        self, client: str, request: int, reason: str, cause: RefusalCause = RefusalCause.OTHER
    ) -> None:
        self._context.notify(client, Refused(request, reason, cause))

    def _filter(self, client: str, request: int, text: str) -> Filter | None:
        """Return the filter of a text, or refuse the request and say why."""
        try:
            return Filter(text)
        except FilterError as error:
            self._refuse(client, request, str(error))
            return None

    def _owned(self, client: str, name: str) -> HostedSubscription | None:
        """Return a subscription if the client is the one that has it now."""
        return self._by_client.get(client, {}).get(name)

    # --- subscribing ---------------------------------------------------------------------------

    def _subscribe(self, client: str, call: Subscribe) -> None:
        reason = self._invalid_reason(call)
        if reason is not None:
            self._refuse(client, call.request, reason)
            return
        found = self._host.subscriptions.get(call.subscription)
        newer = None if call.hosting is None else self.hosting.newer_hosting(call.hosting)
        if newer is not None:
            reason = f"the subscription {call.subscription!r} has moved to {newer.broker}"
            refused = Refused(call.request, reason, RefusalCause.WRONG_BROKER, newer.broker, newer)
            self._context.notify(client, refused)
            return
        texts = (call.filter, *(each.filter for each in call.past_filters))
        filters = [self._filter(client, call.request, text) for text in texts]
        wanted = filters[0]
        if wanted is None or None in filters:
            return
        if found is not None:
            if self._is_older(client, found):
                reason = _fenced_reason(call.subscription)
                self._refuse(client, call.request, reason, RefusalCause.FENCED)
                return
            self._notify_fenced(found, client)
        if found is not None and found.durable and not _is_outdated(found, call, wanted):
            is_moved = call.hosting is not None and _is_behind(found, call.hosting)
            if call.hosting is not None and is_moved:
                self._resume_returned(found, call, call.hosting)
                is_moved = call.hosting.broker != self._context.identity.broker
            self.disconnect(found)
            self._connect(found, client, call, exactly=is_moved)
            return
        if found is None:
            self._create(client, call, wanted)
        else:
            self._replace(found, client, call, wanted)

    def _replace(
        self, found: HostedSubscription, client: str, call: Subscribe, wanted: Filter
    ) -> None:
        """Make a subscription in the place of one of its name.

        On disk its record takes the place of the other: a crash between two writes would leave nothing.
        """
        let_go = self._host.retain_logs_for(found)
        confirmed, guarantees = found.confirmed_filter, self._host.guarantees_of(found)
        self._take_down(found)
        self._create(client, call, wanted, confirmed, guarantees)
        self._context.write((), let_go)

    def _invalid_reason(self, call: Subscribe) -> str | None:
        found = self._host.subscriptions.get(call.subscription)
        if not 0 < len(call.subscription) <= NAME_MAX:
            return f"a subscription's name has 1 to {NAME_MAX} characters"
        positions = (call.start.position, call.acked, *(each.ends for each in call.past_filters))
        if any(tick < 0 for position in positions for _, tick in position):
            return NEGATIVE
        most = self._context.parameters.segments_max
        if len(call.past_filters) > most:
            return f"{len(call.past_filters)} earlier filters are too many; {most} may be (segments_max)"
        if call.start.unnamed is StartKind.POSITION:
            return "a start needs a rule for pubends of which it names no position"
        if (
            call.start_guarantees is not None
            and (fault := invalid_reason(call.start_guarantees)) is not None
        ):
            return fault
        if call.credit < 0:
            return f"credit cannot be negative ({call.credit})"
        if found is not None and found.durable != call.durable:
            kind = "durable" if found.durable else "not durable"
            return f"there is a subscription {call.subscription!r} that is {kind}; end it first"
        if (
            found is not None
            and call.hosting is not None
            and found.incarnation_key != call.hosting.incarnation_key
        ):
            return (
                f"this broker has another subscription {call.subscription!r}; "
                "end it, or take another name"
            )
        return None

    def _create(
        self,
        client: str,
        call: Subscribe,
        wanted: Filter,
        confirmed: ConfirmedFilter | None = None,
        guarantees: Mapping[PubendId, StartGuarantee] | None = None,
    ) -> None:
        """Make a subscription; a durable one counts from when it is on disk (R46).

        What its client was ``told`` of an old form of it, and what that was owed, goes over to it.
        """
        host = self._host
        made = HostedSubscription(
            host,
            call.subscription,
            durable=call.durable,
            order=call.order,
            start=_retained_from(call),
            expiry_s=call.expiry_s,
        )
        host.subscriptions[made.name] = made
        if made.durable:
            made.incarnation_key, made.epoch = self._origin(call.hosting)
        if call.hosting is not None:
            self._adopt_resume_state(made, call)
            positioned = dict(call.start.position)
            made.acked_elsewhere = {each: tick for each, tick in call.acked if each in positioned}
        host.own(host.make_segment(made, wanted))
        if made.durable and call.hosting is not None and call.start_guarantees is not None:
            host.set_guarantees(made, call.start_guarantees)
        if made.durable and guarantees is not None:
            host.restore_guarantees(made, confirmed, guarantees)
        if made.order is Order.TOTAL and call.start.kind is StartKind.POSITION:
            # before it has strands: none begins below what its client has merged (R51)
            made.merged = _merged(call.start, dict(call.start.position))
        self._connect(made, client, call)
        if made.durable:
            host.save(made, lambda: self._is_stored(made))
        else:
            host.update_cursors(made)

    def _resume_returned(
        self, found: HostedSubscription, call: Subscribe, reference: HostingReference
    ) -> None:
        """Go on with a subscription that was here before, moved, and is here again.

        Meanwhile its client may have come to pubends of which this host has not heard, or to which it
        came later. There it goes on from its place, with what it has not acknowledged. When that is on
        disk it is answered, and this is its home: after a crash before that its client brings it all again.
        """

        def returned() -> None:
            found.returning -= 1
            self._host.mark_dirty(found)

        if reference.broker != self._context.identity.broker:
            if call.start.kind is StartKind.POSITION:
                self._adopt_positions(found, call)
            if call.start_guarantees is not None:
                positioned = {pubend for pubend, _ in (*call.start.position, *call.acked)}
                self._host.set_guarantees(found, call.start_guarantees, positioned)
        found.seek_count = max(found.seek_count, call.seek_count)
        found.epoch = reference.epoch + 1
        found.returning += 1
        self._host.save(found, returned)

    def _adopt_positions(self, found: HostedSubscription, call: Subscribe) -> None:
        past_filters = zip(
            found.segments[:-1], call.past_filters, strict=True
        )  # it is not outdated
        found.imported_segments = [(segment, dict(each.ends)) for segment, each in past_filters]
        self.disconnect(found)
        for pubend, tick in _retained_from(call).position:
            self._host.reposition(found, pubend, tick, seek_count=call.seek_count)
        found.imported_segments = []
        for pubend, tick in call.acked:
            cursor = found.cursors.get(pubend)
            if (
                cursor is not None
                and cursor.started_after is not None
                and cursor.seek_number <= call.seek_count
            ):
                cursor.acked = max(cursor.acked, tick)

    def _adopt_resume_state(self, made: HostedSubscription, call: Subscribe) -> None:
        """Take over what a subscription was told and asked for where it lived before."""
        made.seek_count = call.seek_count
        for each in call.past_filters:
            segment = self._host.make_segment(made, Filter(each.filter))
            segment.required_from = self._host.leaf.time
            made.imported_segments.append((segment, dict(each.ends)))

    def _origin(self, reference: HostingReference | None) -> tuple[str, int]:
        """Return which subscription is made: a new one, or one that has moved here by force (MV-13)."""
        if reference is not None:
            self._context.mark("subscription moved here")
            return reference.incarnation_key, reference.epoch + 1
        self._made += 1
        identity = self._context.identity
        return f"{identity.broker}/{identity.incarnation}/{self._made}", 0

    def durable(self) -> list[HostedSubscription]:
        """Return the durable subscriptions of this host."""
        return [each for each in self._host.subscriptions.values() if each.durable]

    def _is_stored(self, subscription: HostedSubscription) -> None:
        if subscription.ended:
            return
        self._host.update_cursors(subscription)
        if subscription.pending_reply is not None:
            # its client may be beyond what it has acknowledged, or below
            answer = subscription.pending_reply
            self._resume_cursors(subscription, answer.start, answer.seek_count, exactly=True)
        self._host.mark_dirty(subscription)

    def _connect(
        self,
        subscription: HostedSubscription,
        client: str,
        call: Subscribe,
        *,
        exactly: bool = False,
    ) -> None:
        """Give a subscription to a client and go on from where that is (R50)."""
        host = self._host
        subscription.client = client
        subscription.credit = call.credit
        self._by_client.setdefault(client, {})[subscription.name] = subscription
        if subscription.interest_grace is not None:
            subscription.interest_grace.cancel()
            subscription.interest_grace = None
        host.own(subscription.newest)
        wait = microseconds(ms=self._context.parameters.attach_timeout_ms)
        timer = self._context.call_later(wait, subscription.reply)
        subscription.pending_reply = PendingReply(call.request, call.start, call.seek_count, timer)
        if subscription.stored:
            # a crash may have come between the record and the strands that it gives places to
            host.update_cursors(subscription)
        self._resume_cursors(subscription, call.start, call.seek_count, exactly=exactly)
        host.mark_dirty(subscription)

    def _resume_cursors(
        self, subscription: HostedSubscription, start: StartPoint, seek_count: int, *, exactly: bool
    ) -> None:
        """Go on where the client is; ``exactly`` there, also below what it has acknowledged.

        One that comes from elsewhere may have been sought back: what lies between is governed by the
        filters that it brings, which are let go of where that is passed over.
        """
        position = dict(start.position) if start.kind is StartKind.POSITION else {}
        for pubend in [*position]:
            cursor = subscription.cursors.get(pubend)
            if cursor is not None and cursor.seek_number > seek_count:
                # from before an operator's seek, which it would undo
                self._context.mark("position from before a seek")
                del position[pubend]
        total = subscription.order is Order.TOTAL
        if total:
            subscription.merged = max(subscription.merged, _merged(start, position))
        knows = start.kind is StartKind.POSITION
        for pubend, cursor in subscription.cursors.items():
            cursor.start_confirmed = False
            own = position.get(pubend)
            if cursor.phase is not CursorPhase.PENDING:
                # a client that was never told of a strand gets it above what it has merged
                unconfirmed = total and knows and own is None and cursor.start_unconfirmed
                own = subscription.merged if unconfirmed else own
                cursor.resume(own, exactly=exactly)
            elif own is not None:
                cursor.start_in_past(own)
            else:
                cursor.set_phase(CursorPhase.PENDING)
            cursor.subend.review_eager()
            is_excluded = pubend in start.excluded
            self._host.abandonment.review(cursor, positioned=own is not None, excluded=is_excluded)

    def _is_older(self, client: str, subscription: HostedSubscription) -> bool:
        """Say whether a newer connection than this one has a subscription: it asks too late."""
        owner = self._arrivals.get(subscription.client or "", 0)
        return owner > self._arrivals.get(client, 0)

    def _notify_fenced(self, subscription: HostedSubscription, client: str) -> None:
        if subscription.client not in {client, None}:
            subscription.notify_ended(_fenced_reason(subscription.name))

    # --- going ---------------------------------------------------------------------------------

    def client_up(self, client: str) -> None:
        """A client is there; what comes from one that was there before it is older."""
        self._arrived += 1
        self._arrivals[client] = self._arrived

    def client_down(self, client: str) -> None:
        """A client is gone."""
        self._arrivals.pop(client, None)
        self._host.resume_client(client)
        for subscription in [*self._by_client.get(client, {}).values()]:
            self.disconnect(subscription)
        self._by_client.pop(client, None)

    def disconnect(self, subscription: HostedSubscription) -> None:
        """Part a subscription from its client; one that is not durable ends (R50)."""
        client = subscription.client
        if client is None:
            return
        self._by_client.get(client, {}).pop(subscription.name, None)
        if not subscription.durable:
            self.end(subscription)
            return
        subscription.forget_client()
        subscription.disconnected_since = self._context.now
        for cursor in subscription.cursors.values():
            cursor.disconnect()
            cursor.subend.review_eager()
        subscription.review_segments()
        subscription.dirty = True
        self.start_interest_grace(subscription)

    def start_interest_grace(self, subscription: HostedSubscription) -> None:
        """Keep the filter of an absent client in the tables for a while (R17)."""

        def grace_over() -> None:
            subscription.interest_grace = None
            if subscription.client is None and not subscription.ended:
                self._host.disown(subscription.newest)

        delay = microseconds(s=self._context.parameters.interest_grace_s)
        subscription.interest_grace = self._context.call_later(delay, grace_over)

    def _unsubscribe(self, client: str, call: Unsubscribe) -> None:
        found, reference = self._host.subscriptions.get(call.subscription), call.hosting
        if (
            found is not None
            and reference is not None
            and found.incarnation_key != reference.incarnation_key
        ):
            found = None  # another one of that name
        if found is not None and self._is_older(client, found):
            self._refuse(client, call.request, _not_yours(call.subscription))
            return
        if found is not None:
            self.end(found)
            if found.epoch:
                self.hosting.forget_moved(found)
        if reference is not None and self._is_hosted_elsewhere(found, reference):
            self.hosting.end_remote(reference)
        # also if there is none: it may have been ended by a call whose answer was lost
        self._context.write((), lambda: self._context.notify(client, Unsubscribed(call.request)))

    def _is_hosted_elsewhere(
        self, found: HostedSubscription | None, reference: HostingReference
    ) -> bool:
        """Say whether a subscription is, by what its client knows, not only here."""
        if found is not None:
            return _is_behind(found, reference)
        here = self._context.identity.broker
        return reference.broker != here or self.hosting.newer_hosting(reference) is not None

    def expire(self) -> None:
        """End durable subscriptions whose clients have not come back in time."""
        for subscription in [*self._host.subscriptions.values()]:
            disconnected_us = self._context.now - subscription.disconnected_since
            if subscription.client is None and disconnected_us > microseconds(
                s=subscription.expiry_s
            ):
                self._context.mark("durable subscription expired")
                self.end(subscription)

    def end(self, subscription: HostedSubscription) -> None:
        """End a subscription, on disk too; until it is gone from there, the log is kept for it (I10)."""
        if subscription.durable:
            self._host.erase(subscription)
        self._take_down(subscription)

    def _take_down(self, subscription: HostedSubscription) -> None:
        host = self._host
        if subscription.client is not None:
            self._by_client.get(subscription.client, {}).pop(subscription.name, None)
        subscription.forget_client()
        subscription.refuse_changes(f"the subscription {subscription.name!r} has ended")
        subscription.ended = True
        if subscription.interest_grace is not None:
            subscription.interest_grace.cancel()
        for cursor in [*subscription.cursors.values()]:
            host.drop_cursor(cursor)
            cursor.subend.review_eager()
        for segment in subscription.segments:
            host.disown(segment)
        del host.subscriptions[subscription.name]

    # --- while it lasts ------------------------------------------------------------------------

    def _credit(self, client: str, call: Credit) -> None:
        found = self._owned(client, call.subscription)
        if found is not None and call.events > 0:
            found.credit += call.events
            self._host.mark_dirty(found)

    def _ack(self, client: str, call: Ack) -> None:
        found = self._owned(client, call.subscription)
        if found is None or not found.durable:
            return
        for pubend, tick in call.position:
            cursor = found.cursors.get(pubend)
            if cursor is None:
                continue
            if cursor.seek_number and tick > max(cursor.last_sent, found.progress.noted(pubend)):
                self._context.mark("acknowledgement from before a seek")
                continue
            cursor.acknowledge(tick)
            cursor.seek_number = 0  # it acknowledges what it was sent since
        found.dirty = True

    def _seek(self, client: str, call: Seek) -> None:
        found = self._owned(client, call.subscription)
        if found is None:
            self._refuse(client, call.request, _not_yours(call.subscription))
            return
        if any(tick < 0 for _, tick in call.start.position):
            self._refuse(client, call.request, NEGATIVE)
            return
        if found.pending_reply is not None:
            # it has no strands yet that could be moved
            found.pending_reply.later.append(lambda: self._seek(client, call))
            return
        found.merged = 0
        position = []
        for pubend, cursor in found.cursors.items():
            tick = seek_target(call.start, cursor)
            if tick is not None and cursor.started_after is not None:
                cursor.merge_exclusion.repositioned(tick)
                cursor.stop_verifying()
                cursor.seek(tick)
                position.append((pubend, tick))
        self._context.notify(
            client, Subscribed(call.request, tuple(position), seek_count=found.seek_count)
        )
        self._host.mark_dirty(found)

    def _set_filter(self, client: str, call: SetFilter) -> None:
        found = self._host.subscriptions.get(call.subscription)
        if found is None or found.client not in {client, None}:
            self._refuse(client, call.request, _not_yours(call.subscription))
            return
        wanted = self._filter(client, call.request, call.filter)
        if wanted is not None:
            found.ask_for_change(client, call.request, wanted)


def seek_target(start: StartPoint, cursor: Cursor) -> Tick | None:
    """Return after which tick a strand goes on; None if it stays where it is."""
    match start.kind:
        case StartKind.LATEST:
            return max(cursor.subend.horizon or 0, cursor.buffered_up_to)
        case StartKind.POSITION:
            return dict(start.position).get(cursor.pubend)
        case StartKind.EARLIEST:
            return 0
        case StartKind.TIME:
            return max(0, start.clock - 1)


def _is_outdated(found: HostedSubscription, call: Subscribe, wanted: Filter) -> bool:
    """Say whether a subscription has not heard that it moved, and has filters of before that."""
    if call.hosting is None or not _is_behind(found, call.hosting):
        return False
    if call.hosting.broker == found.host.context.identity.broker:
        return False  # it was answered nowhere else since
    texts = [each.filter for each in call.past_filters]
    return found.newest.filter != wanted or texts != [each.text for each in found.segments[:-1]]


def _is_behind(found: HostedSubscription, reference: HostingReference) -> bool:
    """Say whether a client may have gone on elsewhere since it left this form of its subscription."""
    here = found.host.context.identity.broker
    return found.epoch < reference.epoch or (
        found.epoch == reference.epoch and reference.broker != here
    )


def _retained_from(call: Subscribe) -> StartPoint:
    """Return from where on logs are kept for a new subscription: one that moves keeps what is owed.

    Its client may have seen more than it has acknowledged. Should it forget what it has seen, that
    comes again, as it would have at the old home.
    """
    if call.hosting is None or call.start.kind is not StartKind.POSITION:
        return call.start
    acked = dict(call.acked)
    position = (
        (pubend, min(tick, acked.get(pubend, tick))) for pubend, tick in call.start.position
    )
    return msgspec.structs.replace(call.start, position=tuple(position))


def _merged(start: StartPoint, position: dict[PubendId, Tick]) -> Tick:
    """Return what a client was given up to that brings some places, in total order."""
    farthest = max(position.values(), default=0)
    return farthest if start.merged is None else min(max(start.merged, 0), farthest)


def _fenced_reason(name: str) -> str:
    return f"the subscription {name!r} was fenced by a newer connection"


def _not_yours(name: str) -> str:
    return f"this connection has no subscription {name!r}; subscribe first"
