"""Questions to all brokers while the tree changes: no cell is missed (RS-15a).

In all runs cell i leaves its neighbour j for k: SHIFT(i, j, k). Run 38 is a name of the rules' own
list. Each scenario is played by the rule, and again with the rule removed, and then fails as the
second test shows.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from gapless.core.ids import PubendId
from gapless.messages.clients import OpenPubend, PubendOpened, RefusalCause, Refused, Subscribe
from gapless.messages.mobility import FindStatus, SubscriptionFound
from gapless.messages.operating import AllDurableList, ListAllDurable
from gapless.messages.overlay import NameQuery, NameReply, NameStatus
from gapless.overlay.questions import Questions
from gapless_lab.sim.planted_bugs import patched
from tests.broker.harness import BrokerHarness, Requester
from tests.mobility.test_hosting import hosting_brokers
from tests.scenarios.brokers import Client, of

N = PubendId("N")


def without_the_rule(run: Callable[[], Any]) -> Any:
    """Run a scenario whose brokers answer over any edge, and in spite of steps."""
    with ExitStack() as stack:
        stack.enter_context(patched(Questions, "crosses_known_edges", lambda *_: True))
        stack.enter_context(patched(Questions, "reshape", lambda *_: None))
        return run()


def shifting() -> BrokerHarness:
    """Return i - j - k with open sessions, in which i is about to leave j for k."""
    world = BrokerHarness("i-j-k", delta=0, find_timeout_ms=3_000)
    world.run(s=1)
    world.shift("i", "j", "k")
    return world


def statuses(world: BrokerHarness, source: str, target: str) -> set[NameStatus]:
    """Return the statuses of the name replies over a link."""
    return {reply.status for reply in world.sent_over(NameReply, source, target)}


# --- names of pubends -----------------------------------------------------------------------------


def run_38() -> tuple[BrokerHarness, Any]:
    """A broker of i makes N, its write is pending; k asks j for N; j has stepped, k has not."""
    world = shifting()
    world.stop_disk("i")
    at_i = Client(world, "i", "client of i")
    at_i.request(OpenPubend(1, "N"))
    world.run(ms=100)
    world.apply_tree("j")
    world.run(ms=5)
    at_k = Client(world, "k", "client of k")
    at_k.request(OpenPubend(1, "N"))
    world.run(ms=200)
    world.apply_tree("k")
    world.resume_disk("i")
    world.apply_tree("i")
    world.run(s=5)
    assert at_i.answer(1) == PubendOpened(1, N)
    return world, at_k.answer(1)


def test_run_38_a_name_is_not_given_twice_while_a_cell_moves() -> None:
    world, answer = run_38()
    assert isinstance(answer, Refused)
    assert (answer.cause, answer.broker) == (RefusalCause.WRONG_BROKER, "i")
    assert {*world["k"].components.hosted} == set()
    assert NameStatus.RETRY in statuses(world, "j", "k")


def test_run_38_two_brokers_create_pubends_of_one_id() -> None:
    world, answer = without_the_rule(run_38)
    assert answer == PubendOpened(1, N)
    assert {*world["k"].components.hosted} == {*world["i"].components.hosted} == {N}


def carried_across_a_step() -> tuple[BrokerHarness, Any]:
    """J has passed the query of k on to i, and steps before i has answered."""
    world = shifting()
    held = world.hold(of(NameQuery, source="j", target="i"))
    at_k = Client(world, "k", "client of k")
    at_k.request(OpenPubend(1, "N"))
    world.run(ms=20)
    assert held.messages
    world.apply_tree("j")
    world.run(ms=20)
    return world, at_k


def test_a_step_ends_the_queries_that_a_broker_has_passed_on() -> None:
    world, at_k = carried_across_a_step()
    assert statuses(world, "j", "k") == {NameStatus.RETRY}
    assert world["j"].coverage_marks["question ended by a step of the tree"] == 1
    world.apply_tree("k", "i")
    world.run(s=2)
    assert at_k.answer(1) == PubendOpened(1, N)


def test_a_query_is_repeated_every_50_ms_until_the_tree_is_known() -> None:
    world, at_k = carried_across_a_step()
    since = world.now
    world.run(ms=500)
    asked = world.sent_over(NameQuery, "k", "j", since)
    assert 8 <= len(asked) <= 11
    assert len({query.number for query in asked}) == len(asked)
    assert at_k.answer(1) is None


def test_a_name_gets_a_number_if_the_tree_is_not_known_in_time() -> None:
    world, at_k = carried_across_a_step()
    since = world.now
    world.wait(lambda: at_k.answer(1) is not None, s=10)
    assert world.now - since <= 3_000_000
    answer = at_k.answer(1)
    assert isinstance(answer, PubendOpened)
    assert answer.pubend.name == "N"
    assert answer.pubend != N


def test_a_query_of_a_broker_that_steps_itself_is_asked_anew() -> None:
    world = shifting()
    held = world.hold(of(NameReply, source="j", target="k"))
    at_k = Client(world, "k", "client of k")
    at_k.request(OpenPubend(1, "N"))
    world.run(ms=20)
    assert held.messages
    held.end()
    world.apply_tree("k", "j", "i")
    assert world.wait(lambda: at_k.answer(1) == PubendOpened(1, N), s=3)
    assert world.sent_over(NameQuery, "k", "i"), "the moved cell is asked over its new edge"


def test_a_step_that_changes_no_edge_of_the_own_cell_ends_no_query() -> None:
    world = BrokerHarness("i-j-k-l-m", delta=1)
    world.run(s=1)
    held = world.hold(of(NameReply, source="l", target="m"))
    at_m = Client(world, "m", "client of m")
    at_m.request(OpenPubend(1, "N"))
    world.run(ms=20)
    world.shift("i", "j", "k")
    world.apply_tree("m", "l")
    world.run(ms=20)
    held.release()
    world.run(ms=20)
    assert at_m.answer(1) == PubendOpened(1, N)


# --- names of durable subscriptions ---------------------------------------------------------------


def subscribed_on_both_sides() -> tuple[BrokerHarness, Any]:
    """I hosts the subscription that a program asks for at k; j has stepped, k has not."""
    world = shifting()
    Requester(world, "i", "desk").subscribe(durable=True, s=4)
    world.apply_tree("j")
    world.run(ms=5)
    again = Requester(world, "k", "again")
    again.request(Subscribe(1, "desk", "TRUE", durable=True))
    world.run(ms=200)
    world.apply_tree("k", "i")
    world.run(s=5)
    return world, again.answer(1)


def test_a_durable_name_is_not_created_twice_while_a_cell_moves() -> None:
    world, answer = subscribed_on_both_sides()
    assert isinstance(answer, Refused)
    assert (answer.cause, answer.broker) == (RefusalCause.WRONG_BROKER, "i")
    assert hosting_brokers(world, "i", "j", "k") == ["i"]
    found = world.sent_over(SubscriptionFound, "j", "k")
    assert FindStatus.RETRY in {each.status for each in found}


def test_a_durable_name_is_created_twice() -> None:
    world, _ = without_the_rule(subscribed_on_both_sides)
    assert hosting_brokers(world, "i", "j", "k") == ["i", "k"]


def listed_while_a_cell_moves() -> AllDurableList:
    world = shifting()
    Requester(world, "i", "desk").subscribe(durable=True, s=4)
    world.apply_tree("j")
    world.run(ms=5)
    operator = Requester(world, "k", "operator")
    operator.request(ListAllDurable(1))
    world.run(ms=200)
    world.apply_tree("k", "i")
    world.run(s=5)
    answer = operator.answer(1)
    assert isinstance(answer, AllDurableList)
    return answer


def test_a_list_of_all_durable_subscriptions_misses_no_cell_that_moves() -> None:
    assert [each.name for each in listed_while_a_cell_moves().entries] == ["desk"]


def test_a_list_of_all_durable_subscriptions_misses_a_cell_that_moves() -> None:
    answer = without_the_rule(listed_while_a_cell_moves)
    assert (answer.entries, answer.silent) == ((), ())
