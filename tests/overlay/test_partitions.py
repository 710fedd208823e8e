"""The partition table: which cells cannot be reached, for operators (R12)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from gapless.core.ids import BrokerId, CellId
from gapless.core.limits import PARTITIONS_MAX
from gapless.core.parameters import Parameters, microseconds
from gapless.messages.overlay import Packet, Partition, PartitionInfo
from gapless.overlay.neighbourhood import Topology
from tests.overlay.small_world import SmallWorld, line

DEAD_MS = 2_000
"""After this time both ends know that a session is dead."""
OPEN_MS = 500
"""After this time every possible session is open."""


def settled(topology: Topology, **parameters: Any) -> SmallWorld:
    world = SmallWorld(topology, Parameters(relay_hops_max=0, **parameters))
    world.run(OPEN_MS)
    return world


def part(world: SmallWorld, ones: str, others: str, *, heal: bool = False) -> None:
    """Cut, or heal, every link between two sets of brokers with names of one letter."""
    for one in ones:
        for other in others:
            for link in ((one, other), (other, one)):
                (world.heal if heal else world.cut)(*link)
    world.run(OPEN_MS if heal else DEAD_MS)


def pids(world: SmallWorld, broker: BrokerId) -> list[str]:
    return [str(each) for each in world.nodes[broker].partitions.table()]


def own_pids(world: SmallWorld, broker: BrokerId) -> list[str]:
    return [each for each in pids(world, broker) if each.startswith(f"{broker}/")]


def infos(world: SmallWorld, source: BrokerId, target: BrokerId) -> list[PartitionInfo]:
    """Return the partition messages that were sent over a link."""
    return [
        message
        for one, other, packet in world.sent
        if (one, other) == (source, target) and isinstance(packet, Packet)
        for message in packet.messages
        if isinstance(message, PartitionInfo)
    ]


def formed(
    detector: BrokerId, counter: int, *cells: CellId, hops: int = 0, incarnation: int = 1
) -> PartitionInfo:
    return PartitionInfo(Partition(detector, counter, cells), incarnation, True, hops)


def healed(
    detector: BrokerId, counter: int, *cells: CellId, hops: int = 0, incarnation: int = 1
) -> PartitionInfo:
    return PartitionInfo(Partition(detector, counter, cells), incarnation, False, hops)


# --- detection --------------------------------------------------------------------------------


def test_a_cell_whose_last_session_closes_is_a_partition() -> None:
    world = settled(line("a", "b"), delta=0)
    assert pids(world, "a") == []
    part(world, "a", "b")
    assert pids(world, "a") == ["a/1: cells b"]
    assert pids(world, "b") == ["b/1: cells a"]


def test_a_cell_with_another_reachable_broker_is_no_partition() -> None:
    world = settled(Topology.of({"a": ["a"], "n": ["m", "n"]}, [("a", "n")]), delta=0)
    part(world, "a", "m")
    assert pids(world, "a") == []
    part(world, "a", "n")
    assert pids(world, "a") == ["a/1: cells n"]


def test_the_own_cell_is_never_a_partition() -> None:
    world = settled(Topology.of({"n": ["m", "n"], "x": ["x"]}, [("n", "x")]), delta=0)
    part(world, "m", "n")
    assert pids(world, "m") == []
    part(world, "m", "x")
    assert pids(world, "m") == ["m/1: cells x"]


def test_a_cell_never_reached_in_this_incarnation_is_a_partition_after_a_delay() -> None:
    world = SmallWorld(line("a", "b"), Parameters(delta=0))
    part(world, "a", "b")
    assert pids(world, "a") == [], "a broker that has just started has no partitions yet"
    world.run(DEAD_MS)
    assert pids(world, "a") == ["a/1: cells b"]
    part(world, "a", "b", heal=True)
    assert pids(world, "a") == []


def test_a_partition_ends_before_the_cells_that_are_still_reachable() -> None:
    # a - b - {c - d, e}: d is unreachable first, then b, while c and e answer, then c
    topology = Topology.of(
        {name: [name] for name in "abcde"}, [("a", "b"), ("b", "c"), ("c", "d"), ("b", "e")]
    )
    world = settled(topology, delta=2)
    part(world, "a", "d")
    assert "a/1: cells d" in pids(world, "a")
    part(world, "a", "b")
    assert "a/2: cells b" in pids(world, "a"), (
        "the partition ends before c and e, which are reachable"
    )
    part(world, "a", "c")
    assert "a/3: cells c, d" in pids(world, "a"), "d is beyond c and unreachable too"


def test_a_partition_extends_to_the_border_of_the_neighbourhood() -> None:
    world = settled(line("a", "b", "c", "d"), delta=1)
    part(world, "a", "c")
    part(world, "a", "b")
    assert own_pids(world, "a") == ["a/1: cells c", "a/2: cells b, c"]


def test_counters_grow() -> None:
    # PT III: i is a value that the detector only ever increases
    world = settled(line("a", "b"), delta=0)
    part(world, "a", "b")
    part(world, "a", "b", heal=True)
    part(world, "a", "b")
    assert pids(world, "a") == ["a/2: cells b"]


# --- healing ----------------------------------------------------------------------------------


def test_a_partition_heals_when_one_of_its_cells_is_reachable() -> None:
    world = settled(line("a", "b"), delta=0)
    part(world, "a", "b")
    part(world, "a", "b", heal=True)
    assert pids(world, "a") == pids(world, "b") == []


def test_cells_still_unreachable_when_a_partition_heals_form_a_new_partition() -> None:
    world = settled(line("a", "b", "c"), delta=1)
    part(world, "a", "c")
    part(world, "a", "b")
    assert own_pids(world, "a") == ["a/1: cells c", "a/2: cells b, c"]
    part(world, "a", "c", heal=True)
    assert own_pids(world, "a") == ["a/3: cells b"]
    part(world, "a", "b", heal=True)
    assert pids(world, "a") == []


# --- forwarding -------------------------------------------------------------------------------


@pytest.mark.parametrize(("delta", "informed"), [(0, ""), (1, "bc"), (2, "bcde")])
def test_a_partition_is_known_up_to_a_distance_of_two_delta_cells(
    delta: int, informed: str
) -> None:
    # PT VII: the tables of 2δ cells around the detector name it; x is beyond the cut
    world = settled(line("x", "a", "b", "c", "d", "e", "f"), delta=delta)
    part(world, "x", "abcdef")
    assert "a/1: cells x" in pids(world, "a")
    for broker in "bcdef":
        assert ("a/1: cells x" in pids(world, broker)) == (broker in informed), broker
    part(world, "x", "abcdef", heal=True)
    for broker in "abcdef":
        assert "a/1: cells x" not in pids(world, broker), broker


def test_brokers_of_the_detectors_cell_know_a_partition_for_every_delta() -> None:
    world = settled(Topology.of({"x": ["x"], "n": ["m", "n"]}, [("x", "n")]), delta=0)
    part(world, "x", "m")
    part(world, "x", "n")
    assert pids(world, "m") == ["m/1: cells x", "n/1: cells x"]


def test_a_partition_is_forwarded_once_and_not_back_with_fewer_hops() -> None:
    world = settled(line("a", "b", "c"), delta=0)
    node = world.nodes["b"]
    info = formed("z", 1, "y", hops=2)
    assert node.partitions.received("a", info)
    assert not node.partitions.received("a", info)
    assert not node.partitions.received("c", formed("z", 1, "y", hops=1))
    world.run(10)
    assert infos(world, "b", "c") == [formed("z", 1, "y", hops=1)]
    assert infos(world, "b", "a") == infos(world, "c", "b") == []


def test_a_partition_without_hops_left_is_stored_and_not_forwarded() -> None:
    world = settled(line("a", "b", "c"), delta=0)
    assert world.nodes["b"].partitions.received("a", formed("z", 1, "y"))
    world.run(10)
    assert pids(world, "b") == ["z/1: cells y"]
    assert infos(world, "b", "c") == []


def test_a_partition_from_a_peer_of_the_cell_is_forwarded_to_other_cells_only() -> None:
    # otherwise it could circle in the cell, where the hop count does not decrease
    world = settled(Topology.of({"n": ["k", "m", "n"], "a": ["a"]}, [("a", "n")]), delta=0)
    assert world.nodes["n"].partitions.received("m", formed("z", 1, "y", hops=1))
    world.run(10)
    assert infos(world, "n", "k") == []
    assert infos(world, "n", "a") == [formed("z", 1, "y", hops=0)]


def test_a_late_message_does_not_restore_a_healed_partition() -> None:
    world = settled(line("a", "b", "c"), delta=0)
    partitions = world.nodes["b"].partitions
    assert partitions.received("a", healed("z", 1, "y"))
    assert not partitions.received("c", formed("z", 1, "y"))
    assert partitions.table() == []


def test_a_copy_over_a_shorter_route_is_forwarded_to_brokers_that_the_first_did_not_reach() -> None:
    # b first learns over h that x is healed, with too few hops left for f and g
    tree = Topology.of({name: [name] for name in "xabcdefgh"}, [*pairwise("xabcdefg"), ("b", "h")])
    world = SmallWorld(tree, Parameters(delta=3))
    world.run(OPEN_MS)
    part(world, "x", "abcdefgh")
    assert "a/1: cells x" in pids(world, "g")
    part(world, "a", "bcde")
    part(world, "x", "abcdefgh", heal=True)
    part(world, "a", "bcde", heal=True)
    world.run(ms=5_000)
    assert {broker: pids(world, broker) for broker in world.nodes if pids(world, broker)} == {}


def test_a_copy_over_a_shorter_route_does_not_change_the_age_of_a_partition() -> None:
    world = settled(line("a", "b", "c"), delta=0)
    partitions = world.nodes["b"].partitions
    assert partitions.received("a", formed("z", 1, "y", hops=1))
    (before,) = partitions.dated()
    world.run(ms=50)
    assert partitions.received("c", formed("z", 1, "y", hops=2))
    assert partitions.dated() == [before]


def test_known_partitions_are_sent_when_a_session_opens() -> None:
    world = settled(line("a", "b"), delta=0)
    part(world, "a", "b")
    partitions = world.nodes["b"].partitions
    world.nodes["a"].partitions.received("b", formed("z", 2, "y"))
    partitions.received("a", formed("z", 1, "y", hops=1))
    partitions.received("a", healed("z", 2, "y", hops=1))
    part(world, "a", "b", heal=True)
    assert pids(world, "a") == ["z/1: cells y"], "healed partitions are sent too"


def test_a_broker_is_not_sent_its_own_partitions() -> None:
    world = settled(line("a", "b"), delta=0)
    assert not world.nodes["a"].partitions.received("b", formed("a", 9, "b", hops=2))
    assert world.nodes["b"].partitions.received("a", formed("a", 9, "b", hops=2))
    part(world, "a", "b")
    part(world, "a", "b", heal=True)
    assert infos(world, "b", "a") == []


def test_a_partition_from_an_unknown_broker_is_ignored() -> None:
    partitions = settled(line("a", "b"), delta=0).nodes["a"].partitions
    assert not partitions.received("unknown", formed("z", 1, "y"))


# --- expiry -----------------------------------------------------------------------------------


def test_partitions_of_a_dead_detector_expire() -> None:
    world = settled(line("a", "b"), delta=0, tombstone_ttl_s=3)
    part(world, "a", "b")
    node = world.nodes["a"]
    node.partitions.received("b", formed("z", 1, "y"))
    world.run(2_900)
    assert pids(world, "a") == ["a/1: cells b", "z/1: cells y"]
    world.run(200)
    assert pids(world, "a") == ["a/1: cells b"], "its own partitions stay until they heal"


def test_partitions_of_a_restarted_detector_end() -> None:
    # its counters start again too, so its next 1 is another partition
    world = settled(line("x", "a", "b", "c"), delta=1)
    part(world, "x", "abc")
    assert "a/1: cells x" in pids(world, "c")
    world.start("a", "a", incarnation=2)
    world.run(DEAD_MS)
    assert "a/1: cells x" not in pids(world, "b") + pids(world, "c")
    part(world, "a", "bc")
    assert own_pids(world, "a") == ["a/1: cells x", "a/2: cells b", "a/3: cells c"]


def test_partitions_of_a_live_detector_stay_when_its_session_opens_again() -> None:
    world = settled(line("x", "a", "b"), delta=1)
    part(world, "x", "ab")
    part(world, "a", "b")
    part(world, "a", "b", heal=True)
    assert "a/1: cells x" in pids(world, "b")


def test_partitions_of_a_crashed_detector_end_without_renewal() -> None:
    # x - a - b - c: a detects that x is down, informs b and c, and is down itself when x restarts
    world = settled(line("x", "a", "b", "c"), delta=1, partition_renew_ms=1_000)
    part(world, "x", "abc")
    assert "a/1: cells x" in pids(world, "c")
    part(world, "a", "xbc")
    part(world, "x", "bc", heal=True)
    world.run(4_000)
    for broker in "bcx":
        assert not [each for each in pids(world, broker) if each.startswith("a/")]
    assert "b/3: cells a" in pids(world, "c"), "partitions of a live detector stay"


def test_a_lasting_partition_is_renewed_while_its_detector_is_up() -> None:
    world = settled(line("x", "a", "b", "c"), delta=1, partition_renew_ms=1_000)
    part(world, "x", "abc")
    world.run(10_000)
    assert "a/1: cells x" in pids(world, "c")
    since = world.nodes["c"].partitions.dated()[0][1]
    assert since < world.now - 9_000_000, "a renewal does not change its age"


def test_an_expired_partition_is_restored_only_by_a_renewal() -> None:
    world = settled(line("a", "b"), delta=0, partition_renew_ms=1_000)
    partitions = world.nodes["a"].partitions
    assert partitions.received("b", formed("z", 1, "y"))
    world.run(4_001)
    assert partitions.table() == []
    assert not partitions.received("b", formed("z", 1, "y", hops=9))
    renewed = msgspec.structs.replace(formed("z", 1, "y"), renewal=1)
    assert partitions.received("b", renewed), "its detector was only cut off, and has renewed it"
    assert [str(each) for each in partitions.table()] == ["z/1: cells y"]


def test_the_age_of_a_healed_partition_starts_with_its_healing() -> None:
    world = settled(line("a", "b"), delta=0, tombstone_ttl_s=3)
    partitions = world.nodes["a"].partitions
    partitions.received("b", formed("z", 1, "y"))
    world.run(2_000)
    partitions.received("b", healed("z", 1, "y"))
    world.run(2_000)
    assert partitions.table() == []
    assert not partitions.received("b", formed("z", 1, "y")), "a healed partition is not restored"
    for counter in range(2, PARTITIONS_MAX + 1):
        partitions.received("b", formed("z", counter, "y"))
    partitions.received("b", healed("z", 2, "y"))
    partitions.received("b", formed("z", PARTITIONS_MAX + 1, "y"))
    partitions.received("b", formed("z", PARTITIONS_MAX + 2, "y"))
    assert not partitions.received("b", formed("z", 2, "y")), "older ones were forgotten first"


def test_above_the_limit_the_oldest_partition_is_forgotten() -> None:
    world = settled(line("a", "b"), delta=0)
    part(world, "a", "b")
    node = world.nodes["a"]
    for counter in range(1, PARTITIONS_MAX + 1):
        node.partitions.received("b", formed("z", counter, "y"))
    table = pids(world, "a")
    assert len(table) == PARTITIONS_MAX
    assert table[:2] == ["a/1: cells b", "z/2: cells y"]
    assert table[-1] == f"z/{PARTITIONS_MAX}: cells y"
    assert node.context.coverage_marks["partition forgotten"] == 1


# --- queries ----------------------------------------------------------------------------------


def test_a_path_is_cut_by_partitions_that_contain_one_of_its_cells() -> None:
    world = settled(line("a", "b", "c", "d"), delta=1)
    partitions = world.nodes["a"].partitions
    assert partitions.partitions_before("c") == []
    part(world, "a", "b")
    assert [str(each) for each in partitions.partitions_before("c")] == ["a/1: cells b"]
    assert partitions.partitions_before("a") == []
    assert partitions.partitions_before("d") == [], (
        "the distance of cells beyond the neighbourhood is not known"
    )
    partitions.received("b", formed("c", 1, "d"))
    assert [str(each) for each in partitions.partitions_before("d")] == ["c/1: cells d"]


def test_the_own_partitions_come_first_in_the_table() -> None:
    world = settled(line("a", "b"), delta=0)
    world.nodes["a"].partitions.received("b", formed("z", 1, "y"))
    part(world, "a", "b")
    assert pids(world, "a") == ["a/1: cells b", "z/1: cells y"]


def test_partitions_expire_without_timers() -> None:
    # a link that flaps for a day must not leave a day of timers
    world = settled(line("a", "b"), delta=0, tombstone_ttl_s=10_000)
    context = world.nodes["a"].context
    before = context.next_timer()
    for counter in range(100):
        world.nodes["a"].partitions.received("b", formed("z", counter, "y"))
    assert context.next_timer() == before
    context.now += microseconds(s=10_001)
    assert world.nodes["a"].partitions.table() == []
