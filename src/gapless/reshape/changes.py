"""The new records of the cells that an operation changes (RS-2, RS-15, section "SHIFT").

Each function takes the present records of the participants and returns their new ones. An operation
raises the shape version of every cell whose edges it changes, in the term of that cell. The epoch of
an edge is the greater shape version of its two cells; an operation sets it on an edge that it makes
and on an edge behind which it changes what lies there. It leaves all other epochs.
"""

from __future__ import annotations

from msgspec.structs import replace

from gapless.core.ids import CellId
from gapless.messages.overlay import CellEdge, CellMember, CellRecord, ShapeVersion, Term

__all__ = ["appended", "detached", "epoch_between", "shifted"]


def shifted(
    moved: CellRecord, old: CellRecord, new: CellRecord
) -> tuple[CellRecord, CellRecord, CellRecord]:
    """Return the records after SHIFT(i, j, k): cell i has left its neighbour j for k.

    The edge between j and k gets a new epoch too: i lies behind it now.
    """
    i, j, k = (_raised(each) for each in (moved, old, new))
    return (
        _with_edges(i, without=(j,), to=(k,)),
        _with_edges(j, without=(i,), to=(k,)),
        _with_edges(k, to=(i, j)),
    )


def appended(
    name: CellId, members: tuple[CellMember, ...], neighbour: CellRecord
) -> tuple[CellRecord, CellRecord]:
    """Return the records after APPEND(i, j): the new cell, and its only neighbour."""
    j = _raised(neighbour)
    leader = min(member.broker for member in members)
    i = CellRecord(name, members, (), leader, shape_version=ShapeVersion(Term(), 2))
    return _with_edges(i, to=(j,)), _with_edges(j, to=(i,))


def detached(cell: CellRecord, neighbour: CellRecord) -> tuple[CellRecord, CellRecord]:
    """Return the records after DETACH(i): the outer cell i alone, and its former neighbour.

    The detached cell has no leader, so nobody makes a second tree of it.
    """
    i, j = _raised(cell), _raised(neighbour)
    return replace(_with_edges(i, without=(j,)), leader=""), _with_edges(j, without=(i,))


def epoch_between(cell: CellRecord, other: CellRecord) -> ShapeVersion:
    """Return the epoch that an operation gives to the edge between two cells that it has changed."""
    return max(cell.shape_version, other.shape_version)


def _raised(cell: CellRecord) -> CellRecord:
    return replace(cell, shape_version=ShapeVersion(cell.term, cell.shape_version.count + 1))


def _with_edges(
    cell: CellRecord, *, without: tuple[CellRecord, ...] = (), to: tuple[CellRecord, ...] = ()
) -> CellRecord:
    """Return a record without some edges, and with others under new epochs, in the order of names."""
    changed = {each.name for each in (*without, *to)}
    kept = [edge for edge in cell.edges if edge.cell not in changed]
    made = [CellEdge(each.name, epoch_between(cell, each)) for each in to]
    edges = sorted((*kept, *made), key=lambda edge: edge.cell)
    return replace(cell, edges=tuple(edges))
