"""`covers` and `intersects` against all events of small dense domains.

A claimed covering must hold for every event, and filters that share an event must intersect.
Covering may be missed; how often is printed here and measured by `benchmarks.covering_quality`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from gapless import Filter
from tests.cases import scaled
from tests.content import generate
from tests.content.domain import Domain, dense, dense_numbers
from tests.content.pools import ANYTHING, KINDS, SIMPLE, Pool, pool
from tests.content.reference import evaluate

if TYPE_CHECKING:
    from tests.content.reference import Value

POOL_SIZE = 60
POOLS = scaled(3)


@dataclass(slots=True)
class Tally:
    """Pairs of different filters of which the second matches something."""

    pairs: int = 0
    covering: int = 0
    claimed: int = 0
    apart: int = 0
    recognised: int = 0

    def __str__(self) -> str:
        missed = self.covering - self.claimed
        return (
            f"{self.pairs} pairs, {self.covering} coverings of which {missed} were missed, "
            f"{self.apart} disjoint pairs of which {self.recognised} were recognised"
        )


def check_pairs(candidates: Pool, tally: Tally) -> None:
    domain = candidates.domain
    for wide in candidates.candidates:
        for narrow in candidates.candidates:
            escaping = narrow.matching & ~wide.matching
            common = narrow.matching & wide.matching
            covers = wide.filter.covers(narrow.filter)
            intersects = wide.filter.intersects(narrow.filter)
            if covers and escaping:
                pytest.fail(
                    f"falsely claimed:\n  {wide.text!r}\n  to cover\n  {narrow.text!r}\n"
                    f"  but {domain.first(escaping)!r} matches only the second"
                )
            if common and not intersects:
                pytest.fail(
                    f"falsely held apart:\n  {wide.text!r}\n  {narrow.text!r}\n"
                    f"  but {domain.first(common)!r} matches both"
                )
            if wide is narrow or not narrow.matching:
                continue
            tally.pairs += 1
            tally.covering += not escaping
            tally.claimed += covers
            tally.apart += not common
            tally.recognised += not intersects


@pytest.mark.parametrize("kind", KINDS)
def test_no_covering_is_claimed_falsely_and_no_intersection_is_denied(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally()
    refused = 0
    for seed in range(POOLS):
        candidates = pool(random.Random(f"{kind} {seed}"), POOL_SIZE, kind)
        refused += candidates.refused
        check_pairs(candidates, tally)
    with capsys.disabled():
        print(f"\n{kind}: {tally}")  # noqa: T201 - the summary is a result of this test
    assert refused <= 0.05 * POOLS * POOL_SIZE
    assert tally.covering > 0.02 * tally.pairs, "too few coverings to tell anything"
    assert tally.apart > 0.02 * tally.pairs, "too few disjoint pairs to tell anything"
    assert tally.claimed > 0, "no covering is ever found"


@pytest.mark.parametrize("kind", KINDS)
def test_claims_hold_for_random_events_outside_the_domain(kind: str) -> None:
    claims = 0
    for seed in range(scaled(15)):
        rng = random.Random(f"off the domain {kind} {seed}")
        candidates = pool(rng, 12, kind)
        events = [generate.event(rng, candidates.palette) for _ in range(60)]
        for wide in candidates.candidates:
            for narrow in candidates.candidates:
                covers = wide.filter.covers(narrow.filter)
                apart = not wide.filter.intersects(narrow.filter)
                claims += covers or apart
                for event in events if covers or apart else ():
                    inside = evaluate(narrow.tree, event) is True
                    outside = evaluate(wide.tree, event) is not True
                    assert not (covers and inside and outside), (wide.text, narrow.text, event)
                    assert outside or not (apart and inside), (wide.text, narrow.text, event)
    assert claims > 100


@pytest.mark.parametrize("kind", KINDS)
def test_every_filter_covers_itself_and_its_equals(kind: str) -> None:
    for seed in range(POOLS):
        for candidate in pool(random.Random(f"self {kind} {seed}"), POOL_SIZE, kind).candidates:
            assert candidate.filter.covers(candidate.filter), candidate.text
            again = Filter(str(candidate.filter))
            assert again.covers(candidate.filter), candidate.text
            assert candidate.filter.covers(again), candidate.text


def test_intersection_does_not_depend_on_the_order() -> None:
    for seed in range(POOLS):
        candidates = pool(random.Random(f"order {seed}"), 40, ANYTHING).candidates
        for first in candidates:
            for second in candidates:
                there = first.filter.intersects(second.filter)
                back = second.filter.intersects(first.filter)
                assert there is back, (first.text, second.text)


def test_a_filter_that_covers_another_intersects_it_unless_that_matches_nothing() -> None:
    for kind in KINDS:
        candidates = pool(random.Random(f"both {kind}"), POOL_SIZE, kind).candidates
        for wide in candidates:
            for narrow in candidates:
                if wide.filter.covers(narrow.filter) and narrow.matching:
                    assert wide.filter.intersects(narrow.filter), (wide.text, narrow.text)


def test_covering_is_transitive_for_simple_conjunctions() -> None:
    chains = 0
    for seed in range(POOLS):
        candidates = pool(random.Random(f"chain {seed}"), POOL_SIZE, SIMPLE).candidates
        filters = [candidate.filter for candidate in candidates]
        below = [
            {index for index, narrow in enumerate(filters) if wide.covers(narrow)}
            for wide in filters
        ]
        for top, covered in enumerate(below):
            for middle in covered - {top}:
                chains += len(below[middle])
                lost = below[middle] - covered
                assert not lost, [candidates[index].text for index in (top, middle, min(lost))]
    assert chains > 1000


@pytest.mark.parametrize("kind", KINDS)
def test_true_covers_every_filter_and_every_filter_covers_false(
    kind: str,
) -> None:
    everything, nothing = [Filter(""), Filter("TRUE"), Filter("1 < 2")], Filter("FALSE")
    for candidate in pool(random.Random(f"ends {kind}"), POOL_SIZE, kind).candidates:
        for widest in everything:
            assert widest.covers(candidate.filter), candidate.text
            assert widest.intersects(candidate.filter) or not candidate.matching, candidate.text
        assert candidate.filter.covers(nothing), candidate.text
        assert not candidate.filter.intersects(nothing), candidate.text
        assert not nothing.covers(candidate.filter) or not candidate.matching, candidate.text


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("a > 1", "a > 2"),
        ("a >= 1", "a > 1.0"),
        ("a > 1", "a BETWEEN 1.5 AND 2"),
        ("a <> 3", "a < 3"),
        ("a IN (1, 2, 3)", "a IN (1.0, 3)"),
        ("a NOT IN (1, 2)", "a > 2"),
        ("a IS NOT NULL", "a = 'x'"),
        ("a IS NOT NULL", "a LIKE '%x'"),
        ("a > 9007199254740992", "a > 9007199254740993"),
        ("a >= 'a'", "a LIKE 'ab%'"),
        ("a LIKE 'a%'", "a LIKE 'ab%'"),
        ("a LIKE 'a%'", "a = 'abc'"),
        ("a LIKE 'a%'", "a BETWEEN 'a' AND 'az'"),
        ("a > 1 OR b = 'x'", "a > 2"),
        ("a > 1 OR b = 'x'", "a > 2 OR b = 'x' AND c"),
        ("a > 1", "a > 1 AND b + c > 3"),
        ("b + c > 3", "a > 1 AND b + c > 3"),
        ("a", "a = TRUE AND b IS NULL"),
        ("a <> FALSE", "a"),
        ("NOT a > 1", "a <= 1 AND b = 2"),
    ],
)
def test_coverings_that_users_expect_are_found(wide: str, narrow: str) -> None:
    assert Filter(wide).covers(Filter(narrow))
    assert Filter(wide).intersects(Filter(narrow))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a > 1", "a <= 1"),
        ("a = 1", "a = '1'"),
        ("a = 1", "a = TRUE"),
        ("a = 1", "a IS NULL"),
        ("a LIKE 'a%'", "a = 'b'"),
        ("a LIKE 'a%'", "a LIKE 'b%'"),
        ("a LIKE 'a%'", "a > 1"),
        ("a IN (1, 2)", "a NOT IN (1, 2)"),
        ("a AND b = 1", "NOT a AND b = 1"),
        ("a > 9007199254740993", "a <= 9007199254740993"),
    ],
)
def test_disjoint_filters_that_users_expect_are_recognised(one: str, other: str) -> None:
    assert not Filter(one).intersects(Filter(other))
    assert not Filter(one).covers(Filter(other))


def test_a_domain_evaluates_all_its_events_as_the_reference_does() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        focus: dict[str, tuple[Value, ...]] = dict.fromkeys("ab", (1, 1.5, "a", True))
        domain = Domain({name: dense(values) for name, values in focus.items()})
        tree = generate.condition(rng, generate.Palette(focus), depth=2)
        truths = domain.truths(tree)
        assert truths.true & truths.false == 0
        for index in rng.sample(range(domain.size), 50):
            truth = evaluate(tree, domain.event(index))
            assert (truths.true >> index & 1) == (truth is True)
            assert (truths.false >> index & 1) == (truth is False)


def test_a_dense_domain_has_a_number_in_every_possible_gap() -> None:
    numbers = dense_numbers([2**53, 2**53 + 1, 1, 2, float(2**53 + 4)])
    assert any(1 < number < 2 for number in numbers)
    assert any(2 < number < 2**53 for number in numbers)
    assert any(2**53 + 1 < number < 2**53 + 4 for number in numbers)
    assert min(numbers) < 1
    assert max(numbers) > 2**53 + 4
