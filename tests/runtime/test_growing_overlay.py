"""A running overlay of real processes grows, is rewired and shrinks under load (RS-15, RS-36)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gapless import connect
from gapless.client.overlay import OverlayTree
from gapless.core.errors import GaplessError, OperationRefusedError, UsageError
from gapless.runtime import Supervisor, generate, load_overlay
from gapless.runtime.overlay_choice import choose_overlay
from tests.runtime.nodes import run

DEADLINE_S = 120


async def tree_at(url: str) -> OverlayTree:
    async with connect(url) as session:
        return await session.overlay.tree()


async def equal_trees(supervisor: Supervisor) -> OverlayTree:
    """Return the tree, when all brokers have the same one."""
    while True:
        trees = [await tree_at(each) for each in supervisor.urls]
        if len({tuple(each.cells) for each in trees}) == 1 and not trees[0].silent:
            return trees[0]
        await asyncio.sleep(0.1)


def neighbours(tree: OverlayTree) -> dict[str, set[str]]:
    """Return the neighbours of the cells, by their names."""
    plain = {each.name: each.name.partition("#")[0] for each in tree.cells}
    return {plain[each.name]: {plain[one] for one in each.neighbours} for each in tree.cells}


class Load:
    """Publishes numbers, and reads them through a durable subscription, until it is stopped."""

    def __init__(self, publisher_url: str, subscriber_url: str) -> None:
        self._urls = publisher_url, subscriber_url
        self._stopped = asyncio.Event()
        self.published = 0
        self.seen: list[int] = []

    async def publish(self) -> None:
        async with connect(self._urls[0]) as session, session.publisher("trades") as publisher:
            while not self._stopped.is_set():
                self.published += 1
                await publisher.publish({"n": self.published})
                await asyncio.sleep(0.005)

    async def read(self) -> None:
        async with (
            connect(self._urls[1]) as session,
            session.subscribe("n > 0", durable="all", start="earliest") as events,
        ):
            async for event in events:
                self.seen.append(event.attributes["n"])  # type: ignore[arg-type]
                if self._stopped.is_set() and len(self.seen) >= self.published:
                    return

    def stop(self) -> None:
        self._stopped.set()


async def write_tree(supervisor: Supervisor, tree: OverlayTree) -> None:
    shape = tree.shape()
    cells = {each.name: [*each.brokers] for each in tree.cells}
    assert supervisor.write_tree(cells, [*shape.edges]) == []


def test_an_overlay_grows_is_rewired_and_shrinks_without_loss(tmp_path: Path) -> None:
    async def grow_and_rewire() -> OverlayTree:
        async with (
            Supervisor(generate("line:3"), tmp_path, port=0) as supervisor,
            asyncio.timeout(DEADLINE_S),
        ):
            load = Load(supervisor["b1"].url, supervisor["b3"].url)
            reading = asyncio.create_task(load.read())
            publishing = asyncio.create_task(load.publish())
            address = await supervisor.start_newcomer("b4", "d")
            with pytest.raises(GaplessError, match="in no tree yet"):
                async with connect(f"gapless://{address}", connect_deadline_s=0.5):
                    pass
            async with connect(supervisor["b1"].url) as session:
                done = await session.overlay.append("d", "b4", [address], at="c3")
                assert done.cells[0].startswith("d#b3.")
                assert done.time_us > 0
                await session.overlay.shift("d", "c3", "c2")
                await write_tree(supervisor, await equal_trees(supervisor))
                tree = await equal_trees(supervisor)
                assert neighbours(tree)["c2"] == {"c1", "c3", "d"}
                with pytest.raises(OperationRefusedError, match="durable subscription all") as why:
                    await session.overlay.detach("c3")
                assert why.value.why == "not empty"
                with pytest.raises(UsageError, match="no cell x"):
                    await session.overlay.shift("d", "c2", "x")
            load.stop()
            await asyncio.gather(publishing, reading)
            assert load.seen == [*range(1, load.published + 1)]
        return tree

    async def restart_and_shrink(before: OverlayTree) -> None:
        overlay = choose_overlay(None, tmp_path)
        async with (
            Supervisor(overlay, tmp_path, port=0) as supervisor,
            asyncio.timeout(DEADLINE_S),
        ):
            tree = await equal_trees(supervisor)
            assert [each.name for each in tree.cells] == [each.name for each in before.cells]
            assert neighbours(tree) == neighbours(before)
            async with connect(supervisor["b1"].url) as session:
                await session.overlay.detach("d")
                await write_tree(supervisor, await session.overlay.tree())
            await supervisor.stop_broker("b4")
            assert (tmp_path / "b4.stopped" / "store").is_dir()
        assert neighbours(tree).keys() == {"c1", "c2", "c3", "d"}
        topology = load_overlay(tmp_path / "overlay.toml").topology
        assert [each.name for each in topology.cells] == ["c1", "c2", "c3"]

    run(restart_and_shrink(run(grow_and_rewire())))
