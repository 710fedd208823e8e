"""The cursors of a subend, grouped by phase.

A subend may have thousands of cursors, and every range of the stream concerns some of them: pending
ones, live ones, those that wait for the horizon. The groups are maintained, so that no search is
needed.
"""

from __future__ import annotations

from gapless.core.ids import VirtualTime
from gapless.subscribers.cursor import Cursor

__all__ = ["CursorGroups"]


class CursorGroups:
    """All cursors of one subend, by subscription."""

    def __init__(self) -> None:
        self.all: dict[str, Cursor] = {}
        """Cursors in any phase."""
        self.pending: dict[str, Cursor] = {}
        """Cursors that start where a stream epoch serves their filter."""
        self.guaranteed: dict[str, Cursor] = {}
        """Cursors that wait for the PHB to answer since when it knew their subscription."""
        self.live: dict[str, Cursor] = {}
        self.behind: dict[str, Cursor] = {}
        """Cursors that wait for the horizon to move."""
        self.changing: dict[str, Cursor] = {}
        """Cursors that wait to switch to their next filter."""
        self.holding: dict[str, Cursor] = {}
        """Cursors with a log hold."""
        self.turn = 0
        """Counts cursors that became live: an answer to an older read may lack events for them."""
        self._merging: dict[str, Cursor] = {}
        """Cursors whose merges wait for silence of this stream."""
        self._changes = 0
        """Counts registrations, to detect that the result in ``_coverage`` is out of date."""
        self._coverage: tuple[VirtualTime, int] | None = None
        """A virtual time that served all live cursors, and the value of ``_changes`` then."""

    def register(self, cursor: Cursor) -> None:
        """Note the phase and filters of a cursor, which may be new."""
        self._changes += 1
        name = cursor.subscription.name
        self.all.setdefault(name, cursor)
        if cursor.is_live and name not in self.live:
            self.turn += 1
        has_guarantee = cursor.verification.has_guarantee
        _sort(self.guaranteed, cursor, belongs=has_guarantee)
        _sort(self.pending, cursor, belongs=cursor.is_pending and not has_guarantee)
        _sort(self.live, cursor, belongs=cursor.is_live)
        _sort(self.behind, cursor, belongs=cursor.in_merge or cursor.reads_log)
        _sort(self.changing, cursor, belongs=cursor.segments.next is not None)
        _sort(self._merging, cursor, belongs=cursor.in_merge)

    def forget(self, cursor: Cursor) -> None:
        """Forget a cursor."""
        name = cursor.subscription.name
        if self.all.get(name) is not cursor:
            return
        for group in (
            self.all,
            self.pending,
            self.guaranteed,
            self.live,
            self.behind,
            self.changing,
            self._merging,
            self.holding,
        ):
            group.pop(name, None)

    def note_log_hold(self, cursor: Cursor) -> None:
        """Note whether a cursor has a log hold."""
        name = cursor.subscription.name
        if cursor.log_holds.current is not None:
            self.holding[name] = cursor
        elif self.holding.get(name) is cursor:
            del self.holding[name]

    def with_log_hold(self) -> list[Cursor]:
        """Return the cursors of the stream that have a log hold."""
        return [each for name, each in self.holding.items() if self.all.get(name) is each]

    @property
    def is_merged(self) -> bool:
        """Whether a merge waits for this stream."""
        return bool(self._merging)

    def is_covered(self, time: VirtualTime | None) -> bool:
        """Return whether a stream that serves this SHB up to a time serves all live cursors."""
        if not self.live or (time is not None and self._coverage == (time, self._changes)):
            return True
        covered = all(cursor.segments.current.is_served_at(time) for cursor in self.live.values())
        if covered and time is not None:
            self._coverage = (time, self._changes)
        return covered


def _sort(group: dict[str, Cursor], cursor: Cursor, *, belongs: bool) -> None:
    if belongs:
        group[cursor.subscription.name] = cursor
    else:
        group.pop(cursor.subscription.name, None)
