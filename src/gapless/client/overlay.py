"""The overlay of a session: its tree of cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gapless.client.link import ReconnectingLink
from gapless.client.loop_thread import EventLoopThread
from gapless.client.options import Unset
from gapless.messages.operating import TreeWalked, WalkTree
from gapless.messages.overlay import CellRecord

if TYPE_CHECKING:
    from gapless.client.session import Session

__all__ = ["OverlayCalls", "OverlayTree", "SyncOverlayCalls"]

_UNSET = Unset()


class OverlayTree(msgspec.Struct, frozen=True):
    """The cells of an overlay, as its brokers know them now."""

    cells: tuple[CellRecord, ...]
    """In the order of their names."""
    silent: tuple[str, ...] = ()
    """Empty if the tree is complete. Else the cells that did not answer and the missing cells behind
    them; of many only some."""


class OverlayCalls:
    """Calls that concern the overlay as a whole, over the main link of a session."""

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


class SyncOverlayCalls:
    """The calls of :class:`OverlayCalls`, which block."""

    def __init__(self, loop_thread: EventLoopThread, calls: OverlayCalls) -> None:
        self._loop_thread = loop_thread
        self._calls = calls

    def tree(self, *, deadline_s: float | Unset | None = _UNSET) -> OverlayTree:
        """Return the whole tree of cells. See :meth:`OverlayCalls.tree`."""
        return self._loop_thread.run(self._calls.tree(deadline_s=deadline_s))
