"""The limit on the memory of all streams (R38)."""

from __future__ import annotations

from random import Random

from gapless.core.ids import PubendId
from gapless.stream.cache import shrink
from gapless.stream.istream import IStream, MemoryAccount
from tests.stream.model import knowledge_range


def streams_of(*counts: int) -> tuple[MemoryAccount, list[IStream]]:
    """Return streams with so many knowledge ranges each, none of which can be joined."""
    account = MemoryAccount()
    streams = []
    for number, count in enumerate(counts):
        stream = IStream(PubendId(f"p{number}"), account)
        for low in range(0, 10 * count, 10):
            stream.accumulate(knowledge_range(low, low + 5, low), 1_000)
        streams.append(stream)
    return account, streams


def test_nothing_is_forgotten_within_the_limit() -> None:
    account, streams = streams_of(3, 2)
    assert shrink(account, streams, account.bytes) == 0
    assert [*map(len, streams)] == [3, 2]


def test_the_lowest_ticks_of_the_largest_stream_are_forgotten_first() -> None:
    account, streams = streams_of(2, 6, 3)
    assert shrink(account, streams, account.bytes - 1) == 1
    assert [*map(len, streams)] == [2, 5, 3]
    assert [one.low for one in streams[1]] == [10, 20, 30, 40, 50]


def test_large_streams_become_equally_large() -> None:
    account, streams = streams_of(9, 3, 7)
    shrink(account, streams, account.bytes // 2)
    assert [*map(len, streams)] == [2, 3, 3]


def test_of_equal_streams_the_first_forgets_first() -> None:
    account, streams = streams_of(4, 4, 4)
    shrink(account, streams, account.bytes - 1)
    assert [*map(len, streams)] == [3, 4, 4]


def test_a_cache_of_zero_bytes_forgets_everything_but_the_tops() -> None:
    account, streams = streams_of(4, 0, 2)
    assert shrink(account, streams, 0) == 6
    assert account.bytes == 0
    assert [stream.top for stream in streams] == [35, 0, 15]


def test_bytes_of_streams_that_were_not_given_cannot_be_freed() -> None:
    account, streams = streams_of(4, 4)
    assert shrink(account, streams[:1], 0) == 4
    assert account.bytes == streams[1].bytes


def test_the_account_stays_within_its_limit_over_a_long_run() -> None:
    chance = Random(7)
    account = MemoryAccount()
    streams = [IStream(PubendId(f"p{number}"), account) for number in range(5)]
    for low in range(0, 50_000, 10):
        stream = chance.choice(streams)
        stream.accumulate(knowledge_range(low, low + 5, low), chance.randrange(3_000))
        shrink(account, streams, 40_000)
        assert account.bytes <= 40_000
        assert account.bytes == sum(one.bytes for one in streams)
