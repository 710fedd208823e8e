"""Many runs: one line each, and a summary with the coverage marks that no run hit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec

from gapless_lab.sim.machine import BROKER
from gapless_lab.sim.runner import RunResult, run_seed
from gapless_lab.sim.unreachable_marks import OUT_OF_REACH

__all__ = ["Summary", "known_coverage_marks", "run_many", "summarise"]

_COVERAGE_MARK = re.compile(r"""(?:\.mark|_restart)\([^"']*"([^"]+)\"""")
"""A call that counts a coverage mark, with its name."""


class Summary(msgspec.Struct, frozen=True):
    """The result of many runs."""

    seeds: int
    steps: int
    faults: dict[str, int]
    publications: int
    deliveries: int
    gaps: int
    violations: dict[str, list[int]]
    """By name of the violation: the seeds that have it."""
    coverage_marks: dict[str, int]
    never_hit: list[str]
    """Coverage marks that no run hit, although a run can."""
    out_of_reach: dict[str, str]
    """Coverage marks that no run hit and none can, with the reasons."""
    steps_per_second: float
    messages: dict[str, int]
    """The messages between brokers, by direction and kind."""


def run_many(
    seeds: Iterable[int],
    machine: str = BROKER,
    *,
    workers: int = 1,
    run: Callable[..., RunResult] = run_seed,
) -> Iterator[RunResult]:
    """Run the seeds, in order; with several workers in that many processes."""
    one = partial(run, machine=machine)
    if workers <= 1:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(one, seeds, chunksize=4)


def summarise(results: Iterable[RunResult], *, known: Iterable[str] = ()) -> Summary:
    """Aggregate the results of runs."""
    faults: dict[str, int] = {}
    marks: dict[str, int] = {}
    messages: dict[str, int] = {}
    violations: dict[str, list[int]] = {}
    seeds = steps = publications = deliveries = gaps = 0
    seconds = 0.0
    for result in results:
        seeds += 1
        steps += result.steps
        publications += result.publications
        deliveries += result.deliveries
        gaps += result.gaps
        seconds += result.seconds
        _add(faults, result.faults)
        _add(marks, result.coverage_marks)
        _add(messages, result.messages)
        if result.violations:
            violations.setdefault(result.violations[0].name, []).append(result.options.seed)
    missed = sorted(mark for mark in {*known} if mark not in marks)
    return Summary(
        seeds=seeds,
        steps=steps,
        faults=dict(sorted(faults.items())),
        publications=publications,
        deliveries=deliveries,
        gaps=gaps,
        violations=dict(sorted(violations.items())),
        coverage_marks=dict(sorted(marks.items())),
        never_hit=[mark for mark in missed if mark not in OUT_OF_REACH],
        out_of_reach={mark: OUT_OF_REACH[mark] for mark in missed if mark in OUT_OF_REACH},
        steps_per_second=round(steps / seconds) if seconds else 0,
        messages=dict(sorted(messages.items())),
    )


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        total[name] = total.get(name, 0) + count


def known_coverage_marks() -> list[str]:
    """Return the names of all coverage marks in the sources."""
    found: list[str] = []
    for text in _sources(files("gapless")):
        found += _COVERAGE_MARK.findall(text)
    return sorted(dict.fromkeys(found))


def _sources(folder: Traversable) -> Iterator[str]:
    for each in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if each.is_dir():
            yield from _sources(each)
        elif each.name.endswith(".py"):
            yield each.read_text(encoding="utf-8")
