"""The configuration that a broker's data belongs to: its name, its cell, and its neighbourhood.

Records on disk contain brokers, cells and directions. They are wrong in another tree: streams would
wait for brokers that do not exist, and tables would filter for other neighbours. So a broker stores
its configuration with its data, and does not start with the data of another configuration. A
reshape (:mod:`gapless.reshape.step`) changes the tree and stores a newer neighbourhood. A
configuration file never changes it.
"""

from __future__ import annotations

from gapless.core.errors import UsageError
from gapless.core.ids import BrokerId
from gapless.core.limits import SHOWN_DIFFERENCES_MAX
from gapless.messages.overlay import CellRecord
from gapless.messages.records import ConfigurationRecord
from gapless.messages.stored import StoredState
from gapless.overlay.neighbourhood import Neighbourhood

__all__ = ["configuration_of", "refuse_other_configuration"]


def configuration_of(
    broker: BrokerId, delta: int, neighbourhood: Neighbourhood
) -> ConfigurationRecord:
    """Return the record of a configuration."""
    return ConfigurationRecord(
        broker, neighbourhood.own, delta, neighbourhood.version, neighbourhood.cells
    )


def refuse_other_configuration(configuration: ConfigurationRecord, state: StoredState) -> bool:
    """Return whether to store the configuration; UsageError if the data has another one.

    After a reshape the stored neighbourhood applies and the configured one is not compared.
    """
    stored = state.configuration
    if stored is None:
        return True
    if (stored.broker, stored.cell) != (configuration.broker, configuration.cell):
        raise UsageError(
            f"this data belongs to the broker {stored.broker} of the cell {stored.cell}, not to "
            f"{configuration.broker} of {configuration.cell}: start that broker with it, or this one with an empty "
            "data directory"
        )
    neighbourhood = state.neighbourhood
    reshaped = neighbourhood is not None and neighbourhood.version > configuration.version
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
    """Return the differences as texts for the operator, nearest cells first."""
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
    return found or ["the cells are in another order"]


def _shown(cell: CellRecord) -> str:
    brokers, neighbours = ", ".join(cell.brokers), ", ".join(cell.neighbours)
    return f"[{brokers}] next to [{neighbours}]"
