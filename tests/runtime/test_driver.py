"""The driver: one event after the other, and a timer that is neither early nor forgotten."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from gapless.core.machine import (
    ClientDown,
    ClientUp,
    Dismiss,
    Effect,
    Event,
    Fetch,
    LinkFull,
    LinkUp,
    Moment,
    Relink,
    Send,
    Tell,
    Write,
    Written,
)
from gapless.runtime.driver import Driver, MachineError
from tests.runtime.nodes import LOOPS, run, until


class Toy:
    """A machine that does what it is told, and notes what happens to it."""

    def __init__(self) -> None:
        self.happened: list[tuple[Event, int]] = []
        self.effects: dict[Event, list[Effect]] = {}
        self.timers: list[int] = []

    def step_all(self, events: Iterable[Event], moment: Moment) -> list[Effect]:
        taken = list(events)
        self.happened += [(event, moment.now) for event in taken]
        self.timers = [due for due in self.timers if due > moment.now]
        return [effect for event in taken for effect in self.effects.get(event, [])]

    def next_timer(self) -> int | None:
        return min(self.timers, default=None)

    @property
    def marks(self) -> Mapping[str, int]:
        return {}


class Hands:
    """Notes what is to be done."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.flushes = 0
        self.syncs = 0
        self.driver: Driver

    def send(self, peer: str, packet: Any) -> None:
        self.done.append(("send", peer, packet))

    def tell(self, client: str, notice: Any) -> None:
        self.done.append(("tell", client, notice))
        if notice == "last words":
            self.driver.happen(ClientDown(client))
            self.done.append(("told", client))

    def dismiss(self, client: str, reason: str) -> None:
        self.done.append(("dismiss", client, reason))

    def relink(self, peers: tuple[str, ...]) -> None:
        self.done.append(("relink", peers))

    def write(self, write: Write) -> None:
        self.done.append(("write", write.ticket))

    def fetch(self, fetch: Fetch) -> None:
        self.done.append(("fetch", fetch.ticket))

    def flush(self) -> None:
        self.flushes += 1

    def sync(self) -> None:
        self.syncs += 1


def driven(toy: Toy, hands: Hands, failures: list[BaseException]) -> Driver:
    hands.driver = Driver(toy, hands, asyncio.get_running_loop(), failures.append)
    return hands.driver


def now() -> int:
    return time.monotonic_ns() // 1_000


def test_every_effect_is_carried_out_in_order() -> None:
    async def scenario() -> None:
        toy, hands = Toy(), Hands()
        toy.effects[None] = [
            Send("b2", "packet"),
            Tell("one", "notice"),
            Write(1, ()),
            Fetch(2, "trades", 1, 2, 3),
            Dismiss("two", "slow"),
            Relink(("b2", "b3")),
        ]
        driven(toy, hands, []).happen(None)
        assert hands.done == [
            ("send", "b2", "packet"),
            ("tell", "one", "notice"),
            ("write", 1),
            ("fetch", 2),
            ("dismiss", "two", "slow"),
            ("relink", ("b2", "b3")),
        ]

    run(scenario())


def test_what_an_effect_causes_happens_behind_the_step_that_caused_it() -> None:
    async def scenario() -> None:
        toy, hands = Toy(), Hands()
        toy.effects[ClientUp("one")] = [Tell("one", "last words"), Send("b2", "after")]
        driven(toy, hands, []).happen(ClientUp("one"))
        assert [event for event, _ in toy.happened] == [ClientUp("one"), ClientDown("one")]
        assert [each[0] for each in hands.done] == ["tell", "told", "send"]

    run(scenario())


def test_what_happens_together_is_one_step() -> None:
    async def scenario() -> None:
        toy, hands = Toy(), Hands()
        toy.effects[ClientUp("one")] = [Tell("one", "hello")]
        toy.effects[ClientUp("two")] = [Tell("two", "hello")]
        driver = driven(toy, hands, [])
        driver.happen_together([ClientUp("one"), ClientUp("two")])
        assert driver.steps == 1
        assert hands.done == [("tell", "one", "hello"), ("tell", "two", "hello")]

    run(scenario())


def test_what_was_gathered_goes_out_once_all_that_happened_is_through() -> None:
    async def scenario() -> None:
        toy, hands = Toy(), Hands()
        toy.effects[ClientUp("one")] = [Tell("one", "last words")]
        driven(toy, hands, []).happen(ClientUp("one"))
        assert len(toy.happened) == 2
        assert hands.flushes == 1
        assert hands.syncs == 1

    run(scenario())


def test_what_happens_when_it_goes_out_is_not_forgotten() -> None:
    class FullHands(Hands):
        def flush(self) -> None:
            super().flush()
            if self.flushes == 1:
                self.driver.happen(LinkFull("b2"))

    async def scenario() -> None:
        toy, hands = Toy(), FullHands()
        driven(toy, hands, []).happen(None)
        assert [event for event, _ in toy.happened] == [None, LinkFull("b2")]

    run(scenario())


def test_what_becomes_durable_at_the_end_of_a_step_happens_next() -> None:
    class QuickHands(Hands):
        def sync(self) -> None:
            super().sync()
            if self.syncs == 1:
                assert self.flushes == 1, "what is ready goes out before the disk is waited for"
                self.driver.happen(Written(1))

    async def scenario() -> None:
        toy, hands = Toy(), QuickHands()
        toy.effects[None] = [Write(1, ())]
        driven(toy, hands, []).happen(None)
        assert [event for event, _ in toy.happened] == [None, Written(1)]
        assert hands.flushes == hands.syncs == 2

    run(scenario())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_timer_is_never_early_and_an_earlier_one_comes_first(loop: str) -> None:
    async def scenario() -> None:
        toy, hands = Toy(), Hands()
        driver = driven(toy, hands, [])
        toy.timers = [now() + 60_000_000]
        driver.happen(None)
        dues = [now() + 20_000, now() + 5_000]
        toy.timers += dues
        driver.happen(None)
        await until(lambda: len(toy.happened) == 4)
        early, late = (at for _, at in toy.happened[2:])
        assert early >= min(dues)
        assert late >= max(dues)
        driver.stop()

    run(scenario(), loop)


def test_nothing_happens_to_a_machine_that_was_stopped() -> None:
    async def scenario() -> None:
        toy, hands = Toy(), Hands()
        driver = driven(toy, hands, [])
        toy.timers = [now() + 1_000]
        driver.happen(None)
        driver.stop()
        driver.happen(LinkUp("b2"))
        await asyncio.sleep(0.01)
        assert len(toy.happened) == 1

    run(scenario())


def test_a_machine_that_breaks_is_stepped_no_more() -> None:
    async def scenario() -> None:
        toy, hands, failures = Toy(), Hands(), list[BaseException]()
        toy.effects[LinkUp("b2")] = ["nonsense"]  # type: ignore[list-item]
        driver = driven(toy, hands, failures)
        driver.happen(LinkUp("b2"))
        driver.happen(None)
        assert len(toy.happened) == 1
        (failure,) = failures
        assert isinstance(failure, MachineError)
        assert "LinkUp(peer='b2')" in str(failure)
        assert isinstance(failure.__cause__, AssertionError)

    run(scenario())
