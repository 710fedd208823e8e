"""Members: the SHBs that a pubend serves, and how far its log must be kept (R53 to R56).

An SHB becomes a member by a report (it asks for the pubend) *and* a claim (a table at the PHB vouches for
its subscriptions). Only then is it listed in a stream epoch, and the row that keeps the log for it is one
write with that epoch: no subscription can have started before the row that protects it exists (A10). An
SHB that never reports is no member, whatever tables say (A11). The states are in :mod:`.member_state`.

The log is released up to the least ack floor of all members and log holds. It does not matter which of
them are connected. A member that was not heard from for a while becomes *inactive*: it leaves the vector,
so that nobody floods for its sake, and keeps its ack floor (A17). A member that was not heard from for
its lease expires. An SHB in a new incarnation stays a member until it says otherwise: its membership is
on its disk, so it knows what to leave, and nobody else knows what its durable subscriptions need. Its
reports say whether it has any, but the last report may be older than the newest subscription.

Ack floors only rise: a report is a statement that stays true, and may come late, twice, by any route. A
need below a floor has its own log hold (A13). An SHB that returns after its lease has ended is a new
member, but not one without a past: its floor is what it reports, or what is released by now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from gapless.core.ids import (
    VIRTUAL_TIME_ZERO,
    MembershipId,
    PubendId,
    ShbId,
    VectorEntry,
    VirtualTime,
)
from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import LogHoldId
from gapless.messages.records import EndedMembershipRecord, LogHoldRecord, MemberRecord
from gapless.messages.streams import Member
from gapless.pubend.member_state import NEXT_STATES, MemberInput, MemberState
from gapless.pubend.protocols import Claim

__all__ = ["Claim", "Members"]


def _nobody_was_known(shb: ShbId) -> Tick | None:
    del shb
    return None


class _MemberContact(msgspec.Struct):
    """What was last heard of an SHB."""

    member: Member
    tick: Tick
    """The greatest that it has reported in this membership; 0 if it only wants the pubend."""
    ahead_since: int | None = None
    """Since when its own virtual time has been greater than any claim of it."""

    def update(self, member: Member, tick: Tick) -> None:
        """Take another report of the same membership."""
        self.member, self.tick = member, max(tick, self.tick)

    def ahead_for(self, claimed: VirtualTime, now: int) -> int:
        """Return for how long its own virtual time has been greater than what is claimed of it."""
        if self.member.time <= claimed:
            self.ahead_since = None
            return 0
        if self.ahead_since is None:
            self.ahead_since = now
        return now - self.ahead_since


class Members:
    """The members and log holds of one pubend."""

    def __init__(
        self,
        pubend: PubendId,
        parameters: Parameters,
        now: int,
        members: Iterable[MemberRecord] = (),
        log_holds: Iterable[LogHoldRecord] = (),
        ended: Iterable[EndedMembershipRecord] = (),
    ) -> None:
        self._pubend = pubend
        self._parameters = parameters
        self._rows = {row.shb: row for row in members}
        # times on disk are of an earlier clock, and the silence was ours
        self._log_holds = {
            row.log_hold: msgspec.structs.replace(row, refreshed=now) for row in log_holds
        }
        # likewise everyone counts as just heard
        self._heard_at = dict.fromkeys(self._rows, now)
        self._heard_since: dict[ShbId, int] = {}
        """Since when each was heard from without a break."""
        self._contacts: dict[ShbId, _MemberContact] = {}
        until = now + microseconds(s=parameters.ended_membership_ttl_s)
        self._ended = {each.shb: (each.membership, until) for each in ended}
        """The last membership of each SHB that has left, and until when it is remembered."""
        self._retired: set[ShbId] = set()
        """SHBs that will not return."""

    def state_of(self, shb: ShbId) -> MemberState:
        """Return the state of an SHB, as it follows from what is kept of it."""
        if shb in self._retired:
            return MemberState.RETIRED
        row = self._rows.get(shb)
        if row is not None:
            return MemberState.INACTIVE if row.inactive else MemberState.LISTED
        if shb in self._contacts:
            return MemberState.HEARD
        return MemberState.LEFT if shb in self._ended else MemberState.UNKNOWN

    def _entered(self, shb: ShbId, before: MemberState, cause: MemberInput) -> None:
        """Assert that an input has led where the table allows."""
        after = self.state_of(shb)
        allowed = NEXT_STATES.get((before, cause), ())
        assert after in allowed, f"{cause} leads {shb} from {before} to {after}"

    # --- what comes in -----------------------------------------------------------------------

    def report(self, member: Member, tick: Tick, now: int) -> bool:
        """Take a report; say whether the members or their state may change by it."""
        before = self.state_of(member.shb)
        changed = self._report(member, tick, now)
        self._entered(member.shb, before, MemberInput.REPORT)
        return changed

    def _report(self, member: Member, tick: Tick, now: int) -> bool:
        if member.shb in self._retired:
            return False
        left = self._ended.get(member.shb)
        if left is not None and member.membership <= left[0] and now < left[1]:
            return False  # an old report, still under way when the SHB left
        self._note_contact(member.shb, now)
        held = self._contacts.get(member.shb)
        changed = held is None or member != held.member
        if held is None or member.membership > held.member.membership:
            self._contacts[member.shb] = _MemberContact(member, tick)
        elif member.membership == held.member.membership:
            held.update(member, tick)
        row = self._rows.get(member.shb)
        if row is None:
            return True
        if member.membership < row.membership:
            return False  # what an older membership needs no more the present one may need
        self._rows[member.shb] = msgspec.structs.replace(
            row,
            membership=member.membership,
            durable=member.durable,
            ack_floor=max(tick, row.ack_floor),
        )
        return changed or row.inactive

    def expect_member(self, member: Member, floor: Tick, now: int) -> MemberRecord | None:
        """Keep the log above a tick for an SHB that comes; return its row, None if it has left.

        It is inactive until it reports and is claimed. The ack floor of a row that is there already
        stays. A row of an older membership is of this one from now on, as the end of the older one may
        still be under way.
        """
        before = self.state_of(member.shb)
        row = self._expect(member, floor, now)
        self._entered(member.shb, before, MemberInput.EXPECT)
        return row

    def _expect(self, member: Member, floor: Tick, now: int) -> MemberRecord | None:
        left = self._ended.get(member.shb)
        has_left = left is not None and member.membership <= left[0] and now < left[1]
        if has_left or member.shb in self._retired:
            return None
        row = self._rows.get(member.shb)
        if row is None:
            row = self._rows[member.shb] = MemberRecord(
                self._pubend,
                member.shb,
                member.membership,
                VIRTUAL_TIME_ZERO,
                member.durable,
                inactive=True,
                ack_floor=floor,
            )
        elif row.membership < member.membership:
            row = msgspec.structs.replace(row, membership=member.membership, durable=member.durable)
            self._rows[member.shb] = row
        if row.membership == member.membership:
            # its lease goes on: it is told that the log is kept
            self._note_contact(member.shb, now)
        return row

    def leave(
        self, shb: ShbId, membership: MembershipId, now: int
    ) -> tuple[EndedMembershipRecord, bool]:
        """End a membership; return what to remember of it, and whether it was one of a member."""
        before, ended = self.state_of(shb), self._ended.get(shb)
        latest = membership if ended is None else max(membership, ended[0])
        self._ended[shb] = (latest, now + microseconds(s=self._parameters.ended_membership_ttl_s))
        contact = self._contacts.get(shb)
        if contact is not None and contact.member.membership <= membership:
            del self._contacts[shb]
        row = self._rows.get(shb)
        was_member = row is not None and row.membership <= membership
        if was_member:
            del self._rows[shb]
        self._entered(shb, before, MemberInput.LEAVE)
        return EndedMembershipRecord(self._pubend, shb, latest), was_member

    def retire(self, shb: ShbId) -> tuple[bool, list[LogHoldRecord]]:
        """An SHB will not return: say whether it was a member, and return its log holds, now gone (R26)."""
        before = self.state_of(shb)
        self._retired.add(shb)
        self._contacts.pop(shb, None)
        log_holds = [row for row in self._log_holds.values() if row.log_hold.shb == shb]
        for row in log_holds:
            del self._log_holds[row.log_hold]
        was_member = self._rows.pop(shb, None) is not None
        self._entered(shb, before, MemberInput.RETIRE)
        return was_member, log_holds

    def readmit(self, shb: ShbId) -> None:
        """An SHB that was retired is heard again: its next report makes it a member.

        Above what it reports the log is kept again, as far as it is there. What was released meanwhile
        is a gap to it.
        """
        before = self.state_of(shb)
        self._retired.discard(shb)
        self._entered(shb, before, MemberInput.READMIT)

    def hold_log(self, log_hold: LogHoldId, tick: Tick, now: int) -> LogHoldRecord:
        """Keep the log above ``tick`` for a catch-up; a log hold only moves up (R49)."""
        held = self._log_holds.get(log_hold)
        record = LogHoldRecord(self._pubend, log_hold, max(tick, held.tick) if held else tick, now)
        self._log_holds[log_hold] = record
        return record

    def drop_log_hold(self, log_hold: LogHoldId) -> bool:
        """Release a log hold; say whether it was there."""
        return self._log_holds.pop(log_hold, None) is not None

    # --- what follows ------------------------------------------------------------------------

    def vector(self, claim: Claim, now: int) -> dict[ShbId, VectorEntry]:
        """Return V^m: the routed members with the greatest claim seen of each (R31)."""
        found: dict[ShbId, VectorEntry] = {}
        for shb in sorted({*self._rows, *self._contacts}):
            entry = self._entry(shb, claim(shb), now)
            if entry is not None:
                found[shb] = entry
        return found

    def rows_for(
        self,
        vector: dict[ShbId, VectorEntry],
        start: Tick,
        released: Tick,
        since: Callable[[ShbId], Tick | None] = _nobody_was_known,
    ) -> list[MemberRecord]:
        """Return the member rows that a stream epoch with this vector needs on disk with it.

        An SHB that reports a tick has been here before, so it may need everything above that (R53). An
        SHB that was known before it came may need everything ``since`` then (R46).
        """
        changed = []
        for shb, entry in vector.items():
            row = self._rows.get(shb)
            contact = self._contacts.get(shb)
            before = self.state_of(shb)
            if row is None:
                assert contact is not None, f"{shb} is listed but never reported"
                member = contact.member
                floor = contact.tick or since(shb) or start - 1
                row = MemberRecord(
                    self._pubend,
                    shb,
                    member.membership,
                    entry.time,
                    member.durable,
                    inactive=False,
                    ack_floor=min(max(released, floor), start - 1),
                )
            elif row.inactive or row.time < entry.time:
                row = msgspec.structs.replace(row, inactive=False, time=max(row.time, entry.time))
            else:
                continue
            self._rows[shb] = row
            self._entered(shb, before, MemberInput.LIST)
            changed.append(row)
        return changed

    def ack_floor(self) -> Tick | None:
        """Return up to where the log is no longer needed; None if nobody holds it."""
        floors = [row.ack_floor for row in self._rows.values()]
        floors += [log_hold.tick for log_hold in self._log_holds.values()]
        return min(floors, default=None)

    def lagging(self, tick: Tick) -> bool:
        """Say whether some member has not acknowledged up to a tick."""
        return any(row.ack_floor < tick for row in self._rows.values())

    def blocks_release(self, tick: Tick) -> bool:
        """Say whether some member or hold keeps the log from being released up to a tick."""
        floor = self.ack_floor()
        return floor is not None and floor < tick

    def lagging_hosts(self, tick: Tick) -> list[ShbId]:
        """Return the SHBs for which the log is kept below a tick, the farthest behind first."""
        floors = [(row.ack_floor, row.shb) for row in self._rows.values() if row.ack_floor < tick]
        floors += [
            (row.tick, row.log_hold.shb) for row in self._log_holds.values() if row.tick < tick
        ]
        return list(dict.fromkeys(shb for _, shb in sorted(floors)))

    def hosts(self) -> set[ShbId]:
        """Return all SHBs that the log is kept for."""
        return {*self._rows, *(row.log_hold.shb for row in self._log_holds.values())}

    def row(self, shb: ShbId) -> MemberRecord | None:
        """Return a member's row."""
        return self._rows.get(shb)

    def rows(self) -> list[MemberRecord]:
        """Return all rows, in the order of their SHBs."""
        return [self._rows[shb] for shb in sorted(self._rows)]

    def update_states(self, claim: Claim, now: int) -> tuple[list[MemberRecord], list[ShbId]]:
        """Make members inactive that were not heard from for a while, and end those that are gone (R54, R55).

        Return both.
        """
        inactive, ended = [], []
        for shb in sorted(self._rows):
            row, before = self._rows[shb], self.state_of(shb)
            silent = now - self._heard_at.get(shb, now)
            entry = claim(shb)
            expired = silent > microseconds(s=self._parameters.member_expiry_s)
            if expired or (entry is not None and entry.retired):
                ended.append(shb)
                del self._rows[shb]
                self._contacts.pop(shb, None)
                self._entered(shb, before, MemberInput.EXPIRE)
            elif silent > microseconds(s=self._parameters.inactive_after_s) and not row.inactive:
                self._rows[shb] = msgspec.structs.replace(row, inactive=True)
                self._contacts.pop(shb, None)
                self._entered(shb, before, MemberInput.SILENCE)
                inactive.append(self._rows[shb])
        return inactive, ended

    def forget_ended(self, now: int) -> list[ShbId]:
        """Return the SHBs whose last membership need not be remembered: nothing of it is under way."""
        forgotten = [shb for shb, (_, until) in self._ended.items() if now >= until]
        for shb in forgotten:
            before = self.state_of(shb)
            del self._ended[shb]
            self._entered(shb, before, MemberInput.FORGET)
        return forgotten

    def expired_log_holds(self, now: int) -> list[LogHoldRecord]:
        """Take out and return the log holds that nobody needs any more (R49).

        An SHB refreshes its log holds. An SHB that was heard from for long, and did not refresh a hold
        meanwhile, has forgotten it, as after a crash. Of one that was not heard from nobody knows, until
        it is no member any more. When a partition heals it needs time to refresh.
        """
        limit = microseconds(s=self._parameters.log_hold_ttl_s)
        stale = []
        for row in self._log_holds.values():
            shb = row.log_hold.shb
            since, until = row.refreshed, now
            if shb in self._rows:
                since = max(since, self._heard_since.get(shb, now))
                until = self._heard_at.get(shb, now)
            if until - since > limit:
                stale.append(row)
        for row in stale:
            del self._log_holds[row.log_hold]
        return stale

    # --- inside ------------------------------------------------------------------------------

    def _note_contact(self, shb: ShbId, now: int) -> None:
        """An SHB was heard from, perhaps after a break."""
        silent = now - self._heard_at.get(shb, now)
        if shb not in self._heard_since or silent > microseconds(
            ms=self._parameters.ack_report_ttl_ms
        ):
            self._heard_since[shb] = now
        self._heard_at[shb] = now

    def _entry(self, shb: ShbId, claimed: VectorEntry | None, now: int) -> VectorEntry | None:
        """Return an SHB's entry in the vector, None if it is not to be listed."""
        row, contact = self._rows.get(shb), self._contacts.get(shb)
        if claimed is not None and claimed.retired:
            return None
        if row is not None and not row.inactive:
            known = VectorEntry(row.time) if claimed is None else claimed
            known = known._replace(time=max(row.time, known.time))
        elif contact is None or claimed is None:
            return None
        elif row is not None and claimed.time < row.time:
            return None  # inactive, and not yet claimed at what it had
        else:
            known = claimed
        return self._with_own_time(known, contact, now)

    def _with_own_time(
        self, entry: VectorEntry, contact: _MemberContact | None, now: int
    ) -> VectorEntry:
        """Take an SHB's own word for its time where tables have not brought it for long (R31)."""
        grace = microseconds(s=self._parameters.member_grace_s)
        if contact is None or contact.ahead_for(entry.time, now) <= grace:
            return entry
        return entry._replace(time=contact.member.time)
