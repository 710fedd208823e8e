"""Long filters of clients are brought to their normal form by a thread, before the machine needs it.

A short text can make a filter that takes a second to multiply out, or to refuse. The machine would
do nothing else meanwhile. So the request waits, and with it the connection that sent it, while a
thread makes the normal form. Then the machine finds it in the cache of :mod:`gapless.content.filter`.
One thread serves all connections in turn, so that it takes no more than half of the interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from gapless.content.filter import Filter
from gapless.core.errors import FilterError
from gapless.core.limits import FILTER_QUICK_JOINTS_MAX, FILTER_QUICK_TEXT_MAX
from gapless.messages.clients import OpenPubend, ReadLog, SetFilter, Subscribe
from gapless.messages.operating import SetDurableFilter

__all__ = ["FILTERED_REQUESTS", "FilterPreparation", "is_quick"]

_JOINTS: Final = ("OR", "NOT", "LIKE", "<>", "!=")
"""What makes more than one conjunction, or patterns, which are compared."""

FILTERED_REQUESTS: Final[dict[type, Callable[[Any], tuple[str, ...]]]] = {
    OpenPubend: lambda request: (request.advertisement,),
    ReadLog: lambda request: (request.filter,),
    SetDurableFilter: lambda request: (request.filter,),
    SetFilter: lambda request: (request.filter,),
    Subscribe: lambda request: (
        request.filter,
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

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._is_closed = False

    def texts_of(self, request: Any) -> tuple[str, ...]:
        """Return the filters of a request that are not made in the event loop."""
        texts = FILTERED_REQUESTS.get(type(request))
        return () if texts is None else tuple(each for each in texts(request) if not is_quick(each))

    def prepare(self, texts: tuple[str, ...], then: Callable[[], None]) -> None:
        """Make the normal forms of some texts, then call back in the event loop."""
        if self._is_closed:
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "gapless-filters")
        loop = asyncio.get_running_loop()

        def work() -> None:
            for text in texts:
                with suppress(FilterError):  # the machine refuses it, with the same error
                    Filter(text)
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(then)

        self._thread.submit(work)

    def close(self) -> None:
        """Prepare no more filters."""
        self._is_closed = True
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
