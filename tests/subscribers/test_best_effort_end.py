"""The end of a best-effort stream: order and no duplicates, no delivery guarantee (R33)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gapless.core.context import Context, Identity, nothing
from gapless.core.ids import PubendId
from gapless.core.parameters import DEFAULTS, Parameters
from gapless.feeds.feed import Candidate
from gapless.messages.overlay import PathEpochs, Quality
from gapless.messages.streams import (
    AckReport,
    Attach,
    Attached,
    BestEffortPosition,
    Detach,
    FeedUnavailable,
    FeedUnavailableReason,
    KnowledgeRange,
    Nack,
    Publication,
    StreamData,
)
from gapless.subscribers.best_effort_end import BestEffortSubend
from tests.broker.harness import BrokerHarness, P, Requester, position
from tests.scenarios.brokers import Publisher, of


def knowledge(incarnation: int, *ticks: int) -> KnowledgeRange:
    events = tuple(Publication(tick, "ann", tick, {}, b"") for tick in ticks)
    return KnowledgeRange(ticks[0], ticks[-1], incarnation, 0, events)


class Owner:
    """Records what the end delivers, and offers one router as feeder."""

    def __init__(self, parameters: Parameters = DEFAULTS) -> None:
        self.ticks: list[int] = []
        self.most = 1_000
        """How many events are matched in one step."""
        self.continues: Callable[[], None] = nothing
        self.context = Context(Identity("n", "n", 1), parameters)
        self.end = BestEffortSubend(self.context, P, self, self)

    def attach(self, at: BestEffortPosition | None = None) -> Attach:
        """Let the router answer the last Attach; return it."""
        attach = self.context.take_messages_to("r")[-1]
        assert isinstance(attach, Attach)
        self.end.take_attached("r", Attached(P, attach.number, 0, relayed=False, at=at))
        self.number = attach.number
        return attach

    def is_sealed(self, pubend: PubendId) -> bool:
        """Return False: no pubend is closed here."""
        del pubend
        return False

    def leaf_candidates(self, pubend: PubendId) -> list[Candidate]:
        assert pubend == P
        return [Candidate("r", 0)]

    def candidates(self, pubend: PubendId) -> list[Candidate]:
        raise NotImplementedError(f"no router is fed with {pubend}")

    def path_epochs(self, feeder: str) -> PathEpochs:
        raise NotImplementedError(f"a leaf has no shapes for {feeder}")

    def count_matched(self, publications: tuple[Publication, ...], then: Callable[[], None]) -> int:
        self.continues = then
        return min(self.most, len(publications))

    def deliver_best_effort(self, pubend: PubendId, publications: tuple[Publication, ...]) -> None:
        assert pubend == P
        self.ticks += [each.tick for each in publications]


def test_events_beyond_the_work_of_a_step_are_delivered_later_and_in_order() -> None:
    owner = Owner()
    owner.attach()
    owner.most = 2
    owner.end.receive(owner.number, knowledge(1, 3, 5, 7))
    owner.most = 0
    owner.end.receive(owner.number, knowledge(1, 9))
    assert owner.ticks == [3, 5]
    owner.most = 1_000
    owner.continues()
    assert owner.ticks == [3, 5, 7, 9]
    owner.continues()
    assert owner.ticks == [3, 5, 7, 9]


def test_events_that_wait_are_dropped_beyond_the_bytes_of_a_cache() -> None:
    parameters = msgspec.structs.replace(DEFAULTS, cache_bytes=100)
    owner = Owner(parameters)
    owner.attach()
    owner.most = 0
    owner.end.receive(owner.number, knowledge(1, 3, 5))
    for tick in range(7, 100):
        owner.end.receive(owner.number, knowledge(1, tick))
    owner.most = 1_000
    owner.continues()
    assert 3 < len(owner.ticks) < 30
    assert owner.context.coverage_marks["best effort dropped"]
    owner.end.receive(owner.number, knowledge(1, 200))
    assert owner.ticks[-1] == 200


def test_events_are_delivered_at_once_and_without_duplicates() -> None:
    owner = Owner()
    owner.attach()
    owner.end.receive(owner.number, knowledge(1, 3, 5))
    owner.end.receive(owner.number, knowledge(1, 3, 5))
    owner.end.receive(owner.number, knowledge(1, 4))
    owner.end.receive(owner.number, knowledge(1, 5, 9))
    assert owner.ticks == [3, 5, 9]


def test_a_new_incarnation_of_the_phb_starts_the_stream_again_and_an_older_one_is_ignored() -> None:
    owner = Owner()
    owner.attach()
    owner.end.receive(owner.number, knowledge(1, 8))
    owner.end.receive(owner.number, knowledge(2, 4))
    owner.end.receive(owner.number, knowledge(1, 9))
    owner.end.receive(owner.number, knowledge(2, 4, 6))
    assert owner.ticks == [8, 4, 6]


def test_an_end_attaches_again_above_the_position_up_to_which_it_has_everything() -> None:
    owner = Owner()
    assert owner.attach(BestEffortPosition(1, 4)).after is None, "it gets what comes from now on"
    owner.end.session_closed("r")
    assert owner.attach(BestEffortPosition(1, 4)).after == BestEffortPosition(1, 4)
    owner.end.receive(owner.number, knowledge(1, 5, 9))
    owner.end.session_closed("r")
    owner.end.receive(owner.number, knowledge(1, 12))
    assert owner.attach(BestEffortPosition(1, 9)).after == BestEffortPosition(1, 9)
    owner.end.receive(owner.number - 2, knowledge(1, 12))
    owner.end.receive(owner.number, knowledge(1, 11, 12))
    assert owner.ticks == [5, 9, 11, 12], "what the former attachment got comes again, in order"


def test_a_best_effort_end_attaches_to_a_feeder_and_sends_no_nack() -> None:
    owner = Owner()
    (attach,) = owner.context.take_messages_to("r")
    assert isinstance(attach, Attach)
    owner.end.take_attached("r", Attached(P, attach.number, 50, relayed=False))
    owner.end.take_attached("r", Attached(P, attach.number, 90, relayed=False))
    assert owner.context.take_messages_to("r") == []
    owner.end.take_feed_unavailable(
        "r", FeedUnavailable(P, attach.number, FeedUnavailableReason.NO_FEED)
    )
    (again,) = owner.context.take_messages_to("r")
    assert isinstance(again, Attach)
    owner.end.session_closed("r")
    owner.end.retry_feed()
    owner.context.take_messages()
    owner.end.close()
    assert [type(each) for each in owner.context.take_messages_to("r")] in ([], [Detach])


def stage(**parameters: Any) -> tuple[BrokerHarness, Publisher]:
    world = BrokerHarness("p-a-n", **parameters)
    return world, world.publisher("p", quality=Quality.BEST_EFFORT)


def test_best_effort_events_are_delivered_in_order_without_members_and_acknowledgements() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "number < 3")
    world.run(s=1)
    for number in range(5):
        ann.publish(f"e{number}", number=number)
    world.run(ms=100)
    assert x.events == ["e0", "e1", "e2"]
    assert world.member("p", P, "n") is None
    assert world.sent_over(AckReport, "n", "a") == []


def test_a_lost_best_effort_event_is_not_requested_again_and_later_ones_are_delivered() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    lost = world.lose(of(StreamData, source="a", target="n"))
    ann.publish("e1")
    world.run(ms=50)
    lost.end()
    ann.publish("e2")
    world.run(s=1)
    assert x.events == ["e2"]
    assert x.gaps == []
    assert world.sent_over(Nack, "n", "a") == []


def test_a_best_effort_event_received_twice_is_delivered_once() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    world.repeat(of(StreamData))
    ann.publish("e1")
    ann.publish("e2")
    world.run(ms=100)
    assert x.events == ["e1", "e2"]


def test_a_subscription_that_matches_only_best_effort_pubends_is_answered_at_once() -> None:
    world, _ = stage()
    x = Requester(world, "n", "x")
    answer = x.subscribe()
    assert position(answer) == {}
    assert answer.pending == ()


def test_best_effort_events_wait_for_credit_and_beyond_the_limit_they_are_dropped() -> None:
    # P7: prefetch_max
    world, ann = stage(prefetch_max=3)
    x = world.subscriber("n", "x", "TRUE", credit=1)
    world.run(s=1)
    for number in range(7):
        ann.publish(f"e{number}")
    world.run(ms=100)
    assert x.events == ["e0"]
    assert world["n"].coverage_marks["best effort dropped"] == 3
    assert world.disconnected == {}
    x.give_credit(10)
    world.run(ms=10)
    assert x.events == ["e0", "e1", "e2", "e3"]


def test_a_disconnected_client_does_not_receive_best_effort_events_later() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    x.leave()
    ann.publish("e1")
    world.run(ms=100)
    x.come_back()
    world.run(s=1)
    ann.publish("e2")
    world.run(ms=100)
    assert x.events == ["e2"]


def test_a_new_filter_applies_to_best_effort_events_at_once() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "kind = 1")
    world.run(s=1)
    change = x.set_filter("kind = 2")
    world.run(s=1)
    assert x.filter_changed(change) == {}
    ann.publish("e1", kind=1)
    ann.publish("e2", kind=2)
    world.run(ms=100)
    assert x.events == ["e2"]


def test_a_best_effort_stream_without_subscriptions_is_closed() -> None:
    world, ann = stage(interest_grace_s=4)
    x = world.subscriber("n", "x", "TRUE")
    y = world.subscriber("n", "y", "TRUE")
    world.run(s=1)
    x.end()
    world.run(s=2)
    assert world["n"].components.subends.best_effort.keys() == {P}
    since = world.now
    y.end()
    world.run(s=2)
    assert world["n"].components.subends.best_effort == {}
    world.run(s=5)  # a feed is not ended at once
    assert world.sent_over(Detach, "n", "a", since)
    ann.publish("e1")
    world.run(ms=100)
    assert world.sent_over(StreamData, "p", "a", since) == []


def test_a_best_effort_stream_continues_when_the_link_to_it_is_restored() -> None:
    world, ann = stage()
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    world.cut("a", "n")
    ann.publish("e1")
    world.run(s=3)
    world.heal("a", "n")
    world.run(s=1)
    ann.publish("e2")
    world.run(ms=100)
    assert x.events == ["e1", "e2"], "e1 was still in the replay buffer"


def test_best_effort_events_are_lost_that_are_older_than_the_replay_buffer() -> None:
    world, ann = stage(replay_buffer_ms=2_000)
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    world.cut("a", "n")
    ann.publish("e1")
    world.run(s=5)
    world.heal("a", "n")
    world.run(s=1)
    ann.publish("e2")
    world.run(ms=100)
    assert x.events == ["e2"]
    assert world["p"].coverage_marks["best-effort events may be lost"] > 0
