"""The alarms ring for the broker too: rules taken out are missed within a few seeds.

All planted bugs within 1,000 seeds are hunted by ``make planted-bugs``; here those that fall quickly.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless_lab.sim.broker_bugs import BUGS
from gapless_lab.sim.planted_bugs import PlantedBug, hunt
from gapless_lab.sim.routing_bugs import ONLY_DIRECTED

QUICK = {
    "acknowledged before it is on disk",
    "unknown is silent",
    "any filter applies",
    "merges without waiting",
    "vector off by one",
    "silence over an event",
    "a record is written once",
    "a cache without end",
    "starts where its host joined",
    "a commit is done again",
    "two attempts are committed",
    "a feeder that is not nearer",
    "reports for the missing",
}


@pytest.mark.parametrize(
    "bug", [bug for bug in BUGS if bug.name in QUICK], ids=lambda bug: bug.name
)
def test_a_rule_that_is_taken_out_is_missed(bug: PlantedBug) -> None:
    catch = hunt(bug, range(10))
    assert catch.violation is not None, bug.about


def test_every_bug_has_a_name_of_its_own_and_there_are_enough() -> None:
    names = [bug.name for bug in BUGS]
    assert len(set(names)) == len(names) >= 30
    assert set(names) >= QUICK


@pytest.mark.parametrize(("rule", "shown_by"), ONLY_DIRECTED.items())
def test_what_no_run_shows_is_shown_by_a_test_of_its_own(rule: str, shown_by: str) -> None:
    path, _, name = shown_by.partition("::")
    text = (Path(__file__).parents[3] / path).read_text(encoding="utf-8")
    assert f"def {name}(" in text, rule
    assert rule not in {bug.name for bug in BUGS}
