"""The state that all invariants share: the tree, the disks, and what subscriptions need.

Every durable change is mirrored here as it reaches a disk, so that an invariant never scans a whole
disk. State that is only in memory is read from the running brokers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from gapless.broker import Broker
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId
from gapless.core.ticks import Tick
from gapless.messages.pubend_requests import LogHoldId
from gapless.messages.records import (
    AppendRow,
    DeleteRecord,
    KnownHostRecord,
    LogHoldRecord,
    MemberRecord,
    PubendRecord,
    PutRecord,
    StorageChange,
    StreamEpochRecord,
    SubscriptionRecord,
    TickCeilingRecord,
)
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import CursorPhase, Started
from gapless_lab.sim.invariants.domain import Domain
from gapless_lab.sim.oracle import PublishedStream
from gapless_lab.sim.world_tree import CellGraph

if TYPE_CHECKING:
    from gapless_lab.sim.runner import SimulationRun
    from gapless_lab.sim.world import SimulatedHost

__all__ = ["GlobalState", "Need", "broker_of"]

_LOG_HOLD_KEY_PARTS = 4
"""The number of parts of a log hold's key."""


class Need(NamedTuple):
    """A subscription that still needs the events above a tick."""

    subscription: str
    tick: Tick
    log_hold: LogHoldId | None
    """The log hold that keeps the log for it apart from its SHB's ack floor."""


def broker_of(host: SimulatedHost) -> Broker | None:
    """Return the broker that runs on a host, or None if it has not started its incarnation."""
    process = host.process
    if process is None:
        return None
    machine = process.machine
    return machine if isinstance(machine, Broker) and machine.is_running else None


class GlobalState:
    """The tree, the disks and the needs of one run."""

    def __init__(self, run: SimulationRun) -> None:
        self.world = run.world
        self.oracle = run.oracle
        self.options = run.options
        self.parameters = run.world.parameters
        self.domain = Domain(run.options.domain)
        self.relayed = False
        """Whether the message that the invariants handle now is relayed."""
        self.stream_epochs: dict[PubendId, dict[int, StreamEpochRecord]] = {}
        """All stream epochs that were ever on a disk."""
        self._opened: dict[PubendId, dict[int, Tick]] = {}
        """By announcement version, the first tick of a stream epoch with that version."""
        self.advertisements: dict[PubendId, dict[int, str]] = {}
        """By announcement version, the advertisement of a pubend."""
        self._sendable_up_to: dict[PubendId, Tick] = {}
        """By pubend, the highest tick that its own records and rows allow to be sent."""
        self._ceilings: dict[BrokerId, Tick] = {}
        """The tick ceilings of brokers."""
        self.members: dict[PubendId, dict[ShbId, MemberRecord]] = {}
        self.log_holds: dict[PubendId, dict[LogHoldId, LogHoldRecord]] = {}
        self.known_hosts: dict[PubendId, dict[ShbId, KnownHostRecord]] = {}
        """What pubends knew of SHBs before they became members."""
        self.log_holds_ever: set[LogHoldId] = set()
        """All log holds that were ever on a disk; no id is used twice."""
        self.subscriptions: dict[BrokerId, dict[str, SubscriptionRecord]] = defaultdict(dict)

    # --- the tree ----------------------------------------------------------------------------

    @property
    def tree(self) -> CellGraph:
        """The tree by the newest durable records."""
        return self.world.tree.graph

    def tree_of(self, host: SimulatedHost) -> CellGraph:
        """Return the tree as the broker of a host sees it now; the newest one if it is down."""
        machine = broker_of(host)
        return self.tree if machine is None else self.world.tree.seen_by(machine.neighbourhood)

    def phb_cell(self, stream: PublishedStream) -> CellId:
        """Return the cell of a PHB."""
        return self.world.hosts[stream.broker].cell

    # --- the disks ---------------------------------------------------------------------------

    def durable(self, host: SimulatedHost, change: StorageChange) -> None:
        """Mirror a change that has reached the disk."""
        if type(change) is AppendRow:
            row = change.row
            self._allow(row.pubend, row.last)
        elif type(change) is PutRecord:
            self._stored(host, change)
        elif type(change) is DeleteRecord:
            self._erased(host, change.key)

    def _stored(self, host: SimulatedHost, change: PutRecord) -> None:
        record = change.record
        match record:
            case PubendRecord():
                self._allow(record.pubend, max(record.ceiling, record.released))
                texts = self.advertisements.setdefault(record.pubend, {})
                texts[record.announcement_version] = record.properties.advertisement
            case TickCeilingRecord():
                before = self._ceilings.get(host.broker, 0)
                self._ceilings[host.broker] = max(record.ceiling, before)
            case StreamEpochRecord():
                self.stream_epochs.setdefault(record.pubend, {}).setdefault(record.number, record)
                opened = self._opened.setdefault(record.pubend, {})
                opened.setdefault(record.announcement_version, record.start)
            case MemberRecord():
                self.members.setdefault(record.pubend, {})[record.shb] = record
            case LogHoldRecord():
                self.log_holds.setdefault(record.pubend, {})[record.log_hold] = record
                self.log_holds_ever.add(record.log_hold)
            case KnownHostRecord():
                self.known_hosts.setdefault(record.pubend, {})[record.shb] = record
            case SubscriptionRecord():
                self.subscriptions[host.broker][record.subscription] = record
            case _:
                pass

    def _allow(self, pubend: PubendId, tick: Tick) -> None:
        self._sendable_up_to[pubend] = max(tick, self._sendable_up_to.get(pubend, 0))

    def sendable_up_to(self, pubend: PubendId, phb: BrokerId) -> Tick:
        """Return the highest tick that the disk allows to be sent: a tick ceiling, or a row."""
        return max(self._sendable_up_to.get(pubend, 0), self._ceilings.get(phb, 0))

    def _erased(self, host: SimulatedHost, key: tuple[str, ...]) -> None:
        kind, name = key[0], key[1] if len(key) > 1 else ""
        if kind == "member":
            for pubend, rows in self.members.items():
                if str(pubend) == name:
                    self.members[pubend] = {
                        shb: row for shb, row in rows.items() if str(shb) != key[2]
                    }
        elif kind == "log hold" and len(key) == _LOG_HOLD_KEY_PARTS:
            for pubend, log_holds in self.log_holds.items():
                if str(pubend) == name:
                    self.log_holds[pubend] = {
                        log_hold: row for log_hold, row in log_holds.items() if row.key != key
                    }
        elif kind == "subscription":
            self.subscriptions[host.broker].pop(name, None)

    # --- needs -------------------------------------------------------------------------------

    def needs(self, host: SimulatedHost, stream: PublishedStream) -> Iterator[Need]:
        """Yield what the subscriptions of a host still need of a stream.

        A durable subscription that has started needs the events above the position on disk, whether
        or not its broker runs. Any other needs the events that its client was not sent.
        """
        machine = broker_of(host)
        for name, record in self.subscriptions[host.broker].items():
            found = None if machine is None else machine.components.registry.subscriptions.get(name)
            if machine is not None and found is None:
                continue  # it has ended, and its record will be deleted
            cursor = None if found is None else found.cursors.get(stream.pubend)
            need = self._durable_need(host, record, stream, cursor)
            if need is not None:
                yield need
        if machine is not None:
            for subscription in machine.components.registry.subscriptions.values():
                cursor = subscription.cursors.get(stream.pubend)
                if (
                    cursor is not None
                    and not subscription.durable
                    and isinstance(cursor.start, Started)
                ):
                    need = self._live_need(cursor, stream)
                    if need is not None:
                        yield need

    def _durable_need(
        self,
        host: SimulatedHost,
        record: SubscriptionRecord,
        stream: PublishedStream,
        cursor: Cursor | None,
    ) -> Need | None:
        pubend = stream.pubend
        if pubend not in dict(record.started_after):
            return None
        filters = [(each.filter, dict(each.ends).get(pubend)) for each in record.segments]
        known = dict(record.acked).get(pubend, 0)
        if (
            pubend in record.from_earliest
        ):  # it starts with what the log has by now, also after a crash
            known = max(known, stream.released)
        acked = self._needed_from(filters, stream, known)
        if acked is None:
            return None
        names = dict(record.log_holds)
        log_hold = None
        if cursor is not None:
            log_hold = cursor.log_holds.current
            acked = max(acked, cursor.retention.given_up)
        elif pubend in names:
            # the pubend may not know the log hold; then nothing was confirmed to the client either
            log_hold = LogHoldId(ShbId(host.broker, host.cell), names[pubend])
        return Need(record.subscription, acked, log_hold)

    def _needed_from(
        self, filters: list[tuple[str, Tick | None]], stream: PublishedStream, known: Tick
    ) -> Tick | None:
        """Return the tick above ``known`` from which on an event may be needed; None if there is
        none.

        Filters are given in the order in which they apply, each with its last tick, None if that is
        not known. No subscription needs an event that the applying filter could not match by the
        advertisement of that time, and it may be released (I10).
        """
        for text, end in filters:
            if end is not None and end <= known:
                continue
            unmatched = self._unmatched_up_to(text, stream)
            if unmatched is not None and (end is None or unmatched < end):
                return max(known, unmatched)
            known = known if end is None else end
        return None

    def _live_need(self, cursor: Cursor, stream: PublishedStream) -> Need | None:
        if cursor.is_pending:
            return None
        sent_up_to = cursor.position
        if cursor.phase is CursorPhase.LIVE:
            sent_up_to = max(sent_up_to, cursor.subend.horizon)
        if cursor.buffer:
            sent_up_to = min(sent_up_to, cursor.buffer.next_tick - 1)
        filters: list[tuple[str, Tick | None]] = [
            (each.text, end) for each, end in cursor.segments.ended
        ]
        present = (cursor.segments.current, cursor.segments.next)
        filters += [(each.text, None) for each in present if each is not None]
        needed = self._needed_from(filters, stream, sent_up_to)
        if needed is None:
            return None
        return Need(
            cursor.subscription.name,
            max(needed, cursor.retention.given_up),
            cursor.log_holds.current,
        )

    def _unmatched_up_to(self, text: str, stream: PublishedStream) -> Tick | None:
        """Return the tick up to which a filter could match nothing of a stream; None if it still
        cannot.

        An event that only a wider advertisement allows is published in a stream epoch of its
        version, or a later one (A22).
        """
        wanted, texts = self.domain.of_filter(text), self.advertisements[stream.pubend]
        first = min(
            (each for each in texts if wanted & self.domain.of_filter(texts[each])), default=0
        )
        if first <= 1:
            return 0 if first else None
        opened = self._opened.get(stream.pubend, {})
        if min(opened, default=first) >= first:
            return 0  # no member was served before
        return min((opened[each] - 1 for each in opened if each >= first), default=None)

    def has_log_hold(self, need: Need, pubend: PubendId) -> bool:
        """Return whether a log hold on disk keeps the log for a need."""
        row = None if need.log_hold is None else self.log_holds.get(pubend, {}).get(need.log_hold)
        return row is not None and row.tick <= need.tick
