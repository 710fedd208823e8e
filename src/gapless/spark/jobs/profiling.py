"""``profile``: traffic between cells, from the audit logs of brokers, and a tree that suits it better."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gapless.audit.facts import Control
from gapless.audit.timelines import logs_of
from gapless.core.errors import UsageError
from gapless.overlay.neighbourhood import Topology
from gapless.runtime.overlays import Overlay
from gapless.spark.jobs.audit_logs import facts_at
from gapless.spark.jobs.shipping import ready_executors
from gapless.spark.jobs.trees import Edge, Group, better_tree, hops, present_degree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DEGREE", "Flow", "Profile", "edges_of", "groups_of", "profile"]

DEGREE: Final = 3
"""Neighbours that a cell has at most, unless told otherwise."""


class Flow(msgspec.Struct, frozen=True):
    """Events that were published in one cell and delivered in another."""

    source: str
    target: str
    events: int


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Who talks to whom, and over which tree it would cost less."""

    events: int
    """Published."""
    flows: list[Flow]
    """Between all cells, also within one; the largest first."""
    groups: list[Group]
    """Events by where they came from and all the cells they went to; the largest first."""
    degree: int
    present: list[Edge]
    present_hops: int
    present_degree: int
    better: list[Edge]
    better_hops: int

    @property
    def saving(self) -> float:
        """The part of all hops that is saved."""
        return 1 - self.better_hops / self.present_hops if self.present_hops else 0.0

    @property
    def added(self) -> list[Edge]:
        """Edges that the better tree has and the present one has not."""
        return sorted(set(self.better) - set(self.present))

    @property
    def removed(self) -> list[Edge]:
        """Edges that the present tree has and the better one has not."""
        return sorted(set(self.present) - set(self.better))

    def overlay(self, present: Overlay) -> Overlay:
        """Return the better tree, with the cells and brokers of the present one."""
        cells = {cell.name: list(cell.brokers) for cell in present.topology.cells}
        topology = Topology.of(cells, self.better)
        return msgspec.structs.replace(present, topology=topology)


def edges_of(overlay: Overlay) -> list[Edge]:
    """Return the edges of a tree, each once."""
    pairs = (
        (cell.name, neighbour) for cell in overlay.topology.cells for neighbour in cell.neighbours
    )
    return sorted({(min(pair), max(pair)) for pair in pairs})


def profile(
    spark: SparkSession, paths: Sequence[str | Path], present: Overlay, *, degree: int = DEGREE
) -> Profile:
    """Return the traffic that audit logs of brokers tell of, and a better tree for it.

    Events are counted by where they were published and in which cells they were delivered; what else
    flows between brokers is not.
    """
    ready_executors(spark)
    groups = groups_of(facts_at(spark, paths))
    edges = edges_of(present)
    cells = [cell.name for cell in present.topology.cells]
    better = better_tree(cells, groups, edges, degree)
    flows: dict[tuple[str, str], int] = {}
    for group in groups:
        for target in group.targets:
            pair = (group.source, target)
            flows[pair] = flows.get(pair, 0) + group.count
    return Profile(
        events=sum(group.count for group in groups),
        flows=[Flow(*pair, count) for pair, count in sorted(flows.items(), key=_largest)],
        groups=groups,
        degree=degree,
        present=edges,
        present_hops=hops(groups, edges),
        present_degree=present_degree(edges),
        better=better,
        better_hops=hops(groups, better),
    )


def _largest(item: tuple[tuple[str, str], int]) -> tuple[int, tuple[str, str]]:
    return -item[1], item[0]


def groups_of(facts: DataFrame) -> list[Group]:
    """Return events by source and destinations, the largest group first."""
    from pyspark.sql import functions as f

    facts = facts.persist()
    try:
        rows = facts.where("kind = 'c'").select("control").toArrow().column("control").to_pylist()
        logs = logs_of(map(msgspec.msgpack.Decoder(Control).decode, rows))
        places = [
            (run, log.header.cell) for run, log in logs.items() if log.header.side == "broker"
        ]
        if not places:
            raise UsageError(
                "there is no log of a broker: only brokers know in which cell they are"
            )
        spark = facts.sparkSession
        cells = f.broadcast(spark.createDataFrame(places, "run string, cell string"))
        seen = facts.where("kind IN ('p', 'd')").join(cells, "run")
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
    finally:
        facts.unpersist()
    groups = [Group(row["source"], tuple(row["targets"]), row["count"]) for row in found]
    return sorted(groups, key=lambda group: (-group.count, group.source, group.targets))
