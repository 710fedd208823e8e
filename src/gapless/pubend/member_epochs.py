"""The stream epochs that a pubend opens for its members (R31, A22).

A stream epoch is a numbered vector V^m. When members or claims change, the next epoch opens at the
next tick, even if nothing is published. On average one may open in ``stream_epoch_interval_ms``,
because epochs stay on disk for the retention. After a pause CHANGE_BURST may open in a row, so
that a few subscriptions, one after the other, do not wait.

An advertisement only widens (A22). Tables are pruned by it, so events that only the wider one
allows must be in an epoch of the new announcement version, where only tables that know that version
count (A22). So an epoch of a new version opens at once.
"""

from __future__ import annotations

from gapless.core.context import Context
from gapless.core.ids import ShbId, VectorEntry
from gapless.core.parameters import microseconds
from gapless.core.rate_limit import RateLimit
from gapless.messages.records import PutRecord
from gapless.pubend.known_hosts import KnownHosts
from gapless.pubend.member_state import MemberPhase
from gapless.pubend.members import Members
from gapless.pubend.protocols import Claims
from gapless.pubend.stream_end import StreamEnd

__all__ = ["MemberEpochs"]


class MemberEpochs:
    """Decides when a pubend opens a stream epoch."""

    def __init__(
        self,
        context: Context,
        end: StreamEnd,
        members: Members,
        known_hosts: KnownHosts,
        claims: Claims,
    ) -> None:
        self._context = context
        self._end = end
        self._members = members
        self._known_hosts = known_hosts
        self._claims = claims
        self._rate = RateLimit(microseconds(ms=context.parameters.stream_epoch_interval_ms))
        self._is_due = False
        """Whether a timer for the next update runs."""

    def claim(self, shb: ShbId) -> VectorEntry | None:
        """Return the claim for an SHB of tables that know the announcement version (R31)."""
        record = self._end.record
        return self._claims.claim(shb, record.pubend, record.announcement_version)

    def concerns(self, shb: ShbId) -> bool:
        """Return whether a report of an SHB may change the vector: it is a member, or claimed."""
        phase = self._members.state_of(shb)
        return phase in {MemberPhase.LISTED, MemberPhase.INACTIVE} or self.claim(shb) is not None

    def follow_announcement(self) -> None:
        """Open an epoch at once if the latest is of an older announcement version (R31).

        This is also called before a batch gets its ticks: a crash may have prevented the first
        call.
        """
        epochs, version = self._end.stream_epochs, self._end.record.announcement_version
        if self._end.sealed is not None:
            return  # an epoch would need a tick
        if epochs and epochs[-1].announcement_version != version:
            self._open(self._members.vector(self.claim, self._context.now))

    def update(self) -> None:
        """Open a new epoch if members or claims have changed; the rate is limited (R31)."""
        if self._is_due or self._end.sealed is not None:
            return
        wait = self._rate.wait(self._context.now)
        if wait:
            self._is_due = True
            self._context.call_later(wait, self._due)
            return
        vector = self._members.vector(self.claim, self._context.now)
        version, epochs = self._end.record.announcement_version, self._end.stream_epochs
        latest = epochs[-1] if epochs else None
        served = {} if latest is None else dict(latest.entries)
        if vector != served or (latest is not None and latest.announcement_version != version):
            self._open(vector)

    def _due(self) -> None:
        self._is_due = False
        self.update()

    def _open(self, vector: dict[ShbId, VectorEntry]) -> None:
        end = self._end
        self._rate.note(self._context.now)
        rows = self._members.rows_for(
            vector, end.last + 1, end.latest.released, self._known_hosts.since
        )
        end.open_stream_epoch(vector, [PutRecord(row) for row in rows])
