"""Retention: ack reports are true, and the log keeps what is needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gapless.broker import Broker
from gapless.core.events import MachineEvent
from gapless.core.ids import BrokerId, MembershipId, PubendId, ShbId
from gapless.core.ticks import Tick
from gapless.messages.records import PubendRecord, PutRecord, StorageChange
from gapless.messages.streams import AckReport, DefineMemberSet, Member
from gapless_lab.sim.invariants.global_state import GlobalState
from gapless_lab.sim.invariants.monitor import Invariant, MessageHandler

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedHost, SimulatedProcess

__all__ = ["ReportInvariant", "RetentionInvariant"]


class ReportInvariant(Invariant):
    """I9: an SHB reports only ticks that it needs no more. A subscription of it that needs a tick
    up to there has a log hold on disk that is not above that need. A durable subscription needs
    what is above the acknowledged position *on its disk*. A router reports no more than its SHBs
    did.

    With leases that expire (``Options.forgiving``), a log hold that was ever on disk counts too.
    The pubend may have ended it while its SHB was unreachable, and the SHB cannot know.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._sets: dict[tuple[BrokerId, str, int], tuple[Member, ...]] = {}
        self._reported: dict[tuple[ShbId, MembershipId, PubendId], Tick] = {}

    def message_handlers(self) -> Mapping[type, MessageHandler]:
        """Handle reports and the member sets that they name."""
        return {DefineMemberSet: self._define, AckReport: self._report}

    def _define(self, process: SimulatedProcess, peer: str, message: DefineMemberSet) -> None:
        self._sets[process.host.broker, peer, message.number] = message.members

    def _report(self, process: SimulatedProcess, peer: str, message: AckReport) -> None:
        me = process.host.broker
        members = self._sets.get((me, peer, message.set_number), ())
        if message.set_number < 0:
            for pubend, tick in message.acknowledged:
                self._own(process, pubend, tick)
                for member in members:
                    key = (member.shb, member.membership, pubend)
                    self._reported[key] = max(tick, self._reported.get(key, 0))
            return
        for member in members:
            for pubend, tick in message.acknowledged:
                most = self._reported.get((member.shb, member.membership, pubend), -1)
                if tick > most:
                    self.world.violate(
                        "I9",
                        f"{me} reports {tick} of {pubend} for {member.shb}, which reported {most}",
                    )

    def _own(self, process: SimulatedProcess, pubend: PubendId, tick: Tick) -> None:
        stream = self.oracle.streams[pubend]
        for need in self.global_state.needs(process.host, stream):
            expired = (
                self.global_state.options.forgiving
                and need.log_hold in self.global_state.log_holds_ever
            )
            if (
                need.tick < tick
                and not expired
                and not self.global_state.has_log_hold(need, pubend)
            ):
                self.world.violate(
                    "I9",
                    f"{process.host.broker} reports {tick} of {pubend}, but {need.subscription} "
                    f"needs all above {need.tick}, log hold {need.log_hold}",
                )
                return


class RetentionInvariant(Invariant):
    """I10: what a member or a log hold still needs is above what is released.

    At every release, no row and no log hold on disk is below it, and no subscription needs a tick
    that is removed now. Not counted are subscriptions that started in the past and whose log hold
    has not reached the disk: they may receive a gap. If a log may be released all the same, as with
    leases that expire (``Options.forgiving``), only rows and log holds are checked.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._released: dict[PubendId, Tick] = {}
        self._due: list[tuple[SimulatedHost, PubendId, Tick]] = []

    def durable(self, host: SimulatedHost, change: StorageChange) -> None:
        """Check log holds and needs at a release; the rows follow in the same write."""
        if type(change) is PutRecord and isinstance(change.record, PubendRecord):
            record = change.record
            before = self._released.get(record.pubend)
            if before is None:  # the stream starts here: nothing could be released
                self._released[record.pubend] = record.released
            elif record.released > before:
                self._released[record.pubend] = record.released
                self._due.append((host, record.pubend, record.released))
                self._check(host, record.pubend, before, record.released)

    def moved(self, process: SimulatedProcess, machine: Broker, event: MachineEvent) -> None:
        """Check the rows that allowed the last release."""
        del process, machine, event
        if self._due:
            due, self._due = self._due, []
            for host, pubend, released in due:
                for shb, row in self.global_state.members.get(pubend, {}).items():
                    if row.ack_floor < released:
                        self._lost(host, pubend, released, f"the floor of {shb} is {row.ack_floor}")

    def _lost(self, host: SimulatedHost, pubend: PubendId, released: Tick, why: str) -> None:
        self.world.violate("I10", f"{host.broker} releases {pubend} up to {released}, but {why}")

    def _check(self, host: SimulatedHost, pubend: PubendId, before: Tick, released: Tick) -> None:
        global_state = self.global_state
        for log_hold, kept in global_state.log_holds.get(pubend, {}).items():
            if before <= kept.tick < released:
                self._lost(host, pubend, released, f"{log_hold} keeps all above {kept.tick}")
        if global_state.options.forgiving:
            return
        stream = self.oracle.streams[pubend]
        for other in self.world.hosts.values():
            for need in global_state.needs(other, stream):
                # a start is confirmed after its log hold is on disk, so a log hold that was never
                # on disk promised nothing; and a seek backwards promises no log (R49)
                fresh = (
                    need.log_hold is not None and need.log_hold not in global_state.log_holds_ever
                )
                if before <= need.tick < released and not fresh:
                    why = f"{need.subscription} at {other.broker} needs all above {need.tick}"
                    self._lost(host, pubend, released, f"{why}, log hold {need.log_hold}")
                    return
