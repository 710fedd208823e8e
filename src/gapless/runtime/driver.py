"""Gives events to the machine and carries out what it wants done. It decides nothing.

Events are taken one after the other: what carrying out an effect causes waits until the step is
through. One timer of the event loop is armed for the machine's next.

An exception inside a step is a bug, and afterwards nobody knows what holds. So the broker ends:
what is on disk is sound, and the next life begins from there.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from gapless.core.errors import GaplessError
from gapless.core.limits import SHOWN_EVENT_MAX
from gapless.core.machine import (
    DisconnectClient,
    Effect,
    Fetch,
    MachineEvent,
    Notify,
    Send,
    SetPeers,
    StepTime,
    Write,
)

__all__ = ["DrivenMachine", "Driver", "EffectHandler", "MachineError", "read_clocks"]

_NEVER: Final = 2**62


class MachineError(GaplessError):
    """The machine broke at an event; this life is over."""


class DrivenMachine(Protocol):
    """What is driven."""

    def step_all(self, events: Iterable[MachineEvent], now: StepTime) -> list[Effect]:
        """Take what happened at once, None if only time has passed; return what is to be done."""

    def next_timer(self) -> int | None:
        """Return when a step is due without an event."""

    @property
    def coverage_marks(self) -> Mapping[str, int]:
        """How often rare branches were taken."""


class EffectHandler(Protocol):
    """Who carries effects out."""

    def send(self, peer: str, packet: Any) -> None:
        """Send a packet to a peer; it is lost if there is no link."""

    def notify(self, client: str, notice: Any) -> None:
        """Tell a client something; it is lost if the client is gone."""

    def disconnect(self, client: str, reason: str) -> None:
        """Disconnect a client."""

    def set_peers(self, peers: tuple[str, ...]) -> None:
        """Have links with these brokers and no others."""

    def write(self, write: Write) -> None:
        """Make changes durable."""

    def fetch(self, fetch: Fetch) -> None:
        """Read a log."""

    def flush(self) -> None:
        """Nothing more is to be done now: let go out what was gathered."""

    def sync(self) -> None:
        """All steps are through: let be durable what they wrote, if it need not wait for more."""


def read_clocks() -> StepTime:
    """Return both clocks in microseconds."""
    return StepTime(time.monotonic_ns() // 1_000, time.time_ns() // 1_000)


class Driver:
    """One life of a machine."""

    def __init__(
        self,
        machine: DrivenMachine,
        handler: EffectHandler,
        loop: asyncio.AbstractEventLoop,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._machine = machine
        self.step_all = machine.step_all
        self._handler = handler
        self._loop = loop
        self._failed = failed
        self._batches: deque[Sequence[MachineEvent]] = deque()
        """What has happened and was not taken, in order; a step takes a batch."""
        self._running = False
        self._stopped = False
        self._armed_for = _NEVER
        self._timer: asyncio.TimerHandle | None = None
        self.steps = 0
        self.step_ns = 0
        """Nanoseconds that all steps took, with their effects."""
        self.step_max_ns = 0

    def handle(self, event: MachineEvent) -> None:
        """Let something happen to the machine: now, or behind what is happening."""
        self._batches.append((event,))
        if not self._running:
            self._run()

    def handle_all(self, events: Sequence[MachineEvent]) -> None:
        """Let several things happen in one step, so that what follows goes out together."""
        self._batches.append(events)
        if not self._running:
            self._run()

    def stop(self) -> None:
        """Let nothing happen any more."""
        self._stopped = True
        self._batches.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        batches, step_all = self._batches, self.step_all
        self._running = True
        events: Sequence[MachineEvent] = ()
        try:
            while batches and not self._stopped:
                events = batches.popleft()
                started_ns = time.monotonic_ns()
                effects = step_all(events, StepTime(started_ns // 1_000, time.time_ns() // 1_000))
                for effect in effects:
                    self._perform(effect)
                if not batches:
                    self._handler.flush()  # more may happen by it: a connection can be full
                took = time.monotonic_ns() - started_ns
                self.steps += 1
                self.step_ns += took
                self.step_max_ns = max(self.step_max_ns, took)
                if not batches:
                    self._handler.sync()  # what becomes durable by it happens next
            self._arm()
        except Exception as error:  # noqa: BLE001 - whatever breaks the machine ends this life
            self.stop()
            shown = ", ".join(map(repr, events))
            broken = MachineError(f"the broker broke at {shown[:SHOWN_EVENT_MAX]}")
            broken.__cause__ = error
            self._failed(broken)
        finally:
            self._running = False

    def _perform(self, effect: Effect) -> None:
        kind = type(effect)
        if kind is Notify:
            self._handler.notify(effect.client, effect.notice)  # type: ignore[union-attr]
        elif kind is Send:
            self._handler.send(effect.peer, effect.packet)  # type: ignore[union-attr]
        elif isinstance(effect, Write):
            self._handler.write(effect)
        elif isinstance(effect, Fetch):
            self._handler.fetch(effect)
        elif isinstance(effect, DisconnectClient):
            self._handler.disconnect(effect.client, effect.reason)
        else:
            assert isinstance(effect, SetPeers), f"{effect!r} is no effect"
            self._handler.set_peers(effect.peers)

    def _arm(self) -> None:
        """Be woken when the machine's next timer is due; one that comes later re-arms then."""
        due = self._machine.next_timer()
        if due is None or due >= self._armed_for or self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = due
        delay_us = due - time.monotonic_ns() // 1_000
        self._timer = self._loop.call_later(max(0.0, delay_us / 1_000_000), self._wake)

    def _wake(self) -> None:
        self._armed_for = _NEVER
        self._timer = None
        due = self._machine.next_timer()
        if due is not None and due <= time.monotonic_ns() // 1_000:
            self.handle(None)
        else:
            self._arm()
