"""Which broker has a pubend, for every pubend that this broker has ever heard of, kept on disk.

Announcements are news and die with a life. A broker that has begun anew while the broker of a pubend is
away hears of it from nobody, and would make another of the same name for the next publisher that asks:
two logs with one identity, of which everybody sees one. So it remembers whose name that is, and refuses.
Who has never heard of a pubend asks the others (:mod:`.naming`).

What is remembered is no way to a pubend, and no stream is fed by it.
"""

from __future__ import annotations

from collections.abc import Iterable

from gapless.core.ids import BrokerId, PubendId
from gapless.core.machine import Context
from gapless.messages.records import Erase, PlaceRecord, Record, Store

__all__ = ["Whereabouts"]


class Whereabouts:
    """The pubends of other brokers, each with its broker."""

    def __init__(self, context: Context, records: Iterable[Record]) -> None:
        self._context = context
        self._places = {
            record.pubend: record.broker for record in records if isinstance(record, PlaceRecord)
        }

    def broker_of(self, pubend: PubendId) -> BrokerId | None:
        """Return which other broker has a pubend, as far as was ever heard."""
        return self._places.get(pubend)

    def namesakes(self, name: str) -> list[PubendId]:
        """Return the pubends of one name that are remembered."""
        return [pubend for pubend in self._places if pubend.name == name]

    def pubends_at(self, broker: BrokerId) -> list[PubendId]:
        """Return which pubends another broker has, as far as was ever heard."""
        return [pubend for pubend, home in self._places.items() if home == broker]

    def note(self, pubend: PubendId, broker: BrokerId) -> None:
        """Remember which broker has a pubend; nothing waits for that to be on disk."""
        mine = broker == self._context.identity.broker
        if not mine and self._places.get(pubend) != broker:
            self._places[pubend] = broker
            self._context.write((Store(PlaceRecord(pubend, broker)),), _nothing)

    def forget(self, pubend: PubendId) -> None:
        """A pubend is gone for good: its name is free."""
        broker = self._places.pop(pubend, None)
        if broker is not None:
            self._context.write((Erase(PlaceRecord(pubend, broker).key),), _nothing)

    def retire(self, broker: BrokerId) -> None:
        """A broker will never return, and with it nothing that it had."""
        for pubend in self.pubends_at(broker):
            self.forget(pubend)


def _nothing() -> None:
    """Nobody waits."""
