"""Selects the engine: the compiled kernel if it was built, otherwise its Python fallback.

``GAPLESS_KERNEL=fallback`` or ``=compiled`` in the environment forces one. The choice changes speed
and nothing else; it is the only thing this package reads from its environment.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from typing import Any, Protocol, TypeVar

from gapless.content.matching import fallback
from gapless.content.matching.plan import Plan
from gapless.content.values import Attributes
from gapless.core.errors import UsageError

__all__ = ["COMPILED", "KERNEL", "KERNEL_REASON", "MatchEngine", "new_engine"]

T = TypeVar("T")


class MatchEngine(Protocol):
    """Slots, found by events. A slot is a small int that stands for a stored plan."""

    def insert(self, plan: Plan) -> int:
        """Store a plan and return its slot."""

    def delete(self, slot: int) -> list[str]:
        """Remove a slot; return the attributes that no slot constrains any more."""

    def own(self, slot: int, key: Hashable) -> None:
        """Make ``key`` an owner of the slot."""

    def disown(self, slot: int, key: Hashable) -> None:
        """Remove ``key`` from the slot's owners."""

    def set_links(self, slot: int, mask: int) -> None:
        """Set the links that own the slot."""

    def set_all_links(self, mask: int) -> None:
        """Set the mask of all links."""

    def match(self, attributes: Attributes) -> frozenset[Any]:
        """Return the owners of the slots that the event matches."""

    def match_batch(self, events: Iterable[Attributes]) -> list[frozenset[Any]]:
        """Return the owners for each event."""

    def distribute(self, events: Iterable[Attributes], items: Iterable[T]) -> dict[Any, list[T]]:
        """Return for each owner the items of the events that match its slots, in order."""

    def route(self, attributes: Attributes) -> tuple[int, frozenset[Any]]:
        """Return the links and the owners of the slots that the event matches."""

    def links(self, events: Iterable[Attributes]) -> list[int]:
        """Return for each event the links of the slots that it matches."""

    def find(self, attributes: Attributes) -> list[int]:
        """Return the slots that the event matches, in order."""

    def coverers(self, plan: Plan) -> list[int]:
        """Return, in order, the slots that may cover the plan's conjunction."""

    def covered(self, plan: Plan) -> list[int]:
        """Return, in order, the slots that the plan's conjunction may cover."""

    def statistics(self) -> dict[str, int]:
        """Return counts for people."""


COMPILED: Any = None
"""The compiled engine class, or None if it was not built."""

try:
    from gapless.content.matching import _kernel
except ImportError as error:
    _built = f"the compiled kernel was not built ({error}); the fallback does the same, slower"
else:
    COMPILED = _kernel.Engine
    _built = "the compiled kernel was built with the package"

_forced = os.environ.get("GAPLESS_KERNEL", "")
if _forced not in ("", "compiled", "fallback"):
    raise UsageError(
        f"GAPLESS_KERNEL={_forced} is neither 'compiled' nor 'fallback'; set one or none"
    )

KERNEL = _forced or ("fallback" if COMPILED is None else "compiled")
"""The default engine of an index: ``"compiled"`` or ``"fallback"``."""

KERNEL_REASON = f"GAPLESS_KERNEL={_forced} is set" if _forced else _built
"""Why, in a sentence."""


def new_engine(kernel: str | None = None, covering: bool = False) -> MatchEngine:
    """Return an empty engine; ``covering`` enables the search for coverers and covered slots."""
    chosen = kernel or KERNEL
    if chosen == "fallback":
        return fallback.Engine(covering)
    if chosen != "compiled":
        raise UsageError(f"kernel {chosen!r} is neither 'compiled' nor 'fallback'")
    if COMPILED is None:
        raise UsageError(f"kernel 'compiled' cannot be used: {_built}")
    engine: MatchEngine = COMPILED(covering)
    return engine
