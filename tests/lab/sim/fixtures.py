"""An oracle that a test fills, and a subscription that a test drives."""

from __future__ import annotations

from gapless.content.values import Value
from gapless.core.ids import PubendId
from gapless.messages.clients import Order, StartPoint
from gapless.messages.overlay import PubendProperties, Quality
from gapless.messages.records import AppendRow, LogRow, PubendRecord, PutRecord, TrimLog
from gapless.messages.streams import Publication
from gapless_lab.sim.checkers import SubscriptionChecker
from gapless_lab.sim.options import SimulationOptions
from gapless_lab.sim.oracle import Oracle
from gapless_lab.sim.world import World
from tests.lab.sim.recorder import Recorder

P, Q = PubendId("P"), PubendId("Q")
LATEST = StartPoint()


class CheckerHarness:
    """An oracle that a test fills, and a checker of a subscription that a test drives."""

    def __init__(self, filter_text: str = "TRUE", **options: bool) -> None:
        self.world = World(SimulationOptions(cells=1), Recorder)
        self.host = next(iter(self.world.hosts.values()))
        self.oracle = Oracle(self.world)
        self.open(P)
        self.open(Q)
        durable, total = options.get("durable", True), options.get("total", False)
        order = Order.TOTAL if total else Order.PUBLISHER
        self.checker = SubscriptionChecker(
            self.world, self.oracle, "s", filter_text, durable=durable, order=order
        )

    def open(self, pubend: PubendId, quality: Quality = Quality.GUARANTEED) -> None:
        properties = PubendProperties(self.host.broker, self.host.cell, "TRUE", quality)
        self.oracle.durable(self.host, PutRecord(PubendRecord(pubend, properties, 1, 0, 0)))

    def send(self, pubend: PubendId, tick: int, price: int = 0) -> Publication:
        attributes: dict[str, Value] = {"price": price}
        self.oracle.sent[pubend, "p", tick] = (attributes, b"")
        return Publication(tick, "p", tick, attributes, b"")

    def log(self, pubend: PubendId, *ticks: int, price: int = 0) -> None:
        for tick in ticks:
            publication = self.send(pubend, tick, price)
            row = LogRow(pubend, tick, tick, 1, 0, tick, 0, (publication,))
            self.oracle.durable(self.host, AppendRow(row))

    def release(self, pubend: PubendId, up_to: int) -> None:
        self.oracle.durable(self.host, TrimLog(pubend, up_to))

    def get(self, pubend: PubendId, *ticks: int) -> None:
        for tick in ticks:
            publication = self.oracle.streams[pubend].at(tick)
            assert publication is not None
            self.checker.delivered([(pubend, publication)])

    def found(self) -> list[str]:
        return [violation.name for violation in self.world.violations]


def started(after: int = 0, filter_text: str = "TRUE", **options: bool) -> CheckerHarness:
    harness = CheckerHarness(filter_text, **options)
    harness.log(P, 10, 20, 30, 40)
    harness.checker.subscribed(LATEST, ((P, after), (Q, after)))
    return harness
