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
from gapless.delivery.subscribers.states import State
from gapless.delivery.subscribers.strand import Strand
from gapless.messages.records import (
    Append,
    Change,
    Erase,
    HoldRecord,
    MemberRecord,
    PubendRecord,
    RegimeRecord,
    Store,
    SubscriptionRecord,
)
from gapless.messages.requests import HoldId
from gapless.sim.oracle import Stream
from gapless.sim.probes.domain import Domain

if TYPE_CHECKING:
    from gapless.sim.runner import Run
    from gapless.sim.world import Host

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
        topology = run.world.topology
        self._ways = {
            cell.name: topology.neighbourhood(cell.name, len(topology.cells))
            for cell in topology.cells
        }
        self.regimes: dict[PubendId, dict[int, RegimeRecord]] = {}
        """Every regime that ever was on a disk."""
        self.advertisements: dict[PubendId, dict[int, str]] = {}
        """By announcement version what a pubend advertises."""
        self.told_up_to: dict[PubendId, Tick] = {}
        """By pubend the highest tick that the disk allows to be told: a ceiling, or a row."""
        self.members: dict[PubendId, dict[ShbId, MemberRecord]] = {}
        self.holds: dict[PubendId, dict[HoldId, HoldRecord]] = {}
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
            case MemberRecord():
                self.members.setdefault(record.pubend, {})[record.shb] = record
            case HoldRecord():
                self.holds.setdefault(record.pubend, {})[record.hold] = record
                self.held.add(record.hold)
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
        acked = dict(record.acked).get(pubend, 0)
        texts = [
            segment.filter
            for segment in record.segments
            if dict(segment.ends).get(pubend, acked + 1) > acked
        ]
        if not self.may_match(texts, stream):
            return None
        acked = self._needed_from(record, stream, acked)
        names = dict(record.holds)
        hold = None
        if strand is not None:
            hold = strand.holding.current
            acked = max(acked, strand.given_up)
        elif pubend in names:
            # the pubend may never have heard of it: then its client was told nothing either
            hold = HoldId(ShbId(host.broker, host.cell), names[pubend])
        return Need(record.subscription, acked, hold)

    def _needed_from(self, record: SubscriptionRecord, stream: Stream, acked: Tick) -> Tick:
        """Return up to where nothing is needed: what is acknowledged, and what cannot match.

        A filter that can match nothing of a stream keeps nothing of its log, and where it has ended
        the next one begins above what was released meanwhile.
        """
        for segment in record.segments:
            end = dict(segment.ends).get(stream.pubend)
            if end is None or (end > acked and self.may_match([segment.filter], stream)):
                break
            acked = max(acked, end)
        return acked

    def _live_need(self, strand: Strand, stream: Stream) -> Need | None:
        if strand.state is State.WAITING:
            return None
        told = strand.position
        if strand.state is State.LIVE:
            told = max(told, strand.subend.horizon or 0)
        if strand.buffer:
            told = min(told, strand.buffer[0].tick - 1)
        segments = [strand.segment, *(each for each, end in strand.course if end > told)]
        if strand.next is not None:
            segments.append(strand.next)
        if not self.may_match([each.text for each in segments], stream):
            return None
        return Need(strand.subscription.name, max(told, strand.given_up), strand.holding.current)

    def may_match(self, texts: list[str], stream: Stream) -> bool:
        """Say whether any of some filters matches anything that a stream may bring."""
        offered = self.domain.of_filter(stream.advertisement)
        return any(self.domain.of_filter(text) & offered for text in texts)

    def is_held(self, need: Need, pubend: PubendId) -> bool:
        """Say whether a hold on disk keeps the log for a need."""
        row = None if need.hold is None else self.holds.get(pubend, {}).get(need.hold)
        return row is not None and row.tick <= need.tick
