"""Partitions: the unreachable cells, for operators (R12).

Theory of operation
-------------------
When the last session to a cell ends, the broker creates a partition entry, a *pid*: itself as
detector, a counter, and the cells from that one up to those that it still reaches. It sends the
entry to the brokers within 2δ cells, the distance at which PT keeps such tables, and sends an
update when one of the cells is reachable again. A broker stores and forwards the entries of others.
The detector *renews* its entries; an entry that is not renewed for a while is over, because its
detector may be dead.

**No rule of safety or of liveness reads this table.** Feeds depend on sessions, starts on stream
epochs. The table only explains to operators why something is pending. So it may be late,
incomplete or truncated without any other effect.

A broker that has just started, or whose neighbourhood has changed, waits before it reports cells
that it never reached. The end of a partition is kept for long: otherwise an older entry that
arrives by a longer route would bring the partition back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gapless.core.context import Context
from gapless.core.ids import BrokerId, CellId
from gapless.core.limits import PARTITIONS_MAX, RENEWALS_MISSED_MAX
from gapless.core.numbers import following
from gapless.core.parameters import microseconds
from gapless.messages.overlay import Partition, PartitionInfo
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree, TreeChange

__all__ = ["Partitions"]

_Key = tuple[BrokerId, int, int]


class _PartitionState(NamedTuple):
    """The newest known state of a partition."""

    info: PartitionInfo
    since: int
    """The time at which this broker learned that it formed or healed."""
    heard_at: int
    """The time of the last message."""


class Partitions:
    """The partitions that this broker has detected, and those of other detectors."""

    def __init__(self, context: Context, tree: Tree, peers: Peers) -> None:
        self._context = context
        self._tree = tree
        self._peers = peers
        self._me = context.identity.broker
        self._states: dict[_Key, _PartitionState] = {}
        """By partition, oldest first."""
        self._counter = 0
        self._expected: set[CellId] = set()
        """The cells that were reached in this incarnation, or should have been by now."""
        self._renew_us = microseconds(ms=context.parameters.partition_renew_ms)

    def start(self) -> None:
        """Expect all cells after a while, and renew the own partitions periodically."""
        self._expect_all_later()
        self._context.call_later(self._renew_us, self._renew)

    def reshape(self, change: TreeChange) -> None:
        """Remove the cells that are no longer in the neighbourhood (R13)."""
        neighbourhood = change.new
        self._expected = {cell for cell in self._expected if cell in neighbourhood}
        self._expect_all_later()
        for info in self._own():
            if not any(cell in neighbourhood for cell in info.partition.cells):
                self._heal(info, None)

    # --- queries -------------------------------------------------------------------------------

    def table(self) -> list[Partition]:
        """Return the current partitions: the own ones first."""
        return [partition for partition, _ in self.dated()]

    def dated(self) -> list[tuple[Partition, int]]:
        """Return the current partitions, each with the time at which it became known."""
        formed = [(each.info.partition, each.since) for each in self._known() if each.info.formed]
        return sorted(formed, key=lambda each: each[0].detector != self._me)

    def partitions_before(self, cell: CellId) -> list[Partition]:
        """Return the partitions that contain a cell of the path to this one."""
        known = cell in self._tree.neighbourhood
        path = set(self._tree.neighbourhood.path(cell) if known else (cell,))
        return [each for each in self.table() if not path.isdisjoint(each.cells)]

    # --- events --------------------------------------------------------------------------------

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        """Heal the own partitions that contain the cell, and send all entries to the peer."""
        if cell != self._context.identity.cell:
            self._expected.add(cell)
            for info in self._own():
                if cell in info.partition.cells:
                    self._heal(info, peer)
            self._name_what_is_cut(peer)  # other cells of a healed one may be unreachable still
        incarnation = self._peers.incarnation_of(peer)
        for info, _, _ in self._known():
            if info.formed and info.partition.detector == peer and info.incarnation < incarnation:
                self._heal(info, peer)  # its detector has restarted without it
        for info, _, _ in self._known():
            self._send(peer, cell, info)

    def session_closed(self, peer: BrokerId, cell: CellId) -> None:
        """Create a partition entry if the session was the last one to its cell."""
        del peer
        if cell != self._context.identity.cell:
            self._name_what_is_cut(None)

    def received(self, peer: BrokerId, message: PartitionInfo) -> bool:
        """Store and forward the entry of a peer; return whether it was newer."""
        cell = self._tree.neighbourhood.cell_of(peer)
        if cell is None or message.partition.detector == self._me:
            return False
        held = self._states.get(_key(message))
        if held is not None and _rank(message) <= _rank(held.info):
            return False
        self._store(message, peer, sideways=cell != self._context.identity.cell)
        return True

    # --- own partitions ------------------------------------------------------------------------

    def _own(self) -> list[PartitionInfo]:
        """Return the partitions that this broker has detected and that have not healed."""
        return [each.info for each in self._states.values() if self._is_own(each.info)]

    def _is_own(self, info: PartitionInfo) -> bool:
        return info.formed and info.partition.detector == self._me

    def _expect_all_later(self) -> None:
        """Give new brokers time to open a session before their cells are expected."""
        timeout = microseconds(ms=2 * self._context.parameters.session_timeout_ms)
        self._context.call_later(timeout, self._expect_all)

    def _expect_all(self) -> None:
        neighbourhood = self._tree.neighbourhood
        self._expected.update(
            info.name for info in neighbourhood.cells if info.name != neighbourhood.own
        )
        self._name_what_is_cut(None)

    def _renew(self) -> None:
        """Send the own partitions again, to show that their detector is alive."""
        self._context.call_later(self._renew_us, self._renew)
        hops = 2 * self._context.parameters.delta
        for info in self._own():
            renewal = info.renewal + 1
            self._store(msgspec.structs.replace(info, renewal=renewal, hops_left=hops), None)

    def _name_what_is_cut(self, source: BrokerId | None) -> None:
        """Make a pid for every expected cell that is unreachable and in no own pid."""
        for info in self._tree.neighbourhood.cells:
            cell = info.name
            named = any(cell in each.partition.cells for each in self._own())
            if cell in self._expected and not named and not self._reaches(cell):
                self._counter += 1
                partition = Partition(self._me, self._counter, tuple(self._from(cell)))
                hops = 2 * self._context.parameters.delta
                incarnation = self._context.identity.incarnation
                self._store(PartitionInfo(partition, incarnation, True, hops), source)

    def _from(self, cell: CellId) -> Iterator[CellId]:
        """Yield a cell and those beyond it, on every branch up to the first reachable one."""
        found = {cell}
        yield cell
        for info in self._tree.neighbourhood.cells:  # nearest first
            before = self._tree.neighbourhood.path(info.name)[-2:-1]
            if before and before[0] in found and not self._reaches(info.name):
                found.add(info.name)
                yield info.name

    def _reaches(self, cell: CellId) -> bool:
        return bool(self._peers.open_in(self._tree.neighbourhood.brokers(cell)))

    def _heal(self, info: PartitionInfo, source: BrokerId | None) -> None:
        healed = msgspec.structs.replace(info, formed=False, renewal=following(info.renewal))
        self._store(healed, source)

    # --- forwarding and expiry -----------------------------------------------------------------

    def _store(
        self, info: PartitionInfo, source: BrokerId | None, *, sideways: bool = True
    ) -> None:
        """Store an entry and forward it to all peers except its source.

        An entry from a peer of the own cell is not forwarded within the cell, because that peer
        sends it there itself. So every cycle crosses an edge, and the hop limit ends it.
        """
        key, now = _key(info), self._context.now
        held = self._states.get(key)
        if held is not None and held.info.formed == info.formed:
            self._states[key] = _PartitionState(info, held.since, now)
        else:
            self._states.pop(key, None)  # the newest entry is the last one
            self._states[key] = _PartitionState(info, now, now)
        self._shrink()
        for peer in self._peers.open_peers():
            cell = self._tree.neighbourhood.cell_of(peer)
            if cell is None or peer == source:
                continue
            if sideways or cell != self._context.identity.cell:
                self._send(peer, cell, info)

    def _send(self, peer: BrokerId, cell: CellId, info: PartitionInfo) -> None:
        """Send an entry to a peer that is near enough and is not the detector."""
        left = info.hops_left - self._tree.neighbourhood.distance(cell)
        if left >= 0 and peer != info.partition.detector:
            self._context.send(peer, msgspec.structs.replace(info, hops_left=left))

    def _known(self) -> list[_PartitionState]:
        """Return all entries, oldest first, after removing expired ones.

        An entry that was not renewed is kept as healed, because other brokers may still send it.
        """
        now = self._context.now
        oldest = now - microseconds(s=self._context.parameters.tombstone_ttl_s)
        oldest_renewal = now - RENEWALS_MISSED_MAX * self._renew_us
        for key, (info, since, heard_at) in [*self._states.items()]:
            if self._is_own(info):
                continue
            if since <= oldest:
                del self._states[key]
            elif info.formed and heard_at <= oldest_renewal:
                over = msgspec.structs.replace(info, formed=False)
                self._states[key] = _PartitionState(over, now, now)
        return [*self._states.values()]

    def _shrink(self) -> None:
        """Drop the oldest entries, except those that this broker must heal."""
        surplus = len(self._states) - PARTITIONS_MAX
        others = [key for key, (info, _, _) in self._states.items() if not self._is_own(info)]
        for key in others[: max(0, surplus)]:
            self._context.mark("partition forgotten")
            del self._states[key]


def _rank(info: PartitionInfo) -> tuple[int, bool, int]:
    """Return the sort key of entries: renewal, then healed before formed, then hops left.

    The first copy may have come by a longer route, with too few hops left for brokers beyond.
    """
    return info.renewal, not info.formed, info.hops_left


def _key(info: PartitionInfo) -> _Key:
    return info.partition.detector, info.incarnation, info.partition.counter
