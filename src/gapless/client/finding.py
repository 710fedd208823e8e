"""Finding the broker that hosts a durable subscription (MV-15).

A broker that is asked for a durable name redirects the client to the hosting broker. The client
goes to the addresses of the redirection, or to that one of its own addresses at which the broker
answers. If a broker that may host the name is silent, or the hosting broker cannot be reached, the
client asks its own brokers again, until its deadline. The error then says for whom it waited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gapless.client.link import ReconnectingLink, shown_deadline
from gapless.client.options import SessionOptions
from gapless.client.requests import refusal
from gapless.core.backoff import Backoff
from gapless.core.errors import (
    DeadlineError,
    GaplessError,
    HostUnknownError,
    OutcomeUnknownError,
)
from gapless.core.limits import REDIRECTS_MAX
from gapless.messages.clients import DurableFound, FindDurable, RefusalCause, Refused

if TYPE_CHECKING:
    from gapless.client.session_links import SessionLinks

__all__ = ["ELSEWHERE", "HostSearch", "find_wait_ms", "redirection"]

ELSEWHERE: Final = frozenset({RefusalCause.WRONG_BROKER, RefusalCause.HOST_UNKNOWN})
"""Another broker hosts the subscription, or may host it."""

_Located: TypeAlias = tuple[ReconnectingLink, str]
"""A link to the hosting broker, and its name: the link may have failed over since."""

_REACH_S: Final = 3.0
"""How long the hosting broker may take to answer before the client asks its own brokers again."""

_PAUSES: Final = Backoff(first_s=0.05, longest_s=1.0)
"""The pauses between questions. A question itself takes as long as its broker waits."""


class HostSearch:
    """The search for the hosting broker of one subscription."""

    def __init__(self, name: str, links: SessionLinks, options: SessionOptions) -> None:
        self._name = name
        self._options = options
        self._links = links
        self._waits = _PAUSES.waits(Random(options.seed).random)  # noqa: S311
        self._redirects = 0
        self._last: Refused | None = None
        self._trouble = ""
        """Why the hosting broker could not be reached last."""
        self._deadline_s: float | None = None

    async def next_link(self, refused: Refused) -> ReconnectingLink | None:
        """Return the link to the broker that a refusal names; None: ask the own brokers again."""
        if refused.silent and self._last is None and self._options.reporter is not None:
            self._options.reporter.waits(refused.reason)
        self._last, self._trouble = refused, ""
        self._redirects += 1
        is_redirected = refused.cause is RefusalCause.WRONG_BROKER and refused.hosting is None
        if not is_redirected or self._redirects > REDIRECTS_MAX:
            # if it has just moved, the own broker looks for it again
            await self._pause()
            return None
        link = self._links.to_host(refused.broker, refused.addresses)
        try:
            async with asyncio.timeout(_REACH_S):
                await link.up()
        except TimeoutError:
            self._trouble = link.trouble
            await self._pause()
            return None
        return link

    async def _pause(self) -> None:
        self._redirects = 0
        await asyncio.sleep(next(self._waits))

    def late(
        self, what: str, deadline_s: float | None, link: ReconnectingLink, *, sent: bool = False
    ) -> GaplessError:
        """Return the error if the deadline passes: it names the brokers that are waited for."""
        last = self._last
        if last is None:
            return link.late(what, deadline_s, sent=sent)
        reason = last.reason
        if last.cause is RefusalCause.WRONG_BROKER:
            where = ", ".join(last.addresses) or "an address that its overlay does not configure"
            trouble = self._trouble or ("it did not answer in time" if link.is_up else link.trouble)
            reason = (
                f"the subscription {self._name!r} is hosted by the broker {last.broker} at {where}, "
                f"which cannot be reached: {trouble}"
            )
        seconds = shown_deadline(deadline_s)
        if sent:
            return OutcomeUnknownError(
                f"{what} was sent and not answered within {seconds} s: {reason}; "
                "it may have been done, or be done later"
            )
        return DeadlineError(f"{what} was not done within {seconds} s: {reason}")

    # --- requests by name ----------------------------------------------------------------------

    async def request(self, message: Any, deadline_s: float | None, *, changes: bool) -> Any:
        """Send a request to the hosting broker until it answers; return None if there is none.

        Only the hosting broker executes it: any other one redirects the client again.
        """
        return await self._repeat(message, deadline_s, self._located, changes=changes)

    async def request_at(
        self, host: Refused, message: Any, deadline_s: float | None, *, changes: bool
    ) -> Any:
        """Send a request to the broker that a redirection names, until it answers."""

        async def located() -> _Located:
            while (link := await self.next_link(host)) is None:
                pass
            return link, host.broker

        return await self._repeat(message, deadline_s, located, changes=changes)

    async def _repeat(
        self,
        message: Any,
        deadline_s: float | None,
        locate: Callable[[], Awaitable[_Located | None]],
        *,
        changes: bool,
    ) -> Any:
        loop, self._deadline_s = asyncio.get_running_loop(), deadline_s
        end = None if deadline_s is None else loop.time() + deadline_s
        link, was_lost, is_sent = self._links.main, False, False
        try:
            async with asyncio.timeout_at(end):
                while (located := await locate()) is not None:
                    link, broker = located
                    if not link.is_at(broker):
                        await self._pause()
                        continue
                    is_sent = changes
                    answer = await link.attempt(message)
                    was_lost = was_lost or (changes and answer is None)
                    is_sent = was_lost
                    if isinstance(answer, Refused) and answer.cause in ELSEWHERE:
                        self._last = answer
                        await self._pause()
                    elif isinstance(answer, Refused):
                        raise refusal(answer)
                    elif answer is not None:
                        return answer
        except TimeoutError:
            raise self.late(type(message).__name__, deadline_s, link, sent=is_sent) from None
        return None

    async def _located(self) -> _Located | None:
        """Return the hosting broker and a link to it; None if no broker hosts the subscription."""
        while True:
            found = await self._ask(self._links.main)
            if not isinstance(found, Refused):
                return found
            link = await self.next_link(found)
            if link is not None:
                return link, found.broker

    async def _ask(self, home: ReconnectingLink) -> _Located | Refused | None:
        """Ask the session's broker; return the host, None, or why there is no link to it yet."""
        try:
            request = FindDurable(0, self._name, find_wait_ms(self._deadline_s))
            answer: Any = await home.call(request, None, changes=False)
        except HostUnknownError as error:
            return Refused(0, str(error), RefusalCause.HOST_UNKNOWN, silent=error.silent)
        found: DurableFound = ReconnectingLink.expect(answer, DurableFound)
        if not found.broker:
            return None
        if home.is_at(found.broker):
            return home, found.broker
        return redirection(self._name, found.broker, found.addresses)


def find_wait_ms(deadline_s: float | None) -> int:
    """Return how long brokers wait for each other, so that the answer comes before a deadline.

    >>> find_wait_ms(1.0), find_wait_ms(None), find_wait_ms(1e9)
    (700, 0, 60000)
    """
    return 0 if deadline_s is None else max(1, min(60_000, int(700 * deadline_s)))


def redirection(name: str, broker: str, addresses: tuple[str, ...]) -> Refused:
    """Return the redirection to a hosting broker."""
    reason = f"the subscription {name!r} is hosted by the broker {broker}"
    return Refused(0, reason, RefusalCause.WRONG_BROKER, broker, addresses=addresses)
