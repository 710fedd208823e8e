"""The comparison of two brokers' views of the path between them, by edge epochs (RS-11).

A receiver names the epochs above the first one of the edges on its path to a feeder. The feeder
compares them with its own path. An edge whose epoch is equal in both views has the same cells
behind it in both. An operation raises the shape versions of both cells of every edge whose epoch it
sets. So an epoch that is above both shows that the other broker has newer records of both cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from gapless.core.ids import CellId
from gapless.messages.overlay import FIRST_SHAPE, ShapeVersion
from gapless.overlay.neighbourhood import Neighbourhood

__all__ = ["SAME_VIEW", "PathEpochs", "ViewDifference", "compare", "epochs_to"]

PathEpochs: TypeAlias = tuple[tuple[CellId, CellId, ShapeVersion], ...]
"""The edges of a path that have an epoch above the first one, with both cells in order."""


class ViewDifference(NamedTuple):
    """What a feeder finds when it compares the views; nothing if both are equal."""

    outdated: tuple[CellId, ...] = ()
    """The cells whose records the receiver may have in an older version; it is sent these."""
    missing: tuple[CellId, ...] = ()
    """The cells whose records the receiver has in a newer version, and this broker needs."""


SAME_VIEW = ViewDifference()


def epochs_to(tree: Neighbourhood, cell: CellId) -> PathEpochs:
    """Return the epochs above the first one of the edges between the own cell and another."""
    return tuple(sorted(_edges(tree, tree.path(cell))))


def compare(tree: Neighbourhood, receiver: CellId, named: PathEpochs) -> ViewDifference:
    """Compare the epochs that a receiver has named with the own path to its cell."""
    path = tree.find_path(receiver)
    if path is not None and named == epochs_to(tree, receiver):
        return SAME_VIEW
    newer = [(a, b) for a, b, epoch in named if _is_newer(tree, a, b, epoch)]
    missing = dict.fromkeys(cell for edge in newer for cell in edge)
    if path is None:
        return ViewDifference((), (*dict.fromkeys((receiver, *missing)),))
    older = [(a, b) for a, b, epoch in named if _is_older(tree, a, b, epoch)]
    equal = {*named}
    # an edge that the receiver does not name is explained if the receiver knows an end better
    unnamed = [
        (a, b)
        for a, b, epoch in _edges(tree, path)
        if (a, b, epoch) not in equal and a not in missing and b not in missing
    ]
    if not older and not unnamed:
        return ViewDifference((), (*missing,))
    held = (cell for edge in older for cell in edge if tree.record(cell) is not None)
    return ViewDifference((*dict.fromkeys((tree.own, *path, *held)),), (*missing,))


def _edges(
    tree: Neighbourhood, path: tuple[CellId, ...]
) -> Iterator[tuple[CellId, CellId, ShapeVersion]]:
    for one, other in pairwise((tree.own, *path)):
        epoch = tree.epoch(one, other)
        if epoch is not None and epoch > FIRST_SHAPE:
            yield min(one, other), max(one, other), epoch


def _is_newer(tree: Neighbourhood, one: CellId, other: CellId, epoch: ShapeVersion) -> bool:
    """Return whether a named epoch is newer than this broker's view of the edge."""
    held = tree.epoch(one, other)
    if held is not None:
        return epoch > held
    return epoch > tree.shape_version(one) and epoch > tree.shape_version(other)


def _is_older(tree: Neighbourhood, one: CellId, other: CellId, epoch: ShapeVersion) -> bool:
    """Return whether a named epoch is older than this broker's view of the edge."""
    return tree.epoch(one, other) != epoch and not _is_newer(tree, one, other, epoch)
