"""A PHB cell with two brokers, and more receivers than the limit (R10, R25)."""

from __future__ import annotations

from gapless.core.ids import PubendId
from gapless.feeds.candidates import rendezvous
from gapless.messages.streams import (
    Attach,
    AttachKind,
    FeedUnavailable,
    FeedUnavailableReason,
    StreamData,
)
from tests.broker.harness import BrokerHarness


def test_a_router_of_the_phb_cell_receives_everything_and_filters_itself() -> None:
    # R25: with the kind PHB_CELL everything passes
    names = (f"P{number}" for number in range(100))
    name = next(each for each in names if rendezvous(PubendId(each), ["p1", "p2"])[0] == "p2")
    world = BrokerHarness("p-n", cells={"p": ["p1", "p2"]})
    ann = world.publisher("p1", name)
    x = world.subscriber("p2", "x", "kind = 1")
    y = world.subscriber("n", "y", "kind = 2")
    world.run(s=2)
    for number in range(4):
        ann.publish(f"e{number}", kind=number)
        world.run(ms=20)
    world.run(s=1)
    assert (x.events, y.events) == (["e1"], ["e2"])
    assert {each.kind for each in world.sent_over(Attach, "p2", "p1")} == {AttachKind.PHB_CELL}
    frames = world.sent_over(StreamData, "p1", "p2")
    sent = [each.payload for frame in frames for each in frame.knowledge.publications]
    assert sent == [b"e0", b"e1", b"e2", b"e3"]


def test_more_attachments_than_the_limit_are_refused() -> None:
    # P7: attachments_max; two receivers of one pubend, and a limit of one
    world = BrokerHarness("p-n", "p-m", attachments_max=1)
    world.publisher("p")
    world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    y = world.subscriber("m", "y", "TRUE")
    world.run(s=2)
    assert {each.reason for each in world.sent_over(FeedUnavailable, "p", "m")} == {
        FeedUnavailableReason.LIMIT
    }
    assert y.starts == {}
