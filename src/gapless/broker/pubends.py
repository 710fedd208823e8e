"""The pubends that this broker hosts: opened, brought back from disk, served (R27 to R33)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from gapless.content.filter import Filter
from gapless.core.errors import FilterError
from gapless.core.ids import ORIGIN, BrokerId, Entry, PubendId, ShbId, VirtualTime
from gapless.core.machine import Context
from gapless.core.ticks import Tick
from gapless.delivery.best_effort import BestEffortPubend
from gapless.delivery.early_hosts import EarlyHosts
from gapless.delivery.members import Membership
from gapless.delivery.pubend import Pubend, PublishRefusedError
from gapless.delivery.serving import Serving
from gapless.messages.clients import (
    Cause,
    OpenPubend,
    OpenPublisher,
    PubendOpened,
    Publish,
    Published,
    PublisherOpened,
    Refused,
)
from gapless.messages.overlay import PubendProperties, Quality
from gapless.messages.records import (
    EarlyHostRecord,
    HoldRecord,
    MemberRecord,
    PubendRecord,
    PublisherRecord,
    Record,
    RegimeRecord,
    Store,
)
from gapless.messages.streams import Member, Piece

if TYPE_CHECKING:
    from gapless.broker.machine import Broker

__all__ = ["Pubends"]

_NAME_MAX = 256
"""Characters in a pubend's name; it is in every message of its stream."""


class Pubends:
    """All pubends of one broker, and the calls of publishers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._context: Context = broker.context
        self.hosted: dict[PubendId, Pubend | BestEffortPubend] = {}
        self._serving: dict[PubendId, Serving] = {}
        self._met: dict[ShbId, VirtualTime] = {}
        """Up to which virtual time the news of each subscriber host has come in this life."""
        self._opening: dict[PubendId, list[tuple[str, OpenPubend]]] = {}
        """Who waits for a pubend that is not on disk yet."""

    # --- from disk -----------------------------------------------------------------------------

    def restore(self, records: Iterable[Record]) -> None:
        """Bring all pubends back as they were."""
        by_kind: dict[type, dict[PubendId, list[Any]]] = {}
        for record in records:
            if isinstance(
                record,
                PubendRecord
                | RegimeRecord
                | MemberRecord
                | HoldRecord
                | EarlyHostRecord
                | PublisherRecord,
            ):
                by_kind.setdefault(type(record), {}).setdefault(record.pubend, []).append(record)
        for pubend, (record,) in by_kind.get(PubendRecord, {}).items():
            if pubend in self._broker.refused:
                continue
            self._host(
                record,
                *(
                    by_kind.get(kind, {}).get(pubend, [])
                    for kind in (
                        RegimeRecord,
                        PublisherRecord,
                        MemberRecord,
                        HoldRecord,
                        EarlyHostRecord,
                    )
                ),
            )

    def _host(
        self,
        record: PubendRecord,
        regimes: list[RegimeRecord],
        publishers: list[PublisherRecord],
        members: list[MemberRecord],
        holds: list[HoldRecord],
        early: list[EarlyHostRecord],
    ) -> None:
        pubend = record.pubend
        context, broker = self._context, self._broker
        made: Pubend | BestEffortPubend
        if record.properties.quality is Quality.BEST_EFFORT:
            made = BestEffortPubend(context, record, self)
        else:
            made = Pubend(
                context,
                record,
                self,
                partial(self._claim, pubend),
                broker.sessions.clock_view,
                regimes=regimes,
                publishers=publishers,
                membership=Membership(pubend, context.parameters, context.now, members, holds),
                early_hosts=EarlyHosts(pubend, context.parameters, context.now, early),
            )
            self._serving[pubend] = Serving(context, made)
            made.meet(self._met)
        self.hosted[pubend] = made
        broker.announcements.host(pubend, record.announcement_version, record.properties)
        broker.router.host(pubend, made, record.released)
        broker.router.learn_regimes(pubend, regimes)
        broker.announced(pubend)

    def _claim(self, pubend: PubendId, shb: ShbId) -> Entry | None:
        """Return what tables that know the pubend as it is now claim of a subscriber host (R31)."""
        version = self.hosted[pubend].record.announcement_version
        return self._broker.tables.holdings.claim(shb, pubend, version)

    @property
    def damages(self) -> dict[PubendId, str]:
        """By pubend what is wrong with its log, if a row of it was met that cannot be read (P8)."""
        hosted = self.hosted.items()
        return {
            pubend: each.damage
            for pubend, each in hosted
            if isinstance(each, Pubend) and each.damage is not None
        }

    # --- what the rooms ask ----------------------------------------------------------------------

    def serving(self, pubend: PubendId) -> Serving | None:
        """Return what answers requests for a pubend that is hosted here."""
        return self._serving.get(pubend)

    def report(self, pubend: PubendId, member: Member, tick: Tick) -> bool:
        """Take a report for a pubend of this broker; False if it is not here."""
        hosted = self.hosted.get(pubend)
        if not isinstance(hosted, Pubend):
            return False
        if hosted.membership.report(member, tick, self._context.now):
            hosted.review_regime()
        return True

    def retire(self, shb: ShbId) -> None:
        """Keep nothing for a host that will not return."""
        for hosted in self.hosted.values():
            if isinstance(hosted, Pubend):
                hosted.retire(shb)

    def review_regimes(self) -> None:
        """Tables have changed, and with them perhaps claims."""
        news = self._news()
        self._met.update(news)
        for hosted in self.hosted.values():
            if isinstance(hosted, Pubend):
                hosted.meet(news)
                hosted.review_regime()

    def _news(self) -> dict[ShbId, VirtualTime]:
        """Return the hosts of which tables tell more than before, each with its virtual time."""
        news: dict[ShbId, VirtualTime] = {}
        for edge in self._broker.tables.holdings.edges.values():
            for table in edge.tables():
                for shb, entry in table.entries.items():
                    known = news.get(shb) or self._met.get(shb, ORIGIN)
                    if entry.time > known and not entry.retired:
                        news[shb] = entry.time
        return news

    def spread(self, pubend: PubendId, piece: Piece, opened: RegimeRecord | None) -> None:
        """Let the router send a new piece out."""
        self._broker.router.spread(pubend, piece, opened)

    def cached(self, pubend: PubendId, low: Tick, high: Tick) -> list[Piece]:
        """Return what the router has in memory, for those who read the log near its end."""
        return self._broker.router.cached(pubend, low, high)

    def released(self, pubend: PubendId, up_to: Tick) -> None:
        """Let the router know what the log no longer has."""
        hosted = self.hosted[pubend]
        assert isinstance(hosted, Pubend)
        regimes = [regime.number for regime in hosted.regimes]
        self._broker.router.set_released(pubend, up_to, regimes)

    def expect_ack(self, pubend: PubendId, tick: Tick, pressure: bool) -> None:
        """Ask those who lag to look for their gaps."""
        self._broker.reports.expect(pubend, tick, pressure=pressure)

    # --- what publishers ask -----------------------------------------------------------------------

    def asked(self, client: str, request: Any) -> bool:
        """Take a request of a publisher; False for others."""
        if isinstance(request, OpenPubend):
            self._open(client, request)
        elif isinstance(request, OpenPublisher):
            self._open_publisher(client, request)
        elif isinstance(request, Publish):
            self._publish(client, request)
        else:
            return False
        return True

    def _refuse(self, client: str, request: int, reason: str) -> None:
        self._context.tell(client, Refused(request, reason))

    def refuse_missing(self, client: str, request: int, pubend: PubendId, unknown: Cause) -> None:
        """Refuse what is asked of a pubend that is not here, and say where it is, if that is known."""
        reason = self._not_here(pubend)
        if pubend in self._broker.refused or self._broker.announcements.get(pubend) is not None:
            self._refuse_here(client, request, pubend, reason)
        else:
            self._context.tell(client, Refused(request, reason, unknown))

    def _refuse_here(self, client: str, request: int, pubend: PubendId, reason: str) -> None:
        """Refuse what is asked of a pubend; name the broker that has it, if it is another."""
        where = None if pubend in self.hosted else self._other_home(pubend)
        if where is None:
            self._refuse(client, request, reason)
        else:
            self._context.tell(client, Refused(request, reason, Cause.ELSEWHERE, where))

    def _other_home(self, pubend: PubendId) -> BrokerId | None:
        """Return which broker has a pubend that is not here, by the news or from memory."""
        known = self._broker.announcements.get(pubend)
        if known is not None:
            return known.properties.broker
        return self._broker.whereabouts.broker_of(pubend)

    def _refuse_batch(self, client: str, call: Publish, reason: str) -> None:
        """Refuse a batch; say so if its session is over, and whether there is a newer one (R28)."""
        newest = self.hosted[call.pubend].session_of(call.publisher)
        cause = Cause.OTHER
        if newest != call.session:
            cause = Cause.NOT_OPEN if newest is None else Cause.TAKEN_OVER
        self._context.tell(client, Refused(call.request, reason, cause))

    def _open(self, client: str, call: OpenPubend) -> None:
        pubend = PubendId(call.name)
        reason = self._fault_of(call)
        if reason is not None:
            self._refuse_here(client, call.request, pubend, reason)
        elif pubend in self.hosted:
            self._find(client, call, pubend)
        elif pubend in self._opening:
            self._opening[pubend].append((client, call))
        else:
            self._opening[pubend] = [(client, call)]
            self._make(pubend, call)

    def _fault_of(self, call: OpenPubend) -> str | None:
        if not 0 < len(call.name) <= _NAME_MAX or "#" in call.name:
            return f"a pubend's name has 1 to {_NAME_MAX} characters and no #"
        try:
            advertisement = Filter(call.advertisement)
        except FilterError as error:
            return f"the advertisement is no filter: {error}"
        pubend = PubendId(call.name)
        hosted = self.hosted.get(pubend)
        if hosted is None:
            if pubend in self._broker.refused:
                return self._not_here(pubend)
            where = self._other_home(pubend)
            if where is not None:
                return f"the pubend {call.name!r} is at the broker {where}; publish there"
            return None
        properties = hosted.record.properties
        if properties.quality is not call.quality:
            return f"the pubend {call.name!r} is {properties.quality.name.lower()}; it stays so"
        return self._fault_of_advertisement(hosted, advertisement)

    def _fault_of_advertisement(
        self, hosted: Pubend | BestEffortPubend, wanted: Filter
    ) -> str | None:
        """Say why a pubend cannot advertise this too: an advertisement only widens (A22)."""
        present = _advertisement(hosted)
        widens = isinstance(hosted, Pubend) and wanted.covers(present)
        if widens or present.covers(wanted):
            return None
        what = f"the pubend {hosted.record.pubend} advertises {present}"
        if isinstance(hosted, BestEffortPubend):
            return f"{what}, which stays so at best effort; open another pubend for {wanted}"
        return (
            f"{what}, and an advertisement only widens; "
            f"open it with ({present}) OR ({wanted}), or open another pubend"
        )

    def _find(self, client: str, call: OpenPubend, pubend: PubendId) -> None:
        """Answer for a pubend that is here; widen its advertisement first if more is asked for."""
        hosted, wanted = self.hosted[pubend], Filter(call.advertisement)

        def opened() -> None:
            self._context.tell(client, PubendOpened(call.request, pubend))

        def widened() -> None:
            assert isinstance(hosted, Pubend)
            hosted.meet(self._met)
            self._announce(pubend)
            opened()

        if Filter(hosted.record.properties.advertisement).covers(wanted):
            opened()
        elif _advertisement(hosted).covers(wanted):
            # somebody else has just asked for it: the answer waits behind that write
            self._context.write((), opened)
        else:
            assert isinstance(hosted, Pubend)
            hosted.widen(wanted, widened)

    def _announce(self, pubend: PubendId) -> None:
        """Say that a pubend is here, as it is on disk."""
        record = self.hosted[pubend].record
        self._broker.announcements.host(pubend, record.announcement_version, record.properties)
        self._broker.announced(pubend)

    def _make(self, pubend: PubendId, call: OpenPubend) -> None:
        identity = self._context.identity
        properties = PubendProperties(
            identity.broker, identity.cell, str(Filter(call.advertisement)), call.quality
        )
        # its stream begins now: before that nothing can have been, and nothing is missed
        began = max(0, min(self._context.clock, self._broker.sessions.clock_view()))
        record = PubendRecord(pubend, properties, 1, began, began)

        def made() -> None:
            self._host(record, [], [], [], [], [])
            for client, waiting in self._opening.pop(pubend):
                self._open(client, waiting)

        self._context.write((Store(record),), made)

    def _open_publisher(self, client: str, call: OpenPublisher) -> None:
        hosted = self.hosted.get(call.pubend)
        if hosted is None:
            self._refuse_here(client, call.request, call.pubend, self._not_here(call.pubend))
            return
        if not 0 < len(call.publisher) <= _NAME_MAX:
            reason = f"a publisher's name has 1 to {_NAME_MAX} characters"
            self._refuse(client, call.request, reason)
            return

        def opened(record: PublisherRecord) -> None:
            window = self._context.parameters.publisher_window
            answer = PublisherOpened(call.request, record.session, record.last_sequence, window)
            self._context.tell(client, answer)

        hosted.open_publisher(call.publisher, opened)

    def _publish(self, client: str, call: Publish) -> None:
        hosted = self.hosted.get(call.pubend)
        if hosted is None:
            self._refuse_here(client, call.request, call.pubend, self._not_here(call.pubend))
            return
        try:
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
        self._context.tell(client, Published(request, ticks))

    def _not_here(self, pubend: PubendId) -> str:
        damage = self._broker.refused.get(pubend)
        if damage is not None:
            return f"the pubend {pubend} could not be brought back: {damage}"
        where = self._other_home(pubend)
        if where is None:
            return f"there is no pubend {pubend} here; open it first"
        return f"the pubend {pubend} is at the broker {where}; publish there"


def _advertisement(hosted: Pubend | BestEffortPubend) -> Filter:
    """Return what a pubend advertises when all writes are through."""
    if isinstance(hosted, Pubend):
        return hosted.advertisement
    return Filter(hosted.record.properties.advertisement)
