"""Subscriber hosts whose news was at a pubend's broker before they knew of the pubend (R46).

A subscription that is there before a pubend expects all that is ever published on it. Its host hears
of a new pubend later than that can publish; so where the host comes is too late a beginning. The
pubend's broker may have had the news of the subscription all along: in its tables, by the host's
virtual time. From which tick on it had the news up to which virtual time is noted here, and is on
disk with the first event above that tick. A host that comes asks for it, and its subscriptions begin
there. That is a statement about beginnings only: what was told as silence meanwhile was not made for
that host, so it reads those ticks from the log (R44).

Once tables claim a host for the pubend, it knows the pubend, for nobody speaks for a host that does
not; and what it begins later is told where it begins. A while after that nothing more is noted: what
was on its way meanwhile has come.

A host also asks for others, from which subscriptions have fled to it (MV-13): these begin where one of
their homes was known.

Until a host comes, the log is kept for it for a while, as it is for nobody else: nobody has reported
for it. When it asks, its row keeps the log, on disk before the answer (I10).
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
"""Up to which virtual time news was here, each with the tick from which on; both grow."""


class KnownHosts:
    """What a pubend's broker knew of subscriber hosts that had not come to the pubend."""

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
        """Since when tables claim each host for the pubend: it has heard of it."""
        # times on disk are of an earlier clock
        self._awaited = dict.fromkeys(self._known, now)
        """The hosts that the log is kept for, with the last time that something was noted."""

    def known(self, shb: ShbId) -> KnownTimes:
        """Return what was known of a host, and from which ticks on."""
        return self._known.get(shb, ())

    def since(self, shb: ShbId) -> Tick | None:
        """Return the tick from which on something was known of a host."""
        known = self.known(shb)
        return known[0][1] if known else None

    # --- what becomes known ------------------------------------------------------------------

    def note(self, shb: ShbId, time: VirtualTime, after: Tick, now: int) -> None:
        """Note that the news of a host is here up to a virtual time, from after a tick on."""
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
        """Note which hosts have heard of the pubend, by what tables claim of them."""
        for shb in self._known:
            if shb not in self._claimed and claim(shb) is not None:
                self._claimed[shb] = now

    def widened(self, now: int) -> None:
        """The pubend advertises more: who knew it before has not heard of that.

        What was noted of those who heard of it only now stays: they may be about to ask for it.
        """
        for shb in [each for each in self._claimed if self._is_settled(each, now)]:
            self._known.pop(shb, None)
            self._awaited.pop(shb, None)
            self._unsaved.pop(shb, None)
        self._claimed.clear()

    def retire(self, shb: ShbId) -> list[DeleteRecord]:
        """A host will not return; return the change on disk."""
        self._unsaved.pop(shb, None)
        self._awaited.pop(shb, None)
        if self._known.pop(shb, None) is None:
            return []
        return [DeleteRecord(KnownHostRecord(self._pubend, shb, ()).key)]

    def _is_settled(self, shb: ShbId, now: int) -> bool:
        since = self._claimed.get(shb)
        return since is not None and now - since > microseconds(s=self._parameters.member_grace_s)

    # --- what follows ------------------------------------------------------------------------

    def changes(self) -> tuple[PutRecord, ...]:
        """Return what has to be on disk with the next event."""
        if not self._unsaved:
            return ()
        unsaved, self._unsaved = self._unsaved, {}
        return tuple(
            PutRecord(KnownHostRecord(self._pubend, shb, self._known[shb])) for shb in unsaved
        )

    def floor(self, now: int) -> Tick | None:
        """Return above which tick the log is kept for hosts that may be on their way, if any is."""
        for shb, since in [*self._awaited.items()]:
            if now - since > microseconds(s=self._parameters.member_grace_s) or self._is_overdue(
                shb, now
            ):
                del self._awaited[shb]
        return min((self._known[shb][0][1] for shb in self._awaited), default=None)

    def _is_overdue(self, shb: ShbId, now: int) -> bool:
        """Say whether a host has known the pubend for long enough to have come."""
        since = self._claimed.get(shb)
        return since is not None and now - since > microseconds(
            ms=self._parameters.attach_timeout_ms
        )


def _without_one(known: KnownTimes) -> KnownTimes:
    """Let one time stand for the one before it too, where they are nearest.

    Who needs the earlier begins where it would; who needs the later one a little before that.
    """
    gaps = [after[1] - before[1] for before, after in pairwise(known)]
    index = gaps.index(min(gaps))
    merged = (known[index + 1][0], known[index][1])
    return (*known[:index], merged, *known[index + 2 :])
