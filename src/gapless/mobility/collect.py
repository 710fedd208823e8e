"""Collecting: all durable subscriptions of the overlay, page by page.

Every broker on the way merges its own subscriptions with those of the brokers behind it and passes
the first ones on. So a page has a bounded size however large the overlay is. The pages are in the
order of names and brokers, and two subscriptions of one name stand side by side.
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
from gapless.overlay.tree import Tree
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
        self._done: list[CollectDone] = []
        self._limit: tuple[str, BrokerId] | None = None
        """The end of the shortest page that has more entries behind it."""

    @property
    def needs_all(self) -> bool:
        """Brokers without an open session are not waited for: the list says who is missing."""
        return False

    def report_to(self, done: CollectDone) -> None:
        """Give the page to one more receiver."""
        self._done.append(done)

    def take(self, answer: SubscriptionsCollected) -> bool:
        """Take the page of a peer."""
        self._entries += answer.entries
        self._silent += answer.silent
        if answer.more and answer.entries:
            end = answer.entries[-1].place
            self._limit = end if self._limit is None else min(self._limit, end)
        return False

    def end(self, silent: tuple[BrokerId, ...]) -> None:
        """Merge the pages. Behind the end of a page that is cut, entries may be missing."""
        limit = self._limit
        known = [each for each in self._entries if limit is None or each.place <= limit]
        entries, is_cut = first_page(known)
        named = tuple(dict.fromkeys((*self._silent, *silent)))[:SILENT_NAMED_MAX]
        page = SubscriptionsCollected(self._key, entries, is_cut or limit is not None, named)
        for done in self._done:
            done(page)


class SubscriptionCollector:
    """Answers requests for all durable subscriptions, of operators and of other brokers."""

    def __init__(
        self,
        context: Context,
        tree: Tree,
        walks: Walks,
        registry: SubscriptionsByName,
        corrupt: CorruptNames,
        finder: SubscriptionFinder,
    ) -> None:
        self._context = context
        self._me = context.identity.broker
        self._tree = tree
        self._walks = walks
        self._registry = registry
        self._corrupt = corrupt
        self._finder = finder
        self._pages: dict[WalkKey, _Page] = {}
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

        wait_ms = self._context.parameters.find_timeout_ms
        asked = CollectSubscriptions(self._walks.next_key(), call.after, wait_ms)
        self._gather(asked, None, done)

    def asked(self, peer: BrokerId, asked: CollectSubscriptions) -> None:
        """Answer with the page of this broker and of all brokers behind it."""
        cell = self._tree.neighbourhood.cell_of(peer)
        if cell is None or self._walks.is_looped(asked.key):
            return

        def answer(page: SubscriptionsCollected) -> None:
            self._walks.answer(peer, page)

        running = self._pages.get(asked.key)
        if running is not None:
            running.report_to(answer)
        elif self._walks.is_full:
            answer(SubscriptionsCollected(asked.key, (), more=False, silent=(self._me,)))
        else:
            self._gather(asked, cell, answer)

    def _gather(
        self, asked: CollectSubscriptions, source: CellId | None, done: CollectDone
    ) -> None:
        page = self._pages[asked.key] = _Page(self._own(asked.after), asked.key)
        page.report_to(done)
        page.report_to(lambda page: self._forget(page.key))
        self._walks.begin(
            lambda wait_ms: CollectSubscriptions(asked.key, asked.after, wait_ms),
            asked.wait_ms,
            page,
            source=source,
        )

    def _forget(self, key: WalkKey) -> None:
        del self._pages[key]

    def answered(self, peer: BrokerId, answer: SubscriptionsCollected) -> None:
        """Take the page of a peer."""
        self._walks.answered(peer, answer)

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
