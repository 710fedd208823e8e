"""The strands of a subend, grouped by what they wait for.

There may be thousands, and every piece of the stream concerns some of them: who waits to start, who is
live, who waits for the horizon. So each group is kept, and not looked for.
"""

from __future__ import annotations

from gapless.core.ids import VirtualTime
from gapless.messages.clients import Order
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import CursorPhase

__all__ = ["CursorGroups"]


class CursorGroups:
    """All strands of one stream at one host, by subscription."""

    def __init__(self) -> None:
        self.all: dict[str, Cursor] = {}
        """Whatever their state."""
        self.pending: dict[str, Cursor] = {}
        """Those that have not started."""
        self.guaranteed: dict[str, Cursor] = {}
        """Those that begin where the pubend says that it knew of them."""
        self.live: dict[str, Cursor] = {}
        self.behind: dict[str, Cursor] = {}
        """Those that wait for the horizon to move."""
        self.changing: dict[str, Cursor] = {}
        """Those whose next filter waits to take over."""
        self.turn = 0
        """Counts who became live: an answer to an older question may lack somebody."""
        self._merging: dict[str, Cursor] = {}
        """Those in total order."""
        self._changes = 0
        """Counts what was registered; a thousand strands are not asked about every piece."""
        self._coverage: tuple[VirtualTime, int] | None = None
        """A virtual time that was enough for all that were live, and after how many changes."""

    def register(self, cursor: Cursor) -> bool:
        """Note the state and the filters of a strand; say whether it is a new one in total order."""
        self._changes += 1
        name = cursor.subscription.name
        is_new = name not in self.all
        merges = is_new and cursor.subscription.order is Order.TOTAL
        if is_new:
            self.all[name] = cursor
        if merges:
            self._merging[name] = cursor
        if cursor.is_live and name not in self.live:
            self.turn += 1
        waits = cursor.phase is CursorPhase.PENDING and not cursor.has_guarantee
        _sort(self.guaranteed, cursor, belongs=cursor.has_guarantee)
        _sort(self.pending, cursor, belongs=waits)
        _sort(self.live, cursor, belongs=cursor.is_live)
        _sort(self.behind, cursor, belongs=cursor.in_merge or cursor.reads_log)
        _sort(self.changing, cursor, belongs=cursor.next is not None)
        return merges

    def forget(self, cursor: Cursor) -> bool:
        """A subscription has ended; say whether it was in total order."""
        name = cursor.subscription.name
        if self.all.get(name) is not cursor:
            return False
        del self.all[name]
        for group in (self.pending, self.guaranteed, self.live, self.behind, self.changing):
            group.pop(name, None)
        return self._merging.pop(name, None) is not None

    @property
    def is_merged(self) -> bool:
        """Whether somebody waits in total order for this stream."""
        return any(cursor.in_merge for cursor in self._merging.values())

    def is_covered(self, time: VirtualTime | None) -> bool:
        """Say whether a stream served up to a virtual time is enough for all that are live."""
        if not self.live or (time is not None and self._coverage == (time, self._changes)):
            return True
        covered = all(cursor.segment.is_served_at(time) for cursor in self.live.values())
        if covered and time is not None:
            self._coverage = (time, self._changes)
        return covered


def _sort(group: dict[str, Cursor], cursor: Cursor, *, belongs: bool) -> None:
    if belongs:
        group[cursor.subscription.name] = cursor
    else:
        group.pop(cursor.subscription.name, None)
