"""The table of partitions that a broker shows."""

from __future__ import annotations

from gapless.messages.operating import ListPartitions, PartitionTable
from gapless.messages.overlay import Partition
from tests.broker.harness import BrokerHarness
from tests.directory.test_status import late_subscriber


def test_clients_can_list_the_partitions_that_a_broker_knows() -> None:
    harness = BrokerHarness("b1-b2-b3", "b2-b4", delta=1)
    client = late_subscriber(harness)
    answer = client.call(ListPartitions(7))
    assert isinstance(answer, PartitionTable)
    assert answer.request == 7
    assert {str(each) for each in answer.entries} == {
        "b2/1: cells b1",
        "b3/1: cells b1",
        "b4/1: cells b1",
    }
    assert answer.entries[0] == Partition("b4", 1, ("b1",)), "its own partitions come first"
    for peer in ("b2", "b3", "b4"):
        harness.heal("b1", peer)
    harness.run(s=1)
    assert client.call(ListPartitions(8)) == PartitionTable(8, ())


def test_the_age_of_a_partition_is_given_by_the_clock_of_the_broker() -> None:
    harness = BrokerHarness("b1-b2-b3", "b2-b4", delta=1)
    before = harness["b4"].context.clock
    client = late_subscriber(harness)
    harness.run(s=5)
    answer = client.call(ListPartitions(7))
    assert len(answer.since) == len(answer.entries) == 3
    assert all(before <= since < harness["b4"].context.clock for since in answer.since)
