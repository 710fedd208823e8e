"""The strands of a subend, grouped by what they wait for.

There may be thousands, and every piece of the stream concerns some of them: who waits to start, who is
live, who waits for the horizon. So each group is kept, and not looked for.
"""

from __future__ import annotations

from gapless.core.ids import VirtualTime
from gapless.messages.clients import Order
from gapless.subscribers.cursor import Strand
from gapless.subscribers.cursor_state import State

__all__ = ["Crew"]


class Crew:
    """All strands of one stream at one host, by subscription."""

    def __init__(self) -> None:
        self.all: dict[str, Strand] = {}
        """Whatever their state."""
        self.waiting: dict[str, Strand] = {}
        """Those that have not started."""
        self.early: dict[str, Strand] = {}
        """Those that begin where the pubend says that it knew of them."""
        self.live: dict[str, Strand] = {}
        self.attentive: dict[str, Strand] = {}
        """Those that wait for the horizon to move."""
        self.changing: dict[str, Strand] = {}
        """Those whose next filter waits to take over."""
        self.turn = 0
        """Counts who became live: an answer to an older question may lack somebody."""
        self._merging: dict[str, Strand] = {}
        """Those in total order."""
        self._changes = 0
        """Counts what was registered; a thousand strands are not asked about every piece."""
        self._coverage: tuple[VirtualTime, int] | None = None
        """A virtual time that was enough for all that were live, and after how many changes."""

    def register(self, strand: Strand) -> bool:
        """Note the state and the filters of a strand; say whether it is a new one in total order."""
        self._changes += 1
        name = strand.subscription.name
        is_new = name not in self.all
        merges = is_new and strand.subscription.order is Order.TOTAL
        if is_new:
            self.all[name] = strand
        if merges:
            self._merging[name] = strand
        if strand.is_live and name not in self.live:
            self.turn += 1
        waits = strand.state is State.WAITING and not strand.is_early
        _sort(self.early, strand, belongs=strand.is_early)
        _sort(self.waiting, strand, belongs=waits)
        _sort(self.live, strand, belongs=strand.is_live)
        _sort(self.attentive, strand, belongs=strand.total or strand.reads_log)
        _sort(self.changing, strand, belongs=strand.next is not None)
        return merges

    def forget(self, strand: Strand) -> bool:
        """A subscription has ended; say whether it was in total order."""
        name = strand.subscription.name
        if self.all.get(name) is not strand:
            return False
        del self.all[name]
        for group in (self.waiting, self.early, self.live, self.attentive, self.changing):
            group.pop(name, None)
        return self._merging.pop(name, None) is not None

    @property
    def is_merged(self) -> bool:
        """Whether somebody waits in total order for this stream."""
        return any(strand.total for strand in self._merging.values())

    def is_covered(self, time: VirtualTime | None) -> bool:
        """Say whether a stream served up to a virtual time is enough for all that are live."""
        if not self.live or (time is not None and self._coverage == (time, self._changes)):
            return True
        covered = all(strand.segment.reached_by(time) for strand in self.live.values())
        if covered and time is not None:
            self._coverage = (time, self._changes)
        return covered


def _sort(group: dict[str, Strand], strand: Strand, *, belongs: bool) -> None:
    if belongs:
        group[strand.subscription.name] = strand
    else:
        group.pop(strand.subscription.name, None)
