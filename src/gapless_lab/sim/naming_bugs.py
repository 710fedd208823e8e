"""Pubends of one name: planted bugs of how names are given (:mod:`gapless.directory.name_query`)."""

from __future__ import annotations

from typing import Final

from gapless.directory.name_query import NameQueries, NameQueryDone
from gapless.messages.overlay import NameStatus
from gapless_lab.sim.planted_bugs import PlantedBug, constant, replaced

__all__ = ["NAMING_BUGS"]


def _queries_no_broker(_: NameQueries, name: str, done: NameQueryDone) -> None:
    del name
    done(NameStatus.FREE, "")


NAMING_BUGS: Final = (
    PlantedBug(
        "creates pubends without a name query",
        "a broker creates a pubend without a query of other brokers (R4)",
        ((NameQueries, "query", replaced(_queries_no_broker)),),
    ),
    PlantedBug(
        "replies FREE to a concurrent name query",
        "a broker that queries a name replies FREE to another query for it (R4)",
        ((NameQueries, "_contest", constant((NameStatus.FREE, ""))),),
    ),
)
"""Each must be detected within 1,000 seeds."""
