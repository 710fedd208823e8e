"""The tree of cells for operators: a broker walks over the whole tree and replies with its cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from gapless.core.context import Context
from gapless.core.request_limits import TREE_WALKS_MAX
from gapless.inspection.show import page
from gapless.messages.clients import RefusalCause, Refused
from gapless.messages.operating import TreeWalked, WalkTree
from gapless.requests.tree_walk import TreeFound, TreeWalker, record_bytes

__all__ = ["RequestLimit", "TreeCalls"]


class RequestLimit(Protocol):
    """The limit of requests to other brokers."""

    @property
    def is_full(self) -> bool:
        """Whether no further request is made for a client."""


class TreeCalls:
    """Answers requests for the tree."""

    def __init__(self, context: Context, walks: TreeWalker, limit: RequestLimit) -> None:
        self._context = context
        self._walks = walks
        self._limit = limit
        self._pending = 0
        """The walks that have not ended."""
        self.handlers: Mapping[type, Callable[[str, Any], None]] = {WalkTree: self._walk}

    def _walk(self, client: str, call: WalkTree) -> None:
        if self._pending >= TREE_WALKS_MAX or self._limit.is_full:
            reason = "too many walks over the tree are pending; retry later"
            self._context.notify(client, Refused(call.request, reason, RefusalCause.UNAVAILABLE))
            return
        self._pending += 1

        def found(tree: TreeFound) -> None:
            self._pending -= 1
            later = (record for record in tree.records if record.name > call.after)
            records, more = page(later, record_bytes)
            self._context.notify(client, TreeWalked(call.request, records, tree.silent, more))

        self._walks.begin(found)
