"""The publishers and subscribers of a run, and their brokers.

Clients are at the two ends of the longest path through the tree and in its middle, so that every
fault is on the path of some client. Subscribers that are not durable know several brokers and
continue at another one. Of the durable ones two know one broker and wait for it; two know several
and fail over. Temporary subscribers start during a fault.
"""

from __future__ import annotations

from typing import Final

from gapless.core.ids import BrokerId, CellId
from gapless.runtime.overlay_config import OverlayConfig
from gapless_lab.demo.workload import (
    ABROAD,
    DESK_LATER,
    EVERYTHING,
    LARGE,
    DemoRoles,
    PublisherRole,
    SubscriberRole,
)

__all__ = ["FICKLE", "FILTERS", "NEWCOMERS", "VISITOR", "assign_roles", "longest_path"]

FICKLE: Final = "fickle"
"""The subscriber that changes its filter in every fault."""

FILTERS: Final = (EVERYTHING, DESK_LATER)
"""The filters of the fickle subscriber, in turn; each matches events of every stream, so that all
its streams can be observed."""

VISITOR: Final = "visitor"
"""The subscriber that starts in every fault and leaves after it."""

NEWCOMERS: Final = ("newcomer-1", "newcomer-2", "newcomer-3", "newcomer-4")
"""Subscribers that start when one broker of each cell is left, one after the other, and remain.
They are few, because all of them are connected at the end."""


def longest_path(overlay: OverlayConfig) -> tuple[CellId, ...]:
    """Return the longest path through the tree: from the farthest cell of any to the farthest of
    that.
    """
    reach = len(overlay.topology.cells)
    around = overlay.topology.neighbourhood(overlay.topology.cells[0].name, reach)
    end = around.cells[-1].name
    other = overlay.topology.neighbourhood(end, reach).cells[-1].name
    path = (end, *overlay.topology.neighbourhood(end, reach).path(other))
    return min(path, path[::-1])


def assign_roles(overlay: OverlayConfig) -> DemoRoles:
    """Assign brokers to all clients."""
    brokers = {cell.name: cell.brokers for cell in overlay.topology.cells}
    path = [brokers[cell] for cell in longest_path(overlay)]
    near, middle, far = path[0], path[len(path) // 2], path[-1]
    everywhere = tuple(cell[0] for cell in path)
    return DemoRoles(
        publishers=(
            PublisherRole("nyse-1", "NYSE", near[:1], 0.3),
            PublisherRole("nasdaq", "NASDAQ", middle[:1], 0.3),
            PublisherRole("lse", "LSE", far[-1:], 0.2),
            PublisherRole("tse", "TSE", near[-1:], 0.2, deadline_s=2.0),
        ),
        subscribers=(
            SubscriberRole("tape", EVERYTHING, far),
            SubscriberRole("abroad", ABROAD, near[::-1]),
            SubscriberRole("roamer", EVERYTHING, everywhere[::-1]),
            SubscriberRole("desk", EVERYTHING, middle[-1:], is_durable=True),
            SubscriberRole("ledger", LARGE, far[:1], is_durable=True, order="total"),
            SubscriberRole("refugee", EVERYTHING, far, is_durable=True),
            SubscriberRole(FICKLE, FILTERS[0], _each_once(middle[::-1], near), is_durable=True),
            *_temporary(near, far),
        ),
        router=middle[0],
    )


def _temporary(near: tuple[BrokerId, ...], far: tuple[BrokerId, ...]) -> list[SubscriberRole]:
    """Return the temporary subscribers, each at one end of the tree or, if that is lost, at the
    other.
    """
    here, there = _each_once(far, near), _each_once(near, far)
    return [
        SubscriberRole(VISITOR, EVERYTHING, here),
        *(
            SubscriberRole(name, EVERYTHING, there if index % 2 else here)
            for index, name in enumerate(NEWCOMERS, start=1)
        ),
    ]


def _each_once(*cells: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    """Return the brokers of cells without repetition; in a small tree the cells may be the same."""
    return tuple(dict.fromkeys(broker for cell in cells for broker in cell))
