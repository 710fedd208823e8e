"""The closing of pubends: a request seals, what is drained becomes a tombstone (RS-32 to RS-34).

:mod:`.closing_state` has the states and the theory of operation. The requests are idempotent: a
client repeats its request to learn the state and what the pubend waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from gapless.core.context import Context
from gapless.core.ids import BrokerId, PubendId
from gapless.core.limits import SHOWN_MEMBERS_MAX
from gapless.core.overlay_limits import TOMBSTONES_MAX
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.directory.announcements import AnnouncementListener, KnownPubend
from gapless.messages.clients import RefusalCause, Refused
from gapless.messages.closing import (
    CloseMode,
    ClosePubend,
    ClosePubendReply,
    ClosingState,
    HoldState,
)
from gapless.messages.operating import MemberState
from gapless.messages.overlay import PubendProperties
from gapless.messages.records import (
    DeleteRecord,
    PutRecord,
    StorageChange,
    TombstoneRecord,
)
from gapless.pubend.best_effort import BestEffortPubend
from gapless.pubend.closing_state import NEXT_STATES, PubendInput, PubendPhase
from gapless.pubend.protocols import ClockView, OtherBrokers, PubendAnnouncer
from gapless.pubend.pubend import Pubend
from gapless.pubend.pubends import AnyPubend, PubendRegistry

__all__ = ["PubendClosings"]

NO_POSITIONS: Final = 0
"""The last tick of a best-effort pubend."""


class HostedAnnouncements(PubendAnnouncer, Protocol):
    """The announcements of this broker's pubends, and what it has heard of others."""

    @property
    def known(self) -> Mapping[PubendId, KnownPubend]:
        """All pubends, tombstones included."""


class ClosedIds(Protocol):
    """The tombstones of this broker."""

    def __contains__(self, pubend: object) -> bool:
        """Return whether this broker closed a pubend."""

    def __iter__(self) -> Iterator[TombstoneRecord]:
        """Return all tombstones."""

    def get(self, pubend: PubendId) -> TombstoneRecord | None:
        """Return the tombstone of a pubend, or None if there is none."""

    @property
    def is_full(self) -> bool:
        """Whether no further tombstone is kept."""

    def add(self, record: TombstoneRecord) -> None:
        """Remember a pubend that is being closed; the caller writes the record."""

    def recent_us(self, record: TombstoneRecord, clock: int) -> int:
        """Return for how long a tombstone must still be announced, by the median clock."""

    def forget_numbered(self, clock: int) -> None:
        """Forget ids with a number that need not be announced any more."""


class ClosedPubends(Protocol):
    """The pubends of this broker, as they are closed."""

    def announce(self, pubend: PubendId) -> None:
        """Announce a pubend of this broker as it is on disk."""

    def forget(self, pubend: PubendId) -> None:
        """Serve a pubend no more: it ends."""


class StagedBatches(Protocol):
    """The staged batches of this broker."""

    def erase(self, pubend: PubendId) -> list[DeleteRecord]:
        """Forget everything of a pubend that ends; return the storage changes."""


class PubendClosings:
    """Closes the pubends of this broker."""

    def __init__(
        self,
        context: Context,
        hosted: PubendRegistry,
        tombstones: ClosedIds,
        announcements: HostedAnnouncements,
        status: OtherBrokers,
        pubends: ClosedPubends,
        staging: StagedBatches,
        clocks: ClockView,
        listener: AnnouncementListener,
        addresses_of: Callable[[BrokerId], tuple[str, ...]],
    ) -> None:
        self._context = context
        self._hosted = hosted
        self._tombstones = tombstones
        self._announcements = announcements
        self._status = status
        self._pubends = pubends
        self._staging = staging
        self._clocks = clocks
        self._listener = listener
        self._addresses_of = addresses_of
        self._phases: dict[PubendId, PubendPhase] = {}
        """The pubends that are neither open nor tombstones."""
        self._waiting: dict[PubendId, list[tuple[str, int]]] = {}
        """The requests that wait for a write, by pubend: the client and the number."""
        self._gives_up_at: dict[PubendId, int] = {}
        """When members and log holds of a sealed pubend are given up."""
        self._is_planned = False
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {ClosePubend: self._close}

    def start(self) -> None:
        """Continue the closings of earlier incarnations, and announce their tombstones again."""
        for pubend in self._hosted:
            hosted = self._hosted[pubend]
            if isinstance(hosted, Pubend) and hosted.sealed is not None:
                self._phases[pubend] = PubendPhase.SEALED
                self._note_mode(hosted)
        self._tombstones.forget_numbered(self._clocks.clock_view())
        for record in self._tombstones:
            self._announce_end(record)
        self._plan()

    # --- states --------------------------------------------------------------------------------

    def phase_of(self, pubend: PubendId) -> PubendPhase | None:
        """Return the state of a pubend of this broker, or None if it never had one."""
        found = self._phases.get(pubend)
        if found is not None:
            return found
        if pubend in self._tombstones:
            return PubendPhase.TOMBSTONE
        return PubendPhase.OPEN if pubend in self._hosted else None

    def _enter(self, pubend: PubendId, given: PubendInput, phase: PubendPhase) -> None:
        """Change the state, and assert that the table allows it."""
        before = self.phase_of(pubend)
        assert before is not None
        allowed = NEXT_STATES.get((before, given), ())
        assert phase in allowed, f"{given} leads {pubend} from {before} to {phase}"
        self._phases[pubend] = phase

    # --- requests ------------------------------------------------------------------------------

    def _close(self, client: str, call: ClosePubend) -> None:
        pubend = call.pubend
        phase = self.phase_of(pubend)
        if phase is PubendPhase.OPEN and self._tombstones.is_full:
            reason = (
                f"this broker remembers {TOMBSTONES_MAX:,} closed pubends (limit TOMBSTONES_MAX), "
                "and closes no further one"
            )
            self._context.notify(client, Refused(call.request, reason))
        elif phase is PubendPhase.OPEN:
            self._waiting.setdefault(pubend, []).append((client, call.request))
            self._close_open(self._hosted[pubend], call.mode)
        elif phase is PubendPhase.SEALED:
            self._close_again(client, call)
        elif phase in {PubendPhase.SEALING, PubendPhase.ENDING}:
            self._waiting.setdefault(pubend, []).append((client, call.request))
        elif phase is PubendPhase.TOMBSTONE or self._status.is_closed(pubend):
            self._context.notify(client, self._reply(call.request, pubend))
        else:
            self._refuse(client, call)

    def _refuse(self, client: str, call: ClosePubend) -> None:
        """Refuse a request for a pubend that is not here; name its broker if one is known."""
        where = self._status.other_broker(call.pubend)
        if where is None:
            reason = self._status.not_here(call.pubend)
            self._context.notify(client, Refused(call.request, reason))
            return
        reason = f"the pubend {call.pubend} is at the broker {where}; close it there"
        cause, addresses = RefusalCause.WRONG_BROKER, self._addresses_of(where)
        refused = Refused(call.request, reason, cause, where, addresses=addresses)
        self._context.notify(client, refused)

    def _close_open(self, hosted: AnyPubend, mode: CloseMode) -> None:
        pubend = hosted.record.pubend
        if isinstance(hosted, BestEffortPubend):
            self._end(hosted, PubendInput.CLOSE)
            return
        self._context.mark("pubend sealed")
        self._enter(pubend, PubendInput.CLOSE, PubendPhase.SEALING)
        hosted.seal(mode, lambda: self._sealed(hosted))

    def _sealed(self, hosted: Pubend) -> None:
        """The last tick is on disk, and everything up to it is answered and sent (RS-32)."""
        pubend = hosted.record.pubend
        self._enter(pubend, PubendInput.STORED, PubendPhase.SEALED)
        self._note_mode(hosted)
        self._pubends.announce(pubend)
        self._answer_waiting(pubend)
        self._plan()

    def _close_again(self, client: str, call: ClosePubend) -> None:
        """Answer with the state; store a greater mode before."""
        pubend = call.pubend
        hosted = self._hosted[pubend]
        assert isinstance(hosted, Pubend)
        self._enter(pubend, PubendInput.CLOSE, PubendPhase.SEALED)
        if call.mode <= hosted.latest.close_mode:
            self._context.write((), lambda: self._answer(client, call.request, pubend))
            return

        def stored() -> None:
            self._note_mode(hosted)
            self._answer(client, call.request, pubend)

        hosted.set_close_mode(call.mode, stored)

    def _note_mode(self, hosted: Pubend) -> None:
        """Start the wait of the mode NOW; it starts again with the broker."""
        if hosted.latest.close_mode is CloseMode.NOW:
            wait_us = microseconds(s=self._context.parameters.close_wait_s)
            self._gives_up_at.setdefault(hosted.record.pubend, self._context.now + wait_us)

    # --- draining ------------------------------------------------------------------------------

    def _plan(self) -> None:
        if self._phases and not self._is_planned:
            self._is_planned = True
            pause = microseconds(ms=self._context.parameters.ack_ms)
            self._context.call_about(pause, self._review)

    def _review(self) -> None:
        """End the sealed pubends that nobody waits for any more (RS-33)."""
        self._is_planned = False
        for pubend, phase in [*self._phases.items()]:
            if phase is PubendPhase.SEALED:
                hosted = self._hosted[pubend]
                assert isinstance(hosted, Pubend)
                if self._is_drained(hosted):
                    self._end(hosted, PubendInput.DRAINED)
        self._plan()

    def _is_drained(self, hosted: Pubend) -> bool:
        """Return whether the log may be erased, or those that wait for it are given up."""
        if hosted.drain(hosted.latest.close_mode).is_over:
            return True
        gives_up_at = self._gives_up_at.get(hosted.record.pubend)
        if gives_up_at is None or gives_up_at > self._context.now:
            return False
        self._context.mark("gave up members of a closed pubend")
        return True

    def _end(self, hosted: AnyPubend, given: PubendInput) -> None:
        """Erase a pubend and store its tombstone, in one write (RS-33)."""
        pubend, properties = hosted.record.pubend, hosted.record.properties
        last: Tick = NO_POSITIONS
        last_event: Tick = NO_POSITIONS
        if isinstance(hosted, Pubend):
            assert hosted.sealed is not None
            last, last_event = hosted.sealed, hosted.last_event
        version = hosted.record.announcement_version + 1
        clock = self._clocks.clock_view()
        record = TombstoneRecord(pubend, version, last, properties.quality, last_event, clock)
        self._enter(pubend, given, PubendPhase.ENDING)
        changes: tuple[StorageChange, ...] = (
            PutRecord(record),
            *hosted.erase(),
            *self._staging.erase(pubend),
        )
        self._pubends.forget(pubend)
        self._tombstones.add(record)
        self._tombstones.forget_numbered(clock)
        self._context.write(changes, lambda: self._ended(record))

    def _ended(self, record: TombstoneRecord) -> None:
        """The tombstone is on disk: announce it (RS-34)."""
        pubend = record.pubend
        self._context.mark("pubend closed")
        self._enter(pubend, PubendInput.STORED, PubendPhase.TOMBSTONE)
        del self._phases[pubend]
        self._gives_up_at.pop(pubend, None)
        self._announce_end(record)
        self._answer_waiting(pubend)

    def _announce_end(self, record: TombstoneRecord) -> None:
        """Announce a tombstone as long as brokers may not have heard of it (RS-34)."""
        recent_us = self._tombstones.recent_us(record, self._clocks.clock_view())
        if recent_us <= 0:
            return
        identity = self._context.identity
        properties = PubendProperties(identity.broker, identity.cell, "FALSE", record.quality)
        self._announcements.host(
            record.pubend,
            record.version,
            properties,
            tombstone=True,
            sealed=record.last,
            last_event=record.last_event,
        )
        self._announcements.bury_later(record.pubend, record.version, recent_us)
        self._listener.pubend_announced(record.pubend)

    # --- replies -------------------------------------------------------------------------------

    def _answer_waiting(self, pubend: PubendId) -> None:
        for client, request in self._waiting.pop(pubend, ()):
            self._answer(client, request, pubend)

    def _answer(self, client: str, request: int, pubend: PubendId) -> None:
        """Answer with the state on disk; if a write is pending by now, answer after it."""
        if self.phase_of(pubend) is PubendPhase.ENDING:
            self._waiting.setdefault(pubend, []).append((client, request))
            return
        self._context.notify(client, self._reply(request, pubend))

    def _reply(self, request: int, pubend: PubendId) -> ClosePubendReply:
        hosted = self._hosted.get(pubend)
        if not isinstance(hosted, Pubend):
            return ClosePubendReply(request, pubend, ClosingState.CLOSED, self._last_of(pubend))
        mode, now = hosted.latest.close_mode, self._context.now
        drain = hosted.drain(mode)
        gives_up_at = self._gives_up_at.get(pubend)
        members = tuple(
            MemberState(row.shb, row.ack_floor, row.durable, row.inactive) for row in drain.members
        )
        holds = tuple(
            HoldState(row.log_hold.shb, row.log_hold.subscription, row.tick)
            for row in drain.log_holds
        )
        assert hosted.sealed is not None
        return ClosePubendReply(
            request,
            pubend,
            ClosingState.SEALED,
            hosted.sealed,
            mode,
            members[:SHOWN_MEMBERS_MAX],
            max(0, len(members) - SHOWN_MEMBERS_MAX),
            holds[:SHOWN_MEMBERS_MAX],
            max(0, len(holds) - SHOWN_MEMBERS_MAX),
            not drain.is_joined,
            drain.retained_until,
            None if gives_up_at is None else self._context.clock + gives_up_at - now,
        )

    def _last_of(self, pubend: PubendId) -> Tick:
        """Return the last tick of a closed pubend of this broker, or of another one."""
        record, known = self._tombstones.get(pubend), self._announcements.known.get(pubend)
        if record is not None:
            return record.last
        return NO_POSITIONS if known is None or known.sealed is None else known.sealed
