"""The buffer of a cursor: events that wait for credit (R48, P7: prefetch_max, backlog_bytes)."""

from __future__ import annotations

from gapless.core.parameters import Parameters
from gapless.messages.streams import Publication
from gapless.subscribers.buffer import Backlog, Buffer
from gapless.subscribers.cursor_state import FOREVER, GapRange


def events(low: int, high: int) -> list[Publication]:
    return [Publication(tick, "ann", tick, {"n": tick}, b"") for tick in range(low, high + 1)]


def made(backlog: Backlog, *, prefetch_max: int = 3, backlog_bytes: int = 1_000) -> Buffer:
    return Buffer(Parameters(prefetch_max=prefetch_max, backlog_bytes=backlog_bytes), backlog)


def ticks(publications: list[Publication]) -> list[int]:
    return [each.tick for each in publications]


def test_the_first_prefetch_max_events_do_not_count_towards_the_backlog() -> None:
    backlog = Backlog()
    buffer = made(backlog)
    assert buffer.put(events(1, 5)) == 3
    assert not buffer.has_space
    assert (len(buffer), backlog.bytes) == (3, 0)


def test_runs_above_prefetch_max_count_until_their_last_event_is_taken() -> None:
    backlog = Backlog()
    buffer = made(backlog)
    buffer.put(events(1, 3))
    assert buffer.put_beyond(events(4, 5))
    assert backlog.bytes == buffer.booked_bytes > 0
    assert ticks(buffer.take_events(4, FOREVER)) == [1, 2, 3, 4]
    assert backlog.bytes > 0, "5 still waits"
    assert ticks(buffer.take_events(4, FOREVER)) == [5]
    assert backlog.bytes == 0


def test_the_backlog_of_all_cursors_is_bounded_together() -> None:
    backlog = Backlog()
    one, other = made(backlog), made(backlog)
    while one.put_beyond(events(1, 1)):
        pass
    assert not other.put_beyond(events(1, 1))
    assert other.put(events(1, 1)) == 1, "the first prefetch_max events do not depend on others"
    one.clear()
    assert backlog.bytes == 0
    assert other.put_beyond(events(2, 2))


def test_a_gap_keeps_its_position_between_events() -> None:
    buffer = made(Backlog(), prefetch_max=9)
    buffer.put(events(1, 2))
    buffer.append_gap(GapRange(3, 6))
    buffer.put(events(7, 8))
    assert buffer.take_gap(FOREVER) is None
    assert ticks(buffer.take_events(9, FOREVER)) == [1, 2]
    assert buffer.take_events(9, FOREVER) == []
    assert buffer.take_gap(2) is None
    assert buffer.take_gap(FOREVER) == GapRange(3, 6)
    assert buffer.next_tick == 7
    assert ticks(buffer.take_events(9, 7)) == [7]
