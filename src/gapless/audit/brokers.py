"""What a broker's runtime sees of its clients and of its disk, as records.

Publications are in the file before they are on disk, and when they are, that is noted too: so whatever a
killed broker has published is written down, and of what is written down it is known what is sure. All
else is noted as it passes. A visit is a connection that has a subscription.

Whose connection it is stands in what is said once a visit, and once a run of publications: a publisher is of
the principal that opened it last, what is staged of the one that commits it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from gapless.audit.options import AuditOptions
from gapless.audit.records import (
    Acked,
    Delivered,
    Ended,
    GapTold,
    Opened,
    Progressed,
    Published,
    ReadOut,
    Record,
    Started,
    Stored,
    Switched,
)
from gapless.audit.writer import AuditWriter
from gapless.core.ids import PubendId
from gapless.core.limits import AUDIT_AUTHORS_MAX
from gapless.core.machine import Event, Write, Written
from gapless.messages import clients as said
from gapless.messages import staging
from gapless.messages.records import Append, AppendPacked
from gapless.messages.streams import Publication, ReadForm
from gapless.packed.pick import BarePublication, unpack_bare

__all__ = ["BrokerAudit"]

_REMEMBERED: Final = (
    *(said.Subscribe, said.SetFilter, said.Seek, said.Unsubscribe),
    *(said.OpenPublisher, said.ReadLog, staging.CommitStaged),
)
"""Requests that the answer alone does not tell."""

_Author = tuple[PubendId, str]
"""A publisher: names are of their pubend."""


class _Visit:
    """A subscription that a connection has."""

    __slots__ = ("asked", "filter", "name", "places", "principal")

    def __init__(
        self, name: str, asked: said.Subscribe, position: said.PositionTuple, principal: str
    ) -> None:
        self.name = name
        self.principal = principal
        self.asked = asked
        self.filter = asked.filter
        self.places: dict[PubendId, int] = dict(position)
        """Where it began, or what was sent last."""


class BrokerAudit:
    """Writes down what one life of a broker does for its clients."""

    def __init__(self, options: AuditOptions, broker: str, cell: str) -> None:
        self._broker = broker
        self._with_attributes = options.attributes
        self._writing: dict[int, list[tuple[PubendId, int]]] = {}
        """What is on its way to the disk, up to which tick, by the ticket of its write."""
        self._asked: dict[str, dict[int, Any]] = {}
        self._visits: dict[str, dict[str, _Visit]] = {}
        self._principals: dict[str, str] = {}
        """By connection."""
        self._authors: dict[_Author, tuple[str, str]] = {}
        """By publisher the connection that opened it last, and its principal."""
        self._opened: dict[str, dict[_Author, None]] = {}
        """By connection the publishers that it has opened."""
        self._commits: dict[_Author, dict[tuple[str, int], str]] = {}
        """By writer the principals of commits that are under way, the oldest first."""
        self._gone_authors: dict[_Author, str] = {}
        """The principals of some whose connections are gone: what they sent may still be written."""
        self._count = 0
        self._on: dict[type, Callable[[str, Any], None]] = {
            said.Delivery: self._delivered,
            said.Subscribed: self._subscribed,
            said.FilterSet: self._filter_set,
            said.PublisherOpened: self._publisher_opened,
            staging.StagedCommitted: self._committed,
            said.Unsubscribed: self._unsubscribed,
            said.Refused: self._refused,
            said.ReadPart: self._read,
            said.Started: self._started,
            said.Progress: self._progressed,
            said.Gap: self._gap,
            said.Ended: self._ended,
        }
        self.writer = AuditWriter(options, "broker", broker, cell=cell, restate=self._restated)

    # --- the disk ----------------------------------------------------------------------------------

    def writing(self, write: Write) -> None:
        """Write down what goes to the disk; when this returns, the system has it."""
        ends: list[tuple[PubendId, int]] = []
        for change in write.changes:
            if type(change) is Append:
                ends.append((change.row.pubend, change.row.last))
                for run in _runs(change.row.publications):
                    self._published(change.row.pubend, run, self._author)
            elif type(change) is AppendPacked:
                ends.append((change.pubend, change.last))
                self._published(change.pubend, unpack_bare(change.publications), self._committer)
        if ends:
            self._writing[write.ticket] = ends
            self.writer.flush()

    def written(self, events: Iterable[Event]) -> None:
        """Take note of what is on disk now."""
        stored: dict[PubendId, int] = {}
        for event in events:
            if type(event) is Written:
                stored.update(self._writing.pop(event.ticket, ()))
        for pubend, tick in stored.items():
            self.writer.add(Stored(pubend, tick))

    def _published(
        self,
        pubend: PubendId,
        run: Sequence[Publication | BarePublication],
        principal_of: Callable[[_Author], str],
    ) -> None:
        attributes: Any = [each.attributes for each in run] if self._with_attributes else None
        ticks = [each.tick for each in run]
        first = run[0]
        principal = principal_of((pubend, first.publisher))
        self.writer.add(
            Published(pubend, first.publisher, first.sequence, ticks, attributes, principal)
        )

    def _author(self, author: _Author) -> str:
        known = self._authors.get(author)
        return self._gone_authors.get(author, "") if known is None else known[1]

    def _committer(self, author: _Author) -> str:
        """Return who commits what a writer has staged. That alone is packed when it is published."""
        under_way = self._commits.get(author)
        if under_way is None:
            return self._gone_authors.get(author, "")
        return next(iter(under_way.values()))

    # --- clients -----------------------------------------------------------------------------------

    def came(self, client: str, principal: str) -> None:
        """A client was let in."""
        if principal:
            self._principals[client] = principal

    def asked(self, client: str, request: Any) -> None:
        """A client asks for something."""
        if isinstance(request, said.Ack):
            if request.position and (visit := self._visit(client, request.subscription)):
                self.writer.add(Acked(request.subscription, visit.name, [*request.position]))
        elif isinstance(request, _REMEMBERED):
            self._asked.setdefault(client, {})[request.request] = request
            if isinstance(request, staging.CommitStaged):
                under_way = self._commits.setdefault((request.pubend, request.writer), {})
                under_way[client, request.request] = self._principals.get(client, "")

    def told(self, client: str, notice: Any) -> None:
        """A client is told something."""
        note = self._on.get(type(notice))
        if note is not None:
            note(client, notice)

    def gone(self, client: str) -> None:
        """A client is gone."""
        for request in self._asked.pop(client, {}).values():
            if isinstance(request, staging.CommitStaged):
                left = self._commit_over(client, request)
                self._gone_authors[request.pubend, request.writer] = left
        self._principals.pop(client, None)
        for author in self._opened.pop(client, {}):
            if self._authors.get(author, ("", ""))[0] == client:
                self._gone_authors[author] = self._authors.pop(author)[1]
        while len(self._gone_authors) > AUDIT_AUTHORS_MAX:
            del self._gone_authors[next(iter(self._gone_authors))]
        for visit in self._visits.pop(client, {}).values():
            self._leave(visit)

    def close(self) -> None:
        """All is said."""
        self.writer.close()

    def abandon(self) -> None:
        """End as a crash would."""
        self.writer.abandon()

    def _opens(self, client: str, author: _Author) -> None:
        """From now on a publisher is of the principal of a client."""
        principal = self._principals.get(client, "")
        self._gone_authors.pop(author, None)
        if principal:
            self._authors[author] = client, principal
            self._opened.setdefault(client, {})[author] = None
        else:
            self._authors.pop(author, None)

    def _visit(self, client: str, subscription: str) -> _Visit | None:
        return self._visits.get(client, {}).get(subscription)

    def _request(self, client: str, number: int) -> Any:
        return self._asked.get(client, {}).pop(number, None)

    # --- what clients are told ---------------------------------------------------------------------

    def _delivered(self, client: str, notice: said.Delivery) -> None:
        visit = self._visit(client, notice.subscription)
        if visit is None:
            return
        runs: list[tuple[PubendId, list[int], list[int]]] = []
        for pubend, publications in notice.runs:
            ticks = [each.tick for each in publications]
            if ticks:
                runs.append((pubend, ticks, []))
                if pubend in visit.places:
                    visit.places[pubend] = ticks[-1]
        self.writer.add(Delivered(notice.subscription, visit.name, runs))

    def _subscribed(self, client: str, notice: said.Subscribed) -> None:
        request = self._request(client, notice.request)
        visits = self._visits.setdefault(client, {})
        if isinstance(request, said.Subscribe):
            self._leave(visits.get(request.subscription))
            principal = self._principals.get(client, "")
            visit = _Visit(self._new_visit(client), request, notice.position, principal)
            visits[request.subscription] = visit
            self.writer.add(self._opening(visit))
        elif isinstance(request, said.Seek) and request.subscription in visits:
            old = visits[request.subscription]
            self._leave(old)
            places = tuple({**old.places, **dict(notice.position)}.items())
            visit = _Visit(self._new_visit(client), old.asked, places, old.principal)
            visit.filter = old.filter
            visits[request.subscription] = visit
            self.writer.add(self._opening(visit, sought=True))

    def _new_visit(self, client: str) -> str:
        """Return a name for a visit: a connection may leave a subscription and have it again."""
        self._count += 1
        return f"{client}/{self._count}"

    def _leave(self, visit: _Visit | None) -> None:
        if visit is not None:
            self.writer.add(Ended(visit.asked.subscription, visit.name))

    def _opening(self, visit: _Visit, *, sought: bool = False, restated: bool = False) -> Opened:
        asked = visit.asked
        return Opened(
            asked.subscription,
            visit.name,
            self._broker,
            visit.filter,
            asked.durable,
            asked.order is said.Order.TOTAL,
            [*visit.places.items()],
            sought,
            restated,
            visit.principal,
        )

    def _restated(self) -> Iterator[Record]:
        for visits in [*self._visits.values()]:
            for visit in [*visits.values()]:
                yield self._opening(visit, restated=True)

    def _filter_set(self, client: str, notice: said.FilterSet) -> None:
        request = self._request(client, notice.request)
        if isinstance(request, said.SetFilter):
            visit = self._visit(client, request.subscription)
            if visit is not None:
                visit.filter = request.filter
                places = [*notice.position]
                self.writer.add(Switched(request.subscription, visit.name, request.filter, places))

    def _publisher_opened(self, client: str, notice: said.PublisherOpened) -> None:
        request = self._request(client, notice.request)
        if isinstance(request, said.OpenPublisher):
            self._opens(client, (request.pubend, request.publisher))

    def _committed(self, client: str, notice: staging.StagedCommitted) -> None:
        self._commit_over(client, self._request(client, notice.request))

    def _commit_over(self, client: str, request: Any) -> str:
        """A commit is done, refused or left; return whose it was."""
        if not isinstance(request, staging.CommitStaged):
            return ""
        author = (request.pubend, request.writer)
        under_way = self._commits.get(author, {})
        principal = under_way.pop((client, request.request), "")
        if not under_way:
            self._commits.pop(author, None)
        return principal

    def _unsubscribed(self, client: str, notice: said.Unsubscribed) -> None:
        request = self._request(client, notice.request)
        if isinstance(request, said.Unsubscribe):
            visit = self._visits.get(client, {}).pop(request.subscription, None)
            name = visit.name if visit is not None else ""
            self.writer.add(Ended(request.subscription, name, is_gone=True))

    def _read(self, client: str, notice: said.ReadPart) -> None:
        request = self._request(client, notice.request)
        if not isinstance(request, said.ReadLog) or request.form is ReadForm.TICKS:
            return  # where events stand says nothing of what they have
        if notice.rows or notice.publications:
            principal = self._principals.get(client, "")
            part = (request.pubend, request.filter, request.low, notice.done)
            self.writer.add(ReadOut(*part, principal))

    def _refused(self, client: str, notice: said.Refused) -> None:
        self._commit_over(client, self._request(client, notice.request))

    def _started(self, client: str, notice: said.Started) -> None:
        if visit := self._visit(client, notice.subscription):
            visit.places.setdefault(notice.pubend, notice.after)
            self.writer.add(Started(notice.subscription, visit.name, notice.pubend, notice.after))

    def _progressed(self, client: str, notice: said.Progress) -> None:
        if visit := self._visit(client, notice.subscription):
            self.writer.add(Progressed(notice.subscription, visit.name, [*notice.position]))

    def _gap(self, client: str, notice: said.Gap) -> None:
        if visit := self._visit(client, notice.subscription):
            pubend, low, high = notice.pubend, notice.low, notice.high
            expected = low <= 1 and visit.asked.begin.kind is said.BeginKind.EARLIEST
            told = GapTold(notice.subscription, visit.name, pubend, low, high, expected)
            self.writer.add(told)

    def _ended(self, client: str, notice: said.Ended) -> None:
        self._leave(self._visits.get(client, {}).pop(notice.subscription, None))


def _runs(publications: Sequence[Publication]) -> Iterator[Sequence[Publication]]:
    """Cut a row where another publisher goes on, or sequences do not follow; mostly nowhere."""
    first, last = publications[0], publications[-1]
    follows = last.sequence - first.sequence == len(publications) - 1
    if follows and last.publisher == first.publisher:
        yield publications  # a row is what one publisher has sent at once
        return
    begin = 0
    for place in range(1, len(publications)):
        before, each = publications[place - 1], publications[place]
        if each.sequence != before.sequence + 1 or each.publisher != before.publisher:
            yield publications[begin:place]
            begin = place
    yield publications[begin:] if begin else publications
