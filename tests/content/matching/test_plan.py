"""Plans: exact numbers as pairs of doubles and steps, and the choice of the access path."""

from __future__ import annotations

import random

import pytest

from gapless import Filter
from gapless.content.conjunction import Conjunction
from gapless.content.matching import CoveringForest
from gapless.content.matching.plan import Access, AccessKind, Planner, encode_number
from gapless.content.values import Value
from gapless.content.valueset import numbers
from tests.content.matching import samples


def conjunction(text: str) -> Conjunction:
    (only,) = Filter(text).conjunctions
    return only


def access(text: str, planner: Planner | None = None) -> Access:
    return (planner or Planner()).plan(conjunction(text)).access


def test_encoded_numbers_are_ordered_as_the_numbers_are() -> None:
    rng = random.Random(1)
    edges: list[int | float] = [0, 1, 2**53, 2**53 + 1, 2**62 + 1, 2**63 - 1, -(2**63), 2.0**63]
    edges += [rng.randrange(-(2**63), 2**63) for _ in range(200)]
    edges += [float(edge) for edge in edges]
    for left in edges:
        for right in edges:
            pairs = encode_number(left), encode_number(right)
            assert (left < right) == (pairs[0] < pairs[1])
            assert (left == right) == (pairs[0] == pairs[1])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("symbol = 'IBM' AND price > 90", (AccessKind.EQUAL, "symbol", ("IBM",))),
        ("a IN (1, 'x', TRUE)", (AccessKind.EQUAL, "a", (1.0, "x", True))),
        ("name LIKE 'ab%' AND price > 90", (AccessKind.PREFIX, "name", ("ab",))),
        ("name LIKE 'ab%z'", (AccessKind.PREFIX, "name", ("ab",))),
        ("name > 'aba' AND name < 'abz'", (AccessKind.PREFIX, "name", ("ab",))),
        ("flag AND name LIKE 'ab%'", (AccessKind.PREFIX, "name", ("ab",))),
        ("price > 90", (AccessKind.PRESENT, "price", ())),
        ("price IS NULL", (AccessKind.ALWAYS, "", ())),
        ("", (AccessKind.ALWAYS, "", ())),
    ],
)
def test_the_access_path_is_the_most_selective_condition_with_a_hash(
    text: str, expected: tuple[AccessKind, str, tuple[Value, ...]]
) -> None:
    assert access(text) == Access(*expected)


def test_of_two_equalities_the_one_with_more_distinct_values_is_the_access_path() -> None:
    planner = Planner()
    for number in range(50):
        text = f"exchange = 'N{number % 3}' AND symbol = 'S{number}'"
        planner.added(planner.plan(conjunction(text)))
    assert access("exchange = 'N1' AND symbol = 'S7'", planner).attribute == "symbol"


def test_without_an_equality_a_rare_attribute_is_the_access_path() -> None:
    planner = Planner()
    for _ in range(100):
        planner.added(planner.plan(conjunction("common > 1")))
    assert access("common > 1 AND rare > 1", planner).attribute == "rare"


def test_an_in_list_longer_than_the_limit_is_no_access_path() -> None:
    values = ", ".join(str(2 * number) for number in range(17))
    assert access(f"a IN ({values})").kind is AccessKind.PRESENT


def test_equal_conjunctions_and_only_they_have_equal_identities() -> None:
    rng = random.Random(4)
    planner = Planner()
    by_identity: dict[bytes, Conjunction] = {}
    for _ in range(3_000):
        made = samples.conjunction(rng)
        assert by_identity.setdefault(planner.plan(made).identity, made) == made
    assert len(by_identity) == len(set(by_identity.values()))


def test_a_conjunction_with_half_a_surrogate_pair_has_an_identity_too() -> None:
    # no filter has one, but conjunctions may be built directly
    planner = Planner()
    found = {
        planner.plan(Conjunction(((name, allowed),))).identity
        for name in ("\ud800", "\ud801", "\\ud800")
        for allowed in (numbers(((1, 0), (2, 1))), numbers(((1, 0), (3, 1))))
    }
    assert len(found) == 6


def test_an_open_interval_between_adjacent_integers_is_no_point() -> None:
    # low and high coincide half a step beside 2**53, where there is no number
    assert access("a > 9007199254740992 AND a < 9007199254740993").kind is AccessKind.PRESENT


def test_planning_alone_leaves_the_planner_unchanged() -> None:
    # the forest plans conjunctions that it only looks up
    planner = Planner()
    for number in range(100):
        planner.plan(conjunction(f"x{number} = 1 AND y{number} = 2 AND z{number} > 3"))
    assert not any(vars(planner).values())


def test_removed_conjunctions_leave_the_planner_empty() -> None:
    forest = CoveringForest()
    for number in range(100):
        each = conjunction(f"x{number} = 1 AND y{number} = 2 AND z{number} > 3")
        forest.insert(each)
        forest.remove(each)
    assert not any(vars(forest._planner).values())
