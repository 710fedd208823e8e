"""Events on their way to a client, as runs of one pubend: a run costs, an event hardly does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from gapless.core.ids import PubendId
from gapless.messages.streams import Publication

__all__ = ["DeliveryRun", "DeliveryRuns"]

DeliveryRun: TypeAlias = tuple[PubendId, tuple[Publication, ...]]


class DeliveryRuns:
    """Collects events in the order in which they are to be sent."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[tuple[PubendId, list[Publication]]] = []

    def add(self, pubend: PubendId, publications: list[Publication]) -> None:
        """Let events of a pubend follow; the list is ours from now on."""
        if self._runs and self._runs[-1][0] == pubend:
            self._runs[-1][1].extend(publications)
        else:
            self._runs.append((pubend, publications))

    def take(self, most: int) -> Iterator[tuple[DeliveryRun, ...]]:
        """Take all that was collected, in parts of at most so many events."""
        runs, self._runs = self._runs, []
        part: list[DeliveryRun] = []
        room = most
        for pubend, publications in runs:
            taken = 0
            while taken < len(publications):
                if not room:
                    yield tuple(part)
                    part, room = [], most
                more = tuple(publications[taken : taken + room])
                part.append((pubend, more))
                taken += len(more)
                room -= len(more)
        if part:
            yield tuple(part)
