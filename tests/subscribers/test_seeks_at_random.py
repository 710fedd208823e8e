"""Operators' seeks among crashes, lost connections and acknowledgements, at random.

A client keeps its own position and says from after which seek it is, as an exactly-once client does.
Whatever happens, it sees since the last seek every event after the place it was moved to, once, in
order. Nothing is random but the seed of a test.
"""

from __future__ import annotations

from random import Random

import pytest

from gapless.core.ids import PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Ack,
    Begin,
    BeginKind,
    Delivery,
    Ended,
    Gap,
    Order,
    Refused,
    Started,
    Subscribe,
    Subscribed,
)
from gapless.messages.operating import DurableSought, SeekDurable
from tests.broker.harness import Asker, Desk, P, Q
from tests.scenarios.brokers import Client, Publisher

STEPS = 60


class Exact(Client):
    """A client that resumes by position, and would take nothing twice."""

    def __init__(self, world: Desk, order: Order) -> None:
        self.order = order
        self.seeks = 0
        self.base: dict[PubendId, Tick] = {}
        """After which tick of each pubend it began, or was moved to."""
        self.seen: dict[PubendId, list[Tick]] = {P: [], Q: []}
        """What came since."""
        self.is_here = False
        super().__init__(world, "n", "x")
        self.subscribe()

    def subscribe(self) -> None:
        """Subscribe, with its own position if it has one."""
        self.is_here = True
        places = tuple((pubend, self.place(pubend)) for pubend in self.base)
        begin = Begin(BeginKind.POSITION, places) if places else Begin()
        call = (self.number(), "x", "TRUE", True, begin, self.order, 1_000_000)
        self.ask(Subscribe(*call, seeks=self.seeks))

    def place(self, pubend: PubendId) -> Tick:
        """Return up to where it has everything."""
        return self.seen[pubend][-1] if self.seen[pubend] else self.base[pubend]

    def hear(self, notice: object) -> None:
        """Take what comes, and see that nothing comes twice or out of order."""
        super().hear(notice)
        if isinstance(notice, Subscribed):
            if notice.seeks != self.seeks:
                # what it had is from before; it is told where each stream goes on, now or later
                self.seeks, self.base, self.seen = notice.seeks, {}, {P: [], Q: []}
            for pubend, tick in notice.position:
                self.base.setdefault(pubend, tick)
        elif isinstance(notice, Started):
            self.base.setdefault(notice.pubend, notice.after)
        elif isinstance(notice, Delivery):
            for pubend, publication in notice.events:
                assert publication.tick > self.place(pubend), "twice, or out of order"
                self.seen[pubend].append(publication.tick)
        elif isinstance(notice, Ended):
            self.is_here = False
        assert not isinstance(notice, Gap), "nothing was released"

    def say_done(self, random: Random) -> None:
        """Acknowledge some of what came."""
        for pubend, ticks in self.seen.items():
            if ticks and self.is_here:
                self.ask(Ack("x", ((pubend, random.choice(ticks)),)))


class Story:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.count = 0
        self.moved: dict[PubendId, Tick] | None = None
        """Where the last seek moved it, if that was answered."""
        self.world = Desk("p-n", retention_s=3_600)
        self.publishers = {
            P: self.world.publisher("p"),
            Q: self.world.publisher("n", "Q"),
        }
        self.world.run(s=1)
        self.client = Exact(self.world, random.choice([*Order]))
        self.operator = Asker(self.world, "n", "operator")
        self.world.run(s=1)

    def step(self) -> None:
        """Let something happen."""
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
        publisher.say(f"e{self.count}")

    def acknowledge(self) -> None:
        self.client.say_done(self.random)

    def leave(self) -> None:
        if self.client.is_here:
            self.client.leave()
            self.client.is_here = False

    def come(self) -> None:
        if not self.client.is_here:
            self.client.connect()
            self.client.subscribe()

    def crash(self) -> None:
        self.world.restart("n")
        self.operator.connect()
        self.client.is_here = False
        self.publishers[Q].connect()
        self.publishers[Q].open()

    def seek(self) -> None:
        known = [tick for each in self.publishers.values() for tick in each.ticks.values()]
        begins = [Begin(BeginKind.EARLIEST), Begin()]
        begins += [Begin(BeginKind.TIME, clock=tick) for tick in known[-20:]]
        begins += [
            Begin(BeginKind.POSITION, ((pubend, tick),))
            for pubend, each in self.publishers.items()
            for tick in [*each.ticks.values()][-10:]
            if pubend in self.world.subscription("n", "x").strands
        ]
        call = SeekDurable(self.operator.number(), "x", self.random.choice(begins), force=True)
        self.moved = None
        if self.random.random() < 0.3:
            self.operator.ask(call)  # and does not wait for what becomes of it
        else:
            answer = self.operator.call(call, s=5)
            # after a restart one stream may be a little ahead of the other
            is_ahead = isinstance(answer, Refused) and "is in the future" in answer.reason
            assert is_ahead or isinstance(answer, DurableSought), answer
            if isinstance(answer, DurableSought):
                self.moved = dict(answer.position)

    def end(self) -> None:
        """Let everything that is owed come, and see that it has."""
        self.leave()
        self.world.run(s=2)
        self.come()
        self.world.run(s=15)
        for pubend, publisher in self.publishers.items():
            base = self.client.base[pubend]
            if self.moved is not None and pubend in self.moved:
                assert base == self.moved[pubend], f"the seek on {pubend} was undone"
            rows = self.world.nodes[publisher.broker].disk.logs.get(publisher.pubend, [])
            logged = [each.tick for row in rows for each in row.publications]
            owed = [tick for tick in logged if tick > base]
            assert self.client.seen[pubend] == owed, f"of {pubend} after {base}"


@pytest.mark.parametrize("seed", range(25))
def test_since_the_last_seek_everything_comes_once_and_in_order(seed: int) -> None:
    story = Story(seed)
    for _ in range(STEPS):
        story.step()
    story.end()
