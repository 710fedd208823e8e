"""Pubend locations: the broker of every pubend that this broker has ever heard of, on disk.

Announcements are in memory only. A broker that restarts while the broker of a pubend is down
receives no announcement of it. For the next publisher it would create another pubend of the same
name: two logs with one identity, of which every receiver sees one. So it stores whose name that is,
and refuses. For a name that it has never heard of, it queries the other brokers
(:mod:`gapless.directory.name_query`).

When that broker is retired, the name is free. The location is kept with ``host_retired``: a
subscription may present a position on the pubend at any time, and need not wait for the pubend
(R26).

That broker may return without the pubend, because its disk was lost. Then the pubend is *lost*,
even if other brokers still announce it. It is found again when a feed of it starts, or when its
broker returns with it.

A location is not a path to a pubend. Feeds do not use it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gapless.core.context import Context
from gapless.core.ids import BrokerId, PubendId
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
        """Return the other broker that has a pubend, or None if it is not known."""
        return self._locations.get(pubend)

    def pubends_named(self, name: str) -> list[PubendId]:
        """Return the stored pubends of one name."""
        return [pubend for pubend in self._locations if pubend.name == name]

    def pubends_at(self, broker: BrokerId) -> list[PubendId]:
        """Return the known pubends of another broker."""
        return [pubend for pubend, location in self._locations.items() if location == broker]

    def pubends_of_retired(self, broker: BrokerId) -> list[PubendId]:
        """Return the pubends of a retired broker that no other broker has since."""
        return [pubend for pubend, former in self._former_brokers.items() if former == broker]

    def former_broker_of(self, pubend: PubendId) -> BrokerId | None:
        """Return the retired broker of a pubend, or None if another broker has it since."""
        return self._former_brokers.get(pubend)

    def is_lost(self, pubend: PubendId) -> bool:
        """Return whether the broker of a pubend has returned without it."""
        return pubend in self._lost

    def add(self, pubend: PubendId, broker: BrokerId) -> None:
        """Store the broker of a pubend unless it has lost it; nothing waits for the write."""
        if pubend in self._lost and self._former_brokers[pubend] == broker:
            return
        if broker == self._context.identity.broker:
            self._lost.discard(pubend)
            if self._former_brokers.pop(pubend, None) is not None:
                self._erase(pubend, broker)
        elif self._locations.get(pubend) != broker:
            self._has(pubend, broker)

    def mark_host_retired(self, pubend: PubendId) -> None:
        """Free the name of a pubend: its broker is retired."""
        broker = self._locations.pop(pubend, None)
        if broker is not None:
            self._former_brokers[pubend] = broker
            self._context.write(
                (PutRecord(PubendLocationRecord(pubend, broker, host_retired=True)),)
            )

    def mark_lost(self, pubend: PubendId, broker: BrokerId) -> None:
        """Note that a broker has returned without a pubend."""
        self._locations.pop(pubend, None)
        self._former_brokers[pubend] = broker
        self._lost.add(pubend)
        record = PubendLocationRecord(pubend, broker, host_retired=True, lost=True)
        self._context.write((PutRecord(record),))

    def mark_found(self, pubend: PubendId) -> None:
        """Note that a pubend is not lost."""
        if pubend in self._lost:
            self._context.mark("lost pubend is found")
            self._has(pubend, self._former_brokers[pubend])

    def forget(self, pubend: PubendId) -> None:
        """Forget a pubend that was ended."""
        self._lost.discard(pubend)
        broker = self._locations.pop(pubend, None) or self._former_brokers.pop(pubend, None)
        if broker is not None:
            self._erase(pubend, broker)

    def _has(self, pubend: PubendId, broker: BrokerId) -> None:
        self._former_brokers.pop(pubend, None)
        self._lost.discard(pubend)
        self._locations[pubend] = broker
        self._context.write((PutRecord(PubendLocationRecord(pubend, broker)),))

    def _erase(self, pubend: PubendId, broker: BrokerId) -> None:
        self._context.write((DeleteRecord(PubendLocationRecord(pubend, broker).key),))
