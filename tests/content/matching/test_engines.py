"""The engines: matches, covering candidates, removal."""

from __future__ import annotations

import random
from types import MappingProxyType

import pytest

from gapless.content.conjunction import Conjunction
from gapless.content.matching.kernel import MatchEngine, new_engine
from gapless.content.matching.plan import Planner
from gapless.content.values import Value
from gapless.core.errors import AttributeValueError, UsageError
from tests.cases import scaled
from tests.content.matching import samples

SEEDS = range(scaled(60))


class Held:
    """An engine and the conjunctions that it should have."""

    def __init__(self, kernel: str, rng: random.Random) -> None:
        self.engine: MatchEngine = new_engine(kernel, covering=True)
        self.planner = Planner()
        self.conjunctions: dict[int, Conjunction] = {}
        self._rng = rng

    def insert(self, conjunction: Conjunction) -> int:
        plan = self.planner.plan(conjunction)
        slot = self.engine.insert(plan)
        assert slot not in self.conjunctions
        self.planner.added(plan)
        self.engine.own(slot, f"key {slot}")
        self.conjunctions[slot] = conjunction
        return slot

    def delete(self, slot: int) -> None:
        self.engine.disown(slot, f"key {slot}")
        self.planner.forget(self.engine.delete(slot))
        del self.conjunctions[slot]

    def delete_any(self) -> None:
        if self.conjunctions:
            self.delete(self._rng.choice(list(self.conjunctions)))


def held_at(kernel: str, seed: int) -> tuple[Held, random.Random]:
    """Return an engine after some hundred random insertions and deletions."""
    rng = random.Random(seed)
    held = Held(kernel, rng)
    names = samples.NAMES[: rng.randrange(1, 5)]
    growing = rng.choice([0.6, 0.95])
    for _ in range(rng.choice([30, 400])):
        if rng.random() < growing:
            held.insert(samples.conjunction(rng, names))
        else:
            held.delete_any()
    return held, rng


@pytest.mark.parametrize("seed", SEEDS)
def test_an_event_finds_exactly_the_slots_whose_conjunction_it_matches(
    kernel: str, seed: int
) -> None:
    held, rng = held_at(kernel, seed)
    for _ in range(40):
        event = samples.event(rng)
        wanted = sorted(slot for slot, each in held.conjunctions.items() if each.matches(event))
        assert held.engine.find(event) == wanted, event
        assert held.engine.match(event) == {f"key {slot}" for slot in wanted}, event


@pytest.mark.parametrize("seed", SEEDS)
def test_the_candidates_include_all_covering_and_all_covered_conjunctions(
    kernel: str, seed: int
) -> None:
    held, rng = held_at(kernel, seed)
    for _ in range(20):
        query = samples.conjunction(rng)
        plan = held.planner.plan(query)
        wider = {slot for slot, each in held.conjunctions.items() if each.covers(query)}
        narrower = {slot for slot, each in held.conjunctions.items() if query.covers(each)}
        assert wider <= set(held.engine.coverers(plan)), str(query)
        assert narrower <= set(held.engine.covered(plan)), str(query)


def test_an_emptied_engine_has_no_slots_or_attributes(kernel: str) -> None:
    held, rng = held_at(kernel, 5)
    while held.conjunctions:
        held.delete_any()
    statistics = held.engine.statistics()
    assert statistics["slots"] == statistics["attributes"] == statistics["largest"] == 0
    assert statistics["equal"] == statistics["prefix"] == statistics["present"] == 0
    assert held.engine.find(samples.event(rng)) == []


def test_delete_returns_the_attributes_that_are_no_longer_used(kernel: str) -> None:
    engine, planner = new_engine(kernel), Planner()
    rng = random.Random(1)
    first = Conjunction.of([("a", samples.value_set(rng)), ("b", samples.value_set(rng))])
    second = Conjunction.of([("b", samples.value_set(rng))])
    assert first is not None
    assert second is not None
    slots = [engine.insert(planner.plan(each)) for each in (first, second)]
    assert engine.delete(slots[0]) == ["a"]
    assert engine.delete(slots[1]) == ["b"]


def test_an_attribute_that_is_added_again_after_its_removal_is_matched(kernel: str) -> None:
    held = Held(kernel, random.Random(2))
    rng = random.Random(3)
    for _ in range(5):
        names = tuple(rng.sample("uvwxyz", 3))
        slots = [held.insert(samples.conjunction(rng, names)) for _ in range(100)]
        event = samples.event(rng, names)
        wanted = sorted(slot for slot, each in held.conjunctions.items() if each.matches(event))
        assert held.engine.find(event) == wanted
        for slot in slots:
            held.delete(slot)


@pytest.mark.parametrize("value", [[1], b"x", 2**63, {"x": 1}, 1j])
def test_an_invalid_attribute_is_refused_and_the_engine_keeps_working(
    kernel: str, value: object
) -> None:
    held, _ = held_at(kernel, 7)
    engine = held.engine
    event: dict[str, Value | None] = {"a": 1, "b": "ab"}
    before = engine.find(event)
    with pytest.raises(AttributeValueError, match="attribute 'a'"):
        engine.find({"a": value})  # type: ignore[dict-item]
    assert engine.find(event) == before


def test_any_mapping_is_an_event(kernel: str) -> None:
    held, rng = held_at(kernel, 3)
    for _ in range(20):
        event = samples.event(rng)
        assert held.engine.find(MappingProxyType(event)) == held.engine.find(event)


def test_an_unknown_kernel_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="neither 'compiled' nor 'fallback'"):
        new_engine("fast")
