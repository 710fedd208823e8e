"""The driver: it handles one event after the other, and its timer is neither early nor lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from gapless.core.context import StepTime
from gapless.core.effects import (
    DisconnectClient,
    Effect,
    Fetch,
    LinkTarget,
    Notify,
    Send,
    SetPeers,
    StartAgain,
    Write,
)
from gapless.core.events import ClientDown, ClientUp, LinkFull, LinkUp, MachineEvent, Written
from gapless.runtime.driver import Driver, MachineError
from tests.runtime.nodes import LOOPS, run, until


class ScriptedMachine:
    """A machine that returns the given effects and records its events."""

    def __init__(self) -> None:
        self.happened: list[tuple[MachineEvent, int]] = []
        self.effects: dict[MachineEvent, list[Effect]] = {}
        self.timers: list[int] = []

    def step_all(self, events: Iterable[MachineEvent], now: StepTime) -> list[Effect]:
        taken = list(events)
        self.happened += [(event, now.now) for event in taken]
        self.timers = [due for due in self.timers if due > now.now]
        return [effect for event in taken for effect in self.effects.get(event, [])]

    def next_timer(self) -> int | None:
        return min(self.timers, default=None)

    @property
    def coverage_marks(self) -> Mapping[str, int]:
        return {}


class RecordingHandler:
    """Records the effects."""

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.flushes = 0
        self.syncs = 0
        self.driver: Driver

    def send(self, peer: str, packet: Any) -> None:
        self.done.append(("send", peer, packet))

    def notify(self, client: str, notice: Any) -> None:
        self.done.append(("notify", client, notice))
        if notice == "last words":
            self.driver.handle(ClientDown(client))
            self.done.append(("notified", client))

    def disconnect(self, client: str, reason: str) -> None:
        self.done.append(("disconnect", client, reason))

    def start_again(self) -> None:
        self.done.append(("start again",))

    def set_peers(self, wanted: SetPeers) -> None:
        self.done.append(("set peers", wanted))

    def write(self, write: Write) -> None:
        self.done.append(("write", write.write_id))

    def fetch(self, fetch: Fetch) -> None:
        self.done.append(("fetch", fetch.fetch_id))

    def flush(self) -> None:
        self.flushes += 1

    def sync(self) -> None:
        self.syncs += 1


def driven(
    machine: ScriptedMachine, handler: RecordingHandler, failures: list[BaseException]
) -> Driver:
    handler.driver = Driver(machine, handler, asyncio.get_running_loop(), failures.append)
    return handler.driver


def now() -> int:
    return time.monotonic_ns() // 1_000


def test_every_effect_is_carried_out_in_order() -> None:
    async def scenario() -> None:
        machine, handler = ScriptedMachine(), RecordingHandler()
        machine.effects[None] = [
            Send("b2", "packet"),
            Notify("one", "notice"),
            Write(1, ()),
            Fetch(2, "trades", 1, 2, 3),
            DisconnectClient("two", "slow"),
            SetPeers((LinkTarget("b2"),)),
            StartAgain(),
        ]
        driven(machine, handler, []).handle(None)
        assert handler.done == [
            ("send", "b2", "packet"),
            ("notify", "one", "notice"),
            ("write", 1),
            ("fetch", 2),
            ("disconnect", "two", "slow"),
            ("set peers", SetPeers((LinkTarget("b2"),))),
            ("start again",),
        ]

    run(scenario())


def test_an_event_caused_by_an_effect_is_handled_after_the_step() -> None:
    async def scenario() -> None:
        machine, handler = ScriptedMachine(), RecordingHandler()
        machine.effects[ClientUp("one")] = [Notify("one", "last words"), Send("b2", "after")]
        driven(machine, handler, []).handle(ClientUp("one"))
        assert [event for event, _ in machine.happened] == [ClientUp("one"), ClientDown("one")]
        assert [each[0] for each in handler.done] == ["notify", "notified", "send"]

    run(scenario())


def test_events_that_are_handled_together_are_one_step() -> None:
    async def scenario() -> None:
        machine, handler = ScriptedMachine(), RecordingHandler()
        machine.effects[ClientUp("one")] = [Notify("one", "hello")]
        machine.effects[ClientUp("two")] = [Notify("two", "hello")]
        driver = driven(machine, handler, [])
        driver.handle_all([ClientUp("one"), ClientUp("two")])
        assert driver.steps == 1
        assert handler.done == [("notify", "one", "hello"), ("notify", "two", "hello")]

    run(scenario())


def test_the_longest_step_of_two_windows_is_known() -> None:
    async def scenario() -> None:
        driver = driven(ScriptedMachine(), RecordingHandler(), [])
        driver.handle(None)
        first = driver.recent_step_max_ns
        assert first == driver.step_max_ns > 0
        driver.start_step_window()
        assert driver.recent_step_max_ns == first
        driver.start_step_window()
        assert driver.recent_step_max_ns == 0
        assert driver.step_max_ns == first
        driver.handle(None)
        assert 0 < driver.recent_step_max_ns <= driver.step_max_ns

    run(scenario())


def test_output_is_flushed_once_after_all_events_are_handled() -> None:
    async def scenario() -> None:
        machine, handler = ScriptedMachine(), RecordingHandler()
        machine.effects[ClientUp("one")] = [Notify("one", "last words")]
        driven(machine, handler, []).handle(ClientUp("one"))
        assert len(machine.happened) == 2
        assert handler.flushes == 1
        assert handler.syncs == 1

    run(scenario())


def test_an_event_during_the_flush_is_handled() -> None:
    class CongestedHandler(RecordingHandler):
        def flush(self) -> None:
            super().flush()
            if self.flushes == 1:
                self.driver.handle(LinkFull("b2"))

    async def scenario() -> None:
        machine, handler = ScriptedMachine(), CongestedHandler()
        driven(machine, handler, []).handle(None)
        assert [event for event, _ in machine.happened] == [None, LinkFull("b2")]

    run(scenario())


def test_a_write_that_becomes_durable_at_the_end_of_a_step_is_handled_next() -> None:
    class ImmediateHandler(RecordingHandler):
        def sync(self) -> None:
            super().sync()
            if self.syncs == 1:
                assert self.flushes == 1, "output is flushed before the commit"
                self.driver.handle(Written(1))

    async def scenario() -> None:
        machine, handler = ScriptedMachine(), ImmediateHandler()
        machine.effects[None] = [Write(1, ())]
        driven(machine, handler, []).handle(None)
        assert [event for event, _ in machine.happened] == [None, Written(1)]
        assert handler.flushes == handler.syncs == 2

    run(scenario())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_timer_is_never_early_and_an_earlier_one_fires_first(loop: str) -> None:
    async def scenario() -> None:
        machine, handler = ScriptedMachine(), RecordingHandler()
        driver = driven(machine, handler, [])
        machine.timers = [now() + 60_000_000]
        driver.handle(None)
        dues = [now() + 20_000, now() + 5_000]
        machine.timers += dues
        driver.handle(None)
        await until(lambda: len(machine.happened) == 4)
        early, late = (at for _, at in machine.happened[2:])
        assert early >= min(dues)
        assert late >= max(dues)
        driver.stop()

    run(scenario(), loop)


def test_a_stopped_driver_handles_no_event() -> None:
    async def scenario() -> None:
        machine, handler = ScriptedMachine(), RecordingHandler()
        driver = driven(machine, handler, [])
        machine.timers = [now() + 1_000]
        driver.handle(None)
        driver.stop()
        driver.handle(LinkUp("b2"))
        await asyncio.sleep(0.01)
        assert len(machine.happened) == 1

    run(scenario())


def test_a_machine_that_fails_is_not_stepped_again() -> None:
    async def scenario() -> None:
        machine, handler, failures = ScriptedMachine(), RecordingHandler(), list[BaseException]()
        machine.effects[LinkUp("b2")] = ["nonsense"]  # type: ignore[list-item]
        driver = driven(machine, handler, failures)
        driver.handle(LinkUp("b2"))
        driver.handle(None)
        assert len(machine.happened) == 1
        (failure,) = failures
        assert isinstance(failure, MachineError)
        assert "LinkUp(peer='b2')" in str(failure)
        assert isinstance(failure.__cause__, AssertionError)

    run(scenario())
