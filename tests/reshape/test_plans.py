"""The execution of plans (RS-19 to RS-21)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.errors import UsageError
from gapless.reshape.plan_state import PlanState
from gapless.reshape.planning.plan import plan_between
from gapless.reshape.planning.trees import CellTree
from tests.cases import scaled
from tests.reshape.plan_world import REFUSED, PlanWorld
from tests.reshape.planning.random_trees import line, random_tree, star, trees

LINE, STAR = line("abcde"), star("abcde")


def state_of(world: PlanWorld) -> PlanState:
    return world.executor.state


def plain(tree: CellTree) -> CellTree:
    """Return a tree with the names that were asked for in place of ids."""
    return CellTree.of(
        [each.partition("#")[0] for each in tree],
        [(one.partition("#")[0], other.partition("#")[0]) for one, other in tree.edges],
    )


def begun(**parameters: Any) -> PlanWorld:
    """Return a world whose executor has requested the first of three SHIFTs."""
    world = PlanWorld(LINE, **parameters)
    world.apply(world.order(STAR))
    world.answer_walk()
    world.write()
    assert state_of(world) is PlanState.REQUESTING
    return world


@settings(max_examples=scaled(60))
@given(trees("abcdef"), trees("cdefgh"))
def test_a_plan_is_executed_to_the_wanted_tree(present: CellTree, wanted: CellTree) -> None:
    # RS-19; the expected states are those that the records really have, or the fake refuses
    world = PlanWorld(present)
    world.apply(world.order(wanted))
    world.run()
    assert plain(world.overlay.tree) == wanted
    (outcome,) = world.outcomes
    assert outcome.is_reached
    assert outcome.done == len(plan_between(present, wanted).steps)
    assert [each.number for each in world.overlay.requests] == [*range(outcome.done)]
    assert world.disk is None
    assert state_of(world) is PlanState.ENDED


@settings(max_examples=scaled(40))
@given(trees("abcdef"), trees("cdefgh"), st.lists(st.integers(0, 6), max_size=6))
def test_a_plan_that_was_interrupted_anywhere_is_resumed_at_its_next_step(
    present: CellTree, wanted: CellTree, pauses: list[int]
) -> None:
    # RS-21
    world = PlanWorld(present)
    world.apply(world.order(wanted))
    world.answer_walk()
    world.write()
    for pause in pauses:
        for _ in range(pause):
            world.advance()
        world.crash()
    world.run()
    assert plain(world.overlay.tree) == wanted
    assert len(world.overlay.done) == len(plan_between(present, wanted).steps)
    assert world.disk is None


def test_the_plan_is_durable_before_its_first_operation_is_requested() -> None:
    # RS-19
    world = PlanWorld(LINE)
    world.apply(world.order(STAR))
    world.answer_walk()
    assert state_of(world) is PlanState.WRITING
    assert not world.operations
    world.write()
    assert len(world.operations) == 1
    assert world.disk is not None
    assert (world.disk.next, len(world.disk.steps)) == (0, 3)


def test_an_operation_whose_answer_was_lost_is_requested_under_the_same_id() -> None:
    # RS-19: repeating it is harmless
    world = begun()
    (lost,) = world.operations
    world.overlay.perform(lost.question)
    world.crash()
    (again,) = world.operations
    assert again.question == lost.question
    world.run()
    assert world.overlay.tree == STAR
    assert len(world.overlay.done) == 3


def test_between_steps_on_common_cells_edges_settle_or_time_passes() -> None:
    # RS-19
    world = begun(settle_ms=5_000)
    world.answer_operation()
    world.write()
    assert state_of(world) is PlanState.SETTLING
    world.pass_time(4_999)
    assert not world.operations
    world.pass_time(1)
    assert state_of(world) is PlanState.REQUESTING
    assert world.settling[0].is_cancelled
    world.settling.clear()
    world.answer_operation()
    world.write()
    world.answer_settling()
    assert state_of(world) is PlanState.REQUESTING


def test_steps_without_a_common_cell_do_not_wait() -> None:
    two = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f"), ("f", "g"), ("g", "h")]
    other = [("a", "c"), *two[1:-1], ("f", "h")]
    world = PlanWorld(CellTree.of("abcdefgh", two))
    world.apply(world.order(CellTree.of("abcdefgh", other)))
    world.answer_walk()
    world.write()
    world.answer_operation()
    world.write()
    assert not world.settling
    assert state_of(world) is PlanState.REQUESTING


def test_a_stale_operation_leads_to_a_walk_and_a_new_plan_to_the_same_tree() -> None:
    # RS-20, Run 17: step 2 is for an edge that another operator has shifted
    world = begun()
    world.answer_operation()
    world.overlay.shift("e", "d", "c")
    world.run()
    assert world.overlay.tree == STAR
    assert world.outcomes[0].is_reached
    numbers = [each.number for each in world.overlay.requests]
    assert numbers == sorted(set(numbers)), "no step has the id of another one"


def test_a_change_elsewhere_is_found_by_the_last_walk() -> None:
    # RS-20: no step of the plan needs the cells that another operator shifts
    two = line("abcdefgh")
    world = PlanWorld(two)
    world.apply(world.order(two.shifted("a", "b", "c")))
    world.answer_walk()
    world.write()
    world.overlay.shift("h", "g", "f")
    world.run()
    assert world.overlay.tree == two.shifted("a", "b", "c")
    assert world.outcomes[0].is_reached


def test_after_plan_replans_the_plan_stops_with_both_trees() -> None:
    # RS-20: it never forces
    world = begun(plan_replans=2)
    for _ in range(2):
        world.overlay.shift("e", "d", "c")
        world.overlay.shift("e", "c", "d")
        world.overlay.shift("c", "b", "a")
        world.overlay.shift("c", "a", "b")
        world.answer_operation()
        world.answer_walk()
        world.write()
    world.overlay.shift("c", "b", "a")
    world.overlay.shift("c", "a", "b")
    world.answer_operation()
    world.answer_walk()
    world.write()
    (outcome,) = world.outcomes
    assert not outcome.is_reached
    assert outcome.reason == "the tree was changed by others, and planned anew 2 times"
    assert (outcome.present, outcome.wanted) == (LINE, STAR)
    assert world.disk is None


def test_abort_stops_after_the_operation_under_way() -> None:
    # RS-21
    world = begun()
    assert world.executor.abort()
    world.write()
    assert state_of(world) is PlanState.STOPPING
    assert world.disk is None
    assert not world.outcomes
    assert not world.executor.abort()
    world.answer_operation()
    world.write()
    assert world.outcomes[0].reason == "aborted by an operator"
    assert world.outcomes[0].done == 1
    assert not world.operations
    world.crash()
    assert state_of(world) is PlanState.ENDED


@pytest.mark.parametrize("answers", range(9))
def test_abort_leaves_a_tree_in_every_state(answers: int) -> None:
    # RS-21: every prefix of a plan leaves a valid tree
    world = PlanWorld(LINE)
    world.apply(world.order(STAR))
    for _ in range(answers):
        world.advance()
    was_ended = state_of(world) is PlanState.ENDED
    assert world.executor.abort() is not was_ended
    world.run()
    assert state_of(world) is PlanState.ENDED
    assert len(world.outcomes) == 1
    assert world.disk is None
    assert len(world.overlay.tree) == 5


def test_nothing_is_requested_after_an_abort_during_a_write() -> None:
    world = PlanWorld(LINE)
    world.apply(world.order(STAR))
    world.answer_walk()
    world.executor.abort()
    world.write()
    assert not world.operations
    assert world.disk is None


def test_a_refused_operation_ends_the_plan_with_its_reason() -> None:
    world = begun()
    world.answer_operation(REFUSED)
    world.write()
    (outcome,) = world.outcomes
    assert outcome.reason == f"SHIFT(c, b, a): {REFUSED.reason}"
    assert (outcome.done, outcome.is_reached) == (0, False)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"present": (("a", "b"),)}, "the tree has changed since the plan was shown"),
        ({"degree": 2}, "the degree bound is 2"),
        ({"keep": ("b",)}, "keep names b, whose neighbours change"),
        ({"newcomers": ()}, "the order names no broker for the new cell x"),
    ],
)
def test_an_order_that_cannot_be_planned_is_refused(changes: dict[str, Any], problem: str) -> None:
    world = PlanWorld(LINE)
    world.apply(world.order(star("abcdex"), **changes))
    world.answer_walk()
    world.write()
    assert problem in world.outcomes[0].reason
    assert not world.overlay.requests


def test_a_cell_that_does_not_answer_the_walk_ends_the_plan() -> None:
    world = PlanWorld(LINE)
    world.apply(world.order(STAR))
    world.answer_walk(silent=["d", "e"])
    world.write()
    assert world.outcomes[0].reason == "cells do not answer: d, e"


def test_an_order_that_is_no_tree_or_a_second_one_is_refused_at_once() -> None:
    world = PlanWorld(LINE)
    with pytest.raises(UsageError, match="not connected"):
        world.apply(world.order(LINE, edges=(("a", "b"),)))
    assert state_of(world) is PlanState.ENDED
    world.apply(world.order(STAR))
    with pytest.raises(UsageError, match="executes another plan"):
        world.apply(world.order(STAR))


def test_an_order_of_too_many_cells_is_refused() -> None:
    world = PlanWorld(LINE)
    cells = [f"c{number:04}" for number in range(1_001)]
    with pytest.raises(UsageError, match="1,001 cells; 1,000 are the maximum"):
        world.apply(world.order(line(cells)))


def test_a_cell_that_another_operator_has_detached_is_appended_again() -> None:
    world = PlanWorld(LINE)
    world.apply(world.order(star("abcdex")))
    world.answer_walk()
    world.write()
    world.answer_operation()
    (new,) = (each for each in world.overlay.records if each.startswith("x#"))
    record = world.overlay.records.pop(new)
    world.overlay.records["a"] = TREE_WITHOUT_X.records["a"]
    assert record.neighbours == ("a",)
    world.run()
    assert plain(world.overlay.tree) == star("abcdex")
    assert world.outcomes[0].is_reached


TREE_WITHOUT_X = PlanWorld(LINE).overlay


def test_a_large_plan_is_made_in_slices() -> None:
    cells = [f"c{number:02}" for number in range(30)]
    random = Random(1)
    present, wanted = random_tree(cells, random), random_tree(cells, random)
    world = PlanWorld(present)
    world.apply(world.order(wanted))
    world.walks.pop().then(tuple(world.overlay.records.values()), ())
    slices = 0
    while state_of(world) is PlanState.PLANNING:
        world.pass_time(1)
        slices += 1
    assert slices > 20
    world.run()
    assert world.overlay.tree == wanted
