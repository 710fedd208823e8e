"""Passes events to the machine and carries out its effects. It makes no protocol decisions.

Events are handled one after the other: an event that an effect causes waits until the current step
is complete. One timer of the event loop is armed for the machine's next deadline.

An exception in a step is a bug, and the state of the machine is undefined afterwards. So the broker
ends. The data on disk is consistent, and the next incarnation starts from it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from gapless.core.context import StepTime
from gapless.core.effects import (
    DisconnectClient,
    Effect,
    Fetch,
    Notify,
    Send,
    SetPeers,
    StartAgain,
    Write,
)
from gapless.core.errors import GaplessError
from gapless.core.events import MachineEvent
from gapless.core.limits import SHOWN_EVENT_MAX

__all__ = ["DrivenMachine", "Driver", "EffectHandler", "MachineError", "read_clocks"]

_NEVER: Final = 2**62


class MachineError(GaplessError):
    """The machine failed in a step; the incarnation is over."""


class DrivenMachine(Protocol):
    """A machine that a driver runs."""

    def step_all(self, events: Iterable[MachineEvent], now: StepTime) -> list[Effect]:
        """Handle the events of one step, None if only time has passed; return the effects."""

    def next_timer(self) -> int | None:
        """Return when a step is due without an event."""

    @property
    def coverage_marks(self) -> Mapping[str, int]:
        """How often rare branches were taken."""


class EffectHandler(Protocol):
    """Carries out the effects of a machine."""

    def send(self, peer: str, packet: Any) -> None:
        """Send a packet to a peer; it is lost if there is no link."""

    def notify(self, client: str, notice: Any) -> None:
        """Send a notice to a client; it is lost if the client is not connected."""

    def disconnect(self, client: str, reason: str) -> None:
        """Disconnect a client."""

    def set_peers(self, wanted: SetPeers) -> None:
        """Keep links with these brokers only."""

    def start_again(self) -> None:
        """End this incarnation; another one follows."""

    def write(self, write: Write) -> None:
        """Make changes durable."""

    def fetch(self, fetch: Fetch) -> None:
        """Read a log."""

    def flush(self) -> None:
        """All pending steps have run: write the collected frames."""

    def sync(self) -> None:
        """All pending steps have run: make their writes durable if they need not wait for more."""


def read_clocks() -> StepTime:
    """Return both clocks in microseconds."""
    return StepTime(time.monotonic_ns() // 1_000, time.time_ns() // 1_000)


class Driver:
    """Runs one incarnation of a machine."""

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
        """Events that are not yet handled, in order; a step handles one batch."""
        self._running = False
        self._stopped = False
        self._armed_for = _NEVER
        self._timer: asyncio.TimerHandle | None = None
        self.steps = 0
        self.step_ns = 0
        """Nanoseconds of all steps with their effects."""
        self.step_max_ns = 0
        self._window_max_ns = self._window_before_ns = 0
        """The longest step of the current window, and of the window before."""

    @property
    def recent_step_max_ns(self) -> int:
        """The longest step of the current window and the one before."""
        return max(self._window_max_ns, self._window_before_ns)

    def start_step_window(self) -> None:
        """Start another window, in which the longest step is measured again."""
        self._window_before_ns, self._window_max_ns = self._window_max_ns, 0

    def handle(self, event: MachineEvent) -> None:
        """Handle an event now, or after the current step."""
        self._batches.append((event,))
        if not self._running:
            self._run()

    def handle_all(self, events: Sequence[MachineEvent]) -> None:
        """Handle several events in one step, so that their effects go out together."""
        self._batches.append(events)
        if not self._running:
            self._run()

    def stop(self) -> None:
        """Handle no more events."""
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
                    self._handler.flush()  # this may cause events: a connection can be full
                took = time.monotonic_ns() - started_ns
                self.steps += 1
                self.step_ns += took
                if took > self._window_max_ns:
                    self._window_max_ns = took
                    self.step_max_ns = max(self.step_max_ns, took)
                if not batches:
                    self._handler.sync()  # completed writes are handled next
            self._arm()
        except Exception as error:  # noqa: BLE001 - any failure of the machine ends the incarnation
            self.stop()
            named: list[str] = getattr(error, "__notes__", [])
            shown = named[0] if named else ", ".join(map(repr, events))
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
        elif isinstance(effect, SetPeers):
            self._handler.set_peers(effect)
        else:
            assert isinstance(effect, StartAgain), f"{effect!r} is no effect"
            self._handler.start_again()

    def _arm(self) -> None:
        """Set the timer for the machine's next deadline; a later one is set when it fires."""
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
