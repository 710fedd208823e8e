"""Planted bugs: known ways to break a machine, to prove that the checks detect them.

A planted bug replaces methods of a class for the time of a ``with``. Each must be detected within a
number of seeds. If one is not detected, the generator never makes the situation that the bug needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from gapless_lab.sim.machine import BROKER
from gapless_lab.sim.runner import RunResult, run_seed

__all__ = ["BugDetection", "PlantedBug", "constant", "hunt", "patched", "replaced"]


@contextmanager
def patched(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    """Replace an attribute of a class or module temporarily."""
    assert hasattr(owner, name), f"{owner} has no {name} to replace"
    inherited = name not in vars(owner)
    original = vars(owner).get(name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, original)


def replaced(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a maker that replaces the original by a function."""
    return lambda _: function


def constant(value: Any) -> Callable[[Any], Any]:
    """Return a maker that replaces the original by a function that always returns the same value."""
    return lambda _: lambda *arguments, **options: value  # noqa: ARG005


class PlantedBug(msgspec.Struct, frozen=True):
    """A bug: its name, its effect, and the attributes it replaces."""

    name: str
    about: str
    patches: tuple[tuple[Any, str, Callable[..., Any]], ...]
    """(class, attribute, maker): the maker gets the original and returns the replacement."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install the bug for the time of a ``with``."""
        with ExitStack() as stack:
            for owner, name, maker in self.patches:
                original = getattr(owner, name)
                stack.enter_context(patched(owner, name, maker(original)))
            yield


class BugDetection(msgspec.Struct, frozen=True):
    """How a planted bug was detected, or that it was not."""

    bug: str
    seeds: int
    """The number of seeds up to the detection, or of all that were tried."""
    violation: str | None
    seed: int | None = None
    """The seed that detected the bug; None if none did."""


def hunt(
    bug: PlantedBug,
    seeds: Iterable[int],
    machine: str = BROKER,
    *,
    run: Callable[..., RunResult] = run_seed,
) -> BugDetection:
    """Run seeds with the bug until one fails."""
    tried = 0
    with bug.installed():
        for seed in seeds:
            tried += 1
            result = run(seed, machine)
            if result.violations:
                first = str(result.violations[0]).splitlines()[0]
                return BugDetection(bug.name, tried, first, seed)
    return BugDetection(bug.name, tried, None)
