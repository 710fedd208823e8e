"""The size of a pubend's log in bytes, also after a restart (R58).

Theory of operation. Bytes are counted, never measured. ``total`` is the number of bytes ever
logged. Every append writes it with its publisher's record, in the transaction of the row, so it is
exact after a crash. A *mark* is a tick and the part of the total at or below it. A log at its limit
has about two hundred marks at most. The first mark is the last one that was released, so the size
is the total less the first mark.

A log is full at its own limit, or above the level to which all logs of the broker must shrink
(:mod:`.log_budget`). Before, at seven eighths, it is tight: what only retention keeps is released,
so that a log without lagging members never refuses a publication. The level may be far below the limit, so there are always at least some dozen
marks in a log: if a log has too many, marks that are close to each other are merged.

Marks are written with the pubend's record. Marks lost in a crash only make the size less exact: it
may be too high until the log is released beyond them, never too low.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from gapless.core.context import nothing
from gapless.core.ids import PubendId, ShbId
from gapless.core.limits import INT_MAX, LOG_SIZE_MARKS_MAX, SHOWN_LAGGING_MAX
from gapless.core.ticks import Tick
from gapless.messages.streams import KnowledgeRange
from gapless.packed.encode import content_bytes
from gapless.pubend.log_budget import LogBudget

__all__ = ["LogSize", "packed_bytes", "row_bytes"]

PARTS: Final = 64
"""The number of parts into which marks divide a log at its limit; release is counted by parts."""

ROW_BYTES: Final = 64
"""The size of a row without its publications."""

PUBLICATION_BYTES: Final = 24
"""The size of a publication without its payload and texts."""


def row_bytes(knowledge: KnowledgeRange) -> int:
    """Return the approximate size of a batch in a log."""
    return ROW_BYTES + PUBLICATION_BYTES * len(knowledge.publications) + content_bytes(knowledge)


def packed_bytes(packed: bytes) -> int:
    """Return the approximate size of packed publications in a log."""
    return ROW_BYTES + len(packed)


class LogSize:
    """The bytes of one log.

    >>> size = LogSize(6_400)
    >>> for tick in range(1, 11):
    ...     size.add(tick, 1_000)
    >>> size.bytes, size.is_full, size.tick_to_fit()
    (10000, True, 5)
    >>> size.release(5)
    >>> size.bytes, size.is_full
    (5000, False)
    """

    def __init__(
        self,
        bytes_max: int,
        marks: Iterable[tuple[Tick, int]] = (),
        logged: tuple[Tick, int] = (0, 0),
        released: Tick = 0,
        budget: LogBudget | None = None,
        exceeds_level: Callable[[], None] = nothing,
    ) -> None:
        self.bytes_max = bytes_max or INT_MAX
        self.exceeds_level = exceeds_level
        self._budget = budget or LogBudget(0)
        self._part = self.bytes_max // PARTS
        self._marks = list(marks) or [(0, 0)]
        if logged[1] > self.total:
            self._marks.append(logged)
        self._release(released)
        if self._budget.bytes_max:
            self._part = max(1, self.bytes // PARTS)
        self._budget.add(self)

    def close(self) -> None:
        """The log is erased: it does not count beside the others any more."""
        self._budget.remove(self)

    @property
    def total(self) -> int:
        """The bytes ever logged."""
        return self._marks[-1][1]

    @property
    def bytes(self) -> int:
        """The size of the log."""
        return self._marks[-1][1] - self._marks[0][1]

    @property
    def is_full(self) -> bool:
        """Whether the log has reached its limit, or is too large beside the others."""
        return self.bytes >= self.bytes_max or (self._budget.is_exceeded and self._is_above_level)

    def notify_others(self) -> None:
        """Notify the logs that are too large beside this one, which has grown."""
        self._budget.notify()

    @property
    def is_tight(self) -> bool:
        """Whether the log must release what only retention keeps, so that it does not fill up."""
        return self.bytes >= self.bytes_max - self.bytes_max // 8 or self._is_above_level

    @property
    def _is_above_level(self) -> bool:
        level = self._budget.level
        return level is not None and self.bytes > level

    @property
    def marks(self) -> tuple[tuple[Tick, int], ...]:
        """The marks to store."""
        return tuple(self._marks)

    def add(self, tick: Tick, size: int) -> None:
        """Count a row that ends at a tick above all earlier ones."""
        mark = (tick, self.total + size)
        if len(self._marks) > 1 and mark[1] - self._marks[-2][1] <= self._part:
            self._marks[-1] = mark
        else:
            self._marks.append(mark)
        self._budget.grew(size)
        if len(self._marks) > LOG_SIZE_MARKS_MAX:
            self._merge_marks()

    def release(self, up_to: Tick) -> None:
        """Subtract the rows that end at or below a tick."""
        before = self.bytes
        self._release(up_to)
        self._budget.grew(self.bytes - before)

    def _release(self, up_to: Tick) -> None:
        released = 0
        while released + 1 < len(self._marks) and self._marks[released + 1][0] <= up_to:
            released += 1
        del self._marks[:released]

    def _merge_marks(self) -> None:
        """Merge marks that are close to each other for the present size."""
        first, *between, last = self._marks
        self._part = self.bytes // PARTS
        kept = [first]
        for mark in between:
            if mark[1] - kept[-1][1] >= self._part:
                kept.append(mark)
        self._marks = [*kept, last]

    def fault(self, pubend: PubendId, lagging: list[ShbId]) -> str:
        """Return the text of a refusal because the log is at its limit."""
        who = ", ".join(map(str, lagging[:SHOWN_LAGGING_MAX]))
        more = ", …" if len(lagging) > SHOWN_LAGGING_MAX else ""
        cause = f"it is kept for {who}{more}" if lagging else "it is being released"
        limit = f"log_bytes_max = {self.bytes_max:,}"
        if self.bytes < self.bytes_max:
            budget = self._budget
            limit = (
                f"all_logs_bytes_max = {budget.bytes_max:,}, of which all logs hold "
                f"{budget.bytes:,}"
            )
        return (
            f"the log of {pubend} holds {self.bytes:,} bytes (limit {limit}): {cause}; publish "
            "later, let lagging brokers catch up, retire those that will not return, or raise the "
            "limit"
        )

    def tick_to_fit(self, *, easily: bool = False) -> Tick:
        """Return the tick up to which to release so that the log fits again.

        It is then an eighth below its limit, or a quarter if it fits ``easily``, and not above the
        level of all logs.
        """
        goal = self.bytes_max - self.bytes_max // (4 if easily else 8)
        level = self._budget.level
        if level is not None:
            goal = min(goal, level)
        return next(tick for tick, total in self._marks if self.total - total <= goal)
