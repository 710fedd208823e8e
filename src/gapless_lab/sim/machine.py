"""What the simulator asks of a machine, so that a broker and a toy run in the same world."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, cast

from gapless.core.errors import UsageError
from gapless.core.ids import BrokerId, CellId
from gapless.core.machine import Effect, MachineEvent, StepTime
from gapless.core.parameters import Parameters
from gapless.messages.records import Record
from gapless.overlay.neighbourhood import Neighbourhood

__all__ = ["BROKER", "Factory", "SimulatedMachine", "load_factory"]

BROKER = "gapless.broker:Broker"
"""Where the product's own machine is."""


class SimulatedMachine(Protocol):
    """A deterministic state machine with one door."""

    def step(self, event: MachineEvent, now: StepTime) -> list[Effect]:
        """Take an event, or None if only time has passed; return what is to be done.

        The world calls it with None right after it made the machine, so that what the machine
        wants done at its start comes out.
        """

    def step_all(self, events: Sequence[MachineEvent], now: StepTime) -> list[Effect]:
        """Take events that happened together, in order."""

    def next_timer(self) -> int | None:
        """Return the ``now`` at which a step is due without an event, or None."""

    @property
    def coverage_marks(self) -> Mapping[str, int]:
        """How often rare branches were taken."""


Factory: TypeAlias = Callable[
    [BrokerId, CellId, Parameters, Neighbourhood, Iterable[Record], StepTime], SimulatedMachine
]
"""Makes a machine from what is on disk, for its next life."""


def load_factory(name: str = BROKER) -> Factory:
    """Return the factory that ``module:name`` stands for."""
    module, _, attribute = name.partition(":")
    try:
        return cast("Factory", getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise UsageError(f"there is no machine {name} to simulate: {error}") from error
