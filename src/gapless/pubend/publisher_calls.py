"""The requests of publishers: open a pubend, open a publisher, publish."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gapless.content.filter import Filter
from gapless.core.context import Context
from gapless.core.errors import FilterError
from gapless.core.ids import BrokerId, PubendId
from gapless.core.limits import NAME_MAX
from gapless.core.ticks import Tick
from gapless.directory.name_query import numbered
from gapless.directory.names import invalid_name_reason
from gapless.messages.clients import (
    OpenPubend,
    OpenPublisher,
    PubendOpened,
    Publish,
    Published,
    PublisherOpened,
    RefusalCause,
    Refused,
)
from gapless.messages.overlay import NameStatus, PubendProperties
from gapless.messages.records import PubendRecord, PublisherRecord, PutRecord
from gapless.messages.stored import StoredPubend
from gapless.overlay.peers import Peers
from gapless.pubend.best_effort import BestEffortPubend
from gapless.pubend.drain import sealed_reason
from gapless.pubend.protocols import NameQuerier, OtherBrokers, PubendNaming
from gapless.pubend.pubend import Pubend, PublishRefusedError
from gapless.pubend.pubends import AnyPubend, Pubends
from gapless.pubend.publishers import refuse_crowds
from gapless.pubend.refusals import PubendRefusals

__all__ = ["PublisherCalls"]


class PublisherCalls:
    """Handles the requests of publishers."""

    def __init__(
        self,
        context: Context,
        peers: Peers,
        hosted: Mapping[PubendId, AnyPubend],
        status: OtherBrokers,
        names: PubendNaming,
        queries: NameQuerier,
        pubends: Pubends,
        refusals: PubendRefusals,
    ) -> None:
        self._context = context
        self._peers = peers
        self._hosted = hosted
        self._status = status
        self._names = names
        self._queries = queries
        self._pubends = pubends
        self._refusals = refusals
        self._opening: dict[str, list[tuple[str, OpenPubend]]] = {}
        """The requests that wait for a name query, or for a new pubend to be on disk."""
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {
            Publish: self._publish,
            OpenPubend: self._open,
            OpenPublisher: self._open_publisher,
        }

    # --- opening a pubend ----------------------------------------------------------------------

    def _open(self, client: str, call: OpenPubend) -> None:
        pubend = self._names.find(call.name)
        closed = self._closed(call.name, pubend)
        if closed is not None:
            self._refusals.refuse(client, call.request, sealed_reason(closed), RefusalCause.CLOSED)
            return
        reason = self._refusal_of(call, pubend)
        if pubend is not None:
            if reason is None:
                self._open_hosted(client, call, pubend)
            else:
                self._refusals.refuse_for(client, call.request, pubend, reason)
        elif reason is not None:
            self._refusals.refuse(client, call.request, reason)
        elif call.name in self._opening:
            self._opening[call.name].append((client, call))
        elif self._queries.is_full:
            reason = "too many name queries are pending; retry later"
            self._refusals.refuse(client, call.request, reason, RefusalCause.UNAVAILABLE)
        else:
            self._opening[call.name] = [(client, call)]
            self._queries.query(call.name, partial(self._name_queried, call))

    def _closed(self, name: str, pubend: PubendId | None) -> PubendId | None:
        """Return the pubend of a name if it is closed and the name gives no other one (RS-34).

        The plain name of a tombstone gives a new pubend with a number.
        """
        hosted = None if pubend is None else self._hosted.get(pubend)
        if hosted is not None:
            return pubend if hosted.sealed is not None else None
        closed = self._names.find_closed(name) if pubend is None else None
        return closed if closed is not None and closed.incarnation > 1 else None

    def _refusal_of(self, call: OpenPubend, pubend: PubendId | None) -> str | None:
        """Return why a pubend cannot be opened as requested, or None if it can."""
        try:
            advertisement = Filter(call.advertisement)
        except FilterError as error:
            return f"the advertisement is not a valid filter: {error}"
        if pubend is None:
            return invalid_name_reason(call.name)
        hosted = self._hosted.get(pubend)
        if hosted is None:
            where = self._status.other_broker(pubend)
            if where is None:
                return self._status.not_here(pubend)
            return f"the pubend {str(pubend)!r} is at the broker {where}; publish there"
        properties = hosted.record.properties
        if properties.quality is not call.quality:
            return (
                f"the pubend {str(pubend)!r} is {properties.quality.name.lower()}, and the quality "
                "of a pubend cannot be changed; open another pubend"
            )
        return _advertisement_refusal(hosted, advertisement)

    def _open_hosted(self, client: str, call: OpenPubend, pubend: PubendId) -> None:
        """Reply for a pubend of this broker; widen its advertisement first if necessary."""
        hosted, requested = self._hosted[pubend], Filter(call.advertisement)

        def opened() -> None:
            self._context.notify(client, PubendOpened(call.request, pubend))

        def widened() -> None:
            assert isinstance(hosted, Pubend)
            self._pubends.widened(hosted)
            opened()

        if Filter(hosted.record.properties.advertisement).covers(requested):
            opened()
        elif _advertisement(hosted).covers(requested):
            # an earlier request has widened it: the reply waits for that write
            self._context.write((), opened)
        else:
            assert isinstance(hosted, Pubend)
            hosted.widen(requested, widened)

    def _name_queried(self, call: OpenPubend, status: NameStatus, taken_by: BrokerId) -> None:
        """Create a pubend for all requests that wait for it, unless another broker has the name."""
        name = call.name
        if status is NameStatus.TAKEN:
            reason = f"the broker {taken_by} has or creates the pubend {name!r}; publish there"
            for client, waiting in self._opening.pop(name):
                refused = Refused(waiting.request, reason, RefusalCause.WRONG_BROKER, taken_by)
                self._context.notify(client, refused)
        elif self._names.find(name) is not None:
            self._context.mark("name became known during its query")
            self._open_waiting(name)
        else:
            is_free = status is NameStatus.FREE and not self._names.is_remembered(name)
            pubend = PubendId(name) if is_free else self._numbered(name)
            self._create(pubend, call)

    def _numbered(self, name: str) -> PubendId:
        return numbered(name, self._context.identity, self._names.closed_here)

    def _create(self, pubend: PubendId, call: OpenPubend) -> None:
        identity = self._context.identity
        properties = PubendProperties(
            identity.broker, identity.cell, str(Filter(call.advertisement)), call.quality
        )
        # the stream starts now: nothing was published before
        start = max(0, min(self._context.clock, self._peers.clock_view()))
        record = PubendRecord(pubend, properties, 1, start, start)
        self._names.reserve(call.name)

        def created() -> None:
            self._names.release(call.name)
            self._pubends.host(StoredPubend(record))
            self._open_waiting(call.name)

        self._context.write((PutRecord(record),), created)

    def _open_waiting(self, name: str) -> None:
        """Answer the requests that have waited for a name."""
        for client, waiting in self._opening.pop(name):
            self._open(client, waiting)

    # --- publishing ----------------------------------------------------------------------------

    def _open_publisher(self, client: str, call: OpenPublisher) -> None:
        hosted = self._hosted.get(call.pubend)
        if hosted is None:
            self._refusals.refuse_missing(client, call.request, call.pubend)
            return
        if hosted.sealed is not None and hosted.session_of(call.publisher) is None:
            # a known publisher may open a session to learn the outcome of what it has sent
            reason = sealed_reason(call.pubend)
            self._refusals.refuse(client, call.request, reason, RefusalCause.CLOSED)
            return
        if not 0 < len(call.publisher) <= NAME_MAX:
            reason = f"a publisher's name has 1 to {NAME_MAX} characters"
            self._refusals.refuse(client, call.request, reason)
            return

        def opened(record: PublisherRecord) -> None:
            window = self._context.parameters.publisher_window
            reply = PublisherOpened(call.request, record.session, record.last_sequence, window)
            self._context.notify(client, reply)

        hosted.open_publisher(call.publisher, opened)

    def _publish(self, client: str, call: Publish) -> None:
        hosted = self._hosted.get(call.pubend)
        if hosted is None:
            self._refusals.refuse_missing(client, call.request, call.pubend)
            return
        try:
            refuse_crowds(call.events)
            hosted.publish(
                call.publisher,
                call.session,
                call.first,
                call.events,
                partial(self._published, client, call.request),
                partial(self._refuse_batch, client, call),
            )
        except PublishRefusedError as error:
            self._refuse_batch(client, call, str(error))

    def _published(self, client: str, request: int, ticks: tuple[Tick, ...]) -> None:
        self._context.notify(client, Published(request, ticks))

    def _refuse_batch(self, client: str, call: Publish, reason: str) -> None:
        """Refuse a batch, with the cause that its session is not open or is fenced, if so (R28)."""
        hosted = self._hosted.get(call.pubend)
        if hosted is None:
            self._refusals.refuse_missing(client, call.request, call.pubend)
            return
        newest = hosted.session_of(call.publisher)
        cause = RefusalCause.OTHER if hosted.sealed is None else RefusalCause.CLOSED
        if newest != call.session:
            cause = RefusalCause.NOT_OPEN if newest is None else RefusalCause.FENCED
        self._refusals.refuse(client, call.request, reason, cause)


def _advertisement_refusal(hosted: AnyPubend, requested: Filter) -> str | None:
    """Return why a pubend cannot advertise a filter too: an advertisement only widens (A22)."""
    present = _advertisement(hosted)
    widens = isinstance(hosted, Pubend) and requested.covers(present)
    if widens or present.covers(requested):
        return None
    what = f"the pubend {hosted.record.pubend} advertises {present}"
    if isinstance(hosted, BestEffortPubend):
        return (
            f"{what}, and the advertisement of a best-effort pubend cannot be changed; "
            f"open another pubend for {requested}"
        )
    return (
        f"{what}, and an advertisement only widens; "
        f"open it with ({present}) OR ({requested}), or open another pubend"
    )


def _advertisement(hosted: AnyPubend) -> Filter:
    """Return the advertisement of a pubend after all pending writes."""
    if isinstance(hosted, Pubend):
        return hosted.advertisement
    return Filter(hosted.record.properties.advertisement)
