"""Who publishes and who subscribes while brokers and links fail, and where in the tree.

Clients sit at the two ends of the longest way through the tree and in its middle, so that every fault is
on the way of somebody. Those that are not durable know several brokers and go on at another one; durable
subscriptions stay at theirs.
"""

from __future__ import annotations

from gapless.core.ids import CellId
from gapless.demo.workload import ABROAD, EVERYTHING, LARGE, Cast, FeedPart, WatcherPart
from gapless.runtime.overlays import Overlay

__all__ = ["cast_for", "longest_way"]


def longest_way(overlay: Overlay) -> tuple[CellId, ...]:
    """Return the longest way through the tree: the farthest cell from any, and the farthest from it."""
    reach = len(overlay.topology.cells)
    around = overlay.topology.neighbourhood(overlay.topology.cells[0].name, reach)
    end = around.cells[-1].name
    other = overlay.topology.neighbourhood(end, reach).cells[-1].name
    way = (end, *overlay.topology.neighbourhood(end, reach).path(other))
    return min(way, way[::-1])


def cast_for(overlay: Overlay) -> Cast:
    """Give everybody a place."""
    brokers = {cell.name: cell.brokers for cell in overlay.topology.cells}
    way = [brokers[cell] for cell in longest_way(overlay)]
    near, middle, far = way[0], way[len(way) // 2], way[-1]
    everywhere = tuple(cell[0] for cell in way)
    return Cast(
        feeds=(
            FeedPart("nyse-1", "NYSE", near[:1], 0.3),
            FeedPart("nasdaq", "NASDAQ", middle[:1], 0.3),
            FeedPart("lse", "LSE", far[-1:], 0.2),
            FeedPart("tse", "TSE", near[-1:], 0.2, deadline_s=2.0),
        ),
        watchers=(
            WatcherPart("tape", EVERYTHING, far),
            WatcherPart("abroad", ABROAD, near[::-1]),
            WatcherPart("roamer", EVERYTHING, everywhere[::-1]),
            WatcherPart("desk", EVERYTHING, middle[-1:], is_durable=True),
            WatcherPart("ledger", LARGE, far[:1], is_durable=True, order="total"),
        ),
        router=middle[0],
    )
