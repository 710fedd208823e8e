"""The state of a broker that operators see, in pages."""

from __future__ import annotations

import pytest

from gapless.core.events import LinkFull
from gapless.inspection import show, subscriptions
from gapless.messages.clients import Order
from gapless.messages.operating import (
    BrokerReply,
    CellState,
    GetBroker,
    GetSubscription,
    GetTopology,
    ListPubends,
    ListSubscriptions,
    PubendList,
    SubscriptionList,
    SubscriptionReply,
    TopologyReply,
)
from gapless.messages.overlay import Quality
from gapless.wire import CLIENT_NOTICES, HEADER_BYTES
from tests.broker.harness import BrokerHarness, P, Q, Requester, reason
from tests.scenarios.brokers import shb


def stage() -> tuple[BrokerHarness, Requester]:
    """Return the line p - a - n with a pubend P at p, and an operator at n."""
    world = BrokerHarness("p-a-n", delta=1, relay_hops_max=0)
    world.publisher("p", advertisement="a < 10")
    world.run(s=1)
    return world, Requester(world, "n", "operator")


def test_a_broker_is_shown_with_its_identity_and_its_sessions() -> None:
    world, operator = stage()
    answer = operator.call(GetBroker(1))
    assert isinstance(answer, BrokerReply)
    assert (answer.broker, answer.cell) == ("n", "n")
    assert answer.incarnation == world["n"].context.identity.incarnation
    assert {each.broker: each.open for each in answer.peers} == {"a": True, "p": True}
    assert (answer.pubends_hosted, answer.pubends_known) == (0, 1)
    world.cut("n", "p")
    world.run(s=2)
    peers = {each.broker: each for each in operator.call(GetBroker(2)).peers}
    assert (peers["p"].open, peers["p"].incarnation) == (False, 0)
    assert peers["a"].open
    assert peers["a"].incarnation == world["a"].context.identity.incarnation


def test_relayed_sessions_are_shown_with_their_relays() -> None:
    world = BrokerHarness("p-a-n", delta=1)
    world.publisher("p")
    world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    operator = Requester(world, "n", "operator")
    assert operator.call(GetBroker(1)).sessions_relayed == 0
    world.cut("n", "p")
    world.run(s=5)
    cells = {each.cell: each for each in operator.call(GetTopology(2)).cells}
    assert cells["p"].reached == ("p",)
    assert cells["p"].relayed == (("p", ("a",)),)
    assert cells["a"].relayed == ()
    assert operator.call(GetBroker(3)).sessions_relayed == 1


def test_feeds_that_bypass_a_cell_are_counted_and_their_feeder_is_named() -> None:
    world = BrokerHarness("p-a-n", delta=1)
    world.publisher("p")
    world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    operator = Requester(world, "n", "operator")
    assert operator.call(GetBroker(1)).feeds_bypassing == 0
    assert operator.call(ListPubends(2)).entries[0].feeder == "a"
    world.crash("a")
    world.run(s=5)
    assert operator.call(GetBroker(3)).feeds_bypassing == 1
    assert operator.call(ListPubends(4)).entries[0].feeder == "p"


def test_a_started_stream_that_is_cut_off_is_shown_with_the_reason() -> None:
    world, operator = stage()
    world.subscriber("n", "x", "TRUE")
    world.run(s=1)
    (cursor,) = operator.call(GetSubscription(1, "x")).entry.cursors
    assert cursor.pending_reason is None
    for peer in ("a", "p"):
        world.cut("n", peer)
    world.run(s=5)
    (cursor,) = operator.call(GetSubscription(2, "x")).entry.cursors
    assert cursor.pending_reason is not None
    assert operator.call(GetBroker(3)).streams_cut_off == 1
    assert cursor.pending_reason.startswith("there is no route to its broker p in cell p now")
    assert "n/1: cells a" in cursor.pending_reason


def test_a_broker_is_shown_with_its_subscriptions_and_congested_peers() -> None:
    world, operator = stage()
    x = world.subscriber("n", "x", "TRUE", durable=True)
    world.subscriber("n", "y", "TRUE", durable=True)
    world.run(ms=50)  # other brokers are asked for the durable names
    x.leave()
    world.subscriber("n", "z", "a = 1")
    world.happen("n", LinkFull("a"))
    answer = operator.call(GetBroker(1))
    assert (answer.subscriptions, answer.durable, answer.connected) == (3, 2, 2)
    assert answer.clients == 2
    assert answer.streams_joined == 1
    assert [each.broker for each in answer.peers if each.congested] == ["a"]
    assert dict(answer.coverage_marks)["receiver was slow"] == 1


def test_the_topology_shows_the_neighbourhood_and_its_reachable_brokers() -> None:
    world, operator = stage()
    answer = operator.call(GetTopology(1))
    assert isinstance(answer, TopologyReply)
    assert (answer.broker, answer.cell, answer.version, answer.more) == ("n", "n", 1, False)
    assert answer.cells[0] == CellState("n", 0, ("n",), ("n",), ("a",))
    assert [(each.cell, each.distance) for each in answer.cells] == [("n", 0), ("a", 1), ("p", 2)]
    world.cut("n", "a")
    world.run(s=2)
    reached = {each.cell: each.reached for each in operator.call(GetTopology(2)).cells}
    assert reached == {"n": ("n",), "a": (), "p": ("p",)}
    assert [each.cell for each in operator.call(GetTopology(3, skip=2)).cells] == ["p"]


def test_pubends_are_shown_with_the_state_of_their_phb() -> None:
    world, operator = stage()
    ann = world.publisher("n", "Q")
    world.publisher("n", "R", quality=Quality.BEST_EFFORT)
    x = world.subscriber("p", "x", "TRUE", durable=True)
    world.run(s=2)
    tick = ann.publish("e1")
    world.run(s=2)
    answer = operator.call(ListPubends(1))
    assert isinstance(answer, PubendList)
    far, near, best_effort = answer.entries
    assert (far.pubend, far.broker, far.path, far.hosted) == (P, "p", ("a", "p"), None)
    assert far.advertisement == "a < 10"
    assert best_effort.quality is Quality.BEST_EFFORT
    assert best_effort.hosted is None
    hosted = near.hosted
    assert hosted is not None
    assert hosted.top >= tick
    assert hosted.log_bytes > 0
    assert [(each.shb, each.durable, each.inactive) for each in hosted.members] == [
        (shb("p"), True, False)
    ]
    assert x.events == ["e1"]
    only = operator.call(ListPubends(2, hosted=True))
    assert [each.pubend for each in only.entries] == [near.pubend, best_effort.pubend]
    assert operator.call(ListPubends(3, after=P)).entries[0].pubend == Q


def test_a_subscription_is_shown_with_its_streams() -> None:
    world, operator = stage()
    x = world.subscriber("n", "x", "a = 1", durable=True, order=Order.TOTAL)
    world.run(s=1)
    answer = operator.call(GetSubscription(1, "x"))
    assert isinstance(answer, SubscriptionReply)
    state = answer.entry
    assert (state.name, state.durable, state.filter) == ("x", True, "a = 1")
    assert (state.client, state.disconnected_since, state.order) == ("x", None, Order.TOTAL)
    (cursor,) = state.cursors
    assert (cursor.pubend, cursor.state, cursor.pending_reason) == (P, "live", None)
    assert cursor.horizon is not None
    x.leave()
    left = world["n"].context.clock
    world.run(s=5)
    state = operator.call(GetSubscription(2, "x")).entry
    assert state.client is None
    assert state.disconnected_since == left
    (cursor,) = state.cursors
    assert cursor.state == "disconnected"
    assert (cursor.lag_events, cursor.lag_s) == (None, None)  # they were not requested
    assert "no subscription 'y'" in reason(operator.call(GetSubscription(3, "y")))


def test_a_pending_stream_is_shown_with_the_reason() -> None:
    world, operator = stage()
    world.cut("p", "a")
    world.cut("p", "n")
    world.run(s=2)
    world.subscriber("n", "x", "a = 1", durable=True)
    world.run(s=2)
    (cursor,) = operator.call(GetSubscription(1, "x")).entry.cursors
    assert cursor.state == "pending"
    assert "there is no route to its broker p" in (cursor.pending_reason or "")


def test_subscriptions_are_listed_by_name_and_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    world, operator = stage()
    for name in ("c", "a", "b"):
        world.subscriber("n", name, "TRUE", durable=name != "b")
    world.run(s=1)
    answer = operator.call(ListSubscriptions(1))
    assert isinstance(answer, SubscriptionList)
    assert [each.name for each in answer.entries] == ["a", "b", "c"]
    durable = operator.call(ListSubscriptions(2, durable=True))
    assert [each.name for each in durable.entries] == ["a", "c"]
    monkeypatch.setattr(subscriptions, "SHOWN_ENTRIES_MAX", 2)
    first = operator.call(ListSubscriptions(3))
    assert ([each.name for each in first.entries], first.more) == (["a", "b"], True)
    rest = operator.call(ListSubscriptions(4, after="b"))
    assert ([each.name for each in rest.entries], rest.more) == (["c"], False)


def test_an_answer_counts_the_omitted_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    world, operator = stage()
    world.publisher("p", "Q")
    world.run(s=1)
    world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    monkeypatch.setattr(subscriptions, "SHOWN_CURSORS_MAX", 1)
    for name in ("SHOWN_PEERS_MAX", "SHOWN_ENTRIES_MAX"):
        monkeypatch.setattr(show, name, 1)
    first = operator.call(GetSubscription(1, "x")).entry
    assert ([each.pubend for each in first.cursors], first.cursors_omitted) == ([P], 1)
    rest = operator.call(GetSubscription(2, "x", after=P)).entry
    assert ([each.pubend for each in rest.cursors], rest.cursors_omitted) == ([Q], 0)
    shown = operator.call(GetBroker(3))
    assert (len(shown.peers), shown.peers_omitted) == (1, 1)
    assert operator.call(GetTopology(4)).more
    assert operator.call(ListPubends(5)).more


def test_every_answer_can_be_encoded() -> None:
    world, operator = stage()
    world.subscriber("n", "x", "TRUE", durable=True)
    calls = (GetBroker, GetTopology, ListPubends, ListSubscriptions)
    for number, kind in enumerate(calls, 1):
        answer = operator.call(kind(number))
        frame = CLIENT_NOTICES.encode(answer)
        assert CLIENT_NOTICES.decode(frame[HEADER_BYTES:]) == answer
