"""The pubends of this broker: creation, restart and updates from the tables (R27 to R33)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol, TypeAlias

from gapless.core.context import Context
from gapless.core.ids import PubendId, ShbId, VirtualTime
from gapless.core.ticks import Tick
from gapless.directory.announcements import AnnouncementListener
from gapless.directory.hosted import Hosted
from gapless.messages.overlay import Quality
from gapless.messages.records import PubendRecord
from gapless.messages.stored import StoredPubend
from gapless.overlay.peers import Peers
from gapless.pubend.best_effort import BestEffortPubend
from gapless.pubend.known_hosts import KnownHosts
from gapless.pubend.log_budget import LogBudget
from gapless.pubend.members import Members
from gapless.pubend.protocols import AckRequests, Claims, PubendAnnouncer, PubendRouter
from gapless.pubend.pubend import Pubend
from gapless.pubend.serving import PubendRequestHandler
from gapless.pubend.tick_ceiling import TickCeiling

__all__ = ["AnyPubend", "ChangedClaims", "PubendRegistry", "Pubends"]

AnyPubend: TypeAlias = Pubend | BestEffortPubend


class ChangedClaims(Claims, Protocol):
    """The claims of subscription tables, and the SHBs whose virtual time in them has grown."""

    def changed_since(self, known: Mapping[ShbId, VirtualTime]) -> dict[ShbId, VirtualTime]:
        """Return the SHBs whose virtual time in the tables is greater than the known one."""


class PubendRegistry(Hosted, Protocol):
    """The registry of this broker's pubends, to which new ones are added."""

    def __getitem__(self, pubend: PubendId) -> AnyPubend:
        """Return a pubend that is served here."""

    def get(self, pubend: PubendId) -> AnyPubend | None:
        """Return a pubend that is served here, or None."""

    def __setitem__(self, pubend: PubendId, hosted: AnyPubend) -> None:
        """Add a pubend that is served here."""

    def __delitem__(self, pubend: PubendId) -> None:
        """Remove a pubend that has ended."""

    def values(self) -> Collection[AnyPubend]:
        """Return the pubends that are served here."""


class Pubends:
    """Creates and restores the pubends of this broker, and updates their stream epochs."""

    def __init__(
        self,
        context: Context,
        hosted: PubendRegistry,
        peers: Peers,
        announcements: PubendAnnouncer,
        claims: ChangedClaims,
        router: PubendRouter,
        reports: AckRequests,
        listener: AnnouncementListener,
        tick_ceiling: Tick = 0,
    ) -> None:
        self._context = context
        self._hosted = hosted
        self._peers = peers
        self._announcements = announcements
        self._claims = claims
        self._router = router
        self._reports = reports
        self._listener = listener
        self.log_budget = LogBudget(context.parameters.all_logs_bytes_max)
        """The bytes of all logs of this broker."""
        self._ceiling = TickCeiling(context, tick_ceiling)
        self._handlers: dict[PubendId, PubendRequestHandler] = {}
        self._noted_hosts: dict[ShbId, VirtualTime] = {}
        """The virtual time of each SHB that was last noted at the pubends, in this incarnation."""

    # --- creation and restart ------------------------------------------------------------------

    def restore(self, stored: Iterable[StoredPubend]) -> None:
        """Restore all pubends that are not corrupt."""
        for each in stored:
            if each.record.pubend not in self._hosted.corrupt:
                self.host(each._replace(record=self._ceiling.restored(each.record)))

    def host(self, stored: StoredPubend) -> None:
        """Serve a pubend and announce it."""
        context, record = self._context, stored.record
        pubend = record.pubend
        hosted: AnyPubend
        if record.properties.quality is Quality.BEST_EFFORT:
            hosted = BestEffortPubend(context, record, self._router)
        else:
            hosted = Pubend(
                context,
                record,
                self._router,
                self._reports,
                self._claims,
                self._peers,
                self._ceiling,
                stream_epochs=stored.stream_epochs,
                publishers=stored.publishers,
                members=Members(
                    pubend,
                    context.parameters,
                    context.now,
                    stored.members,
                    stored.log_holds,
                    stored.ended_memberships,
                ),
                known_hosts=KnownHosts(pubend, context.parameters, context.now, stored.known_hosts),
                budget=self.log_budget,
            )
            self._handlers[pubend] = PubendRequestHandler(context, hosted)
            hosted.note_hosts(self._noted_hosts)
        self._hosted[pubend] = hosted
        self._announce(record)
        self._router.host(pubend, hosted, record.released)
        self._router.learn_stream_epochs(pubend, stored.stream_epochs)
        self._listener.pubend_announced(pubend)

    def announce(self, pubend: PubendId) -> None:
        """Announce a pubend of this broker as it is on disk."""
        self._announce(self._hosted[pubend].record)
        self._listener.pubend_announced(pubend)

    def _announce(self, record: PubendRecord) -> None:
        self._announcements.host(
            record.pubend, record.announcement_version, record.properties, sealed=record.sealed
        )

    def forget(self, pubend: PubendId) -> None:
        """Serve a pubend no more: it ends (RS-33)."""
        del self._hosted[pubend]
        self._handlers.pop(pubend, None)

    def widened(self, pubend: Pubend) -> None:
        """Announce a wider advertisement, and note all SHBs as known hosts for it."""
        pubend.note_hosts(self._noted_hosts)
        self.announce(pubend.record.pubend)

    # --- queries -------------------------------------------------------------------------------

    def serving(self, pubend: PubendId) -> PubendRequestHandler | None:
        """Return the request handler of a pubend, or None if it has no log here."""
        return self._handlers.get(pubend)

    def logs(self) -> list[Pubend]:
        """Return the pubends that have a log."""
        return [each for each in self._hosted.values() if isinstance(each, Pubend)]

    @property
    def corruptions(self) -> dict[PubendId, str]:
        """The pubends whose log has a row that cannot be read, each with the reason (P8)."""
        return {
            each.record.pubend: each.corruption
            for each in self.logs()
            if each.corruption is not None
        }

    def hosts(self) -> set[ShbId]:
        """Return the members of all logs."""
        return {shb for each in self.logs() for shb in each.members.hosts()}

    def retire(self, shb: ShbId) -> None:
        """Keep nothing for a retired SHB."""
        for hosted in self.logs():
            hosted.retire(shb)

    def readmit(self, shb: ShbId) -> None:
        """Accept the reports of a retired SHB again."""
        for hosted in self.logs():
            hosted.members.readmit(shb)

    def update_stream_epochs(self) -> None:
        """Open the stream epochs that are due after a change of the tables."""
        changed = self._claims.changed_since(self._noted_hosts)
        self._noted_hosts.update(changed)
        for hosted in self.logs():
            hosted.note_hosts(changed)
            hosted.update_stream_epoch()

    def reshaped(self) -> None:
        """Open the stream epochs that are due after a change of the tree."""
        self.update_stream_epochs()
