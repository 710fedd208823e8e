"""Every role has brokers in any tree, and the script kills the intended brokers."""

from __future__ import annotations

import asyncio
from itertools import islice
from random import Random

import pytest

from gapless.content import Filter
from gapless.runtime.overlay_config import generate
from gapless_lab.demo.script import SHORT_S, script_for
from gapless_lab.demo.workload import TESTS, DemoFilter, assign_roles, quotes


class Notebook:
    """A stage that only records the actions."""

    def __init__(self) -> None:
        self.kills: list[str] = []
        self.others: list[tuple[str, str]] = []

    async def kill(self, broker: str, why: str) -> None:
        assert why
        self.kills.append(broker)

    async def leave(self, subscriber: str) -> None:
        self.others.append(("leave", subscriber))

    async def come_back(self, subscriber: str) -> None:
        self.others.append(("come back", subscriber))

    async def enter(self, subscriber: str) -> None:
        self.others.append(("enter", subscriber))

    async def switch(self, subscriber: str, new_filter: DemoFilter) -> None:
        assert new_filter.text in TESTS
        self.others.append(("switch", subscriber))


def acted(topology: str, seconds: float, seed: int = 1) -> Notebook:
    notebook = Notebook()

    async def act() -> None:
        cast = assign_roles(generate(topology))
        for scene in script_for(cast, seconds, Random(seed)):
            assert 0 < scene.at_s < seconds
            await scene.act(notebook)

    asyncio.run(act())
    return notebook


@pytest.mark.parametrize("exchange", ["NYSE", "NASDAQ", "LSE", "TSE"])
@pytest.mark.parametrize("text", TESTS)
def test_a_python_function_agrees_with_its_filter(text: str, exchange: str) -> None:
    filter_ = Filter(text)
    for quote in islice(quotes(exchange, Random(7)), 500):
        assert filter_.matches(quote) == TESTS[text](quote)


@pytest.mark.parametrize("text", TESTS)
def test_every_filter_matches_some_events_and_only_one_matches_all(text: str) -> None:
    found = [
        TESTS[text](quote)
        for exchange in ("NYSE", "NASDAQ", "LSE", "TSE")
        for quote in islice(quotes(exchange, Random(7)), 500)
    ]
    assert any(found)
    assert all(found) == (text == "TRUE")


def test_a_demo_filter_names_the_streams_that_it_can_match() -> None:
    for subscriber in assign_roles(generate("tree:2x3")).subscribers:
        filter_ = Filter(subscriber.filter.text)
        meets = {
            exchange.lower()
            for exchange in ("NYSE", "NASDAQ", "LSE", "TSE")
            if filter_.intersects(Filter(f"exchange = '{exchange}'"))
        }
        assert meets == subscriber.filter.pubends


@pytest.mark.parametrize("topology", ["line:1", "line:2", "line:3", "star:5", "tree:2x3"])
def test_every_role_has_brokers_in_any_tree(topology: str) -> None:
    overlay = generate(topology)
    cast = assign_roles(overlay)
    names = {name for name, _ in overlay.brokers}
    used = {broker for publisher in cast.publishers for broker in publisher.brokers}
    used |= {broker for subscriber in cast.subscribers for broker in subscriber.brokers}
    assert used | {cast.router} <= names
    assert sum(publisher.share for publisher in cast.publishers) == pytest.approx(1)


def test_the_script_kills_a_phb_an_shb_with_a_durable_subscription_and_a_router() -> None:
    cast = assign_roles(generate("tree:2x3"))
    notebook = acted("tree:2x3", 40)
    expected = {
        cast.publisher("nyse-1").brokers[0],
        cast.subscriber("desk").brokers[0],
        cast.router,
    }
    assert expected <= set(notebook.kills)
    assert ("switch", "desk") in notebook.others
    assert notebook.others.index(("leave", "abroad")) < notebook.others.index(
        ("come back", "abroad")
    )


def test_a_short_run_has_one_kill_and_one_change_of_a_filter() -> None:
    notebook = acted("line:3", SHORT_S / 2)
    assert notebook.kills == ["b1"]
    assert notebook.others == [("switch", "desk"), ("enter", "late")]


def test_a_long_run_has_more_kills_and_a_seed_repeats_them() -> None:
    short, long = acted("tree:2x3", 40), acted("tree:2x3", 200)
    assert len(long.kills) > len(short.kills)
    assert acted("tree:2x3", 200).kills == long.kills
    assert acted("tree:2x3", 200, seed=2).kills != long.kills


def test_a_publisher_repeats_its_quotes_for_the_same_seed() -> None:
    def some(seed: int) -> list[object]:
        return [*islice(quotes("NYSE", Random(seed)), 20)]

    assert some(3) == some(3) != some(4)
