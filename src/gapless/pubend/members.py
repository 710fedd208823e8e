"""Members: the subscriber hosts that a pubend serves, and how far its log must be kept (R53 to R56).

A host becomes a member by a report (it asks for the pubend) *and* a claim (a table at the pubend's
broker vouches for its subscriptions). Only then is it listed in a regime, and the row that keeps
the log for it is one write with that regime: no subscription can have started before the row that
protects it exists (A10). A host that never asks is no member, whatever tables say (A11).

The log is released up to the least floor of all members and holds, never by who is connected. Who
was not heard of for a while is *parked*: it leaves the vector, so that nobody floods for its sake,
and keeps its floor (A17). Who was not heard of for the lease is expired. A host that began a new life
stays a member until it says otherwise: its join is on its disk, so it knows what to leave, and nobody
else knows what its durable subscriptions need. Whether it has any is in its reports, but the last of
these may be older than the newest of them.

Floors only rise: a report is a statement that stays true, and may come late, twice, by any way. A
need below a floor carries its own hold (A13). A host that returns after its lease has ended is a new
member, but not one without a past: its floor is what it reports, or what is released by now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from gapless.core.ids import VIRTUAL_TIME_ZERO, MembershipId, PubendId, ShbId, VectorEntry
from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import LogHoldId
from gapless.messages.records import EndedMembershipRecord, LogHoldRecord, MemberRecord
from gapless.messages.streams import Member

__all__ = ["Claim", "Members"]

Claim = Callable[[ShbId], VectorEntry | None]
"""What the tables at this broker claim of a subscriber host for the pubend."""


def _nobody_was_known(shb: ShbId) -> Tick | None:
    del shb
    return None


class _MemberContact(msgspec.Struct):
    """What was last heard of a subscriber host."""

    member: Member
    tick: Tick
    """The greatest that it has reported in this stay; 0 if it only wants the pubend."""
    ahead_since: int | None = None
    """Since when its own virtual time has been greater than any claim of it."""


class Members:
    """The members and holds of one pubend."""

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
        """Since when each was heard of without a break."""
        self._contacts: dict[ShbId, _MemberContact] = {}
        until = now + microseconds(s=parameters.ended_membership_ttl_s)
        self._ended = {each.shb: (each.membership, until) for each in ended}
        """The last stay of each host that has left, and until when it is remembered."""
        self._retired: set[ShbId] = set()
        """Hosts that will not return."""

    # --- what comes in -----------------------------------------------------------------------

    def report(self, member: Member, tick: Tick, now: int) -> bool:
        """Take a report; say whether the members or their state may change by it."""
        if member.shb in self._retired:
            return False
        left = self._ended.get(member.shb)
        if left is not None and member.membership <= left[0] and now < left[1]:
            return False  # an old report, still under way when the host left
        self._note_contact(member.shb, now)
        held = self._contacts.get(member.shb)
        changed = held is None or member != held.member
        if held is None or member.membership > held.member.membership:
            self._contacts[member.shb] = _MemberContact(member, tick)
        elif member.membership == held.member.membership:
            held.member, held.tick = member, max(tick, held.tick)
        row = self._rows.get(member.shb)
        if row is None:
            return True
        if member.membership < row.membership:
            return False  # what an older stay needs no more the present one may need
        self._rows[member.shb] = msgspec.structs.replace(
            row,
            membership=member.membership,
            durable=member.durable,
            ack_floor=max(tick, row.ack_floor),
        )
        return changed or row.inactive

    def expect_member(self, member: Member, floor: Tick, now: int) -> MemberRecord | None:
        """Keep the log above a tick for a host that comes; return its row, None if it has left.

        It is as one that is parked: not listed before it reports and is claimed. The floor of a row
        that is there already stays; if it is of an older stay it is of this one from now on, as the
        end of the older one may still be on its way.
        """
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
            self._note_contact(
                member.shb, now
            )  # its lease goes on: it is told that the log is kept
        return row

    def leave(
        self, shb: ShbId, membership: MembershipId, now: int
    ) -> tuple[EndedMembershipRecord, bool]:
        """End a stay; return what to remember of it, and whether it was one of a member."""
        before = self._ended.get(shb)
        latest = membership if before is None else max(membership, before[0])
        self._ended[shb] = (latest, now + microseconds(s=self._parameters.ended_membership_ttl_s))
        contact = self._contacts.get(shb)
        if contact is not None and contact.member.membership <= membership:
            del self._contacts[shb]
        row = self._rows.get(shb)
        was_member = row is not None and row.membership <= membership
        if was_member:
            del self._rows[shb]
        return EndedMembershipRecord(self._pubend, shb, latest), was_member

    def retire(self, shb: ShbId) -> tuple[bool, list[LogHoldRecord]]:
        """A host will not return: say whether it was a member, and return its holds, now gone (R26)."""
        self._retired.add(shb)
        self._contacts.pop(shb, None)
        log_holds = [row for row in self._log_holds.values() if row.log_hold.shb == shb]
        for row in log_holds:
            del self._log_holds[row.log_hold]
        return self._rows.pop(shb, None) is not None, log_holds

    def readmit(self, shb: ShbId) -> None:
        """A host that was retired is heard again: its next report makes it a member.

        Above what it reports the log is kept again, as far as it is there. What was released meanwhile it learns
        by that, as a gap.
        """
        self._retired.discard(shb)

    def hold_log(self, log_hold: LogHoldId, tick: Tick, now: int) -> LogHoldRecord:
        """Keep the log above ``tick`` for a catch-up; a hold only moves up (R49)."""
        held = self._log_holds.get(log_hold)
        record = LogHoldRecord(self._pubend, log_hold, max(tick, held.tick) if held else tick, now)
        self._log_holds[log_hold] = record
        return record

    def drop_log_hold(self, log_hold: LogHoldId) -> bool:
        """Let a hold go; say whether it was there."""
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
        """Return the member rows that a regime with this vector needs on disk with it.

        A host that reports a tick has been here before, so it may need all above that (R53). One whose
        news was here before it came may need all ``since`` then (R46).
        """
        changed = []
        for shb, entry in vector.items():
            row = self._rows.get(shb)
            contact = self._contacts.get(shb)
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
        """Return the hosts for which the log is kept below a tick, the farthest behind first."""
        floors = [(row.ack_floor, row.shb) for row in self._rows.values() if row.ack_floor < tick]
        floors += [
            (row.tick, row.log_hold.shb) for row in self._log_holds.values() if row.tick < tick
        ]
        return list(dict.fromkeys(shb for _, shb in sorted(floors)))

    def hosts(self) -> set[ShbId]:
        """Return everybody that the log is kept for."""
        return {*self._rows, *(row.log_hold.shb for row in self._log_holds.values())}

    def row(self, shb: ShbId) -> MemberRecord | None:
        """Return a member's row."""
        return self._rows.get(shb)

    def rows(self) -> list[MemberRecord]:
        """Return all rows, in the order of their hosts."""
        return [self._rows[shb] for shb in sorted(self._rows)]

    def update_states(self, claim: Claim, now: int) -> tuple[list[MemberRecord], list[ShbId]]:
        """Park who was not heard of for a while and end who is gone; return both (R54, R55)."""
        inactive, ended = [], []
        for shb in sorted(self._rows):
            row = self._rows[shb]
            silent = now - self._heard_at.get(shb, now)
            entry = claim(shb)
            expired = silent > microseconds(s=self._parameters.member_expiry_s)
            if expired or (entry is not None and entry.retired):
                ended.append(shb)
                del self._rows[shb]
                self._contacts.pop(shb, None)
            elif silent > microseconds(s=self._parameters.inactive_after_s) and not row.inactive:
                self._rows[shb] = msgspec.structs.replace(row, inactive=True)
                self._contacts.pop(shb, None)
                inactive.append(self._rows[shb])
        return inactive, ended

    def forget_ended(self, now: int) -> list[ShbId]:
        """Return whose last stay need not be remembered any more: nothing of it is on its way."""
        forgotten = [shb for shb, (_, until) in self._ended.items() if now >= until]
        for shb in forgotten:
            del self._ended[shb]
        return forgotten

    def expired_log_holds(self, now: int) -> list[LogHoldRecord]:
        """Take out and return the holds that nobody wants any more (R49).

        A host refreshes its holds. One that was heard of for long, and did not refresh a hold
        meanwhile, has forgotten it, as after a crash. Of one that was not heard of nobody knows,
        until it is no member any more; when a partition heals it needs time to refresh.
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
        """A host was heard of, perhaps after a break."""
        silent = now - self._heard_at.get(shb, now)
        if shb not in self._heard_since or silent > microseconds(
            ms=self._parameters.ack_report_ttl_ms
        ):
            self._heard_since[shb] = now
        self._heard_at[shb] = now

    def _entry(self, shb: ShbId, claimed: VectorEntry | None, now: int) -> VectorEntry | None:
        """Return a host's entry in the vector, None if it is not to be listed."""
        row, contact = self._rows.get(shb), self._contacts.get(shb)
        if claimed is not None and claimed.retired:
            return None
        if row is not None and not row.inactive:
            known = VectorEntry(row.time) if claimed is None else claimed
            known = known._replace(time=max(row.time, known.time))
        elif contact is None or claimed is None:
            return None
        elif row is not None and claimed.time < row.time:
            return None  # parked, and not yet claimed at what it had
        else:
            known = claimed
        return self._with_own_time(known, contact, now)

    def _with_own_time(
        self, entry: VectorEntry, contact: _MemberContact | None, now: int
    ) -> VectorEntry:
        """Take a host's own word for its time where tables have not brought it for long (R31)."""
        if contact is None or contact.member.time <= entry.time:
            if contact is not None:
                contact.ahead_since = None
            return entry
        if contact.ahead_since is None:
            contact.ahead_since = now
        if now - contact.ahead_since <= microseconds(s=self._parameters.member_grace_s):
            return entry
        return entry._replace(time=contact.member.time)
