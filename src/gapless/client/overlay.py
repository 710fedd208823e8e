"""The overlay of a session: its tree of cells, and the operations that change it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gapless.client.link import ReconnectingLink
from gapless.client.loop_thread import EventLoopThread
from gapless.client.options import Unset
from gapless.client.tree_orders import (
    NO_BOUNDS,
    AppliedPlan,
    AppliedStep,
    PlanBoundOptions,
    PlanProgress,
    TreeOrder,
    cell_named,
    member_of,
    ordered,
    progress_of,
    wanted_by,
)
from gapless.core.errors import OperationRefusedError, OutcomeUnknownError, UsageError, shortened
from gapless.core.ids import BrokerId, CellId
from gapless.messages.operating import TreeWalked, WalkTree
from gapless.messages.overlay import CellMember, CellRecord
from gapless.messages.plans import AbortPlan, GetPlan, PlanAborted, PlanReply
from gapless.messages.reshape import (
    OperationKind,
    OperationRequestId,
    OperationStatus,
    OpReply,
    OpRequest,
    ReadmitBroker,
    TakeOverCell,
    TakeoverReply,
)
from gapless.reshape.planning import composites
from gapless.reshape.planning.steps import PlanStep, append, detach, shift, trees_after
from gapless.reshape.planning.trees import CellTree
from gapless.reshape.planning.wanted import recorded_tree

if TYPE_CHECKING:
    from gapless.client.session import Session

__all__ = ["AppliedOperation", "OverlayCalls", "OverlayTree", "SyncOverlayCalls"]

_UNSET = Unset()

_ENDED: Final = "ended"
"""The state of a plan that has ended."""

POLL_S: Final = 0.1
"""The pause between two questions how far a plan is."""

OPERATION_DEADLINE_S: Final = 60.0
"""The default deadline of an operation: a leader may have to be waited for."""


class OverlayTree(msgspec.Struct, frozen=True):
    """The cells of an overlay, as its brokers know them now."""

    cells: tuple[CellRecord, ...]
    """In the order of their names."""
    silent: tuple[str, ...] = ()
    """Empty if the tree is complete. Else the cells that did not answer and the missing cells behind
    them; of many only some."""

    def shape(self) -> CellTree:
        """Return the cells and their edges; UsageError if the tree is not complete."""
        if self.silent:
            names = shortened(", ".join(self.silent))
            raise UsageError(f"the tree is not complete, no answer from {names}: try again later")
        return recorded_tree(self.cells)

    def cell(self, name: CellId) -> CellRecord:
        """Return a cell by its id, or by its name while only one cell has it."""
        found = cell_named(name, [each.name for each in self.cells])
        return next(each for each in self.cells if each.name == found)


class AppliedOperation(msgspec.Struct, frozen=True):
    """An operation that is done."""

    kind: str
    cells: tuple[CellId, ...]
    """By their ids; that of a new cell is the one that it got."""
    op: str
    """The operation at its coordinator."""
    time_us: int
    """How long it took there, with all attempts."""


class OverlayCalls:
    """Calls that concern the overlay as a whole, over the main link of a session.

    A cell is named by its id, or by the name with which it was appended while only one cell has it.
    A change that is impossible in the present tree is a UsageError. What a leader refuses is an
    OperationRefusedError. Both change nothing.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    async def tree(self, *, deadline_s: float | Unset | None = _UNSET) -> OverlayTree:
        """Return the whole tree of cells. The deadline applies to each page of the answer."""
        cells: list[CellRecord] = []
        silent: dict[str, None] = {}
        while True:
            request = WalkTree(0, cells[-1].name if cells else "")
            answer = await self._session.request(request, deadline_s=deadline_s, changes=False)
            page: TreeWalked = ReconnectingLink.expect(answer, TreeWalked)
            cells += page.records
            silent |= dict.fromkeys(page.silent)
            if not page.more or not page.records:
                return OverlayTree(tuple(cells), tuple(silent))

    # --- operations ------------------------------------------------------------------------------

    async def shift(
        self, cell: CellId, old: CellId, new: CellId, *, deadline_s: float = OPERATION_DEADLINE_S
    ) -> AppliedOperation:
        """Replace the edge between a cell and its neighbour ``old`` by one to ``old``'s neighbour ``new``."""
        tree = (await self.tree()).shape()
        step = shift(*(cell_named(each, tree) for each in (cell, old, new)))
        return await self._do(tree, step, None, deadline_s)

    async def append(
        self,
        cell: CellId,
        broker: BrokerId,
        addresses: Sequence[str],
        *,
        at: CellId,
        deadline_s: float = OPERATION_DEADLINE_S,
    ) -> AppliedOperation:
        """Append a new cell with one broker, which was started with ``join``, to a cell."""
        tree = (await self.tree()).shape()
        step = append(cell, cell_named(at, tree))
        return await self._do(tree, step, member_of(broker, addresses), deadline_s)

    async def detach(
        self, cell: CellId, *, deadline_s: float = OPERATION_DEADLINE_S
    ) -> AppliedOperation:
        """Detach an empty outer cell."""
        tree = (await self.tree()).shape()
        found = cell_named(cell, tree)
        neighbours = tree.neighbours(found)
        if len(neighbours) != 1:
            raise UsageError(
                f"{found} has {len(neighbours)} neighbours: only an outer cell is detached "
                "(delete rewires the others first)"
            )
        return await self._do(tree, detach(found, neighbours[0]), None, deadline_s)

    async def _do(
        self, tree: CellTree, step: PlanStep, broker: CellMember | None, deadline_s: float
    ) -> AppliedOperation:
        """Request an operation that is possible in the tree that was seen."""
        step.applied(tree)
        id_ = OperationRequestId(f"operator {secrets.token_hex(8)}", 0)
        kind = OperationKind[step.kind.name]
        request = OpRequest(0, id_, kind, step.cells, broker)
        answer = await self._session.request(request, deadline_s=deadline_s)
        reply = done_reply(answer, str(step))
        cells = step.cells
        if kind is OperationKind.APPEND:
            cells = (f"{cells[0]}#{reply.op}", *cells[1:])
        return AppliedOperation(kind.name.lower(), cells, str(reply.op), reply.time_us)

    async def takeover(
        self,
        cell: CellId,
        replaced: Sequence[BrokerId] = (),
        *,
        deadline_s: float = OPERATION_DEADLINE_S,
    ) -> TakeoverReply:
        """Let another member lead a cell, and declare brokers replaced that will not return."""
        record = (await self.tree()).cell(cell)
        request = TakeOverCell(0, tuple(replaced), record.name)
        answer = await self._session.request(request, deadline_s=deadline_s)
        reply: TakeoverReply = ReconnectingLink.expect(answer, TakeoverReply)
        if not reply.done:
            silent = f"; no promise from {', '.join(reply.silent)}" if reply.silent else ""
            raise OperationRefusedError(f"no takeover of {record.name}: {reply.text}{silent}")
        return reply

    async def readmit(
        self, broker: BrokerId, *, deadline_s: float = OPERATION_DEADLINE_S
    ) -> AppliedOperation:
        """Make a replaced member of a cell active again."""
        answer = await self._session.request(ReadmitBroker(0, broker), deadline_s=deadline_s)
        reply = done_reply(answer, f"readmission of {broker}")
        return AppliedOperation("readmit", (), str(reply.op), reply.time_us)

    # --- plans -----------------------------------------------------------------------------------

    async def plan(
        self, tree: str | CellTree, *, bounds: PlanBoundOptions = NO_BOUNDS
    ) -> TreeOrder:
        """Return the plan to a tree: the name of an overlay file, a shape such as star:5, or cells."""
        present = (await self.tree()).shape()
        newcomers: dict[CellId, CellMember] = {}
        if isinstance(tree, str):
            wanted, newcomers = wanted_by(tree, present)
        else:
            wanted = tree
        return ordered(present, wanted, newcomers, bounds)

    async def move(
        self, cell: CellId, old: CellId, new: CellId, progress: Progress | None = None
    ) -> AppliedPlan:
        """Replace the edge to a neighbour by one to any cell that is not behind the moved one."""
        tree = (await self.tree()).shape()
        names = [cell_named(each, tree) for each in (cell, old, new)]
        return await self._apply_steps(tree, composites.move(tree, *names), {}, progress)

    async def insert(
        self,
        cell: CellId,
        broker: BrokerId,
        addresses: Sequence[str],
        neighbours: Sequence[CellId],
        progress: Progress | None = None,
    ) -> AppliedPlan:
        """Append a new cell and make it a neighbour of several cells."""
        tree = (await self.tree()).shape()
        steps = composites.insert(tree, cell, [cell_named(each, tree) for each in neighbours])
        newcomers = {cell: member_of(broker, addresses)}
        return await self._apply_steps(tree, steps, newcomers, progress)

    async def delete(
        self, cell: CellId, to: CellId = "", progress: Progress | None = None
    ) -> AppliedPlan:
        """Give all edges of an empty cell but one to a neighbour, by default the first; then detach it."""
        tree = (await self.tree()).shape()
        found = cell_named(cell, tree)
        neighbours = tree.neighbours(found)
        if not neighbours:
            raise UsageError(f"{found} is the only cell of the tree")
        heir = cell_named(to, tree) if to else min(neighbours)
        steps = composites.delete(tree, found, heir)
        return await self._apply_steps(tree, steps, {}, progress)

    async def _apply_steps(
        self,
        tree: CellTree,
        steps: Sequence[PlanStep],
        newcomers: dict[CellId, CellMember],
        progress: Progress | None,
    ) -> AppliedPlan:
        *_, wanted = tree, *trees_after(tree, steps)
        return await self.apply(ordered(tree, wanted, newcomers, NO_BOUNDS), progress)

    async def apply(
        self, tree: str | CellTree | TreeOrder, progress: Progress | None = None
    ) -> AppliedPlan:
        """Lead the overlay to a tree, and wait for the end; ``progress`` is called on the way.

        The broker goes on with the plan if the client leaves. OperationRefusedError says why the
        wanted tree was not reached; the steps that were done stay.
        """
        order = tree if isinstance(tree, TreeOrder) else await self.plan(tree)
        message = order.message()
        answer = await self._session.request(message)
        steps: list[AppliedStep] = []
        while True:
            reply: PlanReply = ReconnectingLink.expect(answer, PlanReply)
            if reply.plan != message.plan:
                raise OutcomeUnknownError(
                    "this broker does not know the plan any more; look at the tree"
                )
            found = progress_of(reply)
            steps += found.steps
            if progress is not None:
                progress(found)
            if reply.state == _ENDED and not reply.steps:
                break
            await asyncio.sleep(0 if reply.state == _ENDED else POLL_S)
            answer = await self._session.request(GetPlan(0, len(steps)), changes=False)
        if not reply.is_reached:
            edges = ", ".join("-".join(edge) for edge in reply.found)
            tree_text = f"; the tree is {shortened(edges)}" if edges else ""
            raise OperationRefusedError(f"{reply.reason}{tree_text}", "plan")
        return AppliedPlan(reply.done, tuple(steps))

    async def abort(self) -> bool:
        """Stop the plan that the session's broker executes, after the operation under way."""
        answer = await self._session.request(AbortPlan(0))
        reply: PlanAborted = ReconnectingLink.expect(answer, PlanAborted)
        return reply.was_under_way


Progress = Callable[[PlanProgress], None]


def done_reply(answer: Any, what: str) -> OpReply:
    """Return the reply of an operation that is done; raise an error for another one."""
    reply: OpReply = ReconnectingLink.expect(answer, OpReply)
    if reply.status is OperationStatus.DONE:
        return reply
    if reply.status is OperationStatus.UNDER_WAY:
        raise OutcomeUnknownError(f"{what}: {reply.text or 'it is still under way'}")
    why = "" if reply.reason is None else reply.reason.name.lower().replace("_", " ")
    raise OperationRefusedError(f"{what} is refused, {why}: {reply.text or 'try again'}", why)


class SyncOverlayCalls:
    """The calls of :class:`OverlayCalls`, which block."""

    def __init__(self, loop_thread: EventLoopThread, calls: OverlayCalls) -> None:
        self._loop_thread = loop_thread
        self._calls = calls

    def tree(self, *, deadline_s: float | Unset | None = _UNSET) -> OverlayTree:
        """Return the whole tree of cells. See :meth:`OverlayCalls.tree`."""
        return self._loop_thread.run(self._calls.tree(deadline_s=deadline_s))

    def shift(self, cell: CellId, old: CellId, new: CellId) -> AppliedOperation:
        """Replace an edge. See :meth:`OverlayCalls.shift`."""
        return self._loop_thread.run(self._calls.shift(cell, old, new))

    def append(
        self, cell: CellId, broker: BrokerId, addresses: Sequence[str], *, at: CellId
    ) -> AppliedOperation:
        """Append a new cell. See :meth:`OverlayCalls.append`."""
        return self._loop_thread.run(self._calls.append(cell, broker, addresses, at=at))

    def detach(self, cell: CellId) -> AppliedOperation:
        """Detach an empty outer cell. See :meth:`OverlayCalls.detach`."""
        return self._loop_thread.run(self._calls.detach(cell))

    def takeover(self, cell: CellId, replaced: Sequence[BrokerId] = ()) -> TakeoverReply:
        """Let another member lead a cell. See :meth:`OverlayCalls.takeover`."""
        return self._loop_thread.run(self._calls.takeover(cell, replaced))

    def readmit(self, broker: BrokerId) -> AppliedOperation:
        """Make a replaced member active again. See :meth:`OverlayCalls.readmit`."""
        return self._loop_thread.run(self._calls.readmit(broker))

    def plan(self, tree: str | CellTree, *, bounds: PlanBoundOptions = NO_BOUNDS) -> TreeOrder:
        """Return the plan to a tree. See :meth:`OverlayCalls.plan`."""
        return self._loop_thread.run(self._calls.plan(tree, bounds=bounds))

    def move(self, cell: CellId, old: CellId, new: CellId) -> AppliedPlan:
        """Replace an edge by one to a distant cell. See :meth:`OverlayCalls.move`."""
        return self._loop_thread.run(self._calls.move(cell, old, new))

    def insert(
        self,
        cell: CellId,
        broker: BrokerId,
        addresses: Sequence[str],
        neighbours: Sequence[CellId],
    ) -> AppliedPlan:
        """Append a new cell between others. See :meth:`OverlayCalls.insert`."""
        return self._loop_thread.run(self._calls.insert(cell, broker, addresses, neighbours))

    def delete(self, cell: CellId, to: CellId = "") -> AppliedPlan:
        """Take an empty cell out of the tree. See :meth:`OverlayCalls.delete`."""
        return self._loop_thread.run(self._calls.delete(cell, to))

    def apply(
        self, tree: str | CellTree | TreeOrder, progress: Progress | None = None
    ) -> AppliedPlan:
        """Lead the overlay to a tree; ``progress`` is called in the session's thread."""
        return self._loop_thread.run(self._calls.apply(tree, progress))

    def abort(self) -> bool:
        """Stop the plan that the session's broker executes. See :meth:`OverlayCalls.abort`."""
        return self._loop_thread.run(self._calls.abort())
