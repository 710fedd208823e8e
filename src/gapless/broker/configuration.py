"""The configuration that a broker's data belongs to: its name, its cell, and its neighbourhood.

Records on disk contain brokers, cells and directions. They are wrong in another tree: streams would
wait for brokers that do not exist, and tables would filter for other neighbours. So a broker stores
its configuration with its data, and does not start with the data of another configuration. A step
(:mod:`gapless.reshape.step`) changes the tree and stores records of cells. From then on these are
used, and the configuration must name the same broker, cell, delta and overlay only (RS-36). Addresses
are not compared: brokers may move to other computers.
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
    broker: BrokerId, delta: int, neighbourhood: Neighbourhood, overlay: str
) -> ConfigurationRecord:
    """Return the record of a configuration."""
    cells = tuple(cell.without_addresses() for cell in neighbourhood.cells)
    own, version = neighbourhood.own, neighbourhood.version
    return ConfigurationRecord(broker, own, delta, version, cells, overlay)


def refuse_other_configuration(configuration: ConfigurationRecord, state: StoredState) -> bool:
    """Return whether to store the configuration; UsageError if the data has another one.

    After the first step the stored records are used and the configured tree is not compared.
    """
    stored = state.configuration
    if stored is None:
        return True
    joined = state.neighbourhood is not None and state.neighbourhood.own == configuration.cell
    if stored.broker == configuration.broker and stored.cell != configuration.cell and joined:
        return not _differences(stored, configuration, cells=False)  # it was appended since (RS-15)
    if (stored.broker, stored.cell) != (configuration.broker, configuration.cell):
        raise UsageError(
            f"this data belongs to the broker {stored.broker} of the cell {stored.cell}, not to "
            f"{configuration.broker} of {configuration.cell}: start that broker with it, or this one with an empty "
            "data directory"
        )
    found = _differences(stored, configuration, cells=state.neighbourhood is None)
    if not found:
        return False
    shown = "; ".join(found[:SHOWN_DIFFERENCES_MAX])
    raise UsageError(
        f"the data of {configuration.broker} was made in another tree ({shown}): start it with the topology "
        "it was made with, or with an empty data directory"
    )


def _differences(old: ConfigurationRecord, new: ConfigurationRecord, *, cells: bool) -> list[str]:
    """Return the differences as texts for the operator, nearest cells first."""
    found = []
    if old.overlay != new.overlay:
        found.append(f"the overlay was {old.overlay!r} and is {new.overlay!r}")
    if old.delta != new.delta:
        found.append(f"delta was {old.delta} and is {new.delta}")
    if not cells:
        return found
    before, now = ({cell.name: cell for cell in each.cells} for each in (old, new))
    for name in dict.fromkeys((*before, *now)):
        was, has = before.get(name), now.get(name)
        if was is None:
            found.append(f"the cell {name} is new")
        elif has is None:
            found.append(f"the cell {name} is missing")
        elif was != has:
            found.append(f"the cell {name} was {_shown(was)} and is {_shown(has)}")
    return found


def _shown(cell: CellRecord) -> str:
    brokers, neighbours = ", ".join(cell.brokers), ", ".join(cell.neighbours)
    return f"[{brokers}] next to [{neighbours}]"
