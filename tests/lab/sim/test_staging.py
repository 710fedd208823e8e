"""Writers that stage batches in simulated overlays, and their checker."""

from __future__ import annotations

import pytest

from gapless.messages.streams import Publication
from gapless_lab.sim.options import SimulationOptions, draw, draw_ordinary
from gapless_lab.sim.runner import SimulationRun, run_options
from gapless_lab.sim.staging import WriterChecker
from gapless_lab.sim.world import World

FAULTS = {"crash": 1.0, "crash inside a sync": 2.0, "client loss": 2.0, "reset": 1.0}


def test_some_seeds_have_writers_and_the_others_are_unchanged() -> None:
    drawn = [draw(seed) for seed in range(200)]
    assert 10 < sum(each.staged_writers > 0 for each in drawn) < 50
    for each in drawn:
        ordinary = draw_ordinary(each.seed)
        assert (each.shape, each.network) == (ordinary.shape, ordinary.network)


@pytest.mark.parametrize("seed", range(4))
def test_batches_are_logged_completely_and_once_under_faults(seed: int) -> None:
    options = SimulationOptions(
        seed=seed,
        cells=2,
        staged_writers=2,
        stage_rate=20.0,
        rates=FAULTS,
        safety_ms=3_000,
        domain=2,
    )
    run = SimulationRun(options)
    result = run.play()
    assert not result.violations, result.violations[0]
    assert all(len(writer.checker.done) > 3 for writer in run.workload.staged_writers)


def test_rare_branches_are_reached() -> None:
    marks: set[str] = set()
    for seed in range(4):
        options = SimulationOptions(
            seed=seed, staged_writers=2, stage_rate=40.0, rates=FAULTS, safety_ms=3_000
        )
        marks |= run_options(options).coverage_marks.keys()
    assert marks >= {"staged again", "commit repeated"}


# --- the checker -----------------------------------------------------------------------------------


class RecordingWorld(World):
    """A world that only records violations."""

    def __init__(self) -> None:
        self.reported: list[str] = []

    def violate(self, name: str, detail: str) -> None:
        del detail
        self.reported.append(name)


def violations_of(commits_sent: dict[int, list[str]], *logged: str) -> list[str]:
    """Return the violations for requested commits, by batch, and the logged events."""
    world = RecordingWorld()
    checker = WriterChecker(world, "w")
    for batch, commits in commits_sent.items():
        for commit in commits:
            checker.commit_sent(batch, [f"w/{batch}/{each}".encode() for each in commit.split()])
    for tick, each in enumerate(logged):
        checker.logged(Publication(tick, "w", tick, {}, f"w/{each}".encode()))
    return world.reported + ["S1" for _ in checker.half_logged()]


def test_complete_batches_in_order_are_no_violation() -> None:
    assert violations_of({1: ["a b"], 2: ["c"], 4: ["d", "e"]}, "1/a", "1/b", "2/c", "4/e") == []


@pytest.mark.parametrize(
    ("logged", "violation"),
    [
        (("1/a", "1/b", "1/a"), "S1"),
        (("1/a",), "S1"),
        (("1/a", "2/c"), "S1"),
        (("2/c", "1/a"), "S3"),
        (("1/a", "1/x"), "S2"),
        (("1/b",), "S2"),
        (("3/c",), "S2"),
    ],
)
def test_a_wrong_log_is_a_violation(logged: tuple[str, ...], violation: str) -> None:
    assert violation in violations_of({1: ["a b"], 2: ["c"]}, *logged)
