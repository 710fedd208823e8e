"""The metrics of a broker, in the format of Prometheus.

Metrics cost nothing while events flow: the parts of a node count frames and bytes in plain
integers, and everything else is read when the metrics are requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from gapless.core.events import ClientRequest
from gapless.core.printable import printable_line
from gapless.core.version import PROTOCOL_VERSIONS, VERSION
from gapless.messages.operating import GetLag, LagReply
from gapless.runtime.clients import INSIDE
from gapless.runtime.http import Page

if TYPE_CHECKING:
    from gapless.runtime.node import Node

__all__ = ["METRICS_KIND", "Metrics"]

METRICS_KIND: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The content type."""


class Metrics(Collector):
    """The metrics of one node, in a registry of its own: several nodes may share a process.

    The lag of subscriptions is requested from the machine at each scrape, because other brokers may
    have to be asked. The page waits for that.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._lag: LagReply | None = None
        """The lags of this scrape."""
        self._waiting: list[Callable[[Page], None]] = []
        """The scrapes that wait for the lags."""
        node.clients.take_inside(self._lag_measured)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def answer(self, answer: Callable[[Page], None]) -> None:
        """Call back with all metrics, when the lags are known."""
        self._waiting.append(answer)
        if not self._node.is_running:
            self._lag_measured(None)
        elif len(self._waiting) == 1:
            self._node.driver.handle(ClientRequest(INSIDE, GetLag(0)))

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus, with the lags of the last scrape."""
        return generate_latest(self._registry)

    def _lag_measured(self, notice: Any) -> None:
        waiting, self._waiting = self._waiting, []
        self._lag = notice if isinstance(notice, LagReply) else None
        page = Page(self.text(), METRICS_KIND)
        for answer in waiting:
            answer(page)

    def describe(self) -> list[Metric]:
        """Return nothing: the node may not run yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read all values."""
        yield from self._events()
        yield from self._traffic()
        yield from self._overlay()
        yield from self._reshape()
        yield from self._machine()
        yield from self._disk()
        yield from self._streams()
        yield from self._lags()

    def _events(self) -> Iterator[Metric]:
        clients = self._node.clients
        yield _count("events_published", "Events that were acknowledged.", clients.published)
        yield _count("events_delivered", "Events that were sent to clients.", clients.delivered)
        yield _gauge("clients", "Clients that are connected.", len(clients))
        yield _count(
            "clients_disconnected", "Clients that were disconnected.", clients.disconnected
        )
        yield _count(
            "connections_refused", "Connections that were refused.", self._node.acceptor.refused
        )

    def _traffic(self) -> Iterator[Metric]:
        node = self._node
        kinds = {"client": node.clients.traffic, "link": node.links.traffic}
        for unit in ("bytes", "frames"):
            family = CounterMetricFamily(
                f"gapless_{unit}", f"Traffic in {unit}.", labels=["connection", "direction"]
            )
            for kind, traffic in kinds.items():
                for direction in ("in", "out"):
                    family.add_metric([kind, direction], getattr(traffic, f"{unit}_{direction}"))
            yield family
        messages = CounterMetricFamily(
            "gapless_messages", "Messages between brokers.", labels=["direction", "kind"]
        )
        for direction, kind, number in node.broker.message_counts:
            messages.add_metric([direction, kind], number)
        yield messages
        queued = GaugeMetricFamily(
            "gapless_queue_bytes", "Bytes that wait to be sent.", labels=["connection"]
        )
        queued.add_metric(["client"], node.clients.waiting_bytes)
        queued.add_metric(["link"], node.links.waiting_bytes)
        yield queued
        yield _gauge("links_open", "Peers with a link.", len(node.links.open_peers))
        yield _gauge("links_expected", "Peers that should have a link.", len(node.links.peers))
        yield _count("dial_attempts", "Attempts to reach a peer.", node.links.dial_attempts)

    def _overlay(self) -> Iterator[Metric]:
        """Unreachable cells and peers, and the routes around them."""
        broker = self._node.broker
        peers, sessions = self._node.links.peers, broker.components.sessions
        neighbourhood, reached = broker.neighbourhood, {broker.neighbourhood.own}
        reached.update(neighbourhood.cell_of(peer) or "" for peer in sessions.open_peers())
        cells = {each.name for each in neighbourhood.cells}
        reroutes = broker.components.inspection.reroute_counts()
        yield _gauge("peers_connected", "Peers with a session.", len(sessions.open_peers()))
        yield _gauge("peers_expected", "Peers that should have a session.", len(peers))
        yield _gauge(
            "cells_unreachable",
            "Cells of the neighbourhood without any broker that has a session with this one.",
            len(cells - reached),
        )
        yield _gauge("partitions", "Partitions that this broker knows of.", reroutes.partitions)
        yield _gauge(
            "sessions_relayed",
            "Peers whose session is relayed by others, because there is no link.",
            reroutes.sessions_relayed,
        )
        yield _gauge(
            "feeds_bypassing",
            "Streams whose feed bypasses a cell without a reachable broker.",
            reroutes.feeds_bypassing,
        )
        yield _gauge(
            "feeds_relayed", "Streams whose feed uses a relayed session.", reroutes.feeds_relayed
        )
        yield _gauge(
            "streams_cut_off",
            "Streams that subscriptions here need and that cannot be received now.",
            reroutes.streams_cut_off,
        )

    def _reshape(self) -> Iterator[Metric]:
        """The operations that this broker coordinates, and the pauses of streams in all of them."""
        components = self._node.broker.components
        times, pauses = components.operations.calls.times, components.router.pauses
        ended = CounterMetricFamily(
            "gapless_reshape_requests", "Requested operations that have ended.", labels=["outcome"]
        )
        for outcome, count in sorted(times.ended.items()):
            ended.add_metric([outcome], count)
        yield ended
        yield SummaryMetricFamily(
            "gapless_reshape_operation_seconds",
            "Times of finished operations, from the request on.",
            count_value=times.done,
            sum_value=times.time_us / 1e6,
        )
        newest = GaugeMetricFamily(
            "gapless_reshape_newest_operation_seconds",
            "Times of the newest finished operations.",
            labels=["operation", "kind"],
        )
        for op, kind, time_us in times.newest:
            newest.add_metric([printable_line(str(op)), kind.name], time_us / 1e6)
        yield newest
        yield SummaryMetricFamily(
            "gapless_reshape_pause_seconds",
            "Times from a step of the tree until a stream that it touched has resumed.",
            count_value=pauses.resumed,
            sum_value=pauses.time_us / 1e6,
        )
        longest_s = pauses.longest_us / 1e6
        yield _gauge("reshape_pause_max_seconds", "The longest of these times.", longest_s)
        yield _gauge("reshape_streams_paused", "Streams that pause now.", pauses.paused)
        yield _count(
            "reshape_publications_delayed", "Publications that waited for it.", pauses.waited
        )

    def _machine(self) -> Iterator[Metric]:
        driver = self._node.driver
        yield SummaryMetricFamily(
            "gapless_step_seconds",
            "Time that steps of the machine took, with their effects.",
            count_value=driver.steps,
            sum_value=driver.step_ns / 1e9,
        )
        step_max_s = driver.step_max_ns / 1e9
        yield _gauge("step_max_seconds", "The longest step.", step_max_s)
        recent_s = driver.recent_step_max_ns / 1e9
        yield _gauge("step_max_recent_seconds", "The longest step of 1 to 2 minutes.", recent_s)
        family = CounterMetricFamily(
            "gapless_coverage_marks", "Rare branches that were taken.", labels=["mark"]
        )
        for mark, count in sorted(self._node.broker.coverage_marks.items()):
            family.add_metric([mark], count)
        yield family
        build = InfoMetricFamily("gapless_build", "The version of gapless and of its protocol.")
        protocols = ",".join(map(str, PROTOCOL_VERSIONS))
        build.add_metric([], {"version": VERSION, "protocols": protocols})
        yield build
        yield _gauge("uptime_seconds", "Time since this incarnation started.", self._node.uptime_s)
        restarts = self._node.settings.restarts
        yield _gauge("restarts", "How often the supervisor restarted this broker.", restarts)

    def _disk(self) -> Iterator[Metric]:
        disk = self._node.disk
        yield _count("commits", "Groups of writes that became durable together.", disk.commits)
        yield _count("writes", "Writes that became durable.", disk.writes)
        yield _gauge("pending_write_bytes", "Bytes that wait for the disk.", disk.pending_bytes)
        watch, budget = self._node.disk_watch, self._node.broker.components.pubends.log_budget
        free, total = watch.space and watch.space.free, watch.space and watch.space.total
        # without a data directory both have no value
        yield GaugeMetricFamily("gapless_disk_free_bytes", "Free bytes on the disk.", free)
        yield GaugeMetricFamily("gapless_disk_bytes", "The size of the disk.", total)
        is_short = float(bool(watch.warning))
        yield _gauge("disk_short", "1 if less than disk_free_bytes_min is free.", is_short)
        yield _gauge("all_logs_bytes", "Bytes in all logs together.", budget.bytes)
        yield _gauge("all_logs_bytes_max", "The limit of all logs together.", budget.bytes_max)

    def _streams(self) -> Iterator[Metric]:
        broker = self._node.broker
        yield _gauge("pubends", "Pubends of this broker.", len(broker.components.hosted))
        yield _gauge(
            "pubends_refused", "Pubends that are corrupt.", len(broker.components.hosted.corrupt)
        )
        corruptions = len(broker.components.pubends.corruptions)
        yield _gauge(
            "pubends_corrupt", "Pubends whose stream stalls at a corrupt row.", corruptions
        )
        staged = broker.components.staging.bytes
        yield _gauge("staged_bytes", "Bytes that are staged and not committed.", staged)
        subscriptions = len(broker.components.registry.subscriptions)
        yield _gauge("subscriptions", "Subscriptions at this broker.", subscriptions)
        families = {
            "log_bytes": "Bytes in the log of a pubend.",
            "log_last_tick": "The last tick of a pubend.",
            "log_released_tick": "The tick up to which the log of a pubend was released.",
        }
        for name, text in families.items():
            family = GaugeMetricFamily(f"gapless_{name}", text, labels=["pubend"])
            for pubend, value in self._logs(name):
                family.add_metric([printable_line(pubend)], value)
            yield family

    def _lags(self) -> Iterator[Metric]:
        """The lag of durable subscriptions; without values if it could not be determined."""
        lag = self._lag
        for name, text, field in (
            ("durable_subscriptions", "Durable subscriptions here.", "durable"),
            ("subscriptions_behind", "Durable subscriptions that are behind.", "behind"),
            ("subscriptions_lag_unknown", "Those with a stream of unknown lag.", "unknown"),
            ("lag_events_max", "The greatest lag of a subscription.", "events_max"),
            ("lag_seconds_max", "The age of the oldest lagging event.", "seconds_max"),
        ):
            value = None if lag is None else getattr(lag, field)
            yield GaugeMetricFamily(f"gapless_{name}", text, value)
        events = GaugeMetricFamily(
            "gapless_subscription_lag_events",
            "Events of a log above the position of a durable subscription.",
            labels=["subscription", "pubend"],
        )
        seconds = GaugeMetricFamily(
            "gapless_subscription_lag_seconds",
            "The age of the oldest of these events.",
            labels=["subscription", "pubend"],
        )
        for each in () if lag is None else lag.entries:
            names = [printable_line(each.subscription), printable_line(str(each.pubend))]
            events.add_metric(names, each.events)
            seconds.add_metric(names, each.seconds)
        yield events
        yield seconds

    def _logs(self, name: str) -> Iterator[tuple[str, int]]:
        for pubend, hosted in self._node.broker.components.hosted.items():
            found: dict[str, Any] = {
                "log_bytes": getattr(hosted, "log_bytes", 0),
                "log_last_tick": hosted.top,
                "log_released_tick": hosted.record.released,
            }
            yield str(pubend), found[name]


def _count(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"gapless_{name}", text, value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"gapless_{name}", text, value)
