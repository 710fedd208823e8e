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

from gapless.core.ids import ORIGIN, Entry, Join, PubendId, ShbId
from gapless.core.parameters import Parameters, us
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import HoldId
from gapless.messages.records import HoldRecord, LeftRecord, MemberRecord
from gapless.messages.streams import Member

__all__ = ["Claim", "Membership"]

Claim = Callable[[ShbId], Entry | None]
"""What the tables at this broker claim of a subscriber host for the pubend."""


def _nobody_was_early(shb: ShbId) -> Tick | None:
    del shb
    return None


class _Heard(msgspec.Struct):
    """What was last heard of a subscriber host."""

    member: Member
    tick: Tick
    """The greatest that it has reported in this stay; 0 if it only wants the pubend."""
    ahead_since: int | None = None
    """Since when its own virtual time has been greater than any claim of it."""


class Membership:
    """The members and holds of one pubend."""

    def __init__(
        self,
        pubend: PubendId,
        parameters: Parameters,
        now: int,
        members: Iterable[MemberRecord] = (),
        holds: Iterable[HoldRecord] = (),
        left: Iterable[LeftRecord] = (),
    ) -> None:
        self._pubend = pubend
        self._parameters = parameters
        self._rows = {row.shb: row for row in members}
        # times on disk are of an earlier clock, and the silence was ours
        self._holds = {row.hold: msgspec.structs.replace(row, refreshed=now) for row in holds}
        # likewise everyone counts as just heard
        self._heard_at = dict.fromkeys(self._rows, now)
        self._heard_since: dict[ShbId, int] = {}
        """Since when each was heard of without a break."""
        self._heard: dict[ShbId, _Heard] = {}
        until = now + us(s=parameters.left_memory_s)
        self._left = {each.shb: (each.join, until) for each in left}
        """The last stay of each host that has left, and until when it is remembered."""
        self._retired: set[ShbId] = set()
        """Hosts that will not return."""

    # --- what comes in -----------------------------------------------------------------------

    def report(self, member: Member, tick: Tick, now: int) -> bool:
        """Take a report; say whether the members or their state may change by it."""
        if member.shb in self._retired:
            return False
        left = self._left.get(member.shb)
        if left is not None and member.join <= left[0] and now < left[1]:
            return False  # an old report, still under way when the host left
        self._hear(member.shb, now)
        held = self._heard.get(member.shb)
        news = held is None or member != held.member
        if held is None or member.join > held.member.join:
            self._heard[member.shb] = _Heard(member, tick)
        elif member.join == held.member.join:
            held.member, held.tick = member, max(tick, held.tick)
        row = self._rows.get(member.shb)
        if row is None:
            return True
        if member.join < row.join:
            return False  # what an older stay needs no more the present one may need
        self._rows[member.shb] = msgspec.structs.replace(
            row, join=member.join, durable=member.durable, floor=max(tick, row.floor)
        )
        return news or row.parked

    def expect(self, member: Member, floor: Tick, now: int) -> MemberRecord | None:
        """Keep the log above a tick for a host that comes; return its row, None if it has left.

        It is as one that is parked: not listed before it reports and is claimed. The floor of a row
        that is there already stays; if it is of an older stay it is of this one from now on, as the
        end of the older one may still be on its way.
        """
        left = self._left.get(member.shb)
        gone = left is not None and member.join <= left[0] and now < left[1]
        if gone or member.shb in self._retired:
            return None
        row = self._rows.get(member.shb)
        if row is None:
            row = self._rows[member.shb] = MemberRecord(
                self._pubend,
                member.shb,
                member.join,
                ORIGIN,
                member.durable,
                parked=True,
                floor=floor,
            )
        elif row.join < member.join:
            row = msgspec.structs.replace(row, join=member.join, durable=member.durable)
            self._rows[member.shb] = row
        if row.join == member.join:
            self._hear(member.shb, now)  # its lease goes on: it is told that the log is kept
        return row

    def leave(self, shb: ShbId, join: Join, now: int) -> tuple[LeftRecord, bool]:
        """End a stay; return what to remember of it, and whether it was one of a member."""
        before = self._left.get(shb)
        latest = join if before is None else max(join, before[0])
        self._left[shb] = (latest, now + us(s=self._parameters.left_memory_s))
        heard = self._heard.get(shb)
        if heard is not None and heard.member.join <= join:
            del self._heard[shb]
        row = self._rows.get(shb)
        was_member = row is not None and row.join <= join
        if was_member:
            del self._rows[shb]
        return LeftRecord(self._pubend, shb, latest), was_member

    def retire(self, shb: ShbId) -> tuple[bool, list[HoldRecord]]:
        """A host will not return: say whether it was a member, and return its holds, now gone (R26)."""
        self._retired.add(shb)
        self._heard.pop(shb, None)
        holds = [row for row in self._holds.values() if row.hold.shb == shb]
        for row in holds:
            del self._holds[row.hold]
        return self._rows.pop(shb, None) is not None, holds

    def readmit(self, shb: ShbId) -> None:
        """A host that was retired is heard again: its next report makes it a member.

        Above what it reports the log is kept again, as far as it is there. What was released meanwhile it learns
        by that, as a gap.
        """
        self._retired.discard(shb)

    def hold(self, hold: HoldId, tick: Tick, now: int) -> HoldRecord:
        """Keep the log above ``tick`` for a catch-up; a hold only moves up (R49)."""
        held = self._holds.get(hold)
        record = HoldRecord(self._pubend, hold, max(tick, held.tick) if held else tick, now)
        self._holds[hold] = record
        return record

    def drop_hold(self, hold: HoldId) -> bool:
        """Let a hold go; say whether it was there."""
        return self._holds.pop(hold, None) is not None

    # --- what follows ------------------------------------------------------------------------

    def vector(self, claim: Claim, now: int) -> dict[ShbId, Entry]:
        """Return V^m: the routed members with the greatest claim seen of each (R31)."""
        found: dict[ShbId, Entry] = {}
        for shb in sorted({*self._rows, *self._heard}):
            entry = self._entry(shb, claim(shb), now)
            if entry is not None:
                found[shb] = entry
        return found

    def rows_for(
        self,
        vector: dict[ShbId, Entry],
        start: Tick,
        released: Tick,
        since: Callable[[ShbId], Tick | None] = _nobody_was_early,
    ) -> list[MemberRecord]:
        """Return the member rows that a regime with this vector needs on disk with it.

        A host that reports a tick has been here before, so it may need all above that (R53). One whose
        news was here before it came may need all ``since`` then (R46).
        """
        changed = []
        for shb, entry in vector.items():
            row = self._rows.get(shb)
            heard = self._heard.get(shb)
            if row is None:
                assert heard is not None, f"{shb} is listed but never reported"
                member = heard.member
                floor = heard.tick or since(shb) or start - 1
                row = MemberRecord(
                    self._pubend,
                    shb,
                    member.join,
                    entry.time,
                    member.durable,
                    parked=False,
                    floor=min(max(released, floor), start - 1),
                )
            elif row.parked or row.time < entry.time:
                row = msgspec.structs.replace(row, parked=False, time=max(row.time, entry.time))
            else:
                continue
            self._rows[shb] = row
            changed.append(row)
        return changed

    def floor(self) -> Tick | None:
        """Return up to where the log is no longer needed; None if nobody holds it."""
        floors = [row.floor for row in self._rows.values()]
        floors += [hold.tick for hold in self._holds.values()]
        return min(floors, default=None)

    def lagging(self, tick: Tick) -> bool:
        """Say whether some member has not acknowledged up to a tick."""
        return any(row.floor < tick for row in self._rows.values())

    def holds_back(self, tick: Tick) -> bool:
        """Say whether some member or hold keeps the log from being released up to a tick."""
        floor = self.floor()
        return floor is not None and floor < tick

    def laggards(self, tick: Tick) -> list[ShbId]:
        """Return the hosts for which the log is kept below a tick, the farthest behind first."""
        floors = [(row.floor, row.shb) for row in self._rows.values() if row.floor < tick]
        floors += [(row.tick, row.hold.shb) for row in self._holds.values() if row.tick < tick]
        return list(dict.fromkeys(shb for _, shb in sorted(floors)))

    def hosts(self) -> set[ShbId]:
        """Return everybody that the log is kept for."""
        return {*self._rows, *(row.hold.shb for row in self._holds.values())}

    def row(self, shb: ShbId) -> MemberRecord | None:
        """Return a member's row."""
        return self._rows.get(shb)

    def rows(self) -> list[MemberRecord]:
        """Return all rows, in the order of their hosts."""
        return [self._rows[shb] for shb in sorted(self._rows)]

    def review(self, claim: Claim, now: int) -> tuple[list[MemberRecord], list[ShbId]]:
        """Park who was not heard of for a while and end who is gone; return both (R54, R55)."""
        parked, ended = [], []
        for shb in sorted(self._rows):
            row = self._rows[shb]
            silent = now - self._heard_at.get(shb, now)
            entry = claim(shb)
            expired = silent > us(s=self._parameters.expire_after_s)
            if expired or (entry is not None and entry.retired):
                ended.append(shb)
                del self._rows[shb]
                self._heard.pop(shb, None)
            elif silent > us(s=self._parameters.park_after_s) and not row.parked:
                self._rows[shb] = msgspec.structs.replace(row, parked=True)
                self._heard.pop(shb, None)
                parked.append(self._rows[shb])
        return parked, ended

    def forget_left(self, now: int) -> list[ShbId]:
        """Return whose last stay need not be remembered any more: nothing of it is on its way."""
        forgotten = [shb for shb, (_, until) in self._left.items() if now >= until]
        for shb in forgotten:
            del self._left[shb]
        return forgotten

    def expired_holds(self, now: int) -> list[HoldRecord]:
        """Take out and return the holds that nobody wants any more (R49).

        A host refreshes its holds. One that was heard of for long, and did not refresh a hold
        meanwhile, has forgotten it, as after a crash. Of one that was not heard of nobody knows,
        until it is no member any more; when a partition heals it needs time to refresh.
        """
        limit = us(s=self._parameters.hold_ttl_s)
        stale = []
        for row in self._holds.values():
            shb = row.hold.shb
            since, until = row.refreshed, now
            if shb in self._rows:
                since = max(since, self._heard_since.get(shb, now))
                until = self._heard_at.get(shb, now)
            if until - since > limit:
                stale.append(row)
        for row in stale:
            del self._holds[row.hold]
        return stale

    # --- inside ------------------------------------------------------------------------------

    def _hear(self, shb: ShbId, now: int) -> None:
        """A host was heard of, perhaps after a break."""
        silent = now - self._heard_at.get(shb, now)
        if shb not in self._heard_since or silent > us(ms=self._parameters.ack_memory_ms):
            self._heard_since[shb] = now
        self._heard_at[shb] = now

    def _entry(self, shb: ShbId, claimed: Entry | None, now: int) -> Entry | None:
        """Return a host's entry in the vector, None if it is not to be listed."""
        row, heard = self._rows.get(shb), self._heard.get(shb)
        if claimed is not None and claimed.retired:
            return None
        if row is not None and not row.parked:
            known = Entry(row.time) if claimed is None else claimed
            known = known._replace(time=max(row.time, known.time))
        elif heard is None or claimed is None:
            return None
        elif row is not None and claimed.time < row.time:
            return None  # parked, and not yet claimed at what it had
        else:
            known = claimed
        return self._with_own_time(known, heard, now)

    def _with_own_time(self, entry: Entry, heard: _Heard | None, now: int) -> Entry:
        """Take a host's own word for its time where tables have not brought it for long (R31)."""
        if heard is None or heard.member.time <= entry.time:
            if heard is not None:
                heard.ahead_since = None
            return entry
        if heard.ahead_since is None:
            heard.ahead_since = now
        if now - heard.ahead_since <= us(s=self._parameters.member_grace_s):
            return entry
        return entry._replace(time=heard.member.time)
