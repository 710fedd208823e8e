"""``profile``: traffic and interests of cells, from audit logs of brokers, and a tree for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gapless.audit.facts import Control
from gapless.audit.writer_runs import logs_of
from gapless.core.errors import UsageError
from gapless.overlay.neighbourhood import Topology
from gapless.runtime.overlay_config import OverlayConfig
from gapless.spark.jobs.audit_logs import facts_at
from gapless.spark.jobs.interests import CellInterest, interests_of, wanted_in
from gapless.spark.jobs.shipping import ready_executors
from gapless.spark.jobs.trees import CellEdge, TrafficGroup, better_tree, hops, present_degree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DEGREE", "CellTraffic", "Profile", "edges_of", "profile"]

DEGREE: Final = 3
"""The default maximum of neighbours of a cell."""


class CellTraffic(msgspec.Struct, frozen=True):
    """Events that were published in one cell and delivered in another."""

    source: str
    target: str
    events: int
    wanted: int | None = None
    """How many match any filter of the target cell; None if logs have no attributes."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic between cells, their interests, and the proposed tree."""

    events: int
    """The number of published events."""
    flows: list[CellTraffic]
    """Between all cells, also within one; the largest first."""
    interests: list[CellInterest]
    """The interests of each cell."""
    groups: list[TrafficGroup]
    """Events by their source cell and all their target cells; the largest first."""
    degree: int
    present: list[CellEdge]
    present_hops: int
    present_degree: int
    proposed: list[CellEdge]
    """The best tree found within the degree; the current one if none has fewer hops."""
    proposed_hops: int

    @property
    def is_within_degree(self) -> bool:
        """Whether the current tree is within the degree; if not, every other may cost more."""
        return self.present_degree <= self.degree

    @property
    def is_better(self) -> bool:
        """Whether the proposed tree costs less than the current one."""
        return self.proposed_hops < self.present_hops

    @property
    def saving(self) -> float:
        """The share of saved hops; negative if the degree costs more than the search saves."""
        return 1 - self.proposed_hops / self.present_hops if self.present_hops else 0.0

    @property
    def added(self) -> list[CellEdge]:
        """Edges of the proposed tree that the current one does not have."""
        return sorted(set(self.proposed) - set(self.present))

    @property
    def removed(self) -> list[CellEdge]:
        """Edges of the current tree that the proposed one does not have."""
        return sorted(set(self.present) - set(self.proposed))

    def overlay(self, present: OverlayConfig) -> OverlayConfig:
        """Return the proposed tree, with the cells and brokers of the current one."""
        cells = {cell.name: list(cell.brokers) for cell in present.topology.cells}
        topology = Topology.of(cells, self.proposed)
        return msgspec.structs.replace(present, topology=topology)


def edges_of(overlay: OverlayConfig) -> list[CellEdge]:
    """Return the edges of a tree, each once."""
    pairs = (
        (cell.name, neighbour) for cell in overlay.topology.cells for neighbour in cell.neighbours
    )
    return sorted({(min(pair), max(pair)) for pair in pairs})


def profile(
    spark: SparkSession,
    paths: Sequence[str | Path],
    present: OverlayConfig,
    *,
    degree: int = DEGREE,
) -> Profile:
    """Return the traffic and the interests of cells from audit logs of brokers, and a tree for
    them.

    Events are counted by the cell of their publication and the cells of their deliveries; other
    messages between brokers are not counted. No cell of the tree has more neighbours than
    ``degree``, which may cost hops if the current tree has more.
    """
    ready_executors(spark)
    facts = facts_at(spark, paths).persist()
    try:
        seen, interests = _seen(facts)
        groups = groups_of(seen)
        wanted = wanted_in(seen.where("kind = 'p'"), interests)
    finally:
        facts.unpersist()
    edges = edges_of(present)
    cells = [cell.name for cell in present.topology.cells]
    proposed = better_tree(cells, groups, edges, degree)
    return Profile(
        events=sum(group.count for group in groups),
        flows=_flows(groups, wanted),
        interests=interests,
        groups=groups,
        degree=degree,
        present=edges,
        present_hops=hops(groups, edges),
        present_degree=present_degree(edges),
        proposed=proposed,
        proposed_hops=hops(groups, proposed),
    )


def _flows(
    groups: Sequence[TrafficGroup], wanted: Mapping[tuple[str, str], int] | None
) -> list[CellTraffic]:
    """Return the matrix of cells, the largest first; also events that match and never came."""
    events = dict.fromkeys(wanted or (), 0)
    for group in groups:
        for target in group.targets:
            pair = (group.source, target)
            events[pair] = events.get(pair, 0) + group.count
    flows = [
        CellTraffic(*pair, count, None if wanted is None else wanted.get(pair, 0))
        for pair, count in events.items()
    ]
    return sorted(
        flows, key=lambda each: (-each.events, -(each.wanted or 0), each.source, each.target)
    )


def _seen(facts: DataFrame) -> tuple[DataFrame, list[CellInterest]]:
    """Return what brokers published and delivered, with their cells; and the cells' interests."""
    from pyspark.sql import functions as f

    rows = facts.where("kind = 'c'").select("control").toArrow().column("control").to_pylist()
    controls = [*map(msgspec.msgpack.Decoder(Control).decode, rows)]
    logs = logs_of(controls)
    logged_cells = [
        (run, log.header.cell) for run, log in logs.items() if log.header.side == "broker"
    ]
    if not logged_cells:
        raise UsageError("there is no log of a broker: only logs of brokers contain cells")
    cells = f.broadcast(facts.sparkSession.createDataFrame(logged_cells, "run string, cell string"))
    return facts.where("kind IN ('p', 'd')").join(cells, "run"), interests_of(controls)


def groups_of(seen: DataFrame) -> list[TrafficGroup]:
    """Return events by source and destinations, the largest group first."""
    from pyspark.sql import functions as f

    sources = f.max(f.when(f.col("kind") == "p", f.col("cell"))).alias("source")
    targets = f.array_sort(f.collect_set(f.when(f.col("kind") == "d", f.col("cell"))))
    found = (
        seen.groupBy("pubend", "tick")
        .agg(sources, targets.alias("targets"))
        .where("source IS NOT NULL")
        .groupBy("source", "targets")
        .count()
        .collect()
    )
    groups = [TrafficGroup(row["source"], tuple(row["targets"]), row["count"]) for row in found]
    return sorted(groups, key=lambda group: (-group.count, group.source, group.targets))
