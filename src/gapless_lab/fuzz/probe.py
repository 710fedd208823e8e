"""Measures the steps and the memory of a broker, from inside its process."""

from __future__ import annotations

import ctypes
import functools
import gc
import heapq
import resource
import sys
import time
from asyncio import AbstractEventLoop
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gapless.content.like import forget_patterns
from gapless.core.context import StepTime
from gapless.core.effects import Effect
from gapless.core.events import ClientRequest, MachineEvent, Received
from gapless.packed.encode import forget_encodings
from gapless.runtime.driver import DrivenMachine, Driver, EffectHandler
from gapless_lab.fuzz.vocabulary import HOSTILE

__all__ = [
    "BrokerMeasurement",
    "MemoryUse",
    "ProbedDriver",
    "SlowStep",
    "StepProbe",
    "function_caches",
    "measure_memory",
]

SLOWEST_KEPT: Final = 20
"""Steps that are reported between two measurements."""

TYPES_REPORTED: Final = 60
"""Types of objects whose number is reported."""

SHOWN_MESSAGES: Final = 4
"""Messages of a packet that a description names."""

SHOWN_CLIENTS: Final = 4
"""Requests of a step that a description names."""


class SlowStep(msgspec.Struct, frozen=True):
    """One of the slowest steps."""

    cpu_ms: float
    """The time of the processor. Waiting for it on a busy computer does not count."""
    wall_ms: float
    event: str
    attack: int | None = None
    """The attack of the client that sent the frame."""
    session: int | None = None
    """The number of the session in which the hostile neighbour sent the packet."""


class MemoryUse(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a process."""

    in_use: int
    """Allocated bytes, if the C library reports them; otherwise the resident bytes."""
    resident: int
    objects: int
    """Objects that the garbage collector tracks."""
    types: dict[str, int]
    """The most frequent types of these."""


class BrokerMeasurement(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a broker's process."""

    memory: MemoryUse | None
    """None unless it was requested."""
    frames: int
    """Frames that were read, of all connections."""
    steps: int
    slowest: list[SlowStep]
    """The slowest steps since the last measurement, slowest first."""
    errors: list[str]
    """Errors that reached the event loop since the last measurement: each is a bug."""
    stored: dict[str, int]
    """How many named objects the broker has, by kind."""


class StepProbe:
    """Remembers the slowest steps."""

    def __init__(self) -> None:
        self._slowest: list[tuple[float, int, SlowStep]] = []
        """A heap with the fastest of them at the top; a number makes each entry unique."""
        self._number = 0
        self._events: Sequence[MachineEvent] | None = None
        self._cpu_ns = self._wall_ns = 0

    def begin(self, events: Sequence[MachineEvent]) -> None:
        """A step begins, which ends the one before."""
        self.end()
        self._events = events
        self._wall_ns = time.monotonic_ns()
        self._cpu_ns = time.thread_time_ns()

    def end(self) -> None:
        """The step has ended, if one runs."""
        if self._events is None:
            return
        cpu_ms = (time.thread_time_ns() - self._cpu_ns) / 1e6
        events, self._events = self._events, None
        slowest = self._slowest
        if len(slowest) < SLOWEST_KEPT or cpu_ms > slowest[0][0]:
            wall_ms = (time.monotonic_ns() - self._wall_ns) / 1e6
            self._number += 1
            entry = cpu_ms, self._number, _described(cpu_ms, wall_ms, events)
            heapq.heappush(slowest, entry)
            if len(slowest) > SLOWEST_KEPT:
                heapq.heappop(slowest)

    def take_slowest(self) -> list[SlowStep]:
        """Return the slowest steps since the last call, slowest first."""
        found, self._slowest = self._slowest, []
        return [step for _, _, step in sorted(found, reverse=True)]


def _described(cpu_ms: float, wall_ms: float, events: Sequence[MachineEvent]) -> SlowStep:
    """Return a slow step with its cause."""
    attack = session = None
    names: list[str] = []
    for event in events:
        if isinstance(event, ClientRequest):
            names.append(f"{type(event.request).__name__} of {event.client}")
            attack = _attack_of(event.client)
        elif isinstance(event, Received):
            packet = event.packet
            messages = [type(each).__name__ for each in getattr(packet, "messages", ())]
            shown = ", ".join(messages[:SHOWN_MESSAGES]) or type(packet).__name__
            names.append(f"{shown} of {event.peer}")
            if event.peer == HOSTILE and hasattr(packet, "sender"):
                session = packet.sender.number
        else:
            names.append("time passes" if event is None else type(event).__name__)
    more = f" and {len(names) - SHOWN_CLIENTS} more" if len(names) > SHOWN_CLIENTS else ""
    text = ", ".join(names[:SHOWN_CLIENTS]) + more
    return SlowStep(round(cpu_ms, 2), round(wall_ms, 2), text, attack, session)


def _attack_of(client: str) -> int | None:
    """Return the number of the attack that a client belongs to.

    >>> _attack_of("fuzz-12.340"), _attack_of("pair.1")
    (12, None)
    """
    word, _, rest = client.partition("-")
    number = rest.partition(".")[0]
    return int(number) if word == "fuzz" and number.isdigit() else None


class _ProbedMachine:
    """A machine whose steps are measured."""

    def __init__(self, machine: DrivenMachine, probe: StepProbe) -> None:
        self._machine = machine
        self._probe = probe
        self.next_timer = machine.next_timer

    @property
    def coverage_marks(self) -> Mapping[str, int]:
        return self._machine.coverage_marks

    def step_all(self, events: Iterable[MachineEvent], now: StepTime) -> list[Effect]:
        taken = list(events)
        self._probe.begin(taken)
        return self._machine.step_all(taken, now)


class ProbedDriver(Driver):
    """A driver that measures every step with its effects, without what the disk does after it."""

    probe: StepProbe
    """Of the broker of this process."""

    def __init__(
        self,
        machine: DrivenMachine,
        handler: EffectHandler,
        loop: AbstractEventLoop,
        failed: Callable[[BaseException], None],
    ) -> None:
        super().__init__(
            _ProbedMachine(machine, self.probe), _Ending(handler, self.probe), loop, failed
        )


class _Ending:
    """A handler of effects that ends the measured step before the disk works."""

    def __init__(self, handler: EffectHandler, probe: StepProbe) -> None:
        self._handler = handler
        self._probe = probe
        self.send = handler.send
        self.notify = handler.notify
        self.disconnect = handler.disconnect
        self.set_peers = handler.set_peers
        self.start_again = handler.start_again
        self.write = handler.write
        self.fetch = handler.fetch
        self.flush = handler.flush

    def sync(self) -> None:
        self._probe.end()
        self._handler.sync()


# --- memory -------------------------------------------------------------------------------------


class _Mallinfo2(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def function_caches() -> list[Any]:
    """Return the caches of functions of gapless. It must be called before objects are frozen."""
    kind: type = type(functools.lru_cache(len))
    found = [each for each in gc.get_objects() if isinstance(each, kind)]
    return [each for each in found if each.__module__.startswith("gapless.")]


def measure_memory(caches: Iterable[Any] = ()) -> MemoryUse:
    """Empty caches, which are bounded, collect garbage, and return the memory of this process.

    Allocated bytes are exact only if Python allocates with malloc, in one arena: ``PYTHONMALLOC=malloc``
    and ``MALLOC_ARENA_MAX=1``.
    """
    forget_encodings()
    forget_patterns()
    for cache in caches:
        cache.cache_clear()
    for _ in range(3):
        gc.collect()
    resident = _resident_bytes()
    mallinfo2: Any = getattr(ctypes.CDLL(None), "mallinfo2", None)
    in_use = resident
    if mallinfo2 is not None:
        mallinfo2.restype = _Mallinfo2
        found = mallinfo2()
        in_use = found.uordblks + found.hblkhd
    types = Counter(type(each).__name__ for each in gc.get_objects())
    return MemoryUse(
        in_use=in_use,
        resident=resident,
        objects=types.total(),
        types=dict(types.most_common(TYPES_REPORTED)),
    )


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  # not a real file
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        scale = 1 if sys.platform == "darwin" else 1_024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
