"""A broker counts its messages to and from peers by kind."""

from __future__ import annotations

from gapless.core.message_counts import MessageCount, MessageCounts
from gapless.messages.overlay import Heartbeat
from gapless.messages.streams import AckReport, Attach, StreamData
from tests.broker.harness import BrokerHarness


def test_messages_are_counted_by_kind_in_the_order_of_names() -> None:
    counts = MessageCounts()
    counts.sent((True, 1, 2, "text"))
    counts.received(())
    counts.received(("text",))
    assert [*counts] == [
        MessageCount("in", "str", 1),
        MessageCount("out", "bool", 1),
        MessageCount("out", "int", 2),
        MessageCount("out", "str", 1),
    ]


def test_each_broker_counts_what_it_sends_to_its_peers_and_receives() -> None:
    world = BrokerHarness("p-n")
    publisher = world.publisher("p")
    world.subscriber("n", "x", "TRUE")
    world.run(s=2)
    publisher.publish("e1")
    world.run(s=2)
    by_broker = {
        name: {(each.direction, each.kind): each.number for each in world[name].message_counts}
        for name in ("p", "n")
    }
    for kind in (Heartbeat, Attach, AckReport, StreamData):
        for source, target in (("p", "n"), ("n", "p")):
            sent = len(world.sent_over(kind, source, target))
            assert by_broker[source].get(("out", kind.__name__), 0) == sent
            received = by_broker[target].get(("in", kind.__name__), 0)
            assert sent - 1 <= received <= sent, "one may be in transit"
    assert by_broker["p"]["out", "StreamData"] > 0
