"""Asynchronous tests: each runs in its own event loop, has a time limit and leaves no task."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

__all__ = ["async_test", "close_server", "soon"]

P = ParamSpec("P")

BOUND_S = 40.0
"""Time limit of a test. No test needs nearly as long."""


def async_test(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an asynchronous test under pytest."""

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
    """Wait until a condition holds; the time limit of the test applies."""
    while not condition():
        await asyncio.sleep(0.002)


async def close_server(server: asyncio.Server, cut: Callable[[], None]) -> None:
    """Close a server and cut its connections, including those that it is accepting.

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
