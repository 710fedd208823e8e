"""Tables: they cover what they claim, and copies equal their originals."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

from gapless.broker import Broker
from gapless.core.events import MachineEvent
from gapless.core.ids import BrokerId, PubendId, ShbId, VectorEntry, VirtualTime
from gapless.messages.propagation import TableId
from gapless.propagation import Edge, LeafTable, SubscriptionTable
from gapless_lab.sim.invariants.global_state import GlobalState
from gapless_lab.sim.invariants.monitor import Invariant

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedProcess, World

__all__ = ["TableInvariant"]


class _TableVersion(NamedTuple):
    """A version of a table as its broker made it."""

    conjunctions: frozenset[str]
    entries: dict[ShbId, VectorEntry]
    known: dict[PubendId, int]
    late: dict[PubendId, frozenset[ShbId]]
    mask: int
    """The events that its conjunctions match."""

    def equals(self, copy: SubscriptionTable) -> bool:
        """Return whether a copy has the same content."""
        return (
            copy.conjunctions.keys() == self.conjunctions
            and copy.entries == self.entries
            and copy.known == self.known
            and copy.late == self.late
        )


class _BrokerSnapshot:
    """What was last seen of one incarnation of a broker."""

    def __init__(self) -> None:
        self.owners: dict[Hashable, object] = {}
        """A copy of the leaf table's owners."""
        self.wanted: dict[Hashable, tuple[VirtualTime, int]] = {}
        """By owner its start, and the events that it wants."""
        self.versions: dict[str, int] = {}
        self.revisions: dict[str, int] = {}
        self.copies: dict[int, tuple[TableId, int]] = {}


class TableInvariant(Invariant):
    """I4, S-Λ: if a table claims an SHB for a pubend at a virtual time, its conjunctions cover what
    the present owners of that SHB that had started by then want of the pubend. I5: a copy equals
    its sender's table of that incarnation and version.

    The table of a leaf and an out-table are checked when a version is made, a stale table when it
    is merged. A copy needs only I5, because its claims were checked when it was made. A later owner
    is checked when it is added (R16): every version of the leaf's table from the owner's start on
    covers it.

    I14: an edge has at most one table for each broker of its direction, and one more.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._made: dict[tuple[TableId, int], _TableVersion] = {}
        self._seen: dict[BrokerId, _BrokerSnapshot] = {}
        self.made_at: dict[ShbId, list[tuple[int, VirtualTime]]] = {}
        """By SHB, when it made which version of its table."""

    def started(self, world: World, process: SimulatedProcess) -> None:
        """A restarted broker has no tables yet."""
        del world
        self._seen[process.host.broker] = _BrokerSnapshot()

    def crashed(self, world: World, process: SimulatedProcess) -> None:
        """A crash removes the owners."""
        del world
        self._seen.pop(process.host.broker, None)

    def moved(self, process: SimulatedProcess, machine: Broker, event: MachineEvent) -> None:
        """Check what has changed."""
        del event
        seen = self._seen[process.host.broker]
        leaf, holdings = machine.components.exchange.leaf, machine.components.exchange.table_store
        before = seen.wanted
        if leaf.owners != seen.owners:
            seen.owners = dict(leaf.owners)
            seen.wanted = {
                owner: before.get(owner, (start, 0))
                if owner in before and before[owner][0] == start
                else (start, self.global_state.domain.of_all(wanted))
                for owner, (wanted, start) in leaf.owners.items()
            }
        self._look_at(process, seen, leaf.sender.table)
        for out in holdings.out.values():
            self._look_at(process, seen, out.sender.table)
        if seen.wanted is not before:
            self._look_at_owners(process, leaf, before, seen.wanted)
        for name, edge in holdings.edges.items():
            if edge.revision != seen.revisions.get(name):
                seen.revisions[name] = edge.revision
                self._look_at_edge(process, seen, name, edge)

    # --- what is made ------------------------------------------------------------------------

    def _look_at(
        self, process: SimulatedProcess, seen: _BrokerSnapshot, table: SubscriptionTable
    ) -> None:
        """Record and check a new version of a table."""
        name, version = table.name, table.version
        if seen.versions.get(name.direction) == version:
            return
        seen.versions[name.direction] = version
        mask = self.global_state.domain.of_all(table.conjunctions.values())
        self._made[name, version] = _TableVersion(
            frozenset(table.conjunctions),
            dict(table.entries),
            dict(table.known),
            dict(table.late),
            mask,
        )
        if table.leaf:
            for shb, entry in table.entries.items():
                self.made_at.setdefault(shb, []).append((self.world.now, entry.time))
        self._check(process, table, mask)

    def _check(self, process: SimulatedProcess, table: SubscriptionTable, covered: int) -> None:
        """Check that a table covers what it claims (I4)."""
        for shb, entry in table.entries.items():
            missing = self._required(shb, entry) & ~covered
            if not missing:
                continue
            for pubend, texts in self.global_state.advertisements.items():
                version = max(texts) if table.leaf else table.known.get(pubend, 0)
                if version not in texts or table.claim(shb, pubend, version) is None:
                    continue
                lost = missing & self.global_state.domain.of_filter(texts[version])
                if lost:
                    self.world.violate(
                        "I4",
                        f"{process.host.broker} has {table!r}, which claims {shb} at "
                        f"{entry.time} for {pubend} and misses {self.global_state.domain.first(lost)}",
                    )
                    return

    def _required(self, shb: ShbId, entry: VectorEntry) -> int:
        """Return the events that owners of an SHB want that had started at an entry's time."""
        seen = self._seen.get(shb.broker)
        mask = 0
        if seen is not None and not entry.retired:
            for start, wanted in seen.wanted.values():
                if start.incarnation == entry.time.incarnation and start <= entry.time:
                    mask |= wanted
        return mask

    def _look_at_owners(
        self,
        process: SimulatedProcess,
        leaf: LeafTable,
        before: dict[Hashable, tuple[VirtualTime, int]],
        owners: dict[Hashable, tuple[VirtualTime, int]],
    ) -> None:
        """Check that all versions from a new owner's start on cover the owner (R16)."""
        table = leaf.sender.table
        for owner, (start, wanted) in owners.items():
            if before.get(owner) == (start, wanted):
                continue
            for version in range(start.counter, table.version + 1):
                made = self._made.get((table.name, version))
                if made is not None and wanted & ~made.mask:
                    missed = self.global_state.domain.first(wanted & ~made.mask)
                    self.world.violate(
                        "I4",
                        f"{process.host.broker}: owner {owner} starts at {start}, but version "
                        f"{version} of its table misses {missed}",
                    )
                    return

    # --- what is held ------------------------------------------------------------------------

    def _look_at_edge(
        self, process: SimulatedProcess, seen: _BrokerSnapshot, name: str, edge: Edge
    ) -> None:
        me = process.host.broker
        count = 0
        for held in edge.held():
            count += 1
            table = held.table
            if table is None:
                continue
            key = (table.name, table.version)
            if table is edge.merged_stale and edge.leaf is None:
                self._check(
                    process, table, self.global_state.domain.of_all(table.conjunctions.values())
                )
            elif seen.copies.get(held.number) != key:
                seen.copies[held.number] = key
                made = self._made.get(key)
                if made is None:
                    self.world.violate("I5", f"{me} holds {table!r}, which no broker made")
                elif not made.equals(table):
                    self.world.violate(
                        "I5", f"{me} holds {table!r}, which differs from the original"
                    )
        if count > self._tables_max(process, name, edge):
            self.world.violate("I14", f"{me} has {count} tables of {name}")

    def _tables_max(self, process: SimulatedProcess, name: str, edge: Edge) -> int:
        if edge.leaf is not None:
            return 2
        machine = process.machine
        assert isinstance(machine, Broker)
        around = machine.neighbourhood
        return 1 + sum(
            len(cell.brokers) for cell in around.cells if around.direction(cell.name) == name
        )
