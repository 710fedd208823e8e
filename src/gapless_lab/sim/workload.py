"""The operations of clients in a run: publish, subscribe, change filters, disconnect and reconnect.

Attributes have few values, so that filters overlap, cover and repeat each other. Some operations
aim at cases that random choice rarely produces: a filter dropped and added again within one batch
of changes, a filter change during a crash inside a sync, a pubend opened right after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from gapless.content.values import Value
from gapless.messages.clients import Order, StartKind, StartPoint
from gapless.messages.closing import CloseMode
from gapless.messages.overlay import Quality
from gapless.messages.streams import ReadForm
from gapless_lab.sim.closers import SimulatedCloser
from gapless_lab.sim.generators import draw_advertisement, draw_event, draw_filter
from gapless_lab.sim.publishers import PubendPlan, SimulatedPublisher
from gapless_lab.sim.readers import SimulatedReader
from gapless_lab.sim.staging import SimulatedStagedWriter
from gapless_lab.sim.subscribers import LATEST, SimulatedSubscriber

if TYPE_CHECKING:
    from gapless_lab.sim.oracle import Oracle
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["Workload"]

SUBSCRIBERS_MAX = 24
"""The maximum number of live subscriptions; one ends before a new one starts."""


CLOSERS_MAX = 12
"""The maximum number of pubends that are closed in a run."""

CLOSE_MODES = (CloseMode.DRAIN, CloseMode.DISCARD_HISTORY, CloseMode.DISCARD_HISTORY, CloseMode.NOW)
"""The modes of closings, the usual ones twice."""

READ_BYTES = (0, 1, 300, 2**62)
"""The byte limits of reads, in turn: the broker's default, too small for one event, small, more
than a broker sends.
"""


class Workload:
    """All clients of a run."""

    def __init__(self, world: World, oracle: Oracle) -> None:
        self.world = world
        self.oracle = oracle
        self.options = world.options
        self.random = world.stream("workload")
        self.publishers: list[SimulatedPublisher] = []
        self.subscribers: list[SimulatedSubscriber] = []
        self.readers: list[SimulatedReader] = []
        self.closers: list[SimulatedCloser] = []
        self.operations = 0
        self.over = False
        self.aim: Callable[[SimulatedHost], None] = lambda _: None
        """Arms a crash of a host inside its next sync, if the options have that fault."""
        self.bounce: Callable[[SimulatedHost], None] = lambda _: None
        """Crashes a host now and restarts it, if the options have that fault."""
        self._made = 0
        hosts = list(world.hosts.values())
        self.plans = [self._plan(number, hosts) for number in range(self.options.pubends)]
        for number in range(self.options.publishers):
            plan = self.plans[number % len(self.plans)]
            publisher = SimulatedPublisher(world, oracle, f"p{number}", plan)
            draws = world.stream("rival", publisher.name)
            if draws.random() < self.options.conflicting_names:
                publisher.host = draws.choice(hosts)
            self.publishers.append(publisher)
        lasting = [plan for plan in self.plans if plan.quality is Quality.GUARANTEED]
        staged_writers = self.options.staged_writers if lasting else 0
        self.staged_writers = [
            self._staged_writer(number, lasting) for number in range(staged_writers)
        ]

    def _staged_writer(self, number: int, plans: list[PubendPlan]) -> SimulatedStagedWriter:
        """Create a writer that stages, with its own random numbers: other draws do not change."""
        plan = self.world.stream("stager", str(number)).choice(plans)
        writer = SimulatedStagedWriter(self.world, self.oracle, f"w{number}", plan)
        writer.workload = self
        return writer

    def _plan(self, number: int, hosts: list[SimulatedHost]) -> PubendPlan:
        random = self.random
        best_effort = random.random() < self.options.best_effort
        quality = Quality.BEST_EFFORT if best_effort else Quality.GUARANTEED
        text = draw_advertisement(random, self.options.domain)
        return PubendPlan(f"P{number}", random.choice(hosts), text, quality)

    # --- the course of a run -----------------------------------------------------------------

    def start(self) -> None:
        """Schedule the first clients and the operations."""
        span = self.options.safety_ms * 1_000
        for publisher in self.publishers:
            late = self.random.random() < self.options.late_pubends
            share = self.random.uniform(0.3, 0.8) if late else 0.05 * self.random.random()
            connect = partial(self._open_late, publisher) if late else publisher.connect
            if self.options.conflicting_names:  # all publishers of a pubend at once
                share = self.world.stream("rivals", publisher.plan.name).uniform(0.0, 0.6)
            self.world.after(int(span * share), connect)
        for _ in range(self.options.subscribers):
            self.world.after(int(span * 0.3 * self.random.random()), self._subscribe)
        self._repeat(self.options.publish_rate, "_publish", self._publish)
        self._repeat(self.options.churn_rate, "_churn", self._churn)
        self._repeat(self.options.ends_by_name, "_end_by_name", self._end_by_name)
        self._repeat(self.options.leave_rate, "_leave", self._leave)
        self._repeat(self.options.reads, "_read", self._read)
        self._repeat(self.options.widen_rate, "_widen", self._widen)
        self._repeat(self.options.repeat_rate, "_publish_again", self._publish_again)
        for writer in self.staged_writers:
            self.world.after(int(span * 0.1 * writer.random.random()), writer.connect)
        self._repeat(self.options.stage_rate, "_stage", self._stage)
        self._repeat(self.options.close_rate, "_close", self._close)

    def _open_late(self, publisher: SimulatedPublisher) -> None:
        """Open a pubend while a broker that may have to learn of it restarts."""
        if self.random.random() < 0.5:
            self.bounce(self.random.choice(list(self.world.hosts.values())))
        self.world.after(self.random.randrange(100_000), publisher.connect)

    def stop(self) -> None:
        """Start nothing new; clients continue, also those that have not connected yet."""
        self.over = True
        for client in (*self.publishers, *self.staged_writers):
            client.connect()
        for closer in self.closers:
            closer.hurry()
        for subscriber in self.subscribers:
            if subscriber.slow:
                subscriber.slow = False
                subscriber.give_credit()

    def finals(self) -> None:
        """Let every publisher in the core publish once more."""
        for publisher in self.publishers:
            if publisher.host in self.world.core:
                publisher.publish(self._events(publisher.plan, self.random))
        for writer in self.staged_writers:
            if writer.host in self.world.core:
                writer.write()

    def _repeat(self, rate: float, name: str, operation: Callable[[Random], None]) -> None:
        """Repeat an operation at random times.

        The name seeds the times and choices of the operation, so it never changes.
        """
        if rate <= 0:
            return
        random = self.world.stream("operations", name)

        def again() -> None:
            if self.over or self.operations >= self.options.operations_max:
                return
            self.operations += 1
            operation(random)
            self.world.after(int(random.expovariate(rate) * 1_000_000), again)

        self.world.after(int(random.expovariate(rate) * 1_000_000), again)

    # --- publishing --------------------------------------------------------------------------

    def _publish(self, random: Random) -> None:
        publisher = random.choice(self.publishers)
        if len(publisher.pending) < 20:
            publisher.publish(self._events(publisher.plan, random))

    def _events(
        self, plan: PubendPlan, random: Random
    ) -> tuple[tuple[dict[str, Value], bytes], ...]:
        advertised = self.oracle.filter(plan.advertisement)
        events: list[tuple[dict[str, Value], bytes]] = []
        wanted = random.randint(1, self.options.batch_max)
        outside = random.random() < self.options.outside
        while len(events) < wanted:
            event = draw_event(random, self.options.domain)
            if outside or advertised.matches(event):
                events.append((event, b"%d" % random.randrange(1_000)))
        return tuple(events)

    def _publish_again(self, random: Random) -> None:
        """Repeat a batch after its reply, as a client does that has lost the reply."""
        random.choice(self.publishers).repeat()

    def _stage(self, random: Random) -> None:
        """Let a writer start a batch, if its last one is complete."""
        if self.staged_writers:
            random.choice(self.staged_writers).write()

    def _widen(self, random: Random) -> None:
        """Widen the advertisement of a pubend, a little or to everything."""
        publisher = random.choice(self.publishers)
        if publisher.plan.quality is Quality.GUARANTEED and publisher.pubend is not None:
            more = draw_filter(random, self.options.domain)
            advertised = self.oracle.filter(publisher.plan.advertisement)
            if not advertised.covers(self.oracle.filter(more)):
                publisher.widen(more)

    # --- closing -----------------------------------------------------------------------------

    def _close(self, random: Random) -> None:
        """Close a pubend from any broker, and open another one."""
        closing = {closer.stream.pubend for closer in self.closers}
        found = [
            publisher
            for publisher in self.publishers
            if publisher.pubend is not None and publisher.pubend not in closing
        ]
        if not found or len(self.closers) >= CLOSERS_MAX:
            return
        publisher = random.choice(found)
        assert publisher.pubend is not None
        closer = SimulatedCloser(
            self.world,
            self.oracle,
            f"c{len(self.closers) + 1}",
            random.choice(list(self.world.hosts.values())),
            stream=self.oracle.streams[publisher.pubend],
            mode=random.choice(CLOSE_MODES),
        )
        self.closers.append(closer)
        if random.random() < 0.3:
            self.aim(publisher.host)
        closer.connect()
        plan = PubendPlan(
            f"P{len(self.plans)}",
            random.choice(list(self.world.hosts.values())),
            draw_advertisement(random, self.options.domain),
            publisher.plan.quality,
        )
        self.plans.append(plan)
        made = SimulatedPublisher(self.world, self.oracle, f"p{len(self.publishers)}", plan)
        self.publishers.append(made)
        made.connect()

    # --- reading -----------------------------------------------------------------------------

    def _read(self, random: Random) -> None:
        """Read a range of a stream: all, a part of the middle, or beyond its end."""
        streams = [stream for stream in self.oracle.streams.values() if stream.guaranteed]
        if not streams:
            return
        stream = random.choice(streams)
        ends = [0, 2**62, *stream.ticks]
        low, high = sorted((random.choice(ends), random.choice(ends)))
        reader = SimulatedReader(
            self.world,
            self.oracle,
            f"r{len(self.readers) + 1}",
            random.choice(list(self.world.hosts.values())),
            stream=stream,
            filter_text=draw_filter(random, self.options.domain),
            low=low,
            high=high,
            bytes_max=READ_BYTES[len(self.readers) % len(READ_BYTES)],
            form=ReadForm(len(self.readers) % len(ReadForm)),
        )
        self.readers.append(reader)
        reader.connect()

    # --- churn -------------------------------------------------------------------------------

    def _churn(self, random: Random) -> None:
        operation = random.choice(
            (
                self._op_subscribe,
                self._op_unsubscribe,
                self._op_set_filter,
                self._op_set_filter,
                self._op_seek,
                self._op_flip,
            )
        )
        operation(random)

    def live(self) -> list[SimulatedSubscriber]:
        """Return the subscribers whose subscription has not ended."""
        return [subscriber for subscriber in self.subscribers if not subscriber.done]

    def _steady(self, random: Random) -> SimulatedSubscriber | None:
        steady = [subscriber for subscriber in self.subscribers if subscriber.steady]
        return random.choice(steady) if steady else None

    def _subscribe(self, host: SimulatedHost | None = None, text: str | None = None) -> None:
        random, options = self.random, self.options
        durable = random.random() < options.durable
        order = Order.TOTAL if random.random() < options.total else Order.PUBLISHER
        start = self._past(random) if random.random() < options.past else LATEST
        self._made += 1
        subscriber = SimulatedSubscriber(
            self.world,
            self.oracle,
            f"s{self._made}",
            host or random.choice(list(self.world.hosts.values())),
            filter_text=text or draw_filter(random, options.domain),
            durable=durable,
            order=order,
            start=start,
            credit=random.randint(1, options.credit_max),
        )
        self.subscribers.append(subscriber)
        subscriber.connect()

    def _past(self, random: Random) -> StartPoint:
        """Draw a start in the past: a time, a position, or the earliest tick."""
        match random.randrange(3):
            case 0:
                return StartPoint(StartKind.EARLIEST)
            case 1:
                back = random.randrange(self.world.now + 1)
                host = random.choice(list(self.world.hosts.values()))
                return StartPoint(StartKind.TIME, clock=self.world.clock(host) - back)
            case _:
                position = tuple(
                    (pubend, random.choice(stream.ticks) - random.randrange(2))
                    for pubend, stream in self.oracle.streams.items()
                    if stream.ticks and stream.guaranteed
                )
                return StartPoint(StartKind.POSITION, position) if position else LATEST

    def _op_subscribe(self, random: Random) -> None:
        if len(self.live()) >= SUBSCRIBERS_MAX:
            self._op_unsubscribe(random)
        self._subscribe()

    def _op_unsubscribe(self, random: Random) -> None:
        subscriber = self._steady(random)
        if subscriber is not None and len(self.live()) > 1:
            subscriber.unsubscribe()

    def _end_by_name(self, random: Random) -> None:
        """End a durable subscription as a program does that knows only its name; start another."""
        subscriber = self._steady(random)
        if subscriber is not None and subscriber.durable:
            subscriber.unsubscribe(by_name=True)
            self._subscribe()

    def _leave(self, random: Random) -> None:
        """Let a client leave its durable subscription, and return soon or after a failure's time."""
        durable = [each for each in self.subscribers if each.steady and each.durable]
        if durable:
            soon = random.random() < 0.5
            away_us = random.randrange(1, 5_000) if soon else self.options.down_us(random)
            random.choice(durable).leave_subscription(away_us)

    def _op_set_filter(self, random: Random) -> None:
        subscriber = self._steady(random)
        if subscriber is None:
            return
        if random.random() < 0.3:
            self.aim(subscriber.host)
        subscriber.set_filter(draw_filter(random, self.options.domain))

    def _op_flip(self, random: Random) -> None:
        """End a subscription and start one with the same filter at once, at the same broker."""
        subscriber = self._steady(random)
        if subscriber is not None:
            subscriber.unsubscribe()
            self._subscribe(subscriber.host, subscriber.checker.filter)

    def _op_seek(self, random: Random) -> None:
        """Seek; never back over a filter change, because the old filter is no longer kept."""
        subscriber = self._steady(random)
        if subscriber is None:
            return
        checker = subscriber.checker
        if not checker.durable and random.random() < 0.3:
            subscriber.seek(LATEST)
            return
        position = []
        for pubend, view in checker.views.items():
            low = max(view.base, view.blurred, checker.acked.get(pubend, 0))
            low = max((low, *(end for end, _ in view.segments)))
            ticks = [tick for tick in view.seen if low <= tick]
            if ticks and view.stream.guaranteed and view.stream.sealed is None:
                position.append((pubend, random.choice(ticks)))
        if position:
            subscriber.seek(StartPoint(StartKind.POSITION, tuple(position)))
