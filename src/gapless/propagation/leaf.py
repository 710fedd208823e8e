"""The leaf table of an SHB: its conjunctions, its virtual time, its virtual start times.

A conjunction is in the table while it has an owner: a live subscription, a filter segment that some
stream has not passed, a filter restricted by a control version still in use, or a durable
subscription within the interest grace (R17). The caller defines the owners; here they are keys.

The counter of the virtual time is the version of the table. A new conjunction that is covered by
one in the forest gets the start time of its coverer. Any other gets the version that will carry it
(R16, VT 4.1.3). So every version from a conjunction's start time on covers it while it is owned.
Start times never grow from the roots of the forest downward (VT 4.1.2, monotonicity).

An SHB makes a new table in a new incarnation. Its incarnation is greater, so all start times are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import islice

from gapless.content import Conjunction
from gapless.core.ids import ShbId, VectorEntry, VirtualTime
from gapless.core.limits import COVERER_LOOKS_MAX
from gapless.messages.propagation import TableDelta, TableId
from gapless.propagation.cover import CoverSet, Merge
from gapless.propagation.transfer import TableSender

__all__ = ["LeafTable"]


class LeafTable:
    """The conjunctions of an SHB by owner, and the table that contains them.

    The table is empty before the first :meth:`flush`. That one publishes the new incarnation, also
    of an SHB without subscriptions.
    """

    def __init__(
        self,
        shb: ShbId,
        incarnation: int,
        *,
        budget: int,
        merge: Merge,
        log_max: int,
        bytes_max: int,
    ) -> None:
        self.shb = shb
        self.incarnation = incarnation
        self.sender = TableSender(
            TableId(shb.broker, incarnation, str(shb)), 0, log_max=log_max, bytes_max=bytes_max
        )
        self._cover = CoverSet(budget, merge)
        self._starts: dict[Conjunction, int] = {}
        self._below: dict[Conjunction, dict[Conjunction, None]] = {}
        """The children of each conjunction in the forest."""
        self._owners: dict[Hashable, tuple[tuple[Conjunction, ...], VirtualTime]] = {}
        self._control_version = 0
        self._retired = False
        self._promised = False
        """Whether a start time was given out that only the next version reaches."""

    # --- state -------------------------------------------------------------------------------

    @property
    def time(self) -> VirtualTime:
        """The virtual time of the last version."""
        return VirtualTime(self.incarnation, self.sender.table.version)

    @property
    def entry(self) -> VectorEntry:
        """The only entry of the table, with changes that are not flushed yet."""
        return VectorEntry(self.time, self._control_version, self._retired)

    @property
    def owners(self) -> Mapping[Hashable, tuple[tuple[Conjunction, ...], VirtualTime]]:
        """The owners, each with its conjunctions and its virtual start time."""
        return self._owners

    @property
    def roots(self) -> frozenset[Conjunction]:
        """The conjunctions that cover all others."""
        return self._cover.forest.roots

    @property
    def dirty(self) -> bool:
        """Whether the next flush makes a new version (R15).

        It does also if a start time of the next version was given out and the roots are unchanged.
        Otherwise a conjunction removed and added again within one batch would never start.
        """
        sent = self.sender.table.entries.get(self.shb)
        return self._promised or self._cover.changed or sent != self.entry

    def __contains__(self, owner: Hashable) -> bool:
        return owner in self._owners

    def start(self, owner: Hashable) -> VirtualTime:
        """Return an owner's virtual start time; KeyError if it owns nothing."""
        return self._owners[owner][1]

    def conjunction_start(self, conjunction: Conjunction) -> VirtualTime:
        """Return a conjunction's virtual start time; KeyError if it has no owner."""
        return VirtualTime(self.incarnation, self._starts[conjunction])

    def statistics(self) -> dict[str, int]:
        """Return counters for operators."""
        return {
            "owners": len(self._owners),
            "conjunctions": len(self._cover.forest),
            "roots": len(self.roots),
            "sent": len(self.sender.table.conjunctions),
            "version": self.sender.table.version,
        }

    # --- changes -----------------------------------------------------------------------------

    def own(self, owner: Hashable, conjunctions: Iterable[Conjunction]) -> VirtualTime:
        """Add an owner of conjunctions; return its start time, the greatest of theirs."""
        assert owner not in self._owners, f"{owner!r} owns conjunctions already"
        assert not self._retired, "a retired SHB has no owners"
        distinct = tuple(dict.fromkeys(conjunctions))
        for conjunction in distinct:
            self._insert(conjunction)
        # an owner without conjunctions starts as soon as its SHB is served
        counter = max((self._starts[conjunction] for conjunction in distinct), default=1)
        start = VirtualTime(self.incarnation, counter)
        self._owners[owner] = (distinct, start)
        return start

    def disown(self, owner: Hashable) -> None:
        """Remove an owner; KeyError if it owns nothing."""
        for conjunction in self._owners.pop(owner)[0]:
            self._remove(conjunction)

    def restrict(self, control_version: int) -> None:
        """Note that the conjunctions are restricted by a newer control version."""
        assert control_version >= self._control_version, "control versions only grow"
        self._control_version = control_version

    def retire(self) -> None:
        """Remove all owners and mark the SHB as retired (R26)."""
        for owner in tuple(self._owners):
            self.disown(owner)
        self._retired = True

    def flush(self) -> TableDelta | None:
        """Advance the counter and return the delta, None if nothing has changed."""
        if not self.dirty:
            return None
        change = self._cover.take()
        self._promised = False
        table = self.sender.table
        time = VirtualTime(self.incarnation, table.version + 1)
        delta = table.difference(
            added=change.added,
            removed=change.removed,
            entries={self.shb: VectorEntry(time, self._control_version, self._retired)},
        )
        assert delta is not None, "the virtual time has changed"
        return self.sender.advance(delta)

    # --- the forest --------------------------------------------------------------------------

    def _insert(self, conjunction: Conjunction) -> None:
        if conjunction in self._starts:
            self._cover.insert(conjunction)
            return
        self._starts[conjunction] = self._new_start(conjunction)
        self._below[conjunction] = {}
        change = self._cover.insert(conjunction)
        self._hang((conjunction, *change.removed))

    def _remove(self, conjunction: Conjunction) -> None:
        parent = self._cover.forest.parent(conjunction)
        change = self._cover.remove(conjunction)
        if conjunction in self._cover.forest:
            return
        if parent is not None:
            del self._below[parent][conjunction]
        del self._starts[conjunction]
        taken_over = (root for root in change.removed if root != conjunction)
        self._hang((*self._below.pop(conjunction), *taken_over))

    def _hang(self, conjunctions: Iterable[Conjunction]) -> None:
        """Record the new parents of conjunctions in the forest."""
        for conjunction in conjunctions:
            parent = self._cover.forest.parent(conjunction)
            if parent is not None:
                self._below[parent][conjunction] = None
                self._lower(conjunction, self._starts[parent])

    def _lower(self, conjunction: Conjunction, start: int) -> None:
        """Lower the start time of a conjunction and all below it to that of its coverer.

        A new conjunction is given one coverer. When that one is removed, the next coverer may have
        an earlier start time.
        """
        stack = [conjunction]
        while stack:
            conjunction = stack.pop()
            if self._starts[conjunction] > start:
                self._starts[conjunction] = start
                stack.extend(self._below[conjunction])

    def _new_start(self, conjunction: Conjunction) -> int:
        """Return the least start time of the coverers found, else that of the next version."""
        coverer = self._cover.forest.coverer(conjunction)
        if coverer is None:
            self._promised = True
            return self.sender.table.version + 1
        looks = 0
        while looks < COVERER_LOOKS_MAX:
            children = self._below[coverer]
            looks += len(children) + 1
            # the oldest children come first, and start times never grow downward
            nearer = [
                child for child in islice(children, COVERER_LOOKS_MAX) if child.covers(conjunction)
            ]
            if not nearer:
                break
            coverer = min(nearer, key=self._starts.__getitem__)
        start = self._starts[coverer]
        self._promised |= start > self.sender.table.version
        return start
