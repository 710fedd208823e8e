"""Nodes in this process, on free ports, and functions that wait for a condition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from gapless.core.ids import PubendId
from gapless.core.parameters import DEFAULTS, Parameters
from gapless.runtime import Address, BrokerSettings, Node, overlay_of
from tests.runtime.raw_client import DEADLINE_S

LOOPS = ("asyncio", "uvloop")

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], loop: str = "asyncio") -> T:
    """Run a test's coroutine in an event loop of a kind."""
    factory = uvloop.new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


async def until(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds; the test fails at the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - there is no notification for what a test waits for
            await asyncio.sleep(0.005)


class World:
    """Some nodes of one overlay."""

    def __init__(self, words: str, data: Path | None, parameters: Parameters) -> None:
        self.overlay = overlay_of(words)
        self.nodes: dict[str, Node] = {}
        self._data = data
        self._parameters = parameters
        self._addresses: dict[str, Address] = {}

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def make(self, name: str, **settings: Any) -> Node:
        chosen = BrokerSettings(
            name=name,
            overlay=self.overlay,
            data=self._data and self._data / name,
            parameters=self._parameters,
            **settings,
        )
        return Node(chosen, addresses=self._addresses)

    async def start(self, name: str, **settings: Any) -> Node:
        node = self.nodes[name] = self.make(name, **settings)
        await node.start()
        return node

    async def knows(self, name: str, pubend: str) -> None:
        """Wait until a broker knows a pubend."""
        await until(lambda: self.nodes[name].broker.components.announcements.get(PubendId(pubend)))


@asynccontextmanager
async def world(
    words: str = "line:1", data: Path | None = None, parameters: Parameters = DEFAULTS
) -> AsyncIterator[World]:
    """Start the nodes of an overlay; stop them at the end."""
    made = World(words, data, parameters)
    try:
        for name, _ in made.overlay.brokers:
            await made.start(name)
        yield made
    finally:
        for node in made.nodes.values():
            await node.stop()


__all__ = ["LOOPS", "World", "run", "until", "world"]
