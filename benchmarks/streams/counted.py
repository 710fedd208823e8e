"""The cost of a tree that does not change: messages by kind, and processor time.

The same course of events runs in the simulator: brokers of a line, a publisher at its first one, a
subscriber at each. Time is virtual and random numbers have one seed, so two commits whose brokers
do the same send the same messages, one for one. The processor time is that of the steps of the
brokers, without the simulator around them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

__all__ = ["Counted", "differences", "measure_counted"]

WARM_S: Final = 5.0
"""Virtual time after which the tables are complete and nothing changes any more."""
EVERY_US: Final = 5_000
"""The publisher publishes 200 events a second."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The messages between brokers in a run of a line, and the processor time that it took."""

    commit: str
    hops: int
    events: int
    messages: dict[str, int]
    cpu_s: float

    @property
    def cpu_us(self) -> float:
        """The processor time of an event, in microseconds, over all brokers."""
        return self.cpu_s / self.events * 1e6


class _StepClock:
    """Measures the processor time that the steps of a broker take from now on."""

    def __init__(self, machine: Any) -> None:
        self.spent_ns = 0
        step_all = machine.step_all

        def measured(*arguments: Any) -> Any:
            began = time.process_time_ns()
            effects = step_all(*arguments)
            self.spent_ns += time.process_time_ns() - began
            return effects

        machine.step_all = measured  # every step of a broker passes here


async def measure_counted(commit: str, hops: int, seconds: float) -> Counted:
    """Count the messages of a line for so many virtual seconds."""
    from gapless.overlay.neighbourhood import Topology
    from gapless_lab.lab.observers import messages
    from gapless_lab.lab.testbed import Testbed
    from gapless_lab.sim.world import WorldObserver

    class MessageCounter(WorldObserver):
        """Counts what brokers send to each other."""

        def __init__(self) -> None:
            self.kinds: Counter[str] = Counter()

        def stepped(self, world: Any, process: Any, event: Any, effects: list[Any]) -> None:
            """Count the messages of a step."""
            del world, event
            me = process.host.broker
            self.kinds.update(type(m).__name__ for peer, m in messages(effects) if peer != me)

    names = [f"c{index}" for index in range(1, hops + 1)]
    cells = {name: [f"b{name[1:]}"] for name in names}
    bed = Testbed(Topology.of(cells, [*pairwise(names)]), delta=1)
    bed.start()
    bed.run(2)
    source = bed.source("P", "b1")
    for index in range(1, hops + 1):
        bed.listener(f"s{index}", f"b{index}", "n > 0")
    bed.settle()
    source.start(EVERY_US)
    bed.run(WARM_S)
    counter = MessageCounter()
    bed.observe(counter)
    processes = [host.process for host in bed.world.hosts.values()]
    clocks = [_StepClock(each.machine) for each in processes if each is not None]
    sent = len(source.sent)
    bed.run(seconds)
    spent_s = sum(clock.spent_ns for clock in clocks) / 1e9
    return Counted(commit, hops, len(source.sent) - sent, dict(counter.kinds), spent_s)


def differences(counted: Sequence[Counted]) -> dict[int, list[str]]:
    """Return by number of hops the kinds of which two commits have sent different numbers."""
    found: dict[int, list[str]] = {}
    for hops in dict.fromkeys(each.hops for each in counted):
        of = [each.messages for each in counted if each.hops == hops]
        kinds = sorted({kind for each in of for kind in each})
        found[hops] = [kind for kind in kinds if len({each.get(kind, 0) for each in of}) > 1]
    return found
