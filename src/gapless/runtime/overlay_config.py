"""The configuration of an overlay: its name, its tree of cells, the addresses of its brokers.

A file in TOML::

    overlay = "trading"  # brokers of another overlay are refused
    delta = 1  # so many unreachable cells in a row are bypassed
    edges = [["paris", "london"], ["london", "tokyo"]]

    [cells]  # a cell has one broker, or several that share its work
    paris = ["p1"]
    london = ["l1", "l2"]
    tokyo = ["t1"]

    [addresses]  # the address of each broker; `gapless up` needs none
    p1 = "10.0.0.1:7400"
    l1 = "10.0.0.2:7400"
    l2 = "10.0.0.3:7400"
    t1 = "10.0.0.4:7400"

    [parameters]  # of all brokers
    retention_s = "2h"

Or a short form, for overlays on one computer. Cells are c1, c2, …, each with one broker, b1 in c1:

- ``line:N``: N cells in a row
- ``star:N``: c1 in the centre, N - 1 cells around it
- ``tree:FxD``: D levels, c1 at the top, and F cells below every cell that is not of the last level;
  so ``tree:2x3`` has 1 + 2 + 4 cells

An additional number is the number of brokers in every cell: ``line:3x2``, ``star:5x2``,
``tree:2x3x2``. The brokers of such a cell have its number and a letter: b1a and b1b are in c1, b2a
and b2b in c2.

Every broker has a directory of its name, so a name that cannot name a directory is refused here.
:class:`Topology` refuses names that the protocols cannot use.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from gapless.core.address import Address
from gapless.core.errors import AddressError, UsageError, shortened
from gapless.core.ids import BrokerId, CellId
from gapless.core.limits import BROKER_NAME_BYTES_MAX, DELTA_MAX, GENERATED_CELLS_MAX, NAME_MAX
from gapless.core.natural_order import natural_key
from gapless.overlay.neighbourhood import Topology
from gapless.runtime.parameter_values import ParameterValue, parameter_values
from gapless.runtime.toml import read_toml, shown_value, toml_text

__all__ = [
    "BROKERS_MAX",
    "OverlayConfig",
    "generate",
    "is_overlay_file",
    "load_overlay",
    "overlay_of",
    "read_address",
    "single",
]

BROKERS_MAX: Final = len(string.ascii_lowercase)
"""Brokers of a cell of a generated overlay: each is named by a letter."""

_WORDS: Final = re.compile(
    r"""(?P<shape>line|star) : (?P<cells>\d{1,6}) (?:x (?P<brokers>\d{1,6}))?
    | tree : (?P<fan_out>\d{1,6}) x (?P<depth>\d{1,6}) (?:x (?P<each>\d{1,6}))?""",
    re.ASCII | re.VERBOSE,
)


class OverlayConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A tree of cells and the addresses of its brokers."""

    name: str = "gapless"
    delta: int = 1
    topology: Topology
    addresses: dict[BrokerId, Address] = {}
    parameters: dict[str, bool | int] = {}
    """Parameters of all brokers. The file of a broker may override them."""

    def __post_init__(self) -> None:
        """Refuse what no broker could start with, before any broker is started."""
        if not 0 <= self.delta <= DELTA_MAX:
            raise UsageError(f"delta is {shown_value(self.delta)}, and must be 0 to {DELTA_MAX}")
        for cell in self.topology.cells:
            for name in (cell.name, *cell.brokers):
                _check_name(name)

    def cell_of(self, broker: BrokerId) -> CellId | None:
        """Return the cell of a broker, or None if there is no such broker."""
        found = (cell.name for cell in self.topology.cells if broker in cell.brokers)
        return next(found, None)

    @property
    def brokers(self) -> list[tuple[BrokerId, CellId]]:
        """Every broker with its cell, in natural order: b10 after b2."""
        found = ((broker, cell.name) for cell in self.topology.cells for broker in cell.brokers)
        return sorted(found, key=lambda each: natural_key(each[0]))

    def topology_with_addresses(self) -> Topology:
        """Return the topology with the addresses that other brokers can dial, as far as known."""
        return self.topology.with_addresses(
            {
                name: str(address)
                for name, address in self.addresses.items()
                if address.is_reachable and len(str(address)) <= NAME_MAX
            }
        )

    def to_toml(self) -> str:
        """Return the overlay as the text of a file."""
        edges = {
            tuple(sorted((cell.name, neighbour)))
            for cell in self.topology.cells
            for neighbour in cell.neighbours
        }
        return toml_text(
            {
                "overlay": self.name,
                "delta": self.delta,
                "edges": [list(edge) for edge in sorted(edges, key=_counted_edge)],
                "cells": {cell.name: list(cell.brokers) for cell in self.topology.cells},
                "addresses": {name: str(each) for name, each in self.addresses.items()},
                "parameters": self.parameters,
            }
        )


def _check_name(name: str) -> None:
    """Refuse a name that is a path or is not printable, because it names a directory."""
    if name in {".", ".."} or not name.isprintable() or "/" in name or "\\" in name:
        raise UsageError(
            f"{shortened(name)!r} is no name of a cell or a broker: it must be a directory name, "
            "without /, \\ and unprintable characters, and neither . nor .."
        )
    if len(name.encode()) > BROKER_NAME_BYTES_MAX:
        raise UsageError(
            f"the name {shortened(name)!r} has {len(name.encode()):,} bytes; {BROKER_NAME_BYTES_MAX} are "
            "the maximum of a directory name"
        )


def _counted_edge(edge: tuple[str, ...]) -> tuple[tuple[tuple[str, int], ...], ...]:
    return tuple(map(natural_key, edge))


class _OverlayFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of the file."""

    cells: dict[str, list[str]]
    overlay: str = "gapless"
    delta: int = 1
    edges: list[tuple[str, str]] = []
    addresses: dict[str, str] = {}
    parameters: dict[str, ParameterValue] = {}


def load_overlay(path: Path) -> OverlayConfig:
    """Read an overlay's file."""
    found = read_toml(path, _OverlayFile)
    try:
        addresses = {
            name: read_address(f"addresses.{name}", text) for name, text in found.addresses.items()
        }
        overlay = OverlayConfig(
            name=found.overlay,
            delta=found.delta,
            topology=Topology.of(found.cells, found.edges),
            addresses=addresses,
            parameters=_parameters(found),
        )
        _check_addresses(overlay)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return overlay


def read_address(key: str, text: str) -> Address:
    """Return the address of a key; an error names the key, the value and the allowed values.

    >>> read_address("listen", "127.0.0.1:99999")
    Traceback (most recent call last):
    gapless.core.errors.UsageError: listen: '127.0.0.1:99999' is not an address: write host:port, such as 127.0.0.1:7400
    """
    try:
        return Address.parse(text)
    except AddressError as error:
        raise UsageError(f"{key}: {error}") from None


def _parameters(found: _OverlayFile) -> dict[str, bool | int]:
    if "delta" in found.parameters:
        raise UsageError("parameters contains delta: write it as the key delta of the file")
    return parameter_values(found.parameters)


def _check_addresses(overlay: OverlayConfig) -> None:
    for name in overlay.addresses:
        if overlay.cell_of(name) is None:
            raise UsageError(f"addresses contains {name}, which is not a broker of any cell")


def overlay_of(text: str, *, delta: int | None = None) -> OverlayConfig:
    """Return the overlay of a short form or a file name, perhaps with another δ."""
    found = load_overlay(Path(text)) if is_overlay_file(text) else generate(text)
    return found if delta is None else msgspec.structs.replace(found, delta=delta)


def is_overlay_file(text: str) -> bool:
    """Whether a text names a file and is no short form."""
    return text.endswith(".toml") or "/" in text


def generate(text: str) -> OverlayConfig:
    """Return the overlay of a short form.

    >>> [cell.neighbours for cell in generate("star:4").topology.cells]
    [('c2', 'c3', 'c4'), ('c1',), ('c1',), ('c1',)]
    >>> [cell.brokers for cell in generate("line:2x2").topology.cells]
    [('b1a', 'b1b'), ('b2a', 'b2b')]
    """
    found = _WORDS.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r} is no overlay: write line:3, star:5, tree:2x3, the same with the number of "
            "brokers in every cell (line:3x2, star:5x2, tree:2x3x2), or the name of a .toml file"
        )
    if found["shape"]:
        count = int(found["cells"])
        _check_count(count, text)
        parents = [0 if found["shape"] == "star" else child - 1 for child in range(1, count)]
    else:
        parents = _tree(int(found["fan_out"]), int(found["depth"]), text)
    brokers = int(found["brokers"] or found["each"] or 1)
    if not 1 <= brokers <= BROKERS_MAX:
        raise UsageError(f"{text!r} must have 1 to {BROKERS_MAX} brokers in a cell")
    _check_count((len(parents) + 1) * brokers, text, "brokers")
    return _grown(parents, brokers)


def single(broker: BrokerId = "b1", cell: CellId = "c1") -> OverlayConfig:
    """Return an overlay of one broker."""
    return OverlayConfig(topology=Topology.of({cell: [broker]}, []))


def _tree(fan_out: int, depth: int, text: str) -> list[int]:
    """Return the parent of every cell but the first, level by level."""
    parents: list[int] = []
    level: Iterable[int] = [0]
    if fan_out < 1 or depth < 1:
        _check_count(0, text)
    for _ in range(depth - 1):
        first = len(parents) + 1
        parents += [parent for parent in level for _ in range(fan_out)]
        _check_count(len(parents) + 1, text)
        level = range(first, len(parents) + 1)
    return parents


def _check_count(count: int, text: str, what: str = "cells") -> None:
    if not 1 <= count <= GENERATED_CELLS_MAX:
        raise UsageError(f"{text!r} must have 1 to {GENERATED_CELLS_MAX:,} {what}")


def _grown(parents: list[int], brokers: int) -> OverlayConfig:
    """Return the tree in which every cell is a neighbour of its parent."""
    letters = string.ascii_lowercase[:brokers] if brokers > 1 else [""]
    cells = {
        f"c{number}": [f"b{number}{letter}" for letter in letters]
        for number in range(1, len(parents) + 2)
    }
    edges = [(f"c{parent + 1}", f"c{child}") for child, parent in enumerate(parents, start=2)]
    return OverlayConfig(topology=Topology.of(cells, edges))
