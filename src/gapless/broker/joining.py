"""Where a broker that was started to be appended is now (RS-15).

A newcomer is alone in a cell of the name that was asked for. It is appended under an id that the
coordinator makes, and its records are stored under that id. From then on it is the broker of that
cell, whatever its configuration says.
"""

from __future__ import annotations

from collections.abc import Iterable

from gapless.core.ids import CellId
from gapless.messages.records import NeighbourhoodRecord, Record
from gapless.overlay.neighbourhood import Neighbourhood

__all__ = ["joined_neighbourhood"]


def joined_neighbourhood(configured: CellId, records: Iterable[Record]) -> Neighbourhood | None:
    """Return the neighbourhood that a newcomer has joined, or None if it is still alone."""
    for record in records:
        if isinstance(record, NeighbourhoodRecord) and record.own != configured:
            return Neighbourhood(record.own, record.version, record.cells)
    return None
