"""Runs that break naive subscribers, publishers and feeds, with whole brokers.

The names (A15, …) are those of the rules' own list. Each scenario is played by the rules, and again with
its rule removed, and then fails as the second test shows. P is a pubend at p.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gapless.content.filter import Filter
from gapless.core.ids import BrokerId, PubendId, ShbId, VectorEntry
from gapless.core.parameters import microseconds
from gapless.core.ticks import Tick
from gapless.directory.status import PubendStatuses
from gapless.feeds.feed import Feed
from gapless.messages.clients import OpenPubend, Order, PubendOpened, RefusalCause, Refused
from gapless.messages.overlay import Heartbeat, Quality
from gapless.messages.pubend_requests import ReadReply
from gapless.messages.records import (
    AppendRow,
    PublisherRecord,
    PutRecord,
    StorageChange,
    StreamEpochRecord,
)
from gapless.messages.streams import Nack, Publication, StreamData
from gapless.overlay.session import PeerSession
from gapless.propagation.exchange import TableExchange
from gapless.pubend import pubend as pubend_module
from gapless.pubend.members import Claim, Members
from gapless.pubend.pubend import Pubend
from gapless.pubend.publisher_calls import PublisherCalls
from gapless.pubend.publishers import Publishers
from gapless.routing.routed import RoutedPubend
from gapless.subscribers.catch_up import CatchUp
from gapless.subscribers.cursor_state import CursorInput, CursorPhase
from gapless.subscribers.filter_change import FilterChanges
from gapless.subscribers.merge import Merge
from gapless.subscribers.start_verification import StartVerification
from gapless_lab.sim.planted_bugs import patched
from tests.scenarios.brokers import CLOCK_START, Publisher, Subscriber, World, of

P, Q, R = PubendId("P"), PubendId("Q"), PubendId("R")


# --- A15: a filter change and the old conjunctions ------------------------------------------------


def change_while_stream_data_is_lost() -> Subscriber:
    """While x changes A to B, an event of A from before the new start is lost and nacked."""
    world = World("p-s", gct_ms=200)
    ann = world.publisher("p")
    x = world.subscriber("s", "x", "kind = 'A'")
    world.run(s=1)
    lost = world.lose(of(StreamData, source="p", target="s"))
    x.set_filter("kind = 'B'")
    ann.publish("a118", kind="A")
    world.run(ms=10)
    lost.end()
    world.run(s=1)
    assert [frame.knowledge.publications[0].payload for frame in lost.messages] == [b"a118"]
    ann.publish("a130", kind="A")
    ann.publish("b130", kind="B")
    world.run(s=1)
    return x


def test_a15_the_old_conjunctions_stay_until_every_stream_has_passed_the_change() -> None:
    assert change_while_stream_data_is_lost().events == ["a118", "b130"]


def test_a15_if_the_old_conjunctions_are_removed_at_once_a_lost_event_is_answered_as_silence() -> (
    None
):
    def replace(changes: FilterChanges, requester: str, request: int, wanted: Filter) -> None:
        old = changes._subscription.newest
        start_change(changes, requester, request, wanted)
        changes._filters.interest.disown(old.number)

    def disown_once(tables: TableExchange, owner: int) -> None:
        if owner in tables.leaf:
            disown(tables, owner)

    start_change, disown = FilterChanges._start, TableExchange.disown
    with (
        patched(FilterChanges, "_start", replace),
        patched(TableExchange, "disown", disown_once),
    ):
        assert change_while_stream_data_is_lost().events == ["b130"]


# --- A17: a dead host -----------------------------------------------------------------------------


def dead_host_behind_routers_that_restart() -> tuple[list[bytes], Subscriber]:
    """Crash SHB z, restart the brokers that located it; return the messages to c because of z."""
    world = World("p-n-c", "n-d-z", inactive_after_s=7)
    ann = world.publisher("p")
    world.subscriber("c", "y", "kind = 'C'")
    x = world.subscriber("z", "x", "kind = 'Z'", durable=True)
    world.run(s=1)
    world.crash("z")
    world.restart("d")
    world.restart("n")
    world.run(s=12)
    since = world.now
    ann.publish("for z", kind="Z")
    world.run(s=1)
    frames = world.sent_over(StreamData, "n", "c", since)
    world.start("z")
    x.come_back()
    world.run(s=3)
    return [each.payload for frame in frames for each in frame.knowledge.publications], x


def test_a17_a_silent_host_becomes_inactive_and_catches_up_from_the_log() -> None:
    sent, x = dead_host_behind_routers_that_restart()
    assert sent == []
    assert x.events == ["for z"]
    assert x.gaps == []


def test_a17_without_inactive_members_all_receivers_are_flooded_because_of_a_dead_host() -> None:
    def never_inactive(members: Members, claim: Claim, now: int) -> Any:
        members._heard_at.update(dict.fromkeys(members._rows, now))
        return review(members, claim, now)

    review = Members.update_states
    with patched(Members, "update_states", never_inactive):
        sent, _ = dead_host_behind_routers_that_restart()
    assert sent == [b"for z"]


# --- A19: replay joins the live stream ------------------------------------------------------------

HELD_MAX = 5


def replay_while_events_come() -> tuple[list[str], list[str], int, CursorPhase]:
    """Let x read a long log while events come fast; return its events and its buffer size."""
    world = World("p-n", join_buffer_events_max=HELD_MAX, join_window_ms=50, read_chunk_bytes=30)
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    x.leave()
    for number in range(200):
        ann.send_event(f"past {number}")
        world.run(ms=2)
    x.come_back()
    cursor = world["n"].components.registry.subscriptions["x"].cursors[P]
    held = 0
    for number in range(600):
        ann.send_event(f"live {number}")
        for _ in range(2):
            world.run(ms=1)
            held = max(held, len(cursor.catch_up.held))
    world.run(s=1)
    return x.events, [*ann.ticks], held, cursor.phase


def test_a19_only_the_last_range_of_a_replay_buffers_live_events_and_few() -> None:
    events, published, held, state = replay_while_events_come()
    assert events == published
    assert 0 < held <= HELD_MAX
    assert state is CursorPhase.LIVE


def test_a19_when_live_events_are_buffered_for_the_whole_replay_they_accumulate() -> None:
    def join_at_once(catch_up: CatchUp) -> None:
        cursor = catch_up._cursor
        subend = cursor.subend
        if subend.has_base and cursor.segments.current.is_served_at(subend.served):
            catch_up.join_at = subend.horizon
            cursor.enter(CursorPhase.JOINING, CursorInput.NEARED)

    def buffer_all(catch_up: CatchUp, publications: list[Publication]) -> None:
        catch_up.held += [each for each in publications if each.tick > catch_up.join_at]

    with patched(CatchUp, "try_to_join", join_at_once), patched(CatchUp, "buffer_live", buffer_all):
        _, _, held, _ = replay_while_events_come()
    assert held > HELD_MAX


# --- A20: total order -----------------------------------------------------------------------------


YEAR_S = 365 * 86_400


def pubend_a_year_ahead() -> list[tuple[bool, str]]:
    """The clock of q is a year ahead; return the events in total order a second later.

    Of each event: whether its tick is ahead of all other clocks by more than a day, and its label.
    """
    world = World("p-n-q")
    world.publisher("p", "P")
    world.set_clock("q", YEAR_S)
    ann = world.publisher("q", "Q")
    x = world.subscriber("n", "x", "TRUE", order=Order.TOTAL)
    world.run(s=3)
    assert x.starts.keys() == {P, Q}
    ann.publish("q1")
    world.run(s=1)
    tomorrow = CLOCK_START + world.now + microseconds(s=86_400)
    return [(each.tick > tomorrow, each.payload.decode()) for _, each in x.publications]


def test_a20_a_fast_clock_does_not_stall_total_order() -> None:
    assert pubend_a_year_ahead() == [(False, "q1")]


def test_a20_without_a_limit_on_the_lead_all_streams_move_a_year_ahead() -> None:
    with patched(Pubend, "present", lambda pubend: pubend._context.clock):
        assert pubend_a_year_ahead() == [(True, "q1")]


def test_a20_without_advance_requests_the_merge_waits_for_the_clock() -> None:
    with patched(Merge, "_request_advance", lambda _merge: None):
        assert pubend_a_year_ahead() == []


def test_a20_a_slow_clock_does_not_stall_total_order() -> None:
    """R51: a receiver that waits advances the pubend's top, also above the pubend's clock."""
    world = World("p-n-r")
    ann = world.publisher("p", "P")
    world.set_clock("r", -60)
    world.publisher("r", "R")
    x = world.subscriber("n", "x", "TRUE", order=Order.TOTAL)
    world.run(s=3)
    assert x.starts.keys() == {P, R}
    ann.publish("p1")
    world.run(s=1)
    assert x.events == ["p1"]


def pubend_learned_late() -> list[tuple[Tick, str]]:
    """The clock of r is behind; its pubend is opened after a merge of others; return x's events."""
    world = World("p-n-r")
    ann = world.publisher("p", "P")
    world.set_clock("r", -4)
    x = world.subscriber("n", "x", "TRUE", order=Order.TOTAL)
    world.run(s=1)
    ann.publish("p1")
    world.run(s=1)
    rob = world.publisher("r", "R")
    world.wait(lambda: R in x.starts)
    rob.publish("r1")
    world.run(s=1)
    ann.publish("p2")
    world.run(s=1)
    return [(each.tick, each.payload.decode()) for _, each in x.publications]


def test_a20_a_pubend_that_is_announced_late_starts_above_the_merged_ticks() -> None:
    merged = pubend_learned_late()
    assert merged == sorted(merged)
    assert [label for _, label in merged][:1] == ["p1"]
    assert [label for _, label in merged][-1:] == ["p2"]


def test_a20_when_it_starts_at_its_own_tick_the_order_is_broken() -> None:
    def start_there(verification: StartVerification, after: Tick | None, reply: ReadReply) -> None:
        merge = verification._cursor.subscription.merge
        merged = merge.merged
        merge.reset(0)
        answered(verification, after, reply)
        merge.reset(merged)

    answered = StartVerification.answered
    with patched(StartVerification, "answered", start_there):
        merged = pubend_learned_late()
    assert [label for _, label in merged] == ["p1", "r1", "p2"]
    assert merged != sorted(merged)


# --- A21: publishers ------------------------------------------------------------------------------


def nine_before_eight() -> tuple[bool, dict[str, Tick], list[str]]:
    """After a reconnect a client sends 9 before its unanswered 8; return whether 8 was refused."""
    world = World("p-n")
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    ann.send_event("seven", sequence=7)
    world.run(ms=50)
    ann.leave()
    ann.connect()
    assert ann.open().last_sequence == 7
    ann.send_event("nine", sequence=9)
    eight = ann.send_event("eight", sequence=8)
    world.run(s=1)
    return ann.refused(eight), ann.ticks, x.events


def test_a21_a_skipped_sequence_is_refused_not_acknowledged() -> None:
    refused, acknowledged, events = nine_before_eight()
    assert refused
    assert [*acknowledged] == events == ["seven", "nine"]


def test_a21_when_all_sequences_below_the_last_count_as_published_an_event_is_lost() -> None:
    def up_to_the_last(
        _publishers: Publishers, held: PublisherRecord, first: int, count: int, *_found: Any
    ) -> tuple[Tick, ...]:
        known = {first: tick for first, tick, _ in held.window}
        last = min(first + count - 1, held.last_sequence)
        return tuple(known.get(sequence, 0) for sequence in range(first, last + 1))

    with patched(Publishers, "published", up_to_the_last):
        refused, acknowledged, events = nine_before_eight()
    assert not refused
    assert "eight" in acknowledged
    assert events == ["seven", "nine"]


def old_session_comes_late() -> tuple[Publisher, list[str]]:
    """A batch of a dead connection arrives after a new session was opened and sent other events."""
    world = World("p-n")
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    old = ann.session
    ann.publish("one")
    ann.open()
    ann.send_event("two, of the dead", sequence=2, session=old)
    ann.send_event("two", sequence=2)
    world.run(s=1)
    return ann, x.events


def test_a21_a_new_session_fences_the_old_one() -> None:
    ann, events = old_session_comes_late()
    assert [*ann.ticks] == events == ["one", "two"]


def test_a21_without_the_fence_the_old_session_takes_the_sequence_of_the_new_one() -> None:
    def any_session(publishers: Publishers, publisher: str, _session: int) -> PublisherRecord:
        return publishers._records[publisher]

    with patched(Publishers, "get", any_session):
        ann, events = old_session_comes_late()
    assert "two" in ann.ticks, "acknowledged"
    assert events == ["one", "two, of the dead"]


def retry_while_the_phb_is_down() -> tuple[list[str], list[str]]:
    """The answer to one is lost with p, which has it on disk; the client opens P at q.

    If it gets a pubend it publishes there, otherwise it waits for p. Return the events that it knows to be
    published before p recovers, and the events that x received.
    """
    world = World("p-n-q")
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    lost = world.lose(of(StreamData))
    ann.send_event("one", sequence=1)
    ann.leave()
    world.run(ms=10)
    world.crash("p")
    lost.end()
    ann.connect("q")
    answer = ann.call(OpenPubend(ann.number(), "P"), s=10)
    if isinstance(answer, PubendOpened):
        ann.pubend = answer.pubend
        ann.open()
        ann.send_event("one", sequence=1)
    world.run(s=2)
    known = [*ann.ticks]
    world.start("p")
    if isinstance(answer, Refused):
        assert (answer.cause, answer.broker) == (RefusalCause.WRONG_BROKER, "p")
        ann.connect("p")
        world.run(s=1)
        ann.open()
        ann.send_event("one", sequence=1)
    world.run(s=3)
    assert [*ann.ticks] == ["one"]
    return known, x.events


def test_a21_a_retry_waits_for_its_pubend_and_its_outcome_is_unknown_until_then() -> None:
    known, events = retry_while_the_phb_is_down()
    assert known == []
    assert events == ["one"]


def test_a21_after_a_retry_at_another_pubend_both_exist_when_the_first_recovers() -> None:
    with patched(PubendStatuses, "other_broker", lambda _status, _pubend: None):
        known, events = retry_while_the_phb_is_down()
    assert known == ["one"]
    assert events == ["one", "one"]


# --- A22: advertisements --------------------------------------------------------------------------


def publication_outside() -> tuple[bool, Subscriber]:
    """Publish an event outside the advertisement that matches a pruned conjunction."""
    world = World("p-n")
    ann = world.publisher("p", "P", "type = 'stock'")
    x = world.subscriber("n", "x", "type = 'weather' OR price > 10")
    world.run(s=1)
    outside = ann.send_event("rain", type="weather", price=1)
    world.run(ms=200)
    ann.send_event("ibm", type="stock", price=20)
    world.run(s=1)
    return ann.refused(outside), x


def test_a22_a_publication_outside_the_advertisement_is_refused() -> None:
    refused, x = publication_outside()
    assert refused
    assert x.events == ["ibm"]


def test_a22_without_the_refusal_a_pruned_conjunction_loses_an_event() -> None:
    with patched(pubend_module, "refuse_unadvertised", lambda _advertised, _events: None):
        refused, x = publication_outside()
    assert not refused, "the event is acknowledged"
    assert x.events == ["ibm"], "x matches rain, and has started"


def less_is_advertised_while_stream_data_is_lost() -> tuple[Publisher, Subscriber]:
    """An event is lost in transit; then P is opened with a narrower advertisement, and a restarts.

    The event is nacked only when a has received all tables again.
    """
    world = World("p-a-n")
    ann = world.publisher("p", "P", "type = 'stock'")
    x = world.subscriber("n", "x", "price < 0")
    world.run(s=1)
    nacks = world.hold(of(Nack, source="n", target="a"))
    lost = world.lose(of(StreamData, source="p", target="a"))
    ann.publish("cheap", type="stock", price=-1)
    world.run(ms=10)
    lost.end()
    assert lost.messages
    answer = ann.call(OpenPubend(ann.number(), "P", "type = 'stock' AND price > 10"))
    assert isinstance(answer, PubendOpened), "it finds the existing pubend"
    world.restart("a")
    world.run(s=2)
    nacks.end()
    world.run(s=2)
    return ann, x


def test_a22_an_advertisement_is_never_narrowed() -> None:
    ann, x = less_is_advertised_while_stream_data_is_lost()
    ann.publish("cheaper", type="stock", price=-2)
    ann.world.run(s=1)
    assert x.events == ["cheap", "cheaper"]


def test_a22_after_narrowing_old_ticks_are_repaired_by_newly_pruned_tables() -> None:
    def find_and_narrow(
        calls: PublisherCalls, client: str, call: OpenPubend, pubend: PubendId
    ) -> None:
        def narrowed() -> None:
            calls._pubends.announce(pubend)
            find(calls, client, call, pubend)

        hosted = calls._hosted[pubend]
        assert isinstance(hosted, Pubend)
        with patched(Filter, "covers", lambda _wide, _narrow: True):
            hosted.widen(Filter(call.advertisement), narrowed)

    find = PublisherCalls._open_hosted
    with patched(PublisherCalls, "_open_hosted", find_and_narrow):
        _, x = less_is_advertised_while_stream_data_is_lost()
    assert x.events == []
    assert x.gaps == []


# --- A24: a router with an empty cache ------------------------------------------------------------


def fresh_router() -> tuple[list[Nack], Subscriber]:
    """A router has just attached, with an empty cache, when a new SHB attaches at it."""
    world = World("p-a-n")
    ann = world.publisher("p")
    ann.publish("long ago")
    world.run(s=5)
    assert world.released("p", P) >= ann.ticks["long ago"]
    world.restart("a")
    world.run(s=1)
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=2)
    ann.publish("now")
    world.run(s=1)
    return world.sent_over(Nack, "n", "a"), x


def test_a24_a_router_offers_the_tick_of_its_own_feeder() -> None:
    nacks, x = fresh_router()
    assert nacks == []
    assert x.events == ["now"]


def test_a24_without_that_tick_a_new_host_nacks_released_ticks() -> None:
    def forget_where_the_feeder_is(routed: RoutedPubend, _at: Tick, _: object) -> None:
        feed_found(routed, 0, None)

    feed_found = RoutedPubend.feed_found
    with patched(RoutedPubend, "feed_found", forget_where_the_feeder_is):
        nacks, _ = fresh_router()
    assert nacks
    assert nacks[0].ranges[0].low == 1


# --- A26: best effort -----------------------------------------------------------------------------


def lost_and_then_the_pubend_crashes() -> tuple[dict[str, Tick], list[str]]:
    """An event is lost in transit; when it is nacked, only the log can have it."""
    world = World("p-n")
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    lost = world.lose(of(StreamData, Nack))
    ann.publish("quick", quick=True)
    world.restart("p")
    ann.connect()
    lost.end()
    world.run(s=2)
    ann.open()
    ann.publish("next", quick=False)
    world.run(s=1)
    return ann.ticks, x.events


def test_a26_every_event_of_a_guaranteed_stream_is_logged() -> None:
    acknowledged, events = lost_and_then_the_pubend_crashes()
    assert [*acknowledged] == events == ["quick", "next"]


def test_a26_a_best_effort_event_inside_a_guaranteed_stream_becomes_silence() -> None:
    def log_only_the_others(
        pubend: Pubend, pendings: Any, changes: tuple[StorageChange, ...]
    ) -> None:
        kept = [
            change
            for change in changes
            if not (
                isinstance(change, AppendRow)
                and change.row.publications[0].attributes.get("quick") is True
            )
        ]
        enqueue(pubend, pendings, tuple(kept))

    enqueue = Pubend._enqueue_all
    with patched(Pubend, "_enqueue_all", log_only_the_others):
        acknowledged, events = lost_and_then_the_pubend_crashes()
    assert "quick" in acknowledged
    assert events == ["next"]


def test_a26_lost_events_of_a_best_effort_pubend_are_not_nacked() -> None:
    world = World("p-n")
    ann = world.publisher("p", quality=Quality.BEST_EFFORT)
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    ann.publish("one")
    world.run(ms=100)
    lost = world.lose(of(StreamData))
    ann.publish("two")
    world.run(ms=100)
    lost.end()
    twice = world.repeat(of(StreamData))
    ann.publish("three")
    world.run(s=1)
    assert twice.messages
    assert x.events == ["one", "three"], "in order, and once"
    assert world.sent_over(Nack, "n", "p") == []
    assert x.gaps == []


def test_a26_a_pubend_keeps_its_quality() -> None:
    world = World("p-n")
    ann = world.publisher("p")
    answer = ann.call(OpenPubend(ann.number(), "P", quality=Quality.BEST_EFFORT))
    assert isinstance(answer, Refused)
    assert "guaranteed, and the quality" in answer.reason


# --- A27: an idle pubend with its clock set back --------------------------------------------------


def clock_back_while_idle() -> tuple[int, Subscriber]:
    """Set the clock of p back an hour; return how often n left its feeder, and a subscriber."""
    world = World("p-n")
    world.publisher("p")
    world.subscriber("n", "x", "kind = 'X'")
    world.run(s=1)
    world.set_clock("p", -3_600)
    world.run(s=10)
    y = world.subscriber("n", "y", "kind = 'Y'")
    world.run(s=5)
    return world["n"].coverage_marks.get("feeder was silent", 0), y


def test_a27_silence_advances_by_at_least_one_tick() -> None:
    flaps, y = clock_back_while_idle()
    assert flaps == 0
    assert y.starts.keys() == {P}


def test_a27_without_that_advance_the_feed_looks_dead() -> None:
    def wait_for_the_clock(pubend: Pubend) -> None:
        pubend._be_silent_until(pubend.present())

    with patched(Pubend, "_idle_once", wait_for_the_clock):
        flaps, _ = clock_back_while_idle()
    assert flaps > 0


def test_a27_without_its_own_tick_a_stream_epoch_starts_no_subscription() -> None:
    def start_with_the_next_event(
        pubend: Pubend, vector: dict[ShbId, VectorEntry], rows: list[PutRecord]
    ) -> None:
        entries = tuple(vector.items())
        stream_epoch = StreamEpochRecord(P, pubend.stream_epoch + 1, pubend.last + 1, 1, entries)
        pubend.stream_epochs.append(stream_epoch)
        pubend._context.write((PutRecord(stream_epoch), *rows), lambda: None)

    def wait_for_the_clock(pubend: Pubend) -> None:
        pubend._be_silent_until(pubend.present())

    with (
        patched(Pubend, "_idle_once", wait_for_the_clock),
        patched(Pubend, "open_stream_epoch", start_with_the_next_event),
    ):
        _, y = clock_back_while_idle()
    assert y.starts == {}


# --- A28: a cut in one direction ------------------------------------------------------------------

Trouble = Callable[[World, BrokerId], object]
"""A fault between n and its feeder."""


def cut_from_the_feeder(world: World, feeder: BrokerId) -> None:
    world.mute(feeder, "n")


def cut_to_the_feeder(world: World, feeder: BrokerId) -> None:
    world.mute("n", feeder)


def clogged_from_the_feeder(world: World, feeder: BrokerId) -> None:
    """Heartbeats arrive all the time; only their echoes show how old they are."""
    world.clog(feeder, "n")


def nothing_but_heartbeats_from_the_feeder(world: World, feeder: BrokerId) -> None:
    """The session is intact; only its streams are silent."""
    world.lose(
        lambda source, target, message: (
            (source, target) == (feeder, "n") and not isinstance(message, Heartbeat)
        )
    )


def fed_through(
    trouble: Trouble, wait_s: int = 6, **parameters: int
) -> tuple[list[str], list[StreamData]]:
    """Of two brokers of the next cell the feeder of n is faulty, some seconds before e2.

    Return the events of x a second after e2, and the stream data that the feeder still sent to n.
    """
    world = World("p-a-n", cells={"a": ["a1", "a2"]}, **parameters)
    ann = world.publisher("p")
    x = world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    feeder = world["n"].components.router.feeder(P)
    assert feeder is not None
    trouble(world, feeder)
    ann.publish("e1")
    world.run(s=wait_s)
    since = world.now
    ann.publish("e2")
    world.run(s=1)
    return x.events, world.sent_over(StreamData, feeder, "n", since)


@pytest.mark.parametrize(
    "trouble",
    [
        cut_from_the_feeder,
        cut_to_the_feeder,
        clogged_from_the_feeder,
        nothing_but_heartbeats_from_the_feeder,
    ],
)
def test_a28_a_feed_moves_when_its_link_is_cut_in_one_direction(trouble: Trouble) -> None:
    events, into_nowhere = fed_through(trouble, wait_s=8)
    assert events == ["e1", "e2"]
    assert into_nowhere == []


def test_a28_without_the_echo_a_feeder_keeps_sending_over_a_clogged_link() -> None:
    def by_heartbeats_alone(session: PeerSession) -> bool:
        session._echo_time = session._last_heartbeat_at
        return is_alive(session)

    is_alive = PeerSession.is_alive
    with patched(PeerSession, "is_alive", by_heartbeats_alone):
        events, into_nowhere = fed_through(clogged_from_the_feeder)
    assert events == ["e1"]
    assert into_nowhere


def test_a28_without_a_feed_timeout_a_receiver_stays_with_a_silent_feeder() -> None:
    with patched(Feed, "_leave_silent_feeder", lambda _feed: None):
        events, into_nowhere = fed_through(nothing_but_heartbeats_from_the_feeder)
    assert events == []
    assert into_nowhere


def test_a28_without_heartbeats_and_a_feed_timeout_a_feeder_sends_over_a_cut_link() -> None:
    """Either would detect this cut: the heartbeats that n misses, or the silence of the stream."""
    with (
        patched(PeerSession, "is_alive", lambda session: session.is_open),
        patched(Feed, "_leave_silent_feeder", lambda _feed: None),
    ):
        events, into_nowhere = fed_through(cut_from_the_feeder)
    assert events == []
    assert into_nowhere


def test_a28_without_heartbeats_a_broker_waits_for_a_feeder_that_has_forgotten_it() -> None:
    with patched(PeerSession, "is_alive", lambda session: session.is_open):
        # the attachment ends after three quarters of inactive_after_s
        events, into_nowhere = fed_through(cut_to_the_feeder, inactive_after_s=7)
    assert events == ["e1"]
    assert into_nowhere == []
