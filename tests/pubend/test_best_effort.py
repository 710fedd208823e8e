"""Best effort: order and no duplicates, and no other guarantee (R33)."""

from __future__ import annotations

import pytest

from gapless.content.values import Value
from gapless.core.context import Context, Identity
from gapless.core.effects import Write
from gapless.core.events import Written
from gapless.core.ids import PubendId
from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import Tick, TickRange
from gapless.messages.overlay import PubendProperties, Quality
from gapless.messages.records import PubendRecord, PublisherRecord, StreamEpochRecord
from gapless.messages.streams import (
    Detach,
    KnowledgeRange,
    Nack,
    StreamData,
    StreamEpoch,
    StreamEpochRequest,
    StreamSilence,
)
from gapless.pubend.best_effort import BestEffortPubend
from gapless.pubend.pubend import PublishRefusedError
from tests.stream.small_streams import STOCKS, Line, event, knowledge_range


class PubendHarness:
    """A best-effort pubend and what it has sent."""

    def __init__(
        self, incarnation: int = 5, clock: int = 1_000, advertisement: str = "TRUE"
    ) -> None:
        self.context = Context(Identity("p", "p", incarnation), Parameters(publisher_ttl_s=60))
        self.context.clock = clock
        self.sent: list[KnowledgeRange] = []
        properties = PubendProperties("p", "p", advertisement, Quality.BEST_EFFORT)
        self.pubend = BestEffortPubend(
            self.context, PubendRecord(STOCKS, properties, 1, 0, 0), self
        )

    def forward(
        self, pubend: PubendId, knowledge: KnowledgeRange, opened: StreamEpochRecord | None
    ) -> None:
        assert (pubend, opened) == (STOCKS, None)
        self.sent.append(knowledge)

    def set_released(self, pubend: PubendId, up_to: Tick, stream_epochs: list[int]) -> None:
        del stream_epochs
        raise AssertionError(f"there is no log of {pubend} to release up to {up_to}")

    def forget_stream_epochs(self, pubend: PubendId, up_to: Tick, stream_epochs: list[int]) -> None:
        del up_to, stream_epochs
        raise AssertionError(f"{pubend} has no stream epochs")

    def cached(self, pubend: PubendId, low: Tick, high: Tick) -> list[KnowledgeRange]:
        del pubend, low, high
        return []

    def open(self, publisher: str = "ann") -> PublisherRecord:
        found: list[PublisherRecord] = []
        self.pubend.open_publisher(publisher, found.append)
        return found[0]

    def publish(self, session: PublisherRecord, first: int, *values: int) -> tuple[Tick, ...]:
        answers: list[tuple[Tick, ...]] = []
        events: tuple[tuple[dict[str, Value], bytes], ...] = tuple(
            ({"a": value}, b"") for value in values
        )
        late: list[str] = []
        self.pubend.publish(
            session.publisher, session.session, first, events, answers.append, late.append
        )
        assert late == []  # no sequence has to be looked up
        return answers[0]

    def next_step(self) -> bool:
        """Complete the writes of the last step; return whether there were any."""
        writes = [each for each in self.context.take_effects() if isinstance(each, Write)]
        for write in writes:
            assert write.changes == (), "best effort stores nothing"
            self.context.resume(Written(write.write_id))
        return bool(writes)

    def ticks(self) -> list[Tick]:
        return [each.tick for knowledge in self.sent for each in knowledge.publications]


# --- the pubend -----------------------------------------------------------------------------


def test_an_event_is_sent_and_answered_at_once_and_nothing_is_written() -> None:
    harness = PubendHarness()
    assert harness.publish(harness.open(), 1, 7, 8) == (1_000, 1_001)
    (knowledge,) = harness.sent
    assert (knowledge.low, knowledge.high, knowledge.stream_epoch) == (1_000, 1_001, 5)
    assert [each.sequence for each in knowledge.publications] == [1, 2]
    assert harness.context.effects == []


def test_ticks_grow_within_an_incarnation_although_the_clock_is_set_back() -> None:
    harness = PubendHarness()
    session = harness.open()
    for sequence, clock in enumerate((1_000, 400, 5_000, 5_000), 1):
        harness.context.clock = clock
        harness.publish(session, sequence, sequence)
    assert harness.ticks() == [1_000, 1_001, 5_000, 5_001]


def test_a_repeated_sequence_is_answered_and_not_sent_again() -> None:
    harness = PubendHarness()
    session = harness.open()
    harness.publish(session, 1, 1, 2)
    assert harness.publish(session, 2, 2, 3) == (0, 1_002)
    assert harness.publish(session, 1, 1, 2) == (0, 0)
    assert [each.sequence for knowledge in harness.sent for each in knowledge.publications] == [
        1,
        2,
        3,
    ]
    assert harness.open().last_sequence == 3


def test_a_session_of_an_earlier_incarnation_is_fenced() -> None:
    # R28: session numbers grow across incarnations, though they are not stored
    before = PubendHarness(incarnation=5)
    old = [before.open() for _ in range(20)][-1]
    harness = PubendHarness(incarnation=6)
    new = harness.open()
    assert new.session > old.session
    with pytest.raises(PublishRefusedError, match="a newer session"):
        harness.publish(old, 1, 1)
    harness.publish(new, 1, 1)


def test_a_batch_outside_the_advertisement_is_refused_whole() -> None:
    harness = PubendHarness(advertisement="a > 10")
    with pytest.raises(PublishRefusedError, match="a > 10"):
        harness.publish(harness.open(), 1, 11, 9)
    assert harness.sent == []


def test_unused_publishers_are_forgotten() -> None:
    # I14: the state of former clients must not grow for ever
    harness = PubendHarness(clock=microseconds(s=1_000))
    session = harness.open()
    for _ in range(80):
        harness.context.now += microseconds(s=1)
        harness.context.clock += microseconds(s=1)
        harness.context.run_timers()
    with pytest.raises(PublishRefusedError, match="not open"):
        harness.publish(session, 1, 1)


def test_a_best_effort_pubend_has_no_log_to_read() -> None:
    found: list[tuple[list[KnowledgeRange], Tick]] = []
    PubendHarness().pubend.ranges_between(5, 10, lambda ranges, done: found.append((ranges, done)))
    assert found == [([], 4)]


# --- in the overlay ---------------------------------------------------------------------------


def fed(names: str = "pan") -> Line:
    line = Line(names)
    line.best_effort.add(STOCKS)
    line.attach()
    line.run(ms=20)
    return line


def test_routers_forward_events_and_no_silence() -> None:
    line = fed()
    line.publish(knowledge_range(100, 110, event(105, 1), stream_epoch=5))
    line.run(ms=500)
    assert line.ticks() == [105]
    assert not any(isinstance(message, StreamSilence) for _, _, message in line.sent)


def test_no_stream_data_is_sent_without_matching_events() -> None:
    line = fed()
    line.nodes["n"].wanted = lambda each: each.attributes["a"] == 1
    line.publish(knowledge_range(100, 100, event(100, 0), stream_epoch=5))
    line.publish(knowledge_range(101, 102, event(101, 0), event(102, 1), stream_epoch=5))
    line.run(ms=500)
    assert line.count(StreamData, "n", "r") == 1
    assert line.ticks() == [102]


def test_tables_are_chosen_without_a_vector() -> None:
    # R33: there is no V^m, a router filters by the tables it has
    line = fed()
    line.publish(knowledge_range(100, 100, event(100, 1), stream_epoch=5))
    line.run(ms=10)
    for node in line.nodes.values():
        assert node.vectors == []


def test_no_stream_epoch_is_sent_or_requested() -> None:
    line = fed()
    line.publish(knowledge_range(100, 100, event(100, 1), stream_epoch=5))
    line.send("r", StreamEpochRequest(STOCKS, 5))
    line.run(ms=100)
    assert not any(isinstance(m, StreamEpoch) for _, _, m in line.sent)
    assert [(s, t) for s, t, m in line.sent if isinstance(m, StreamEpochRequest)] == [("r", "n")]


def test_nacks_are_ignored_and_nothing_is_cached() -> None:
    # A26: a lost tick stays lost; nacks for it would never end
    line = fed()
    line.publish(knowledge_range(100, 100, event(100, 1), stream_epoch=5))
    line.run(ms=10)
    line.send("r", Nack(STOCKS, (TickRange(1, 200),)))
    line.run(ms=100)
    assert line.ticks() == [100]
    assert [(s, t) for s, t, m in line.sent if isinstance(m, Nack)] == [("r", "n")]
    assert line.log.reads == 0
    for node in line.nodes.values():
        assert node.router._account.bytes == 0


def test_an_event_from_a_former_and_a_new_feeder_is_forwarded_once() -> None:
    line = fed("pn")
    for each in (
        knowledge_range(100, 100, event(100, 1), stream_epoch=5),
        knowledge_range(100, 101, event(100, 1), event(101, 1), stream_epoch=5),
        knowledge_range(100, 101, event(100, 1), event(101, 1), stream_epoch=5),
    ):
        line.nodes["n"].router.receive(STOCKS, 2, each, first=True)
    line.run(ms=10)
    assert line.ticks() == [100, 101]


def test_a_greater_incarnation_may_have_lower_ticks_and_an_older_one_is_ignored() -> None:
    line = fed("pn")
    for each in (
        knowledge_range(100, 100, event(100, 1), stream_epoch=5),
        knowledge_range(40, 40, event(40, 1), stream_epoch=6),
        knowledge_range(101, 101, event(101, 1), stream_epoch=5),
        knowledge_range(41, 41, event(41, 1), stream_epoch=6),
    ):
        line.nodes["n"].router.receive(STOCKS, 2, each, first=True)
    line.run(ms=10)
    assert line.ticks() == [100, 40, 41]


def test_an_idle_stream_does_not_look_like_a_dead_feed() -> None:
    # R9: there is no silence, so replies to refreshed attachments show that the feed is alive
    line = fed()
    for _ in range(10):
        line.attach()
        line.run(ms=1_500)
    assert line.count(Detach, "n", "a") == 0
    assert "feeder was silent" not in line.nodes["n"].context.coverage_marks
