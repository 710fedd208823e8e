"""Nodes in this process, on ports that are free, and waiting for what must come to be."""

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
    """Run a test's coroutine in a loop of a kind."""
    factory = uvloop.new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


async def until(condition: Callable[[], Any]) -> None:
    """Wait until something holds; a test that waits too long has failed."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - nobody announces what a test looks for
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
        """Wait until a broker has heard of a pubend."""
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
