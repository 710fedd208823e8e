"""What a broker's data belongs to: its name, its cell, and the tree around it.

Promises on disk name brokers, cells and directions. In another tree they would be taken for what they
are not: streams would wait for hosts that do not exist, and tables prune for neighbours that are
others. So a broker keeps with its data where that was made, and does not start with it elsewhere. A
tree is changed by reshaping (:mod:`.reshaping`), which keeps a newer neighbourhood, never by another
file.
"""

from __future__ import annotations

from collections.abc import Iterable

from gapless.core.errors import UsageError
from gapless.core.ids import BrokerId
from gapless.core.limits import SHOWN_DIFFERENCES_MAX
from gapless.messages.overlay import CellInfo
from gapless.messages.records import HomeRecord, NeighbourhoodRecord, Record
from gapless.overlay.neighbourhood import Neighbourhood

__all__ = ["home_of", "refuse_another_home"]


def home_of(broker: BrokerId, delta: int, around: Neighbourhood) -> HomeRecord:
    """Return what is kept of the configured tree."""
    return HomeRecord(broker, around.own, delta, around.version, around.cells)


def refuse_another_home(home: HomeRecord, records: Iterable[Record]) -> bool:
    """Raise if the data was made elsewhere; else return whether that is still to be written down.

    After a reshape the stored neighbourhood counts and the configured one is not looked at.
    """
    records = tuple(records)
    stored = next((each for each in records if isinstance(each, HomeRecord)), None)
    if stored is None:
        return True
    if (stored.broker, stored.cell) != (home.broker, home.cell):
        raise UsageError(
            f"this data belongs to the broker {stored.broker} of the cell {stored.cell}, not to "
            f"{home.broker} of {home.cell}: start that broker with it, or this one with an empty "
            "data directory"
        )
    reshaped = any(
        isinstance(each, NeighbourhoodRecord) and each.version > home.version for each in records
    )
    if reshaped or stored == home:
        return False
    if home.version > stored.version:
        return True
    shown = "; ".join(_differences(stored, home)[:SHOWN_DIFFERENCES_MAX])
    raise UsageError(
        f"the data of {home.broker} was made in another tree ({shown}): start it with the topology "
        "it was made with, or with an empty data directory"
    )


def _differences(old: HomeRecord, new: HomeRecord) -> list[str]:
    """Return what differs, for people, nearest first."""
    found = []
    if old.delta != new.delta:
        found.append(f"delta was {old.delta} and is {new.delta}")
    before, now = ({cell.name: cell for cell in each.cells} for each in (old, new))
    for name in dict.fromkeys((*before, *now)):
        was, has = before.get(name), now.get(name)
        if was is None:
            found.append(f"the cell {name} is new")
        elif has is None:
            found.append(f"the cell {name} is missing")
        elif was != has:
            found.append(f"the cell {name} was {_shown(was)} and is {_shown(has)}")
    return found or ["the cells stand in another order"]


def _shown(cell: CellInfo) -> str:
    brokers, neighbours = ", ".join(cell.brokers), ", ".join(cell.neighbours)
    return f"[{brokers}] next to [{neighbours}]"
