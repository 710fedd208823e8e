"""Reports are true, and the log is kept for whoever needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gapless.broker import Broker
from gapless.core.ids import BrokerId, Join, PubendId, ShbId
from gapless.core.machine import Event
from gapless.core.ticks import Tick
from gapless.messages.records import Change, PubendRecord, Store
from gapless.messages.streams import Member, Report, SetDefine
from gapless_lab.sim.invariants.global_state import Insight
from gapless_lab.sim.invariants.monitor import Handler, Invariant

if TYPE_CHECKING:
    from gapless_lab.sim.world import Host, Process

__all__ = ["LogKept", "Reports"]


class Reports(Invariant):
    """I9: what a host reports it needs no more: no subscription of it needs a tick up to there,
    except under a hold on disk that is not above that need. A durable subscription needs what is
    above the acknowledged position *on its disk*. A router passes on no more than hosts reported.

    Where leases expire (``Options.forgiving``), a hold that was on disk counts too: the pubend may
    have ended it while its host could not be heard, and the host cannot know.
    """

    def __init__(self, insight: Insight) -> None:
        super().__init__(insight)
        self._sets: dict[tuple[BrokerId, str, int], tuple[Member, ...]] = {}
        self._reported: dict[tuple[ShbId, Join, PubendId], Tick] = {}

    def said(self) -> Mapping[type, Handler]:
        """Look at reports and the sets that they name."""
        return {SetDefine: self._define, Report: self._report}

    def _define(self, process: Process, peer: str, message: SetDefine) -> None:
        self._sets[process.host.broker, peer, message.number] = message.members

    def _report(self, process: Process, peer: str, message: Report) -> None:
        me = process.host.broker
        members = self._sets.get((me, peer, message.set_number), ())
        if message.set_number < 0:
            for pubend, tick in message.acknowledged:
                self._own(process, pubend, tick)
                for member in members:
                    key = (member.shb, member.join, pubend)
                    self._reported[key] = max(tick, self._reported.get(key, 0))
            return
        for member in members:
            for pubend, tick in message.acknowledged:
                most = self._reported.get((member.shb, member.join, pubend), -1)
                if tick > most:
                    self.world.violate(
                        "I9",
                        f"{me} reports {tick} of {pubend} for {member.shb}, which said {most}",
                    )

    def _own(self, process: Process, pubend: PubendId, tick: Tick) -> None:
        stream = self.truth.streams[pubend]
        for need in self.insight.needs(process.host, stream):
            expired = self.insight.options.forgiving and need.hold in self.insight.held
            if need.tick < tick and not expired and not self.insight.is_held(need, pubend):
                self.world.violate(
                    "I9",
                    f"{process.host.broker} reports {tick} of {pubend}, but {need.subscription} "
                    f"needs all above {need.tick}, hold {need.hold}",
                )
                return


class LogKept(Invariant):
    """I10: whatever a member or a hold still needs is above what is released.

    When more is released, no row and no hold on disk is below it, and no subscription anywhere
    needs a tick that was there until now. Not counted are those that began in the past and whose
    hold has not reached the disk yet: they may be told a gap. Where a log may go all the same, as
    with leases that expire (``Options.forgiving``), only rows and holds are looked at.
    """

    def __init__(self, insight: Insight) -> None:
        super().__init__(insight)
        self._released: dict[PubendId, Tick] = {}
        self._due: list[tuple[Host, PubendId, Tick]] = []

    def durable(self, host: Host, change: Change) -> None:
        """Look at holds and needs when more is released; rows are in the same write, after it."""
        if type(change) is Store and isinstance(change.record, PubendRecord):
            record = change.record
            before = self._released.get(record.pubend)
            if before is None:  # its stream begins here: nothing was there that could be released
                self._released[record.pubend] = record.released
            elif record.released > before:
                self._released[record.pubend] = record.released
                self._due.append((host, record.pubend, record.released))
                self._check(host, record.pubend, before, record.released)

    def moved(self, process: Process, machine: Broker, event: Event) -> None:
        """Look at the rows that were to allow the last release."""
        del process, machine, event
        if self._due:
            due, self._due = self._due, []
            for host, pubend, released in due:
                for shb, row in self.insight.members.get(pubend, {}).items():
                    if row.floor < released:
                        self._lost(host, pubend, released, f"the floor of {shb} is {row.floor}")

    def _lost(self, host: Host, pubend: PubendId, released: Tick, why: str) -> None:
        self.world.violate("I10", f"{host.broker} releases {pubend} up to {released}, but {why}")

    def _check(self, host: Host, pubend: PubendId, before: Tick, released: Tick) -> None:
        insight = self.insight
        for hold, kept in insight.holds.get(pubend, {}).items():
            if before <= kept.tick < released:
                self._lost(host, pubend, released, f"{hold} keeps all above {kept.tick}")
        if insight.options.forgiving:
            return
        stream = self.truth.streams[pubend]
        for other in self.world.hosts.values():
            for need in insight.needs(other, stream):
                # a beginning is told when its hold is kept, so nobody was promised anything by a
                # hold that never was on a disk, and seeking back promises no log (R49)
                fresh = need.hold is not None and need.hold not in insight.held
                if before <= need.tick < released and not fresh:
                    why = f"{need.subscription} at {other.broker} needs all above {need.tick}"
                    self._lost(host, pubend, released, f"{why}, hold {need.hold}")
                    return
