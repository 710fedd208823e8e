"""Table exchange: batches, sources, repair of losses, and tables from before restarts."""

from __future__ import annotations

from gapless.core.ids import VirtualTime
from gapless.core.limits import CHANGE_BURST
from gapless.core.parameters import DEFAULTS, microseconds
from gapless.messages.propagation import TableDelta, TableFull, TableRequest
from gapless.messages.streams import StreamData
from gapless.propagation import Edge
from tests.broker.harness import BrokerHarness, P
from tests.scenarios.brokers import of, shb


def outdated(edge: Edge) -> bool:
    """Return whether an edge has stale tables now."""
    return bool(edge.outdated)


def test_many_changes_at_once_are_sent_as_one_delta() -> None:
    # R15: changes are batched
    world = BrokerHarness("p-n")
    world.publisher("p")
    world.run(s=1)
    since = world.now
    for number in range(10):
        world.subscriber("n", f"x{number}", f"kind = {number}")
    world.run(s=1)
    (delta,) = world.sent_over(TableDelta, "n", "p", since)
    assert len(delta.added) == 10


def test_the_first_change_after_a_pause_is_sent_at_once() -> None:
    # R15, R18: from the leaf over the tables of two brokers, without a wait at any of them
    world = BrokerHarness("p-a-n")
    world.publisher("p")
    world.run(s=1)
    x = world.subscriber("n", "x", "kind = 1")
    world.run(ms=3)  # two hops
    assert [*world["p"].components.exchange.table_store.edges["a"].conjunctions]
    since = world.now
    world.run(s=1)
    assert x.starts.keys() == {P}
    assert world.sent_over(TableDelta, "n", "a", since) == []


def test_changes_in_a_row_are_sent_at_intervals() -> None:
    # R15
    world = BrokerHarness("p-n")
    world.publisher("p")
    world.run(s=1)
    since = world.now
    changes = 100
    for number in range(changes):
        world.subscriber("n", f"x{number}", f"kind = {number}")
        world.run(ms=1)
    world.run(s=1)
    deltas = world.sent_over(TableDelta, "n", "p", since)
    at_intervals = changes // DEFAULTS.change_batch_ms + 1
    assert CHANGE_BURST <= len(deltas) <= CHANGE_BURST + at_intervals
    assert sum(len(each.added) for each in deltas) == changes


def test_a_row_of_subscriptions_waits_for_no_interval() -> None:
    # R15, R18, R31: each over three brokers, one after the other: four hops and a write
    world = BrokerHarness("p-a-n")
    world.publisher("p")
    world.subscriber("n", "first", "kind < 0")  # n joins the pubend
    world.run(s=1)
    for number in range(CHANGE_BURST):
        since = world.now
        x = world.subscriber("n", f"x{number}", f"kind = {number}")
        world.wait(lambda x=x: P in x.starts)  # type: ignore[misc]
        assert world.now - since < microseconds(ms=6)


def test_a_covered_subscription_causes_no_table_update() -> None:
    # R15, R16: it takes the virtual start time of the subscription that covers it
    world = BrokerHarness("p-n")
    world.publisher("p")
    world.subscriber("n", "x", "price > 10")
    world.run(s=1)
    since = world.now
    y = world.subscriber("n", "y", "price > 20")
    world.run(s=1)
    assert y.starts.keys() == {P}
    assert world.sent_over(TableDelta, "n", "p", since) == []


def test_a_lost_delta_is_detected_by_the_next_heartbeat() -> None:
    # R19
    world = BrokerHarness("p-n")
    world.publisher("p")
    world.subscriber("n", "x", "kind = 1")
    world.run(s=1)
    lost = world.lose(of(TableDelta, source="n", target="p"))
    y = world.subscriber("n", "y", "kind = 2")
    world.run(ms=50)
    lost.end()
    assert lost.messages
    assert y.starts == {}
    world.run(s=1)
    assert y.starts.keys() == {P}


def test_a_lost_table_request_is_repeated() -> None:
    # R19: the heartbeat of a source that has never received the request names no table
    world = BrokerHarness("p-n")
    world.publisher("p")
    world.cut("p", "n")
    lost = world.lose(of(TableRequest, source="p", target="n"))
    world.heal("p", "n")
    x = world.subscriber("n", "x", "TRUE")
    world.run(ms=200)
    lost.end()
    assert lost.messages
    assert x.starts == {}
    world.run(s=1)
    assert x.starts.keys() == {P}


def test_of_a_cell_with_two_brokers_one_is_the_source() -> None:
    # R20
    world = BrokerHarness("p-n", cells={"n": ["n1", "n2"]})
    queried = [name for name in ("n1", "n2") if world.sent_over(TableRequest, "p", name)]
    assert len(queried) == 1


def test_if_the_source_of_a_cell_is_down_another_broker_of_the_cell_becomes_the_source() -> None:
    # R20: for each neighbour cell keep one source, a broker of it with a session
    world = BrokerHarness("p-n-c", cells={"n": ["n1", "n2"]})
    world.publisher("p")
    world.run(s=1)
    (source,) = [name for name in ("n1", "n2") if world.sent_over(TableRequest, "p", name)]
    (other,) = {"n1", "n2"} - {source}
    world.crash(source)
    world.run(s=2)
    assert world.sent_over(TableRequest, "p", other)
    x = world.subscriber("c", "x", "TRUE")
    world.run(s=3)
    assert x.starts.keys() == {P}


def test_every_broker_of_a_cell_holds_the_leaf_tables_of_its_peers() -> None:
    # R15, R20
    world = BrokerHarness("p-n", cells={"n": ["n1", "n2"]})
    world.publisher("p")
    world.subscriber("n1", "x", "kind = 1")
    world.run(s=1)
    roots = [
        str(conjunction)
        for edge in world["n2"].components.exchange.table_store.edges.values()
        for table in edge.tables()
        for conjunction in table.conjunctions
    ]
    assert roots == ["kind = 1"]


def test_the_table_of_a_neighbour_that_restarts_is_kept_until_its_new_one_claims_as_much() -> None:
    # R21, example 14.4
    world = BrokerHarness("p-n-c")
    ann = world.publisher("p")
    world.subscriber("c", "x", "kind = 1")
    world.run(s=1)
    table_updates = world.hold(of(TableFull, TableDelta, source="c", target="n"))
    world.restart("n")
    world.run(s=1)
    edge = world["p"].components.exchange.table_store.edges["n"]
    assert outdated(edge)
    since = world.now
    ann.publish("e1", kind=2)
    world.run(ms=500)
    assert world.sent_over(StreamData, "p", "n", since) == [], "its claims about c still filter"
    table_updates.release()
    world.run(s=1)
    assert not outdated(edge)
    assert world["p"].components.exchange.table_store.claim(shb("c"), P, 1) is not None


def test_a_stale_table_is_dropped_after_its_ttl() -> None:
    # R21: stale_table_ttl_s; no broker of that cell has returned
    world = BrokerHarness("p-n-c", inactive_after_s=7, stale_table_ttl_s=10)
    world.publisher("p")
    world.subscriber("c", "x", "kind = 1", durable=True)
    world.run(s=1)
    world.crash("n")
    world.run(s=1)
    edge = world["p"].components.exchange.table_store.edges["n"]
    assert outdated(edge)
    world.run(s=20)
    assert not outdated(edge)
    assert edge.tables() == ()


def test_the_virtual_time_of_a_host_starts_again_with_its_incarnation() -> None:
    # R16: after a restart (new incarnation, 1)
    world = BrokerHarness("p-n")
    world.publisher("p")
    world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    before = world["n"].components.exchange.time
    world.restart("n")
    world.run(s=1)
    after = world["n"].components.exchange.time
    assert after == VirtualTime(world["n"].context.identity.incarnation, 1)
    assert after > before


def test_a_request_for_an_unknown_table_is_ignored() -> None:
    world = BrokerHarness("p-n")
    world.receive("p", "n", TableRequest("elsewhere@elsewhere", None))
    posted = world["p"].context.take_messages_to("n")
    assert [type(each) for each in posted] == [TableFull], "the table for its direction is sent"
    world.receive("p", "unknown", TableRequest("unknown", None))
    assert world["p"].coverage_marks["unknown table requested"] == 1


def test_a_table_from_an_unknown_broker_is_ignored() -> None:
    world = BrokerHarness("p-n")
    full = world["n"].components.exchange.leaf.sender.answer(TableRequest(str(shb("n")), None))
    for message in full:
        world.receive("p", "unknown", message)
    assert world["p"].components.exchange.table_store.claim(shb("n"), P, 0) is None


def test_heartbeats_name_the_tables_that_are_sent() -> None:
    world = BrokerHarness("p-n")
    (state,) = world["n"].components.exchange.states("p")
    assert state.direction == "p"
    assert world["n"].components.exchange.states("unknown") == ()
    world.cut("p", "n")
    assert world["n"].components.exchange.states("p") == ()
