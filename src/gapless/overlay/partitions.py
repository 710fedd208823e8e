"""Partitions: which cells cannot be reached, as people want to know it (R12).

Theory of operation
-------------------
When the last session to a cell dies, a broker gives the loss a name, a *pid*: itself, a counter, and
the cells from that one on, up to those that it still reaches. It tells the brokers within 2δ cells,
the distance at which PT keeps such tables, and tells them again when one of the cells is back. What
is heard from others is kept and passed on. So that nobody goes on believing a detector that is dead
itself, a living one *renews* what it has told; who hears of no renewal for a while takes the
partition to be over.

**No rule of safety or of liveness reads this table.** Feeds follow sessions, starts follow regimes;
the table only lets a person see why something waits. So it may be late, lack what was lost on a way,
or be cut to size, and nothing but an explanation suffers.

A broker that has just started, or whose neighbourhood has changed, first has to learn whom it reaches:
cells that it never reached make a partition after a while only. News that a partition is over is kept
for long; else older news, coming by a longer way, would bring it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gapless.core.ids import BrokerId, CellId
from gapless.core.limits import PARTITIONS_MAX, RENEWALS_MISSED_MAX
from gapless.core.machine import Context
from gapless.core.parameters import microseconds
from gapless.messages.overlay import Partition, PartitionInfo
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree, TreeChange

__all__ = ["Partitions"]

_Key = tuple[BrokerId, int, int]


class _PartitionState(NamedTuple):
    """The last that is known of a partition."""

    info: PartitionInfo
    since: int
    """When it formed or healed, as far as is known here."""
    heard_at: int
    """When it was told last."""


class Partitions:
    """The partitions that this broker has found, and those that it has heard of."""

    def __init__(self, context: Context, tree: Tree, peers: Peers) -> None:
        self._context = context
        self._tree = tree
        self._peers = peers
        self._me = context.identity.broker
        self._states: dict[_Key, _PartitionState] = {}
        """By partition, oldest first."""
        self._counter = 0
        self._expected: set[CellId] = set()
        """The cells that were reached in this life, or should have been by now."""
        self._renew_us = microseconds(ms=context.parameters.partition_renew_ms)

    def start(self) -> None:
        """Expect all cells after a while, and renew the own partitions from time to time."""
        self._expect_all_later()
        self._context.call_later(self._renew_us, self._renew)

    def reshape(self, change: TreeChange) -> None:
        """Forget the cells that are no longer in the neighbourhood: they are not cut off (R13)."""
        neighbourhood = change.new
        self._expected = {cell for cell in self._expected if cell in neighbourhood}
        self._expect_all_later()
        for info in self._own():
            if not any(cell in neighbourhood for cell in info.partition.cells):
                self._heal(info, None)

    # --- what people ask -----------------------------------------------------------------------

    def table(self) -> list[Partition]:
        """Return the partitions there are: the own ones, then those of others as they were heard."""
        return [partition for partition, _ in self.dated()]

    def dated(self) -> list[tuple[Partition, int]]:
        """Return the same, each with the time since when it is known here."""
        formed = [(each.info.partition, each.since) for each in self._known() if each.info.formed]
        return sorted(formed, key=lambda each: each[0].detector != self._me)

    def partitions_before(self, cell: CellId) -> list[Partition]:
        """Return the partitions that name a cell on the way to this one, or this one."""
        known = cell in self._tree.neighbourhood
        path = set(self._tree.neighbourhood.path(cell) if known else (cell,))
        return [each for each in self.table() if not path.isdisjoint(each.cells)]

    # --- what happens --------------------------------------------------------------------------

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        """A cell can be reached: what named it has healed. Tell the peer what is known."""
        if cell != self._context.identity.cell:
            self._expected.add(cell)
            for info in self._own():
                if cell in info.partition.cells:
                    self._heal(info, peer)
            self._name_what_is_cut(peer)  # of a healed one, some cells may still be away
        incarnation = self._peers.incarnation_of(peer)
        for info, _, _ in self._known():
            if info.formed and info.partition.detector == peer and info.incarnation < incarnation:
                self._heal(info, peer)  # its detector has begun anew and forgotten it
        for info, _, _ in self._known():
            self._send(peer, cell, info)

    def session_closed(self, peer: BrokerId, cell: CellId) -> None:
        """A session is over; if it was the last one to its cell, that is a partition."""
        del peer
        if cell != self._context.identity.cell:
            self._name_what_is_cut(None)

    def received(self, peer: BrokerId, message: PartitionInfo) -> bool:
        """Take the state of a partition from a peer and pass it on; say whether it was newer."""
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
        """Return the news of partitions that this broker has found and that have not healed."""
        return [each.info for each in self._states.values() if self._is_own(each.info)]

    def _is_own(self, info: PartitionInfo) -> bool:
        return info.formed and info.partition.detector == self._me

    def _expect_all_later(self) -> None:
        """Give brokers that have just come time to be reached, or to be given up."""
        patience = microseconds(ms=2 * self._context.parameters.session_timeout_ms)
        self._context.call_later(patience, self._expect_all)

    def _expect_all(self) -> None:
        neighbourhood = self._tree.neighbourhood
        self._expected.update(
            info.name for info in neighbourhood.cells if info.name != neighbourhood.own
        )
        self._name_what_is_cut(None)

    def _renew(self) -> None:
        """Tell again what this broker sees; who has told of others and is dead does not."""
        self._context.call_later(self._renew_us, self._renew)
        hops = 2 * self._context.parameters.delta
        for info in self._own():
            renewal = info.renewal + 1
            self._store(msgspec.structs.replace(info, renewal=renewal, hops_left=hops), None)

    def _name_what_is_cut(self, source: BrokerId | None) -> None:
        """Make a pid for every cell that should be reached, is not, and is named by no own pid."""
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
        """Yield a cell and those beyond it, on every branch up to the first that is reached."""
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
        healed = msgspec.structs.replace(info, formed=False, renewal=info.renewal + 1)
        self._store(healed, source)

    # --- telling and forgetting ----------------------------------------------------------------

    def _store(
        self, info: PartitionInfo, source: BrokerId | None, *, sideways: bool = True
    ) -> None:
        """Keep news and tell it, but not back.

        What a peer of the own cell has told is not told to others of the cell: it tells them itself.
        So every circle crosses an edge, and the hops end it.
        """
        key, now = _key(info), self._context.now
        held = self._states.get(key)
        if held is not None and held.info.formed == info.formed:
            self._states[key] = _PartitionState(info, held.since, now)
        else:
            self._states.pop(key, None)  # the newest stands last
            self._states[key] = _PartitionState(info, now, now)
        self._shrink()
        for peer in self._peers.open_peers():
            cell = self._tree.neighbourhood.cell_of(peer)
            if cell is None or peer == source:
                continue
            if sideways or cell != self._context.identity.cell:
                self._send(peer, cell, info)

    def _send(self, peer: BrokerId, cell: CellId, info: PartitionInfo) -> None:
        """Tell a peer, if it is near enough and does not know better itself."""
        left = info.hops_left - self._tree.neighbourhood.distance(cell)
        if left >= 0 and peer != info.partition.detector:
            self._context.send(peer, msgspec.structs.replace(info, hops_left=left))

    def _known(self) -> list[_PartitionState]:
        """Return all news, oldest first, after forgetting what is too old.

        What is not renewed is over, and remembered as that: somebody else may still tell of it.
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
        """Drop the oldest news, but not what this broker still has to heal."""
        surplus = len(self._states) - PARTITIONS_MAX
        others = [key for key, (info, _, _) in self._states.items() if not self._is_own(info)]
        for key in others[: max(0, surplus)]:
            self._context.mark("partition forgotten")
            del self._states[key]


def _rank(info: PartitionInfo) -> tuple[int, bool, int]:
    """Return what makes news better: it is newer, it says that all is over, its way was shorter.

    What comes first may have come by a detour, with too few hops left for those beyond.
    """
    return info.renewal, not info.formed, info.hops_left


def _key(info: PartitionInfo) -> _Key:
    return info.partition.detector, info.incarnation, info.partition.counter
