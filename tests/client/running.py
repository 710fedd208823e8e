"""Asynchronous tests: each in a loop of its own, bounded in time, leaving no task behind."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

__all__ = ["async_test", "close_server", "soon"]

P = ParamSpec("P")

BOUND_S = 40.0
"""No test needs nearly so long; one that does hangs."""


def async_test(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Let pytest run an asynchronous test."""

    @functools.wraps(test)
    def run_test(*args: P.args, **kwargs: P.kwargs) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(BOUND_S):
                await test(*args, **kwargs)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"tasks were left behind: {left}"

        asyncio.run(bounded())

    return run_test


async def soon(condition: Callable[[], bool]) -> None:
    """Wait until something holds; the bound of the test is the bound of this."""
    while not condition():
        await asyncio.sleep(0.002)


async def close_server(server: asyncio.Server, cut: Callable[[], None]) -> None:
    """Close a server and cut its connections, also those that it is just accepting.

    A server that is closed between accepting a connection and making its transport leaves it open.
    """
    for each in server.sockets:
        asyncio.get_running_loop().remove_reader(each.fileno())
    for _ in range(4):
        await asyncio.sleep(0)
    cut()
    server.close()
    await server.wait_closed()
    for _ in range(2):
        await asyncio.sleep(0)
