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
from gapless.messages.records import ConfigurationRecord, NeighbourhoodRecord, Record
from gapless.overlay.neighbourhood import Neighbourhood

__all__ = ["configuration_of", "refuse_other_configuration"]


def configuration_of(
    broker: BrokerId, delta: int, neighbourhood: Neighbourhood
) -> ConfigurationRecord:
    """Return what is kept of the configured tree."""
    return ConfigurationRecord(
        broker, neighbourhood.own, delta, neighbourhood.version, neighbourhood.cells
    )


def refuse_other_configuration(
    configuration: ConfigurationRecord, records: Iterable[Record]
) -> bool:
    """Raise if the data was made elsewhere; else return whether that is still to be written down.

    After a reshape the stored neighbourhood counts and the configured one is not looked at.
    """
    records = tuple(records)
    stored = next((each for each in records if isinstance(each, ConfigurationRecord)), None)
    if stored is None:
        return True
    if (stored.broker, stored.cell) != (configuration.broker, configuration.cell):
        raise UsageError(
            f"this data belongs to the broker {stored.broker} of the cell {stored.cell}, not to "
            f"{configuration.broker} of {configuration.cell}: start that broker with it, or this one with an empty "
            "data directory"
        )
    reshaped = any(
        isinstance(each, NeighbourhoodRecord) and each.version > configuration.version
        for each in records
    )
    if reshaped or stored == configuration:
        return False
    if configuration.version > stored.version:
        return True
    shown = "; ".join(_differences(stored, configuration)[:SHOWN_DIFFERENCES_MAX])
    raise UsageError(
        f"the data of {configuration.broker} was made in another tree ({shown}): start it with the topology "
        "it was made with, or with an empty data directory"
    )


def _differences(old: ConfigurationRecord, new: ConfigurationRecord) -> list[str]:
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
