"""Which streams must flow during faults: those between brokers that are still connected.

Two brokers can communicate if they are in each other's neighbourhood, both run, and neither
direction between them is cut, because a session needs both. A stream has a route if such pairs lead
from the broker of its pubend to the broker of its subscriber, whatever is lost between (P6).
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
    """Return the parts into which faults divide the running brokers."""
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
    """Return the streams that must flow during faults, of subscribers at the brokers ``present``,
    or still connecting.
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
    """Return the subscribers whose broker does not run during faults."""
    running = {broker for part in connected_parts(overlay, faults) for broker in part}
    return {part.name for part, broker in present.items() if broker and broker not in running}


def _possible_brokers(
    part: SubscriberRole, present: BrokerId | None, running: set[BrokerId]
) -> set[BrokerId]:
    """Return the brokers at which a subscriber may be, now or soon; none if none of its brokers
    runs.

    A subscriber behind a barrier remains there, because its broker is alive. The session of a
    durable subscriber may be at another broker than the subscription after an earlier failover: the
    subscription is at any of its running brokers.
    """
    if part.is_durable:
        return running.intersection(part.brokers)
    if present in running:
        return {present}
    return set([each for each in part.brokers if each in running][:1])
