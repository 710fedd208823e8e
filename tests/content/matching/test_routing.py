"""The router's index: links and local subscriptions in one pass."""

from __future__ import annotations

import random

import pytest

from gapless import Filter
from gapless.content.conjunction import Conjunction
from gapless.content.matching import Route, RoutingIndex
from gapless.core.errors import UsageError
from gapless.core.limits import LINKS_MAX
from tests.cases import scaled
from tests.content.matching import samples


class Checked:
    """A routing index and plain lists of its expected contents."""

    def __init__(self, kernel: str, rng: random.Random, links: int) -> None:
        self.index = RoutingIndex(kernel=kernel)
        self.rng = rng
        self.links = links
        self.by_link: dict[int, list[Conjunction]] = {}
        self.local: dict[int, Filter] = {}

    def change(self) -> None:
        link, key = self.rng.randrange(self.links), self.rng.randrange(20)
        held = self.by_link.setdefault(link, [])
        kind = self.rng.random()
        if kind < 0.6:
            conjunction = samples.conjunction(self.rng)
            self.index.add_link(link, conjunction)
            if conjunction not in held:
                held.append(conjunction)
        elif kind < 0.7 and held:
            gone = held.pop(self.rng.randrange(len(held)))
            self.index.remove_link(link, gone)
        elif kind < 0.72:
            self.index.drop_link(link)
            held.clear()
        elif kind < 0.9:
            parts = [samples.conjunction(self.rng) for _ in range(self.rng.randrange(3))]
            self.local[key] = Filter.of(parts)
            self.index.add_local(key, self.local[key])
        elif key in self.local:
            del self.local[key]
            self.index.remove_local(key)

    def expected(self, event: dict[str, bool | int | float | str | None]) -> Route:
        links = 0
        for link, held in self.by_link.items():
            if any(conjunction.matches(event) for conjunction in held):
                links |= 1 << link
        return Route(
            links, frozenset(key for key, each in self.local.items() if each.matches(event))
        )


@pytest.mark.parametrize("links", [1, 3, 64, 65, 200])
@pytest.mark.parametrize("seed", range(scaled(4)))
def test_links_and_local_subscriptions_agree_with_brute_force(
    kernel: str, links: int, seed: int
) -> None:
    checked = Checked(kernel, random.Random(seed), links)
    for _ in range(25):
        for _ in range(20):
            checked.change()
        events = [samples.event(checked.rng) for _ in range(8)]
        expected = [checked.expected(each) for each in events]
        assert checked.index.match_batch(events) == expected
        assert checked.index.match_links(events) == [each.links for each in expected]


def test_without_local_subscriptions_a_search_ends_when_all_links_are_hit(kernel: str) -> None:
    checked = Checked(kernel, random.Random(9), 4)
    for link in range(4):
        for conjunction in Filter("a > 0").conjunctions:
            checked.index.add_link(link, conjunction)
    for number in range(200):
        for conjunction in Filter(f"a > {number}").conjunctions:
            checked.index.add_link(number % 4, conjunction)
    assert checked.index.match({"a": 500}) == Route(0b1111, frozenset())
    assert checked.index.match({"a": 0}) == Route(0, frozenset())


def test_a_conjunction_added_twice_to_a_link_counts_once(kernel: str) -> None:
    index = RoutingIndex(kernel=kernel)
    (wanted,) = Filter("a > 0").conjunctions
    index.add_link(2, wanted)
    index.add_link(2, wanted)
    index.remove_link(2, wanted)
    assert index.match({"a": 1}) == Route(0, frozenset())
    assert index.links == 0
    with pytest.raises(KeyError, match="a > 0"):
        index.remove_link(2, wanted)


def test_a_link_number_beyond_the_limit_is_refused(kernel: str) -> None:
    index = RoutingIndex(kernel=kernel)
    (wanted,) = Filter("a > 0").conjunctions
    index.add_link(LINKS_MAX - 1, wanted)
    assert index.match({"a": 1}).links == 1 << (LINKS_MAX - 1)
    for link in (LINKS_MAX, -1):
        with pytest.raises(UsageError, match="LINKS_MAX"):
            index.add_link(link, wanted)
