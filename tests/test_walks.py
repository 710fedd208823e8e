"""How many components an event, a subscribe, a filter change and a restart enter in a broker.

A *switch* is a call that enters a module of another component than the module that was called last. A
component is a package. Passive code does not count: it neither sends nor waits nor writes. A walk
has a budget of switches. ``pytest -s`` prints the walks.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import pytest

import gapless
from gapless.messages.clients import FilterSet, Subscribed
from tests.scenarios.brokers import World
from tests.test_layers import imported_names

SOURCES: Final = Path(gapless.__file__).parent

PASSIVE: Final = {"core", "messages", "content", "packed", "stream"}
"""The packages that do not count."""

READ_BY_ALL: Final = {"overlay/tree.py", "overlay/neighbourhood.py", "overlay/path_epochs.py"}
"""Values that all components read, like records. They do not count."""

FEED: Final = {"feeds/feed.py", "feeds/feed_state.py", "feeds/paths.py"}
"""A feed is a part of the router or the subend that holds it, and acts for it alone. It does not count."""

PARTS: Final = {"feeds/candidates.py": "routing"}
"""Modules that count for another component: the candidates for a feeder are paths of streams."""


# --- the measurement ------------------------------------------------------------------------------


def component_of(file: str) -> str | None:
    """Return the component of a source file, or None if the file does not count."""
    path = Path(file)
    if not path.is_relative_to(SOURCES):
        return None
    name = path.relative_to(SOURCES).as_posix()
    package = name.split("/")[0]
    return None if package in PASSIVE or name in READ_BY_ALL | FEED else PARTS.get(name, package)


def walk(act: Callable[[], Any]) -> list[str]:
    """Return the components in the order in which they are entered while a function runs."""
    files: list[str] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            files.append(frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
    components = map({file: component_of(file) for file in set(files)}.get, files)
    return [name for name, _ in groupby(filter(None, components))]


def lines(components: list[str], width: int = 100) -> Iterator[str]:
    """Yield a walk as lines of text."""
    line = ""
    for name in components:
        if line and len(line) + len(name) + 3 > width:
            yield line
            line = ""
        line += f"{' ▸ ' if line else ''}{name}"
    yield line


# --- the walks ------------------------------------------------------------------------------------


def publish(tree: str, publisher: str, subscriber: str, ms: int) -> list[str]:
    """Publish an event to one subscriber."""
    world = World(tree)
    ann = world.publisher(publisher)
    x = world.subscriber(subscriber, "x", "kind = 'X'")
    world.run(s=5)

    def act() -> None:
        ann.send_event("e1", kind="X")
        world.run(ms=ms)

    walked = walk(act)
    assert x.events == ["e1"]
    return walked


def publish_at_one_broker() -> list[str]:
    return publish("p", "p", "p", 2)


def publish_over_three_brokers() -> list[str]:
    return publish("p-m-n", "p", "n", 4)


def subscribe() -> list[str]:
    """Subscribe while a pubend of another broker exists."""
    world = World("p-n")
    world.publisher("p")
    world.run(s=3)

    def act() -> None:
        x = world.subscriber("n", "x", "kind = 'X'")
        assert world.wait(lambda: bool(x.of_kind(Subscribed)), s=3)

    return walk(act)


def change_filter() -> list[str]:
    """Change a filter while a pubend of another broker exists."""
    world = World("p-n")
    world.publisher("p")
    x = world.subscriber("n", "x", "kind = 'X'")
    world.run(s=3)

    def act() -> None:
        x.set_filter("kind = 'Y'")
        assert world.wait(lambda: bool(x.of_kind(FilterSet)), s=3)

    return walk(act)


def restart() -> list[str]:
    """Restart a broker with one durable subscription."""
    world = World("p-n")
    world.publisher("p")
    world.subscriber("n", "x", "kind = 'X'", durable=True)
    world.run(s=3)
    world.crash("n")
    world.run(ms=50)

    def act() -> None:
        world.start("n")
        world.run(ms=3)

    return walk(act)


class Walk(NamedTuple):
    """A walk and its budget of switches."""

    run: Callable[[], list[str]]
    budget: int


WALKS: Final = (
    Walk(publish_at_one_broker, 9),
    Walk(publish_over_three_brokers, 40),
    Walk(subscribe, 150),
    Walk(change_filter, 55),
    Walk(restart, 168),
)


@pytest.mark.parametrize("each", WALKS, ids=lambda each: each.run.__name__)
def test_a_walk_has_no_more_switches_than_its_budget(each: Walk) -> None:
    components = each.run()
    switches = len(components) - 1
    title = f"{each.run.__name__}: {switches} switches, budget {each.budget}"
    sys.stdout.write("\n    ".join([f"\n{title}", *lines(components)]))
    assert switches <= each.budget


def test_an_event_at_one_broker_enters_only_the_components_on_its_path() -> None:
    published = [
        "broker",
        "pubend",
        "overlay",
        "pubend",
    ]  # the tick depends on the clocks of the peers
    written = ["broker", "pubend", "routing", "broker", "subscribers"]
    assert publish_at_one_broker() == [*published, *written, "broker"]


def test_a_file_counts_for_its_package_unless_it_is_passive_or_of_another_project() -> None:
    assert component_of(str(SOURCES / "pubend" / "pubend.py")) == "pubend"
    assert component_of(str(SOURCES / "overlay" / "sessions.py")) == "overlay"
    assert component_of(str(SOURCES / "overlay" / "tree.py")) is None
    assert component_of(str(SOURCES / "stream" / "cache.py")) is None
    assert component_of(str(SOURCES / "feeds" / "feed.py")) is None
    assert component_of(str(SOURCES / "feeds" / "candidates.py")) == "routing"
    assert component_of(__file__) is None


def test_what_all_components_read_and_what_is_passive_cannot_act() -> None:
    passive = [path for package in PASSIVE - {"core"} for path in (SOURCES / package).rglob("*.py")]
    for path in (*passive, *(SOURCES / name for name in READ_BY_ALL)):
        names = {each.name for each in imported_names(ast.parse(path.read_text()), path.name)}
        assert "gapless.core.context.Context" not in names, path


def test_every_module_that_is_named_here_exists() -> None:
    assert all((SOURCES / name).exists() for name in READ_BY_ALL | FEED | PARTS.keys())
