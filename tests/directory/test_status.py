"""The status of a pubend: the reason of a pending start names the broker and the partitions."""

from __future__ import annotations

from gapless.messages.clients import PendingStart, Subscribed, SubscriptionStarted
from gapless.messages.operating import ListPartitions, RetireBroker
from gapless.messages.overlay import Partition, PartitionInfo
from tests.broker.harness import BrokerHarness, P, Requester

CUT = "there is no route to its broker b1 in cell b1 now"


def late_subscriber(harness: BrokerHarness) -> Requester:
    """B1 hosts P; B1 - B2 - {B3, B4}; B1 is cut off; a client of B4 subscribes (14.2)."""
    harness.publisher("b1")
    for peer in ("b2", "b3", "b4"):
        harness.cut("b1", peer)
    harness.run(ms=100)
    return Requester(harness, "b4", "late")


def test_the_reply_to_a_late_subscriber_contains_the_pid_of_the_cut() -> None:
    # 14.2 (1), R11: the call reports P as pending, with the pid of the cut
    harness = BrokerHarness("b1-b2-b3", "b2-b4", delta=1)
    client = late_subscriber(harness)
    answer = client.subscribe(s=20)
    assert isinstance(answer, Subscribed)
    (waiting,) = answer.pending
    assert waiting.pubend == P
    assert waiting.reason.startswith(f"{CUT} (partition b4/1: cells b1; ")
    assert "b2/1: cells b1" in waiting.reason


def test_without_forwarded_partitions_the_reason_does_not_name_the_cut() -> None:
    # with delta 0 only b2 has lost a session, and it informs only its own cell
    client = late_subscriber(BrokerHarness("b1-b2-b3", "b2-b4"))
    assert client.subscribe(s=20).pending == (PendingStart(P, CUT),)


def test_if_only_the_phb_is_down_the_reason_names_the_broker_and_not_its_cell() -> None:
    harness = BrokerHarness("p-n", cells={"p": ["p1", "p2"]}, delta=1)
    harness.publisher("p1")
    harness.crash("p1")
    harness.run(s=5)
    assert Requester(harness, "n", "late").subscribe(s=20).pending == (
        PendingStart(P, "there is no route to its broker p1 in cell p now"),
    )


def test_the_reason_for_a_retired_broker_does_not_name_a_missing_route() -> None:
    harness = BrokerHarness("p-n", delta=1)
    harness.publisher("p")
    harness.crash("p")
    harness.run(s=5)
    client = Requester(harness, "n", "late")
    client.call(RetireBroker(99, "p", "p"))
    (waiting,) = client.subscribe(s=20).pending
    assert waiting == PendingStart(
        P, "its broker p in cell p was retired, and its log is lost with it"
    )


def test_the_reason_for_a_broker_that_returned_without_its_disk_says_that_it_is_reachable() -> None:
    harness = BrokerHarness("p-a-n", delta=1)
    harness.publisher("p")
    harness.crash("p")
    harness.nodes["p"].disk.records.clear()
    harness.start("p")
    harness.run(s=5)
    (waiting,) = Requester(harness, "n", "late").subscribe(s=20).pending
    assert waiting == PendingStart(
        P, "its broker p in cell p can be reached, but does not have it yet"
    )


def test_a_reason_names_a_few_partitions_and_the_table_contains_all() -> None:
    brokers = [f"m{number}" for number in range(5)]
    harness = BrokerHarness("p-m-n", cells={"m": brokers}, delta=1)
    harness.publisher("p")
    for peer in (*brokers, "n"):
        harness.cut("p", peer)
    harness.run(ms=100)
    client = Requester(harness, "n", "client")
    (waiting,) = client.subscribe(s=20).pending
    assert waiting.reason.count("cells p") == 3
    assert len(client.call(ListPartitions(99)).entries) == 6


def test_no_rule_reads_the_table() -> None:
    # R12: with wrong contents of the table the late subscriber still starts when the cut heals
    harness = BrokerHarness("b1-b2-b3", "b2-b4", delta=1)
    client = late_subscriber(harness)
    client.subscribe(s=20)
    for peer in ("b2", "b3", "b4"):
        harness.heal("b1", peer)
    for broker in ("b2", "b3", "b4"):
        lie = PartitionInfo(Partition("liar", 1, ("b1", "b2")), 1, True, 9)
        assert harness[broker].components.partitions.received("b2" if broker == "b3" else "b3", lie)
    harness.run(s=6)
    assert [each.pubend for each in client.of_kind(SubscriptionStarted)] == [P]
