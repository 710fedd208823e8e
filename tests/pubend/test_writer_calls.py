"""Staging at a broker: a batch is logged whole and once, or not at all without a trace."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gapless.messages.clients import (
    OpenPubend,
    OpenPublisher,
    Publish,
    Published,
    RefusalCause,
    Refused,
)
from gapless.messages.overlay import Quality
from gapless.messages.staging import (
    BatchCommitted,
    BatchDropped,
    ChunkStaged,
    CommitBatch,
    DropBatch,
)
from tests.broker.harness import BrokerHarness, P, Q, reason
from tests.pubend.writers import Writer, commits, labels, logged, staged


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Count the calls of Python and C functions, without those of a garbage collection."""
    seen: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    sys.setprofile(lambda _, event, __: seen.update((event,)) if "call" in event else None)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        gc.enable()


# --- S1: whole, once ------------------------------------------------------------------------------


def test_a_staged_chunk_is_on_disk_and_not_delivered() -> None:
    world = BrokerHarness("p-n")
    writer = Writer(world)
    reader = world.subscriber("n", "reader", "TRUE")
    world.run(s=1)
    assert isinstance(writer.stage("x", "y"), ChunkStaged)
    world.run(s=2)
    assert len(staged(world)) == 1
    assert labels(world) == []
    assert reader.events == []


def test_a_commit_publishes_one_attempt_of_each_partition_in_order() -> None:
    world = BrokerHarness("p-n")
    writer = Writer(world)
    reader = world.subscriber("n", "reader", "TRUE")
    world.run(s=1)
    writer.stage("c", partition=1, attempt="b")
    writer.stage("lost", partition=0, attempt="failed")
    writer.stage("b", partition=0, attempt="a", number=1)
    writer.stage("a1", "a2", partition=0, attempt="a", number=0)
    answer = writer.commit((0, "a", 2), (1, "b", 1))
    ticks = [each.tick for each in logged(world)]
    assert answer == BatchCommitted(answer.request, ticks[0], ticks[-1], 4)
    assert labels(world) == ["a1", "a2", "b", "c"]
    assert [(each.publisher, each.sequence) for each in logged(world)] == [
        ("w", number) for number in range(1, 5)
    ]
    assert ticks == [*range(ticks[0], ticks[0] + 4)]
    world.run(ms=500)
    assert reader.events == ["a1", "a2", "b", "c"]
    assert staged(world) == []


def test_a_repeated_commit_is_answered_as_repeated_without_effect() -> None:
    world = BrokerHarness("p")
    writer = Writer(world)
    writer.stage("x")
    first = writer.commit((0, "a", 1))
    again = writer.commit((0, "a", 1))
    assert again == BatchCommitted(again.request, first.first, first.last, 1, repeated=True)
    assert labels(world) == ["x"]


def test_a_batch_staged_again_after_its_commit_is_not_published_again() -> None:
    world = BrokerHarness("p")
    writer = Writer(world)
    writer.stage("x")
    writer.commit((0, "a", 1))
    assert isinstance(writer.stage("x", attempt="b"), ChunkStaged)
    assert staged(world) == []
    assert writer.commit((0, "b", 1)).repeated
    assert labels(world) == ["x"]


def test_a_staged_batch_below_a_committed_one_is_deleted() -> None:
    world = BrokerHarness("p")
    writer = Writer(world)
    writer.stage("x", batch=1)
    writer.stage("early", batch=2)
    writer.commit((0, "a", 1), batch=1)
    assert len(staged(world)) == 1
    writer.stage("y", batch=3)
    writer.commit((0, "a", 1), batch=3)
    assert staged(world) == []
    answer = writer.commit((0, "a", 1), batch=2)
    assert answer == BatchCommitted(answer.request, 0, 0, 0, repeated=True)
    assert labels(world) == ["x", "y"]


def test_a_chunk_that_is_staged_twice_is_published_once() -> None:
    world = BrokerHarness("p")
    writer = Writer(world)
    assert isinstance(writer.stage("x"), ChunkStaged)
    assert isinstance(writer.stage("x"), ChunkStaged)
    assert len(staged(world)) == 1
    writer.commit((0, "a", 1))
    assert labels(world) == ["x"]


def test_sequences_continue_from_batch_to_batch() -> None:
    world = BrokerHarness("p")
    writer = Writer(world)
    for batch in (1, 2):
        writer.stage("x", "y", batch=batch)
        writer.commit((0, "a", 1), batch=batch)
    assert [each.sequence for each in logged(world)] == [1, 2, 3, 4]


def test_sequences_continue_when_the_publisher_is_forgotten() -> None:
    world = BrokerHarness("p", publisher_ttl_s=8)
    writer = Writer(world)
    writer.stage("x", "y")
    writer.commit((0, "a", 1))
    world.run(s=20)
    writer.stage("z", batch=2)
    writer.commit((0, "a", 1), batch=2)
    assert [each.sequence for each in logged(world)][-1] == 3


def test_batches_of_two_writers_are_independent() -> None:
    world = BrokerHarness("p")
    one, other = Writer(world), Writer(world, name="v")
    one.stage("x", batch=5)
    other.stage("y", batch=5)
    one.commit((0, "a", 1), batch=5)
    assert not other.commit((0, "a", 1), batch=5).repeated
    assert labels(world) == ["x", "y"]


def test_a_commit_fences_an_ordinary_publisher_of_the_same_name() -> None:
    world = BrokerHarness("p")
    writer = Writer(world)
    opened = writer.call(OpenPublisher(writer.number(), P, "w"))
    published = writer.call(Publish(50, P, "w", opened.session, 1, (({}, b"1"),)))
    assert isinstance(published, Published)
    writer.stage("x")
    writer.commit((0, "a", 1))
    refused = writer.call(Publish(51, P, "w", opened.session, 2, (({}, b"2"),)))
    assert refused.cause is RefusalCause.FENCED
    assert [each.sequence for each in logged(world)] == [1, 2]


# --- crashes --------------------------------------------------------------------------------------


def test_staged_chunks_survive_a_crash() -> None:
    world = BrokerHarness("p")
    writer = Writer(world)
    writer.stage("x")
    world.restart("p")
    writer.connect()
    writer.commit((0, "a", 1))
    assert labels(world) == ["x"]


def test_a_commit_interrupted_by_a_crash_publishes_all_or_nothing() -> None:
    world = BrokerHarness("p")
    writer = Writer(world)
    writer.stage("x", partition=0)
    writer.stage("y", partition=1)
    world.stop_disk("p")
    assert writer.commit((0, "a", 1), (1, "a", 1)) is None
    world.restart("p")
    writer.connect()
    assert (labels(world), len(staged(world))) == ([], 2)
    assert not writer.commit((0, "a", 1), (1, "a", 1)).repeated
    assert labels(world) == ["x", "y"]


def test_a_commit_repeated_after_a_crash_before_its_answer_is_answered_as_repeated() -> None:
    world = BrokerHarness("p-n", retention_s=3_600)
    writer = Writer(world)
    reader = world.subscriber("n", "reader", "TRUE")
    world.run(s=1)
    writer.stage("x", "y")
    writer.stage("z", partition=1)
    world.stop_disk("p")
    assert writer.commit((0, "a", 1), (1, "a", 1)) is None
    world.nodes["p"].disk.sync()  # durable, but the broker crashes before it answers
    world.restart("p")
    writer.connect()
    again = writer.commit((0, "a", 1), (1, "a", 1))
    ticks = [each.tick for each in logged(world)]
    assert again == BatchCommitted(again.request, ticks[0], ticks[-1], 3, repeated=True)
    world.run(s=3)
    assert labels(world) == ["x", "y", "z"]
    assert reader.events == ["x", "y", "z"]


def test_a_commit_requested_twice_before_it_is_durable_is_done_once() -> None:
    world = BrokerHarness("p")
    writer = Writer(world)
    writer.stage("x")
    world.stop_disk("p")
    writer.request(CommitBatch(70, P, "w", 1, ((0, "a", 1),)))
    writer.request(CommitBatch(71, P, "w", 1, ((0, "a", 1),)))
    world.run(ms=10)
    assert (writer.answer(70), writer.answer(71)) == (None, None)
    world.resume_disk("p")
    world.run(ms=10)
    assert (writer.answer(70).repeated, writer.answer(71).repeated) == (False, True)
    assert labels(world) == ["x"]


def test_a_commit_is_answered_when_the_stream_has_reached_its_last_event() -> None:
    world = BrokerHarness("p")
    writer = Writer(world)
    for number in range(6):
        writer.stage(f"x{number}", number=number)
    writer.request(CommitBatch(70, P, "w", 1, ((0, "a", 6),)))
    writer.request(CommitBatch(71, P, "w", 1, ((0, "a", 6),)))
    for number in (70, 71):
        world.wait(lambda number=number: writer.answer(number) is not None)  # type: ignore[misc]
        assert world.pubend("p", P).top >= writer.answer(number).last


def test_a_commit_makes_as_many_calls_for_a_large_chunk_as_for_a_small_one() -> None:
    """A commit is one step: its cost must hardly depend on the number of events."""
    world = BrokerHarness("p")
    writer = Writer(world)
    calls = []
    for batch, size in ((1, 10), (2, 10), (3, 2_000)):  # the first one may fill caches
        writer.stage(*map(str, range(size)), batch=batch)
        world.stop_disk("p")
        with counted_calls() as seen:
            writer.request(CommitBatch(writer.number(), P, "w", batch, ((0, "a", 1),)))
        calls.append(seen.total())
        world.resume_disk("p")
        world.run(ms=50)
    assert len(labels(world)) == 2_020
    assert calls[1] == calls[2], calls


# --- S2: no records left --------------------------------------------------------------------------


def test_a_dropped_batch_is_deleted_and_cannot_be_committed() -> None:
    world = BrokerHarness("p")
    writer = Writer(world)
    writer.stage("x")
    assert isinstance(writer.drop(), BatchDropped)
    assert staged(world) == []
    text = reason(writer.commit((0, "a", 1)))
    assert text.startswith(
        "batch 1 of 'w' cannot be committed: chunk 0 of partition 0, attempt 'a'"
    )
    assert labels(world) == []


def test_an_uncommitted_batch_is_deleted_after_its_ttl() -> None:
    world = BrokerHarness("p", staged_ttl_s=20)
    writer = Writer(world)
    writer.stage("x")
    world.run(s=15)
    writer.stage("y", number=1)  # which retains the whole batch
    world.run(s=15)
    assert len(staged(world)) == 2
    world.run(s=15)
    assert staged(world) == []
    assert world["p"].components.staging.bytes == 0
    assert isinstance(writer.commit((0, "a", 2)), Refused)


def test_an_uncommitted_batch_is_deleted_after_a_restart_of_the_broker() -> None:
    world = BrokerHarness("p", staged_ttl_s=20)
    Writer(world).stage("x")
    world.restart("p")
    world.run(s=30)
    assert staged(world) == []


def test_a_commit_is_forgotten_after_its_ttl() -> None:
    world = BrokerHarness("p", staged_ttl_s=4, commit_ttl_s=30)
    writer = Writer(world)
    writer.stage("x")
    writer.commit((0, "a", 1))
    world.restart("p")
    world.run(s=20)
    assert len(commits(world)) == 1
    world.run(s=20)
    assert commits(world) == []


def test_chunks_above_the_limit_are_refused() -> None:
    world = BrokerHarness("p", staged_bytes_max=1_000)
    writer = Writer(world)
    assert isinstance(writer.stage("x"), ChunkStaged)
    text = reason(writer.stage("y" * 1_000, number=1))
    assert "staged_bytes_max = 1,000" in text
    assert "write smaller batches" in text
    writer.drop()
    assert isinstance(writer.stage("y" * 100), ChunkStaged)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((), "a commit names at least one part"),
        (((0, "a", 1), (0, "b", 1)), "a commit names one attempt for each partition"),
        (((0, "a", 0),), "a commit names partition 0 without a chunk"),
        (((0, "a", 2),), "chunk 1 of partition 0, attempt 'a', is not staged here"),
        (((0, "c", 1),), "chunk 0 of partition 0, attempt 'c', is not staged here"),
    ],
)
def test_a_commit_of_chunks_that_were_not_staged_is_refused(
    parts: tuple[tuple[int, str, int], ...], text: str
) -> None:
    world = BrokerHarness("p")
    writer = Writer(world)
    writer.stage("x")
    writer.stage("y", attempt="b")
    assert text in reason(writer.commit(*parts))
    assert labels(world) == []
    assert len(staged(world)) == 2


def test_an_event_outside_the_advertisement_is_refused_when_it_is_staged() -> None:
    world = BrokerHarness("p")
    writer = Writer(world, advertisement="label = 'x'")
    assert isinstance(writer.stage("x"), ChunkStaged)
    text = "an event does not match the pubend's advertisement label = 'x'"
    assert reason(writer.stage("y", number=1)) == text


def test_a_full_log_refuses_a_commit_and_keeps_the_staged_chunks() -> None:
    world = BrokerHarness("p-n", log_bytes_max=2_000, retention_s=3_600)
    writer = Writer(world)
    world.subscriber("n", "reader", "TRUE", durable=True)
    world.run(s=1)
    batch, answer = 0, None
    while not isinstance(answer, Refused):
        batch += 1
        writer.stage("x" * 200, batch=batch)
        answer = writer.commit((0, "a", 1), batch=batch)
    assert "limit log_bytes_max" in reason(answer)
    assert len(staged(world)) == 1


def test_a_corrupt_log_refuses_a_commit() -> None:
    world = BrokerHarness("p")
    writer = Writer(world)
    writer.stage("x")
    world.pubend("p", P).note_corruption("row 1 is corrupt", 1)
    assert "is corrupt: row 1 is corrupt" in reason(writer.commit((0, "a", 1)))
    assert len(staged(world)) == 1


def test_a_commit_to_a_best_effort_pubend_is_refused() -> None:
    world = BrokerHarness("p")
    client = world.client()
    client.call(OpenPubend(1, "Q", "TRUE", Quality.BEST_EFFORT))
    text = reason(client.call(CommitBatch(2, Q, "w", 1, ((0, "a", 1),))))
    assert text == "the pubend Q is best effort and has no log to commit to"


def test_staging_for_a_pubend_of_another_broker_is_refused_with_its_name() -> None:
    world = BrokerHarness("p-n")
    world.publisher("p")
    answer = world.client("n").call(DropBatch(2, P, "w", 1))
    assert (answer.cause, answer.broker) == (RefusalCause.WRONG_BROKER, "p")
    assert "there is no pubend Q here" in reason(world.client("n").call(DropBatch(3, Q, "w", 1)))


@pytest.mark.parametrize(("writer", "attempt"), [("", "a"), ("w", ""), ("w" * 257, "a")])
def test_writers_and_attempts_without_a_name_are_refused(writer: str, attempt: str) -> None:
    world = BrokerHarness("p")
    answer = Writer(world, name=writer).stage("x", attempt=attempt)
    assert reason(answer) == "the name of a writer or an attempt must have 1 to 256 characters"


def test_an_empty_chunk_is_refused() -> None:
    assert reason(Writer(BrokerHarness("p")).stage()) == "a chunk has at least one event"


def test_a_clock_that_was_temporarily_ahead_causes_no_duplicate_batch() -> None:
    # S1: the time of a commit also depends on the clocks of the neighbours
    world = BrokerHarness("p-a", "p-b", staged_ttl_s=40)
    writer = Writer(world)
    x = world.subscriber("a", "x", "TRUE")
    world.run(s=2)
    writer.stage("x")
    writer.commit((0, "a", 1))
    world.set_clock("p", 40 * 86_400)
    world.run(s=30)
    world.set_clock("p", -40 * 86_400)
    writer.stage("x")
    assert writer.commit((0, "a", 1)).repeated
    world.run(s=2)
    assert x.events == ["x"]


def test_a_corrected_slow_clock_causes_no_duplicate_batch() -> None:
    world = BrokerHarness("p-a", "p-b", staged_ttl_s=40)
    writer = Writer(world)
    x = world.subscriber("a", "x", "TRUE")
    world.run(s=2)
    world.set_clock("p", -40 * 86_400)
    writer.stage("x")
    writer.commit((0, "a", 1))
    world.set_clock("p", 40 * 86_400)
    world.run(s=30)
    writer.stage("x")
    assert writer.commit((0, "a", 1)).repeated
    world.run(s=2)
    assert x.events == ["x"]
