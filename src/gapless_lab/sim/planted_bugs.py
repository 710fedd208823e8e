"""Planted bugs: known ways to break a machine, to prove that the alarms ring.

A plant replaces methods of a class for the time of a ``with``. Each must be found within a number
of seeds; one that is missed shows that the generator never makes what the bug needs.
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
    """Replace an attribute of a class or module for a while."""
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
    """Return a maker that puts a function in the place of the original."""
    return lambda _: function


def constant(value: Any) -> Callable[[Any], Any]:
    """Return a maker that puts a function in the place of the original that always says the same."""
    return lambda _: lambda *arguments, **options: value  # noqa: ARG005


class PlantedBug(msgspec.Struct, frozen=True):
    """A bug: its name, what it does, and what it replaces."""

    name: str
    about: str
    patches: tuple[tuple[Any, str, Callable[..., Any]], ...]
    """(class, attribute, maker): the maker is given the original and returns the replacement."""

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the bug be there for a while."""
        with ExitStack() as stack:
            for owner, name, maker in self.patches:
                original = getattr(owner, name)
                stack.enter_context(patched(owner, name, maker(original)))
            yield


class BugDetection(msgspec.Struct, frozen=True):
    """How a plant was found, or that it was not."""

    bug: str
    seeds: int
    """How many seeds it took, or how many were tried."""
    violation: str | None


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
                return BugDetection(bug.name, tried, str(result.violations[0]).splitlines()[0])
    return BugDetection(bug.name, tried, None)
