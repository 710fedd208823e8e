"""Regions: cells that may fail together, and the seeds that have such failures.

Faults of one host or one link never make an island of a cell with several brokers, nor a barrier
that bypass does not cross: too many faults would have to coincide. Therefore whole cells fail in
some seeds (:mod:`.outages`), and in some the cells have different sizes. Both have their own random
numbers, so seeds without them do not change.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from gapless_lab.sim.world_tree import CellGraph

if TYPE_CHECKING:
    from gapless_lab.sim.options import SimulationOptions

__all__ = ["BARRIERS", "OUTAGE_KINDS", "with_regions"]

BARRIERS: Final = ("barrier crash", "barrier isolated")
"""Kinds that break δ + 1 cells in a row, one more than bypass covers."""

OUTAGE_KINDS: Final = (
    "cell crash",
    "cell isolated",
    "side cut",
    "one-way side cut",
    *BARRIERS,
)
"""Kinds of faults that break whole cells; all of them heal."""

OUTAGES_SHARE: Final = 0.25
"""Of the seeds with several cells and with faults: the share in which whole cells fail."""

BARRIER_SHARE: Final = 0.4
"""The share of those that have barriers, if their tree is long enough."""

MIXED_SHARE: Final = 0.4
"""Of the seeds with several cells of several brokers: the share with cells of different sizes."""


def with_regions(options: SimulationOptions) -> SimulationOptions:
    """Return the options with cells of mixed sizes and failures of whole cells, in some seeds."""
    return _with_outages(_with_mixed_cells(options))


def _with_mixed_cells(options: SimulationOptions) -> SimulationOptions:
    random = Random(f"{options.seed}/mixed cells")  # noqa: S311
    mixed = min(options.cells, options.brokers_per_cell) > 1 and random.random() < MIXED_SHARE
    return options.with_(mixed_cells=True) if mixed else options


def _with_outages(options: SimulationOptions) -> SimulationOptions:
    random = Random(f"{options.seed}/outages")  # noqa: S311
    if options.calm or options.cells < 2 or random.random() >= OUTAGES_SHARE:
        return options
    kinds = random.sample(OUTAGE_KINDS[:4], random.randint(1, 3))
    delta = options.delta
    longest = CellGraph.of(options.topology()).longest_row()
    if longest > 0 and random.random() < BARRIER_SHARE:
        kinds.append(random.choice(BARRIERS))
        delta = min(delta, longest - 1)
    busy = 0.1 / options.pace  # slower parameters make the run longer but do not add faults
    struck = {kind: round(random.choice((0.5, 1.0, 2.0)) * busy, 3) for kind in kinds}
    return options.with_(
        delta=delta,
        rates={**options.rates, **struck},
        # a session times out within 1,500 paced ms: some outages end before, most do not
        outage_ms=int(random.choice((3_000, 6_000, 12_000)) * options.pace),
        relapse=random.choice((0.0, 0.3, 0.6)),
    )
