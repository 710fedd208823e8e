"""The one door of the broker: events go in with the time, effects come out as values.

Theory of operation. ``step(event, now)`` hands an event to the rooms; what they want done they say
to a :class:`Context`, which collects it as effects. A driver carries effects out: it sends packets,
writes changes, wakes the broker. It decides nothing. So the same broker runs over sockets and
SQLite and in a simulation, and a run is a function of its events.

What depends on a write hangs on it: ``write(changes, then=…)`` runs ``then`` when the driver says
that the changes are on disk, never before (I13). Writes become durable in the order of asking.

Two clocks: ``now`` never goes back and drives all timers; ``clock`` is the wall clock, which may
jump and gives ticks their value.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from gapless.core.ids import BrokerId, CellId, ShbId
from gapless.core.parameters import Parameters

__all__ = [
    "ClientDown",
    "ClientDrained",
    "ClientFull",
    "ClientRequest",
    "ClientUp",
    "Context",
    "DisconnectClient",
    "Effect",
    "Fetch",
    "Fetched",
    "Identity",
    "LinkDown",
    "LinkDrained",
    "LinkFull",
    "LinkUp",
    "MachineEvent",
    "Notify",
    "Received",
    "Send",
    "SetPeers",
    "StepTime",
    "Stopping",
    "Timer",
    "Write",
    "Written",
]


_TIMERS_CROWDED = 1_024
"""Timers from which on cancelled ones are looked for."""


class StepTime(NamedTuple):
    """When a step happens, in microseconds: a clock that never goes back, and the wall clock."""

    now: int
    clock: int


class Identity(NamedTuple):
    """Who this broker is, in this life."""

    broker: BrokerId
    cell: CellId
    incarnation: int

    @property
    def shb(self) -> ShbId:
        """This broker as a host of subscribers."""
        return ShbId(self.broker, self.cell)


# --- events: what happens to a broker -----------------------------------------------------------


class LinkUp(msgspec.Struct, frozen=True):
    """Packets can now be sent to a peer."""

    peer: BrokerId


class LinkDown(msgspec.Struct, frozen=True):
    """The link to a peer is gone, and what was under way on it."""

    peer: BrokerId


class LinkFull(msgspec.Struct, frozen=True):
    """More waits to be sent to a peer than ``queue_bytes_max``; what is sent now waits too."""

    peer: BrokerId


class LinkDrained(msgspec.Struct, frozen=True):
    """What waited to be sent to a peer is mostly sent."""

    peer: BrokerId


class Received(msgspec.Struct, frozen=True):
    """A packet came from a peer."""

    peer: BrokerId
    packet: Any


class ClientUp(msgspec.Struct, frozen=True):
    """A client connected."""

    client: str


class ClientDown(msgspec.Struct, frozen=True):
    """A client is gone."""

    client: str


class ClientFull(msgspec.Struct, frozen=True):
    """More waits to be read by a client than ``queue_bytes_max``; what it is told now waits too."""

    client: str


class ClientDrained(msgspec.Struct, frozen=True):
    """What waited to be read by a client is mostly read."""

    client: str


class ClientRequest(msgspec.Struct, frozen=True):
    """A client asks for something."""

    client: str
    request: Any


class Stopping(msgspec.Struct, frozen=True):
    """This life ends soon, in order: what would be written some time is written now."""


class Written(msgspec.Struct, frozen=True):
    """A write is on disk. Writes become durable, and are reported, in the order of asking."""

    write_id: int


class Fetched(msgspec.Struct, frozen=True):
    """Rows of a log that were asked for, lowest first."""

    fetch_id: int
    rows: tuple[Any, ...]
    corruption: str | None = None
    """Which row could not be read, and why; then ``rows`` are those before it."""
    complete: bool = True
    """Whether these are all rows of the range; else there may be more above the last."""


MachineEvent: TypeAlias = (
    LinkUp
    | LinkDown
    | LinkFull
    | LinkDrained
    | Received
    | ClientUp
    | ClientDown
    | ClientFull
    | ClientDrained
    | ClientRequest
    | Stopping
    | Written
    | Fetched
    | None
)
"""What a step is given; None if only time has passed."""


# --- effects: what a broker wants done ----------------------------------------------------------


class Send(msgspec.Struct, frozen=True):
    """Send a packet to a peer."""

    peer: BrokerId
    packet: Any


class Notify(msgspec.Struct, frozen=True):
    """Tell a client something."""

    client: str
    notice: Any


class DisconnectClient(msgspec.Struct, frozen=True):
    """Disconnect a client, with a reason it can read."""

    client: str
    reason: str


class Write(msgspec.Struct, frozen=True):
    """Make changes durable, all or none, and say so by :class:`Written`."""

    write_id: int
    changes: tuple[Any, ...]


class Fetch(msgspec.Struct, frozen=True):
    """Read rows of a pubend's log between two ticks, at most so many bytes."""

    fetch_id: int
    pubend: Any
    low: int
    high: int
    bytes_max: int
    packed: bool = False
    """Whether publications stay as they were written: nobody here has to look into all of them."""


class SetPeers(msgspec.Struct, frozen=True):
    """Have links with these brokers and no others: the neighbourhood is not as configured (R13)."""

    peers: tuple[BrokerId, ...]


Effect: TypeAlias = Send | Notify | DisconnectClient | Write | Fetch | SetPeers


class Timer:
    """A call at a later time; may be cancelled."""

    __slots__ = ("action", "at")

    def __init__(self, at: int, action: Callable[[], None]) -> None:
        self.at = at
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Let it not happen. It leaves the queue when its time comes, or when many have gathered."""
        self.action = None


class Context:
    """What rooms may know and do: who and when they are, and effects."""

    def __init__(self, identity: Identity, parameters: Parameters) -> None:
        self.identity = identity
        self.parameters = parameters
        self.now = 0
        self.clock = 0
        self.effects: list[Effect] = []
        self.coverage_marks: dict[str, int] = {}
        """Rare branches that were taken, counted (the simulator reports those that never are)."""
        self._timers: list[tuple[int, int, Timer]] = []
        self._crowded = _TIMERS_CROWDED
        self._order = 0
        self._last_id = 0
        self._waiting: dict[int, Callable[..., None]] = {}
        self._outbox: dict[BrokerId, list[Any]] = {}

    # --- effects -----------------------------------------------------------------------------

    def send(self, peer: BrokerId, message: Any) -> None:
        """Send a message to a peer; what one step posts travels in one packet."""
        self._outbox.setdefault(peer, []).append(message)

    @property
    def has_messages(self) -> bool:
        """Whether a message waits to be sent."""
        return bool(self._outbox)

    def take_messages(self) -> list[tuple[BrokerId, list[Any]]]:
        """Return what was posted since the last call, by peer."""
        messages = list(self._outbox.items())
        self._outbox = {}
        return messages

    def take_messages_to(self, peer: BrokerId) -> list[Any]:
        """Return what was posted to one peer since the last call."""
        return self._outbox.pop(peer, [])

    def set_peers(self, peers: tuple[BrokerId, ...]) -> None:
        """Have links with these brokers and no others."""
        self.effects.append(SetPeers(peers))

    def notify(self, client: str, notice: Any) -> None:
        """Tell a client something."""
        self.effects.append(Notify(client, notice))

    def write(self, changes: tuple[Any, ...], then: Callable[[], None]) -> None:
        """Make changes durable and then go on."""
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
        """Read a log and go on with its rows."""
        self._last_id += 1
        self._waiting[self._last_id] = then
        self.effects.append(Fetch(self._last_id, pubend, low, high, bytes_max, packed))

    def mark(self, branch: str) -> None:
        """Note that a rare branch was taken."""
        self.coverage_marks[branch] = self.coverage_marks.get(branch, 0) + 1

    # --- steps -------------------------------------------------------------------------------

    def begin_step(self, now: StepTime) -> None:
        """Set the time of a step."""
        self.now, self.clock = now

    def take_effects(self) -> list[Effect]:
        """Return the effects since the last call."""
        effects, self.effects = self.effects, []
        return effects

    # --- time --------------------------------------------------------------------------------

    def call_later(self, delay_us: int, action: Callable[[], None]) -> Timer:
        """Call back after a delay."""
        assert delay_us > 0, "a call without delay could come back for ever"
        timer = Timer(self.now + delay_us, action)
        self._order += 1
        heapq.heappush(self._timers, (timer.at, self._order, timer))
        if len(self._timers) > self._crowded:
            self._drop_cancelled()
        return timer

    def _drop_cancelled(self) -> None:
        """Take cancelled timers out, so that those set again and again do not pile up."""
        self._timers = [entry for entry in self._timers if entry[2].action is not None]
        heapq.heapify(self._timers)
        self._crowded = max(_TIMERS_CROWDED, 2 * len(self._timers))

    def next_timer(self) -> int | None:
        """Return when the next call is due, or None."""
        while self._timers and self._timers[0][2].action is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def run_timers(self) -> None:
        """Make the calls that are due, in the order of their times."""
        while self._timers and self._timers[0][0] <= self.now:
            action = heapq.heappop(self._timers)[2].action
            if action is not None:  # it was not cancelled
                action()

    def resume(self, event: Written | Fetched) -> None:
        """Go on with what waited for a write or a fetch."""
        if isinstance(event, Fetched):
            self._waiting.pop(event.fetch_id)(event)
        else:
            self._waiting.pop(event.write_id)()
