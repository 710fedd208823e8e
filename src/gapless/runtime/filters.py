"""Long filters of clients are brought to their normal form by a thread, before the machine needs it.

A short text can make a filter that takes a second to multiply out, or to refuse. The machine would
do nothing else meanwhile. So the request waits, and with it the connection that sent it, while a
thread makes the normal form. Then the machine finds it in the cache of :mod:`gapless.content.filter`.
One thread serves all connections in turn, so that it takes no more than half of the interpreter. It
skips the texts of connections that have closed, and the process does not wait for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final

from gapless.content.filter import Filter
from gapless.core.limits import FILTER_QUICK_JOINTS_MAX, FILTER_QUICK_TEXT_MAX
from gapless.messages.clients import OpenPubend, SetFilter, Subscribe
from gapless.messages.operating import SetDurableFilter
from gapless.messages.reading import ReadLog

__all__ = ["FILTERED_REQUESTS", "FilterPreparation", "is_quick"]

_JOINTS: Final = ("OR", "NOT", "LIKE", "<>", "!=")
"""What makes more than one conjunction, or patterns, which are compared."""

FILTERED_REQUESTS: Final[dict[type, Callable[[Any], tuple[str, ...]]]] = {
    OpenPubend: lambda request: (request.advertisement,),
    ReadLog: lambda request: (request.filter,),
    SetDurableFilter: lambda request: (request.filter,),
    SetFilter: lambda request: (request.filter,),
    Subscribe: lambda request: (
        request.filter or "",
        *(each.filter for each in request.past_filters),
    ),
}
"""The requests with filters, and their texts."""


def is_quick(text: str) -> bool:
    """Return whether the normal form of a text is made in a fraction of a millisecond.

    >>> is_quick("symbol = 'IBM' AND price > 90"), is_quick("(a OR b) AND " * 8 + "c")
    (True, False)
    """
    if len(text) > FILTER_QUICK_TEXT_MAX:
        return False
    upper = text.upper()
    return sum(map(upper.count, _JOINTS)) <= FILTER_QUICK_JOINTS_MAX


class FilterPreparation:
    """Makes the normal forms of the filters of requests, in a thread."""

    def __init__(self, texts_max: int) -> None:
        self._texts_max = texts_max
        """The machine refuses a request with more filters, without reading them."""
        self._thread: threading.Thread | None = None
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_closed = False

    def texts_of(self, request: Any) -> tuple[str, ...]:
        """Return the filters of a request that are not made in the event loop."""
        found = FILTERED_REQUESTS.get(type(request))
        texts = () if found is None else found(request)
        if len(texts) > self._texts_max:
            return ()
        return tuple(each for each in texts if not is_quick(each))

    def prepare(
        self, texts: tuple[str, ...], is_wanted: Callable[[], bool], then: Callable[[], None]
    ) -> None:
        """Make the normal forms of some texts, then call back in the event loop.

        The rest is left out when the requester does not want it any more.
        """
        if self._is_closed:
            return
        if self._thread is None:
            # a daemon: a process that stops does not wait for a filter
            self._thread = threading.Thread(target=self._run, name="gapless-filters", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()

        def work() -> None:
            try:
                for text in texts:
                    if self._is_closed or not is_wanted():
                        break
                    # The machine refuses the text with the same error. Any other error is a bug, which
                    # the machine reports with the request; the thread goes on for other clients.
                    with suppress(Exception):
                        Filter(str(Filter(text)))  # reads of logs use the normal form
            finally:
                with suppress(RuntimeError):  # the loop is closed: nobody waits
                    loop.call_soon_threadsafe(then)

        self._work.put(work)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def close(self) -> None:
        """Prepare no more filters."""
        self._is_closed = True
        self._work.put(None)
