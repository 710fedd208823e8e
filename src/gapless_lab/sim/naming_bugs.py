"""Pubends of one name: planted bugs of how names are given (:mod:`gapless.broker.naming`)."""

from __future__ import annotations

from typing import Final

from gapless.broker.naming import Naming, Then
from gapless.messages.overlay import NameVerdict
from gapless_lab.sim.planted_bugs import Plant, constant, replaced

__all__ = ["NAMESAKES"]


def _asks_nobody(_: Naming, name: str, then: Then) -> None:
    del name
    then(NameVerdict.FREE, "")


NAMESAKES: Final = (
    Plant(
        "names are given unasked",
        "a broker makes a pubend of any name that it has not heard of (R4)",
        ((Naming, "ask", replaced(_asks_nobody)),),
    ),
    Plant(
        "two ask and both win",
        "who asks for a name says that it is free to another that asks for it (R4)",
        ((Naming, "_contest", constant((NameVerdict.FREE, ""))),),
    ),
)
"""Each is to be caught within 1,000 seeds."""
