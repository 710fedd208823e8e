"""The tree: what its records, its edge epochs and the feeds over its edges keep (R-1, R-9, R-11)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from gapless.broker import Broker
from gapless.core.events import MachineEvent
from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.feeds.feed import is_leaf_number
from gapless.messages.overlay import CellRecord, ShapeVersion, Term
from gapless.messages.records import NeighbourhoodRecord, PutRecord, StorageChange
from gapless.messages.streams import Attach, Attached, FeedUnavailable, FeedUnavailableReason
from gapless.overlay.neighbourhood import Neighbourhood
from gapless_lab.sim.invariants.global_state import GlobalState
from gapless_lab.sim.invariants.monitor import Invariant, MessageHandler

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedHost, SimulatedProcess, World

__all__ = ["QuietEdgeInvariant", "TreeInvariant"]

Path: TypeAlias = tuple[tuple[CellId, CellId, ShapeVersion | None], ...]
"""The edges between two cells, with their epochs in one view."""


def _path(view: Neighbourhood, cell: CellId) -> Path | None:
    """Return the path from the own cell to another in one view, independent of its direction."""
    path = view.find_path(cell)
    if path is None:
        return None
    edges = pairwise((view.own, *path))
    return tuple(sorted((min(edge), max(edge), view.epoch(*edge)) for edge in edges))


class TreeInvariant(Invariant):
    """R-1: the live edges by the newest durable records form a tree after each decision. Two records
    of a cell with one version are equal, so a cell has at most one leader in a term.

    R-9: no epoch of an edge is given twice. A router is fed only if both ends know the same epochs
    on the path between them: the feeder knows them when it promises the feed, the receiver knew
    them when it asked for it.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._versions: dict[tuple[CellId, object], CellRecord] = {}
        self._leaders: dict[tuple[CellId, Term], BrokerId] = {}
        self._epochs: dict[tuple[CellId, CellId], list[ShapeVersion]] = defaultdict(list)
        """All epochs that the records of a cell gave an edge, in the order in which they came."""
        self._asked: dict[tuple[BrokerId, str, PubendId, int], list[Path | None]] = {}
        """By receiver, feeder, pubend and number: the paths that the receiver knew when it asked."""
        self.world.tree.listeners.append(self._decided)
        self._decided()

    def message_handlers(self) -> Mapping[type, MessageHandler]:
        """Handle requests for feeds, and the replies."""
        return {Attach: self._attach, Attached: self._attached, FeedUnavailable: self._refused}

    # --- records -------------------------------------------------------------------------------

    def durable(self, host: SimulatedHost, change: StorageChange) -> None:
        """Check that equal versions mean equal records, on all disks."""
        if type(change) is PutRecord and type(change.record) is NeighbourhoodRecord:
            for record in change.record.cells:
                self._look_at(record, f"on the disk of {host.broker}")

    def _decided(self) -> None:
        """Check the tree after a decision."""
        tree = self.world.tree
        for record in tree.records.values():
            self._look_at(record, "decided")
            for edge in record.edges:
                self._note_epoch(record.name, edge.cell, edge.epoch)
        if not tree.is_tree:
            edges = {cell: tree.graph.neighbours(cell) for cell in tree.records}
            self.world.violate("R-1", f"the live edges form no tree: {edges}")

    def _look_at(self, record: CellRecord, where: str) -> None:
        known = self._versions.setdefault((record.name, record.version), record)
        if known != record:
            self.world.violate("R-1", f"{record!r}, {where}, has the version of {known!r}")
        leader = self._leaders.setdefault((record.name, record.term), record.leader)
        if leader != record.leader:
            self.world.violate(
                "R-1",
                f"{record.name} has the leaders {leader} and {record.leader} in {record.term}",
            )

    def _note_epoch(self, cell: CellId, other: CellId, epoch: ShapeVersion) -> None:
        given = self._epochs[cell, other]
        if given and given[-1] == epoch:
            return
        if epoch in given:
            self.world.violate("R-9", f"the edge {cell} - {other} has its epoch {epoch} again")
        given.append(epoch)

    # --- feeds ---------------------------------------------------------------------------------

    def _attach(self, process: SimulatedProcess, peer: str, message: Attach) -> None:
        feeder = self.world.hosts.get(peer)
        if feeder is None or is_leaf_number(message.number):
            return
        me = process.host.broker
        asked = self._asked.setdefault((me, peer, message.pubend, message.number), [])
        path = _path(_view(process), feeder.cell)
        if path not in asked:
            asked.append(path)

    def _attached(self, process: SimulatedProcess, peer: str, message: Attached) -> None:
        asked, path = self._views(process, peer, message)
        if asked and path not in asked:
            self.world.violate(
                "R-9",
                f"{process.host.broker} feeds {peer} with {message.pubend} over {path}, but was "
                f"asked over {asked}",
            )

    def _refused(self, process: SimulatedProcess, peer: str, message: FeedUnavailable) -> None:
        """A feed whose path is the same in both views is not refused for the tree (R-11)."""
        asked, path = self._views(process, peer, message)
        mismatch = message.reason is FeedUnavailableReason.SHAPE_MISMATCH
        if mismatch and asked == [path]:
            self.world.violate(
                "R-11",
                f"{process.host.broker} refuses to feed {peer} with {message.pubend} because of the "
                f"tree, but both know {path}",
            )

    def _views(
        self, process: SimulatedProcess, peer: str, message: Attached | FeedUnavailable
    ) -> tuple[list[Path | None], Path | None]:
        """Return the paths that a receiver has asked over, and the one that the feeder knows."""
        me = process.host.broker
        asked = self._asked.get((peer, me, message.pubend, message.number), [])
        receiver = self.world.hosts.get(peer)
        return asked, None if receiver is None else _path(_view(process), receiver.cell)


class QuietEdgeInvariant(Invariant):
    """R-11: a step of the tree at a broker ends no feed whose path has no touched edge.

    A broker that missed an operation on its own cell, or that does not know where a new neighbour
    lay before, may renew all its feeds (RS-37).
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._before: dict[BrokerId, tuple[Neighbourhood, dict[PubendId, BrokerId]]] = {}
        """The tree and the feeders of a broker after its last step."""

    def started(self, world: World, process: SimulatedProcess) -> None:
        """A restarted broker has no feeds."""
        del world
        self._before.pop(process.host.broker, None)

    def moved(self, process: SimulatedProcess, machine: Broker, event: MachineEvent) -> None:
        """Compare the feeders before and after a step of the tree."""
        del event
        if self.global_state.options.reshape_rate <= 0:
            return
        me, view = process.host.broker, machine.neighbourhood
        feeders = {
            pubend: routed.feeder
            for pubend, routed in machine.components.router.routed.items()
            if routed.feeder is not None
        }
        before = self._before.get(me)
        self._before[me] = (view, feeders)
        if before is not None and before[0] is not view and not _forgets_all(before[0], view):
            self._check(machine, *before, feeders)

    def _check(
        self,
        machine: Broker,
        old: Neighbourhood,
        before: dict[PubendId, BrokerId],
        feeders: dict[PubendId, BrokerId],
    ) -> None:
        new, sessions = machine.neighbourhood, machine.components.sessions
        for pubend, feeder in before.items():
            cell = self.world.hosts[feeder].cell
            path = _path(old, cell)
            is_quiet = path is not None and path == _path(new, cell) and sessions.is_open(feeder)
            routed = machine.components.router.routed.get(pubend)
            wanted = routed is not None and bool(routed.attachments)
            if is_quiet and wanted and pubend not in feeders:
                self.world.violate(
                    "R-11",
                    f"{machine.context.identity.broker} loses the feed of {pubend} from {feeder} in "
                    f"a step that does not touch {path}",
                )


def _forgets_all(old: Neighbourhood, new: Neighbourhood) -> bool:
    before, after = old.shape_version(old.own), new.shape_version(new.own)
    is_one = before == after or (before.term, before.count + 1) == (after.term, after.count)
    return not is_one or any(cell not in old for cell in new.neighbours)


def _view(process: SimulatedProcess) -> Neighbourhood:
    machine = process.machine
    assert isinstance(machine, Broker), "only brokers are monitored"
    return machine.neighbourhood
