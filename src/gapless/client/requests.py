"""Requests of a link: their numbers, the callbacks for their replies, and refusals as errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gapless.core.errors import (
    FencedError,
    HostUnknownError,
    NotAuthorisedError,
    ProtocolError,
    PubendClosedError,
    RefusedError,
    UnavailableError,
    UsageError,
    WrongBrokerError,
)
from gapless.core.printable import printable
from gapless.messages.clients import RefusalCause, Refused
from gapless.wire import CLIENT_REQUESTS, HEADER_BYTES

__all__ = ["OpenRequests", "RequestNumbers", "check_request", "refusal"]


class RequestNumbers:
    """Request numbers, unique in a session."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """Return a new number."""
        self._last += 1
        return self._last


class OpenRequests:
    """The requests of one connection that have no reply yet."""

    def __init__(self) -> None:
        self._then: dict[int, Callable[[Any], None]] = {}
        self._calls: set[asyncio.Future[Any]] = set()
        """Calls that wait for a reply on this connection."""

    def add(self, number: int, then: Callable[[Any], None]) -> None:
        """Call back with the reply to a request."""
        self._then[number] = then

    def forget(self, number: int) -> None:
        """The reply to a request is not needed any more."""
        self._then.pop(number, None)

    def replied(self, notice: Any) -> None:
        """Call back with a reply; drop it if no request waits for it."""
        then = self._then.pop(notice.request, None)
        if then is not None:
            then(notice)

    def clear(self) -> None:
        """The connection is lost: drop all callbacks, and let calls return None."""
        self._then.clear()
        for reply in self._calls:
            if not reply.done():
                reply.set_result(None)

    async def call(
        self, send: Callable[[Callable[[Any], None]], None], then: Callable[[Any], None] | None
    ) -> Any:
        """Send a request and return its reply, or None if the connection is lost before it comes.

        ``then`` is called with the reply, unless it is a refusal, before anything that follows the
        reply on the connection is processed.
        """
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def take(notice: Any) -> None:
            if not reply.done():
                if then is not None and type(notice) is not Refused:
                    then(notice)
                reply.set_result(notice)

        self._calls.add(reply)
        try:
            send(take)
            return await reply
        finally:
            self._calls.discard(reply)


def check_request(message: Any) -> Any:
    """Return a request of a program if a broker can read it and it has a number.

    >>> from gapless.messages.operating import ListPartitions
    >>> check_request(ListPartitions(0))
    ListPartitions(request=0)
    """
    kind = type(message).__name__
    if not hasattr(message, "request"):
        raise UsageError(f"a request is a message of gapless.messages with a number, not a {kind}")
    try:
        CLIENT_REQUESTS.decode(CLIENT_REQUESTS.encode(message)[HEADER_BYTES:])
    except (ProtocolError, TypeError, ValueError, OverflowError) as error:
        raise UsageError(f"this {kind} is not a request: {error}") from None
    return message


def refusal(notice: Refused) -> RefusedError | UsageError:
    """Return a refusal as an error."""
    reason = printable(notice.reason)  # it may contain names of other programs
    match notice.cause:
        case RefusalCause.WRONG_BROKER:
            return WrongBrokerError(reason, notice.broker, notice.addresses)
        case RefusalCause.HOST_UNKNOWN:
            return HostUnknownError(reason, notice.silent)
        case RefusalCause.FENCED:
            return FencedError(reason)
        case RefusalCause.CLOSED:
            return PubendClosedError(reason)
        case RefusalCause.NOT_AUTHORISED:
            return NotAuthorisedError(reason)
        case RefusalCause.UNAVAILABLE:
            return UnavailableError(reason)
        case RefusalCause.FILTER_REQUIRED:
            return UsageError(reason)
        case _:
            return RefusedError(reason)
