"""The table of a subscriber host: its conjunctions, its virtual clock, its start times.

A conjunction is in the table as long as somebody owns it: a live subscription, a segment of a
filter that some stream has not passed, a form restricted by a control version that is still in use,
a durable subscription whose client has just left (R17). Who owns what is the caller's business;
owners are names here.

The virtual counter is the version of the table. A new conjunction that one in the forest covers
starts when that one did; any other starts with the version that will bring it to others (R16,
VT 4.1.3). So every version from a conjunction's start time on covers it, as long as it is owned.
Going down the forest, start times never grow (VT 4.1.2, monotonicity).

A host that begins a new life makes a new table: its life is greater, so all its start times are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import islice

from gapless.content import Conjunction
from gapless.core.ids import ShbId, VectorEntry, VirtualTime
from gapless.core.limits import COVERER_LOOKS_MAX
from gapless.messages.propagation import TableDelta, TableId
from gapless.propagation.cover import CoverSet, Merge
from gapless.propagation.transfer import TableSender

__all__ = ["LeafTable"]


class LeafTable:
    """What a subscriber host wants, owner by owner, and the table that says so.

    Nothing is said before the first :meth:`flush`; that one says the new life, also of a host
    without subscribers.
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
        """What hangs below a conjunction in the forest."""
        self._owners: dict[Hashable, tuple[tuple[Conjunction, ...], VirtualTime]] = {}
        self._control_version = 0
        self._retired = False
        self._promised = False
        """Whether a start time was handed out that only the next version reaches."""

    # --- what it says ------------------------------------------------------------------------

    @property
    def time(self) -> VirtualTime:
        """The virtual time of what was said last."""
        return VirtualTime(self.incarnation, self.sender.table.version)

    @property
    def entry(self) -> VectorEntry:
        """The one entry of the table, as it is or will be said."""
        return VectorEntry(self.time, self._control_version, self._retired)

    @property
    def roots(self) -> frozenset[Conjunction]:
        """The conjunctions that cover all others."""
        return self._cover.forest.roots

    @property
    def dirty(self) -> bool:
        """Whether the next flush has something to say (R15).

        Also if a start time of the next version was handed out and the roots are as before: a
        conjunction that was dropped and added again within one batch would never start otherwise.
        """
        sent = self.sender.table.entries.get(self.shb)
        return self._promised or self._cover.changed or sent != self.entry

    def __contains__(self, owner: Hashable) -> bool:
        return owner in self._owners

    def start(self, owner: Hashable) -> VirtualTime:
        """Return an owner's virtual start time; KeyError if it owns nothing."""
        return self._owners[owner][1]

    def conjunction_start(self, conjunction: Conjunction) -> VirtualTime:
        """Return a conjunction's virtual start time; KeyError if nobody owns it."""
        return VirtualTime(self.incarnation, self._starts[conjunction])

    def statistics(self) -> dict[str, int]:
        """Return counts for people."""
        return {
            "owners": len(self._owners),
            "conjunctions": len(self._cover.forest),
            "roots": len(self.roots),
            "sent": len(self.sender.table.conjunctions),
            "version": self.sender.table.version,
        }

    # --- how it changes ----------------------------------------------------------------------

    def own(self, owner: Hashable, conjunctions: Iterable[Conjunction]) -> VirtualTime:
        """Let a new owner want conjunctions; return its start time, the greatest of theirs."""
        assert owner not in self._owners, f"{owner!r} owns conjunctions already"
        assert not self._retired, "a retired host has no owners"
        wanted = tuple(dict.fromkeys(conjunctions))
        for conjunction in wanted:
            self._insert(conjunction)
        # an owner that wants nothing starts wherever its host is served at all
        counter = max((self._starts[conjunction] for conjunction in wanted), default=1)
        start = VirtualTime(self.incarnation, counter)
        self._owners[owner] = (wanted, start)
        return start

    def disown(self, owner: Hashable) -> None:
        """Let an owner want nothing more; KeyError if it owns nothing."""
        for conjunction in self._owners.pop(owner)[0]:
            self._remove(conjunction)

    def restrict(self, control_version: int) -> None:
        """Say that the conjunctions are restricted by a newer control version."""
        assert control_version >= self._control_version, "control versions only grow"
        self._control_version = control_version

    def retire(self) -> None:
        """Leave for good: own nothing, and say so (R26)."""
        for owner in tuple(self._owners):
            self.disown(owner)
        self._retired = True

    def flush(self) -> TableDelta | None:
        """Advance the counter and return the delta, if there is something to say."""
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
        """Note below what the forest has hung these."""
        for conjunction in conjunctions:
            parent = self._cover.forest.parent(conjunction)
            if parent is not None:
                self._below[parent][conjunction] = None
                self._lower(conjunction, self._starts[parent])

    def _lower(self, conjunction: Conjunction, start: int) -> None:
        """Let what is found to be covered by an older one start as early, and all below it.

        One coverer is looked for when a conjunction comes; another may turn out to be older when
        that one goes.
        """
        stack = [conjunction]
        while stack:
            conjunction = stack.pop()
            if self._starts[conjunction] > start:
                self._starts[conjunction] = start
                stack.extend(self._below[conjunction])

    def _new_start(self, conjunction: Conjunction) -> int:
        """Return the least start time of those found to cover it, else that of the next version."""
        coverer = self._cover.forest.coverer(conjunction)
        if coverer is None:
            self._promised = True
            return self.sender.table.version + 1
        looks = 0
        while looks < COVERER_LOOKS_MAX:
            children = self._below[coverer]
            looks += len(children) + 1
            # the oldest children come first, and start times never grow on the way down
            nearer = [
                child for child in islice(children, COVERER_LOOKS_MAX) if child.covers(conjunction)
            ]
            if not nearer:
                break
            coverer = min(nearer, key=self._starts.__getitem__)
        start = self._starts[coverer]
        self._promised |= start > self.sender.table.version
        return start
