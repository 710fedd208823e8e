"""What all probes know: the tree, the disks, and what subscriptions need.

Everything durable is mirrored here as it reaches a disk, so that a probe never has to go through a
whole disk. What is only in memory is asked of the running brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gapless.broker import Broker
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import HoldId
from gapless.messages.records import (
    Append,
    Change,
    EarlyHostRecord,
    Erase,
    HoldRecord,
    MemberRecord,
    PubendRecord,
    RegimeRecord,
    Store,
    SubscriptionRecord,
)
from gapless.subscribers.cursor import Strand
from gapless.subscribers.cursor_state import State
from gapless_lab.sim.invariants.domain import Domain
from gapless_lab.sim.oracle import Stream

if TYPE_CHECKING:
    from gapless_lab.sim.runner import Run
    from gapless_lab.sim.world import Host

__all__ = ["Insight", "Need", "broker_of"]

_HOLD_PARTS = 4
"""The parts of a hold's key."""


class Need(NamedTuple):
    """A subscription that still needs what is above a tick."""

    subscription: str
    tick: Tick
    hold: HoldId | None
    """What keeps the log for it apart from its host's reports."""


def broker_of(host: Host) -> Broker | None:
    """Return the broker that runs on a host, if it has begun its life."""
    process = host.process
    if process is None:
        return None
    machine = process.machine
    return machine if isinstance(machine, Broker) and machine._early is None else None


class Insight:
    """The tree, the disks and the needs of one run."""

    def __init__(self, run: Run) -> None:
        self.world = run.world
        self.truth = run.truth
        self.options = run.options
        self.parameters = run.world.parameters
        self.domain = Domain(run.options.domain)
        self.relayed = False
        """Whether what is shown to the probes now was said, or came, over relays."""
        topology = run.world.topology
        self._ways = {
            cell.name: topology.neighbourhood(cell.name, len(topology.cells))
            for cell in topology.cells
        }
        self.regimes: dict[PubendId, dict[int, RegimeRecord]] = {}
        """Every regime that ever was on a disk."""
        self._opened: dict[PubendId, dict[int, Tick]] = {}
        """By announcement version the tick from which on a regime of it was served."""
        self.advertisements: dict[PubendId, dict[int, str]] = {}
        """By announcement version what a pubend advertises."""
        self.told_up_to: dict[PubendId, Tick] = {}
        """By pubend the highest tick that the disk allows to be told: a ceiling, or a row."""
        self.members: dict[PubendId, dict[ShbId, MemberRecord]] = {}
        self.holds: dict[PubendId, dict[HoldId, HoldRecord]] = {}
        self.early: dict[PubendId, dict[ShbId, EarlyHostRecord]] = {}
        """What pubends knew of hosts that had not come."""
        self.held: set[HoldId] = set()
        """Every hold that ever was on a disk; no name is used twice."""
        self.subscriptions: dict[BrokerId, dict[str, SubscriptionRecord]] = {
            broker: {} for broker in run.world.hosts
        }

    # --- the tree ----------------------------------------------------------------------------

    def distance(self, cell: CellId, other: CellId) -> int:
        """Return how many edges two cells are apart."""
        return self._ways[cell].distance(other)

    def is_behind(self, cell: CellId, other: CellId, home: CellId) -> bool:
        """Say whether ``cell`` is reached from ``home`` through ``other`` (or is it)."""
        return self._ways[home].lies_beyond(cell, other)

    def first_cell(self, cell: CellId, other: CellId) -> CellId:
        """Return the neighbour of ``cell`` on the way to another cell."""
        return self._ways[cell].path(other)[0]

    def home(self, stream: Stream) -> CellId:
        """Return the cell of a pubend's broker."""
        return self.world.hosts[stream.broker].cell

    # --- the disks ---------------------------------------------------------------------------

    def durable(self, host: Host, change: Change) -> None:
        """Mirror a change that is on disk now."""
        if type(change) is Append:
            row = change.row
            self._allow(row.pubend, row.last)
        elif type(change) is Store:
            self._stored(host, change)
        elif type(change) is Erase:
            self._erased(host, change.key)

    def _stored(self, host: Host, change: Store) -> None:
        record = change.record
        match record:
            case PubendRecord():
                self._allow(record.pubend, max(record.ceiling, record.released))
                texts = self.advertisements.setdefault(record.pubend, {})
                texts[record.announcement_version] = record.properties.advertisement
            case RegimeRecord():
                self.regimes.setdefault(record.pubend, {}).setdefault(record.number, record)
                opened = self._opened.setdefault(record.pubend, {})
                opened.setdefault(record.announcement_version, record.start)
            case MemberRecord():
                self.members.setdefault(record.pubend, {})[record.shb] = record
            case HoldRecord():
                self.holds.setdefault(record.pubend, {})[record.hold] = record
                self.held.add(record.hold)
            case EarlyHostRecord():
                self.early.setdefault(record.pubend, {})[record.shb] = record
            case SubscriptionRecord():
                self.subscriptions[host.broker][record.subscription] = record
            case _:
                pass

    def _allow(self, pubend: PubendId, tick: Tick) -> None:
        self.told_up_to[pubend] = max(tick, self.told_up_to.get(pubend, 0))

    def _erased(self, host: Host, key: tuple[str, ...]) -> None:
        kind, name = key[0], key[1] if len(key) > 1 else ""
        if kind == "member":
            for pubend, rows in self.members.items():
                if str(pubend) == name:
                    self.members[pubend] = {
                        shb: row for shb, row in rows.items() if str(shb) != key[2]
                    }
        elif kind == "hold" and len(key) == _HOLD_PARTS:
            for pubend, holds in self.holds.items():
                if str(pubend) == name:
                    self.holds[pubend] = {
                        hold: row for hold, row in holds.items() if row.key != key
                    }
        elif kind == "subscription":
            self.subscriptions[host.broker].pop(name, None)

    # --- needs -------------------------------------------------------------------------------

    def needs(self, host: Host, stream: Stream) -> Iterator[Need]:
        """Go through what the subscriptions of a host still need of a stream.

        A durable subscription needs what is above the position on its disk, whether its broker
        runs or not, once it has begun there. Any other needs what its client was not told.
        """
        machine = broker_of(host)
        for name, record in self.subscriptions[host.broker].items():
            found = None if machine is None else machine.host.subscriptions.get(name)
            if machine is not None and found is None:
                continue  # it has ended, and its record is about to go
            strand = None if found is None else found.strands.get(stream.pubend)
            need = self._durable_need(host, record, stream, strand)
            if need is not None:
                yield need
        if machine is not None:
            for subscription in machine.host.subscriptions.values():
                strand = subscription.strands.get(stream.pubend)
                if strand is not None and not subscription.durable and strand.base is not None:
                    need = self._live_need(strand, stream)
                    if need is not None:
                        yield need

    def _durable_need(
        self, host: Host, record: SubscriptionRecord, stream: Stream, strand: Strand | None
    ) -> Need | None:
        pubend = stream.pubend
        if pubend not in dict(record.base):
            return None
        governs = [(each.filter, dict(each.ends).get(pubend)) for each in record.segments]
        known = dict(record.acked).get(pubend, 0)
        if pubend in record.oldest:  # it begins with what the log has by now, also after a crash
            known = max(known, stream.released)
        acked = self._needed_from(governs, stream, known)
        if acked is None:
            return None
        names = dict(record.holds)
        hold = None
        if strand is not None:
            hold = strand.holding.current
            acked = max(acked, strand.given_up)
        elif pubend in names:
            # the pubend may never have heard of it: then its client was told nothing either
            hold = HoldId(ShbId(host.broker, host.cell), names[pubend])
        return Need(record.subscription, acked, hold)

    def _needed_from(
        self, governs: list[tuple[str, Tick | None]], stream: Stream, known: Tick
    ) -> Tick | None:
        """Return above which tick something may be needed that is above what is known.

        Filters are given in the order in which they govern, each with the last tick that it does, None
        if that is not known. What the filter that governs a tick could not match, by what was advertised
        then, is needed by nobody, and may be released (I10).
        """
        for text, end in governs:
            if end is not None and end <= known:
                continue
            unmatched = self._unmatched_up_to(text, stream)
            if unmatched is not None and (end is None or unmatched < end):
                return max(known, unmatched)
            known = known if end is None else end
        return None

    def _live_need(self, strand: Strand, stream: Stream) -> Need | None:
        if strand.state is State.WAITING:
            return None
        told = strand.position
        if strand.state is State.LIVE:
            told = max(told, strand.subend.horizon or 0)
        if strand.buffer:
            told = min(told, strand.buffer.next_tick - 1)
        governs: list[tuple[str, Tick | None]] = [(each.text, end) for each, end in strand.course]
        governs += [(each.text, None) for each in (strand.segment, strand.next) if each is not None]
        needed = self._needed_from(governs, stream, told)
        if needed is None:
            return None
        return Need(strand.subscription.name, max(needed, strand.given_up), strand.holding.current)

    def _unmatched_up_to(self, text: str, stream: Stream) -> Tick | None:
        """Return up to where a filter could match nothing of a stream; None if it still cannot.

        What a wider advertisement adds is published in a regime of its version, or a later one (A22).
        """
        wanted, texts = self.domain.of_filter(text), self.advertisements[stream.pubend]
        first = min(
            (each for each in texts if wanted & self.domain.of_filter(texts[each])), default=0
        )
        if first <= 1:
            return 0 if first else None
        opened = self._opened.get(stream.pubend, {})
        if min(opened, default=first) >= first:
            return 0  # nobody was served before
        return min((opened[each] - 1 for each in opened if each >= first), default=None)

    def is_held(self, need: Need, pubend: PubendId) -> bool:
        """Say whether a hold on disk keeps the log for a need."""
        row = None if need.hold is None else self.holds.get(pubend, {}).get(need.hold)
        return row is not None and row.tick <= need.tick
