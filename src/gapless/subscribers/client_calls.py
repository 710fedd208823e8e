"""Requests of subscribers: subscribe, resume, seek, acknowledge, end (R46, R50).

A durable subscription has one client at a time. A client that subscribes under its name fences the
connection before it: that connection receives nothing more, and its late requests are refused or
ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gapless.content.filter import Filter
from gapless.core.context import Context
from gapless.core.errors import FilterError
from gapless.core.ids import PubendId
from gapless.core.limits import NAME_MAX, UNKNOWN_STREAMS_MAX
from gapless.messages.clients import (
    Ack,
    Credit,
    HostingReference,
    LeaveSubscription,
    Order,
    RefusalCause,
    Refused,
    Seek,
    SetFilter,
    StartKind,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from gapless.subscribers.corrupt import CorruptSubscriptions
from gapless.subscribers.cursor_state import Started
from gapless.subscribers.filters import Filters
from gapless.subscribers.merge import merged_by_client
from gapless.subscribers.protocols import Hosting, HostingSearch, ResumeRules
from gapless.subscribers.registry import Registry
from gapless.subscribers.seeks import NEGATIVE, seek_target
from gapless.subscribers.start_guarantee import ConfirmedFilter, StartGuarantee, invalid_reason
from gapless.subscribers.subscription import HostedSubscription

__all__ = ["SubscriberCalls"]


class SubscriberCalls:
    """The requests of all clients of this SHB."""

    def __init__(
        self,
        context: Context,
        filters: Filters,
        registry: Registry,
        corrupt: CorruptSubscriptions,
        hosting: Hosting,
        moves: ResumeRules,
        search: HostingSearch,
    ) -> None:
        self._context = context
        self._filters = filters
        self._registry = registry
        self._corrupt = corrupt
        self._hosting = hosting
        self._moves = moves
        self._search = search
        self._made = 0
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {
            Subscribe: self._subscribe,
            SetFilter: self._set_filter,
            Seek: self._seek,
            Ack: self._ack,
            Credit: self._credit,
            Unsubscribe: self._unsubscribe,
            LeaveSubscription: self._leave,
        }

    def _refuse(
        self, client: str, request: int, reason: str, cause: RefusalCause = RefusalCause.OTHER
    ) -> None:
        self._context.notify(client, Refused(request, reason, cause))

    def _filter(self, client: str, request: int, text: str) -> Filter | None:
        """Return the filter of a text, or refuse the request and return None."""
        try:
            return Filter(text)
        except FilterError as error:
            self._refuse(client, request, str(error))
            return None

    def _owned(self, client: str, name: str) -> HostedSubscription | None:
        """Return a subscription if it belongs to the client now."""
        return self._registry.of_client(client).get(name)

    # --- subscribing ---------------------------------------------------------------------------

    def _subscribe(self, client: str, call: Subscribe) -> None:
        """Subscribe here, or wherever the subscription of that name is hosted (MV-15)."""
        reason = self._invalid_reason(call)
        if reason is not None:
            self._refuse(client, call.request, reason)
            return
        texts = (call.filter or "", *(each.filter for each in call.past_filters))
        filters = [self._filter(client, call.request, text) for text in texts]
        new_filter = filters[0]
        if new_filter is None or None in filters:
            return
        if not call.durable:
            self._subscribe_here(client, call, new_filter)
        elif call.hosting is not None:
            self._search.confirm(call.subscription)
            self._subscribe_here(client, call, new_filter)
        else:
            self._search.resolve(
                client,
                call.request,
                call.subscription,
                lambda: self._subscribe_found(client, call, new_filter),
                anyway=call.create,
                wait_ms=call.wait_ms,
            )

    def _subscribe_found(self, client: str, call: Subscribe, new_filter: Filter) -> None:
        """Subscribe after a search, in which the subscriptions of this broker may have changed."""
        reason = self._invalid_reason(call)
        if reason is None:
            self._subscribe_here(client, call, new_filter)
        else:
            self._refuse(client, call.request, reason)

    def _subscribe_here(self, client: str, call: Subscribe, new_filter: Filter) -> None:
        corruption = self._corrupt.refusal(call.subscription)
        if corruption is not None:
            self._refuse(client, call.request, corruption)
            return
        reason = self._unknown_reason(call)
        if reason is not None:
            self._refuse(client, call.request, reason, RefusalCause.UNAVAILABLE)
            return
        found = self._registry.subscriptions.get(call.subscription)
        newer = None if call.hosting is None else self._hosting.newer_hosting(call.hosting)
        if newer is not None:
            reason = f"the subscription {call.subscription!r} has moved to {newer.broker}"
            refused = Refused(call.request, reason, RefusalCause.WRONG_BROKER, newer.broker, newer)
            self._context.notify(client, refused)
            return
        if found is not None and not call.take_over and found.client not in {client, None}:
            self._refuse(client, call.request, _in_use(found))
            return
        if call.filter is None:
            if found is None:
                reason = _no_filter(call.subscription)
                self._refuse(client, call.request, reason, RefusalCause.FILTER_REQUIRED)
                return
            call = msgspec.structs.replace(call, filter=found.newest.text)
            new_filter = found.newest.filter
        if found is not None:
            if self._registry.is_older(client, found):
                reason = _fenced_reason(call.subscription)
                self._refuse(client, call.request, reason, RefusalCause.FENCED)
                return
            if found.client not in {client, None}:
                found.reply.send_ended(_fenced_reason(found.name))
        if found is None:
            self._create(client, call, new_filter)
        elif found.durable and not self._moves.is_outdated(found, call, new_filter):
            exactly = self._moves.resume_returned(found, call)
            self._registry.disconnect(found)
            self._connect(found, client, call, exactly=exactly)
        else:
            self._replace(found, client, call, new_filter)

    def _replace(
        self, found: HostedSubscription, client: str, call: Subscribe, new_filter: Filter
    ) -> None:
        """Create a subscription in the place of an older one of the same name.

        One write replaces the record: a crash between two writes would lose the subscription.
        """
        let_go = self._registry.retain_logs(found)
        confirmed, guarantees = found.guarantees.confirmed, found.guarantees.inheritance()
        self._registry.take_down(found)
        self._create(client, call, new_filter, confirmed, guarantees)
        self._context.write((), let_go)

    def _invalid_reason(self, call: Subscribe) -> str | None:
        found = self._registry.subscriptions.get(call.subscription)
        if not 0 < len(call.subscription) <= NAME_MAX:
            return f"a subscription's name has 1 to {NAME_MAX} characters"
        positions = (call.start.position, call.acked, *(each.ends for each in call.past_filters))
        if any(tick < 0 for position in positions for _, tick in position):
            return NEGATIVE
        most = self._context.parameters.segments_max
        if len(call.past_filters) > most:
            return f"{len(call.past_filters)} past filters are more than {most} (segments_max)"
        if call.past_filters and call.hosting is None:
            return "past filters need a hosting reference"
        if call.start.unnamed is StartKind.POSITION:
            return "a start needs a rule for pubends of which it names no position"
        if (
            call.start_guarantees is not None
            and (fault := invalid_reason(call.start_guarantees)) is not None
        ):
            return fault
        if call.filter is None and not call.durable:
            return "a subscription that is not durable needs a filter"
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
                "end it or use another name"
            )
        return None

    def _unknown_reason(self, call: Subscribe) -> str | None:
        """Return why a position names too many pubends that are not announced here, or None."""
        if call.start.kind is not StartKind.POSITION:
            return None
        announced, joined = self._filters.announced_pubends, self._registry.joined_pubends
        named = {pubend for pubend, _ in call.start.position}
        new = len(named.difference(announced, joined))
        if not new:
            return None
        unknown = new + sum(pubend not in announced for pubend in joined)
        if unknown <= UNKNOWN_STREAMS_MAX:
            return None
        self._context.mark("too many unknown pubends in a position")
        return (
            f"the position names {new:,} pubends that are not announced to this broker, and with "
            f"those of other subscriptions there may be {UNKNOWN_STREAMS_MAX:,} (limit "
            "UNKNOWN_STREAMS_MAX); retry later, or leave pubends out that no longer exist"
        )

    def _create(
        self,
        client: str,
        call: Subscribe,
        new_filter: Filter,
        confirmed: ConfirmedFilter | None = None,
        guarantees: Mapping[PubendId, StartGuarantee] | None = None,
    ) -> None:
        """Create a subscription; a durable one takes effect when it is on disk (R46).

        It inherits the confirmed filter and the start guarantees of a subscription that it
        replaces.
        """
        incarnation_key, epoch = self._identity(call)
        made = self._registry.add(
            call.subscription,
            durable=call.durable,
            order=call.order,
            start=self._moves.retained_start(call),
            expiry_s=call.expiry_s,
            incarnation_key=incarnation_key,
            epoch=epoch,
        )
        self._moves.adopt_resume_state(made, call)
        self._filters.own(made.add_segment(new_filter))
        self._moves.adopt_guarantees(made, call)
        if made.durable and guarantees is not None:
            made.guarantees.inherit(confirmed, guarantees)
        if made.order is Order.TOTAL and call.start.kind is StartKind.POSITION:
            # before the cursors exist: none may start below what the client has merged (R51)
            made.merge.reset(merged_by_client(call.start, dict(call.start.position)))
        self._connect(made, client, call)
        if made.durable:
            made.save(made.created)
        else:
            made.cursor_set.update_all()

    def _identity(self, call: Subscribe) -> tuple[str, int]:
        """Return the incarnation key and the epoch of a new subscription."""
        if not call.durable:
            return "", 0
        if call.hosting is not None:
            return self._moves.identity(call.hosting)
        self._made += 1
        identity = self._context.identity
        return f"{identity.broker}/{identity.incarnation}/{self._made}", 0

    def _connect(
        self,
        subscription: HostedSubscription,
        client: str,
        call: Subscribe,
        *,
        exactly: bool = False,
    ) -> None:
        self._registry.give(subscription, client)
        subscription.connect(
            client,
            call.request,
            call.credit,
            call.start,
            seek_count=call.seek_count,
            exactly=exactly,
        )

    # --- ending --------------------------------------------------------------------------------

    def _unsubscribe(self, client: str, call: Unsubscribe) -> None:
        """End a subscription; one that is known by its name alone, wherever it is hosted."""
        if call.durable and call.hosting is None:
            name, request = call.subscription, call.request
            self._search.resolve(client, request, name, lambda: self._end(client, call))
        else:
            self._end(client, call)

    def _end(self, client: str, call: Unsubscribe) -> None:
        found, reference = self._registry.subscriptions.get(call.subscription), call.hosting
        corruption = self._corrupt.refusal(call.subscription)
        if call.durable and corruption is not None:
            self._refuse(client, call.request, corruption)
            return
        if (
            found is not None
            and reference is not None
            and found.incarnation_key != reference.incarnation_key
        ):
            found = None  # another subscription of that name
        if found is not None and self._registry.is_older(client, found):
            self._refuse(client, call.request, _not_yours(call.subscription))
            return
        if found is not None:
            if found.durable and not (found.client == client and found.reply.is_pending):
                found.reply.send_ended(f"the subscription {found.name!r} was unsubscribed")
            self._registry.end(found)
            if found.epoch:
                self._hosting.forget_moved(found)
        if reference is not None and self._is_hosted_elsewhere(found, reference):
            self._hosting.end_remote(reference)
        # also if it does not exist: a request whose reply was lost may have ended it
        self._context.write((), lambda: self._context.notify(client, Unsubscribed(call.request)))

    def _is_hosted_elsewhere(
        self, found: HostedSubscription | None, reference: HostingReference
    ) -> bool:
        """Return whether, as far as the client knows, another broker hosts the subscription."""
        if found is not None:
            return self._moves.is_behind(found, reference)
        here = self._context.identity.broker
        return reference.broker != here or self._hosting.newer_hosting(reference) is not None

    def _leave(self, client: str, call: LeaveSubscription) -> None:
        """Let a client leave a durable subscription, as if it had disconnected (R50)."""
        self._search.give_up(client, call.subscription)
        found = self._owned(client, call.subscription)
        if found is not None and found.durable:
            self._registry.disconnect(found)

    # --- credit, acknowledgements, seeks, filters ----------------------------------------------

    def _credit(self, client: str, call: Credit) -> None:
        found = self._owned(client, call.subscription)
        if found is not None and call.events > 0:
            found.delivery.add_credit(call.events)
            found.mark_dirty()

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
            cursor.acknowledge(tick)  # the client was sent this tick after the last seek
        found.note_change()

    def _seek(self, client: str, call: Seek) -> None:
        found = self._owned(client, call.subscription)
        if found is None:
            self._refuse(client, call.request, _not_yours(call.subscription))
            return
        if any(tick < 0 for _, tick in call.start.position):
            self._refuse(client, call.request, NEGATIVE)
            return
        if found.reply.do_later(lambda: self._seek(client, call)):
            return  # the cursors may not exist yet
        found.merge.reset(0)
        position = []
        named = dict(call.start.position)
        for pubend, cursor in found.cursors.items():
            tick = seek_target(call.start, named, cursor)
            if tick is not None and isinstance(cursor.start, Started):
                cursor.merge_exclusion.repositioned(tick)
                cursor.verification.stop()
                cursor.seek(tick)
                position.append((pubend, tick))
        self._context.notify(
            client, Subscribed(call.request, tuple(position), seek_count=found.seek_count)
        )
        found.mark_dirty()

    def _set_filter(self, client: str, call: SetFilter) -> None:
        found = self._registry.subscriptions.get(call.subscription)
        if found is None or found.client not in {client, None}:
            self._refuse(client, call.request, _not_yours(call.subscription))
            return
        new_filter = self._filter(client, call.request, call.filter)
        if new_filter is not None:
            found.changes.request(client, call.request, new_filter)


def _fenced_reason(name: str) -> str:
    return f"the subscription {name!r} was fenced by a newer connection"


def _in_use(found: HostedSubscription) -> str:
    return (
        f"the subscription {found.name!r} is in use by the client {found.client}: "
        "stop that client, or take the subscription over (gapless sub --take-over, take_over=True)"
    )


def _no_filter(name: str) -> str:
    return f"there is no durable subscription {name!r}: give a filter to create it"


def _not_yours(name: str) -> str:
    return f"this connection has no subscription {name!r}; subscribe first"
