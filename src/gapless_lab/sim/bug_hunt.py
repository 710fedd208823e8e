"""Hunts all planted bugs: ``python -m gapless_lab.sim.bug_hunt [--record] [bug …]``.

``detecting_seeds.json`` has a seed that detects each bug. The hunt runs this seed first. A change of
the generator may move a bug to other seeds. Then the hunt runs the seeds from 0 and stops at the
first that detects the bug. ``--record`` writes the seeds it found into the file. If no seed detects
a bug, the generator never makes the run that needs the rule.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final

import msgspec

from gapless_lab.sim.broker_bugs import BUGS
from gapless_lab.sim.planted_bugs import BugDetection, hunt

__all__ = ["BY_NAME", "DETECTING_SEEDS", "SEEDS_MAX", "hunt_all", "seeds_for"]

SEEDS_MAX: Final = 1_000
"""The number of seeds within which every bug must be detected."""

BY_NAME: Final = {bug.name: bug for bug in BUGS}

_FILE: Final = Path(__file__).with_name("detecting_seeds.json")

DETECTING_SEEDS: Final = msgspec.json.decode(_FILE.read_bytes(), type=dict[str, int])
"""A seed that detects each bug, by the bug's name."""


def seeds_for(bug: str, seeds: int = SEEDS_MAX) -> Iterator[int]:
    """Yield the seeds to run with a bug: the known one first, then all from 0."""
    known = DETECTING_SEEDS.get(bug)
    if known is not None:
        yield known
    yield from (seed for seed in range(seeds) if seed != known)


def hunt_all(
    names: Sequence[str], seeds: int = SEEDS_MAX, *, workers: int = 1
) -> Iterator[BugDetection]:
    """Hunt bugs, several in parallel; yield each result when it is there."""
    with ProcessPoolExecutor(workers) as pool:
        hunts = [pool.submit(_hunt_one, name, seeds) for name in names]
        yield from (each.result() for each in as_completed(hunts))


def _hunt_one(name: str, seeds: int) -> BugDetection:
    """Hunt a bug by its name: its patches cannot be sent to another process."""
    return hunt(BY_NAME[name], seeds_for(name, seeds))


def _record(found: dict[str, int]) -> None:
    seeds = DETECTING_SEEDS | found
    ordered = {name: seeds[name] for name in BY_NAME if name in seeds}
    _FILE.write_bytes(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")


def main(arguments: list[str]) -> int:
    """Hunt all bugs, or the named ones; return 1 if one was missed, 2 for an unknown name."""
    parser = argparse.ArgumentParser(prog="gapless_lab.sim.bug_hunt", description="Hunt bugs.")
    parser.add_argument("--record", action="store_true", help="write the seeds that were found")
    parser.add_argument("bugs", nargs="*", help="names of bugs; all by default")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.bugs if name not in BY_NAME]:
        sys.stderr.write(f"no such bug: {', '.join(unknown)}; use one of: {', '.join(BY_NAME)}\n")
        return 2
    names = options.bugs or [*BY_NAME]
    found: dict[str, int] = {}
    for count, detection in enumerate(hunt_all(names, workers=os.cpu_count() or 1), start=1):
        if detection.seed is not None:
            found[detection.bug] = detection.seed
        sys.stdout.write(f"{count:>3}/{len(names)} {_line(detection)}\n")
        sys.stdout.flush()
    if options.record:
        _record(found)
    return 0 if len(found) == len(names) else 1


def _line(detection: BugDetection) -> str:
    if detection.seed is None:
        return f"{detection.bug:<50} MISSED in {detection.seeds} seeds"
    moved = "" if DETECTING_SEEDS.get(detection.bug) == detection.seed else " (moved)"
    return f"{detection.bug:<50} seed {detection.seed}{moved}: {(detection.violation or '')[:100]}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
