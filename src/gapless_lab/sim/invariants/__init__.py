"""Probes: the invariants of the protocols, checked inside the brokers at every step of a run.

Clients see lost and doubled events only when it is too late to tell why. A probe sees the first
wrong promise: a table that claims what it does not cover, silence over what somebody is owed, a
report above what is still needed. Each is named after its invariant, I1 to I15, or its rule.

One :class:`~.watch.Watch` sees every step once and shows each probe what it asked for (messages by
kind, pieces of streams, changes on disks, steps), so that all probes together cost less than the
brokers that they look at. What they know in common is in :class:`~.insight.Insight`.

That sequences of a publisher grow in the log (I12) is checked by the oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gapless_lab.sim.invariants.convergence import Convergence
from gapless_lab.sim.invariants.cursors import ExactReads, Strands
from gapless_lab.sim.invariants.durability import Durability
from gapless_lab.sim.invariants.feeds import Feeds
from gapless_lab.sim.invariants.fencing import Fencing
from gapless_lab.sim.invariants.global_state import Insight
from gapless_lab.sim.invariants.limits import Limits
from gapless_lab.sim.invariants.monitor import Invariant, Watch
from gapless_lab.sim.invariants.retention import LogKept, Reports
from gapless_lab.sim.invariants.silence import SilenceHonesty
from gapless_lab.sim.invariants.starts import Beginnings
from gapless_lab.sim.invariants.stream_epochs import Regimes
from gapless_lab.sim.invariants.tables import Tables
from gapless_lab.sim.invariants.ticks import LoggedFirst, Ticks

if TYPE_CHECKING:
    from gapless_lab.sim.runner import Run

__all__ = ["INVARIANTS", "Insight", "Invariant", "Watch", "watch"]

INVARIANTS: tuple[Callable[[Insight], Invariant], ...] = (
    Ticks,
    LoggedFirst,
    SilenceHonesty,
    Tables,
    Regimes,
    Strands,
    Beginnings,
    ExactReads,
    Reports,
    LogKept,
    Feeds,
    Fencing,
    Durability,
    Limits,
    Convergence,
)
"""Every invariant that has a probe, in the order in which they are asked."""


def watch(run: Run) -> Watch:
    """Return a watch with all invariants, for a run."""
    return Watch(run, INVARIANTS)
