"""Talking to a broker: one connection, some questions, and answers that come in pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from gapless.client import Session

__all__ = ["DEADLINE_S", "every_pubend", "every_subscription", "run", "talk"]

DEADLINE_S = 10.0
"""How long a call of an operator may take, unless a command says otherwise."""

CONNECT_S = 10.0
"""How long the first connection may take, if a call may take longer."""

T = TypeVar("T")


def talk(to: str, work: Callable[[Session], Awaitable[T]], *, deadline: float = DEADLINE_S) -> T:
    """Connect to a broker, do some work there, and leave."""

    async def visit() -> T:
        from gapless.client import connect

        patience = min(deadline, CONNECT_S)
        made = connect(to, name="gapless", deadline=deadline, connect_deadline=patience)
        async with made as session:
            return await work(session)

    return run(visit())


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run until it is done, on the fast event loop where that is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


async def every_pubend(session: Session, *, hosted: bool = False) -> AsyncIterator[Any]:
    """Yield all pubends that a broker knows of, page by page."""
    from gapless.messages.operating import ListPubends

    after = None
    while True:
        answer = await session.request(ListPubends(0, after, hosted), changes=False)
        for each in answer.entries:
            yield each
            after = each.pubend
        if not answer.more:
            return


async def every_subscription(session: Session, *, durable: bool = False) -> AsyncIterator[Any]:
    """Yield all subscriptions of a broker, page by page."""
    from gapless.messages.operating import ListSubscriptions

    after = ""
    while True:
        answer = await session.request(ListSubscriptions(0, after, durable), changes=False)
        for each in answer.entries:
            yield each
            after = each.name
        if not answer.more:
            return
