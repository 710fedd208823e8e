"""Creates audit records from what a broker's runtime exchanges with its clients and its disk.

Publications are recorded before they are on disk, and again when they are. So everything that a
killed broker published is recorded, and it is known which of it was durable. Everything else is
recorded as it passes. A client session here is a connection that has a subscription.

The principal is recorded once for each client session and each run of publications. The principal
of a publisher is the one that opened it last; that of staged events is the one that commits them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from gapless.audit.options import AuditOptions
from gapless.audit.records import (
    Acked,
    AuditDelivered,
    AuditEnded,
    AuditFilterChanged,
    AuditOpened,
    AuditPublished,
    AuditRecord,
    AuditStarted,
    GapReported,
    LogReadSent,
    Progressed,
    Stored,
)
from gapless.audit.writer import AuditWriter
from gapless.core.effects import Write
from gapless.core.events import MachineEvent, Written
from gapless.core.ids import PubendId
from gapless.core.limits import AUDIT_AUTHORS_MAX
from gapless.messages import clients as client_messages
from gapless.messages import reading, staging
from gapless.messages.records import AppendPackedRow, AppendRow
from gapless.messages.streams import Publication, ReadForm
from gapless.packed.pick import PublicationHeader, unpack_headers

__all__ = ["BrokerAudit"]

_REMEMBERED: Final = (
    *(
        client_messages.Subscribe,
        client_messages.SetFilter,
        client_messages.Seek,
        client_messages.Unsubscribe,
    ),
    *(client_messages.OpenPublisher, reading.ReadLog, staging.CommitBatch),
)
"""Requests that are needed to interpret their replies."""

_Author = tuple[PubendId, str]
"""A publisher; its name is unique within its pubend."""


class _SubscribedSession:
    """A subscription of a connection."""

    __slots__ = ("filter", "name", "principal", "request", "ticks")

    def __init__(
        self,
        name: str,
        request: client_messages.Subscribe,
        position: client_messages.PositionTuple,
        principal: str,
        filter_text: str,
    ) -> None:
        self.name = name
        self.principal = principal
        self.request = request
        self.filter = filter_text
        self.ticks: dict[PubendId, int] = dict(position)
        """The tick at which the client session started, or that of the last event, by pubend."""

    def start(self, pubend: PubendId, after: int) -> None:
        """The session starts on a pubend after a tick, unless it has started there."""
        self.ticks.setdefault(pubend, after)

    def advance(self, pubend: PubendId, tick: int) -> None:
        """An event was delivered; note its tick if the pubend was delivered before."""
        if pubend in self.ticks:
            self.ticks[pubend] = tick

    def set_filter(self, filter_text: str) -> None:
        """Apply another filter from now on."""
        self.filter = filter_text


class BrokerAudit:
    """Records what one incarnation of a broker does for its clients."""

    def __init__(self, options: AuditOptions, broker: str, cell: str) -> None:
        self._broker = broker
        self._with_attributes = options.attributes
        self._writing: dict[int, list[tuple[PubendId, int]]] = {}
        """By write id: the pubends and last ticks that are being written."""
        self._requests: dict[str, dict[int, Any]] = {}
        self._client_sessions: dict[str, dict[str, _SubscribedSession]] = {}
        self._principals: dict[str, str] = {}
        """By connection."""
        self._authors: dict[_Author, tuple[str, str]] = {}
        """By publisher: the connection that opened it last, and its principal."""
        self._opened: dict[str, dict[_Author, None]] = {}
        """By connection: the publishers that it has opened."""
        self._commits: dict[_Author, dict[tuple[str, int], str]] = {}
        """By writer: the principals of pending commits, oldest first."""
        self._disconnected_authors: dict[_Author, str] = {}
        """Principals of some disconnected publishers, whose events may still be written."""
        self._count = 0
        self._on: dict[type, Callable[[str, Any], None]] = {
            client_messages.Delivery: self._delivered,
            client_messages.Subscribed: self._subscribed,
            client_messages.FilterSet: self._filter_set,
            client_messages.PublisherOpened: self._publisher_opened,
            staging.BatchCommitted: self._committed,
            client_messages.Unsubscribed: self._unsubscribed,
            client_messages.Refused: self._refused,
            reading.ReadPart: self._read,
            client_messages.SubscriptionStarted: self._started,
            client_messages.Progress: self._progressed,
            client_messages.Gap: self._gap,
            client_messages.SubscriptionEnded: self._ended,
        }
        self.writer = AuditWriter(options, "broker", broker, cell=cell, restate=self._restated)

    # --- the disk ----------------------------------------------------------------------------------

    def writing(self, write: Write) -> None:
        """Record the rows of a write; when this returns, the operating system has the records."""
        ends: list[tuple[PubendId, int]] = []
        for change in write.changes:
            if type(change) is AppendRow:
                ends.append((change.row.pubend, change.row.last))
                for run in _runs(change.row.publications):
                    self._published(change.row.pubend, run, self._author)
            elif type(change) is AppendPackedRow:
                ends.append((change.pubend, change.last))
                self._published(change.pubend, unpack_headers(change.publications), self._committer)
        if ends:
            self._writing[write.write_id] = ends
            self.writer.flush()

    def written(self, events: Iterable[MachineEvent]) -> None:
        """Record which rows are on disk now."""
        stored: dict[PubendId, int] = {}
        for event in events:
            if type(event) is Written:
                stored.update(self._writing.pop(event.write_id, ()))
        for pubend, tick in stored.items():
            self.writer.add(Stored(pubend, tick))

    def _published(
        self,
        pubend: PubendId,
        run: Sequence[Publication | PublicationHeader],
        principal_of: Callable[[_Author], str],
    ) -> None:
        attributes: Any = [each.attributes for each in run] if self._with_attributes else None
        ticks = [each.tick for each in run]
        first = run[0]
        principal = principal_of((pubend, first.publisher))
        self.writer.add(
            AuditPublished(pubend, first.publisher, first.sequence, ticks, attributes, principal)
        )

    def _author(self, author: _Author) -> str:
        known = self._authors.get(author)
        return self._disconnected_authors.get(author, "") if known is None else known[1]

    def _committer(self, author: _Author) -> str:
        """Return the principal of a writer's pending commit. Only staged events are packed."""
        pending = self._commits.get(author)
        if pending is None:
            return self._disconnected_authors.get(author, "")
        return next(iter(pending.values()))

    # --- clients -----------------------------------------------------------------------------------

    def client_connected(self, client: str, principal: str) -> None:
        """Record the principal of a client that was accepted."""
        if principal:
            self._principals[client] = principal

    def client_requested(self, client: str, request: Any) -> None:
        """Record a request of a client, or remember it for its reply."""
        if isinstance(request, client_messages.Ack):
            if request.position and (
                client_session := self._client_session(client, request.subscription)
            ):
                self.writer.add(
                    Acked(request.subscription, client_session.name, [*request.position])
                )
        elif isinstance(request, _REMEMBERED):
            self._requests.setdefault(client, {})[request.request] = request
            if isinstance(request, staging.CommitBatch):
                pending = self._commits.setdefault((request.pubend, request.writer), {})
                pending[client, request.request] = self._principals.get(client, "")

    def client_notified(self, client: str, notice: Any) -> None:
        """Record a notice to a client."""
        note = self._on.get(type(notice))
        if note is not None:
            note(client, notice)

    def client_disconnected(self, client: str) -> None:
        """Record that a client disconnected."""
        for request in self._requests.pop(client, {}).values():
            if isinstance(request, staging.CommitBatch):
                principal = self._commit_over(client, request)
                self._disconnected_authors[request.pubend, request.writer] = principal
        self._principals.pop(client, None)
        for author in self._opened.pop(client, {}):
            if self._authors.get(author, ("", ""))[0] == client:
                self._disconnected_authors[author] = self._authors.pop(author)[1]
        while len(self._disconnected_authors) > AUDIT_AUTHORS_MAX:
            del self._disconnected_authors[next(iter(self._disconnected_authors))]
        for client_session in self._client_sessions.pop(client, {}).values():
            self._leave(client_session)

    def close(self) -> None:
        """End the log in order."""
        self.writer.close()

    def abandon(self) -> None:
        """End the log as a crash would."""
        self.writer.abandon()

    def _opens(self, client: str, author: _Author) -> None:
        """Assign a publisher to the principal of a client."""
        principal = self._principals.get(client, "")
        self._disconnected_authors.pop(author, None)
        if principal:
            self._authors[author] = client, principal
            self._opened.setdefault(client, {})[author] = None
        else:
            self._authors.pop(author, None)

    def _client_session(self, client: str, subscription: str) -> _SubscribedSession | None:
        return self._client_sessions.get(client, {}).get(subscription)

    def _request(self, client: str, number: int) -> Any:
        return self._requests.get(client, {}).pop(number, None)

    # --- notices to clients ------------------------------------------------------------------------

    def _delivered(self, client: str, notice: client_messages.Delivery) -> None:
        client_session = self._client_session(client, notice.subscription)
        if client_session is None:
            return
        runs: list[tuple[PubendId, list[int], list[int]]] = []
        for pubend, publications in notice.runs:
            ticks = [each.tick for each in publications]
            if ticks:
                runs.append((pubend, ticks, []))
                client_session.advance(pubend, ticks[-1])
        self.writer.add(AuditDelivered(notice.subscription, client_session.name, runs))

    def _subscribed(self, client: str, notice: client_messages.Subscribed) -> None:
        request = self._request(client, notice.request)
        client_sessions = self._client_sessions.setdefault(client, {})
        if isinstance(request, client_messages.Subscribe):
            self._leave(client_sessions.get(request.subscription))
            principal = self._principals.get(client, "")
            client_session = _SubscribedSession(
                self._new_client_session(client),
                request,
                notice.position,
                principal,
                notice.filter if request.filter is None else request.filter,
            )
            client_sessions[request.subscription] = client_session
            self.writer.add(self._opening(client_session))
        elif isinstance(request, client_messages.Seek) and request.subscription in client_sessions:
            old = client_sessions[request.subscription]
            self._leave(old)
            ticks = tuple({**old.ticks, **dict(notice.position)}.items())
            client_session = _SubscribedSession(
                self._new_client_session(client), old.request, ticks, old.principal, old.filter
            )
            client_sessions[request.subscription] = client_session
            self.writer.add(self._opening(client_session, repositioned=True))

    def _new_client_session(self, client: str) -> str:
        """Return a unique name: a connection may end a subscription and open it again."""
        self._count += 1
        return f"{client}/{self._count}"

    def _leave(self, client_session: _SubscribedSession | None) -> None:
        if client_session is not None:
            self.writer.add(AuditEnded(client_session.request.subscription, client_session.name))

    def _opening(
        self,
        client_session: _SubscribedSession,
        *,
        repositioned: bool = False,
        restated: bool = False,
    ) -> AuditOpened:
        request = client_session.request
        return AuditOpened(
            request.subscription,
            client_session.name,
            self._broker,
            client_session.filter,
            request.durable,
            request.order is client_messages.Order.TOTAL,
            [*client_session.ticks.items()],
            repositioned,
            restated,
            client_session.principal,
        )

    def _restated(self) -> Iterator[AuditRecord]:
        for client_sessions in [*self._client_sessions.values()]:
            for client_session in [*client_sessions.values()]:
                yield self._opening(client_session, restated=True)

    def _filter_set(self, client: str, notice: client_messages.FilterSet) -> None:
        request = self._request(client, notice.request)
        if isinstance(request, client_messages.SetFilter):
            client_session = self._client_session(client, request.subscription)
            if client_session is not None:
                client_session.set_filter(request.filter)
                ticks = [*notice.position]
                self.writer.add(
                    AuditFilterChanged(
                        request.subscription, client_session.name, request.filter, ticks
                    )
                )

    def _publisher_opened(self, client: str, notice: client_messages.PublisherOpened) -> None:
        request = self._request(client, notice.request)
        if isinstance(request, client_messages.OpenPublisher):
            self._opens(client, (request.pubend, request.publisher))

    def _committed(self, client: str, notice: staging.BatchCommitted) -> None:
        self._commit_over(client, self._request(client, notice.request))

    def _commit_over(self, client: str, request: Any) -> str:
        """Forget a commit that is done, refused or abandoned; return its principal."""
        if not isinstance(request, staging.CommitBatch):
            return ""
        author = (request.pubend, request.writer)
        pending = self._commits.get(author, {})
        principal = pending.pop((client, request.request), "")
        if not pending:
            self._commits.pop(author, None)
        return principal

    def _unsubscribed(self, client: str, notice: client_messages.Unsubscribed) -> None:
        request = self._request(client, notice.request)
        if isinstance(request, client_messages.Unsubscribe):
            client_session = self._client_sessions.get(client, {}).pop(request.subscription, None)
            name = client_session.name if client_session is not None else ""
            self.writer.add(AuditEnded(request.subscription, name, is_removed=True))

    def _read(self, client: str, notice: reading.ReadPart) -> None:
        request = self._request(client, notice.request)
        if not isinstance(request, reading.ReadLog) or request.form is ReadForm.TICKS:
            return  # ticks without content
        if notice.rows or notice.publications:
            principal = self._principals.get(client, "")
            part = (request.pubend, request.filter, request.low, notice.done)
            self.writer.add(LogReadSent(*part, principal))

    def _refused(self, client: str, notice: client_messages.Refused) -> None:
        self._commit_over(client, self._request(client, notice.request))

    def _started(self, client: str, notice: client_messages.SubscriptionStarted) -> None:
        if client_session := self._client_session(client, notice.subscription):
            client_session.start(notice.pubend, notice.after)
            self.writer.add(
                AuditStarted(notice.subscription, client_session.name, notice.pubend, notice.after)
            )

    def _progressed(self, client: str, notice: client_messages.Progress) -> None:
        if client_session := self._client_session(client, notice.subscription):
            self.writer.add(
                Progressed(notice.subscription, client_session.name, [*notice.position])
            )

    def _gap(self, client: str, notice: client_messages.Gap) -> None:
        if client_session := self._client_session(client, notice.subscription):
            pubend, low, high = notice.pubend, notice.low, notice.high
            expected = (
                low <= 1 and client_session.request.start.kind is client_messages.StartKind.EARLIEST
            )
            record = GapReported(
                notice.subscription, client_session.name, pubend, low, high, expected
            )
            self.writer.add(record)

    def _ended(self, client: str, notice: client_messages.SubscriptionEnded) -> None:
        self._leave(self._client_sessions.get(client, {}).pop(notice.subscription, None))


def _runs(publications: Sequence[Publication]) -> Iterator[Sequence[Publication]]:
    """Split a row where the publisher changes or sequences are not consecutive; usually nowhere."""
    first, last = publications[0], publications[-1]
    follows = last.sequence - first.sequence == len(publications) - 1
    if follows and last.publisher == first.publisher:
        yield publications  # a row is usually one batch of one publisher
        return
    start = 0
    for index in range(1, len(publications)):
        before, each = publications[index - 1], publications[index]
        if each.sequence != before.sequence + 1 or each.publisher != before.publisher:
            yield publications[start:index]
            start = index
    yield publications[start:] if start else publications
