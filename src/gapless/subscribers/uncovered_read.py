"""Reads of uncovered ranges: their silence does not hold for all live cursors of a subend (R44).

The stream epoch of the range does not list this SHB, or lists it with a time before the start of a
filter. The read is exact for every filter of this SHB. If a cursor becomes live meanwhile, the
answer may lack events for it, and the range is read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gapless.core.context import Context
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.streams import KnowledgeRange
from gapless.subscribers.protocols import CancellableRequest, PubendRequester

if TYPE_CHECKING:
    from gapless.subscribers.subend import Subend

__all__ = ["UncoveredRead"]


class UncoveredRead:
    """The read of one subend that replaces a range."""

    def __init__(
        self,
        context: Context,
        subend: Subend,
        requests: PubendRequester,
        covering_filter: Callable[[], str],
    ) -> None:
        self._context = context
        self._subend = subend
        self._requests = requests
        self._covering_filter = covering_filter
        self._pending: CancellableRequest | None = None

    @property
    def is_pending(self) -> bool:
        """Whether a read is pending."""
        return self._pending is not None

    def start(self, knowledge: KnowledgeRange) -> None:
        """Read a range; the horizon waits for the answer."""
        self._context.mark("knowledge range not covered")
        subend = self._subend
        turn = subend.groups.turn

        def read(reply: ReadReply) -> None:
            self._pending = None
            # what does not fit into this step is read again in a later one
            if turn != subend.groups.turn or subend.take_read(reply, knowledge.high):
                subend.advance()

        self._pending = self._requests.read(
            subend.pubend,
            self._covering_filter(),
            knowledge.low,
            knowledge.high,
            log_hold=None,
            then=read,
            fault=lambda reason: subend.stall(knowledge.low, reason),
        )

    def stop(self) -> None:
        """Cancel the pending read."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None
