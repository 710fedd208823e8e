"""Invariants of the protocols, checked inside the brokers after every step of a run.

A client sees a lost or duplicated event too late to find the cause. An invariant finds the first
wrong state: a table that does not cover what it claims, silence over a tick that a subscription
must receive, an ack report above a tick that is still needed. Each is named after its invariant, I1
to I15 or R-1 to R-11, or its rule.

One :class:`~.monitor.InvariantMonitor` observes every step once and passes each invariant the
messages, knowledge ranges, disk changes and steps that it handles. So all invariants together cost
less than the brokers that they observe. :class:`~.global_state.GlobalState` holds the state that
they share.

The oracle checks that the sequences of a publisher grow in the log (I12).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gapless_lab.sim.invariants.convergence import ConvergenceInvariant
from gapless_lab.sim.invariants.cursors import CursorInvariant, ReadInvariant
from gapless_lab.sim.invariants.durability import DurabilityInvariant
from gapless_lab.sim.invariants.feeds import FeedInvariant
from gapless_lab.sim.invariants.fencing import FencingInvariant
from gapless_lab.sim.invariants.global_state import GlobalState
from gapless_lab.sim.invariants.limits import LimitInvariant
from gapless_lab.sim.invariants.monitor import Invariant, InvariantMonitor
from gapless_lab.sim.invariants.operations import OperationInvariant
from gapless_lab.sim.invariants.retention import ReportInvariant, RetentionInvariant
from gapless_lab.sim.invariants.silence import SilenceInvariant
from gapless_lab.sim.invariants.starts import StartInvariant
from gapless_lab.sim.invariants.stream_epochs import StreamEpochInvariant
from gapless_lab.sim.invariants.tables import TableInvariant
from gapless_lab.sim.invariants.ticks import LoggedBeforeSentInvariant, TickInvariant
from gapless_lab.sim.invariants.tree import QuietEdgeInvariant, TreeInvariant

if TYPE_CHECKING:
    from gapless_lab.sim.runner import SimulationRun

__all__ = ["INVARIANTS", "GlobalState", "Invariant", "InvariantMonitor", "monitor_run"]

INVARIANTS: tuple[Callable[[GlobalState], Invariant], ...] = (
    TickInvariant,
    LoggedBeforeSentInvariant,
    SilenceInvariant,
    TableInvariant,
    StreamEpochInvariant,
    CursorInvariant,
    StartInvariant,
    ReadInvariant,
    ReportInvariant,
    RetentionInvariant,
    FeedInvariant,
    TreeInvariant,
    QuietEdgeInvariant,
    OperationInvariant,
    FencingInvariant,
    DurabilityInvariant,
    LimitInvariant,
    ConvergenceInvariant,
)
"""All invariants, in the order in which they are checked."""


def monitor_run(run: SimulationRun) -> InvariantMonitor:
    """Return a monitor of a run with all invariants."""
    return InvariantMonitor(run, INVARIANTS)
