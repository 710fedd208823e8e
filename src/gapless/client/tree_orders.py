"""Wanted trees and plans of a client: what it shows before it orders a tree (RS-19)."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from gapless.core.errors import UsageError, shortened
from gapless.core.ids import BrokerId, CellId
from gapless.messages.overlay import CellMember, CellRecord
from gapless.messages.plans import ApplyPlan, NearbyCells, OrderedNewcomer, PlanReply
from gapless.reshape.planning.bounds import PairBound
from gapless.reshape.planning.plan import TreePlan, plan_between
from gapless.reshape.planning.trees import CellTree
from gapless.reshape.planning.wanted import named_tree, recorded_tree, shaped_tree

__all__ = [
    "NO_BOUNDS",
    "AppliedPlan",
    "AppliedStep",
    "PlanBoundOptions",
    "PlanProgress",
    "TreeOrder",
    "cell_named",
    "member_of",
    "ordered",
    "progress_of",
    "wanted_by",
]


class PlanBoundOptions(NamedTuple):
    """The bounds of a plan; those that are None have defaults."""

    degree: int | None = None
    diameter: int | None = None
    keep: Sequence[CellId] = ()
    near: Sequence[PairBound] = ()


NO_BOUNDS = PlanBoundOptions()
"""All bounds have their defaults."""


class TreeOrder(NamedTuple):
    """A plan as it is shown, and all that its order needs."""

    plan: TreePlan
    newcomers: Mapping[CellId, CellMember]
    bounds: PlanBoundOptions

    def message(self) -> ApplyPlan:
        """Return the request of the plan, under a new id."""
        present, wanted = self.plan.present, self.plan.wanted
        return ApplyPlan(
            0,
            f"plan {secrets.token_hex(8)}",
            present.edges,
            tuple(wanted),
            wanted.edges,
            tuple(OrderedNewcomer(cell, member) for cell, member in self.newcomers.items()),
            self.bounds.degree,
            self.bounds.diameter,
            tuple(self.bounds.keep),
            tuple(NearbyCells(each.cell, each.other, each.distance) for each in self.bounds.near),
        )


class AppliedStep(msgspec.Struct, frozen=True):
    """An operation that was done."""

    kind: str
    cells: tuple[CellId, ...]
    time_us: int
    """From the request to the answer, at the broker that executes the plan; 0 if not known."""

    def __str__(self) -> str:
        return f"{self.kind.upper()}({', '.join(self.cells)})"


class PlanProgress(msgspec.Struct, frozen=True):
    """How far a plan is."""

    done: int
    total: int
    state: str
    steps: tuple[AppliedStep, ...]
    """The operations that were done since the last call."""


class AppliedPlan(msgspec.Struct, frozen=True):
    """A plan that has led to the wanted tree."""

    done: int
    steps: tuple[AppliedStep, ...]


def progress_of(reply: PlanReply) -> PlanProgress:
    """Return the progress that a reply tells."""
    steps = tuple(AppliedStep(each.kind, each.cells, each.time_us) for each in reply.steps)
    return PlanProgress(reply.done, reply.total, reply.state, steps)


def cell_named(name: CellId, tree: Iterable[CellId]) -> CellId:
    """Return the cell of a tree with an id, or the only one with a name.

    >>> cell_named("b", ["a", "b#b1.7"])
    'b#b1.7'
    """
    cells = [*tree]
    found = [name] if name in cells else [each for each in cells if each.partition("#")[0] == name]
    if not found:
        raise UsageError(f"the tree has no cell {shortened(name)}")
    if len(found) > 1:
        shown = shortened(", ".join(sorted(found)))
        raise UsageError(f"several cells are named {shortened(name)}, write the id of one: {shown}")
    return found[0]


def wanted_by(text: str, present: CellTree) -> tuple[CellTree, dict[CellId, CellMember]]:
    """Return the tree that a file or a shape describes, and the brokers of its cells in a file."""
    from gapless.runtime.overlay_config import generate, is_overlay_file, load_overlay

    if not is_overlay_file(text):
        return shaped_tree(recorded_tree(generate(text).topology.cells), present), {}
    overlay = load_overlay(Path(text))
    named = recorded_tree(overlay.topology.cells)
    wanted = named_tree(named, present)
    brokers = {}
    for record in overlay.topology_with_addresses().cells:
        if record.name in wanted and record.name not in present:
            brokers[record.name] = newcomer_of(record)
    return wanted, brokers


def newcomer_of(record: CellRecord) -> CellMember:
    """Return the broker with which a new cell is appended."""
    if len(record.members) != 1:
        raise UsageError(f"the new cell {shortened(record.name)} must have one broker")
    return record.members[0]


def ordered(
    present: CellTree,
    wanted: CellTree,
    newcomers: Mapping[CellId, CellMember],
    bounds: PlanBoundOptions,
) -> TreeOrder:
    """Return the order of a tree, with the plan that leads there."""
    kept = bounds._replace(keep=[_kept(each, present) for each in bounds.keep])
    plan = plan_between(
        present,
        wanted,
        degree=bounds.degree,
        diameter=bounds.diameter,
        pairs=bounds.near,
        keep=kept.keep,
    )
    return TreeOrder(plan, newcomers, kept)


def _kept(name: CellId, present: CellTree) -> CellId:
    """Return the id of a cell to keep; the planner refuses one that does not exist."""
    known = any(each.partition("#")[0] == name for each in present)
    return cell_named(name, present) if known else name


Addresses: TypeAlias = Sequence[str]


def member_of(broker: BrokerId, addresses: Addresses) -> CellMember:
    """Return the broker of a new cell; it must have an address at which it is reached."""
    if isinstance(addresses, str) or not addresses:
        raise UsageError("addresses must be a list of host:port with at least one entry")
    return CellMember(broker, addresses=tuple(addresses))
