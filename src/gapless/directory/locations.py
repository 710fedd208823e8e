"""Which broker has a pubend, for every pubend that this broker has ever heard of, kept on disk.

Announcements are news and die with a life. A broker that has begun anew while the broker of a pubend is
away hears of it from nobody, and would make another of the same name for the next publisher that asks:
two logs with one identity, of which everybody sees one. So it remembers whose name that is, and refuses.
Who has never heard of a pubend asks the others (:mod:`gapless.directory.name_query`).

When that broker is retired the name is free. Whose it was is remembered all the same, as *left*: a place on the pubend
may be brought here at any time, and nobody has to wait for it (R26).

That broker may be back without the pubend, as its disk is lost. Then the pubend is *lost*, whatever is said of the broker
later, and whoever goes on announcing what it remembers. It is found again when somebody feeds it, or its broker names it.

What is remembered is no way to a pubend, and no stream is fed by it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gapless.core.ids import BrokerId, PubendId
from gapless.core.machine import Context
from gapless.messages.records import DeleteRecord, PubendLocationRecord, PutRecord

__all__ = ["PubendLocations"]


class PubendLocations:
    """The pubends of other brokers, each with its broker."""

    def __init__(self, context: Context, records: Iterable[PubendLocationRecord]) -> None:
        self._context = context
        locations = tuple(records)
        self._locations = {each.pubend: each.broker for each in locations if not each.host_retired}
        self._former_brokers = {each.pubend: each.broker for each in locations if each.host_retired}
        self._lost = {each.pubend for each in locations if each.lost}

    def broker_of(self, pubend: PubendId) -> BrokerId | None:
        """Return which other broker has a pubend, as far as was ever heard."""
        return self._locations.get(pubend)

    def pubends_named(self, name: str) -> list[PubendId]:
        """Return the pubends of one name that are remembered."""
        return [pubend for pubend in self._locations if pubend.name == name]

    def pubends_at(self, broker: BrokerId) -> list[PubendId]:
        """Return which pubends another broker has, as far as was ever heard."""
        return [pubend for pubend, location in self._locations.items() if location == broker]

    def pubends_of_retired(self, broker: BrokerId) -> list[PubendId]:
        """Return which pubends a broker had when it was retired, and nobody since."""
        return [pubend for pubend, former in self._former_brokers.items() if former == broker]

    def former_broker_of(self, pubend: PubendId) -> BrokerId | None:
        """Return which broker had a pubend when it was retired, if nobody was heard to have it since."""
        return self._former_brokers.get(pubend)

    def is_lost(self, pubend: PubendId) -> bool:
        """Say whether the broker of a pubend was back without it."""
        return pubend in self._lost

    def add(self, pubend: PubendId, broker: BrokerId) -> None:
        """Remember which broker has a pubend, unless it has lost it; nothing waits for that to be on disk."""
        if pubend in self._lost and self._former_brokers[pubend] == broker:
            return
        if broker == self._context.identity.broker:
            self._lost.discard(pubend)
            if self._former_brokers.pop(pubend, None) is not None:
                self._erase(pubend, broker)
        elif self._locations.get(pubend) != broker:
            self._has(pubend, broker)

    def mark_host_retired(self, pubend: PubendId) -> None:
        """The broker of a pubend will never return: its name is free."""
        broker = self._locations.pop(pubend, None)
        if broker is not None:
            self._former_brokers[pubend] = broker
            self._context.write(
                (PutRecord(PubendLocationRecord(pubend, broker, host_retired=True)),), _nothing
            )

    def mark_lost(self, pubend: PubendId, broker: BrokerId) -> None:
        """A broker is back without a pubend."""
        self._locations.pop(pubend, None)
        self._former_brokers[pubend] = broker
        self._lost.add(pubend)
        record = PubendLocationRecord(pubend, broker, host_retired=True, lost=True)
        self._context.write((PutRecord(record),), _nothing)

    def mark_found(self, pubend: PubendId) -> None:
        """A pubend is there after all, if it was lost."""
        if pubend in self._lost:
            self._context.mark("lost pubend is found")
            self._has(pubend, self._former_brokers[pubend])

    def forget(self, pubend: PubendId) -> None:
        """A pubend is gone for good."""
        self._lost.discard(pubend)
        broker = self._locations.pop(pubend, None) or self._former_brokers.pop(pubend, None)
        if broker is not None:
            self._erase(pubend, broker)

    def _has(self, pubend: PubendId, broker: BrokerId) -> None:
        self._former_brokers.pop(pubend, None)
        self._lost.discard(pubend)
        self._locations[pubend] = broker
        self._context.write((PutRecord(PubendLocationRecord(pubend, broker)),), _nothing)

    def _erase(self, pubend: PubendId, broker: BrokerId) -> None:
        self._context.write((DeleteRecord(PubendLocationRecord(pubend, broker).key),), _nothing)


def _nothing() -> None:
    """Nobody waits."""
