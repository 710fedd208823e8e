"""Creates audit records from a client's session: what was confirmed, received and handed out.

All sessions of a process with one audit directory share a writer. A client session here is a
subscription object from its start to its end, over all connections. A seek starts another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from gapless.audit.options import AuditOptions
from gapless.audit.records import (
    Acked,
    AuditDelivered,
    AuditEnded,
    AuditFilterChanged,
    AuditOpened,
    AuditRecord,
    AuditStarted,
    Confirmed,
    GapReported,
    Progressed,
)
from gapless.audit.writer import AuditWriter
from gapless.core.ids import PubendId
from gapless.messages.clients import PositionTuple, Published
from gapless.messages.streams import Publication

__all__ = ["ClientAudit", "SubscriptionAudit"]


class ClientAudit:
    """Records what the sessions of this process receive."""

    _open: ClassVar[dict[Path, ClientAudit]] = {}
    _opening: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, options: AuditOptions, name: str) -> None:
        self._users = 0
        self._numbers = 0
        self._client_sessions: dict[SubscriptionAudit, None] = {}
        self.writer = AuditWriter(options, "client", name, restate=self._restated)

    @classmethod
    def shared(cls, options: AuditOptions, name: str) -> ClientAudit:
        """Return the instance of this process for a directory; end its use with :meth:`release`."""
        path = options.path.resolve()
        with cls._opening:
            found = cls._open.get(path)
            if found is None:
                found = cls._open[path] = cls(options, name)
            found._retain()
            return found

    def _retain(self) -> None:
        self._users += 1

    def release(self) -> None:
        """End the use by one session; the last one closes the writer."""
        with self._opening:
            self._users -= 1
            if not self._users:
                self._open.pop(self.writer.options.path.resolve(), None)
                self.writer.close()

    def confirmed(self, pubend: PubendId, publisher: str, first: int, answer: Published) -> None:
        """Record that the broker confirmed events of a publisher."""
        self.writer.add(Confirmed(pubend, publisher, first, [*answer.ticks]))

    def subscription(self, name: str, *, durable: bool) -> SubscriptionAudit:
        """Return the audit of one subscription object."""
        return SubscriptionAudit(self, name, durable=durable)

    def new_client_session(self, of: SubscriptionAudit) -> str:
        """Return a name for a client session that starts."""
        self._client_sessions[of] = None
        self._numbers += 1
        return str(self._numbers)

    def over(self, of: SubscriptionAudit) -> None:
        """Remove a client session that ended."""
        self._client_sessions.pop(of, None)

    def _restated(self) -> Iterator[AuditRecord]:
        for client_session in [*self._client_sessions]:
            yield client_session.opening(restated=True)


class SubscriptionAudit:
    """Records what one subscription object receives and hands out."""

    def __init__(self, audit: ClientAudit, name: str, *, durable: bool) -> None:
        self._audit = audit
        self._add: Callable[[AuditRecord], None] = audit.writer.add
        self._name = name
        self._durable = durable
        self._total = False
        self._client_session = ""
        self._broker = ""
        self._filter = ""
        self._received: Mapping[PubendId, int] = {}

    def opening(
        self,
        position: PositionTuple | None = None,
        *,
        repositioned: bool = False,
        restated: bool = False,
    ) -> AuditOpened:
        """Return the record of a client session that starts or continues."""
        ticks = [*self._received.items()] if position is None else [*position]
        return AuditOpened(
            self._name,
            self._client_session,
            self._broker,
            self._filter,
            self._durable,
            self._total,
            ticks,
            repositioned,
            restated,
        )

    def opened(
        self,
        broker: str,
        text: str,
        position: PositionTuple,
        received: Mapping[PubendId, int],
        *,
        total: bool,
    ) -> None:
        """Record a broker's reply. ``received`` is kept and read when the session is restated."""
        self._client_session = self._client_session or self._audit.new_client_session(self)
        self._broker, self._filter, self._received = broker, text, received
        self._total = total
        self._add(self.opening(position))

    def repositioned(
        self,
        handed: Mapping[PubendId, int],
        position: PositionTuple,
        received: Mapping[PubendId, int],
    ) -> None:
        """Record a seek. The old session ends; on the sought streams it ends at ``handed``."""
        if not self._client_session:
            return
        ticks = dict(position)
        reached = [
            (each, handed.get(each, tick) if each in ticks else tick)
            for each, tick in self._received.items()
        ]
        self._add(AuditEnded(self._name, self._client_session, reached))
        self._client_session = self._audit.new_client_session(self)
        self._received = received
        self._add(self.opening((*received.items(),), repositioned=True))

    def started(self, pubend: PubendId, after: int) -> None:
        """Record that the subscription started on one more pubend."""
        self._add(AuditStarted(self._name, self._client_session, pubend, after))

    def filter_changed(self, text: str, position: PositionTuple) -> None:
        """Record that another filter applies after the position."""
        self._filter = text
        self._add(AuditFilterChanged(self._name, self._client_session, text, [*position]))

    def received(self, runs: list[tuple[PubendId, tuple[Publication, ...]]]) -> None:
        """Record new events, without duplicates."""
        taken = [
            (pubend, [each.tick for each in run], [each.sequence for each in run])
            for pubend, run in runs
        ]
        self._add(AuditDelivered(self._name, self._client_session, taken))

    def progressed(self, position: PositionTuple) -> None:
        """Record that all matching events up to the position were received before."""
        self._add(Progressed(self._name, self._client_session, [*position]))

    def gap_reported(self, pubend: PubendId, low: int, high: int, *, expected: bool) -> None:
        """Record a gap that the broker reported."""
        self._add(GapReported(self._name, self._client_session, pubend, low, high, expected))

    def acked(self, ticks: Mapping[PubendId, int]) -> None:
        """Record an acknowledgement of the application."""
        self._add(Acked(self._name, self._client_session, [*ticks.items()]))

    def ended(self, handed: Mapping[PubendId, int]) -> None:
        """Record the end; events received after ``handed`` were not handed out."""
        if self._client_session:
            self._add(AuditEnded(self._name, self._client_session, [*handed.items()]))
            self._audit.over(self)
