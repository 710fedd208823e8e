"""A durable name is one subscription in the whole overlay, for programs that kept nothing (MV-15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gapless.core.address import Address
from gapless.messages.clients import (
    DurableFound,
    FindDurable,
    HostingReference,
    LeaveSubscription,
    RefusalCause,
    Refused,
    StartKind,
    StartPoint,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from gapless.messages.mobility import FindSubscription, SubscriptionFound, Superseded
from gapless.messages.operating import (
    GetSubscription,
    ListAllDurable,
    RemoveDurable,
    RetireBroker,
    SeekDurable,
    SetDurableFilter,
)
from tests.broker.harness import BrokerHarness, Requester
from tests.mobility.test_hosting import hosting_brokers, resume_at, stage
from tests.scenarios.brokers import of


def program(world: BrokerHarness, broker: str, name: str = "desk") -> Requester:
    """Return a program that has just started and kept nothing, connected to a broker."""
    return Requester(world, broker, name)


def opens(client: Requester, *, s: int = 5, create: bool = False) -> Any:
    """Subscribe under a durable name without a hosting reference and return the answer."""
    call = Subscribe(client.number(), "desk", "TRUE", True, credit=1_000, create=create)
    return client.call(call, s=s)


def redirected_to(answer: Any) -> str:
    """Return the broker to which a program was redirected."""
    assert isinstance(answer, Refused)
    assert answer.cause is RefusalCause.WRONG_BROKER
    assert answer.hosting is None, "a program without state must not present a reference"
    return answer.broker


def silent_brokers(answer: Any) -> tuple[str, ...]:
    """Return the brokers that a refusal names as silent."""
    assert isinstance(answer, Refused)
    assert answer.cause is RefusalCause.HOST_UNKNOWN
    assert all(each in answer.reason for each in answer.silent)
    return answer.silent


def is_new(answer: Any) -> bool:
    """Return whether a subscription was created."""
    assert isinstance(answer, Subscribed), answer
    return answer.is_new


def line(*, delta: int = 0) -> BrokerHarness:
    """Return the line p - a - b with open sessions."""
    world = BrokerHarness("p-a-b", delta=delta, find_timeout_ms=3_000)
    world.run(s=1)
    return world


# --- hosted, not hosted, unknown ---------------------------------------------------------------


def test_a_program_at_another_broker_is_redirected_to_the_hosting_broker() -> None:
    world = line()
    assert is_new(opens(program(world, "b")))
    since = world.now
    assert redirected_to(opens(program(world, "p", "again"))) == "b"
    assert hosting_brokers(world, "p", "a", "b") == ["b"]
    assert world.sent_over(FindSubscription, "p", "a", since), "the question passes over the tree"
    assert world.sent_over(SubscriptionFound, "b", "a", since)


def test_a_name_that_no_broker_hosts_is_created_where_it_is_asked_for() -> None:
    world = line()
    assert is_new(opens(program(world, "p")))
    assert hosting_brokers(world, "p", "a", "b") == ["p"]


def test_a_silent_broker_may_host_the_name_so_nothing_is_created() -> None:
    world = line()
    assert is_new(opens(program(world, "b")))
    world.crash("b")
    world.run(s=2)
    assert silent_brokers(opens(program(world, "p", "again"))) == ("b",)
    assert hosting_brokers(world, "p", "a") == []
    world.start("b")
    world.run(s=2)
    assert redirected_to(opens(program(world, "p", "later"))) == "b"


def test_the_broker_nearest_to_the_silent_one_names_it() -> None:
    # the session with b still looks open, so a waits for b, a little less long than p waits for a
    world = line()
    world.lose(lambda source, *_: source == "b")
    assert silent_brokers(opens(program(world, "p"))) == ("b",)


def test_create_creates_the_subscription_though_a_broker_is_silent() -> None:
    world = line()
    world.crash("b")
    world.run(s=2)
    assert is_new(opens(program(world, "p"), create=True))


def test_create_does_not_create_a_second_subscription_of_a_name_that_is_found() -> None:
    world = line()
    assert is_new(opens(program(world, "b")))
    assert redirected_to(opens(program(world, "p", "again"), create=True)) == "b"


def test_a_subscription_behind_a_dead_cell_is_found() -> None:
    # with delta 1 a broker knows the cells behind the dead one and asks them itself
    world = line(delta=1)
    assert is_new(opens(program(world, "b")))
    world.crash("a")
    world.run(s=2)
    since = world.now
    assert redirected_to(opens(program(world, "p", "again"), s=2)) == "b"
    assert world.now - since < 2_500_000, "a broker that cannot be reached is not waited for"


def test_a_retired_broker_is_never_asked_however_old_its_retirement() -> None:
    world = BrokerHarness("p-a-b", delta=1, tombstone_ttl_s=5)
    world.run(s=1)
    operator = program(world, "p", "operator")
    for broker in ("a", "b"):
        world.crash(broker)
        world.run(s=2)
        operator.call(RetireBroker(operator.number(), broker, broker), s=2)
    world.run(s=10)
    retirements = world["p"].components.retirements
    assert not [each for each in retirements.all() if retirements.is_recent(each)]
    assert is_new(opens(program(world, "p")))


def test_the_redirection_has_the_address_that_the_hosting_broker_is_configured_with() -> None:
    world = line()
    world["b"].components.finder._addresses = {"b": Address("b.example", 7400)}
    assert is_new(opens(program(world, "b")))
    answer = opens(program(world, "p", "again"))
    assert redirected_to(answer) == "b"
    assert answer.addresses == ("b.example:7400",)


@pytest.mark.parametrize("listening", ["0.0.0.0", "::"])  # noqa: S104
def test_a_broker_that_listens_everywhere_is_redirected_to_as_the_asked_one_knows_it(
    listening: str,
) -> None:
    # nobody can connect to 0.0.0.0 of another computer
    world = line()
    world["b"].components.finder._addresses = {"b": Address(listening, 7400)}
    world["p"].components.finder._addresses = {"b": Address("b.example", 7400)}
    assert is_new(opens(program(world, "b")))
    again = program(world, "p", "again")
    answer = opens(again)
    assert redirected_to(answer) == "b"
    assert answer.addresses == ("b.example:7400",)
    (entry,) = again.call(ListAllDurable(again.number()), s=5).entries
    assert entry.host.addresses == ("b.example:7400",)
    world["p"].components.finder._addresses = {"b": Address(listening, 7400)}
    assert opens(again).addresses == ()


# --- two at once -------------------------------------------------------------------------------


def test_of_two_programs_that_create_one_name_at_once_only_one_does() -> None:
    # as for pubends, the broker whose name comes first wins (R4)
    world = line()
    one, other = program(world, "p", "one"), program(world, "b", "other")
    for client in (one, other):
        client.request(Subscribe(client.number(), "desk", "TRUE", True))
    world.run(s=3)
    assert is_new(other.answer(1)), "the name b is less than p"
    refused = one.answer(1)
    assert isinstance(refused, Refused)
    assert refused.cause is RefusalCause.HOST_UNKNOWN
    assert redirected_to(opens(one)) == "b"
    assert hosting_brokers(world, "p", "a", "b") == ["b"]


@pytest.mark.parametrize("delay_ms", range(0, 40, 2))
def test_whenever_the_second_program_starts_there_is_one_subscription(delay_ms: int) -> None:
    world = line()
    one, other = program(world, "p", "one"), program(world, "b", "other")
    one.request(Subscribe(1, "desk", "TRUE", True))
    world.run(ms=delay_ms)
    other.request(Subscribe(1, "desk", "TRUE", True))
    world.run(s=3)
    assert len(hosting_brokers(world, "p", "a", "b")) == 1


def test_two_programs_at_one_broker_share_one_search_and_the_later_has_the_subscription() -> None:
    world = line()
    since = world.now
    clients = [program(world, "p", name) for name in ("one", "other")]
    for client in clients:
        client.request(Subscribe(1, "desk", "TRUE", True))
    world.run(s=2)
    assert len(world.sent_over(FindSubscription, "p", "a", since)) == 1
    assert isinstance(clients[1].answer(1), Subscribed)
    assert world.subscription("p", "desk").client == clients[1].name


def test_nothing_is_created_for_a_program_that_has_left_during_the_search() -> None:
    world = line()
    client = program(world, "p")
    client.request(Subscribe(1, "desk", "TRUE", True))
    client.leave()
    world.run(s=3)
    assert hosting_brokers(world, "p", "a", "b") == []
    assert world["p"].coverage_marks["client left during a search"] == 1


def test_a_subscribe_that_its_program_has_given_up_is_not_executed_after_the_search() -> None:
    # its deadline has passed; else the subscription would belong to a client that does not listen
    world = line()
    client = program(world, "p")
    client.request(Subscribe(client.number(), "desk", "TRUE", True))
    world.run(ms=1)
    client.request(LeaveSubscription("desk"))
    world.run(s=3)
    assert hosting_brokers(world, "p", "a", "b") == []
    assert is_new(opens(client)), "the program may try again"


# --- subscriptions that have moved -------------------------------------------------------------


def moved() -> tuple[BrokerHarness, Requester, Subscribed]:
    """Return p - a - b whose subscription moved from a to b while a was down, and its client."""
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    now_at_b = resume_at(client, "b", answer.hosting, seen)
    assert isinstance(now_at_b, Subscribed)
    world.run(s=2)
    return world, client, now_at_b


def test_a_program_that_failed_over_and_ended_is_redirected_when_its_first_broker_is_back() -> None:
    # the first story: it starts again with the same addresses, and a comes first
    world, client, _ = moved()
    client.leave()
    world.start("a")
    world.run(s=3)
    assert redirected_to(opens(program(world, "a", "again"))) == "b"
    assert hosting_brokers(world, "a", "b") == ["b"]


def test_a_broker_that_has_just_restarted_asks_before_it_continues_what_it_stored() -> None:
    # a has not received the claim of b yet and still has the subscription with the lower epoch
    world, client, _ = moved()
    client.leave()
    world.start("a")
    world.lose(of(Superseded))
    world.run(ms=1)
    again = program(world, "a", "again")
    assert hosting_brokers(world, "a", "b") == ["a", "b"]
    assert redirected_to(opens(again)) == "b"


def test_a_broker_that_was_cut_off_asks_before_it_continues() -> None:
    # it did not restart; b cannot claim the subscription yet, because the log is not held for it
    world, ann, client, answer = stage()
    seen = ann.publish("e1")
    world.run(s=1)
    world.cut("p", "a")
    world.cut("a", "b")
    world.run(s=2)
    world.lose(of(Superseded))
    assert isinstance(resume_at(client, "b", answer.hosting, seen), Subscribed)
    client.leave()
    world.heal("p", "a")
    world.heal("a", "b")
    world.run(s=2)
    again = program(world, "a", "again")
    assert hosting_brokers(world, "a", "b") == ["a", "b"]
    assert redirected_to(opens(again)) == "b"


def test_a_hosting_broker_does_not_wait_for_brokers_that_it_cannot_reach() -> None:
    world = line()
    assert is_new(opens(program(world, "b")))
    world.crash("p")
    world.run(s=2)
    again = program(world, "b", "again")
    assert not is_new(opens(again, s=1))
    since = world.now
    assert not is_new(opens(program(world, "b", "later"), s=1))
    assert not world.sent_over(FindSubscription, "b", "a", since), "it was found to be the host"


def test_a_program_chooses_how_long_silent_brokers_are_waited_for() -> None:
    world = line()
    world.lose(lambda source, *_: source == "b")
    client = program(world, "p")
    call = Subscribe(client.number(), "desk", "TRUE", True, credit=1_000, wait_ms=500)
    assert silent_brokers(client.call(call, s=1)) == ("b",)


def test_a_broker_that_has_just_restarted_continues_if_nobody_has_a_newer_subscription() -> None:
    world = line()
    assert is_new(opens(program(world, "b")))
    world.crash("b")
    world.start("b")
    assert not is_new(opens(program(world, "b", "again")))


def test_a_restarted_hosting_broker_continues_though_another_broker_is_silent() -> None:
    world = line()
    assert is_new(opens(program(world, "b")))
    for broker in ("p", "b"):
        world.crash(broker)
    world.start("b")
    world.run(s=2)
    assert not is_new(opens(program(world, "b", "again")))


def test_of_two_hosting_brokers_of_one_subscription_the_newer_is_found() -> None:
    world, client, _ = moved()
    client.leave()
    world.start("a")
    world.lose(of(Superseded))
    world.run(s=2)
    assert hosting_brokers(world, "a", "b") == ["a", "b"]
    assert redirected_to(opens(program(world, "p", "again"))) == "b"


def test_a_broker_that_has_handed_the_subscription_over_is_not_found() -> None:
    # p knows the claim of b; b is down, so only a answers that it hosts the subscription
    world, client, _ = moved()
    client.leave()
    world.crash("b")
    world.lose(of(Superseded))
    world.start("a")
    world.run(s=2)
    assert hosting_brokers(world, "a") == ["a"]
    assert silent_brokers(opens(program(world, "p", "again"))) == ("b",)


def test_a_subscription_whose_failover_is_in_progress_is_found_at_its_new_broker() -> None:
    # the record is not on disk yet, and the client has no answer yet
    world, ann, client, answer = stage()
    ann.publish("e1")
    world.run(s=1)
    world.crash("a")
    client.connect("b")
    world.stop_disk("b")
    start = StartPoint(StartKind.POSITION, answer.position)
    assert answer.hosting is not None
    call = Subscribe(client.number(), "desk", "TRUE", True, start, hosting=answer.hosting)
    client.request(call)
    world.run(s=1)
    assert redirected_to(opens(program(world, "p", "again"))) == "b"


# --- other requests by name --------------------------------------------------------------------


def found(client: Requester, *, s: int = 5) -> Any:
    """Return the answer to the question where a subscription is hosted."""
    return client.call(FindDurable(client.number(), "desk"), s=s)


def test_an_operator_finds_a_subscription_wherever_it_is_hosted() -> None:
    world = line()
    operator = program(world, "p", "operator")
    answer = found(operator)
    assert isinstance(answer, DurableFound)
    assert answer.broker == "", "no broker hosts it"
    assert is_new(opens(program(world, "b")))
    assert found(operator).broker == "b"
    assert found(program(world, "b", "operator")).broker == "b"
    world.crash("b")
    world.run(s=2)
    assert silent_brokers(found(operator)) == ("b",)


BY_NAME: list[Callable[[int], Any]] = [
    lambda number: Unsubscribe(number, "desk", durable=True),
    lambda number: RemoveDurable(number, "desk", force=True),
    lambda number: SeekDurable(number, "desk", StartPoint()),
    lambda number: SetDurableFilter(number, "desk", "n > 0"),
    lambda number: GetSubscription(number, "desk", durable=True),
]
BY_NAME_IDS = ["unsubscribe", "rm", "seek", "set-filter", "info"]


@pytest.mark.parametrize("request_of", BY_NAME, ids=BY_NAME_IDS)
def test_a_request_by_name_is_executed_by_the_hosting_broker_only(
    request_of: Callable[[int], Any],
) -> None:
    # a program may ask a broker that has just handed the subscription over
    world = line()
    client = program(world, "b")
    assert is_new(opens(client))
    client.leave()
    operator = program(world, "p", "operator")
    assert redirected_to(operator.call(request_of(operator.number()), s=5)) == "b"
    assert hosting_brokers(world, "b") == ["b"]
    world.crash("b")
    world.run(s=2)
    assert silent_brokers(operator.call(request_of(operator.number()), s=5)) == ("b",)
    world.start("b")
    world.run(s=1)
    there = program(world, "b", "operator there")
    assert not isinstance(there.call(request_of(there.number()), s=8), Refused)


def test_a_subscription_is_removed_at_one_broker_and_at_no_other() -> None:
    world = line()
    assert is_new(opens(program(world, "b")))
    operator = program(world, "p", "operator")
    removal = RemoveDurable(operator.number(), "desk", force=True, here=True)
    refused = operator.call(removal, s=5)
    assert isinstance(refused, Refused)
    assert refused.cause is RefusalCause.OTHER
    assert hosting_brokers(world, "p", "a", "b") == ["b"]


def test_ending_a_name_that_no_broker_hosts_does_nothing() -> None:
    world = line()
    client = program(world, "p")
    answer = client.call(Unsubscribe(client.number(), "desk", durable=True), s=5)
    assert isinstance(answer, Unsubscribed)


def test_a_reference_decides_and_no_search_is_made() -> None:
    world, _, client, answer = stage()
    world.crash("b")
    world.run(s=2)
    assert isinstance(answer.hosting, HostingReference)
    client.connect("p")
    call = Subscribe(client.number(), "desk", "TRUE", True, hosting=answer.hosting)
    assert isinstance(client.call(call, s=1), Subscribed)
    assert not world.sent_over(FindSubscription, "p", "b")


def test_a_name_can_be_used_again_after_its_subscription_was_ended() -> None:
    world = line()
    client = program(world, "b")
    assert is_new(opens(client))
    client.call(Unsubscribe(client.number(), "desk"), s=1)
    assert is_new(opens(program(world, "p", "again")))
