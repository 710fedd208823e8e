"""Operators' seeks among crashes, lost connections and acknowledgements, at random.

A client stores its own position and the count of the seeks before it, as an exactly-once client
does. Since the last seek it receives every event after the target of the seek, once and in order.
Every run depends only on its seed.
"""

from __future__ import annotations

from random import Random

import pytest

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Ack,
    Delivery,
    Gap,
    Order,
    Refused,
    StartKind,
    StartPoint,
    Subscribe,
    Subscribed,
    SubscriptionEnded,
    SubscriptionStarted,
)
from gapless.messages.operating import DurableSeekDone, SeekDurable
from tests.broker.harness import BrokerHarness, P, Q, Requester
from tests.scenarios.brokers import Client, Publisher

STEPS = 60


class ExactlyOnceClient(Client):
    """A client that resumes by position and never accepts a duplicate."""

    def __init__(self, world: BrokerHarness, order: Order) -> None:
        self.order = order
        self.seek_count = 0
        self.started_after: dict[PubendId, Tick] = {}
        """By pubend the tick after which it started, or to which it was moved."""
        self.seen: dict[PubendId, list[Tick]] = {P: [], Q: []}
        """Events received since then."""
        self.is_connected = False
        super().__init__(world, "n", "x")
        self.subscribe()

    def subscribe(self) -> None:
        """Subscribe, with its own position if it has one."""
        self.is_connected = True
        positions = tuple((pubend, self.position(pubend)) for pubend in self.started_after)
        start = StartPoint(StartKind.POSITION, positions) if positions else StartPoint()
        call = (self.number(), "x", "TRUE", True, start, self.order, 1_000_000)
        self.request(Subscribe(*call, seek_count=self.seek_count))

    def position(self, pubend: PubendId) -> Tick:
        """Return the tick up to which it has all events."""
        return self.seen[pubend][-1] if self.seen[pubend] else self.started_after[pubend]

    def take_notice(self, notice: object) -> None:
        """Take a notice, and check that no event comes twice or out of order."""
        super().take_notice(notice)
        if isinstance(notice, Subscribed):
            if notice.seek_count != self.seek_count:
                # earlier events are discarded; notices give the tick at which each stream continues
                self.seek_count, self.started_after, self.seen = (
                    notice.seek_count,
                    {},
                    {P: [], Q: []},
                )
            for pubend, tick in notice.position:
                self.started_after.setdefault(pubend, tick)
        elif isinstance(notice, SubscriptionStarted):
            self.started_after.setdefault(notice.pubend, notice.after)
        elif isinstance(notice, Delivery):
            for pubend, publication in notice.events:
                assert publication.tick > self.position(pubend), "twice, or out of order"
                self.seen[pubend].append(publication.tick)
        elif isinstance(notice, SubscriptionEnded):
            self.is_connected = False
        assert not isinstance(notice, Gap), "nothing was released"

    def acknowledge_some(self, random: Random) -> None:
        """Acknowledge some of the received events."""
        for pubend, ticks in self.seen.items():
            if ticks and self.is_connected:
                self.request(Ack("x", ((pubend, random.choice(ticks)),)))


class ScenarioRecorder:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.count = 0
        self.moved: dict[PubendId, Tick] | None = None
        """The target of the last seek, if it was answered."""
        self.world = BrokerHarness("p-n", retention_s=3_600)
        self.publishers = {
            P: self.world.publisher("p"),
            Q: self.world.publisher("n", "Q"),
        }
        self.world.run(s=1)
        self.client = ExactlyOnceClient(self.world, random.choice([*Order]))
        self.operator = Requester(self.world, "n", "operator")
        self.world.run(s=1)

    def step(self) -> None:
        """Do one random action."""
        deeds = {
            self.publish: 8,
            self.acknowledge: 3,
            self.leave: 2,
            self.come: 3,
            self.seek: 2,
            self.crash: 1,
        }
        (deed,) = self.random.choices([*deeds], [*deeds.values()])
        deed()
        self.world.run(ms=self.random.choice([0, 1, 3, 40, 700]))

    def publish(self) -> None:
        publisher: Publisher = self.random.choice([*self.publishers.values()])
        self.count += 1
        publisher.send_event(f"e{self.count}")

    def acknowledge(self) -> None:
        self.client.acknowledge_some(self.random)

    def leave(self) -> None:
        if self.client.is_connected:
            self.client.leave()
            self.client.is_connected = False

    def come(self) -> None:
        if not self.client.is_connected:
            self.client.connect()
            self.client.subscribe()

    def crash(self) -> None:
        self.world.restart("n")
        self.operator.connect()
        self.client.is_connected = False
        self.publishers[Q].connect()
        self.publishers[Q].open()

    def seek(self) -> None:
        known = [tick for each in self.publishers.values() for tick in each.ticks.values()]
        starts = [StartPoint(StartKind.EARLIEST), StartPoint()]
        starts += [StartPoint(StartKind.TIME, clock=tick) for tick in known[-20:]]
        starts += [
            StartPoint(StartKind.POSITION, ((pubend, tick),))
            for pubend, each in self.publishers.items()
            for tick in [*each.ticks.values()][-10:]
            if pubend in self.world.subscription("n", "x").cursors
        ]
        call = SeekDurable(self.operator.number(), "x", self.random.choice(starts), force=True)
        self.moved = None
        if self.random.random() < 0.3:
            self.operator.request(call)  # without waiting for the answer
        else:
            answer = self.operator.call(call, s=5)
            # after a restart one stream may be a little ahead of the other
            is_ahead = isinstance(answer, Refused) and "is in the future" in answer.reason
            assert is_ahead or isinstance(answer, DurableSeekDone), answer
            if isinstance(answer, DurableSeekDone):
                self.moved = dict(answer.position)

    def end(self) -> None:
        """Let all pending events be delivered, and check them."""
        self.leave()
        self.world.run(s=2)
        self.come()
        self.world.run(s=15)
        for pubend, publisher in self.publishers.items():
            started_after = self.client.started_after[pubend]
            if self.moved is not None and pubend in self.moved:
                assert started_after == self.moved[pubend], f"the seek on {pubend} was undone"
            rows = self.world.nodes[publisher.broker].disk.logs.get(publisher.pubend, [])
            logged = [each.tick for row in rows for each in row.publications]
            expected = [tick for tick in logged if tick > started_after]
            assert self.client.seen[pubend] == expected, f"of {pubend} after {started_after}"


@pytest.mark.parametrize("seed", range(25))
def test_all_events_after_the_last_seek_are_delivered_once_and_in_order(seed: int) -> None:
    scenario = ScenarioRecorder(seed)
    for _ in range(STEPS):
        scenario.step()
    scenario.end()
