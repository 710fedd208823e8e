"""Collecting: all durable subscriptions of the overlay, page by page.

Every broker on the way merges its own subscriptions with those of the brokers behind it and passes
the first ones on. So a page has a bounded size however large the overlay is. The pages are in the
order of names and brokers, and two subscriptions of one name stand side by side.

A page whose tree has changed is collected anew after ``name_query_retry_ms``, until
``find_timeout_ms`` has passed (RS-15a).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, TypeAlias

from msgspec.structs import replace

from gapless.core.context import Context
from gapless.core.ids import BrokerId, CellId
from gapless.core.limits import (
    SEARCHES_PER_CLIENT_MAX,
    SHOWN_ENTRIES_MAX,
    SHOWN_TEXT_MAX,
    SILENT_NAMED_MAX,
)
from gapless.core.parameters import microseconds
from gapless.messages.clients import RefusalCause, Refused
from gapless.messages.mobility import (
    CollectSubscriptions,
    DurableEntry,
    SubscriptionHost,
    SubscriptionsCollected,
    WalkKey,
)
from gapless.messages.operating import AllDurableList, ListAllDurable
from gapless.mobility.find import SubscriptionFinder
from gapless.mobility.protocols import CorruptNames, SubscriptionsByName
from gapless.mobility.walk import Walks
from gapless.subscribers.subscription import HostedSubscription

__all__ = ["SubscriptionCollector", "first_page"]

CollectDone: TypeAlias = Callable[[SubscriptionsCollected], None]
"""Called with a page."""


def first_page(entries: list[DurableEntry]) -> tuple[tuple[DurableEntry, ...], bool]:
    """Return the entries of a page, at least one, and whether there are more.

    A broker that was asked over two ways has sent its entries twice; they are counted once.
    """
    by_place = {each.place: each for each in entries}
    ordered = sorted(by_place.values(), key=attrgetter("place"))
    remaining = SHOWN_TEXT_MAX
    for index, each in enumerate(ordered):
        if index >= SHOWN_ENTRIES_MAX or remaining <= 0:
            return tuple(ordered[:index]), True
        remaining -= len(each.filter) + len(each.name)
    return tuple(ordered), False


class _Page:
    """The page that one walk gathers."""

    def __init__(self, own: list[DurableEntry], key: WalkKey) -> None:
        self._entries = own
        self._key = key
        self._silent: list[BrokerId] = []
        self._retry = False
        self._limit: tuple[str, BrokerId] | None = None
        """The end of the shortest page that has more entries behind it."""

    @property
    def needs_all(self) -> bool:
        """Brokers without an open session are not waited for: the list says who is missing."""
        return False

    def take(self, answer: SubscriptionsCollected) -> bool:
        """Take the page of a peer."""
        self._entries += answer.entries
        self._silent += answer.silent
        if answer.more and answer.entries:
            end = answer.entries[-1].place
            self._limit = end if self._limit is None else min(self._limit, end)
        self._retry |= answer.retry
        return self._retry

    def tree_stepped(self) -> None:
        """The edges of the own cell have changed."""
        self._retry = True

    def end(self, silent: tuple[BrokerId, ...]) -> SubscriptionsCollected:
        """Merge the pages. Behind the end of a page that is cut, entries may be missing."""
        limit = self._limit
        known = [each for each in self._entries if limit is None or each.place <= limit]
        entries, is_cut = first_page(known)
        named = tuple(dict.fromkeys((*self._silent, *silent)))[:SILENT_NAMED_MAX]
        more = is_cut or limit is not None
        return SubscriptionsCollected(self._key, entries, more, named, self._retry)


class SubscriptionCollector:
    """Answers requests for all durable subscriptions, of operators and of other brokers."""

    def __init__(
        self,
        context: Context,
        walks: Walks,
        registry: SubscriptionsByName,
        corrupt: CorruptNames,
        finder: SubscriptionFinder,
    ) -> None:
        self._context = context
        self._me = context.identity.broker
        self._walks = walks
        self._registry = registry
        self._corrupt = corrupt
        self._finder = finder
        self._listing: Counter[str] = Counter()
        """How many lists of each client are being collected."""
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {ListAllDurable: self._list}

    def _list(self, client: str, call: ListAllDurable) -> None:
        if self._walks.is_full or self._listing[client] >= SEARCHES_PER_CLIENT_MAX:
            reason = "too many searches are pending; retry later"
            self._context.notify(client, Refused(call.request, reason, RefusalCause.UNAVAILABLE))
            return

        self._listing[client] += 1

        def done(page: SubscriptionsCollected) -> None:
            self._listing[client] -= 1
            if not self._listing[client]:
                del self._listing[client]
            complete = self._finder.with_addresses
            entries = tuple(replace(each, host=complete(each.host)) for each in page.entries)
            reply = AllDurableList(call.request, entries, page.more, page.silent)
            self._context.notify(client, reply)

        wait_us = microseconds(ms=self._context.parameters.find_timeout_ms)
        self._collect(call.after, self._context.now + wait_us, done)

    def _collect(self, after: tuple[str, BrokerId], deadline: int, done: CollectDone) -> None:
        """Collect a page; anew if the tree has changed and time is left."""
        pause_us = microseconds(ms=self._context.parameters.name_query_retry_ms)

        def collected(page: SubscriptionsCollected) -> None:
            if page.retry and self._context.now + pause_us < deadline:
                self._context.call_later(pause_us, lambda: self._collect(after, deadline, done))
            else:
                done(page)

        wait_ms = (deadline - self._context.now) // microseconds(ms=1)
        asked = CollectSubscriptions(self._walks.next_key(), after, wait_ms)
        self._gather(asked, None, collected)

    def asked(self, peer: BrokerId, asked: CollectSubscriptions) -> None:
        """Answer with the page of this broker and of all brokers behind it."""
        cell = self._walks.source_of(peer, asked)
        if cell is None:
            return

        def answer(page: SubscriptionsCollected) -> None:
            self._walks.answer(peer, page)

        nothing = SubscriptionsCollected(asked.key, (), more=False, silent=(self._me,))
        if not self._walks.crosses_known_edges(cell, asked.path_epochs):
            answer(replace(nothing, retry=True))
        elif self._walks.join(CollectSubscriptions, asked.key, answer):
            return
        elif self._walks.is_full:
            answer(nothing)
        else:
            self._gather(asked, cell, answer)

    def _gather(
        self, asked: CollectSubscriptions, source: CellId | None, receiver: CollectDone
    ) -> None:
        self._walks.begin(
            CollectSubscriptions,
            asked.key,
            lambda wait_ms, epochs: replace(asked, wait_ms=wait_ms, path_epochs=epochs),
            asked.wait_ms,
            _Page(self._own(asked.after), asked.key),
            receiver,
            source=source,
        )

    def answered(self, peer: BrokerId, answer: SubscriptionsCollected) -> None:
        """Take the page of a peer."""
        self._walks.answered(CollectSubscriptions, peer, answer)

    def _own(self, after: tuple[str, BrokerId]) -> list[DurableEntry]:
        hosted = {each.name: each for each in self._registry.durable()}
        names = sorted(name for name in {*hosted, *self._corrupt.names} if (name, self._me) > after)
        listed = names[: SHOWN_ENTRIES_MAX + 1]
        return [
            self._entry(hosted[name]) if name in hosted else self._corrupt_entry(name)
            for name in listed
        ]

    def _corrupt_entry(self, name: str) -> DurableEntry:
        addresses = self._finder.addresses_of(self._me)
        return DurableEntry(
            name, SubscriptionHost(self._me, "", 0, addresses, corrupt=True), "", None, None
        )

    def _entry(self, subscription: HostedSubscription) -> DurableEntry:
        addresses = self._finder.addresses_of(self._me)
        host = SubscriptionHost(
            self._me, subscription.incarnation_key, subscription.epoch, addresses
        )
        client = subscription.client
        ago = self._context.now - subscription.disconnected_since
        return DurableEntry(
            subscription.name,
            host,
            subscription.newest.text,
            client,
            None if client is not None else self._context.clock - ago,
        )
