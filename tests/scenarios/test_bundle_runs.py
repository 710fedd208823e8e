"""Cells of several brokers: load is shared, moves after a crash, returns (GD 3.1, VT 6.3.8).

Every scenario has streams with numbered events, so that a lost or repeated one shows. Brokers of a
cell are n1, n2, n3; pubends P0, P1, ... are at p.
"""

from __future__ import annotations

from gapless.core.ids import BrokerId, PubendId
from gapless.feeds.candidates import FeedCandidates, rendezvous
from gapless.feeds.feed import Candidate
from gapless.messages.streams import StreamData
from gapless_lab.sim.planted_bugs import patched
from tests.scenarios.brokers import Publisher, Subscriber, World

candidates_by_the_rule = FeedCandidates.candidates


def without_rank(routing: FeedCandidates, pubend: PubendId) -> list[Candidate]:
    """Rank by the class alone: the present feeder stays."""
    found = candidates_by_the_rule(routing, pubend)
    return [each._replace(rank=each.rank // 50) for each in found]


class Bundle:
    """p - {n1, n2, n3} - {c, d}, with several streams that both ends need."""

    def __init__(self, *names: BrokerId, streams: int = 8, **parameters: int) -> None:
        cells = {"n": list(names)}
        self.names = names
        self.world = World("p-n-c", "n-d", cells=cells, **parameters)
        self.pubends = [PubendId(f"P{number}") for number in range(streams)]
        self.publishers: list[Publisher] = []
        for pubend in self.pubends:
            self.publishers.append(self.world.publisher("p", pubend.name))
        self.x = self.world.subscriber("c", "x", "kind = 1")
        self.y = self.world.subscriber("d", "y", "TRUE")
        self.world.run(s=2)
        self.published: list[str] = []

    def publish(self, *, kind: int = 1) -> None:
        """Publish an event on every stream."""
        for publisher in self.publishers:
            label = f"{publisher.pubend.name}.{len(self.published)}"
            publisher.publish(label, kind=kind)
            self.published.append(label)
        self.world.run(ms=200)

    def feeders(self, of: BrokerId = "c") -> list[BrokerId | None]:
        """Return the feeder of a broker for each stream."""
        return [self.world[of].components.router.feeder(pubend) for pubend in self.pubends]

    def by_load(self, *alive: BrokerId) -> list[BrokerId]:
        """Return the feeder that each stream should have if these brokers are up."""
        return [rendezvous(pubend, [*alive])[0] for pubend in self.pubends]

    def go_back(self) -> None:
        """Let time pass until feeds have returned to their preferred feeders."""
        parameters = self.world.parameters
        self.world.run(ms=parameters.feed_switch_delay_ms + 3 * parameters.attach_refresh_ms)


def in_order(subscriber: Subscriber, published: list[str]) -> bool:
    """Return whether a subscriber got every event once, and each stream's in order."""
    streams = {label.partition(".")[0] for label in published}
    return len(subscriber.events) == len(published) and all(
        [each for each in subscriber.events if each.startswith(f"{stream}.")]
        == [each for each in published if each.startswith(f"{stream}.")]
        for stream in streams
    )


# --- the link bundle ------------------------------------------------------------------------------


def test_streams_are_shared_by_the_brokers_of_a_cell_and_each_keeps_its_route() -> None:
    # GD 3.1: "the link is chosen by hashing the pubend id ... successive messages from the same
    # pubend will flow on the same path"
    bundle = Bundle("n1", "n2", "n3")
    assert bundle.feeders() == bundle.feeders("d") == bundle.by_load("n1", "n2", "n3")
    assert len(set(bundle.feeders())) > 1
    since = bundle.world.now
    bundle.publish()
    bundle.publish()
    for pubend, feeder in zip(bundle.pubends, bundle.feeders(), strict=True):
        came_by = {
            name
            for name in bundle.names
            for frame in bundle.world.sent_over(StreamData, name, "c", since)
            if frame.pubend == pubend
        }
        assert came_by == {feeder}
    assert in_order(bundle.x, bundle.published)


def test_when_a_broker_crashes_its_load_moves_at_once_and_only_its_load() -> None:
    # GD 3.1: "multiple brokers and multiple connections are used both to share load and to provide
    # rapid backup on failure"
    bundle = Bundle("n1", "n2", "n3")
    bundle.publish()
    before = bundle.feeders()
    bundle.world.crash("n1")
    bundle.world.run(ms=20)
    assert bundle.feeders() == bundle.by_load("n2", "n3")
    assert [new for old, new in zip(before, bundle.feeders(), strict=True) if old != "n1"] == [
        old for old in before if old != "n1"
    ]
    bundle.publish()
    assert in_order(bundle.x, bundle.published)
    assert in_order(bundle.y, bundle.published)


def test_events_in_transit_at_a_crashed_broker_are_delivered_by_another() -> None:
    bundle = Bundle("n1", "n2")
    for publisher in bundle.publishers:
        label = f"{publisher.pubend.name}.0"
        publisher.send_event(label, kind=1)
        bundle.published.append(label)
    bundle.world.run(ms=2)  # they are in transit from p
    bundle.world.crash("n1")
    bundle.world.run(s=3)
    assert in_order(bundle.x, bundle.published)
    assert in_order(bundle.y, bundle.published)


def test_load_returns_to_a_restarted_broker() -> None:
    # VT 6.3.8: "when IB1 and IB2 recover, traffic is once again shared among the available paths"
    bundle = Bundle("n1", "n2")
    before = bundle.feeders()
    bundle.world.crash("n1")
    bundle.publish()
    bundle.world.start("n1")
    bundle.publish()
    assert set(bundle.feeders()) == {"n2"}, "not before the feed switch delay (R9)"
    bundle.go_back()
    assert bundle.feeders() == before
    bundle.publish()
    assert in_order(bundle.x, bundle.published)
    assert in_order(bundle.y, bundle.published)


def test_without_ranks_inside_of_a_class_load_does_not_return() -> None:
    with patched(FeedCandidates, "candidates", without_rank):
        bundle = Bundle("n1", "n2")
        bundle.world.crash("n1")
        bundle.publish()
        bundle.world.start("n1")
        bundle.go_back()
        assert set(bundle.feeders()) == {"n2"}


def test_a_broken_link_of_the_bundle_moves_the_load_of_its_receiver_only() -> None:
    bundle = Bundle("n1", "n2")
    at_d = bundle.feeders("d")
    bundle.world.cut("n1", "c")
    bundle.world.run(ms=20)
    assert bundle.feeders("c") == ["n2"] * len(bundle.pubends)
    assert bundle.feeders("d") == at_d
    bundle.publish()
    assert in_order(bundle.x, bundle.published)
    assert in_order(bundle.y, bundle.published)


# --- one broker of each cell is enough ------------------------------------------------------------


def test_events_are_delivered_while_all_but_one_broker_of_a_cell_are_down() -> None:
    # VT 6.3.8: IB1 crashes, then IB2; "the client message rate is not affected"
    bundle = Bundle("n1", "n2", "n3")
    for name in ("n1", "n2"):
        bundle.publish()
        bundle.world.crash(name)
        bundle.publish()
    bundle.world.run(s=1)
    assert bundle.feeders() == ["n3"] * len(bundle.pubends)
    assert in_order(bundle.x, bundle.published)
    assert in_order(bundle.y, bundle.published)
    for name in ("n1", "n2"):
        bundle.world.start(name)
        bundle.publish()
    bundle.go_back()
    assert bundle.feeders() == bundle.by_load("n1", "n2", "n3")
    bundle.publish()
    assert in_order(bundle.x, bundle.published)
    assert in_order(bundle.y, bundle.published)


def test_new_subscriptions_start_while_one_broker_of_each_cell_is_up() -> None:
    # VT 6.3.8: "even in the absence of a majority of brokers in a tree node, our system is able to
    # accept new subscriptions and deliver messages for them"
    cells = {"m": ["m1", "m2", "m3"], "n": ["n1", "n2", "n3"]}
    world = World("p-m-n-c", cells=cells)
    ann = world.publisher("p")
    old = world.subscriber("c", "old", "half = 1")
    world.run(s=1)
    for name in ("m1", "n3", "m3", "n1"):
        world.crash(name)
        world.run(ms=100)
    new = world.subscriber("c", "new", "half = 2")
    assert world.wait(lambda: bool(new.starts), s=2)
    for number in range(10):
        ann.publish(f"e{number}", half=1 + number % 2)
    world.run(s=1)
    assert old.events == [f"e{number}" for number in range(0, 10, 2)]
    assert new.events == [f"e{number}" for number in range(1, 10, 2)]


def test_a_subscription_made_while_brokers_were_down_is_served_by_them_after_their_restart() -> (
    None
):
    # they restart without tables, and pass everything until they have them (VT 4: sufficiency)
    bundle = Bundle("n1", "n2", streams=4)
    bundle.world.crash("n1")
    z = bundle.world.subscriber("c", "z", "kind = 2")
    bundle.world.run(s=1)
    assert len(z.starts) == 4
    bundle.world.start("n1")
    bundle.world.crash("n2")
    for _ in range(5):
        bundle.publish(kind=2)
    assert in_order(z, bundle.published)
    bundle.world.start("n2")
    bundle.go_back()
    bundle.publish(kind=2)
    assert in_order(z, bundle.published)
