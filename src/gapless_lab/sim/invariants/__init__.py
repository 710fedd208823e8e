"""Probes: the invariants of the protocols, checked inside the brokers at every step of a run.

Clients see lost and doubled events only when it is too late to tell why. A probe sees the first
wrong promise: a table that claims what it does not cover, silence over what somebody is owed, a
report above what is still needed. Each is named after its invariant, I1 to I15, or its rule.

One :class:`~.monitor.InvariantMonitor` sees every step once and shows each probe what it asked for (messages by
kind, pieces of streams, changes on disks, steps), so that all probes together cost less than the
brokers that they look at. What they know in common is in :class:`~.global_state.GlobalState`.

That sequences of a publisher grow in the log (I12) is checked by the oracle.
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
from gapless_lab.sim.invariants.retention import ReportInvariant, RetentionInvariant
from gapless_lab.sim.invariants.silence import SilenceInvariant
from gapless_lab.sim.invariants.starts import StartInvariant
from gapless_lab.sim.invariants.stream_epochs import StreamEpochInvariant
from gapless_lab.sim.invariants.tables import TableInvariant
from gapless_lab.sim.invariants.ticks import LoggedBeforeSentInvariant, TickInvariant

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
    FencingInvariant,
    DurabilityInvariant,
    LimitInvariant,
    ConvergenceInvariant,
)
"""Every invariant that has a probe, in the order in which they are asked."""


def monitor_run(run: SimulationRun) -> InvariantMonitor:
    """Return a watch with all invariants, for a run."""
    return InvariantMonitor(run, INVARIANTS)
