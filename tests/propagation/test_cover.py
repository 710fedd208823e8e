"""The cover of a changing set covers it, keeps its budget, and changes no more than necessary."""

from __future__ import annotations

import random
from collections.abc import Iterable

from gapless import Filter
from gapless.content import Conjunction
from gapless.content.merging import merge
from gapless.propagation.cover import CoverSet
from gapless.propagation.table import conjunction_of
from tests.cases import scaled
from tests.propagation.oracle import of_conjunction


def one(text: str) -> Conjunction:
    (conjunction,) = Filter(text).conjunctions
    return conjunction


def drawn(dice: random.Random) -> Conjunction:
    parts = [
        dice.choice(("kind = 'stock'", "kind = 'news'", "")),
        dice.choice(("size > 1", "size > 3", "size = 2", "size BETWEEN 2 AND 4", "size < 5", "")),
        dice.choice(("place = 'here'", "")),
    ]
    return one(" AND ".join(part for part in parts if part))


def mask(conjunctions: Iterable[Conjunction]) -> int:
    found = 0
    for conjunction in conjunctions:
        found |= of_conjunction(conjunction)
    return found


def test_the_cover_contains_the_set_and_stays_within_the_budget() -> None:
    for seed in range(scaled(150)):
        dice = random.Random(seed)
        budget = dice.choice((1, 2, 4, 100))
        cover, wanted, sent = CoverSet(budget, merge), list[Conjunction](), set[str]()
        for _ in range(80):
            if wanted and dice.random() < 0.45:
                cover.remove(wanted.pop(dice.randrange(len(wanted))))
            else:
                wanted.append(drawn(dice))
                cover.insert(wanted[-1])
            if dice.random() < 0.4:
                change = cover.take()
                assert sent.issuperset(change.removed)
                assert sent.isdisjoint(change.added)
                sent = sent - set(change.removed) | set(change.added)
                assert len(sent) <= budget
                assert not mask(wanted) & ~mask(map(conjunction_of, sent))
                if budget == 100:
                    assert sent == {str(root) for root in cover.forest.roots}
        for conjunction in wanted:
            cover.remove(conjunction)
        sent -= set(cover.take().removed)
        assert not sent


def test_a_conjunction_added_and_removed_between_two_reads_is_no_change() -> None:
    cover = CoverSet(10, merge)
    cover.insert(one("a > 1"))
    assert cover.take().added == ("a > 1",)
    cover.insert(one("b > 1"))
    cover.remove(one("b > 1"))
    cover.remove(one("a > 1"))
    cover.insert(one("a > 1"))
    assert not cover.changed
    assert cover.take() == ((), ())


def test_a_merge_is_not_done_for_every_change() -> None:
    merges = []

    def counted(conjunctions: Iterable[Conjunction], budget: int) -> tuple[Conjunction, ...]:
        merges.append(budget)
        return merge(conjunctions, budget)

    cover = CoverSet(40, counted)
    for number in range(200):
        cover.insert(one(f"a = {number} AND b > {number % 7}"))
        cover.take()
    assert 0 < len(merges) < 30
