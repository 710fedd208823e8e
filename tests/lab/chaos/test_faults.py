"""The faults that a seed draws, and the streams that must flow during them."""

from __future__ import annotations

from itertools import islice, pairwise
from random import Random

import pytest

from gapless.core.ids import BrokerId
from gapless.runtime.overlay_config import OverlayConfig, overlay_of
from gapless_lab.chaos.connectivity import (
    connected_parts,
    connected_streams,
    subscribers_to_fail_over,
)
from gapless_lab.chaos.faults import (
    ANOTHER_LEFT,
    ONE_LEFT,
    ONE_TOO_MANY,
    SIDE_CUT,
    Fault,
    FaultAction,
    count_kinds,
    draw_faults,
)
from gapless_lab.chaos.flow import ObservedStream
from gapless_lab.chaos.roles import NEWCOMERS, VISITOR, assign_roles, longest_path
from gapless_lab.demo.workload import SubscriberRole

LINE = overlay_of("line:5x2", delta=2)


def lost(*victims: str, action: FaultAction = FaultAction.KILL) -> Fault:
    return Fault("lost", "", action, victims, (), 1.0)


def cut(*links: str) -> Fault:
    """Return cuts of links ``"a b"``: no message passes from a to b."""
    pairs = tuple((source, target) for source, target in (link.split() for link in links))
    return Fault("cut", "", FaultAction.NOTHING, (), pairs, 1.0)


def permanent(overlay: OverlayConfig) -> dict[SubscriberRole, BrokerId | None]:
    """Return the permanent subscribers, each at the first of its brokers."""
    temporary = {VISITOR, *NEWCOMERS}
    return {
        part: part.brokers[0]
        for part in assign_roles(overlay).subscribers
        if part.name not in temporary
    }


def wanted(*faults: Fault, overlay: OverlayConfig = LINE) -> list[ObservedStream]:
    """Return the streams of permanent subscribers that must flow during faults."""
    return connected_streams(overlay, assign_roles(overlay).publishers, permanent(overlay), faults)


def drawn(overlay: OverlayConfig, kind: str, count: int) -> list[Fault]:
    """Return some faults of a kind, each drawn alone."""
    found = (faults[0] for faults in draw_faults(overlay, Random(5)) if faults[0].kind == kind)
    return list(islice(found, count))


@pytest.mark.parametrize("words", ["line:5x2", "line:2", "star:5x2", "tree:2x3x2", "line:1x3"])
@pytest.mark.parametrize("delta", [0, 1, 2, 3, 4])
def test_a_seed_draws_the_same_faults_again_and_every_kind_in_a_round(
    words: str, delta: int
) -> None:
    overlay = overlay_of(words, delta=delta)
    first, again = (list(islice(draw_faults(overlay, Random(7)), 20)) for _ in range(2))
    assert first == again
    brokers = {broker for broker, _ in overlay.brokers}
    for fault in (each for faults in first for each in faults):
        assert brokers >= set(fault.victims)
        assert brokers >= {broker for link in fault.cuts for broker in link}
    kinds = {faults[0].kind for faults in first[: count_kinds(overlay)]}
    assert len(kinds) == count_kinds(overlay)
    assert {"crash", "freeze"} <= kinds
    assert ("one-way cut" in kinds) == (SIDE_CUT in kinds) == (len(overlay.topology.cells) > 1)
    for length in (2, 3, 4):
        in_a_row = delta == length and len(overlay.topology.cells) > 1
        assert (f"{length} cells in a row" in kinds) == in_a_row
    assert ("barrier" in kinds) == (delta > 0 and len(overlay.topology.cells) > 1)
    has_sides = delta > 0 and len(longest_path(overlay)) > 2
    assert ("island" in kinds) == ("one-way island" in kinds) == has_sides
    assert (ONE_TOO_MANY in kinds) == (len(longest_path(overlay)) >= delta + 2), "some are left"
    several = any(len(cell.brokers) > 1 for cell in overlay.topology.cells)
    assert ({ONE_LEFT, ANOTHER_LEFT} <= kinds) == several


def test_concurrent_faults_have_distinct_victims_and_cuts() -> None:
    for faults in islice(draw_faults(LINE, Random(3)), 200):
        cuts = [link for fault in faults for link in fault.cuts]
        victims = [victim for fault in faults for victim in fault.victims]
        assert len(cuts) == len(set(cuts))
        assert len(victims) == len(set(victims))


def test_the_longest_path_goes_through_the_tree() -> None:
    assert longest_path(LINE) == ("c1", "c2", "c3", "c4", "c5")
    assert len(longest_path(overlay_of("tree:2x3"))) == 5
    assert longest_path(overlay_of("line:1")) == ("c1",)


def test_lost_cells_divide_the_tree_only_if_they_are_more_than_delta_in_a_row() -> None:
    two = lost("b2a", "b2b", "b3a", "b3b")
    assert connected_parts(LINE, [two]) == [{"b1a", "b1b", "b4a", "b4b", "b5a", "b5b"}]
    three = lost("b2a", "b2b", "b3a", "b3b", "b4a", "b4b", action=FaultAction.FREEZE)
    assert connected_parts(LINE, [three]) == [{"b1a", "b1b"}, {"b5a", "b5b"}]


def test_brokers_behind_a_barrier_run_and_reach_each_other() -> None:
    links = [f"b5{x} b{y}{z}" for x in "ab" for y in "1234" for z in "ab"]
    barrier = cut(*links)._replace(action=FaultAction.ISOLATE, victims=("b5a", "b5b"))
    assert connected_parts(LINE, [barrier])[1:] == [{"b5a", "b5b"}]
    found = wanted(barrier)
    assert ObservedStream("tape", "lse") in found, "both ends are behind it"
    assert ObservedStream("tape", "nyse") not in found
    assert ObservedStream("desk", "nyse") in found
    assert ObservedStream("desk", "lse") not in found


@pytest.mark.parametrize("words", ["line:5x2", "line:3", "line:4x2", "star:5x2", "tree:2x3x2"])
@pytest.mark.parametrize("delta", [1, 2, 3])
def test_an_island_is_cut_off_from_one_side_and_fed_by_the_other(words: str, delta: int) -> None:
    overlay = overlay_of(words, delta=delta)
    all_brokers = {broker for broker, _ in overlay.brokers}
    for island in drawn(overlay, "island", 6):
        assert island.action is FaultAction.NOTHING
        assert set(island.cuts) == {link[::-1] for link in island.cuts}, "nothing gets through"
        (cell,) = {dict(overlay.brokers)[here] for here, _ in island.cuts[: len(island.cuts) // 2]}
        assert cell == longest_path(overlay)[len(longest_path(overlay)) // 2]
        assert connected_parts(overlay, [island]) == [all_brokers], "there is a bypass"
        assert len(wanted(island, overlay=overlay)) == len(wanted(overlay=overlay))


@pytest.mark.parametrize("words", ["line:5x2", "line:3", "line:3x3", "star:5x2", "tree:2x3x2"])
def test_a_one_way_island_is_fed_by_a_bypass(words: str) -> None:
    overlay = overlay_of(words, delta=1)
    all_brokers = {broker for broker, _ in overlay.brokers}
    middle = longest_path(overlay)[len(longest_path(overlay)) // 2]
    directions = set()
    for island in drawn(overlay, "one-way island", 12):
        assert island.action is FaultAction.NOTHING
        sources, targets = ends(island, overlay)
        assert {middle} in (sources, targets)
        directions.add({middle} == sources)
        assert connected_parts(overlay, [island]) == [all_brokers], "there is a bypass"
    assert directions == {True, False}, "either direction is cut"


@pytest.mark.parametrize("words", ["line:5x2", "line:2", "line:3x3", "star:5x2", "tree:2x3x2"])
@pytest.mark.parametrize("delta", [0, 1, 4])
def test_a_side_cut_silences_one_side_of_an_edge_for_all_of_the_other_but_not_back(
    words: str, delta: int
) -> None:
    overlay = overlay_of(words, delta=delta)
    all_brokers = {broker for broker, _ in overlay.brokers}
    path = longest_path(overlay)
    for fault in drawn(overlay, SIDE_CUT, 12):
        assert fault.action is FaultAction.NOTHING
        some, others = ({link[end] for link in fault.cuts} for end in (0, 1))
        assert some | others == all_brokers
        assert not some & others
        assert set(fault.cuts) == {(one, other) for one in some for other in others}
        sources, targets = ends(fault, overlay)
        crossed = [pair for pair in pairwise(path) if len(sources & set(pair)) == 1]
        assert len(crossed) == 1, "it is an edge between those who publish and those who listen"
        assert all(len(side & set(path)) for side in (sources, targets))
        assert sorted(map(sorted, connected_parts(overlay, [fault]))) == sorted(
            map(sorted, (some, others))
        ), "a session needs both directions"


def ends(fault: Fault, overlay: OverlayConfig) -> tuple[set[str], set[str]]:
    """Return the cells from which and to which nothing passes."""
    cells = dict(overlay.brokers)
    sources, targets = zip(*fault.cuts, strict=True)
    return {cells[each] for each in sources}, {cells[each] for each in targets}


@pytest.mark.parametrize(("words", "delta"), [("line:5x2", 2), ("line:3x3", 0), ("line:6", 3)])
def test_one_lost_cell_more_than_delta_divides_the_tree(words: str, delta: int) -> None:
    overlay = overlay_of(words, delta=delta)
    cells, path = dict(overlay.brokers), longest_path(overlay)
    actions = set()
    for fault in drawn(overlay, ONE_TOO_MANY, 20):
        actions.add(fault.action)
        lost_cells = sorted({cells[broker] for broker in fault.victims})
        first = path.index(lost_cells[0])
        assert tuple(lost_cells) == path[first : first + delta + 1]
        assert len(fault.victims) == sum(cell in lost_cells for cell in cells.values())
        running = connected_parts(overlay, [fault])
        parts = [{cells[broker] for broker in part} for part in running]
        island = [set(lost_cells)] if fault.action is FaultAction.ISOLATE else []
        sides = [{*path[:first]}, {*path[first + delta + 1 :]}]
        assert all(sides)
        assert sorted(map(sorted, parts)) == sorted(map(sorted, sides + island))
    assert actions == {FaultAction.KILL, FaultAction.FREEZE, FaultAction.ISOLATE}


def test_with_one_lost_cell_too_many_only_streams_of_one_side_flow() -> None:
    dead = lost("b2a", "b2b", "b3a", "b3b", "b4a", "b4b")
    assert {str(each) for each in wanted(dead)} == {
        *("tape from lse", "roamer from lse", "refugee from lse"),
        *("abroad from tse", "fickle from nyse", "fickle from tse"),
    }
    assert "fickle" in subscribers_to_fail_over(LINE, permanent(LINE), [dead])


def test_one_lost_cell_too_many_at_an_end_of_a_short_tree_leaves_the_other_end() -> None:
    short = overlay_of("line:3x2", delta=1)
    for fault in drawn(short, ONE_TOO_MANY, 6):
        assert {*fault.victims} == {"b2a", "b2b", "b3a", "b3b"}
        assert {"b1a", "b1b"} in connected_parts(short, [fault])


def test_faults_last_longer_where_brokers_are_slower_to_suspect() -> None:
    usual = [faults[0] for faults in islice(draw_faults(LINE, Random(4)), 60)]
    slow = [faults[0] for faults in islice(draw_faults(LINE, Random(4), 6_000), 60)]
    for one, other in zip(usual, slow, strict=True):
        # both are rounded to tenths, and a link flaps five times
        assert other.flap_s == pytest.approx(4 * one.flap_s, abs=0.25)
        assert other.hold_s == pytest.approx(4 * one.hold_s, abs=5 * 0.25)
        assert (one.kind, one.victims, one.cuts) == (other.kind, other.victims, other.cuts)
    for fault in slow:
        if fault.kind in {"freeze", SIDE_CUT, ONE_TOO_MANY}:
            assert fault.hold_s > 6.0, "so that every broker has noticed"


def test_without_a_bypass_an_island_is_disconnected() -> None:
    (island,) = drawn(LINE, "island", 1)
    narrow = overlay_of("line:5x2", delta=0)
    assert len(connected_parts(narrow, [island])) == 2


@pytest.mark.parametrize(("words", "size"), [("line:5x2", 5), ("line:1x3", 1), ("star:4x3", 4)])
def test_one_broker_of_each_cell_is_left_and_another_one_the_next_time(
    words: str, size: int
) -> None:
    overlay = overlay_of(words, delta=1)
    all_brokers = {broker for broker, _ in overlay.brokers}
    drawing = (each for faults in draw_faults(overlay, Random(9)) for each in faults[:1])
    faults = list(islice((each for each in drawing if each.kind in {ONE_LEFT, ANOTHER_LEFT}), 2))
    left = [all_brokers - set(fault.victims) for fault in faults]
    assert [len(each) for each in left] == [size, size]
    assert not left[0] & left[1], "so every subscriber that can fail over does so at least once"
    for fault, some in zip(faults, left, strict=True):
        assert len({dict(overlay.brokers)[broker] for broker in some}) == size
        assert connected_parts(overlay, [fault]) == [some]


def test_a_cut_in_one_direction_is_a_cut_for_a_session() -> None:
    pair = overlay_of("line:2", delta=0)
    assert connected_parts(pair, [cut("b2 b1")]) == [{"b1"}, {"b2"}]
    assert connected_parts(LINE, [cut("b2a b1a")]) == [{broker for broker, _ in LINE.brokers}]


def test_subscribers_with_another_address_continue_and_others_wait() -> None:
    found = {each.subscriber for each in wanted(lost("b5a", "b3b"))}
    assert found == {"tape", "abroad", "roamer", "refugee", "fickle"}


def test_a_subscriber_of_a_broker_that_does_not_run_must_fail_over() -> None:
    here = permanent(LINE)
    moving = subscribers_to_fail_over(LINE, here, [lost("b5a", action=FaultAction.FREEZE)])
    assert moving == {part.name for part, broker in here.items() if broker == "b5a"}
    assert "refugee" in moving
    assert not subscribers_to_fail_over(LINE, here, drawn(LINE, "barrier", 1)), (
        "a barrier kills no broker"
    )


def test_a_stream_of_a_failover_must_flow_only_if_all_possible_brokers_are_connected() -> None:
    links = [f"b3{x} b{y}{z}" for x in "ab" for y in "1245" for z in "ab"]
    barrier = cut(*links)._replace(action=FaultAction.ISOLATE, victims=("b3a", "b3b"))
    assert "fickle" not in {each.subscriber for each in wanted(barrier)}, "it may be on either side"
    dead = lost("b3a", "b3b")
    assert ObservedStream("fickle", "nyse") in wanted(dead), "it fails over to the near end"
    assert not {each.subscriber for each in wanted(lost("b5a", "b5b"))} & {"tape", "refugee"}


def test_a_temporary_subscriber_connects_to_the_first_of_its_brokers_that_runs() -> None:
    cast = assign_roles(LINE)
    visitor = cast.subscriber(VISITOR)
    links = [f"b5{x} b{y}{z}" for x in "ab" for y in "1234" for z in "ab"]
    barrier = cut(*links)._replace(action=FaultAction.ISOLATE, victims=("b5a", "b5b"))
    for faults, expected in (
        ([lost("b5a")], {"nyse", "nasdaq", "lse", "tse"}),
        ([lost("b5a", "b5b")], {"nyse", "nasdaq", "tse"}),
        ([barrier], {"lse"}),
    ):
        found = connected_streams(LINE, cast.publishers, {visitor: None}, faults)
        assert {each.pubend for each in found} == expected


def test_total_order_waits_for_all_of_its_streams() -> None:
    found = wanted(lost("b3a"))
    assert ObservedStream("tape", "nyse") in found
    assert ObservedStream("tape", "nasdaq") not in found
    assert "ledger" not in {each.subscriber for each in found}
