"""Finding the broker that hosts a durable subscription (MV-15).

A broker that is asked for a durable name redirects the client to the hosting broker. The client
goes to the addresses of the redirection, or to that one of its own addresses at which the broker
answers. If a broker that may host the name is silent, or the hosting broker cannot be reached, the
client asks its own brokers again, until its deadline. The error then says for whom it waited.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, Final

from gapless.client.link import ReconnectingLink, shown_deadline
from gapless.client.options import SessionOptions
from gapless.client.requests import refusal
from gapless.core.backoff import Backoff
from gapless.core.errors import DeadlineError, GaplessError, HostUnknownError
from gapless.core.limits import REDIRECTS_MAX
from gapless.messages.clients import DurableFound, FindDurable, RefusalCause, Refused

if TYPE_CHECKING:
    from gapless.client.session_links import SessionLinks

__all__ = ["HostSearch"]

_REACH_S: Final = 3.0
"""How long the hosting broker may take to answer before the client asks its own brokers again."""

_PAUSES: Final = Backoff(first_s=0.05, longest_s=1.0)
"""The pauses between questions. A question itself takes as long as its broker waits."""


class HostSearch:
    """The search of one subscription for its hosting broker."""

    def __init__(self, name: str, links: SessionLinks, options: SessionOptions) -> None:
        self._name = name
        self._links = links
        self._waits = _PAUSES.waits(Random(options.seed).random)  # noqa: S311
        self._redirects = 0
        self._last: Refused | None = None
        self._trouble = ""
        """Why the hosting broker could not be reached last."""

    async def next_link(self, refused: Refused) -> ReconnectingLink | None:
        """Return the link to the broker that a refusal names; None: ask the own brokers again."""
        self._last, self._trouble = refused, ""
        if refused.cause is not RefusalCause.WRONG_BROKER or refused.hosting is not None:
            # if it has just moved, the own broker looks for it again
            await self._pause()
            return None
        self._redirects += 1
        if self._redirects > REDIRECTS_MAX:
            raise refusal(refused)
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
        done = f"{what} was not done within {shown_deadline(deadline_s)} s"
        if last.cause is RefusalCause.HOST_UNKNOWN:
            return DeadlineError(f"{done}: {last.reason}")
        where = ", ".join(last.addresses) or "an address that its overlay does not configure"
        trouble = self._trouble or (link.trouble if not link.is_up else "it did not answer in time")
        return DeadlineError(
            f"{done}: the subscription {self._name!r} is hosted by the broker {last.broker} at "
            f"{where}, which cannot be reached: {trouble}"
        )

    async def host(self, deadline_s: float | None) -> ReconnectingLink | None:
        """Return a link to the hosting broker, or None if no broker hosts the subscription."""
        loop = asyncio.get_running_loop()
        end = None if deadline_s is None else loop.time() + deadline_s
        home = self._links.main
        try:
            async with asyncio.timeout_at(end):
                while True:
                    link = await self._ask(home)
                    if not isinstance(link, Refused):
                        return link
                    found = await self.next_link(link)
                    if found is not None:
                        return found
        except TimeoutError:
            raise self.late("FindDurable", deadline_s, home) from None

    async def _ask(self, home: ReconnectingLink) -> ReconnectingLink | Refused | None:
        """Ask the session's broker; return the link, None, or why there is none yet."""
        try:
            answer: Any = await home.call(FindDurable(0, self._name), None, changes=False)
        except HostUnknownError as error:
            return Refused(0, str(error), RefusalCause.HOST_UNKNOWN)
        found: DurableFound = ReconnectingLink.expect(answer, DurableFound)
        if not found.broker:
            return None
        if home.handshake is not None and home.handshake.broker == found.broker:
            return home
        reason = f"the subscription {self._name!r} is hosted by the broker {found.broker}"
        return Refused(
            0, reason, RefusalCause.WRONG_BROKER, found.broker, addresses=found.addresses
        )
