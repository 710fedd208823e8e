"""Lies of neighbours: well-formed messages that fit the state of a broker and are not true.

No message ends the broker. What it sends and stores afterwards passes the checks of those who read
it: otherwise one lie would end links between honest brokers, or a broker at its next start.
"""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.errors import ProtocolError
from gapless.core.events import ClientRequest, ClientUp
from gapless.core.ids import PubendId
from gapless.core.limits import (
    CLIENT_COUNT_MAX,
    INT_MAX,
    NAME_MAX,
    SEARCHES_PER_CLIENT_MAX,
    SEQUENCE_MAX,
)
from gapless.messages.clients import (
    FindDurable,
    HostingReference,
    OpenPubend,
    PubendOpened,
    RefusalCause,
    Refused,
    StartPoint,
    Subscribe,
    Unsubscribe,
)
from gapless.messages.mobility import (
    CollectSubscriptions,
    FindStatus,
    FindSubscription,
    SubscriptionFound,
    SubscriptionsCollected,
    Superseded,
    WalkKey,
)
from gapless.messages.operating import (
    GetSubscription,
    ListAllDurable,
    RemoveDurable,
    RetireBroker,
    SeekDurable,
    SetDurableFilter,
)
from gapless.messages.overlay import NameQuery, NameReply, NameStatus, Relayed, Retire
from gapless.messages.streams import AdvanceRequest
from gapless.wire import CLIENT_REQUESTS, HEADER_BYTES, request_number
from tests.broker.hostile import HostileWorld
from tests.cases import scaled

TREES = (("line:3", "b2"), ("line:4x2", "b2a"), ("star:5", "b1"))
WAIT_US = 5_000_000


@pytest.mark.parametrize(("tree", "me"), TREES)
@pytest.mark.parametrize("seed", range(scaled(8)))
def test_no_lie_ends_the_broker_or_leaves_it(seed: int, tree: str, me: str) -> None:
    assert HostileWorld(tree, me, seed).play(250) > 200


def scene() -> HostileWorld:
    """Return broker b2 between b1 and b3, with a client."""
    world = HostileWorld("line:3", "b2", 0)
    for peer in world.peers:
        world.connect(peer)
    world.handle(ClientUp("c.1"))
    return world


def last(world: HostileWorld, kind: type) -> Any:
    """Return the last message of a kind that the broker sent."""
    return [message for _, message in world.sent if isinstance(message, kind)][-1]


# --- walks over the tree ----------------------------------------------------------------------------


def test_an_answer_to_another_question_does_not_count() -> None:
    world = scene()
    request = Subscribe(1, "d", "TRUE", durable=True)
    world.handle(ClientRequest("c.1", request))
    asked = last(world, FindSubscription)
    world.send("b1", SubscriptionsCollected(asked.key, (), more=False))
    world.handle(ClientRequest("c.1", ListAllDurable(2)))
    listed = last(world, CollectSubscriptions)
    world.send("b1", SubscriptionFound(listed.key, FindStatus.NONE))
    world.pass_time(WAIT_US)
    assert {each.request for each in world.notices} >= {1, 2}


def test_a_question_of_each_kind_may_have_the_same_key() -> None:
    world = scene()
    key = WalkKey("b1", 1, 1)
    world.send(
        "b1", FindSubscription(key, "", "d", 1_000), CollectSubscriptions(key, ("", ""), 1_000)
    )
    world.send("b3", SubscriptionFound(key, FindStatus.NONE))
    world.send("b3", SubscriptionsCollected(key, (), more=False))
    assert last(world, SubscriptionFound).status is FindStatus.NONE
    assert last(world, SubscriptionsCollected).entries == ()


@pytest.mark.parametrize("count", [1, 2])
def test_a_question_in_the_name_of_the_broker_itself_is_dropped(count: int) -> None:
    world = scene()
    incarnation = world.broker.context.identity.incarnation
    key = WalkKey("b2", incarnation, count)
    world.send(
        "b1",
        FindSubscription(key, "", "x", 1_000),
        CollectSubscriptions(key, ("", ""), 1_000),
        NameQuery("x", "b2", incarnation, count),
    )
    world.handle(ClientRequest("c.1", Subscribe(1, "d", "TRUE", durable=True)))
    world.handle(ClientRequest("c.1", ListAllDurable(2)))
    world.handle(ClientRequest("c.1", OpenPubend(3, "trades")))
    for peer in ("b1", "b3"):
        world.send(peer, NameReply(("b2", incarnation, 1), NameStatus.FREE))
    world.pass_time(WAIT_US)
    assert {each.request for each in world.notices} >= {1, 2, 3}
    assert world.broker.coverage_marks["own question returned"] == 3


def test_a_client_collects_no_more_lists_at_once_than_its_limit() -> None:
    world = scene()
    for number in range(SEARCHES_PER_CLIENT_MAX + 1):
        world.handle(ClientRequest("c.1", ListAllDurable(number)))
    (refused,) = world.notices
    assert (refused.request, refused.cause) == (SEARCHES_PER_CLIENT_MAX, RefusalCause.UNAVAILABLE)
    world.pass_time(WAIT_US)
    assert len(world.notices) == SEARCHES_PER_CLIENT_MAX + 1
    world.handle(ClientRequest("c.1", ListAllDurable(1_000)))
    world.pass_time(WAIT_US)
    assert world.notices[-1].request == 1_000


# --- numbers that are counted on --------------------------------------------------------------------


def test_the_greatest_epoch_of_a_claim_can_be_told_to_clients_and_brokers() -> None:
    world = scene()
    world.send("b1", Superseded("key", CLIENT_COUNT_MAX, "b1"))
    hosting = HostingReference("key", CLIENT_COUNT_MAX, "b0")
    world.handle(ClientRequest("c.1", Subscribe(1, "d", "TRUE", durable=True, hosting=hosting)))
    assert isinstance(world.notices[-1], Refused)
    assert world.notices[-1].hosting == HostingReference("key", CLIENT_COUNT_MAX, "b1")
    assert hosting.next_epoch().epoch == CLIENT_COUNT_MAX


def test_a_broker_can_be_retired_after_a_retirement_of_the_greatest_version() -> None:
    world = scene()
    world.send("b1", Retire("b9", "c9", INT_MAX))
    world.handle(ClientRequest("c.1", RetireBroker(1, "b9", "c9")))
    assert last(world, Retire).version == INT_MAX


def test_no_request_advances_a_stream_to_the_last_tick() -> None:
    world = scene()
    world.handle(ClientRequest("c.1", OpenPubend(1, "trades")))
    world.pass_time(WAIT_US)
    opened = world.notices[-1]
    assert isinstance(opened, PubendOpened)
    pubend: PubendId = opened.pubend
    for _ in range(100):  # a raise of the ceiling may be in progress
        world.send("b1", AdvanceRequest(pubend, SEQUENCE_MAX))
        world.pass_time(10_000)
    world.pass_time(WAIT_US)  # what is stored and sent is checked
    top = world.broker.components.router.top(pubend)
    assert SEQUENCE_MAX // 2 <= top < SEQUENCE_MAX * 3 // 4


# --- what goes on to other brokers ------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [FindDurable, Unsubscribe, GetSubscription, SeekDurable, SetDurableFilter, RemoveDurable],
)
def test_a_name_of_a_client_that_other_brokers_would_refuse_goes_no_further(kind: Any) -> None:
    fields = {"start": StartPoint(), "filter": "TRUE"}
    given = {name: fields[name] for name in kind.__struct_fields__ if name in fields}
    for length, is_accepted in ((NAME_MAX, True), (NAME_MAX + 1, False)):
        frame = CLIENT_REQUESTS.encode(kind(request=7, subscription="n" * length, **given))
        if is_accepted:
            CLIENT_REQUESTS.decode(frame[HEADER_BYTES:])
            continue
        with pytest.raises(ProtocolError, match="length <= 256"):
            CLIENT_REQUESTS.decode(frame[HEADER_BYTES:])
        assert request_number(frame[HEADER_BYTES:]) == 7  # it is refused


def test_a_relayed_packet_does_not_go_round_in_a_circle() -> None:
    world = scene()
    before = len(world.sent)
    world.send("b1", Relayed(("b1", *("b2", "b3", "b2", "b1") * 1_000), 1, b"\xc0"))
    assert [each for _, each in world.sent[before:] if isinstance(each, Relayed)] == []
    assert world.broker.coverage_marks["relayed with a wrong route"] == 1
