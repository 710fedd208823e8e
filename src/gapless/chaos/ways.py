"""Which streams must flow while faults last: those between brokers that are still connected.

Two brokers can talk if they are in each other's neighbourhood, both run, and nothing is cut between them
in either direction: a session needs both. A stream has a way if such pairs lead from the broker of its
pubend to the one of its watcher, whatever is lost between (P6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gapless.chaos.faults import Fault, Harm
from gapless.chaos.flow import Stream
from gapless.core.ids import BrokerId
from gapless.demo.workload import Cast, WatcherPart
from gapless.runtime.overlays import Overlay

__all__ = ["connected_parts", "streams_with_a_way"]


def connected_parts(overlay: Overlay, faults: Sequence[Fault]) -> list[set[BrokerId]]:
    """Return the parts into which faults divide the brokers that run."""
    down = {
        victim for fault in faults if fault.harm is not Harm.ISOLATE for victim in fault.victims
    }
    cuts = {frozenset(link) for fault in faults for link in fault.cuts}
    left = {broker: cell for broker, cell in overlay.brokers if broker not in down}
    parts: list[set[BrokerId]] = []
    while left:
        part, reached = [min(left)], set[BrokerId]()
        for broker in part:
            cell = left.pop(broker, None)
            if cell is None:
                continue
            reached.add(broker)
            around = overlay.topology.neighbourhood(cell, overlay.delta + 1).all_brokers()
            part += [each for each in around if each in left and {broker, each} not in cuts]
        parts.append(reached)
    return parts


def streams_with_a_way(
    overlay: Overlay,
    cast: Cast,
    present: Mapping[str, BrokerId | None],
    faults: Sequence[Fault],
) -> list[Stream]:
    """Return the streams that must flow while faults last; ``present`` is where watchers are now."""
    parts = connected_parts(overlay, faults)
    running = {broker for part in parts for broker in part}
    homes = {feed.pubend: feed.brokers[0] for feed in cast.feeds}
    found = []
    for watcher in cast.watchers:
        place = _place(watcher, present[watcher.name], running)
        around = next((part for part in parts if place in part), set())
        reached = {pubend for pubend in watcher.wish.pubends if homes[pubend] in around}
        if watcher.order == "total" and reached != watcher.wish.pubends:
            continue  # it waits for all of them
        found += [Stream(watcher.name, pubend) for pubend in sorted(reached)]
    return found


def _place(part: WatcherPart, present: BrokerId | None, running: set[BrokerId]) -> BrokerId | None:
    """Return where a watcher is, or will be soon; None if none of its brokers runs.

    Who is at an island stays there: its broker is alive, and says so.
    """
    if part.is_durable:
        return part.brokers[0] if part.brokers[0] in running else None
    if present in running:
        return present
    return next((broker for broker in part.brokers if broker in running), None)
