"""Two brokers compare their views of the path between them (RS-11)."""

from __future__ import annotations

import pytest

from gapless.overlay.neighbourhood import Neighbourhood
from gapless.overlay.path_epochs import SAME_VIEW, ViewDifference, compare, epochs_to
from tests.overlay.test_tree_change import EDGES, Overlay, to_k, to_m
from tests.shape_versions import shape

BEFORE, AFTER, LATER = Overlay(*EDGES), Overlay(*EDGES), Overlay(*EDGES)
to_k(AFTER)
to_k(LATER)
to_m(LATER)


def asked(feeder: Neighbourhood, receiver: Neighbourhood) -> ViewDifference:
    """Return what a feeder finds when a broker of another cell attaches."""
    return compare(feeder, receiver.own, epochs_to(receiver, feeder.own))


def test_an_attach_in_a_network_that_was_never_reshaped_names_no_edge() -> None:
    near = BEFORE.near("j", 2)
    assert all(epochs_to(near, cell) == () for cell in "ikxym")


def test_an_attach_names_the_touched_edges_of_the_path_only() -> None:
    assert epochs_to(AFTER.near("x", 3), "k") == (("i", "k", shape(2)),)
    assert epochs_to(AFTER.near("x", 3), "i") == ()
    assert epochs_to(AFTER.near("x", 3), "j") == (("i", "k", shape(2)), ("j", "k", shape(2)))


@pytest.mark.parametrize("overlay", [BEFORE, AFTER, LATER])
def test_brokers_that_know_the_same_tree_have_the_same_view(overlay: Overlay) -> None:
    for one in overlay.cells:
        near = overlay.near(one, 2)
        for other in near.cells:
            assert asked(near, overlay.near(other.name, 2)) == SAME_VIEW


@pytest.mark.parametrize(("one", "other"), ["xi", "yj"])
def test_views_of_untouched_edges_are_equal_whoever_has_not_heard(one: str, other: str) -> None:
    # run 50: the stream y -> x -> i of the rules
    for old, new in [(BEFORE, AFTER), (BEFORE, LATER), (AFTER, LATER)]:
        assert asked(new.near(other, 2), old.near(one, 2)) == SAME_VIEW
        assert asked(old.near(other, 2), new.near(one, 2)) == SAME_VIEW


def test_a_receiver_with_an_older_tree_gets_the_records_of_the_path() -> None:
    # run 6: x with the old tree asks j, past a dead i
    difference = asked(AFTER.near("j", 3), BEFORE.near("x", 2))
    assert set(difference.outdated) == {"j", "k", "i", "x"}
    assert difference.missing == ()


def test_the_records_of_both_ends_of_a_removed_edge_are_requested_or_sent() -> None:
    difference = asked(LATER.near("k", 2), AFTER.near("i", 2))
    assert set(difference.outdated) == {"k", "m", "i"}
    assert difference.missing == ()


@pytest.mark.parametrize("radius", [1, 2, 3])
def test_a_feeder_with_an_older_tree_wants_the_records_of_both_ends(radius: int) -> None:
    difference = asked(BEFORE.near("k", radius), AFTER.near("i", radius))
    assert difference.outdated == ()
    assert set(difference.missing) == {"i", "k"}


def test_an_edge_that_the_receiver_has_removed_is_not_taken_for_one_that_it_does_not_know() -> None:
    # i names (i, m) and (k, m); k holds (i, k), which i has left since
    difference = asked(AFTER.near("k", 2), LATER.near("i", 2))
    assert difference.outdated == ()
    assert set(difference.missing) == {"i", "k", "m"}


def test_views_that_are_newer_for_different_edges_are_exchanged_in_both_directions() -> None:
    one, other = Overlay("ab", "bc", "cd", "be", "cf"), Overlay("ab", "bc", "cd", "be", "cf")
    one.shift("e", "b", "a")
    other.shift("f", "c", "d")
    difference = asked(one.near("a", 3), other.near("d", 3))
    assert set(difference.outdated) == {"a", "b", "c", "d"}
    assert set(difference.missing) == {"c", "d"}


def test_the_records_of_an_unknown_receiver_are_requested() -> None:
    near = BEFORE.near("m", 1)
    assert compare(near, "x", ()) == ViewDifference(missing=("x",))
    assert compare(near, "x", (("i", "k", shape(2)),)) == ViewDifference(missing=("x", "i", "k"))
