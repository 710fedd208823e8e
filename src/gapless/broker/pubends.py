"""The pubends that this broker hosts: opened, brought back from disk, served (R27 to R33)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gapless.broker.naming import numbered as with_number
from gapless.content.filter import Filter
from gapless.core.errors import FilterError
from gapless.core.ids import VIRTUAL_TIME_ZERO, BrokerId, PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.limits import NAME_MAX
from gapless.core.machine import Context
from gapless.core.ticks import Tick
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
from gapless.messages.overlay import NameStatus, PubendProperties, Quality
from gapless.messages.records import (
    EndedMembershipRecord,
    KnownHostRecord,
    LogHoldRecord,
    MemberRecord,
    PubendRecord,
    PublisherRecord,
    PutRecord,
    Record,
    StreamEpochRecord,
)
from gapless.messages.streams import KnowledgeRange, Member
from gapless.pubend.best_effort import BestEffortPubend
from gapless.pubend.known_hosts import KnownHosts
from gapless.pubend.members import Members
from gapless.pubend.pubend import Pubend, PublishRefusedError
from gapless.pubend.serving import PubendRequestHandler

if TYPE_CHECKING:
    from gapless.broker.entry import Broker

__all__ = ["HostedPubends"]

_NUMBERED = re.compile(r"([^#]+)#([0-9]{1,15})")
"""A name and its number."""


class HostedPubends:
    """All pubends of one broker, and the calls of publishers."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._context: Context = broker.context
        self.hosted: dict[PubendId, Pubend | BestEffortPubend] = {}
        self._serving: dict[PubendId, PubendRequestHandler] = {}
        self._noted_hosts: dict[ShbId, VirtualTime] = {}
        """Up to which virtual time the news of each subscriber host has come in this life."""
        self._opening: dict[str, list[tuple[str, OpenPubend]]] = {}
        """Who waits for a pubend of a name that is asked for, or not on disk yet."""

    # --- from disk -----------------------------------------------------------------------------

    def restore(self, records: Iterable[Record]) -> None:
        """Bring all pubends back as they were."""
        by_kind: dict[type, dict[PubendId, list[Any]]] = {}
        for record in records:
            if isinstance(
                record,
                PubendRecord
                | StreamEpochRecord
                | MemberRecord
                | LogHoldRecord
                | EndedMembershipRecord
                | KnownHostRecord
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
                        StreamEpochRecord,
                        PublisherRecord,
                        MemberRecord,
                        LogHoldRecord,
                        EndedMembershipRecord,
                        KnownHostRecord,
                    )
                ),
            )

    def _host(
        self,
        record: PubendRecord,
        stream_epochs: Sequence[StreamEpochRecord] = (),
        publishers: Sequence[PublisherRecord] = (),
        members: Sequence[MemberRecord] = (),
        log_holds: Sequence[LogHoldRecord] = (),
        ended_memberships: Sequence[EndedMembershipRecord] = (),
        known_hosts: Sequence[KnownHostRecord] = (),
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
                stream_epochs=stream_epochs,
                publishers=publishers,
                members=Members(
                    pubend, context.parameters, context.now, members, log_holds, ended_memberships
                ),
                known_hosts=KnownHosts(pubend, context.parameters, context.now, known_hosts),
            )
            self._serving[pubend] = PubendRequestHandler(context, made)
            made.note_hosts(self._noted_hosts)
        self.hosted[pubend] = made
        broker.announcements.host(pubend, record.announcement_version, record.properties)
        broker.router.host(pubend, made, record.released)
        broker.router.learn_stream_epochs(pubend, stream_epochs)
        broker.announced(pubend)

    def _claim(self, pubend: PubendId, shb: ShbId) -> VectorEntry | None:
        """Return what tables that know the pubend as it is now claim of a subscriber host (R31)."""
        version = self.hosted[pubend].record.announcement_version
        return self._broker.tables.table_store.claim(shb, pubend, version)

    @property
    def corruptions(self) -> dict[PubendId, str]:
        """By pubend what is wrong with its log, if a row of it was met that cannot be read (P8)."""
        hosted = self.hosted.items()
        return {
            pubend: each.corruption
            for pubend, each in hosted
            if isinstance(each, Pubend) and each.corruption is not None
        }

    # --- what the rooms ask ----------------------------------------------------------------------

    def serving(self, pubend: PubendId) -> PubendRequestHandler | None:
        """Return what answers requests for a pubend that is hosted here."""
        return self._serving.get(pubend)

    def report(self, pubend: PubendId, member: Member, tick: Tick) -> bool:
        """Take a report for a pubend of this broker; False if it is not here."""
        hosted = self.hosted.get(pubend)
        if not isinstance(hosted, Pubend):
            return False
        if hosted.members.report(member, tick, self._context.now):
            hosted.update_stream_epoch()
        return True

    def retire(self, shb: ShbId) -> None:
        """Keep nothing for a host that will not return."""
        for hosted in self.hosted.values():
            if isinstance(hosted, Pubend):
                hosted.retire(shb)

    @property
    def on_disk(self) -> set[PubendId]:
        """All pubends of this broker, those that could not be brought back included."""
        return {*self.hosted, *self._broker.refused}

    @property
    def last_tick(self) -> Tick:
        """The last tick that any pubend of this broker has given; 0 if there is none."""
        ends = (each.last for each in self.hosted.values() if isinstance(each, Pubend))
        return max(ends, default=0)

    def readmit(self, shb: ShbId) -> None:
        """Hear a host again that was retired."""
        for hosted in self.hosted.values():
            if isinstance(hosted, Pubend):
                hosted.members.readmit(shb)

    def update_stream_epochs(self) -> None:
        """Tables have changed, and with them perhaps claims."""
        changed = self._changed_hosts()
        self._noted_hosts.update(changed)
        for hosted in self.hosted.values():
            if isinstance(hosted, Pubend):
                hosted.note_hosts(changed)
                hosted.update_stream_epoch()

    def _changed_hosts(self) -> dict[ShbId, VirtualTime]:
        """Return the hosts of which tables tell more than before, each with its virtual time."""
        changed: dict[ShbId, VirtualTime] = {}
        for edge in self._broker.tables.table_store.edges.values():
            for table in edge.tables():
                for shb, entry in table.entries.items():
                    known = changed.get(shb) or self._noted_hosts.get(shb, VIRTUAL_TIME_ZERO)
                    if entry.time > known and not entry.retired:
                        changed[shb] = entry.time
        return changed

    def forward(
        self, pubend: PubendId, knowledge: KnowledgeRange, opened: StreamEpochRecord | None
    ) -> None:
        """Let the router send a new piece out."""
        self._broker.router.forward(pubend, knowledge, opened)

    def cached(self, pubend: PubendId, low: Tick, high: Tick) -> list[KnowledgeRange]:
        """Return what the router has in memory, for those who read the log near its end."""
        return self._broker.router.cached(pubend, low, high)

    def released(self, pubend: PubendId, up_to: Tick) -> None:
        """Let the router know what the log no longer has."""
        hosted = self.hosted[pubend]
        assert isinstance(hosted, Pubend)
        stream_epochs = [stream_epoch.number for stream_epoch in hosted.stream_epochs]
        self._broker.router.set_released(pubend, up_to, stream_epochs)

    def expect_ack(self, pubend: PubendId, tick: Tick, pressure: bool) -> None:
        """Ask those who lag to look for their gaps."""
        self._broker.reports.request_acks(pubend, tick, pressure=pressure)

    # --- what publishers ask -----------------------------------------------------------------------

    def handle(self, client: str, request: Any) -> bool:
        """Take a request of a publisher; False for others."""
        if isinstance(request, Publish):
            self._publish(client, request)
        elif isinstance(request, OpenPubend):
            self._open(client, request)
        elif isinstance(request, OpenPublisher):
            self._open_publisher(client, request)
        else:
            return False
        return True

    def _refuse(self, client: str, request: int, reason: str) -> None:
        self._context.notify(client, Refused(request, reason))

    def refuse_missing(
        self, client: str, request: int, pubend: PubendId, unknown: RefusalCause
    ) -> None:
        """Refuse what is asked of a pubend that is not here, and say where it is, if that is known."""
        reason = self._not_here(pubend)
        if pubend in self._broker.refused or self._broker.announcements.get(pubend) is not None:
            self._refuse_here(client, request, pubend, reason)
        else:
            self._context.notify(client, Refused(request, reason, unknown))

    def _refuse_here(self, client: str, request: int, pubend: PubendId, reason: str) -> None:
        """Refuse what is asked of a pubend; name the broker that has it, if it is another."""
        where = None if pubend in self.hosted else self._other_broker(pubend)
        if where is None:
            self._refuse(client, request, reason)
        else:
            self._context.notify(client, Refused(request, reason, RefusalCause.WRONG_BROKER, where))

    def _other_broker(self, pubend: PubendId) -> BrokerId | None:
        """Return which other broker has a pubend, by the news or from memory, if it may return."""
        known = self._broker.announcements.get(pubend)
        broker = self._broker.pubend_locations.broker_of(pubend)
        if known is not None:
            broker = known.properties.broker
        if broker is None or broker == self._context.identity.broker:
            return None
        if self._broker.pubend_locations.is_lost(pubend):
            return None
        return None if self._broker.retirements.has(broker) else broker

    def _refuse_batch(self, client: str, call: Publish, reason: str) -> None:
        """Refuse a batch; say so if its session is over, and whether there is a newer one (R28)."""
        newest = self.hosted[call.pubend].session_of(call.publisher)
        cause = RefusalCause.OTHER
        if newest != call.session:
            cause = RefusalCause.NOT_OPEN if newest is None else RefusalCause.FENCED
        self._context.notify(client, Refused(call.request, reason, cause))

    def _open(self, client: str, call: OpenPubend) -> None:
        pubend = self._named(call.name)
        reason = self._fault_of(call, pubend)
        if pubend is not None:
            if reason is None:
                self._find(client, call, pubend)
            else:
                self._refuse_here(client, call.request, pubend, reason)
        elif reason is not None:
            self._refuse(client, call.request, reason)
        elif call.name in self._opening:
            self._opening[call.name].append((client, call))
        elif self._broker.naming.is_full:
            reason = "too many new pubends are opened at once; try later"
            self._context.notify(client, Refused(call.request, reason, RefusalCause.UNAVAILABLE))
        else:
            self._opening[call.name] = [(client, call)]
            self._broker.naming.query(call.name, partial(self._make, call))

    # --- what names mean -----------------------------------------------------------------------

    def _named(self, name: str) -> PubendId | None:
        """Return the pubend that a name means: one of this broker, or else of another, if known.

        A name with a number means that pubend alone. If there are several of a name, it is the first.
        """
        numbered = _NUMBERED.fullmatch(name)
        if numbered:
            exact = PubendId(numbered[1], int(numbered[2]))
            return exact if self._is_known(exact) else None
        found = PubendId(name)
        if found in self.hosted:
            return found
        broker = self._broker
        ours = [each for each in (*self.hosted, *broker.refused) if each.name == name]
        if ours or self._is_known(found):
            return min(ours, default=found)
        others = (
            *broker.announcements.pubends_named(name),
            *broker.pubend_locations.pubends_named(name),
        )
        return min((each for each in others if self._is_known(each)), default=None)

    def _is_known(self, pubend: PubendId) -> bool:
        """Say whether some broker has a pubend, as far as is known here."""
        here = pubend in self.hosted or pubend in self._broker.refused
        return here or self._other_broker(pubend) is not None

    def broker_of_name(self, name: str) -> BrokerId | None:
        """Return which broker has a pubend of that name, or is about to have one, if that is known."""
        me = self._context.identity.broker
        if name in self._opening and not self._broker.naming.is_querying(name):
            return me
        pubend = self._named(name)
        if pubend is None:
            return None
        return me if pubend in self.hosted else self._other_broker(pubend) or me

    def is_remembered(self, name: str) -> bool:
        """Say whether there was a pubend of just that name, also if nobody has it any more."""
        pubend, broker = PubendId(name), self._broker
        there = broker.announcements.get(pubend) is not None
        return there or broker.pubend_locations.broker_of(pubend) is not None

    def _fault_of(self, call: OpenPubend, pubend: PubendId | None) -> str | None:
        try:
            advertisement = Filter(call.advertisement)
        except FilterError as error:
            return f"the advertisement is no filter: {error}"
        if pubend is None:
            return _fault_of_name(call.name)
        hosted = self.hosted.get(pubend)
        if hosted is None:
            where = self._other_broker(pubend)
            if where is None:
                return self._not_here(pubend)
            return f"the pubend {str(pubend)!r} is at the broker {where}; publish there"
        properties = hosted.record.properties
        if properties.quality is not call.quality:
            return f"the pubend {str(pubend)!r} is {properties.quality.name.lower()}; it stays so"
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
            self._context.notify(client, PubendOpened(call.request, pubend))

        def widened() -> None:
            assert isinstance(hosted, Pubend)
            hosted.note_hosts(self._noted_hosts)
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

    def _make(self, call: OpenPubend, verdict: NameStatus, taken_by: BrokerId) -> None:
        """Make a pubend for those who wait for it, unless another broker has the name."""
        name, identity = call.name, self._context.identity
        if verdict is NameStatus.TAKEN:
            for client, waiting in self._opening.pop(name):
                reason = (
                    f"the broker {taken_by} has the pubend {name!r}, or makes it; publish there"
                )
                refused = Refused(waiting.request, reason, RefusalCause.WRONG_BROKER, taken_by)
                self._context.notify(client, refused)
            return
        if self._named(name) is not None:
            self._context.mark("name became known during its query")
            self._open_waiting(name)
            return
        is_free = verdict is NameStatus.FREE and not self.is_remembered(name)
        pubend = PubendId(name) if is_free else with_number(name, identity)
        properties = PubendProperties(
            identity.broker, identity.cell, str(Filter(call.advertisement)), call.quality
        )
        # its stream begins now: before that nothing can have been, and nothing is missed
        start = max(0, min(self._context.clock, self._broker.sessions.clock_view()))
        record = PubendRecord(pubend, properties, 1, start, start)

        def made() -> None:
            self._host(record)
            self._open_waiting(name)

        self._context.write((PutRecord(record),), made)

    def _open_waiting(self, name: str) -> None:
        """Open for those who have waited for a name what it means now."""
        for client, waiting in self._opening.pop(name):
            self._open(client, waiting)

    def _open_publisher(self, client: str, call: OpenPublisher) -> None:
        hosted = self.hosted.get(call.pubend)
        if hosted is None:
            self._refuse_here(client, call.request, call.pubend, self._not_here(call.pubend))
            return
        if not 0 < len(call.publisher) <= NAME_MAX:
            reason = f"a publisher's name has 1 to {NAME_MAX} characters"
            self._refuse(client, call.request, reason)
            return

        def opened(record: PublisherRecord) -> None:
            window = self._context.parameters.publisher_window
            answer = PublisherOpened(call.request, record.session, record.last_sequence, window)
            self._context.notify(client, answer)

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
        self._context.notify(client, Published(request, ticks))

    def _not_here(self, pubend: PubendId) -> str:
        where, corruption = self._other_broker(pubend), self._broker.refused.get(pubend)
        if where is not None:
            return f"the pubend {pubend} is at the broker {where}; publish there"
        if corruption is not None:
            return f"the pubend {pubend} could not be brought back: {corruption}"
        same_name = ", ".join(str(each) for each in self.hosted if each.name == pubend.name)
        others = f", but {same_name}" if same_name else ""
        return f"there is no pubend {pubend} here{others}; open it first"


def _fault_of_name(name: str) -> str | None:
    """Say why no pubend of that name is made."""
    if _NUMBERED.fullmatch(name):
        return f"no pubend {name} is known here, and only brokers give numbers"
    if not 0 < len(name) <= NAME_MAX or "#" in name:
        return f"a pubend's name has 1 to {NAME_MAX} characters and no #"
    return None


def _advertisement(hosted: Pubend | BestEffortPubend) -> Filter:
    """Return what a pubend advertises when all writes are through."""
    if isinstance(hosted, Pubend):
        return hosted.advertisement
    return Filter(hosted.record.properties.advertisement)
