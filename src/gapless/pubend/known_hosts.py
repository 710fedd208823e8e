"""Known hosts: SHBs whose subscriptions a PHB knows before they become members of a pubend (R46).

A subscription older than a pubend receives everything published after the PHB knew the
subscription. Its SHB learns of a new pubend only after the pubend can publish, so the tick at which
the SHB joins is too late a start. The tables of the PHB may have contained the subscription all the
time, up to some virtual time of the SHB. This module notes from which tick on they had which
virtual time. The note is on disk with the first event above that tick. A joining SHB requests the
note, and its subscriptions start there. The note decides only the start: the silence sent meanwhile
was not computed for that SHB, so it reads those ticks from the log (R44).

Tables claim an SHB for a pubend only after the SHB has heard of the pubend. Subscriptions that it
adds later get their start by the stream. Noting ends ``member_grace_s`` after the first claim:
updates that were in flight have arrived by then.

A joining SHB also requests the notes of other SHBs, from which subscriptions failed over to it
(MV-13). These subscriptions start where one of their hosting brokers was known.

The log is kept for a known host for a limited time, although it has not reported. When the SHB
sends its request, its member row keeps the log. The row is on disk before the reply (I10).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TypeAlias

from gapless.core.ids import PubendId, ShbId, VirtualTime
from gapless.core.limits import KNOWN_HOST_TIMES_MAX
from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import Tick
from gapless.messages.records import DeleteRecord, KnownHostRecord, PutRecord
from gapless.pubend.members import Claim

__all__ = ["KnownHosts", "KnownTimes"]

KnownTimes: TypeAlias = tuple[tuple[VirtualTime, Tick], ...]
"""Virtual times of an SHB, each with the tick after which the tables had it; both grow."""


class KnownHosts:
    """The known hosts of one pubend."""

    def __init__(
        self,
        pubend: PubendId,
        parameters: Parameters,
        now: int,
        records: Iterable[KnownHostRecord] = (),
    ) -> None:
        self._pubend = pubend
        self._parameters = parameters
        self._known: dict[ShbId, KnownTimes] = {each.shb: each.known for each in records}
        self._unsaved: dict[ShbId, None] = {}
        self._claimed: dict[ShbId, int] = {}
        """Since when tables claim each SHB for the pubend; the SHB has heard of the pubend then."""
        # the times on disk are of an earlier clock
        self._awaited = dict.fromkeys(self._known, now)
        """The SHBs for which the log is kept, with the time of the last note."""

    def known(self, shb: ShbId) -> KnownTimes:
        """Return the virtual times known of an SHB, each with its tick."""
        return self._known.get(shb, ())

    def since(self, shb: ShbId) -> Tick | None:
        """Return the first tick after which an SHB was known, or None."""
        known = self.known(shb)
        return known[0][1] if known else None

    # --- inputs ------------------------------------------------------------------------------

    def note(self, shb: ShbId, time: VirtualTime, after: Tick, now: int) -> None:
        """Note that the tables have an SHB up to a virtual time, for all ticks after ``after``."""
        if self._is_settled(shb, now):
            return
        known = self.known(shb)
        if known and known[-1][0] >= time:
            return
        known = (*known, (time, after))
        self._known[shb] = known if len(known) <= KNOWN_HOST_TIMES_MAX else _without_one(known)
        self._unsaved[shb] = None
        self._awaited[shb] = now

    def observe(self, claim: Claim, now: int) -> None:
        """Note which SHBs have heard of the pubend: those that tables claim for it."""
        for shb in self._known:
            if shb not in self._claimed and claim(shb) is not None:
                self._claimed[shb] = now

    def widened(self, now: int) -> None:
        """Start noting again: no SHB has heard of the wider advertisement yet.

        The notes of SHBs that were claimed only recently remain: these SHBs may still request them.
        """
        for shb in [each for each in self._claimed if self._is_settled(each, now)]:
            self._known.pop(shb, None)
            self._awaited.pop(shb, None)
            self._unsaved.pop(shb, None)
        self._claimed.clear()

    def retire(self, shb: ShbId) -> list[DeleteRecord]:
        """Forget a retired SHB; return the storage changes."""
        self._unsaved.pop(shb, None)
        self._awaited.pop(shb, None)
        if self._known.pop(shb, None) is None:
            return []
        return [DeleteRecord(KnownHostRecord(self._pubend, shb, ()).key)]

    def _is_settled(self, shb: ShbId, now: int) -> bool:
        since = self._claimed.get(shb)
        return since is not None and now - since > microseconds(s=self._parameters.member_grace_s)

    # --- results -----------------------------------------------------------------------------

    def changes(self) -> tuple[PutRecord, ...]:
        """Return the changes that must be on disk with the next event."""
        if not self._unsaved:
            return ()
        unsaved, self._unsaved = self._unsaved, {}
        return tuple(
            PutRecord(KnownHostRecord(self._pubend, shb, self._known[shb])) for shb in unsaved
        )

    def erasures(self) -> list[DeleteRecord]:
        """Return the changes that erase all notes: the pubend ends (RS-33)."""
        return [DeleteRecord(KnownHostRecord(self._pubend, shb, ()).key) for shb in self._known]

    def floor(self, now: int) -> Tick | None:
        """Return the tick above which the log is kept for SHBs that may still join, or None."""
        for shb, since in [*self._awaited.items()]:
            if now - since > microseconds(s=self._parameters.member_grace_s) or self._is_overdue(
                shb, now
            ):
                del self._awaited[shb]
        return min((self._known[shb][0][1] for shb in self._awaited), default=None)

    def _is_overdue(self, shb: ShbId, now: int) -> bool:
        """Return whether an SHB has known the pubend long enough to have joined."""
        since = self._claimed.get(shb)
        return since is not None and now - since > microseconds(
            ms=self._parameters.attach_timeout_ms
        )


def _without_one(known: KnownTimes) -> KnownTimes:
    """Merge the two times whose ticks are nearest: the later time with the earlier tick.

    A subscription of the earlier time starts at the same tick; one of the later time, a little
    earlier.
    """
    gaps = [after[1] - before[1] for before, after in pairwise(known)]
    index = gaps.index(min(gaps))
    merged = (known[index + 1][0], known[index][1])
    return (*known[:index], merged, *known[index + 2 :])
