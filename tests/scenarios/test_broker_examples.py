"""Worked examples of streams and subscriptions, with whole brokers, step by step.

The numbers (14.1, …) are those of the rules' own list. Each scenario is played by the rules, and again
with a rule removed, and then fails as the second test shows.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from gapless.core.ids import PubendId, VirtualTime
from gapless.core.ticks import Tick
from gapless.messages.clients import StartKind, StartPoint, Subscribed
from gapless.messages.propagation import TableDelta, TableFull
from gapless.messages.records import MemberRecord
from gapless.messages.streams import AckReport, KnowledgeRange, Nack, StreamData
from gapless.pubend.members import Members
from gapless.routing.nacks import UpstreamRequests
from gapless.stream.horizon import DoubtHorizon
from gapless.stream.istream import IStream
from gapless.subscribers import subend as subend_module
from gapless.subscribers.cursor_state import FOREVER
from gapless.subscribers.filter_change import FilterChanges
from gapless.subscribers.filter_segments import FilterSegment, FilterSegments
from gapless.subscribers.filter_switch import FilterSwitch
from gapless.subscribers.groups import CursorGroups
from gapless.subscribers.subend import Subend
from gapless.subscribers.subend_nacks import SubendNacks
from gapless_lab.sim.planted_bugs import patched
from tests.scenarios.brokers import Subscriber, World, of, shb

P, R = PubendId("P"), PubendId("R")


# --- 14.1 lost stream data and its nack over two hops -------------------------------------------


def lost_data(*, cache_lost: bool = False, late_answer: bool = False) -> tuple[World, Subscriber]:
    """In p - a - n, a has sent two messages when the link to n is cut.

    The answer to the nack may come after a later message.
    """
    world = World("p-a-n")
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "price > 10")
    world.subscriber("a", "y", "price < 0")  # for which a stays fed while n is cut off
    world.run(s=1)
    ann.publish("e23", price=23)  # 1
    world.run(ms=50)
    world.cut("a", "n")  # 2
    ann.publish("e27", price=27)
    ann.publish("e32", price=2)
    world.run(ms=50)
    if cache_lost:
        world.restart("a")
        world.run(s=1)
    answers = world.hold(_is_answer if late_answer else of())
    world.heal("a", "n")
    world.run(s=1)
    ann.publish("e36", price=36)  # 3
    world.run(s=1)
    answers.release()
    world.run(s=1)
    return world, x


def _is_answer(source: str, target: str, message: Any) -> bool:
    """Return whether a message is stream data from a to n that was nacked."""
    return (source, target) == ("a", "n") and isinstance(message, StreamData) and not message.first


def test_14_1_lost_stream_data_is_nacked_and_comes_from_the_next_broker() -> None:
    world, x = lost_data()
    assert x.events == ["e23", "e27", "e36"]
    (low, high), *_ = [each for nack in world.sent_over(Nack, "n", "a") for each in nack.ranges]
    again = [frame for frame in world.sent_over(StreamData, "a", "n") if not frame.first]
    resent = [event.payload for frame in again for event in frame.knowledge.publications]
    assert resent == [b"e27"], "e32 does not match: it is filtered, also when it is nacked"
    assert low <= again[0].knowledge.publications[0].tick <= high
    assert world.sent_over(Nack, "a", "p") == [], "the cache of a has all ticks"


def test_14_1_if_the_next_broker_has_forgotten_the_log_answers() -> None:
    world, x = lost_data(cache_lost=True)
    assert x.events == ["e23", "e27", "e36"]
    assert world.sent_over(Nack, "a", "p")


def test_14_1_without_curiosity_lost_ticks_block_all_later_ones() -> None:
    def send_no_nack(_nacks: SubendNacks) -> None:
        """Wait for the gap to close by itself."""

    with patched(SubendNacks, "send_due", send_no_nack):
        _, x = lost_data()
    assert x.events == ["e23"]


def test_14_1_without_forwarded_nacks_a_router_that_has_forgotten_blocks_the_stream() -> None:
    def answer_from_the_cache_only(
        _requests: UpstreamRequests, _routed: object, _unknown: object
    ) -> None:
        """Let the receiver nack again."""

    with patched(UpstreamRequests, "request_ticks", answer_from_the_cache_only):
        _, x = lost_data(cache_lost=True)
    assert x.events == ["e23"]


def test_14_1_later_data_waits_for_a_late_answer() -> None:
    _, x = lost_data(late_answer=True)
    assert x.events == ["e23", "e27", "e36"]


def test_14_1_without_the_doubt_horizon_a_gap_is_taken_for_silence() -> None:
    def everything_known(horizon: DoubtHorizon, stream: IStream) -> list[KnowledgeRange]:
        return stream.known(horizon.tick + 1, stream.top)

    def leap(horizon: DoubtHorizon, knowledge: KnowledgeRange) -> None:
        horizon.skip_to(knowledge.high)

    with (
        patched(DoubtHorizon, "next_ranges", everything_known),
        patched(DoubtHorizon, "pass_over", leap),
    ):
        _, x = lost_data(late_answer=True)
    assert x.events == ["e23", "e36"], "e27 is lost without a gap"


# --- 14.2 late subscriber across a cut link -------------------------------------------------------


class LateSubscriber:
    """PT figure 1. P at b1; b1 - b2 - {b3, b4}; s1 at b3 has started when b1 - b2 is cut."""

    def __init__(self) -> None:
        world = World("b1-b2-b3", "b2-b4")
        ann = world.publisher("b1")
        self.s1 = world.subscriber("b3", "s1", "one = TRUE")
        world.run(s=1)
        world.cut("b1", "b2")
        self.s2 = world.subscriber("b4", "s2", "two = TRUE")  # 1
        world.run(s=2)
        self.notified = self.s2.of_kind(Subscribed)[-1]
        ann.publish("p1", one=True, two=True)  # 2
        ann.publish("p2", one=False, two=True)
        ann.publish("p3", one=True, two=True)
        world.run(s=1)
        updates = world.hold(of(TableDelta, TableFull, source="b2", target="b1"))
        world.heal("b1", "b2")  # 3
        world.run(s=1)
        ann.publish("p4", one=False, two=True)  # b1 does not know of s2, and filters
        world.run(s=1)
        self.while_unknown = dict(self.s2.starts)
        updates.release()  # 4
        world.run(s=1)
        ann.publish("p5", one=True, two=True)  # 5
        world.run(s=1)
        self.missed = [
            label
            for label, tick in ann.ticks.items()
            if tick > self.s2.starts[P] and label not in self.s2.events
        ]
        """The events after its confirmed start that s2 matches and did not receive."""


def test_14_2_a_late_subscriber_starts_after_the_cut_without_a_gap() -> None:
    scenario = LateSubscriber()
    assert [each.pubend for each in scenario.notified.pending] == [P], (
        "the reply names the pending pubend"
    )
    assert "no route to its broker b1" in scenario.notified.pending[0].reason
    assert scenario.s1.events == ["p1", "p3", "p5"]
    assert scenario.while_unknown == {}
    assert scenario.s2.events == ["p5"]
    assert scenario.s2.gaps == []
    assert scenario.missed == []


def test_14_2_without_start_points_a_filtered_event_looks_like_silence() -> None:
    with start_where_the_stream_is():
        scenario = LateSubscriber()
    assert scenario.s2.events == ["p5"]
    assert scenario.missed == ["p4"]


def start_where_the_stream_is() -> ExitStack:
    """Remove R44 (1) and (2): every fed cursor starts, whatever the stream epoch serves."""

    def start_at_once(subend: Subend, low: Tick, _time: VirtualTime | None) -> None:
        for cursor in [*subend.groups.pending.values()]:
            cursor.start_if_served(low, VirtualTime(2**62, 0))

    stack = ExitStack()
    stack.enter_context(patched(subend_module, "start_cursors", start_at_once))
    stack.enter_context(patched(CursorGroups, "is_covered", lambda _groups, _time: True))
    stack.enter_context(patched(FilterSegment, "is_served_at", lambda _segment, _time: True))
    return stack


# --- 14.6 filter change ---------------------------------------------------------------------------


class ConnectedChange:
    """x at s changes A to B; P is fed, R is behind a barrier."""

    def __init__(self) -> None:
        world = World("p-s-r", filter_change_timeout_s=2)
        self.pann, self.rann = world.publisher("p", "P"), world.publisher("r", "R")
        self.x = x = world.subscriber("s", "x", "kind = 'A'")
        world.run(s=1)
        self.pann.publish("a1", kind="A")
        self.pann.publish("b1", kind="B")
        self.rann.publish("ra1", kind="A")
        world.run(ms=200)
        world.cut("s", "r")
        change = x.set_filter("kind = 'B'")
        self.pann.publish("a2", kind="A")  # the table with B has not reached p yet
        world.run(s=1)
        self.barred = world.horizon("s", R)
        self.pann.publish("a3", kind="A")
        self.pann.publish("b3", kind="B")
        self.rann.publish("ra2", kind="A")
        self.rann.publish("rb2", kind="B")
        world.run(s=3)
        self.switched = x.filter_changed(change)
        self.roots = [str(root) for root in world["s"].components.exchange.leaf.roots]
        updates = world.hold(of(TableDelta, TableFull, source="s", target="r"))
        world.heal("s", "r")
        world.run(s=1)  # r fills the gap by the filters that it knows of s
        updates.release()
        world.run(s=1)
        self.rann.publish("ra3", kind="A")
        self.rann.publish("rb3", kind="B")
        world.run(s=1)

    def events_of(self, pubend: PubendId) -> list[str]:
        return [each.payload.decode() for of, each in self.x.publications if of == pubend]


def test_14_6_a_filter_changes_when_a_stream_serves_it_or_at_its_position_after_the_timeout() -> (
    None
):
    scenario = ConnectedChange()
    assert scenario.switched is not None
    assert scenario.pann.ticks["a2"] <= scenario.switched[P] < scenario.pann.ticks["a3"]
    assert scenario.switched[R] == scenario.barred
    assert scenario.roots == ["kind = 'B'"], "A is not needed any more"
    assert scenario.events_of(P) == ["a1", "a2", "b3"]
    assert scenario.events_of(R) == ["ra1", "rb2", "rb3"], "rb2 is read from the log"


def test_14_6_without_the_switch_by_position_the_call_waits_as_long_as_the_barrier() -> None:
    with patched(FilterChanges, "_switch_by_position", lambda _changes: None):
        scenario = ConnectedChange()
    assert scenario.switched is None
    assert "rb2" not in scenario.events_of(R)


def test_14_6_without_the_read_events_before_the_new_start_are_lost() -> None:
    def stay_live(filter_switch: FilterSwitch, *, surely: bool = False) -> None:
        del surely
        cursor = filter_switch._cursor
        if cursor.segments.next is not None:
            filter_switch.switch(cursor.subend.horizon)

    with (
        patched(FilterSwitch, "switch_now", stay_live),
        patched(CursorGroups, "is_covered", lambda _groups, _time: True),
    ):
        scenario = ConnectedChange()
    assert scenario.switched is not None
    assert scenario.switched[R] < scenario.rann.ticks["rb2"]
    assert scenario.events_of(R) == ["ra1", "rb3"]


def disconnected_change() -> Subscriber:
    """Change the filter of a durable subscription while its client is disconnected."""
    world = World("p-s")
    ann = world.publisher("p")
    x = world.subscriber("s", "x", "kind = 'A'", durable=True)
    world.run(s=1)
    ann.publish("a60", kind="A")
    seen = ann.publish("a64", kind="A")
    world.run(ms=200)
    x.acknowledge(P, ann.ticks["a60"])
    world.run(s=1)
    x.leave()
    ann.publish("a100", kind="A")
    ann.publish("b110", kind="B")
    world.run(ms=200)
    x.connect()
    change = x.set_filter("kind = 'B'")
    world.run(ms=100)
    switched = x.filter_changed(change)
    assert switched is not None, "it is answered at once"
    assert ann.ticks["b110"] <= switched[P]
    x.leave()
    ann.publish("a140", kind="A")
    ann.publish("b150", kind="B")
    world.run(ms=200)
    x.come_back(StartPoint(StartKind.POSITION, ((P, seen),)))
    world.run(s=1)
    ann.publish("a160", kind="A")
    ann.publish("b170", kind="B")
    world.run(s=1)
    return x


def test_14_6_a_disconnected_client_gets_the_old_filter_up_to_the_change_and_then_the_new_one() -> (
    None
):
    assert disconnected_change().events == ["a60", "a64", "a100", "b150", "b170"]


def test_14_6_without_segments_the_new_filter_applies_to_the_past() -> None:
    def newest(segments: FilterSegments, _tick: Tick) -> tuple[FilterSegment, Tick]:
        return segments.current, FOREVER

    with patched(FilterSegments, "at", newest):
        x = disconnected_change()
    assert x.events == ["a60", "a64", "b110", "b150", "b170"], "a100 is lost, b110 did not match"


# --- 14.7 a new host while the log is being released ----------------------------------------------


class NewHost:
    """SHBs c and d keep up, and the log is released behind them, when e starts."""

    def __init__(self) -> None:
        world = self.world = World("p-a-c", "a-d", "a-e")
        ann = world.publisher("p")
        for name in ("c", "d"):
            world.subscriber(name, f"s{name}", "TRUE")
        world.run(s=1)
        report = world.hold(of(AckReport, source="e", target="a"))
        self.s3 = s3 = world.subscriber("e", "s3", "TRUE")  # 1
        world.run(s=1)
        ann.publish("e205")  # 2
        world.run(s=2)
        self.known = (world.released("p", P) >= ann.ticks["e205"], world.member("p", P, "e"))
        self.lost = world.lose(of(StreamData, source="a", target="e"))
        nack = world.hold(of(Nack, source="e", target="a"))
        report.release()  # 3
        world.wait(lambda: bool(s3.starts))
        self.row = world.member("p", P, "e")
        ann.publish("e211")
        world.run(s=2)  # 4: c and d report, e lost it
        self.kept = world.released("p", P) < ann.ticks["e211"]
        self.lost.end()
        world.restart("a")  # its cache could help otherwise
        nack.release()
        world.run(s=3)


def test_14_7_the_log_is_retained_for_a_host_that_has_started() -> None:
    scenario = NewHost()
    assert scenario.known == (True, None), "without a report e is no member and no log is retained"
    assert scenario.row is not None
    assert scenario.row.ack_floor <= scenario.s3.starts[P], "the row is on disk before it starts"
    assert scenario.lost.messages
    assert scenario.kept
    assert scenario.s3.events == ["e211"]
    assert scenario.s3.gaps == []


def test_14_7_without_the_row_that_is_written_with_the_stream_epoch_the_log_is_released_too_early() -> (
    None
):
    def no_rows(_members: Members, *_of: Any) -> list[MemberRecord]:
        return []

    with patched(Members, "rows_for", no_rows):
        scenario = NewHost()
    assert scenario.s3.starts
    assert not scenario.kept
    assert scenario.s3.events == []


def rejoining() -> tuple[World, MemberRecord | None, MemberRecord | None]:
    """An SHB leaves; an earlier report of a router arrives later; then the SHB joins again."""
    world = World("p-a-e", interest_grace_s=2)
    ann = world.publisher("p")
    s3 = world.subscriber("e", "s3", "TRUE")
    world.run(s=1)
    first = world.member("p", P, "e")
    assert first is not None
    late = world.repeat(of(AckReport, source="a", target="p"))
    world.run(s=1)
    s3.end()
    world.run(s=4)
    late.release()
    world.run(s=1)
    ann.publish("e1")
    world.run(s=2)
    after = world.member("p", P, "e")
    world.subscriber("e", "s4", "TRUE")
    world.run(s=1)
    again = world.member("p", P, "e")
    assert again is not None
    assert again.membership > first.membership
    return world, after, again


def test_14_7_a_report_from_before_a_host_left_is_ignored() -> None:
    world, after, again = rejoining()
    assert after is None
    assert again is not None
    latest = world.pubend("p", P).stream_epochs[-1]
    assert shb("e") in dict(latest.entries), "a new row and a new stream epoch"
    assert latest.start > again.ack_floor


def test_14_7_without_ended_memberships_a_late_report_retains_the_log() -> None:
    def forget_at_once(members: Members, host: Any, join: Any, now: int) -> Any:
        gone = leave(members, host, join, now)
        members._ended.clear()
        return gone

    leave = Members.leave
    with patched(Members, "leave", forget_at_once):
        _, after, _ = rejoining()
    assert after is not None
    assert after.shb == shb("e")
