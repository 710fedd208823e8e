"""A broker that takes together what becomes durable together, for the simulator.

The simulator's disk reports writes one by one, at one moment. This machine gathers them and takes
them in one step when the moment is over, as the driver does, so that the simulator's faults and
checks also cover :meth:`gapless.broker.Broker.step_all`.
"""

from __future__ import annotations

from typing import Any

from gapless.broker import Broker
from gapless.core.machine import ClientRequest, Effect, MachineEvent, StepTime, Written
from gapless.messages.clients import Publish

__all__ = ["BatchingBroker"]


class BatchingBroker(Broker):
    """Steps through batches of writes and of publications."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._gathered: list[MachineEvent] = []
        self._gathered_at = 0

    def step(self, event: MachineEvent, now: StepTime) -> list[Effect]:
        """Gather what may come together; take all that was gathered before anything else."""
        gathered = self._gathered
        if _may_wait(event) and (not gathered or type(gathered[-1]) is type(event)):
            gathered.append(event)
            self._gathered_at = now.now
            return []
        self._gathered = []
        if _may_wait(event):
            effects = self.step_all(gathered, now)
            self._gathered = [event]
            self._gathered_at = now.now
            return effects
        effects = self.step_all(gathered, now) if gathered else []
        return effects + self.step_all((event,), now)

    def next_timer(self) -> int | None:
        """What was gathered waits for nothing but the end of this moment."""
        due = super().next_timer()
        if not self._gathered:
            return due
        return self._gathered_at if due is None else min(due, self._gathered_at)


def _may_wait(event: MachineEvent) -> bool:
    return isinstance(event, Written) or (
        isinstance(event, ClientRequest) and isinstance(event.request, Publish)
    )
