"""Finding: which broker of the overlay hosts a durable subscription of a name (MV-15).

A broker answers FOUND for a subscription that it hosts, also if the record is corrupt: it may be
repaired, and a second subscription of the name may not exist. If the subscription has moved since,
its present host is found and not the corrupt record. A broker that has handed the
subscription over does not host it. One that was down or cut off may not know that yet. Therefore the
answer of the greatest epoch wins, and an answer that a known claim contradicts does not count
(:mod:`.hosting`). Of several subscriptions of one name the one at the least broker is found.

A search whose tree has changed is made anew after ``name_query_retry_ms``, until its time is over
(RS-15a). Then a host that was found counts; otherwise the result is UNKNOWN.

:mod:`.walk` passes the question over the tree, :mod:`.find_state` has the states of a search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from gapless.core.address import Address
from gapless.core.context import Context
from gapless.core.ids import BrokerId, CellId
from gapless.core.limits import SILENT_NAMED_MAX
from gapless.core.parameters import microseconds
from gapless.messages.mobility import (
    FindStatus,
    FindSubscription,
    SubscriptionFound,
    SubscriptionHost,
    WalkKey,
)
from gapless.mobility.find_state import FINAL, FindInput, FindState, next_state
from gapless.mobility.protocols import CorruptNames, KnownClaims, SubscriptionsByName
from gapless.mobility.walk import Walks

__all__ = ["ClientAddresses", "FindDone", "FindResult", "SubscriptionFinder", "preferred"]


class FindResult(NamedTuple):
    """The result of a search."""

    status: FindStatus
    host: SubscriptionHost | None = None
    """If the status is FOUND, or known in spite of RETRY."""
    silent: tuple[BrokerId, ...] = ()
    """Brokers that did not answer; if the status is CONTESTED, the broker that searches too."""


FindDone: TypeAlias = Callable[[FindResult], None]

ClientAddresses: TypeAlias = Mapping[BrokerId, Address]
"""The address of each broker, by the configuration of the overlay."""

_INPUTS: Final = {
    FindStatus.NONE: FindInput.ANSWER_NONE,
    FindStatus.FOUND: FindInput.ANSWER_FOUND,
    FindStatus.UNKNOWN: FindInput.ANSWER_UNKNOWN,
    FindStatus.CONTESTED: FindInput.ANSWER_CONTESTED,
    FindStatus.RETRY: FindInput.ANSWER_RETRY,
}
_STATUS: Final = {
    FindState.NONE: FindStatus.NONE,
    FindState.FOUND: FindStatus.FOUND,
    FindState.UNKNOWN: FindStatus.UNKNOWN,
    FindState.CONTESTED: FindStatus.CONTESTED,
    FindState.RETRY: FindStatus.RETRY,
}


def preferred(one: SubscriptionHost | None, other: SubscriptionHost) -> SubscriptionHost:
    """Return the host that counts: of one subscription the newer, of several the least broker.

    A subscription whose record is corrupt counts only if there is no other.

    >>> old, new = SubscriptionHost("b3", "k", 0), SubscriptionHost("b1", "k", 1)
    >>> preferred(old, new).broker, preferred(new, SubscriptionHost("b0", "other", 7)).broker
    ('b1', 'b0')
    """
    if one is None:
        return other
    if one.corrupt != other.corrupt:
        return other if one.corrupt else one
    if one.incarnation_key == other.incarnation_key:
        return max(one, other, key=lambda each: (each.epoch, each.broker))
    return min(one, other, key=lambda each: each.broker)


class _Search:
    """One search that passes through this broker."""

    def __init__(self, claims: KnownClaims, me: BrokerId) -> None:
        self.state = FindState.WAITING
        self._claims = claims
        self._me = me
        self._host: SubscriptionHost | None = None
        self._silent: list[BrokerId] = []

    @property
    def needs_all(self) -> bool:
        """Whether brokers without an open session are waited for too."""
        return self.state is not FindState.LOCATED

    def locate(self, host: SubscriptionHost) -> None:
        """This broker hosts it itself: only a newer host of a reachable broker is of interest."""
        self._host = host
        self._advance(FindInput.ANSWER_FOUND)

    def take(self, answer: SubscriptionFound) -> bool:
        """Take the answer of a peer; return whether the search has ended."""
        status, host, silent = answer.status, answer.host, answer.silent
        if host is not None:
            claim = self._claims.claim_of(host.incarnation_key)
            if claim is not None and claim.rank > (host.epoch, host.broker):
                # that broker has handed it over and does not know; this one would have ended it
                is_ended = claim.broker == self._me
                if status is FindStatus.FOUND:
                    status = FindStatus.NONE if is_ended else FindStatus.UNKNOWN
                host, silent = None, () if is_ended else (*silent, claim.broker)
        if status in {FindStatus.FOUND, FindStatus.RETRY} and host is not None:
            self._host = preferred(self._host, host)
        self._silent += silent
        return self._advance(_INPUTS[status])

    def tree_stepped(self) -> None:
        """The edges of the own cell have changed."""
        self._advance(FindInput.TREE_STEPPED)

    def outrank(self, rival: BrokerId) -> bool:
        """A broker of a lesser name searches too; return whether this search has ended."""
        self._silent.append(rival)
        return self._advance(FindInput.OUTRANKED)

    def _advance(self, happened: FindInput) -> bool:
        self.state = next_state(self.state, happened)
        return self.state in FINAL

    def end(self, silent: tuple[BrokerId, ...]) -> FindResult:
        """Return the result."""
        if self.state not in FINAL:
            self._advance(FindInput.SOME_SILENT if silent else FindInput.ALL_ANSWERED)
        named = () if self.state is FindState.CONTESTED else silent
        brokers = tuple(dict.fromkeys((*self._silent, *named)))[:SILENT_NAMED_MAX]
        host = self._host if self.state in {FindState.FOUND, FindState.RETRY} else None
        return FindResult(_STATUS[self.state], host, brokers)


class _OwnSearch:
    """The search of this broker for a name: one or several rounds."""

    def __init__(self, name: str, deadline: int, *, hosted: bool) -> None:
        self.name = name
        self.deadline = deadline
        self.hosted = hosted
        self.round: tuple[WalkKey, _Search] | None = None
        """The round under way; None during the pause before the next one."""
        self._host: SubscriptionHost | None = None
        """The host that earlier rounds have found."""
        self._done: list[FindDone] = []
        """The receivers of the result: several clients may look for one name."""

    def report_to(self, done: FindDone) -> None:
        """Give the result to one more receiver."""
        self._done.append(done)

    def begin_round(self, key: WalkKey, search: _Search) -> None:
        """Note the round under way."""
        self.round = key, search

    def end_round(self, result: FindResult) -> FindResult:
        """Keep the host that a round has found; return the result if no round follows."""
        self.round = None
        if result.host is not None:
            self._host = preferred(self._host, result.host)
        if result.status is not FindStatus.RETRY:
            return result
        if self._host is not None:
            return FindResult(FindStatus.FOUND, self._host, result.silent)
        return FindResult(FindStatus.UNKNOWN, None, result.silent)

    def report(self, result: FindResult) -> None:
        """Give the result to all receivers."""
        for done in self._done:
            done(result)


class SubscriptionFinder:
    """Finds the hosting brokers of subscriptions, for this broker and for others."""

    def __init__(
        self,
        context: Context,
        walks: Walks,
        registry: SubscriptionsByName,
        claims: KnownClaims,
        corrupt: CorruptNames,
        addresses: ClientAddresses,
    ) -> None:
        self._context = context
        self._me = context.identity.broker
        self._walks = walks
        self._registry = registry
        self._claims = claims
        self._corrupt = corrupt
        self._addresses = addresses
        self._own: dict[str, _OwnSearch] = {}
        """The searches of this broker by their names."""

    @property
    def is_full(self) -> bool:
        """Whether no further search is accepted now."""
        return self._walks.is_full

    def addresses_of(self, broker: BrokerId) -> tuple[str, ...]:
        """Return at which addresses clients reach a broker, as far as they are configured."""
        found = self._addresses.get(broker)
        return (str(found),) if found is not None and found.is_reachable else ()

    def with_addresses(self, host: SubscriptionHost) -> SubscriptionHost:
        """Return a host with its addresses: if it knows none, those that this broker knows."""
        addresses = host.addresses or self.addresses_of(host.broker)
        return replace(host, addresses=addresses)

    def host_here(self, name: str) -> SubscriptionHost | None:
        """Return this broker as the host of a durable subscription, or None."""
        found, addresses = self._registry.durable_named(name), self.addresses_of(self._me)
        if found is not None:
            return SubscriptionHost(self._me, found.incarnation_key, found.epoch, addresses)
        if name in self._corrupt.names:
            return SubscriptionHost(self._me, "", 0, addresses, corrupt=True)
        return None

    # --- searches of this broker ---------------------------------------------------------------

    def find(self, name: str, done: FindDone, wait_ms: int = 0, *, hosted: bool = False) -> None:
        """Ask all other brokers whether they host a subscription.

        ``hosted``: this broker does, and asks only brokers that can be reached for a newer host.
        """
        own = self._own.get(name)
        if own is not None:
            own.report_to(done)
            return
        longest_ms = self._context.parameters.find_timeout_ms
        wait_ms = min(wait_ms or longest_ms, longest_ms)
        deadline = self._context.now + microseconds(ms=wait_ms)
        own = self._own[name] = _OwnSearch(name, deadline, hosted=hosted)
        own.report_to(done)
        self._begin_round(own)

    def _begin_round(self, own: _OwnSearch) -> None:
        key, search = self._walks.next_key(), _Search(self._claims, self._me)
        own.begin_round(key, search)
        wait_ms = (own.deadline - self._context.now) // microseconds(ms=1)
        asked = FindSubscription(key, "", own.name, wait_ms)
        host = self.host_here(own.name) if own.hosted else None
        self._begin(asked, None, search, host, partial(self._round_ended, own))

    def _round_ended(self, own: _OwnSearch, result: FindResult) -> None:
        final = own.end_round(result)
        pause_us = microseconds(ms=self._context.parameters.name_query_retry_ms)
        is_late = self._context.now + pause_us >= own.deadline
        if result.status is FindStatus.RETRY and not is_late:
            self._context.call_later(pause_us, lambda: self._begin_round(own))
            return
        del self._own[own.name]  # the receivers may search again
        own.report(final)

    def _begin(
        self,
        asked: FindSubscription,
        source: CellId | None,
        search: _Search,
        host: SubscriptionHost | None,
        receiver: FindDone,
    ) -> None:
        if host is not None:
            search.locate(host)
        self._walks.begin(
            FindSubscription,
            asked.key,
            lambda wait_ms, epochs: replace(asked, wait_ms=wait_ms, path_epochs=epochs),
            asked.wait_ms,
            search,
            receiver,
            source=source,
        )

    # --- messages of peers ---------------------------------------------------------------------

    def asked(self, peer: BrokerId, asked: FindSubscription) -> None:
        """Answer when all brokers behind this one have answered, for them and for this one."""
        cell = self._walks.source_of(peer, asked)
        if cell is None:
            return

        def answer(result: FindResult) -> None:
            status, host, silent = result
            here = self.host_here(asked.name)
            if here is not None:
                host = preferred(host, here)
                status = status if status is FindStatus.RETRY else FindStatus.FOUND
            self._walks.answer(peer, SubscriptionFound(asked.key, status, host, silent))

        if not self._walks.crosses_known_edges(cell, asked.path_epochs):
            answer(FindResult(FindStatus.RETRY))
        elif self._walks.join(FindSubscription, asked.key, answer):
            return
        elif self._is_contested(asked):
            answer(FindResult(FindStatus.CONTESTED, silent=(self._me,)))
        elif self._walks.is_full:
            answer(FindResult(FindStatus.UNKNOWN, silent=(self._me,)))
        else:
            search = _Search(self._claims, self._me)
            self._begin(asked, cell, search, self.host_here(asked.name), answer)

    def _is_contested(self, asked: FindSubscription) -> bool:
        """Return whether this broker searches for the name too, and goes first.

        Of two brokers the one with the lesser name goes first; the other gives its search up.
        """
        own = self._own.get(asked.name)
        if own is None or own.round is None or self._registry.durable_named(asked.name) is not None:
            return False
        (key, rival), requester = own.round, asked.key.requester
        if rival.state is FindState.LOCATED:
            return False
        self._context.mark("two brokers search for one subscription")
        if self._me < requester:
            return True
        if rival.outrank(requester):
            self._walks.stop(FindSubscription, key)
        return False

    def answered(self, peer: BrokerId, answer: SubscriptionFound) -> None:
        """Take the answer of a peer."""
        self._walks.answered(FindSubscription, peer, answer)
