"""What a seed draws, and which streams must flow while it lasts."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from gapless.chaos.faults import Fault, Harm, count_kinds, draw_faults
from gapless.chaos.flow import FailOver, FailOverRow, Stream, tabulate
from gapless.chaos.parts import cast_for, longest_way
from gapless.chaos.ways import connected_parts, streams_with_a_way
from gapless.runtime.overlays import Overlay, overlay_of

LINE = overlay_of("line:5x2", delta=2)


def lost(*victims: str, harm: Harm = Harm.KILL) -> Fault:
    return Fault("lost", "", harm, victims, (), 1.0)


def cut(*links: str) -> Fault:
    """Return cuts of ``"a b"``: nothing gets from a to b."""
    pairs = tuple((source, target) for source, target in (link.split() for link in links))
    return Fault("cut", "", Harm.NOTHING, (), pairs, 1.0)


def everywhere(overlay: Overlay) -> dict[str, str | None]:
    return {part.name: part.brokers[0] for part in cast_for(overlay).watchers}


@pytest.mark.parametrize("words", ["line:5x2", "line:2", "star:5x2", "tree:2x3x2", "line:1x3"])
@pytest.mark.parametrize("delta", [0, 1, 2])
def test_a_seed_draws_the_same_faults_again_and_every_kind_in_a_round(
    words: str, delta: int
) -> None:
    overlay = overlay_of(words, delta=delta)
    first, again = (list(islice(draw_faults(overlay, Random(7)), 16)) for _ in range(2))
    assert first == again
    brokers = {broker for broker, _ in overlay.brokers}
    for fault in (each for faults in first for each in faults):
        assert brokers >= set(fault.victims)
        assert brokers >= {broker for link in fault.cuts for broker in link}
    kinds = {faults[0].kind for faults in first[: count_kinds(overlay)]}
    assert len(kinds) == count_kinds(overlay)
    assert {"crash", "freeze"} <= kinds
    assert ("one-way cut" in kinds) == (len(overlay.topology.cells) > 1)
    assert ("2 cells in a row" in kinds) == (delta == 2 and len(overlay.topology.cells) > 1)


def test_what_is_done_twice_at_once_is_done_once() -> None:
    for faults in islice(draw_faults(LINE, Random(3)), 200):
        cuts = [link for fault in faults for link in fault.cuts]
        victims = [victim for fault in faults for victim in fault.victims]
        assert len(cuts) == len(set(cuts))
        assert len(victims) == len(set(victims))


def test_the_longest_way_goes_through_the_tree() -> None:
    assert longest_way(LINE) == ("c1", "c2", "c3", "c4", "c5")
    assert len(longest_way(overlay_of("tree:2x3"))) == 5
    assert longest_way(overlay_of("line:1")) == ("c1",)


def test_lost_cells_divide_the_tree_only_if_they_are_more_than_delta_in_a_row() -> None:
    two = lost("b2a", "b2b", "b3a", "b3b")
    assert connected_parts(LINE, [two]) == [{"b1a", "b1b", "b4a", "b4b", "b5a", "b5b"}]
    three = lost("b2a", "b2b", "b3a", "b3b", "b4a", "b4b", harm=Harm.FREEZE)
    assert connected_parts(LINE, [three]) == [{"b1a", "b1b"}, {"b5a", "b5b"}]


def test_brokers_of_an_island_run_and_have_each_other() -> None:
    links = [f"b5{x} b{y}{z}" for x in "ab" for y in "1234" for z in "ab"]
    island = cut(*links)._replace(harm=Harm.ISOLATE, victims=("b5a", "b5b"))
    assert connected_parts(LINE, [island])[1:] == [{"b5a", "b5b"}]
    wanted = streams_with_a_way(LINE, cast_for(LINE), everywhere(LINE), [island])
    assert Stream("tape", "lse") in wanted, "both ends are on it"
    assert Stream("tape", "nyse") not in wanted
    assert Stream("desk", "nyse") in wanted
    assert Stream("desk", "lse") not in wanted


def test_a_cut_in_one_direction_is_a_cut_for_a_session() -> None:
    pair = overlay_of("line:2", delta=0)
    assert connected_parts(pair, [cut("b2 b1")]) == [{"b1"}, {"b2"}]
    assert connected_parts(LINE, [cut("b2a b1a")]) == [{broker for broker, _ in LINE.brokers}]


def test_watchers_that_know_another_broker_have_a_way_and_durable_ones_wait() -> None:
    wanted = streams_with_a_way(LINE, cast_for(LINE), everywhere(LINE), [lost("b5a", "b3b")])
    assert {each.watcher for each in wanted} == {"tape", "abroad", "roamer"}


def test_total_order_waits_for_all_of_its_streams() -> None:
    wanted = streams_with_a_way(LINE, cast_for(LINE), everywhere(LINE), [lost("b3a")])
    assert Stream("tape", "nyse") in wanted
    assert Stream("tape", "nasdaq") not in wanted
    assert "ledger" not in {each.watcher for each in wanted}


def test_fail_overs_are_told_by_kind() -> None:
    found = [FailOver("crash", 1.0, 0.5), FailOver("crash", 3.0, None), FailOver("cut", None, None)]
    assert tabulate(found) == [
        FailOverRow("crash", 2, 2.0, 3.0, 0.5, 0.5),
        FailOverRow("cut", 1, None, None, None, None),
    ]
