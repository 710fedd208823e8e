"""The context of the broker machine: what its components share in a step.

``step(event, now)`` passes an event to the components. They request effects from a
:class:`Context`, which collects them. A driver carries the effects out: it sends packets, writes
changes, and calls ``step`` when a timer is due. It decides nothing. So the same broker runs over
sockets and SQLite and in a simulation, and a run is a function of its events.

An action that depends on a write waits for it: ``write(changes, then=…)`` calls ``then`` when the
driver reports that the changes are on disk, never before (I13). Writes become durable in the order
in which they were requested.

There are two clocks. ``now`` is monotonic and drives all timers. ``clock`` is the wall clock, which
may jump, and from which ticks are assigned.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, NamedTuple

from gapless.core.effects import (
    Effect,
    Fetch,
    LinkTarget,
    Notify,
    Send,
    SetPeers,
    StartAgain,
    Write,
)
from gapless.core.events import Fetched, Written
from gapless.core.ids import BrokerId, CellId, ShbId
from gapless.core.message_counts import MessageCounts
from gapless.core.parameters import Parameters

__all__ = [
    "Context",
    "Identity",
    "StepTime",
    "Timer",
    "nothing",
]


def nothing() -> None:
    """Do nothing when a write is durable or a request is answered."""


_TIMERS_CROWDED = 1_024
"""Number of timers above which cancelled ones are removed."""

_SPREAD = 0x9E3779B1
"""A factor that spreads consecutive numbers evenly (Fibonacci hashing)."""


class StepTime(NamedTuple):
    """The time of a step in microseconds: the monotonic clock and the wall clock."""

    now: int
    clock: int


class Identity(NamedTuple):
    """The broker, its cell and its incarnation."""

    broker: BrokerId
    cell: CellId
    incarnation: int

    @property
    def shb(self) -> ShbId:
        """This broker as an SHB."""
        return ShbId(self.broker, self.cell)


class Timer:
    """A call at a later time; may be cancelled."""

    __slots__ = ("action", "at")

    def __init__(self, at: int, action: Callable[[], None]) -> None:
        self.at = at
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Cancel the call. The entry leaves the queue when it is due, or when the queue is long."""
        self.action = None


class Context:
    """What the components share: identity, parameters, time, timers and effects."""

    def __init__(self, identity: Identity, parameters: Parameters) -> None:
        self.identity = identity
        self.parameters = parameters
        self.now = 0
        self.clock = 0
        self.steps = 0
        """The number of steps that have begun."""
        self.effects: list[Effect] = []
        self.coverage_marks: dict[str, int] = {}
        """How often each rare branch was taken. The simulator reports those never taken."""
        self.message_counts = MessageCounts()
        """The messages to and from peers."""
        self._timers: list[tuple[int, int, Timer]] = []
        self._crowded = _TIMERS_CROWDED
        self._order = 0
        self._last_id = 0
        self._waiting: dict[int, Callable[..., None]] = {}
        self._outbox: dict[BrokerId, list[Any]] = {}

    # --- effects -----------------------------------------------------------------------------

    def send(self, peer: BrokerId, message: Any) -> None:
        """Send a message to a peer. All messages of one step are sent in one packet."""
        self._outbox.setdefault(peer, []).append(message)

    @property
    def has_messages(self) -> bool:
        """Whether a message waits to be sent."""
        return bool(self._outbox)

    def take_messages(self) -> list[tuple[BrokerId, list[Any]]]:
        """Return the messages sent since the last call, by peer."""
        messages = list(self._outbox.items())
        self._outbox = {}
        return messages

    def take_messages_to(self, peer: BrokerId) -> list[Any]:
        """Return the messages sent to one peer since the last call."""
        return self._outbox.pop(peer, [])

    def send_packet(self, peer: BrokerId, packet: Any) -> None:
        """Send a packet over the link to a peer, at once."""
        self.effects.append(Send(peer, packet))

    def set_peers(
        self,
        peers: tuple[LinkTarget, ...],
        control: tuple[LinkTarget, ...],
        admitted: tuple[BrokerId, ...],
    ) -> None:
        """Keep links with exactly these brokers."""
        self.effects.append(SetPeers(peers, control, admitted))

    def start_again(self) -> None:
        """End this incarnation, and start the next one."""
        self.effects.append(StartAgain())

    def notify(self, client: str, notice: Any) -> None:
        """Send a message to a client."""
        self.effects.append(Notify(client, notice))

    def write(self, changes: tuple[Any, ...], then: Callable[[], None] = nothing) -> None:
        """Make changes durable, then call back."""
        self._last_id += 1
        self._waiting[self._last_id] = then
        self.effects.append(Write(self._last_id, changes))

    def fetch(
        self,
        pubend: Any,
        low: int,
        high: int,
        bytes_max: int,
        then: Callable[[Fetched], None],
        *,
        packed: bool = False,
    ) -> None:
        """Read a log, then call back with its rows."""
        self._last_id += 1
        self._waiting[self._last_id] = then
        self.effects.append(Fetch(self._last_id, pubend, low, high, bytes_max, packed))

    def mark(self, branch: str) -> None:
        """Count a rare branch."""
        self.coverage_marks[branch] = self.coverage_marks.get(branch, 0) + 1

    # --- steps -------------------------------------------------------------------------------

    def begin_step(self, now: StepTime) -> None:
        """Set the time of a step."""
        self.now, self.clock = now
        self.steps += 1

    def take_effects(self) -> list[Effect]:
        """Return the effects since the last call."""
        effects, self.effects = self.effects, []
        return effects

    # --- time --------------------------------------------------------------------------------

    def call_later(self, delay_us: int, action: Callable[[], None]) -> Timer:
        """Call back after a delay."""
        assert delay_us > 0, "a call without delay could repeat for ever"
        timer = Timer(self.now + delay_us, action)
        self._order += 1
        heapq.heappush(self._timers, (timer.at, self._order, timer))
        if len(self._timers) > self._crowded:
            self._drop_cancelled()
        return timer

    def call_about(self, delay_us: int, action: Callable[[], None]) -> Timer:
        """Call back after a delay of which up to a quarter may be left out.

        Calls that need not be exact fall on common instants, so that one step serves many of them.
        Calls set at one instant are spread over several, so that no step serves too many.
        """
        grid = max(1, delay_us // 16)
        spread = (self._order * _SPREAD >> 16) % 4  # as if at random, and the same in every run
        at = self.now + delay_us - spread * grid
        return self.call_later(max(1, at - at % grid - self.now), action)

    def _drop_cancelled(self) -> None:
        """Remove cancelled timers, so that timers that are set repeatedly do not accumulate."""
        self._timers = [entry for entry in self._timers if entry[2].action is not None]
        heapq.heapify(self._timers)
        self._crowded = max(_TIMERS_CROWDED, 2 * len(self._timers))

    def next_timer(self) -> int | None:
        """Return when the next call is due, or None."""
        while self._timers and self._timers[0][2].action is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def run_timers(self) -> None:
        """Run the timers that are due, in the order of their times."""
        while self._timers and self._timers[0][0] <= self.now:
            action = heapq.heappop(self._timers)[2].action
            if action is not None:  # it was not cancelled
                action()

    def resume(self, event: Written | Fetched) -> None:
        """Call back what waited for a write or a fetch."""
        if isinstance(event, Fetched):
            self._waiting.pop(event.fetch_id)(event)
        else:
            self._waiting.pop(event.write_id)()
