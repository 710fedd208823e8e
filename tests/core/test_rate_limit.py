"""The limit on a rate: a burst after a pause, then one in an interval."""

from __future__ import annotations

from gapless.core.limits import CHANGE_BURST
from gapless.core.rate_limit import RateLimit

INTERVAL = 10


def done(limit: RateLimit, now: int, until: int) -> list[int]:
    """Do something as often as allowed; return when it was done."""
    times = []
    while now < until:
        wait = limit.wait(now)
        if wait:
            now += wait
        else:
            limit.note(now)
            times.append(now)
    return times


def test_a_burst_is_allowed_at_once_and_then_one_in_an_interval() -> None:
    times = done(RateLimit(INTERVAL), 500, 550)
    assert times == [500] * CHANGE_BURST + [510, 520, 530, 540]


def test_a_pause_restores_one_of_the_burst_in_every_interval() -> None:
    limit = RateLimit(INTERVAL)
    done(limit, 500, 501)
    assert done(limit, 540, 541) == [540] * 4
    assert done(limit, 10_000, 10_001) == [10_000] * CHANGE_BURST, "not more after a longer pause"


def test_on_average_one_is_allowed_in_an_interval() -> None:
    times = done(RateLimit(INTERVAL), 0, 10_000)
    assert len(times) <= CHANGE_BURST + 10_000 // INTERVAL
