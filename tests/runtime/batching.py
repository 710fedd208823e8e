"""A broker that handles writes that become durable together in one step, for the simulator.

The simulator's disk reports writes one by one, at one time. This machine collects them and handles them in
one step when that time is over, as the driver does, so that the simulator's faults and checks also cover
:meth:`gapless.broker.Broker.step_all`.
"""

from __future__ import annotations

from typing import Any

from gapless.broker import Broker
from gapless.core.context import StepTime
from gapless.core.effects import Effect
from gapless.core.events import ClientRequest, MachineEvent, Written
from gapless.messages.clients import Publish

__all__ = ["BatchingBroker"]


class BatchingBroker(Broker):
    """Handles batches of writes and of publications."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._gathered: list[MachineEvent] = []
        self._gathered_at = 0

    def step(self, event: MachineEvent, now: StepTime) -> list[Effect]:
        """Collect what may be handled together; handle all that was collected before anything else."""
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
        """Return the current time while events are collected."""
        due = super().next_timer()
        if not self._gathered:
            return due
        return self._gathered_at if due is None else min(due, self._gathered_at)


def _may_wait(event: MachineEvent) -> bool:
    return isinstance(event, Written) or (
        isinstance(event, ClientRequest) and isinstance(event.request, Publish)
    )
