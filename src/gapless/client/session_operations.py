"""The calls of a session on durable subscriptions, pubends and the overlay, wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gapless.client.arguments import check_flag, check_name, check_pubend_name
from gapless.client.closing import PubendClosing, close_pubend
from gapless.client.ending import end_durable
from gapless.client.finding import HostSearch, redirection
from gapless.client.link import ReconnectingLink
from gapless.client.options import SessionOptions, Unset, chosen
from gapless.client.position import pubend_id
from gapless.client.requests import check_request
from gapless.client.session_links import SessionLinks
from gapless.messages.closing import CloseMode
from gapless.messages.operating import ListPartitions, PartitionTable
from gapless.messages.overlay import Partition

__all__ = ["SessionOperations"]

_UNSET = Unset()


class SessionOperations:
    """The part of a session that finds the broker that a call concerns."""

    _options: SessionOptions
    _links: SessionLinks

    def _check_open(self) -> None:
        raise NotImplementedError

    async def request(
        self, message: Any, *, deadline_s: float | Unset | None = _UNSET, changes: bool = True
    ) -> Any:
        """Send any request and return the answer."""
        raise NotImplementedError

    async def unsubscribe(self, durable: str, *, deadline_s: float | Unset | None = _UNSET) -> None:
        """End a durable subscription, wherever it is hosted; nothing is done if it does not exist.

        DeadlineError names the brokers that may host it and do not answer.
        """
        seconds = chosen(deadline_s, self._options.deadline_s)
        await end_durable(self, check_name("durable", durable), seconds)

    async def request_at_host(
        self,
        durable: str,
        message: Any,
        *,
        deadline_s: float | Unset | None = _UNSET,
        changes: bool = True,
    ) -> Any:
        """Send a request to the broker that hosts a durable subscription; None if none hosts it."""
        self._check_open()
        seconds = chosen(deadline_s, self._options.deadline_s)
        search = self.search_for(check_name("durable", durable))
        return await search.request(check_request(message), seconds, changes=changes)

    async def request_at_broker(
        self,
        broker: str,
        addresses: tuple[str, ...],
        message: Any,
        *,
        deadline_s: float | Unset | None = _UNSET,
        changes: bool = True,
    ) -> Any:
        """Send a request on a durable subscription to one broker, and to no other.

        The broker is reached at these addresses or at one of the session's.
        """
        self._check_open()
        request = check_request(message)
        host = redirection(request.subscription, broker, addresses)
        search = self.search_for(request.subscription)
        seconds = chosen(deadline_s, self._options.deadline_s)
        return await search.request_at(host, request, seconds, changes=changes)

    def search_for(self, durable: str) -> HostSearch:
        """Return a search for the broker that hosts a durable subscription."""
        return HostSearch(durable, self._links, self._options)

    async def partitions(
        self, *, deadline_s: float | Unset | None = _UNSET
    ) -> tuple[Partition, ...]:
        """Return the cells that cannot be reached, as far as the broker knows."""
        answer = await self.request(ListPartitions(0), deadline_s=deadline_s, changes=False)
        table: PartitionTable = ReconnectingLink.expect(answer, PartitionTable)
        return table.entries

    async def close_pubend(
        self,
        pubend: str,
        *,
        discard_history: bool = False,
        now: bool = False,
        wait: bool = False,
        deadline_s: float | Unset | None = _UNSET,
        on_progress: Callable[[PubendClosing], None] | None = None,
    ) -> PubendClosing:
        """Close a pubend for ever; return its state and what it waits for.

        When the call returns, the pubend is *sealed*: it accepts nothing any more, and all its
        subscribers receive what is in its log. It is *closed*, and its log is erased, when no
        subscription needs it any more and the retention is over; with ``wait`` the call returns only
        then, or raises DeadlineError, which says for whom it has waited. With ``discard_history`` the
        retention does not count. With ``now`` subscriptions are waited for at most ``close_wait_s``
        seconds; what they have not received by then is a gap. Repeating the call is safe, also with
        other options. ``on_progress`` is called while it waits.

        Where brokers require tokens, it needs an operator token.
        """
        self._check_open()
        discard_history = check_flag("discard_history", discard_history)
        mode = CloseMode.DISCARD_HISTORY if discard_history else CloseMode.DRAIN
        mode = CloseMode.NOW if check_flag("now", now) else mode
        return await close_pubend(
            self._links,
            pubend_id(check_pubend_name(pubend)),
            mode,
            chosen(deadline_s, self._options.deadline_s),
            wait=check_flag("wait", wait),
            on_progress=on_progress,
        )
