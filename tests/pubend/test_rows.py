"""Rows and frames are bounded when they are made, and a row from before the bounds is sent in parts."""

from __future__ import annotations

import pytest

from gapless.core.effects import Write
from gapless.core.limits import (
    BEST_EFFORT_ROWS_MAX,
    NACK_REPLY_FRAMES_MAX,
    NAME_MAX,
    PUBLISH_EVENTS_MAX,
    ROW_BYTES_MAX,
    ROW_EVENTS_MAX,
)
from gapless.core.parameters import DEFAULTS
from gapless.core.ticks import TickRange
from gapless.messages.records import AppendRow
from gapless.messages.streams import Events, KnowledgeRange, Nack, Publication, StreamData
from gapless.packed.encode import content_bytes, encoded_bytes, in_rows
from gapless.pubend.publishers import PublishRefusedError, refuse_crowds
from tests.pubend.small_disk import Bench
from tests.pubend.test_best_effort import PubendHarness
from tests.stream.small_streams import STOCKS, Line

LONG_NAME = "\N{EARTH GLOBE EUROPE-AFRICA}" * NAME_MAX


def publish(bench: Bench, publisher: str, events: Events) -> list[tuple[int, ...]]:
    """Publish a batch without making it durable; return the list of its replies."""
    replies: list[tuple[int, ...]] = []
    bench.pubend.open_publisher(publisher, lambda _: None)
    bench.sync()
    session = bench.pubend.session_of(publisher)
    assert session is not None
    bench.pubend.publish(publisher, session, 1, events, replies.append, bench.refusals.append)
    bench.collect()
    return replies


def rows_of(write: Write) -> list[AppendRow]:
    return [each for each in write.changes if isinstance(each, AppendRow)]


def test_a_batch_of_empty_events_of_a_long_name_becomes_bounded_rows() -> None:
    bench = Bench()
    publish(bench, LONG_NAME, (({}, b""),) * 3_000)
    (write,) = bench.writes
    rows = rows_of(write)
    assert len(rows) >= 3
    for row in rows:
        assert len(row.row.publications) <= ROW_EVENTS_MAX
        assert encoded_bytes(row.row.publications) <= ROW_BYTES_MAX
    published = [each for row in rows for each in row.row.publications]
    assert [each.sequence for each in published] == [*range(1, 3_001)]
    assert [each.tick for each in published] == [
        *range(published[0].tick, published[0].tick + 3_000)
    ]


def test_the_rows_of_a_batch_are_sent_one_per_step_and_acknowledged_together() -> None:
    bench = Bench()
    bench.sync()
    replies = publish(bench, "desk", (({}, b""),) * 3_000)
    before = len(bench.sent)
    steps = 0
    while bench.writes:
        (write,) = bench.writes
        bench.writes.clear()
        sent = len(bench.sent)
        bench.step_durable(write)
        assert len(bench.sent) <= sent + 1, "each step sends a row"
        steps += 1
        assert bool(replies) == (not bench.writes), "the reply follows the last row"
    assert steps == len(bench.sent) - before > 2
    assert len(replies[0]) == 3_000


def test_a_repeated_batch_of_several_rows_gets_its_first_ticks_after_a_restart() -> None:
    bench = Bench()
    events: Events = (({}, b""),) * 3_000
    first = publish(bench, "desk", events)
    bench.sync()
    bench.start()
    again = publish(bench, "desk", events)
    bench.sync()
    assert again == first


def test_an_event_that_is_larger_than_a_row_has_a_row_of_its_own() -> None:
    event = Publication(1, "p", 1, {}, bytes(2 * ROW_BYTES_MAX))
    small = Publication(2, "p", 2, {}, b"")
    rows = in_rows((event, small, small, event))
    assert [row.publications for row in rows] == [(event,), (small,), (small,), (event,)]
    assert [row.publications for row in in_rows((small, small))] == [(small, small)]


@pytest.mark.parametrize(
    ("publisher", "events"),
    [
        (LONG_NAME, (({}, b""),) * 3_000),
        ("desk", (({}, bytes(1_000)),) * 900),
        ("desk", (({"text": "\N{EURO SIGN}" * 1_000}, b""),) * 900),
        ("desk", (({}, bytes(2 * ROW_BYTES_MAX)), ({}, b""))),
    ],
    ids=["names", "payloads", "texts", "one large event"],
)
def test_a_best_effort_batch_is_sent_in_bounded_rows(publisher: str, events: Events) -> None:
    harness = PubendHarness()
    session = harness.open(publisher).session
    answers: list[tuple[int, ...]] = []
    harness.pubend.publish(publisher, session, 1, events, answers.append, print)
    assert len(harness.sent) == 1
    while harness.next_step():
        pass
    assert len(harness.sent) > 1
    for row in harness.sent:
        assert len(row.publications) <= ROW_EVENTS_MAX
        assert len(row.publications) == 1 or content_bytes(row) <= ROW_BYTES_MAX
    sent = [each.tick for row in harness.sent for each in row.publications]
    assert tuple(sent) == answers[0]


def test_a_best_effort_batch_sends_one_row_in_each_step_and_others_wait_behind_it() -> None:
    harness = PubendHarness()
    session = harness.open()
    events: Events = (({}, b""),) * (3 * ROW_EVENTS_MAX)
    ticks: list[tuple[int, ...]] = []
    harness.pubend.publish("ann", session.session, 1, events, ticks.append, print)
    later = harness.publish(session, 1 + len(events), 7)
    assert len(ticks[0]) == len(events), "the reply does not wait"
    for rows in range(1, 6):
        assert len(harness.sent) == rows
        assert harness.next_step() is (rows < 5)
    assert tuple(harness.ticks()) == ticks[0] + later
    last = harness.publish(session, 2 + len(events), 8)
    assert harness.ticks()[-1:] == [*last], "after the last row, the next one does not wait"


def test_best_effort_rows_beyond_the_limit_are_dropped() -> None:
    harness = PubendHarness()
    session = harness.open()
    events: Events = (({}, b""),) * (2 * ROW_EVENTS_MAX)
    answers: list[tuple[int, ...]] = []
    for batch in range(BEST_EFFORT_ROWS_MAX):
        first = 1 + batch * len(events)
        harness.pubend.publish("ann", session.session, first, events, answers.append, print)
    assert harness.context.coverage_marks["best effort dropped"]
    while harness.next_step():
        pass
    assert len(harness.sent) == BEST_EFFORT_ROWS_MAX
    assert harness.ticks() == sorted(harness.ticks())


def test_a_batch_of_too_many_events_is_refused() -> None:
    refuse_crowds((({}, b""),) * PUBLISH_EVENTS_MAX)
    with pytest.raises(PublishRefusedError, match="PUBLISH_EVENTS_MAX = 10,000"):
        refuse_crowds((({}, b""),) * (PUBLISH_EVENTS_MAX + 1))


def test_a_row_from_before_the_bounds_is_sent_in_parts_to_a_receiver_that_nacks_it() -> None:
    line = Line("pan")
    line.publish(KnowledgeRange(1, 20, 1, 0))
    line.attach()
    line.run(ms=20)
    line.received.clear()
    size, count = 30_000, 300
    publications = tuple(
        Publication(20 + index, "p", index, {}, bytes(size)) for index in range(1, count + 1)
    )
    row = KnowledgeRange(21, 20 + count, 1, 0, publications)
    line.nodes["n"].router.pause_peer("r")
    line.publish(row)
    line.run(ms=10)
    line.nodes["n"].router.resume_peer("r")
    limit = NACK_REPLY_FRAMES_MAX * DEFAULTS.frame_bytes_max + ROW_BYTES_MAX
    reached, replies = 20, 0
    while reached < row.high:
        line.received.clear()
        line.send("r", Nack(STOCKS, (TickRange(reached + 1, row.high),)))
        line.run(ms=20)
        parts = [each for each in line.received["r"] if isinstance(each, StreamData)]
        assert parts, "every nack is answered with something"
        assert sum(content_bytes(each.knowledge) for each in parts) <= limit
        assert all(content_bytes(each.knowledge) <= ROW_BYTES_MAX for each in parts)
        assert parts[0].knowledge.low <= reached + 1
        reached = parts[-1].knowledge.high
        replies += 1
    assert replies > 1
