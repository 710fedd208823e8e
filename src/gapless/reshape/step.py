"""One step of the tree at this broker: the interface of the reshape operations (R13).

Theory of operation
-------------------
An operation on the tree (SHIFT, APPEND, DETACH, a change of members) ends, at every broker near it,
in one step: the broker gets another neighbourhood with a greater version. The neighbourhood is on
disk before anything depends on it. After a crash before that write the broker starts in the old
tree, after it in the new one. Then the components follow, in one step of the machine:

1. **Paths.** Each pubend gets the path that the new tree gives it, and is announced again.
2. **Tables.** A new edge is unsettled until a full table has come over it. The tables of a removed
   edge become stale tables of the edge behind which that cell lies now; if there is none, they are
   deleted. All tables that this broker sends get new ids, because they describe other sets of SHBs.
3. **Streams.** A receiver is fed only while both ends know the same shape of the cells between
   them. Other feeds end and are requested again. A cell that *gains* a neighbour raises its scope:
   silence that its brokers received held only for the SHBs that were behind the cell before, so it
   is dropped.
4. **Sessions.** Sessions with brokers outside the neighbourhood end. The driver receives the new
   peers.

In SHIFT(i, j, k) cell i leaves j for k. Cell k gains i, and k is the only cell behind which there
are more SHBs than before. Cell i gets a new neighbour too, but the cell it lost lies behind that
one: the rest of the tree is the same set before and after, so i keeps what it knows. Cell j only
loses. Under APPEND the new cell is empty, so no broker has filtered for fewer SHBs than there are.

At k the tables of j still list the SHBs of i's side, as if these SHBs were behind j and not behind
i. Until j has sent its table in the new shape, its tables are no evidence of locations, and k does
not send them to i, whose own SHBs they may list.

The operations themselves choose the coordinator and the order in which the cells change, and bring
the newer neighbourhood to brokers that were unreachable. Brokers that know different shapes do not
feed each other. So streams may wait between the first and the last step of an operation. No event
is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from gapless.core.context import Context
from gapless.core.ids import CellId
from gapless.messages.records import NeighbourhoodRecord, PutRecord
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.overlay.tree import Tree, TreeChange

__all__ = ["FollowsTree", "Reshaped", "TreeStep", "gained", "newest"]


class Reshaped(Protocol):
    """A component that follows the tree in the first pass of a step."""

    def reshape(self, change: TreeChange) -> None:
        """Take the new tree."""


class FollowsTree(Protocol):
    """A component that acts when all components have taken the new tree."""

    def reshaped(self) -> None:
        """All components have taken the new tree."""


def newest(configured: Neighbourhood, stored: NeighbourhoodRecord | None) -> Neighbourhood:
    """Return the stored neighbourhood if it is newer, else the configured one."""
    if stored is None or stored.own != configured.own or stored.version <= configured.version:
        return configured
    return Neighbourhood(stored.own, stored.version, stored.cells)


def gained(old: Neighbourhood, new: Neighbourhood) -> set[CellId]:
    """Return the new neighbours, without those behind which a former neighbour lies."""
    lost = [cell for cell in old.neighbours if cell not in new.neighbours]
    paths = [new.extended_path(cell) for cell in lost]
    instead = {path[0] for path in paths if path}
    return {cell for cell in new.neighbours if cell not in old.neighbours} - instead


class TreeStep:
    """Applies the steps of the tree at this broker, one after the other."""

    def __init__(
        self,
        context: Context,
        tree: Tree,
        first: Sequence[Reshaped],
        second: Sequence[FollowsTree],
    ) -> None:
        self._context = context
        self._tree = tree
        self._first = first
        self._second = second
        self._latest = tree.version
        """The version of the last step that was requested. Its write may be pending."""

    def reshape(
        self,
        neighbourhood: Neighbourhood,
        *,
        unused: Collection[CellId] = (),
        then: Callable[[], None],
    ) -> None:
        """Make a neighbourhood durable and apply it, then call ``then``.

        ``unused`` are new neighbours behind which there never was an SHB.
        """
        own = self._tree.neighbourhood.own
        assert neighbourhood.own == own, f"{own} cannot become {neighbourhood.own}"
        assert neighbourhood.version > self._latest, f"{neighbourhood.version} is no newer version"
        self._latest = neighbourhood.version

        def stored() -> None:
            self._apply(neighbourhood, unused)
            then()

        record = NeighbourhoodRecord(own, neighbourhood.version, neighbourhood.cells)
        self._context.write((PutRecord(record),), stored)

    def update_peers(self) -> None:
        """Pass the driver the peers to connect to."""
        me = self._context.identity.broker
        brokers = self._tree.neighbourhood.all_brokers()
        self._context.set_peers(tuple(each for each in brokers if each != me))

    def _apply(self, new: Neighbourhood, unused: Collection[CellId]) -> None:
        old = self._tree.neighbourhood
        change = TreeChange(old, new, wider=bool(gained(old, new).difference(unused)))
        self._tree.replace(new)
        for component in self._first:
            component.reshape(change)
        for follower in self._second:
            follower.reshaped()
        self.update_peers()
