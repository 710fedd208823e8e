"""Forced moves: a durable subscription goes on where its client is, and its old home lets it go."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest

from gapless.core.ids import BrokerId, PubendId
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Begin,
    BeginKind,
    Cause,
    Delivery,
    Ended,
    Governed,
    Home,
    Refused,
    SetFilter,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from gapless.messages.mobility import Superseded
from gapless.messages.pubend_requests import Read
from gapless.messages.records import HoldRecord
from gapless.messages.streams import Attach
from tests.broker.harness import Asker, Desk, P
from tests.scenarios.brokers import Publisher, of

Place: TypeAlias = dict[PubendId, Tick]


def stage() -> tuple[Desk, Publisher, Asker, Subscribed]:
    """Return the line p - a - b with a pubend at p, and a client whose subscription lives at a."""
    world = Desk("p-a-b", delta=1, retention_s=0)
    ann = world.publisher("p")
    world.run(s=1)
    client = Asker(world, "a", "desk")
    answer = client.subscribe("TRUE", durable=True)
    assert isinstance(answer, Subscribed)
    return world, ann, client, answer


def come(
    client: Asker, broker: BrokerId, home: Home | None, after: int, wanted: str = "TRUE"
) -> Any:
    """Let a client come to a broker with its token and position; return the answer."""
    client.connect(broker)
    begin = Begin(BeginKind.POSITION, ((P, after),))
    call = Subscribe(client.number(), "desk", wanted, True, begin, credit=1_000, home=home)
    return client.call(call, s=5)


def payloads(client: Asker) -> list[str]:
    """Return the labels of the events that a client was given."""
    return [
        publication.payload.decode()
        for notice in client.of_kind(Delivery)
        for _, publication in notice.events
    ]


def homes_of(world: Desk, *brokers: BrokerId) -> list[BrokerId]:
    """Return at which of the brokers the subscription is."""
    return [name for name in brokers if "desk" in world[name].host.subscriptions]


def test_a_client_whose_broker_is_dead_goes_on_at_another_from_its_position() -> None:
    # MV-13: nothing lost, nothing twice, and what was published meanwhile comes from the log
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    ann.publish("e2")
    moved = come(client, "b", answer.home, seen)
    assert isinstance(moved, Subscribed)
    assert moved.home is not None
    assert answer.home is not None
    assert (moved.home.birth, moved.home.epoch) == (answer.home.birth, 1)
    ann.publish("e3")
    world.run(s=2)
    assert payloads(client)[-2:] == ["e2", "e3"]
    assert payloads(client).count("e1") == 1


def test_the_old_home_lets_a_subscription_go_when_it_is_back() -> None:
    # MV-14: it hears of it when it comes back, and its log is not kept for nobody
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    come(client, "b", answer.home, seen)
    world.run(s=2)
    world.start("a")
    world.run(s=5)
    assert homes_of(world, "a", "b") == ["b"]
    assert world["a"].marks["subscription moved away"] == 1


def test_the_old_home_keeps_the_log_until_the_new_one_does() -> None:
    # run 20: the new home says that it is one only when the log is held for it
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    client.leave()
    lost = world.lose(lambda *_: True)
    client.connect("b")
    begin = Begin(BeginKind.POSITION, ((P, seen),))
    call = Subscribe(client.number(), "desk", "TRUE", True, begin, credit=9, home=answer.home)
    client.ask(call)
    world.run(s=1)
    assert homes_of(world, "a", "b") == ["a", "b"], "nobody has heard of anything"
    lost.end()
    world.run(s=5)
    assert homes_of(world, "a", "b") == ["b"]


def test_a_token_of_before_a_move_is_refused_with_the_new_home() -> None:
    # MV-16
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    client.leave()
    moved = come(client, "b", answer.home, seen)
    world.run(s=2)
    late = Asker(world, "a", "late")
    refused = come(late, "a", answer.home, seen)
    assert isinstance(refused, Refused)
    assert (refused.cause, refused.broker, refused.home) == (Cause.ELSEWHERE, "b", moved.home)


def test_who_is_still_at_the_old_home_is_told_where_the_subscription_went() -> None:
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    other = Asker(world, "b", "other")
    come(other, "b", answer.home, seen)
    world.run(s=2)
    (ended,) = client.of_kind(Ended)
    assert ended.cause is Cause.ELSEWHERE
    assert ended.home == Home(answer.home.birth, 1, "b") if answer.home else False


def test_a_subscription_can_move_back() -> None:
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    moved = come(client, "b", answer.home, seen)
    world.run(s=2)
    world.start("a")
    world.run(s=3)
    world.crash("b")
    seen = ann.publish("e2")
    back = come(client, "a", moved.home, seen - 1)
    assert back.home.epoch == 2
    world.run(s=2)
    assert payloads(client)[-1] == "e2"
    world.start("b")
    world.run(s=5)
    assert homes_of(world, "a", "b") == ["a"]


def test_another_subscription_of_the_same_name_is_not_shared() -> None:
    world, _, client, answer = stage()
    other = Asker(world, "b", "other")
    assert isinstance(other.subscribe("TRUE", "desk", durable=True), Subscribed)
    other.leave()
    refused = come(client, "b", answer.home, 1)
    assert isinstance(refused, Refused)
    assert "another subscription" in refused.reason
    world.run(s=2)
    assert homes_of(world, "a", "b") == ["a", "b"]


def test_a_home_is_remembered_over_a_crash_and_said_again() -> None:
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    come(client, "b", answer.home, seen)
    world.run(s=1)
    world.crash("b")
    world.start("b")
    world.run(s=2)
    world.start("a")
    world.run(s=5)
    assert homes_of(world, "a", "b") == ["b"]


def test_a_subscription_that_is_ended_where_it_moved_is_ended_where_it_was() -> None:
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    come(client, "b", answer.home, seen)
    client.call(Unsubscribe(client.number(), "desk"))
    world.start("a")
    world.run(s=5)
    assert homes_of(world, "a", "b") == []
    records = world.nodes["p"].disk.records.values()
    assert not [each for each in records if isinstance(each, HoldRecord)]


def test_an_old_form_with_another_filter_is_made_anew() -> None:
    # a has not heard that the client moved and changed its filter elsewhere
    world, ann, client, answer = stage()
    seen = ann.publish("e1", kind=1)
    assert answer.home is not None
    newer = Home(answer.home.birth, 3, "b")
    ann.publish("e2", kind=2)
    ann.publish("e3", kind=1)
    taken = come(client, "a", newer, seen, "kind = 1")
    assert taken.home == Home(answer.home.birth, 4, "a")
    world.run(s=2)
    assert payloads(client)[-1] == "e3"
    assert payloads(client).count("e2") == 1  # it came before, by the old filter


def flight(
    client: Asker, home: Home | None, after: int, acked: int, *earlier: Governed
) -> Subscribe:
    """Let a client come to b that has acknowledged less than it has seen; return what it asks there."""
    client.connect("b")
    client.notices.clear()
    begin = Begin(BeginKind.POSITION, ((P, after),))
    return Subscribe(
        client.number(),
        "desk",
        "kind = 2",
        True,
        begin,
        credit=1_000,
        home=home,
        acked=((P, acked),),
        earlier=earlier,
    )


def flee(client: Asker, home: Home | None, after: int, acked: int, *earlier: Governed) -> Any:
    """Let a client go on at b; return the answer."""
    return client.call(flight(client, home, after, acked, *earlier), s=5)


def come_without_a_position(client: Asker, broker: BrokerId, home: Home | None) -> Any:
    """Let a client come back that has forgotten what it has seen; return the answer."""
    client.connect(broker)
    client.notices.clear()
    call = Subscribe(client.number(), "desk", "kind = 2", True, credit=1_000, home=home)
    return client.call(call, s=5)


def test_what_was_seen_and_not_acknowledged_comes_again_after_a_flight() -> None:
    # a client that dies after it fled finds what it has not acknowledged, as at its old home
    world, ann, client, answer = stage()
    acked = ann.publish("e1", kind=2)
    seen = ann.publish("e2", kind=2)
    world.run(s=1)
    world.crash("a")
    moved = flee(client, answer.home, seen, acked)
    world.run(s=2)
    assert payloads(client) == []
    assert come_without_a_position(client, "b", moved.home).position == ((P, acked),)
    world.run(s=2)
    assert payloads(client) == ["e2"]


def test_a_crash_right_after_a_flight_brings_nothing_again_that_was_seen() -> None:
    # the new home has where it keeps the log from on disk, and no strand yet: its pubend is out of reach
    world, ann, client, answer = stage()
    acked = ann.publish("e1", kind=2)
    seen = ann.publish("e2", kind=2)
    world.run(s=1)
    world.crash("a")
    world.crash("p")
    client.ask(flight(client, answer.home, seen, acked))
    world.wait(lambda: world.record("b", "desk") is not None)
    world.crash("b")
    world.start("b")
    assert answer.home is not None
    moved = flee(client, answer.home.after_a_flight(), seen, acked)
    assert isinstance(moved, Subscribed)
    world.start("p")
    world.run(s=5)
    ann.connect("p")
    ann.open()
    ann.publish("e3", kind=2)
    world.run(s=2)
    assert payloads(client) == ["e3"]


def test_earlier_filters_flee_with_a_client() -> None:
    # R47 holds over a flight: up to where a filter was followed by another it governs
    world, ann, client, answer = stage()
    seen = ann.publish("e1", kind=1)
    ann.publish("e2", kind=2)
    switched = ann.publish("e3", kind=1)
    ann.publish("e4", kind=1)
    ann.publish("e5", kind=2)
    world.run(s=1)
    world.crash("a")
    moved = flee(client, answer.home, seen, seen, Governed("kind = 1", ((P, switched),)))
    assert [each.filter for each in moved.earlier] == ["kind = 1"]
    world.run(s=2)
    assert payloads(client) == ["e3", "e5"]


def test_earlier_filters_survive_a_crash_of_the_new_home() -> None:
    world, ann, client, answer = stage()
    seen = ann.publish("e1", kind=1)
    switched = ann.publish("e2", kind=1)
    ann.publish("e3", kind=1)
    world.run(s=1)
    world.crash("a")
    moved = flee(client, answer.home, seen, seen, Governed("kind = 1", ((P, switched),)))
    world.crash("b")
    world.start("b")
    world.run(s=1)
    come_without_a_position(client, "b", moved.home)
    ann.publish("e4", kind=2)
    world.run(s=2)
    assert payloads(client) == ["e2", "e4"]


def test_a_crash_that_takes_a_return_back_does_not_end_the_subscription() -> None:
    # all have heard that it lives at a again; a forgot that, and is told
    world, _, _, answer = stage()
    assert answer.home is not None
    world["a"].homes.received("p", Superseded(answer.home.birth, 2, "a"))
    assert homes_of(world, "a") == ["a"]
    assert world.subscription("a", "desk").epoch == 2


def test_an_abandoned_flight_does_not_win_over_the_home_that_went_on() -> None:
    # the client asked at b, did not wait, went back to a, and changed its filter there
    world, ann, client, answer = stage()
    seen = ann.publish("e1", kind=1)
    world.run(s=1)
    world.cut("a", "b")
    assert answer.home is not None
    come(client, "b", answer.home, seen)
    back = come(client, "a", answer.home.after_a_flight(), seen)
    assert back.home == Home(answer.home.birth, 2, "a")
    client.call(SetFilter(client.number(), "desk", "kind = 2"), s=2)
    world.heal("a", "b")
    world.run(s=5)
    assert homes_of(world, "a", "b") == ["a"]
    ann.publish("e2", kind=2)
    world.run(s=1)
    assert payloads(client)[-1] == "e2"


# --- back at a home that has not heard of the move ----------------------------------------------------


def away_from_home() -> tuple[Desk, Asker, Home]:
    """Return the line a - p - b with a client that lives at b now; a is cut off and does not know."""
    world = Desk("a-p-b", retention_s=0)
    world.lose(of(Superseded, target="a"))
    client = Asker(world, "a", "desk")
    answer = client.subscribe("TRUE", durable=True)
    world.cut("a", "p")
    moved = come_with(client, "b", answer.home, {})
    return world, client, moved.home


def come_with(
    client: Asker, broker: BrokerId, home: Home | None, seen: Place, acked: Place | None = None
) -> Any:
    """Let a client come to a broker with places on pubends; return the answer."""
    client.connect(broker)
    client.notices.clear()
    begin = Begin(BeginKind.POSITION, tuple(seen.items()))
    kept = tuple((seen if acked is None else acked).items())
    call = Subscribe(
        client.number(), "desk", "TRUE", True, begin, credit=1_000, home=home, acked=kept
    )
    return client.call(call, s=5)


def test_a_place_on_a_pubend_that_an_old_home_has_not_heard_of_is_not_forgotten() -> None:
    world, client, home = away_from_home()
    ann = world.publisher("p")
    seen = ann.publish("e1")
    world.run(s=1)
    assert payloads(client) == ["e1"]
    ann.publish("e2")
    client.leave()
    come_with(client, "a", home, {ann.pubend: seen})
    world.heal("a", "p")
    world.run(s=5)
    assert payloads(client) == ["e2"]


def test_an_old_home_that_begins_where_its_client_is_keeps_what_is_not_acknowledged() -> None:
    world, client, home = away_from_home()
    ann = world.publisher("p")
    acked, seen = ann.publish("e1"), ann.publish("e2")
    world.run(s=1)
    client.leave()
    lost = world.lose(of(Attach, Read, source="a"))
    world.heal("a", "p")
    world.run(s=1)
    assert world.strand("a", "desk", ann.pubend).base is None
    back = come_with(client, "a", home, {ann.pubend: seen}, {ann.pubend: acked})
    lost.end()
    world.run(s=5)
    assert payloads(client) == []
    client.leave()
    come_without_a_position(client, "a", back.home)
    world.run(s=2)
    assert payloads(client) == ["e2"]


@pytest.mark.parametrize("crashes", [False, True])
def test_an_old_home_that_came_to_a_pubend_later_than_its_client_goes_back_for_it(
    crashes: bool,
) -> None:
    # p forgot in a crash what a wants, so a begins where its news comes again; if a crashes when it is asked, its
    # client was not answered, so it brings its place once more
    world, client, home = away_from_home()
    world.restart("p")
    world.run(s=1)
    ann = world.publisher("p")
    seen = ann.publish("e1")
    world.run(s=1)
    assert payloads(client) == ["e1"]
    client.leave()
    ann.publish("e2")
    world.heal("a", "p")
    world.run(s=5)
    begun = world.strand("a", "desk", ann.pubend).base
    assert begun is not None
    assert begun >= ann.ticks["e2"]
    ann.publish("e3")
    if crashes:
        world.stop_disk("a")
        answer = come_with(client, "a", home, {ann.pubend: seen})
        home = home if answer is None else answer.home
        world.restart("a")
    come_with(client, "a", home, {ann.pubend: seen})
    world.run(s=5)
    assert payloads(client) == ["e2", "e3"]


def test_an_old_home_hears_of_a_move_however_long_it_was_down_and_however_far_it_is() -> None:
    # MV-14: who lies between forgets a move after a while, and the new home is not its neighbour
    world = Desk("p-a-m-n-o-b", delta=1, retention_s=0, tombstone_ttl_s=20)
    ann = world.publisher("p")
    world.run(s=1)
    client = Asker(world, "a", "desk")
    answer = client.subscribe("TRUE", durable=True)
    assert isinstance(answer, Subscribed)
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    come(client, "b", answer.home, seen)
    world.run(s=70)
    world.start("a")
    world.run(s=10)
    assert homes_of(world, "a", "b") == ["b"]


def test_a_move_whose_home_tells_it_no_more_is_forgotten() -> None:
    world = Desk("p-a-b", delta=1, tombstone_ttl_s=20)
    client = Asker(world, "b", "late")
    world.run(s=1)
    world["a"].homes.received("p", Superseded("old/1/1", 7, "gone"))
    world.run(s=15)
    token = Home("old/1/1", 3, "old")
    refused = come(client, "b", token, 0)
    assert isinstance(refused, Refused)
    assert refused.broker == "gone"
    world.run(s=10)
    assert isinstance(come(client, "b", token, 0), Subscribed)
