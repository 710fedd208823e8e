"""Calls to a broker: one connection, and requests whose replies come in pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.client import Session
    from gapless.core.ids import PubendId
    from gapless.messages.operating import CursorState, SubscriptionReply, SubscriptionState

__all__ = [
    "DEADLINE_S",
    "Listed",
    "call_broker",
    "durable_subscription",
    "every_pubend",
    "list_subscriptions",
    "request_at_host",
    "run",
    "whole_subscription",
]

DEADLINE_S = 10.0
"""The default deadline of an operator's call."""

CONNECT_DEADLINE_S = 10.0
"""How long the first connection may take at most."""

PROBE_AFTER_S = 0.1
"""A connection that takes longer may be to a port where nobody listens."""

PROBE_TIMEOUT_S = 2.0
"""How long a port may take to accept a connection or to refuse it."""

T = TypeVar("T")


def call_broker(
    url: str,
    work: Callable[[Session], Awaitable[T]],
    *,
    deadline_s: float = DEADLINE_S,
    token_file: Path | None = None,
    wait_s: float = 0.0,
) -> T:
    """Connect to a broker, do some work and disconnect.

    If no address listens the call fails at once, or after ``wait_s``: a broker may be starting.
    """

    async def connect_and_call() -> T:
        from gapless.client import connect

        connect_deadline_s = wait_s or min(deadline_s, CONNECT_DEADLINE_S)
        made = connect(
            url,
            name="gapless",
            deadline_s=deadline_s,
            connect_deadline_s=connect_deadline_s,
            token_file=token_file,
        )
        await _open(made, url, is_patient=wait_s > 0)
        try:
            return await work(made)
        finally:
            await made.close()

    return run(connect_and_call())


async def _open(session: Session, url: str, *, is_patient: bool) -> None:
    """Open a session, but do not try again where nobody listens."""
    opening = asyncio.ensure_future(session.open())
    try:
        done, _ = await asyncio.wait({opening}, timeout=None if is_patient else PROBE_AFTER_S)
        if not done:
            await _refuse_closed_ports(url)
        await opening
    except BaseException:
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        raise


async def _refuse_closed_ports(url: str) -> None:
    """Raise an error if every address refuses a connection because nobody listens there."""
    from gapless.core.address import parse_addresses
    from gapless.core.errors import ConnectionLostError

    addresses = parse_addresses(url)
    for address in addresses:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                _, writer = await asyncio.open_connection(*address)
        except ConnectionRefusedError:
            continue
        except (OSError, ValueError):
            return  # perhaps the broker is only slow, or the network is down for a moment
        writer.close()
        return
    where = ", ".join(map(str, addresses))
    raise ConnectionLostError(
        f"no broker listens on {where} (connection refused): start one there, or name another with --url"
    )


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, on uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def every_pubend(
    session: Session, *, hosted: bool = False, closed: bool = False
) -> AsyncIterator[Any]:
    """Yield all pubends that a broker knows of, page by page; closed ones too if requested."""
    from gapless.messages.operating import ListPubends

    after = None
    while True:
        answer = await session.request(ListPubends(0, after, hosted, closed), changes=False)
        for each in answer.entries:
            yield each
            after = each.pubend
        if not answer.more:
            return


class Listed(NamedTuple):
    """The subscriptions to list."""

    durable: bool = False
    """Only durable ones."""
    pattern: str = ""
    """Only names that match it."""
    limit: int = 0
    """At most so many; 0: all."""
    whole: bool = False
    """With all their streams, however many."""


async def list_subscriptions(
    session: Session, listed: Listed
) -> tuple[list[SubscriptionState], bool]:
    """Fetch subscriptions with their lags, page by page; return also whether there are more."""
    from gapless.core.errors import RefusedError
    from gapless.messages.operating import ListSubscriptions

    found: list[SubscriptionState] = []
    after = ""
    while True:
        most = listed.limit - len(found) if listed.limit else 0
        request = ListSubscriptions(0, after, listed.durable, listed.pattern, most, lag=True)
        answer = await session.request(request, changes=False)
        for each in answer.entries:
            after = each.name
            try:
                is_enough = not each.cursors_omitted or not (listed.whole or _hides_reasons(each))
                found.append(each if is_enough else await whole_subscription(session, after))
            except RefusedError:
                found.append(each)  # it has ended since
        if not answer.more or len(found) == listed.limit:
            return found, answer.more


def _hides_reasons(state: SubscriptionState) -> bool:
    """Whether a stream that is not in the list cannot continue."""
    shown = sum(each.pending_reason is not None for each in state.cursors)
    return shown < state.streams_pending


async def request_at_host(
    session: Session, name: str, message: Any, *, changes: bool = True
) -> Any:
    """Send a request to the broker that hosts a durable subscription; RefusedError if none does."""
    from gapless.core.errors import RefusedError

    answer = await session.request_at_host(name, message, changes=changes)
    if answer is None:
        raise RefusedError(f"there is no subscription {name!r} at any broker of the overlay")
    return answer


async def durable_subscription(session: Session, name: str) -> SubscriptionReply:
    """Fetch a durable subscription with its streams and past filters, wherever it is hosted."""

    async def request(message: Any) -> Any:
        return await request_at_host(session, name, message, changes=False)

    return await _paged_subscription(request, name, durable=True)


async def whole_subscription(session: Session, name: str) -> SubscriptionState:
    """Fetch one subscription of this broker with all its streams, page by page."""

    async def request(message: Any) -> Any:
        return await session.request(message, changes=False)

    return (await _paged_subscription(request, name, durable=False)).entry


async def _paged_subscription(
    request: Callable[[Any], Awaitable[Any]], name: str, *, durable: bool
) -> SubscriptionReply:
    from gapless.messages.operating import GetSubscription

    after: PubendId | None = None
    cursors: list[CursorState] = []
    while True:
        answer = await request(GetSubscription(0, name, after, lag=True, durable=durable))
        entry: SubscriptionState = answer.entry
        cursors += entry.cursors
        if not entry.cursors_omitted or not entry.cursors:
            entry = msgspec.structs.replace(entry, cursors=tuple(cursors), cursors_omitted=0)
            reply: SubscriptionReply = msgspec.structs.replace(answer, entry=entry)
            return reply
        after = entry.cursors[-1].pubend
