"""One step of the tree around a broker: the interface of the reshape operations (R13).

Theory of operation
-------------------
An operation on the tree (SHIFT, APPEND, DETACH, a change of members) ends, at every broker near it,
in one step: another neighbourhood with a greater version. It is on disk before anything depends on
it; a crash before that leaves the old tree, a crash after it begins with the new one. Then, with
nothing in between:

1. **Ways.** Pubends lie where the new tree has them, and are announced again.
2. **Tables.** A new edge is unsettled until a full table came over it. The tables of an edge that is
   gone stay as old ones of the edge behind which that cell is now, or are deleted if there is none.
   All tables that this broker tells have new names, for they speak of other sets of hosts.
3. **Streams.** Receivers are fed only while both ends know the same shape of the cells between. What
   does not fit is ended, and asked for anew. A cell that *gains* a neighbour raises its scope: what
   its brokers were told silent was silent for those behind the cell before, and is forgotten.
4. **Sessions.** Those with brokers that are no longer around end; the driver is told whom to reach.

Who gains. In SHIFT(i, j, k) cell i leaves j for k. Cell k gains i, and is the only one behind which
there is more than before. Cell i gets a neighbour too, but what it lost lies behind that: the rest of
the tree is one set, before and after. It moved, and keeps what it knows. Cell j only loses. Under
APPEND the new cell is empty, so nobody was ever filtered for less.

One more thing is not as it was, at k: the tables of j still name the hosts of i's side. They would
show that those are behind j, and so not behind i. Until j has told its table in the new shape, they
are no evidence of places, and are not told to i, whose own hosts they may name.

What is left to the operations: who decides, in which order the cells change, and how those who have
not heard of it learn the newer neighbourhood. Brokers that know different shapes do not feed each
other, so between a first and a last step streams may wait; they do not lose.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from gapless.core.ids import CellId
from gapless.core.machine import SetPeers
from gapless.messages.records import NeighbourhoodRecord, PutRecord, Record
from gapless.overlay.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    from gapless.broker.entry import Broker

__all__ = ["NeighbourhoodChange", "newest"]


def newest(configured: Neighbourhood, records: Iterable[Record]) -> Neighbourhood:
    """Return the neighbourhood to begin with: the stored one, if it is newer than the configured."""
    for record in records:
        if isinstance(record, NeighbourhoodRecord) and record.own == configured.own:
            stored = Neighbourhood(record.own, record.version, record.cells)
            return max(configured, stored, key=lambda each: each.version)
    return configured


def gained(old: Neighbourhood, new: Neighbourhood) -> set[CellId]:
    """Return the neighbours that are new, without those behind which a lost one lies."""
    lost = [cell for cell in old.neighbours if cell not in new.neighbours]
    paths = [new.extended_path(cell) for cell in lost]
    instead = {path[0] for path in paths if path}
    return {cell for cell in new.neighbours if cell not in old.neighbours} - instead


class NeighbourhoodChange:
    """Takes the steps of one broker, one after the other."""

    def __init__(self, broker: Broker, neighbourhood: Neighbourhood) -> None:
        self._broker = broker
        self._present = neighbourhood
        self._latest = neighbourhood.version
        """Of the last step that was asked for; its write may be under way."""

    @property
    def neighbourhood(self) -> Neighbourhood:
        """The tree around, as all rooms have it."""
        return self._present

    def reshape(
        self, neighbourhood: Neighbourhood, unused: Collection[CellId], then: Callable[[], None]
    ) -> None:
        """Make a neighbourhood durable, then live in it, then go on."""
        own = self._present.own
        assert neighbourhood.own == own, f"{own} cannot become {neighbourhood.own}"
        assert neighbourhood.version > self._latest, f"{neighbourhood.version} is no newer version"
        self._latest = neighbourhood.version

        def stored() -> None:
            self._take(neighbourhood, unused)
            then()

        record = NeighbourhoodRecord(own, neighbourhood.version, neighbourhood.cells)
        self._broker.context.write((PutRecord(record),), stored)

    def update_peers(self) -> None:
        """Tell the driver whom to reach."""
        me = self._broker.context.identity.broker
        peers = tuple(each for each in self._present.all_brokers() if each != me)
        self._broker.context.effects.append(SetPeers(peers))

    def _take(self, new: Neighbourhood, unused: Collection[CellId]) -> None:
        """Let all rooms follow, each when what it asks of others is as it will be."""
        broker, old = self._broker, self._present
        self._present = new
        wider = bool(gained(old, new).difference(unused))
        broker.routing.reshape(new)
        broker.partitions.reshape(new)
        broker.tables.reshape(new, gained=wider)
        moved = broker.announcements.reshape(new)
        for pubend in moved:
            broker.announced(pubend)
        broker.router.reshape(wider=wider)
        broker.sessions.reshape(new)
        broker.announcements.announce_all()
        broker.tables.find_sources()
        broker.host.session_opened()
        broker.pubends.update_stream_epochs()
        self.update_peers()
