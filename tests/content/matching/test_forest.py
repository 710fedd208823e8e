"""The covering forest: a broker propagates its roots to its neighbours (VT 4.1.2)."""

from __future__ import annotations

import random

import pytest

from gapless import Filter
from gapless.content.conjunction import EVERYTHING, Conjunction
from gapless.content.matching import CoveringForest, RootChange
from tests.cases import scaled
from tests.content.matching import samples


def conjunction(text: str) -> Conjunction:
    (only,) = Filter(text).conjunctions
    return only


class Checked:
    """A forest, its conjunctions, and its roots as derived from the changes."""

    def __init__(self, kernel: str) -> None:
        self.forest = CoveringForest(kernel=kernel)
        self.held: list[Conjunction] = []
        self.roots_seen: set[Conjunction] = set()

    def insert(self, each: Conjunction) -> None:
        self.held.append(each)
        self._apply(self.forest.insert(each))

    def remove(self, each: Conjunction) -> None:
        self.held.remove(each)
        self._apply(self.forest.remove(each))

    def _apply(self, change: RootChange) -> None:
        assert not set(change.added) & set(change.removed)
        assert not self.roots_seen & set(change.added)
        assert self.roots_seen >= set(change.removed)
        self.roots_seen = (self.roots_seen | set(change.added)) - set(change.removed)

    def check(self) -> None:
        forest, held = self.forest, set(self.held)
        assert set(forest) == held
        assert forest.roots == self.roots_seen
        assert forest.roots <= held
        for each in held:
            parent = forest.parent(each)
            assert (parent is None) == forest.is_root(each) == (each in self.roots_seen)
            assert parent is None or (parent in held and parent.covers(each))
        for root in self.roots_seen:
            coverers = [other for other in self.roots_seen if other != root and other.covers(root)]
            assert not coverers, f"{root} is a root beside {coverers[0]}"


@pytest.mark.parametrize("seed", range(scaled(30)))
def test_roots_cover_all_and_no_root_is_covered_by_another(kernel: str, seed: int) -> None:
    rng = random.Random(seed)
    checked = Checked(kernel)
    names = samples.NAMES[: rng.randrange(1, 4)]
    for step in range(120):
        if rng.random() < 0.65 or not checked.held:
            again = checked.held and rng.random() < 0.1
            checked.insert(rng.choice(checked.held) if again else samples.conjunction(rng, names))
        else:
            checked.remove(rng.choice(checked.held))
        if step % 10 == 0:
            checked.check()
    checked.check()
    for each in list(checked.held):
        checked.remove(each)
    assert checked.roots_seen == set()
    assert len(checked.forest) == 0


def test_equal_conjunctions_are_one_node_until_the_last_is_removed(kernel: str) -> None:
    forest = CoveringForest(kernel=kernel)
    twice = conjunction("a > 1")
    assert forest.insert(twice) == RootChange(added=(twice,))
    assert forest.insert(twice) == RootChange()
    assert forest.remove(twice) == RootChange()
    assert forest.remove(twice) == RootChange(removed=(twice,))
    with pytest.raises(KeyError):
        forest.remove(twice)


def test_inserting_and_removing_a_covered_conjunction_changes_no_root(kernel: str) -> None:
    # VT 3.4.1, adding or removing a non-root conjunction: nothing is propagated
    forest = CoveringForest(kernel=kernel)
    wide, narrow = conjunction("stock = 'ibm'"), conjunction("stock = 'ibm' AND p > 90")
    forest.insert(wide)
    assert forest.insert(narrow) == RootChange()
    assert forest.parent(narrow) == wide
    assert forest.coverer(narrow) == forest.coverer(wide) == wide
    assert forest.remove(narrow) == RootChange()


def test_the_examples_of_vt_4_1_give_the_roots_of_figure_4_2(kernel: str) -> None:
    # VT examples 4.1 and 4.4, broker SB1: of the three conjunctions of the second subscription the
    # first is covered by an existing one, the two others are new roots
    forest = CoveringForest(kernel=kernel)
    (first,) = Filter("stock = 'nyse/ibm'").conjunctions
    assert forest.insert(first).added == (first,)
    second = Filter(
        "stock = 'nyse/ibm' AND p > 90 OR stock = 'nyse/t' AND p > 19 OR stock = 'nasdaq/msft'"
    )
    added = [each for part in second.conjunctions for each in forest.insert(part).added]
    assert {str(each) for each in added} == {
        "p > 19 AND stock = 'nyse/t'",
        "stock = 'nasdaq/msft'",
    }
    covered = conjunction("stock = 'nyse/ibm' AND p > 90")
    assert forest.parent(covered) == first


def test_a_wildcard_replaces_the_roots_of_its_topics_until_it_is_removed(kernel: str) -> None:
    # VT example 4.2 subscribes to a whole hierarchy of topics
    forest = CoveringForest(kernel=kernel)
    topics = [conjunction(f"stock = 'nyse/{name}'") for name in ("ibm", "t", "ge")]
    other = conjunction("stock = 'nasdaq/goog'")
    for each in (*topics, other):
        forest.insert(each)
    everything = conjunction("stock LIKE 'nyse/%'")
    assert forest.insert(everything) == RootChange((everything,), tuple(topics))
    assert forest.roots == {everything, other}
    assert forest.remove(everything) == RootChange(tuple(topics), (everything,))


def test_the_conjunction_without_conditions_covers_all(kernel: str) -> None:
    forest = CoveringForest(kernel=kernel)
    parts = [conjunction(text) for text in ("a > 1", "b IS NULL", "c LIKE '%x'", "d + e > 3")]
    for each in parts:
        forest.insert(each)
    assert forest.insert(EVERYTHING) == RootChange((EVERYTHING,), tuple(parts))
    assert forest.insert(conjunction("z = 1")) == RootChange()
    assert set(forest.remove(EVERYTHING).added) == {*parts, conjunction("z = 1")}


def test_the_order_of_insertion_does_not_change_the_roots_of_simple_ranges(kernel: str) -> None:
    rng = random.Random(8)
    parts = [
        conjunction(f"a BETWEEN {low} AND {low + rng.randrange(40)}")
        for low in rng.choices(range(100), k=150)
    ]
    roots = set()
    for _ in range(3):
        rng.shuffle(parts)
        forest = CoveringForest(kernel=kernel)
        for each in parts:
            forest.insert(each)
        roots.add(forest.roots)
    assert len(roots) == 1
