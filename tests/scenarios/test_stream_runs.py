"""Runs that break naive streams, with whole brokers: epochs, silence, incarnations, membership.

The names (A6, …) are those of the rules' own list. Each scenario is played by the rules, and again with
its rule removed, and then fails as the second test shows. P is a pubend at p.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from gapless.core.ids import BrokerId, MembershipId, PubendId, ShbId, VectorEntry
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.messages.clients import StartKind, StartPoint
from gapless.messages.propagation import TableDelta, TableFull
from gapless.messages.records import (
    IncarnationRecord,
    MemberRecord,
    PubendRecord,
    PutRecord,
    Record,
)
from gapless.messages.streams import (
    AckReport,
    KnowledgeRange,
    Member,
    Nack,
    StreamData,
    StreamEpoch,
    StreamSilence,
)
from gapless.propagation.exchange import TableExchange
from gapless.pubend.members import Claim, Members
from gapless.pubend.pubend import Pubend
from gapless.routing import sending
from gapless.routing.reports import ReportAggregator
from gapless.stream.epochs import StreamEpochs
from gapless.stream.horizon import DoubtHorizon
from gapless.subscribers.log_hold import LogHolds
from gapless.subscribers.reporter import AckReporter
from gapless.subscribers.subend import Subend
from gapless_lab.sim.planted_bugs import patched
from tests.scenarios.brokers import Disk, Publisher, Subscriber, World, of, shb

P, W = PubendId("P"), PubendId("W")


def expected_and_missing(ann: Publisher, subscriber: Subscriber, *labels: str) -> list[str]:
    """Return the events after the confirmed start of a subscriber that it did not receive."""
    start = subscriber.starts.get(ann.pubend, 2**62)
    return [
        label for label in labels if ann.ticks[label] > start and label not in subscriber.events
    ]


# --- A6: the number of a stream epoch -------------------------------------------------------------


def clock_back_at_the_pubend() -> tuple[Subscriber, Subscriber]:
    """Crash p and set its clock back: V^m changes in the same second as once before."""
    world = World("p-n")
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "kind = 'X'")
    world.run(ms=500)
    world.subscriber("n", "w", "kind = 'W'")  # the second vector of that second
    world.run(ms=2_500)
    world.restart("p", clock_back_s=3)
    ann.connect()
    world.run(ms=500)
    y = world.subscriber("n", "y", "kind = 'Y'")
    world.run(s=3)
    ann.open()
    ann.publish("x1", kind="X")
    ann.publish("y1", kind="Y")
    world.run(s=1)
    return x, y


def test_a6_a_stream_epoch_number_means_one_vector_for_ever_although_the_clock_is_set_back() -> (
    None
):
    x, y = clock_back_at_the_pubend()
    assert (x.events, y.events) == (["x1"], ["y1"])


@contextmanager
def numbers_from_the_clock() -> Iterator[None]:
    """Number stream epochs by the second in which they open, two of one second consecutively."""

    def number_by_the_clock(pubend: Pubend, vector: dict[ShbId, VectorEntry], changes: Any) -> None:
        second = pubend._context.clock // microseconds(s=1)
        number = second + 1 if pubend.stream_epoch == second else second
        with patched(Pubend, "stream_epoch", property(lambda _: number - 1)):
            open_stream_epoch(pubend, vector, changes)

    open_stream_epoch = Pubend.open_stream_epoch
    with patched(Pubend, "open_stream_epoch", number_by_the_clock):
        yield


def test_a6_with_numbers_from_a_clock_a_new_vector_is_read_as_an_old_one() -> None:
    with numbers_from_the_clock():
        _, y = clock_back_at_the_pubend()
    assert y.starts == {}, "the stream epoch that serves y looks like one that does not"


class OldSilenceComesLate:
    """A range filtered for n:2 arrives at n after p's clock was set back and V^m has become n:3.

    SHB n receives nothing of the stream for a while. Meanwhile V^m changes twice because of m; under the
    first of these vectors y7 is published, and is silence for all members. Then p crashes, and y subscribes
    at n in the second, by p's clock, in which that first vector was new.
    """

    def __init__(self) -> None:
        self.world = world = World("p-a-n", "a-m", dct_ms=60_000)
        self.ann = ann = world.publisher("p")
        world.subscriber("n", "x", "kind = 'X'")
        world.subscriber("m", "u", "kind = 'U'")
        world.run(s=3)
        lost = world.lose(of(StreamData, StreamSilence, StreamEpoch, source="a", target="n"))
        world.subscriber("m", "v", "kind = 'V'")
        world.run(ms=500)
        ann.publish("y7", kind="Y")
        world.run(ms=500)
        world.subscriber("m", "w", "kind = 'W'")
        world.run(ms=500)
        world.restart("p", clock_back_s=2)
        ann.connect()
        world.run(ms=700)
        self.y = world.subscriber("n", "y", "kind = 'Y'")
        world.run(s=1)
        stream_epochs = world.pubend("p", P).stream_epochs
        self.counters = [dict(each.entries)[shb("n")].time.counter for each in stream_epochs]
        self.numbers = [each.number for each in stream_epochs]
        lost.end()
        world.run(s=3)
        ann.open()
        ann.publish("y8", kind="Y")
        world.run(s=1)
        self.missing = expected_and_missing(ann, self.y, "y7", "y8")


def test_a6_a_range_filtered_for_an_older_vector_is_no_start() -> None:
    scenario = OldSilenceComesLate()
    assert scenario.counters == [2, 2, 3]
    assert scenario.numbers == sorted(set(scenario.numbers))
    assert scenario.y.starts[P] > scenario.ann.ticks["y7"]
    assert scenario.y.events == ["y8"]
    assert scenario.missing == []


def test_a6_with_numbers_from_a_clock_y_starts_on_ticks_filtered_without_it() -> None:
    # two vectors have one number: with the first y never starts, with the last it starts wrongly
    def take_the_last(stream_epochs: StreamEpochs, message: StreamEpoch) -> bool:
        stream_epochs._vectors.pop(message.number, None)
        return learn(stream_epochs, message)

    learn = StreamEpochs.learn
    with numbers_from_the_clock():
        scenario = OldSilenceComesLate()
        assert scenario.counters == [2, 2, 3]
        assert scenario.numbers[0] == scenario.numbers[2], "the clock shows that second again"
        assert scenario.y.starts == {}
        with patched(StreamEpochs, "learn", take_the_last):
            scenario = OldSilenceComesLate()
    assert scenario.y.starts[P] < scenario.ann.ticks["y7"], (
        "y needs 3, and that tick was filtered for 2"
    )
    assert scenario.y.events == ["y8"]
    assert scenario.missing == ["y7"]


# --- A7: merged silence ---------------------------------------------------------------------------


def silence_before_a_start() -> list[str]:
    """Filter an event that only y matches, and send it as silence with the stream epoch of y."""
    world = World("p-n", silence_ms=900)
    ann = world.publisher("p")
    world.subscriber("n", "x", "kind = 'X'")
    world.run(s=2)
    updates = world.hold(of(TableDelta, TableFull, source="n", target="p"))
    y = world.subscriber("n", "y", "kind = 'Y'")
    world.run(ms=100)
    ann.publish("e7", kind="Y")
    updates.release()
    world.run(s=1)
    ann.publish("e21", kind="Y")
    world.run(s=1)
    assert y.events == ["e21"]
    return expected_and_missing(ann, y, "e7", "e21")


def test_a7_a_range_is_in_one_stream_epoch_so_no_cursor_starts_on_ticks_filtered_before() -> None:
    assert silence_before_a_start() == []


def test_a7_when_silences_of_two_stream_epochs_are_merged_a_start_is_too_early() -> None:
    def merged(ranges: Iterable[KnowledgeRange], _publications_max: int) -> list[KnowledgeRange]:
        found: list[KnowledgeRange] = []
        for knowledge in ranges:
            if found and not knowledge.publications and found[-1].high + 1 == knowledge.low:
                low, before = found[-1].low, found.pop().publications
                found.append(KnowledgeRange(low, knowledge.high, knowledge.stream_epoch, 0, before))
            else:
                found.append(knowledge)
        return found

    with patched(sending, "joined", merged):
        missing = silence_before_a_start()
    assert missing == ["e7"]


# --- A8: silence, a crash, and the clock back -----------------------------------------------------


def silence_then_clock_back() -> tuple[dict[str, Tick], list[str]]:
    """An idle pubend has sent silence when it crashes and its clock is set back."""
    world = World("p-n")
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=5)
    world.restart("p", clock_back_s=4)
    ann.connect()
    world.run(s=1)
    ann.open()
    ann.publish("e1")
    world.run(s=1)
    return ann.ticks, x.events


def test_a8_silence_sent_before_a_crash_stays_silent() -> None:
    acknowledged, events = silence_then_clock_back()
    assert [*acknowledged] == events == ["e1"]


def test_a8_without_the_tick_ceiling_an_acknowledged_event_is_never_delivered() -> None:
    def promise(pubend: Pubend, need: Tick) -> None:
        pubend._raised(need)

    def without_ceiling(pubend: Pubend, **values: Any) -> PutRecord:
        store = change(pubend, **{**values, "ceiling": 0})
        assert isinstance(store.record, PubendRecord)
        return PutRecord(msgspec.structs.replace(store.record, ceiling=0))

    change = Pubend._change
    with (
        patched(Pubend, "_raise_ceiling", promise),
        patched(Pubend, "_change", without_ceiling),
    ):
        acknowledged, events = silence_then_clock_back()
    assert [*acknowledged] == ["e1"]
    assert events == []


# --- A9: the incarnation of a broker --------------------------------------------------------------


def host_with_its_clock_back() -> tuple[Subscriber, list[str]]:
    """An SHB restarts with its clock an hour back, and the table update of y there is late.

    Return y, and the events that it must receive and did not.
    """
    world = World("p-n")
    ann = world.publisher("p")
    world.subscriber("n", "x", "kind = 'X'")
    world.run(s=1)
    updates = world.hold(of(TableDelta, TableFull, source="n", target="p"))
    world.restart("n", clock_back_s=3_600)
    y = world.subscriber("n", "y", "kind = 'Y'")
    world.run(s=1)
    ann.publish("y1", kind="Y")
    world.run(s=1)
    updates.release()
    world.run(s=2)
    ann.publish("y2", kind="Y")
    world.run(s=1)
    return y, expected_and_missing(ann, y, "y1", "y2")


def test_a9_an_incarnation_grows_from_start_to_start_although_the_clock_is_set_back() -> None:
    y, missing = host_with_its_clock_back()
    assert y.events == ["y2"]
    assert missing == []


def test_a9_with_virtual_times_from_the_clock_a_subscription_unknown_to_the_phb_starts() -> None:
    def start_by_the_clock(tables: TableExchange) -> None:
        tables.leaf.incarnation = tables._context.clock
        start(tables)

    start = TableExchange.start
    with patched(TableExchange, "start", start_by_the_clock):
        y, missing = host_with_its_clock_back()
    assert y.events == ["y2"]
    assert missing == ["y1"]


def test_a9_with_sessions_from_the_clock_too_a_host_is_refused_as_its_former_incarnation() -> None:
    def without_incarnations(disk: Disk) -> list[Record]:
        return [each for each in load(disk) if not isinstance(each, IncarnationRecord)]

    load = Disk.load
    with patched(Disk, "load", without_incarnations):
        y, _ = host_with_its_clock_back()
    assert y.starts == {}, "sessions of a smaller incarnation are refused, so it has none"


# --- A10, A11: registration and V^m ---------------------------------------------------------------


def listed_by_tables(members: Members, claim: Claim, now: int) -> dict[ShbId, VectorEntry]:
    """V^m of all SHBs that any table claims, whether they joined the pubend or not."""
    del members, now
    claims = {host: claim(host) for host in map(shb, "pace")}
    return {host: entry for host, entry in claims.items() if entry is not None}


class RegistrationUnderWay:
    """The table of a new SHB e arrives at p before its report; c keeps up all the time."""

    def __init__(self) -> None:
        world = World("p-a-c", "a-e")
        self.ann = ann = world.publisher("p")
        world.subscriber("c", "s1", "TRUE")
        world.run(s=1)
        reports = world.hold(of(AckReport, source="e", target="a"))
        self.s3 = world.subscriber("e", "s3", "TRUE")
        world.run(s=1)
        lost = world.lose(of(StreamData, source="a", target="e"))
        nacks = world.hold(of(Nack, source="e", target="a"))
        ann.publish("e211")
        world.run(s=2)
        lost.end()
        world.restart("a")
        nacks.end()
        world.run(s=2)
        reports.release()
        world.run(s=2)
        ann.publish("e240")
        world.run(s=1)


def test_a10_a_host_starts_only_when_its_member_row_is_written() -> None:
    scenario = RegistrationUnderWay()
    assert expected_and_missing(scenario.ann, scenario.s3, "e211", "e240") == []
    assert scenario.s3.events == ["e240"]
    assert scenario.s3.gaps == []


def test_a10_with_registration_apart_from_v_m_the_log_is_released_under_a_started_host() -> None:
    def rows_of_reporting_hosts(
        members: Members, vector: dict[ShbId, VectorEntry], start: Tick, released: Tick, *_: Any
    ) -> list[MemberRecord]:
        last_reports = {host: entry for host, entry in vector.items() if host in members._contacts}
        return rows_for(members, last_reports, start, released)

    rows_for = Members.rows_for
    with (
        patched(Members, "vector", listed_by_tables),
        patched(Members, "rows_for", rows_of_reporting_hosts),
    ):
        scenario = RegistrationUnderWay()
    assert expected_and_missing(scenario.ann, scenario.s3, "e211", "e240") == ["e211"]
    (gap,) = scenario.s3.gaps
    assert gap.low <= scenario.ann.ticks["e211"] <= gap.high


def weather_and_stocks() -> bool:
    """Let an SHB need the weather only; return whether the log of the stocks is released."""
    world = World("p-c")
    stocks = world.publisher("p", "P", "type = 'stock'")
    weather = world.publisher("p", "W", "type = 'weather'")
    x = world.subscriber("c", "x", "type = 'weather'")
    world.run(s=1)
    tick = stocks.publish("ibm", type="stock")
    weather.publish("rain", type="weather")
    world.run(s=3)
    assert x.events == ["rain"]
    return world.released("p", P) >= tick


def test_a11_a_host_that_never_joined_a_pubend_does_not_retain_its_log() -> None:
    assert weather_and_stocks()


def test_a11_with_membership_by_tables_alone_the_log_is_retained_for_ever() -> None:
    def rows_of_all(
        members: Members, vector: dict[ShbId, VectorEntry], start: Tick, released: Tick, *_: Any
    ) -> list[MemberRecord]:
        for host, entry in vector.items():
            row = MemberRecord(P, host, MembershipId(0, 0), entry.time, False, False, start - 1)
            members._rows.setdefault(host, row)
        return rows_for(members, vector, start, released)

    rows_for = Members.rows_for
    with (
        patched(Members, "vector", listed_by_tables),
        patched(Members, "rows_for", rows_of_all),
    ):
        assert not weather_and_stocks()


# --- A12: leases ----------------------------------------------------------------------------------


def one_lags() -> tuple[Subscriber, Subscriber]:
    """SHBs c and d are reported as one group; z at c acknowledges, y at d does not."""
    world = World("p-a-c", "a-d", ack_groups=1, inactive_after_s=7, member_expiry_s=8)
    ann = world.publisher("p")
    z = world.subscriber("c", "z", "TRUE", durable=True)
    y = world.subscriber("d", "y", "TRUE", durable=True)
    world.run(s=1)
    for number in range(16):
        ann.publish(f"e{number}")
        world.run(ms=900)
        if number >= 3:
            z.acknowledge(P, ann.ticks[f"e{number - 3}"])
    for each in (z, y):
        each.leave()
        each.come_back()
    world.run(s=2)
    return z, y


def test_a12_a_host_that_reports_stays_a_member_although_its_group_lags() -> None:
    z, y = one_lags()
    numbers = [f"e{number}" for number in range(16)]
    assert z.events == numbers + numbers[13:]
    assert y.events == numbers + numbers
    assert z.gaps == y.gaps == []


def test_a12_with_expiry_by_ack_floor_the_group_of_a_lagging_host_loses_its_log() -> None:
    def by_floor(members: Members, claim: Claim, now: int) -> Any:
        for row in members.rows():
            if floors.get(row.shb, (-1, 0))[0] < row.ack_floor:
                floors[row.shb] = (row.ack_floor, now)
            members._heard_at[row.shb] = floors[row.shb][1]
        return review(members, claim, now)

    floors: dict[ShbId, tuple[Tick, int]] = {}
    review = Members.update_states
    with (
        patched(Members, "update_states", by_floor),
        patched(AckReporter, "review", AckReporter.report),  # the reports of both are one group
    ):
        z, _ = one_lags()
    assert z.gaps, "z acknowledged all the time"


def dead_host() -> MemberRecord:
    """Crash an SHB; return its row on the PHB's disk a while later."""
    world = World("p-a-c", inactive_after_s=7)
    world.publisher("p")
    world.subscriber("c", "y", "TRUE", durable=True)
    world.subscriber("a", "x", "TRUE")  # for which a stays fed
    world.run(s=1)
    world.crash("c")
    world.run(s=10)
    row = world.member("p", P, "c")
    assert row is not None
    return row


def test_a12_only_recent_reports_are_forwarded() -> None:
    assert dead_host().inactive


def test_a12_a_router_that_repeats_old_reports_keeps_a_dead_host_a_member() -> None:
    def remember_for_ever(reports: ReportAggregator) -> None:
        reports._context.call_later(microseconds(ms=500), reports._tick)
        for pubend, last in reports._last_reports.items():
            reports._fresh[pubend] = dict.fromkeys(last)
            last.update({shb: each._replace(at=reports._context.now) for shb, each in last.items()})
        reports._pass_on()

    with (
        patched(ReportAggregator, "_tick", remember_for_ever),
        patched(ReportAggregator, "session_closed", lambda _reports, _peer: None),
    ):
        assert not dead_host().inactive


# --- A13: a need below an ack floor ---------------------------------------------------------------


def moved_client(*, report_is_late: bool) -> Subscriber:
    """Move a client from c to d with an old position; d has reported more, perhaps again late."""
    world = World("p-c", "p-d", prefetch_max=1, backlog_bytes=0, read_chunk_bytes=1)
    ann = world.publisher("p")
    x = world.subscriber("c", "x", "TRUE", durable=True)
    world.subscriber("d", "y", "TRUE")
    world.run(s=1)
    for number in range(50, 56):
        ann.publish(f"e{number}")
        world.run(ms=300)
    x.acknowledge(P, ann.ticks["e50"])
    late = world.repeat(of(AckReport, source="d", target="p"))
    world.run(s=1)
    late.end()
    start = StartPoint(StartKind.POSITION, ((P, ann.ticks["e50"]),))
    hosting = x.hosting.next_epoch()
    moved = world.subscriber("d", "x", "TRUE", durable=True, start=start, credit=1, hosting=hosting)
    world.run(s=1)
    x.end()  # at c, its former broker
    world.run(s=2)
    overtaken = world.lose(of(AckReport, source="d", target="p"))
    if report_is_late:
        late.deliver()
    world.run(s=1)
    overtaken.end()
    moved.give_credit(100)
    world.run(s=2)
    return moved


@pytest.mark.parametrize("report_is_late", [False, True])
def test_a13_a_start_in_the_past_retains_the_log_by_its_log_hold(*, report_is_late: bool) -> None:
    moved = moved_client(report_is_late=report_is_late)
    assert moved.events == [f"e{number}" for number in range(51, 56)]
    assert moved.gaps == []


@contextmanager
def the_last_report_counts() -> Iterator[None]:
    """Remove log holds; an SHB reports less instead, and brokers lower its ack floor."""

    def lower_at_routers(
        reports: ReportAggregator, peer: BrokerId, pubend: PubendId, member: Member, tick: Tick
    ) -> None:
        last_reports = reports._last_reports.setdefault(pubend, {})
        if member.shb in last_reports:
            last_reports[member.shb] = last_reports[member.shb]._replace(tick=tick)
        take(reports, peer, pubend, member, tick)

    def lower_at_the_pubend(members: Members, member: Member, tick: Tick, now: int) -> bool:
        is_new = report(members, member, tick, now)
        row = members._rows.get(member.shb)
        if row is not None:
            members._rows[member.shb] = msgspec.structs.replace(row, ack_floor=tick)
        return is_new

    take, report = ReportAggregator._take, Members.report
    with (
        patched(LogHolds, "take", lambda _holding: None),
        patched(ReportAggregator, "_take", lower_at_routers),
        patched(Members, "report", lower_at_the_pubend),
    ):
        yield


def test_a13_ack_floors_that_fall_retain_the_log_while_reports_arrive_in_order() -> None:
    with the_last_report_counts():
        moved = moved_client(report_is_late=False)
    assert moved.events == [f"e{number}" for number in range(51, 56)]
    assert moved.gaps == []


def test_a13_with_ack_floors_that_fall_a_late_report_releases_the_log() -> None:
    with the_last_report_counts():
        moved = moved_client(report_is_late=True)
    assert moved.gaps
    assert len(moved.events) < 5


# --- A14: released is not silent ------------------------------------------------------------------


def expired_host() -> tuple[dict[str, Tick], Subscriber]:
    """Cut an SHB off for so long that its membership ends and the log is released."""
    world = World("p-n", inactive_after_s=7, member_expiry_s=8)
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    ann.publish("e50")
    world.run(s=1)
    world.cut("p", "n")
    ann.publish("e51")
    ann.publish("e99")
    world.run(s=12)
    assert world.released("p", P) >= ann.ticks["e99"]
    world.heal("p", "n")
    world.run(s=2)
    ann.publish("e101")
    world.run(s=1)
    return ann.ticks, x


def test_a14_released_events_are_sent_as_a_gap() -> None:
    ticks, x = expired_host()
    assert x.events == ["e50", "e101"]
    assert min(gap.low for gap in x.gaps) <= ticks["e51"]
    assert max(gap.high for gap in x.gaps) >= ticks["e99"]


def test_a14_with_released_ticks_as_silence_the_gap_is_not_sent() -> None:
    def skip(subend: Subend, up_to: Tick, _gone: Tick) -> None:
        assert isinstance(subend._horizon, DoubtHorizon)
        subend._horizon.skip_to(up_to)
        subend._stream.raise_top(up_to)
        subend._stream.forget_up_to(up_to)

    with patched(Subend, "_add_gap", skip):
        _, x = expired_host()
    assert x.events == ["e50", "e101"]
    assert x.gaps == []
