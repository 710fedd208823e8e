"""Which streams must flow while faults last: those between brokers that are still connected.

Two brokers can talk if they are in each other's neighbourhood, both run, and nothing is cut between them
in either direction: a session needs both. A stream has a way if such pairs lead from the broker of its
pubend to the one of its watcher, whatever is lost between (P6).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gapless.core.ids import BrokerId
from gapless.runtime.overlay_config import OverlayConfig
from gapless_lab.chaos.faults import Fault, FaultAction
from gapless_lab.chaos.flow import ObservedStream
from gapless_lab.demo.workload import PublisherRole, SubscriberRole

__all__ = ["connected_parts", "connected_streams", "subscribers_to_fail_over"]


def connected_parts(overlay: OverlayConfig, faults: Sequence[Fault]) -> list[set[BrokerId]]:
    """Return the parts into which faults divide the brokers that run."""
    down = {
        victim
        for fault in faults
        if fault.action is not FaultAction.ISOLATE
        for victim in fault.victims
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


def connected_streams(
    overlay: OverlayConfig,
    publishers: Iterable[PublisherRole],
    present: Mapping[SubscriberRole, BrokerId | None],
    faults: Sequence[Fault],
) -> list[ObservedStream]:
    """Return the streams that must flow while faults last, of watchers that are somewhere ``present``,
    or are on their way.
    """
    parts = connected_parts(overlay, faults)
    running = {broker for part in parts for broker in part}
    phbs = {publisher.pubend: publisher.brokers[0] for publisher in publishers}
    found = []
    for subscriber, broker in present.items():
        brokers = _possible_brokers(subscriber, broker, running)
        around = next((part for part in parts if brokers and brokers <= part), set())
        reached = {pubend for pubend in subscriber.filter.pubends if phbs[pubend] in around}
        if subscriber.order == "total" and reached != subscriber.filter.pubends:
            continue  # it waits for all of them
        found += [ObservedStream(subscriber.name, pubend) for pubend in sorted(reached)]
    return found


def subscribers_to_fail_over(
    overlay: OverlayConfig,
    present: Mapping[SubscriberRole, BrokerId | None],
    faults: Sequence[Fault],
) -> set[str]:
    """Return the watchers whose broker does not run while faults last."""
    running = {broker for part in connected_parts(overlay, faults) for broker in part}
    return {part.name for part, broker in present.items() if broker and broker not in running}


def _possible_brokers(
    part: SubscriberRole, present: BrokerId | None, running: set[BrokerId]
) -> set[BrokerId]:
    """Return where a watcher may be, or will be soon; nowhere if none of its brokers runs.

    Who is behind a barrier stays there: its broker is alive, and says so. The session of a durable watcher may
    be elsewhere than the subscription, which has fled before: that is at any of its brokers that run.
    """
    if part.is_durable:
        return running.intersection(part.brokers)
    if present in running:
        return {present}
    return set([each for each in part.brokers if each in running][:1])
