"""The interface of a simulated machine; brokers and the toys of the tests implement it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeAlias, cast

from gapless.core.context import StepTime
from gapless.core.effects import Effect
from gapless.core.errors import UsageError
from gapless.core.events import MachineEvent
from gapless.core.ids import BrokerId, CellId
from gapless.core.message_counts import MessageCount
from gapless.core.parameters import Parameters
from gapless.messages.records import Record
from gapless.overlay.neighbourhood import Neighbourhood

__all__ = ["BROKER", "Factory", "SimulatedMachine", "load_factory"]

BROKER = "gapless.broker:Broker"
"""The import path of the product's machine."""


class SimulatedMachine(Protocol):
    """A deterministic state machine with one entry point."""

    def step(self, event: MachineEvent, now: StepTime) -> list[Effect]:
        """Handle an event, or None if only time has passed; return the effects.

        The world calls it with None right after it created the machine, to get the effects of the
        start.
        """

    def step_all(self, events: Sequence[MachineEvent], now: StepTime) -> list[Effect]:
        """Handle events that happened together, in order."""

    def next_timer(self) -> int | None:
        """Return the ``now`` at which a step is due without an event, or None."""

    @property
    def coverage_marks(self) -> Mapping[str, int]:
        """How often each rare branch was taken."""

    @property
    def message_counts(self) -> Iterable[MessageCount]:
        """The messages to and from other machines, by kind."""


Factory: TypeAlias = Callable[
    [BrokerId, CellId, Parameters, Neighbourhood, Iterable[Record], StepTime], SimulatedMachine
]
"""Creates a machine from the records on disk, for its next incarnation."""


def load_factory(name: str = BROKER) -> Factory:
    """Return the factory named by ``module:name``."""
    module, _, attribute = name.partition(":")
    try:
        return cast("Factory", getattr(importlib.import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise UsageError(f"the machine {name} cannot be imported: {error}") from error
