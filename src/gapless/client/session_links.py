"""The links of a session: one main link, and links that stay with a broker.

A session with one address has one link, which everything shares. With several addresses the main
link goes to any of them. A publisher has a link to the PHB of its pubend. A durable subscription
has a link to its hosting broker, which fails over to another address if the hosting broker stays
unreachable.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import msgspec

from gapless.client.link import ReconnectingLink
from gapless.client.options import SessionOptions
from gapless.client.requests import RequestNumbers
from gapless.core.address import Address
from gapless.core.errors import (
    AddressError,
    ClosedError,
    DeadlineError,
    GaplessError,
    WrongBrokerError,
)

__all__ = ["SessionLinks"]


class SessionLinks:
    """All links of a session; they are created when needed and last as long as the session."""

    def __init__(self, addresses: tuple[Address, ...], options: SessionOptions) -> None:
        self._addresses = addresses
        self._options = options
        self._numbers = RequestNumbers()
        self._pinned_links: dict[str, ReconnectingLink] = {}
        """Links that stay with a broker, by its name."""
        self._failover_links: dict[str, ReconnectingLink] = {}
        """Links of durable subscriptions, by the broker at which these were opened."""
        self._host_links: dict[str, list[ReconnectingLink]] = {}
        """Links to brokers to which the session was redirected, by broker."""
        self.main = ReconnectingLink(addresses, options, self._numbers)
        """The link for everything that any broker can serve."""

    @property
    def are_connected(self) -> bool:
        """Whether the main link and all links that are in use have a connection."""
        redirected = (each for links in self._host_links.values() for each in links)
        others = (*self._pinned_links.values(), *self._failover_links.values(), *redirected)
        return self.main.is_up and all(link.is_up for link in others if link.has_users)

    @property
    def has_one_address(self) -> bool:
        """Whether the session has only one address."""
        return len(self._addresses) == 1

    async def close(self, error: GaplessError) -> None:
        """End all links; waiting calls get the error."""
        redirected = (each for links in self._host_links.values() for each in links)
        own = (self.main, *self._pinned_links.values(), *self._failover_links.values())
        for link in (*own, *redirected):
            await link.close(error)

    async def for_subscription(self, *, durable: bool) -> ReconnectingLink:
        """Return the link of a subscription."""
        if not durable or self.has_one_address:
            return self.main
        if self._options.failover_after_s is None:
            return await self.current_pinned()
        handshake = await self.main.up()
        assert self.main.address is not None
        return self._failover_link(
            handshake.broker, self.main.address, self._options.failover_after_s
        )

    def to_host(self, broker: str, addresses: tuple[str, ...]) -> ReconnectingLink:
        """Return a link to the broker that hosts a durable subscription.

        It tries the addresses of the redirection and those of the session, until the broker
        answers. Later it fails over like other links of durable subscriptions, if need be to the
        only address of the session.
        """
        if self.main.handshake is not None and self.main.handshake.broker == broker:
            if self.has_one_address:
                return self.main
            if self._options.failover_after_s is not None and self.main.address is not None:
                seconds = self._options.failover_after_s
                link = self._failover_link(broker, self.main.address, seconds)
                if link.handshake is None or link.handshake.broker == broker:
                    return link
        made = self._host_links.setdefault(broker, [])
        for each in made:
            if each.handshake is None or each.handshake.broker == broker:
                return each
        fails_over = self._options.failover_after_s is not None
        link = ReconnectingLink(
            self._with_own(addresses),
            self._options,
            self._numbers,
            broker=broker,
            stays=not fails_over,
            failover_after_s=(self._options.failover_after_s or 0.0) if fails_over else 0.0,
        )
        made.append(link)
        link.start()
        return link

    def to_broker(self, broker: str, addresses: tuple[str, ...]) -> ReconnectingLink:
        """Return a link to one broker, at the addresses of a redirection or those of the session."""
        if self.main.handshake is not None and self.main.handshake.broker == broker:
            return self.main
        link = self._pinned_links.get(broker)
        if link is None:
            link = ReconnectingLink(
                self._with_own(addresses), self._options, self._numbers, broker=broker
            )
            self._pinned_links[broker] = link
            link.start()
        return link

    def _with_own(self, addresses: tuple[str, ...]) -> tuple[Address, ...]:
        """Return the addresses of a redirection, then those of the session."""
        configured = []
        for text in addresses:
            with suppress(AddressError):  # the error for the program shows it, if none is reached
                configured.append(Address.parse(text))
        return tuple(dict.fromkeys((*configured, *self._addresses)))

    async def current_pinned(self) -> ReconnectingLink:
        """Return a link that stays with the broker to which the session is connected now."""
        if self.has_one_address:
            return self.main
        handshake = await self.main.up()
        assert self.main.address is not None
        return self._pinned_link(handshake.broker, self.main.address)

    def _failover_link(
        self, broker: str, address: Address, failover_after_s: float
    ) -> ReconnectingLink:
        """Return a link that stays with one broker until failover."""
        link = self._failover_links.get(broker)
        if link is None:
            others = [each for each in self._addresses if each != address]
            addresses = (address, *others)
            link = ReconnectingLink(
                addresses,
                self._options,
                self._numbers,
                address=address,
                failover_after_s=failover_after_s,
            )
            self._failover_links[broker] = link
            link.start()
        return link

    def _pinned_link(self, broker: str, address: Address) -> ReconnectingLink:
        """Return the link to one broker, which stays with it."""
        link = self._pinned_links.get(broker)
        if link is None:
            link = ReconnectingLink((address,), self._options, self._numbers, broker=broker)
            self._pinned_links[broker] = link
            link.start()
        return link

    async def call_at_phb(
        self, request: Any, deadline_s: float | None
    ) -> tuple[ReconnectingLink, Any]:
        """Send a request to the PHB that it concerns; return the link to it and the answer."""
        if self.has_one_address:
            return self.main, await self.main.call(request, deadline_s)
        now = asyncio.get_running_loop().time
        end = None if deadline_s is None else now() + deadline_s
        phb, tried = "", set[str]()
        try:
            async with asyncio.timeout_at(end):
                link = await self.current_pinned()
            while True:
                try:  # only the call knows whether the request was sent when the deadline passes
                    return link, await link.call(request, end and max(0.0, end - now()))
                except WrongBrokerError as error:
                    phb = error.broker
                    if phb in tried:
                        raise
                    tried.add(phb)
                    async with asyncio.timeout_at(end):
                        link = await self._find(error)
        except DeadlineError:
            raise
        except TimeoutError:
            if phb and phb not in self._pinned_links:
                raise DeadlineError(
                    f"{type(request).__name__} was not done within {deadline_s:g} s: "
                    f"the broker {phb} is responsible and cannot be reached"
                ) from None
            raise self.main.late(type(request).__name__, deadline_s, sent=False) from None

    async def _find(self, error: WrongBrokerError) -> ReconnectingLink:
        """Return a link to the broker that a refusal names, if one of the addresses is its own.

        The search repeats while an address does not answer, because that may be the broker's.
        """
        found = self._pinned_links.get(error.broker)
        if found is not None:
            return found
        waits = self._options.backoff.waits(Random(self._options.seed).random)  # noqa: S311
        while True:
            names = [await self._name_at(address) for address in self._addresses]
            if error.broker in names:
                return self._pinned_link(error.broker, self._addresses[names.index(error.broker)])
            if None not in names:
                raise error
            await asyncio.sleep(next(waits))

    async def _name_at(self, address: Address) -> str | None:
        """Return the name of the broker at an address; None if no handshake comes soon."""
        unreported = msgspec.structs.replace(self._options, reporter=None)
        link = ReconnectingLink((address,), unreported, self._numbers)
        link.start()
        try:
            async with asyncio.timeout(1.0):
                return (await link.up()).broker
        except (TimeoutError, GaplessError):
            return None
        finally:
            await link.close(ClosedError("the link only queried the broker's name"))
