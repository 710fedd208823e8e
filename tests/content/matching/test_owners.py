"""Large results are cached, and the cache is cleared when the index changes."""

from __future__ import annotations

import pytest

from gapless import Filter, MatchIndex
from gapless.content.matching.owners import Memo, Owners


def test_a_shared_result_is_cached_until_the_index_changes(kernel: str) -> None:
    index = MatchIndex(kernel=kernel)
    for key in range(300):
        index.add(key, Filter(f"a > {key % 3}"))
    first = index.match({"a": 2})
    assert first == {key for key in range(300) if key % 3 < 2}
    assert index.match({"a": 2}) is first
    index.remove(0)
    assert index.match({"a": 2}) == first - {0}
    index.add(0, Filter("a > 9"))
    assert index.match({"a": 2}) == first - {0}
    assert index.match({"a": 10}) == set(range(300))


def test_the_cache_of_results_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memo, "KEYS_MAX", 250)
    memo = Memo()
    for slots in (b"1", b"2", b"3"):
        result = memo.recall(slots, [slots], [Owners(*range(100))])
        assert result == {slots, *range(100)}
    assert memo.held <= 250


@pytest.mark.parametrize("key", [None, (), frozenset(), Owners(1), 0, ""])
def test_any_hashable_object_is_a_key(kernel: str, key: object) -> None:
    index = MatchIndex(kernel=kernel)
    index.add(key, Filter("a > 1"))
    assert index.match({"a": 2}) == {key}
    index.add("second", Filter("a > 1"))
    assert index.match({"a": 2}) == {key, "second"}
    index.remove(key)
    assert index.match({"a": 2}) == {"second"}


def test_a_result_does_not_change_with_the_index(kernel: str) -> None:
    index = MatchIndex(kernel=kernel)
    for key in range(100):
        index.add(key, Filter("a = 1"))
    result = index.match({"a": 1})
    index.remove(5)
    assert 5 in result
    assert isinstance(result, frozenset)
