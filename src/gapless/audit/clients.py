"""What a client's session sees, as records: what its publishers were told, what its subscribers took.

All sessions of a process that are given one directory share a writer. A visit is a subscription object,
from its start to its end, over all connections; a seek begins another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from gapless.audit.options import AuditOptions
from gapless.audit.records import (
    Acked,
    Confirmed,
    Delivered,
    Ended,
    GapTold,
    Opened,
    Progressed,
    Record,
    Started,
    Switched,
)
from gapless.audit.writer import AuditWriter
from gapless.core.ids import PubendId
from gapless.messages.clients import PositionTuple, Published
from gapless.messages.streams import Publication

__all__ = ["ClientAudit", "SubscriptionAudit"]


class ClientAudit:
    """Writes down what the sessions of this process see."""

    _open: ClassVar[dict[Path, ClientAudit]] = {}
    _opening: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, options: AuditOptions, name: str) -> None:
        self._users = 0
        self._numbers = 0
        self._visits: dict[SubscriptionAudit, None] = {}
        self.writer = AuditWriter(options, "client", name, restate=self._restated)

    @classmethod
    def shared(cls, options: AuditOptions, name: str) -> ClientAudit:
        """Return the one of this process for a directory; let it go with :meth:`release`."""
        where = options.path.resolve()
        with cls._opening:
            found = cls._open.get(where)
            if found is None:
                found = cls._open[where] = cls(options, name)
            found._users += 1
            return found

    def release(self) -> None:
        """A session is over; the last one closes the writer."""
        with self._opening:
            self._users -= 1
            if not self._users:
                self._open.pop(self.writer.options.path.resolve(), None)
                self.writer.close()

    def confirmed(self, pubend: PubendId, publisher: str, first: int, answer: Published) -> None:
        """A publisher was told that its events are on disk."""
        self.writer.add(Confirmed(pubend, publisher, first, [*answer.ticks]))

    def subscription(self, name: str, *, durable: bool, total: bool) -> SubscriptionAudit:
        """Return what writes down the fate of one subscription object."""
        return SubscriptionAudit(self, name, durable=durable, total=total)

    def new_visit(self, of: SubscriptionAudit) -> str:
        """Return a name for a visit that begins."""
        self._visits[of] = None
        self._numbers += 1
        return str(self._numbers)

    def over(self, of: SubscriptionAudit) -> None:
        """A visit is over."""
        self._visits.pop(of, None)

    def _restated(self) -> Iterator[Record]:
        for visit in [*self._visits]:
            yield visit.opening(restated=True)


class SubscriptionAudit:
    """Writes down what one subscription object is told and hands out."""

    def __init__(self, audit: ClientAudit, name: str, *, durable: bool, total: bool) -> None:
        self._audit = audit
        self._add: Callable[[Record], None] = audit.writer.add
        self._name = name
        self._durable = durable
        self._total = total
        self._visit = ""
        self._broker = ""
        self._filter = ""
        self._received: Mapping[PubendId, int] = {}

    def opening(
        self, position: PositionTuple | None = None, *, sought: bool = False, restated: bool = False
    ) -> Opened:
        """Return the record of a visit that begins or goes on."""
        places = [*self._received.items()] if position is None else [*position]
        return Opened(
            self._name,
            self._visit,
            self._broker,
            self._filter,
            self._durable,
            self._total,
            places,
            sought,
            restated,
        )

    def opened(
        self, broker: str, text: str, position: PositionTuple, received: Mapping[PubendId, int]
    ) -> None:
        """A broker has answered; ``received`` is kept, and read when it has to be said again."""
        self._visit = self._visit or self._audit.new_visit(self)
        self._broker, self._filter, self._received = broker, text, received
        self._add(self.opening(position))

    def sought(
        self,
        handed: Mapping[PubendId, int],
        position: PositionTuple,
        received: Mapping[PubendId, int],
    ) -> None:
        """The subscription went on elsewhere; on these streams only what was handed out counts."""
        if not self._visit:
            return
        places = dict(position)
        reached = [
            (each, handed.get(each, tick) if each in places else tick)
            for each, tick in self._received.items()
        ]
        self._add(Ended(self._name, self._visit, reached))
        self._visit = self._audit.new_visit(self)
        self._received = received
        self._add(self.opening((*received.items(),), sought=True))

    def started(self, pubend: PubendId, after: int) -> None:
        """It has started on one more pubend."""
        self._add(Started(self._name, self._visit, pubend, after))

    def switched(self, text: str, position: PositionTuple) -> None:
        """Another filter governs after the position."""
        self._filter = text
        self._add(Switched(self._name, self._visit, text, [*position]))

    def took(self, runs: list[tuple[PubendId, tuple[Publication, ...]]]) -> None:
        """Events came that had not come before."""
        taken = [
            (pubend, [each.tick for each in run], [each.sequence for each in run])
            for pubend, run in runs
        ]
        self._add(Delivered(self._name, self._visit, taken))

    def progressed(self, position: PositionTuple) -> None:
        """All that is owed up to the position was there before."""
        self._add(Progressed(self._name, self._visit, [*position]))

    def lost(self, pubend: PubendId, low: int, high: int, *, expected: bool) -> None:
        """The log has lost these ticks, and the broker says so."""
        self._add(GapTold(self._name, self._visit, pubend, low, high, expected))

    def acked(self, ticks: Mapping[PubendId, int]) -> None:
        """The application is done with what is up to here."""
        self._add(Acked(self._name, self._visit, [*ticks.items()]))

    def ended(self, handed: Mapping[PubendId, int]) -> None:
        """It is over; what came after this was not handed out."""
        if self._visit:
            self._add(Ended(self._name, self._visit, [*handed.items()]))
            self._audit.over(self)
