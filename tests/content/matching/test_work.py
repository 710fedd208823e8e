"""Searches with an allowance: each check is evaluated once, and the result is that of one search."""

from __future__ import annotations

import pytest

from gapless import Filter
from gapless.content.conjunction import Conjunction
from gapless.content.matching import COMPILED, MatchIndex, RoutingIndex
from gapless.content.matching.routing import ALL_LINKS
from gapless.content.matching.work import UNLIMITED_WORK, MatchWork, WorkSpentError, work_of
from gapless.content.values import Attributes

KERNELS = ("fallback", "compiled") if COMPILED else ("fallback",)
FILTERS = [
    *(f"p LIKE '%{letter}_c%'" for letter in "abcde"),
    "k + 1 > 3 OR p LIKE '%zz%'",
    "p > 'aa' AND p < 'ac'",
    "k = 5",
]
EVENTS: list[Attributes] = [{"p": "abc", "k": 5}, {"p": "ezczz"}, {"k": True}, {"k": 1}, {}]


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def in_parts(index: MatchIndex, work: MatchWork, event: Attributes, allowance: int) -> int:
    """Search an event with an allowance at a time; return the number of searches."""
    for number in range(1, 100):
        work.renew(allowance)
        try:
            index.match(event)
        except WorkSpentError:
            continue
        return number
    raise AssertionError("the search does not end")


def test_a_search_in_parts_finds_what_one_search_finds(kernel: str) -> None:
    work = MatchWork()
    index, free = MatchIndex(kernel=kernel, work=work), MatchIndex(kernel=kernel)
    for number, text in enumerate(FILTERS):
        index.add(number, Filter(text))
        free.add(number, Filter(text))
    assert work.checks == 8
    parts = []
    for event in EVENTS:
        parts.append(in_parts(index, work, event, 1))
        work.renew(UNLIMITED_WORK)
        assert index.match(event) == free.match(event)
    assert parts[0] > 5


def test_a_continued_search_evaluates_each_check_once(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated: list[str] = []
    matches = Conjunction.matches

    def noted(conjunction: Conjunction, attributes: Attributes) -> bool:
        evaluated.append(str(conjunction))
        return matches(conjunction, attributes)

    monkeypatch.setattr(Conjunction, "matches", noted)
    work = MatchWork()
    index = MatchIndex(kernel=kernel, work=work)
    for number, text in enumerate(FILTERS):
        index.add(number, Filter(text))
    assert in_parts(index, work, EVENTS[0], 1) > 5
    assert len(evaluated) == len(set(evaluated)) == work.checks


def test_equal_attributes_of_another_event_are_evaluated_again(kernel: str) -> None:
    work = MatchWork()
    index = MatchIndex(kernel=kernel, work=work)
    index.add("a", Filter("k + 1 = 2"))
    assert index.match({"k": 1}) == {"a"}
    assert index.match({"k": True}) == frozenset()


def test_a_filter_added_during_a_search_is_in_its_result(kernel: str) -> None:
    work = MatchWork()
    index = MatchIndex(kernel=kernel, work=work)
    event = {"p": "abc"}
    index.add(1, Filter("p LIKE '%a_c%'"))
    work.renew(1)
    with pytest.raises(WorkSpentError):
        index.match(event)
    index.add(2, Filter("p LIKE '%b%'"))
    work.renew(UNLIMITED_WORK)
    assert index.match(event) == {1, 2}


def test_removed_filters_have_no_checks(kernel: str) -> None:
    work = MatchWork()
    index = MatchIndex(kernel=kernel, work=work)
    for number, text in enumerate(FILTERS):
        index.add(number, Filter(text))
        index.add(-1 - number, Filter(text))
    for key in [*range(len(FILTERS)), *range(-len(FILTERS), 0)]:
        index.remove(key)
    assert work.checks == 0


def test_an_event_beyond_the_allowance_matches_all_links(kernel: str) -> None:
    work = MatchWork()
    index = RoutingIndex(kernel=kernel, work=work)
    for link, text in enumerate(FILTERS):
        for conjunction in Filter(text).conjunctions:
            index.add_link(link, conjunction)
    exact = index.match_links(EVENTS)
    for allowance in (1, 10, 40):
        work.renew(allowance)
        found = index.match_links(EVENTS)
        assert all(mask in (right, ALL_LINKS) for mask, right in zip(found, exact, strict=True))
        assert ALL_LINKS in found
    work.renew(0)
    assert set(index.match_links(EVENTS)) == {ALL_LINKS}


def test_the_work_of_a_check_grows_with_patterns_and_texts(kernel: str) -> None:
    def spent(text: str, value: str) -> int:
        work = MatchWork()
        index = MatchIndex(kernel=kernel, work=work)
        index.add(1, Filter(text))
        index.match({"p": value})
        return UNLIMITED_WORK - work.allowance

    short, long = "p LIKE '%a_b%'", f"p LIKE '%{'a_' * 60}b%'"
    assert spent(long, "abc") >= 6 * spent(short, "abc")
    assert spent(short, "a" * 65_536) == 5 * spent(short, "abc")
    (conjunction,) = Filter(long).conjunctions
    assert work_of(conjunction) == spent(long, "abc")
