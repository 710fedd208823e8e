"""A walk over the whole tree: the cell records that brokers hold, neighbourhood by neighbourhood (RS-20).

Theory of operation
-------------------
A broker holds the records of the cells of its neighbourhood. A walk begins with those of the own
broker. A cell that lists an edge to a cell without a record is a *border*: one of its brokers is
asked for the records that it holds (:class:`.Walk`, by a unicast request). Its answer contains the
missing record and moves the border. The walk ends when no border is left that can be asked. Of two
records of a cell the newer one is kept (RS-1).

The brokers of a cell are asked one after the other until one answers. If none answers within
``walk_timeout_ms``, the cell is *silent*, and its known neighbours are asked in its place: they hold
records of farther cells if Δ is above 1. A cell is asked once.

A walk has no snapshot. While an operation changes the tree, the records may be of different times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from gapless.core.context import Context, Timer
from gapless.core.ids import BrokerId, CellId, ShbId
from gapless.core.limits import SHOWN_ENTRIES_MAX, SILENT_NAMED_MAX
from gapless.core.parameters import microseconds
from gapless.core.request_limits import (
    UNICAST_BODY_BYTES_MAX,
    WALK_BYTES_MAX,
    WALK_CELLS_MAX,
    WALK_QUESTIONS_MAX,
)
from gapless.messages.overlay import CellRecord, CellRole
from gapless.messages.unicast import UnicastBody, Walk, Walked
from gapless.overlay.tree import Tree
from gapless.requests.unicast import UnicastAnswer, UnicastHandler, UnicastRequester

__all__ = ["TreeFound", "TreeWalk", "TreeWalker", "TreeWalks", "record_bytes"]

_ENCODER: Final = msgspec.msgpack.Encoder()


def record_bytes(record: CellRecord) -> int:
    """Return the size of a record in a message."""
    return len(_ENCODER.encode(record))


class TreeFound(NamedTuple):
    """What a walk has found."""

    records: tuple[CellRecord, ...]
    """In the order of their names."""
    silent: tuple[CellId, ...]
    """Empty if every cell that a record lists has a record. Else the cells that did not answer and
    those without a record behind them; of many only some."""


class TreeWalker(Protocol):
    """Walks over the tree for other components."""

    def begin(self, done: Callable[[TreeFound], None]) -> TreeWalk:
        """Walk over the tree, then call back."""


class _Question:
    """The question to one cell, until one of its brokers has answered completely or none does."""

    def __init__(
        self,
        context: Context,
        unicast: UnicastRequester,
        record: CellRecord,
        taken: Callable[[Walked], bool],
        answered: Callable[[], None],
        silent: Callable[[], None],
    ) -> None:
        """``taken`` takes a page and returns whether the walk goes on."""
        self._context = context
        self._unicast = unicast
        self._cell = record.name
        self._taken = taken
        self._complete = answered
        self._silent = silent
        order = sorted(record.members, key=lambda member: member.role is CellRole.REPLACED)
        self._unasked = [member.broker for member in order]
        self._requests: list[Callable[[], None]] = []
        """Cancel the pending requests."""
        self._next: Timer | None = None
        self._deadline: Timer | None = None

    def start(self) -> None:
        """Ask the first broker."""
        timeout_us = microseconds(ms=self._context.parameters.walk_timeout_ms)
        self._deadline = self._context.call_later(timeout_us, self._end)
        self._ask_next()

    def _ask_next(self) -> None:
        """Ask one more broker; those that were asked may still answer."""
        if not self._unasked:
            return
        self._ask(self._unasked.pop(0), "")
        pause_us = microseconds(ms=self._context.parameters.attach_timeout_ms)
        self._next = self._context.call_later(pause_us, self._ask_next)

    def _ask(self, broker: BrokerId, after: CellId) -> None:
        to = ShbId(broker, self._cell)
        pending = self._unicast.request(to, Walk(after), partial(self._answered, broker, after))
        self._requests.append(pending.cancel)

    def _answered(self, broker: BrokerId, after: CellId, page: Walked) -> None:
        names = [after, *(record.name for record in page.records)]
        if any(left >= right for left, right in pairwise(names)):
            self._context.mark("invalid page of cell records")
            return  # the next broker is asked, or the time ends
        self.stop()
        if not self._taken(page):
            return
        if page.more and page.records:
            self._unasked = []
            self.start()
            self._ask(broker, names[-1])
        else:
            self._complete()

    def stop(self) -> None:
        """Ask no more, and ignore answers."""
        for cancel in self._requests:
            cancel()
        self._requests = []
        for timer in (self._next, self._deadline):
            if timer is not None:
                timer.cancel()

    def _end(self) -> None:
        """No broker of the cell has answered in time."""
        self.stop()
        self._silent()


class TreeWalk:
    """One walk of this broker."""

    def __init__(
        self,
        context: Context,
        unicast: UnicastRequester,
        tree: Tree,
        done: Callable[[TreeFound], None],
    ) -> None:
        self._context = context
        self._unicast = unicast
        self._tree = tree
        self._done = done
        self._records: dict[CellId, CellRecord] = {}
        self._bytes = 0
        """The size of all records that were taken."""
        self._asked: dict[CellId, _Question] = {}
        """The cells whose answers are waited for."""
        self._answered: set[CellId] = {tree.neighbourhood.own}
        self._silent: set[CellId] = set()
        # in a later step: the caller must have the walk before it is called back
        self._beginning = context.call_later(1, self._begin)

    def _begin(self) -> None:
        self._take(self._tree.neighbourhood.cells)
        self._advance()

    def cancel(self) -> None:
        """End the walk without a callback."""
        self._beginning.cancel()
        for question in self._asked.values():
            question.stop()
        self._asked = {}

    def _take(self, records: Iterable[CellRecord]) -> None:
        for record in records:
            known = self._records.get(record.name)
            if known is None or record.version > known.version:
                self._records[record.name] = record

    def _page_taken(self, page: Walked) -> bool:
        """Take the records of a page; return False if they are too many, which ends the walk."""
        self._bytes += sum(map(record_bytes, page.records))
        new = sum(record.name not in self._records for record in page.records)
        if self._bytes > WALK_BYTES_MAX or len(self._records) + new > WALK_CELLS_MAX:
            self._context.mark("walk over the tree found too much")
            self._silent |= self._asked.keys()
            self._end()
            return False
        self._take(page.records)
        return True

    def _advance(self) -> None:
        """Ask further cells; end if none is left."""
        for cell in self._to_ask()[: WALK_QUESTIONS_MAX - len(self._asked)]:
            question = _Question(
                self._context,
                self._unicast,
                self._records[cell],
                self._page_taken,
                partial(self._question_ended, cell, self._answered),
                partial(self._question_ended, cell, self._silent),
            )
            self._asked[cell] = question
            question.start()
        if not self._asked:
            self._end()

    def _question_ended(self, cell: CellId, outcome: set[CellId]) -> None:
        del self._asked[cell]
        outcome.add(cell)
        self._advance()

    def _borders(self) -> list[CellId]:
        """Return the cells that list a cell without a record."""
        return [
            record.name
            for record in self._records.values()
            if any(cell not in self._records for cell in record.neighbours)
        ]

    def _to_ask(self) -> list[CellId]:
        """Return the borders that were not asked, and for silent ones their known neighbours."""
        reached = dict.fromkeys(self._borders())
        queue = [*reached]
        for cell in queue:
            if cell in self._silent:
                for each in self._records[cell].neighbours:
                    if each in self._records and each not in reached:
                        reached[each] = None
                        queue.append(each)
        tried = self._answered | self._silent | self._asked.keys()
        return [cell for cell in reached if cell not in tried]

    def _end(self) -> None:
        self.cancel()
        self._take(self._tree.neighbourhood.cells)  # they may have changed since
        borders = self._borders()
        missing = {
            cell: None
            for border in borders
            for cell in self._records[border].neighbours
            if cell not in self._records
        }
        silent = [*(each for each in borders if each in self._silent), *missing]
        records = tuple(record for _, record in sorted(self._records.items()))
        self._done(TreeFound(records, tuple(sorted(silent)[:SILENT_NAMED_MAX])))


class TreeWalks:
    """Walks over the tree for this broker, and answers the questions of others' walks."""

    def __init__(self, context: Context, tree: Tree, unicast: UnicastRequester) -> None:
        self._context = context
        self._tree = tree
        self._unicast = unicast
        self.unicast_handlers: Mapping[type[UnicastBody], UnicastHandler] = {
            Walk: self._walk_requested
        }
        """The bodies of unicast requests that it serves."""

    def begin(self, done: Callable[[TreeFound], None]) -> TreeWalk:
        """Walk over the tree, then call back."""
        return TreeWalk(self._context, self._unicast, self._tree, done)

    def _walk_requested(self, requester: BrokerId, body: Any, answer: UnicastAnswer) -> None:
        """Answer with a page of the records that this broker holds."""
        del requester
        assert isinstance(body, Walk)
        held = sorted(self._tree.neighbourhood.cells, key=lambda record: record.name)
        later = [record for record in held if record.name > body.after]
        taken: list[CellRecord] = []
        remaining = UNICAST_BODY_BYTES_MAX // 2
        for record in later[:SHOWN_ENTRIES_MAX]:
            remaining -= record_bytes(record)
            if taken and remaining < 0:
                break
            taken.append(record)
        answer(Walked(tuple(taken), more=len(taken) < len(later)))
