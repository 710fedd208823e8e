"""Members: the SHBs that a pubend serves, and how far its log must be kept (R53 to R56).

An SHB becomes a member by a report (it requests the pubend) *and* a claim (a table at the PHB
contains its subscriptions). Only then is it listed in a stream epoch, and the row that keeps the
log for it is one write with that epoch: no subscription can have started before the row that
protects it exists (A10). An SHB that never reports is no member, even if tables claim it (A11). The
states are in :mod:`.member_state`.

The log is released up to the least ack floor of all members and log holds, connected or not. A
member that was not heard from for a while becomes *inactive*: it leaves the vector, so that routers
do not forward everything for it, and keeps its ack floor (A17). A member that was not heard from
for its lease expires. An SHB in a new incarnation remains a member until it leaves: its membership
is on its disk, so it knows what to leave, and no other broker knows what its durable subscriptions
need. Its reports contain whether it has any, but the last report may be older than the newest
subscription.

Ack floors only rise: a report remains true, and may arrive late, twice and by any route. A
subscription that needs ticks below the floor has its own log hold (A13). An SHB that returns after
its lease has ended is a new member. Its floor is the tick that it reports, or the released tick if
that is greater.
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
from gapless.messages.records import (
    DeleteRecord,
    EndedMembershipRecord,
    LogHoldRecord,
    MemberRecord,
)
from gapless.messages.streams import Member
from gapless.pubend.member_state import NEXT_STATES, MemberInput, MemberPhase
from gapless.pubend.protocols import Claim

__all__ = ["Claim", "Members"]


def _no_host_was_known(shb: ShbId) -> Tick | None:
    del shb
    return None


class _MemberContact(msgspec.Struct):
    """The last report of an SHB."""

    member: Member
    tick: Tick
    """The greatest tick reported in this membership; 0 if the SHB has only requested the pubend."""
    ahead_since: int | None = None
    """Since when its own virtual time has been greater than any claim of it."""

    def update(self, member: Member, tick: Tick) -> None:
        """Add another report of the same membership."""
        self.member, self.tick = member, max(tick, self.tick)

    def ahead_for(self, claimed: VirtualTime, now: int) -> int:
        """Return for how long its own virtual time has been greater than the claimed one."""
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
        # the times on disk are of an earlier clock, and this broker was down meanwhile
        self._log_holds = {
            row.log_hold: msgspec.structs.replace(row, refreshed=now) for row in log_holds
        }
        # for the same reason all members count as just heard (R54)
        self._heard_at = dict.fromkeys(self._rows, now)
        self._heard_since: dict[ShbId, int] = {}
        """Since when each was heard from without a break."""
        self._contacts: dict[ShbId, _MemberContact] = {}
        until = now + microseconds(s=parameters.ended_membership_ttl_s)
        self._ended = {each.shb: (each.membership, until) for each in ended}
        """The last membership of each SHB that has left, and until when it is remembered."""
        self._retired: set[ShbId] = set()
        """SHBs that will not return."""

    def state_of(self, shb: ShbId) -> MemberPhase:
        """Return the state of an SHB, derived from the records and contacts."""
        if shb in self._retired:
            return MemberPhase.RETIRED
        row = self._rows.get(shb)
        if row is not None:
            return MemberPhase.INACTIVE if row.inactive else MemberPhase.LISTED
        if shb in self._contacts:
            return MemberPhase.HEARD
        return MemberPhase.LEFT if shb in self._ended else MemberPhase.UNKNOWN

    def _entered(self, shb: ShbId, before: MemberPhase, cause: MemberInput) -> None:
        """Assert that the table allows the new state."""
        after = self.state_of(shb)
        allowed = NEXT_STATES.get((before, cause), ())
        assert after in allowed, f"{cause} leads {shb} from {before} to {after}"

    # --- inputs ------------------------------------------------------------------------------

    def report(self, member: Member, tick: Tick, now: int) -> bool:
        """Process a report; return whether it may change the members or their states."""
        before = self.state_of(member.shb)
        changed = self._report(member, tick, now)
        self._entered(member.shb, before, MemberInput.REPORT)
        return changed

    def _report(self, member: Member, tick: Tick, now: int) -> bool:
        if member.shb in self._retired:
            return False
        left = self._ended.get(member.shb)
        if left is not None and member.membership <= left[0] and now < left[1]:
            return False  # an old report, still in flight when the SHB left
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
            return False  # the current membership may need what an older one has acknowledged
        self._rows[member.shb] = msgspec.structs.replace(
            row,
            membership=member.membership,
            durable=member.durable,
            ack_floor=max(tick, row.ack_floor),
        )
        return changed or row.inactive

    def expect_member(self, member: Member, floor: Tick, now: int) -> MemberRecord | None:
        """Keep the log above a tick for a joining SHB; return its row, or None if it has left.

        The SHB is inactive until it reports and is claimed. An existing row keeps its ack floor. A
        row of an older membership becomes the row of this one, because the end of the older one may
        still be in flight.
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
            # this renews its lease: the reply promises that the log is kept
            self._note_contact(member.shb, now)
        return row

    def keep_for_returned(self, member: Member, floor: Tick, now: int) -> list[MemberRecord]:
        """Return the row of an SHB that returns to a sealed pubend after its lease, if it does.

        No stream epoch can list it any more, so it is a member at once, inactive (RS-33).
        """
        is_member = member.shb in self._rows
        row = None if is_member else self.expect_member(member, floor, now)
        return [] if row is None else [row]

    def leave(
        self, shb: ShbId, membership: MembershipId, now: int
    ) -> tuple[EndedMembershipRecord, bool]:
        """End a membership; return its record, and whether the SHB was a member by it."""
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
        """Retire an SHB; return whether it was a member, and its log holds, now removed (R26)."""
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
        """Accept reports of a retired SHB again: its next report makes it a member.

        The log is then kept above the reported tick. What was released meanwhile is a gap for the
        SHB.
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
        """Release a log hold; return whether it existed."""
        return self._log_holds.pop(log_hold, None) is not None

    # --- results -----------------------------------------------------------------------------

    def vector(self, claim: Claim, now: int) -> dict[ShbId, VectorEntry]:
        """Return V^m: the listed members with the greatest claim seen of each (R31)."""
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
        since: Callable[[ShbId], Tick | None] = _no_host_was_known,
    ) -> list[MemberRecord]:
        """Return the member rows that must be in one write with a stream epoch of this vector.

        An SHB that reports a tick was a member before, so it may need everything above that tick
        (R53). A known host may need everything above the tick that ``since`` returns (R46).
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
        """Return the tick up to which the log is no longer needed, or None if nothing holds it."""
        floors = [row.ack_floor for row in self._rows.values()]
        floors += [log_hold.tick for log_hold in self._log_holds.values()]
        return min(floors, default=None)

    def lagging(self, tick: Tick) -> bool:
        """Return whether a member has not acknowledged up to a tick."""
        return any(row.ack_floor < tick for row in self._rows.values())

    def blocks_release(self, tick: Tick) -> bool:
        """Return whether a member or a log hold prevents the release up to a tick."""
        floor = self.ack_floor()
        return floor is not None and floor < tick

    def lagging_hosts(self, tick: Tick) -> list[ShbId]:
        """Return the SHBs for which the log is kept below a tick, the farthest behind first."""
        floors = [(row.ack_floor, row.shb) for row in self._rows.values() if row.ack_floor < tick]
        floors += [
            (row.tick, row.log_hold.shb) for row in self._log_holds.values() if row.tick < tick
        ]
        return list(dict.fromkeys(shb for _, shb in sorted(floors)))

    def log_holds_below(self, tick: Tick) -> list[LogHoldRecord]:
        """Return the log holds below a tick, the farthest behind first."""
        found = [row for row in self._log_holds.values() if row.tick < tick]
        return sorted(found, key=lambda row: (row.tick, row.log_hold.shb))

    def erasures(self) -> list[DeleteRecord]:
        """Return the changes that erase all records: the pubend ends (RS-33)."""
        keys = [row.key for row in self._rows.values()]
        keys += [row.key for row in self._log_holds.values()]
        keys += [EndedMembershipRecord.key_of(self._pubend, shb) for shb in self._ended]
        return [DeleteRecord(key) for key in keys]

    def hosts(self) -> set[ShbId]:
        """Return all SHBs for which the log is kept."""
        return {*self._rows, *(row.log_hold.shb for row in self._log_holds.values())}

    def row(self, shb: ShbId) -> MemberRecord | None:
        """Return a member's row."""
        return self._rows.get(shb)

    def rows(self) -> list[MemberRecord]:
        """Return all rows, in the order of their SHBs."""
        return [self._rows[shb] for shb in sorted(self._rows)]

    def update_states(self, claim: Claim, now: int) -> tuple[list[MemberRecord], list[ShbId]]:
        """Make silent members inactive, and end expired and retired ones (R54, R55).

        Return the rows of the former and the SHBs of the latter.
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
        """Forget ended memberships whose messages have all arrived; return their SHBs."""
        forgotten = [shb for shb, (_, until) in self._ended.items() if now >= until]
        for shb in forgotten:
            before = self.state_of(shb)
            del self._ended[shb]
            self._entered(shb, before, MemberInput.FORGET)
        return forgotten

    def expired_log_holds(self, now: int) -> list[LogHoldRecord]:
        """Remove and return the log holds that no cursor needs any more (R49).

        An SHB refreshes its log holds. If it was heard from for ``log_hold_ttl_s`` and did not
        refresh a hold meanwhile, it has forgotten the hold, as in a crash. The holds of a member
        that was not heard from are kept until it is no member any more. After a partition heals,
        the time starts again.
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
        """Note that an SHB was heard from, perhaps after a break."""
        silent = now - self._heard_at.get(shb, now)
        if shb not in self._heard_since or silent > self._parameters.report_ttl_us:
            self._heard_since[shb] = now
        self._heard_at[shb] = now

    def _entry(self, shb: ShbId, claimed: VectorEntry | None, now: int) -> VectorEntry | None:
        """Return the vector entry of an SHB, or None if it must not be listed."""
        row, contact = self._rows.get(shb), self._contacts.get(shb)
        if claimed is not None and claimed.retired:
            return None
        if row is not None and not row.inactive:
            known = VectorEntry(row.time) if claimed is None else claimed
            known = known._replace(time=max(row.time, known.time))
        elif contact is None or claimed is None:
            return None
        elif row is not None and claimed.time < row.time:
            return None  # inactive, and not yet claimed at its last value
        else:
            known = claimed
        return self._with_own_time(known, contact, now)

    def _with_own_time(
        self, entry: VectorEntry, contact: _MemberContact | None, now: int
    ) -> VectorEntry:
        """Use the virtual time that an SHB reports if it exceeds the claims for too long (R31)."""
        grace = microseconds(s=self._parameters.member_grace_s)
        if contact is None or contact.ahead_for(entry.time, now) <= grace:
            return entry
        return entry._replace(time=contact.member.time)
