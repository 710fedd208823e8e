"""Pubends of one name: planted bugs of how names are given (:mod:`gapless.directory.name_query`)."""

from __future__ import annotations

from typing import Final

from gapless.directory.name_query import NameQueries, NameQueryDone
from gapless.messages.overlay import NameStatus
from gapless_lab.sim.planted_bugs import PlantedBug, constant, replaced

__all__ = ["NAMING_BUGS"]


def _asks_nobody(_: NameQueries, name: str, done: NameQueryDone) -> None:
    del name
    done(NameStatus.FREE, "")


NAMING_BUGS: Final = (
    PlantedBug(
        "names are given unasked",
        "a broker creates a pubend without asking other brokers for its name (R4)",
        ((NameQueries, "query", replaced(_asks_nobody)),),
    ),
    PlantedBug(
        "two ask and both win",
        "a broker that asks for a name replies FREE to another that asks for it (R4)",
        ((NameQueries, "_contest", constant((NameStatus.FREE, ""))),),
    ),
)
"""Each must be detected within 1,000 seeds."""
