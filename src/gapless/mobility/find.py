"""Finding: which broker of the overlay hosts a durable subscription of a name (MV-15).

A broker answers FOUND for a subscription that it hosts, also if the record is corrupt: it may be
repaired, and a second subscription of the name may not exist. If the subscription has moved since,
its present host is found and not the corrupt record. A broker that has handed the
subscription over does not host it. One that was down or cut off may not know that yet. Therefore the
answer of the greatest epoch wins, and an answer that a known claim contradicts does not count
(:mod:`.hosting`). Of several subscriptions of one name the one at the least broker is found.

:mod:`.walk` passes the question over the tree, :mod:`.find_state` has the states of a search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from gapless.core.address import Address
from gapless.core.context import Context
from gapless.core.ids import BrokerId, CellId
from gapless.core.limits import SILENT_NAMED_MAX
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
from gapless.overlay.tree import Tree

__all__ = ["ClientAddresses", "FindDone", "FindResult", "SubscriptionFinder", "preferred"]


class FindResult(NamedTuple):
    """The result of a search."""

    status: FindStatus
    host: SubscriptionHost | None = None
    """If the status is FOUND."""
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
}
_STATUS: Final = {
    FindState.NONE: FindStatus.NONE,
    FindState.FOUND: FindStatus.FOUND,
    FindState.UNKNOWN: FindStatus.UNKNOWN,
    FindState.CONTESTED: FindStatus.CONTESTED,
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

    def __init__(self, name: str, claims: KnownClaims, me: BrokerId) -> None:
        self.name = name
        self.state = FindState.WAITING
        self._claims = claims
        self._me = me
        self._host: SubscriptionHost | None = None
        self._silent: list[BrokerId] = []
        self._done: list[FindDone] = []
        """The receivers of the result: several if brokers of one cell asked the same question."""

    @property
    def needs_all(self) -> bool:
        """Whether brokers without an open session are waited for too."""
        return self.state is not FindState.LOCATED

    def report_to(self, done: FindDone) -> None:
        """Give the result to one more receiver."""
        self._done.append(done)

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
                status = FindStatus.NONE if is_ended else FindStatus.UNKNOWN
                host, silent = None, () if is_ended else (*silent, claim.broker)
        if status is FindStatus.FOUND and host is not None:
            self._host = preferred(self._host, host)
        self._silent += silent
        return self._advance(_INPUTS[status])

    def outrank(self, rival: BrokerId) -> bool:
        """A broker of a lesser name searches too; return whether this search has ended."""
        self._silent.append(rival)
        return self._advance(FindInput.OUTRANKED)

    def _advance(self, happened: FindInput) -> bool:
        self.state = next_state(self.state, happened)
        return self.state in FINAL

    def end(self, silent: tuple[BrokerId, ...]) -> None:
        """The walk has ended: report the result."""
        if self.state not in FINAL:
            self._advance(FindInput.SOME_SILENT if silent else FindInput.ALL_ANSWERED)
        named = () if self.state is FindState.CONTESTED else silent
        brokers = tuple(dict.fromkeys((*self._silent, *named)))[:SILENT_NAMED_MAX]
        host = self._host if self.state is FindState.FOUND else None
        result = FindResult(_STATUS[self.state], host, brokers)
        for done in self._done:
            done(result)


class SubscriptionFinder:
    """Finds the hosting brokers of subscriptions, for this broker and for others."""

    def __init__(
        self,
        context: Context,
        tree: Tree,
        walks: Walks,
        registry: SubscriptionsByName,
        claims: KnownClaims,
        corrupt: CorruptNames,
        addresses: ClientAddresses,
    ) -> None:
        self._context = context
        self._me = context.identity.broker
        self._tree = tree
        self._walks = walks
        self._registry = registry
        self._claims = claims
        self._corrupt = corrupt
        self._addresses = addresses
        self._searches: dict[WalkKey, _Search] = {}
        self._own: dict[str, WalkKey] = {}
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
        running = self._own.get(name)
        if running is not None:
            self._searches[running].report_to(done)
            return
        key = self._own[name] = self._walks.next_key()
        wait_ms = wait_ms or self._context.parameters.find_timeout_ms
        host = self.host_here(name) if hosted else None
        self._begin(FindSubscription(key, "", name, wait_ms), None, done, host)

    def _begin(
        self,
        asked: FindSubscription,
        source: CellId | None,
        done: FindDone,
        host: SubscriptionHost | None,
    ) -> None:
        key = asked.key
        search = self._searches[key] = _Search(asked.name, self._claims, self._me)
        search.report_to(lambda _: self._forget(key))  # the receivers may search again
        search.report_to(done)
        if host is not None:
            search.locate(host)
        self._walks.begin(
            lambda wait_ms: FindSubscription(key, asked.owner, asked.name, wait_ms),
            asked.wait_ms,
            search,
            source=source,
        )

    def _forget(self, key: WalkKey) -> None:
        search = self._searches.pop(key)
        if self._own.get(search.name) == key:
            del self._own[search.name]

    # --- messages of peers ---------------------------------------------------------------------

    def asked(self, peer: BrokerId, asked: FindSubscription) -> None:
        """Answer when all brokers behind this one have answered, for them and for this one."""
        cell = self._tree.neighbourhood.cell_of(peer)
        if cell is None or self._walks.is_looped(asked.key):
            return

        def answer(result: FindResult) -> None:
            status, host, silent = result
            here = self.host_here(asked.name)
            if here is not None:
                status, host = FindStatus.FOUND, preferred(host, here)
            self._walks.answer(peer, SubscriptionFound(asked.key, status, host, silent))

        running = self._searches.get(asked.key)
        if running is not None:
            running.report_to(answer)
        elif self._is_contested(asked):
            answer(FindResult(FindStatus.CONTESTED, silent=(self._me,)))
        elif self._walks.is_full:
            answer(FindResult(FindStatus.UNKNOWN, silent=(self._me,)))
        else:
            self._begin(asked, cell, answer, self.host_here(asked.name))

    def _is_contested(self, asked: FindSubscription) -> bool:
        """Return whether this broker searches for the name too, and goes first.

        Of two brokers the one with the lesser name goes first; the other gives its search up.
        """
        key = self._own.get(asked.name)
        if key is None or self._registry.durable_named(asked.name) is not None:
            return False
        rival, requester = self._searches[key], asked.key.requester
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
        self._walks.answered(peer, answer)
