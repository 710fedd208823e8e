"""The matching index against brute force, for the compiled kernel and for its fallback.

Brute force is run twice: once with `Filter.matches`, once with the reference evaluator, so that
an index and a filter with the same error do not agree by accident.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from gapless import Filter, FilterLimitError, MatchIndex
from gapless.content import matching
from tests.cases import scaled
from tests.content import generate
from tests.content.domain import unique
from tests.content.reference import (
    And,
    Attribute,
    Between,
    Compare,
    Constant,
    Flag,
    In,
    IsNull,
    Like,
    Not,
    Or,
    evaluate,
)
from tests.content.reference import Literal as Constantly
from tests.content.surface import plain_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from tests.content.generate import Event
    from tests.content.reference import Condition

Kernel = Literal["compiled", "fallback"]
KEYS = (0, 1, 2, 3, "alice", "bob", ("link", 7), "7", True)
LONG_RUN_UPDATES = scaled(20_000, most=100_000)


@pytest.fixture(params=["compiled", "fallback"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    chosen: Kernel = request.param
    if chosen == "compiled" and matching.COMPILED is None:
        pytest.skip("the compiled kernel was not built here")
    return chosen


class Checked:
    """An index and its expected contents."""

    def __init__(self, kernel: Kernel) -> None:
        self.index = MatchIndex(kernel=kernel)
        self.held: dict[Hashable, tuple[Condition, Filter]] = {}

    def add(self, key: Hashable, tree: Condition, parsed: Filter) -> None:
        self.index.add(key, parsed)
        self.held[key] = tree, parsed

    def remove(self, key: Hashable) -> None:
        if key in self.held:
            self.index.remove(key)
            del self.held[key]
        else:
            with pytest.raises(KeyError):
                self.index.remove(key)

    def check(self, events: Iterable[Event]) -> int:
        """Match one by one and as a batch; return the number of matches."""
        events = list(events)
        batch = self.index.match_batch(events)
        assert len(batch) == len(events)
        shares: dict[Hashable, list[int]] = {}
        for place, found in enumerate(batch):
            for key in found:
                shares.setdefault(key, []).append(place)
        assert self.index.distribute(events, range(len(events))) == shares
        count = 0
        for event, found in zip(events, batch, strict=True):
            expected = {
                key for key, (tree, _) in self.held.items() if evaluate(tree, event) is True
            }
            scanned = {key for key, (_, parsed) in self.held.items() if parsed.matches(event)}
            assert scanned == expected, f"brute force alone differs for {event!r}"
            single = self.index.match(event)
            assert isinstance(single, frozenset)
            assert isinstance(found, frozenset)
            for answer in (single, found):
                if answer != expected:
                    pytest.fail(self.difference(event, answer, expected))
            count += len(expected)
        return count

    def difference(self, event: Event, answer: frozenset[Hashable], expected: set[Hashable]) -> str:
        wrong = [
            f"{key!r} {'missing' if key in expected else 'spurious'}: "
            + (plain_text(self.held[key][0]) if key in self.held else "removed")
            for key in answer ^ expected
        ]
        return f"for {event!r}: " + "; ".join(wrong)


def parsed_or_none(tree: Condition) -> Filter | None:
    try:
        return Filter(plain_text(tree))
    except FilterLimitError:
        return None


# The state machine: few keys, few filters, any order of operations.


class IndexMachine(RuleBasedStateMachine):
    kernel: Kernel

    @initialize(rng=generate.sources())
    def start(self, rng: random.Random) -> None:
        self.checked = Checked(self.kernel)
        self.colours = generate.palette(rng)
        self.former: list[tuple[Condition, Filter]] = []

    @rule(
        key=strategies.sampled_from(KEYS), rng=generate.sources(), depth=strategies.integers(0, 2)
    )
    def add_or_replace(self, key: Hashable, rng: random.Random, depth: int) -> None:
        tree = generate.condition(rng, self.colours, depth)
        parsed = parsed_or_none(tree)
        if parsed is not None:
            self.former.append((tree, parsed))
            self.checked.add(key, tree, parsed)

    @rule(key=strategies.sampled_from(KEYS), pick=strategies.integers(0, 100))
    def add_a_former_filter_again(self, key: Hashable, pick: int) -> None:
        if self.former:
            self.checked.add(key, *self.former[pick % len(self.former)])

    @rule(key=strategies.sampled_from(KEYS))
    def remove_whether_present_or_not(self, key: Hashable) -> None:
        self.checked.remove(key)

    @rule()
    def remove_everything(self) -> None:
        for key in list(self.checked.held):
            self.checked.remove(key)

    @rule(rng=generate.sources(), count=strategies.integers(0, 6))
    def match(self, rng: random.Random, count: int) -> None:
        self.checked.check(generate.event(rng, self.colours) for _ in range(count))

    @invariant()
    def an_event_without_attributes_is_matched_correctly(self) -> None:
        self.checked.check([{}])


def test_any_order_of_operations_leaves_the_index_equal_to_brute_force(kernel: Kernel) -> None:
    machine = type("Machine", (IndexMachine,), {"kernel": kernel})
    limits = settings(max_examples=scaled(60), stateful_step_count=30)
    run_state_machine_as_test(machine, settings=limits)


# Long runs: many keys, many filters, few matches.


def stock(rng: random.Random, size: int) -> tuple[generate.Palette, list[tuple[Condition, Filter]]]:
    """Filters of all kinds over four attributes of every theme."""
    themes = (generate.SMALL_NUMBERS, generate.STRINGS, generate.MIXTURE, generate.LARGE_NUMBERS)
    colours = generate.Palette(
        {name: theme.literals for name, theme in zip(generate.NAMES, themes, strict=False)}
    )
    filters: list[tuple[Condition, Filter]] = []
    while len(filters) < size:
        make = generate.simple_predicate if rng.random() < 0.6 else generate.predicate
        if rng.random() < 0.7:
            tree = generate.conjunction(rng, colours, make)
        else:
            tree = generate.condition(rng, colours, depth=2)
        parsed = parsed_or_none(tree)
        if parsed is not None:
            filters.append((tree, parsed))
    return colours, filters


def update(checked: Checked, rng: random.Random, filters: list[Any], keys: int) -> None:
    """One random add, replacement or removal, absent keys included."""
    key = rng.randrange(keys)
    if rng.random() < 0.45:
        checked.remove(key)
    else:
        checked.add(key, *rng.choice(filters))


def test_the_index_is_correct_after_tens_of_thousands_of_updates(kernel: Kernel) -> None:
    rng = random.Random(17)
    colours, filters = stock(rng, 600)
    checked = Checked(kernel)
    matches = 0
    for keys in (800, 40):
        for _ in range(LONG_RUN_UPDATES):
            update(checked, rng, filters, keys)
        matches += checked.check(generate.event(rng, colours) for _ in range(40))
    assert matches > 500
    for key in list(checked.held):
        checked.remove(key)
    assert checked.check(generate.event(rng, colours) for _ in range(20)) == 0


def test_the_index_is_correct_when_updates_and_matches_alternate(kernel: Kernel) -> None:
    for seed in range(scaled(8)):
        rng = random.Random(f"in turn {seed}")
        colours, filters = stock(rng, 60)
        checked = Checked(kernel)
        for _ in range(150):
            update(checked, rng, filters, keys=30)
            checked.check([generate.event(rng, colours)])


def test_the_index_grows_and_shrinks_in_order_and_in_reverse(kernel: Kernel) -> None:
    rng = random.Random(23)
    colours, filters = stock(rng, 300)
    for order in (1, -1):
        checked = Checked(kernel)
        for key, (tree, parsed) in enumerate(filters):
            checked.add(key, tree, parsed)
        checked.check(generate.event(rng, colours) for _ in range(20))
        for count, departing in enumerate(list(checked.held)[::order]):
            checked.remove(departing)
            if count % 25 == 0:
                checked.check([generate.event(rng, colours)])
        checked.check([{}])


# Single properties.


def test_an_empty_index_matches_nothing(kernel: Kernel) -> None:
    index = MatchIndex(kernel=kernel)
    assert index.match({}) == frozenset()
    assert index.match({"a": 1, "b": "x"}) == frozenset()
    assert index.match_batch([]) == []
    assert index.match_batch([{}, {"a": 1}]) == [frozenset(), frozenset()]


def test_removing_an_absent_key_is_an_error_and_changes_nothing(kernel: Kernel) -> None:
    index = MatchIndex(kernel=kernel)
    with pytest.raises(KeyError):
        index.remove("absent")
    index.add("present", Filter("a = 1"))
    with pytest.raises(KeyError):
        index.remove("absent")
    index.remove("present")
    with pytest.raises(KeyError):
        index.remove("present")
    assert index.match({"a": 1}) == frozenset()


def test_adding_a_key_again_replaces_its_filter(kernel: Kernel) -> None:
    index = MatchIndex(kernel=kernel)
    index.add("key", Filter("a = 1 OR b = 1"))
    index.add("key", Filter("a = 2"))
    assert index.match({"a": 1, "b": 1}) == frozenset()
    assert index.match({"a": 2}) == {"key"}


def test_many_keys_may_share_one_filter_and_be_removed_one_by_one(kernel: Kernel) -> None:
    index = MatchIndex(kernel=kernel)
    shared = Filter("a BETWEEN 1 AND 2 OR a LIKE 'x%'")
    for key in range(50):
        index.add(key, shared)
    for key in range(50):
        assert index.match({"a": 1.5}) == frozenset(range(key, 50))
        index.remove(key)
    assert index.match({"a": "xy"}) == frozenset()


def test_a_disjunction_reports_its_key_once_however_many_sides_match(kernel: Kernel) -> None:
    index = MatchIndex(kernel=kernel)
    index.add("key", Filter("a = 1 OR b = 1 OR a < 5 OR b IS NOT NULL"))
    assert index.match({"a": 1, "b": 1}) == {"key"}
    assert index.match({"b": "x"}) == {"key"}
    assert index.match({"a": 7}) == frozenset()


def edge_conditions() -> list[Condition]:
    """Each kind of predicate, plain and negated, for literals on the edges of all types."""
    literals = [
        *generate.SMALL_NUMBERS.literals,
        *generate.LARGE_NUMBERS.literals,
        *generate.STRINGS.literals,
        *generate.BOOLEANS.literals,
    ]
    a = Attribute("a")
    conditions: list[Condition] = [
        Constant(value=True),
        Constant(value=False),
        Flag("a"),
        IsNull(negated=False, name="a"),
        IsNull(negated=True, name="a"),
        Compare("=", a, a),
        Compare("<", a, Attribute("b")),
    ]
    for value in literals:
        operators = ("=", "<>") if isinstance(value, bool) else ("=", "<>", "<", "<=", ">", ">=")
        conditions += [Compare(operator, a, Constantly(value)) for operator in operators]
        conditions += [In(negated, "a", (value, 1, "b")) for negated in (False, True)]
        if not isinstance(value, bool):
            ends = (Constantly(value), Constantly(value))
            conditions += [Between(negated, a, *ends) for negated in (False, True)]
    for pattern in ("", "%", "_", "a%", "%a", "a_%", "%b%"):
        conditions += [Like(negated, "a", pattern) for negated in (False, True)]
    conditions += [Not(condition) for condition in conditions]
    present = IsNull(negated=True, name="b")
    conditions += [And(condition, present) for condition in conditions[::7]]
    conditions += [Or(condition, present) for condition in conditions[::7]]
    return conditions


def test_every_predicate_on_every_edge_value_is_indexed_correctly(kernel: Kernel) -> None:
    checked = Checked(kernel)
    conditions = edge_conditions()
    for key, tree in enumerate(conditions):
        checked.add(key, tree, Filter(plain_text(tree)))
    literals = {repr(literal): literal for theme in generate.THEMES for literal in theme.literals}
    near = [value for literal in literals.values() for value in generate.neighbours(literal)]
    values = unique([*generate.UNKNOWN_BROKERS, *near])
    events: list[Event] = [{"a": value} for value in values]
    events += [{"a": value, "b": 1} for value in values[::5]]
    assert checked.check(events) > len(events)
    for key in range(0, len(conditions), 2):
        checked.remove(key)
    checked.check(events[::3])
