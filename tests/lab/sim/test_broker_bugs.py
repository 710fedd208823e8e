"""The checks detect every rule that is taken out of the broker.

Here each bug runs with the seed that is known to detect it. ``make planted-bugs`` also finds other
seeds when a change of the generator has moved a bug.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gapless_lab.sim import bug_hunt
from gapless_lab.sim.broker_bugs import BUGS
from gapless_lab.sim.bug_hunt import DETECTING_SEEDS, seeds_for
from gapless_lab.sim.planted_bugs import PlantedBug, hunt
from gapless_lab.sim.routing_bugs import ONLY_DIRECTED

LONG_RUNS = {
    "never ends a peer session",
    "bypasses into one branch only",
    "keeps a subscription that has moved",
    "does not report corrupt rows",
    "does not use relays",
}
"""The bugs that make a run long: the system has to wait, or to work, until a limit is reached."""


def _parameter(bug: PlantedBug) -> Any:
    marks = [pytest.mark.campaign] if bug.name in LONG_RUNS else []
    return pytest.param(bug, marks=marks, id=bug.name)


@pytest.mark.parametrize("bug", [_parameter(bug) for bug in BUGS])
def test_a_planted_bug_is_detected_by_its_known_seed(bug: PlantedBug) -> None:
    detection = hunt(bug, [DETECTING_SEEDS[bug.name]])
    assert detection.violation is not None, bug.about


def test_every_bug_has_its_own_name_and_a_known_seed() -> None:
    names = [bug.name for bug in BUGS]
    assert len(set(names)) == len(names) >= 40
    assert [*DETECTING_SEEDS] == names
    assert set(names) >= LONG_RUNS


def test_a_hunt_runs_the_known_seed_first_and_then_all_others() -> None:
    name, known = next((name, seed) for name, seed in DETECTING_SEEDS.items() if 0 < seed < 10)
    assert [*seeds_for(name, 10)] == [known, *(seed for seed in range(10) if seed != known)]


def test_a_bug_without_a_target_fails_loudly() -> None:
    bug = PlantedBug("none", "replaces what is not there", ((Path, "no_such_method", repr),))
    with pytest.raises(AttributeError, match="no_such_method"):
        hunt(bug, [0])


def test_the_hunt_refuses_an_unknown_bug(capsys: pytest.CaptureFixture[str]) -> None:
    assert bug_hunt.main(["no such bug"]) == 2
    assert "no such bug: no such bug; use one of: " in capsys.readouterr().err


@pytest.mark.parametrize(("rule", "shown_by"), ONLY_DIRECTED.items())
def test_what_no_run_shows_is_shown_by_a_test_of_its_own(rule: str, shown_by: str) -> None:
    path, _, name = shown_by.partition("::")
    text = (Path(__file__).parents[3] / path).read_text(encoding="utf-8")
    assert f"def {name}(" in text, rule
    assert rule not in {bug.name for bug in BUGS}
