"""The kinds of faults, and how a seed draws them.

Every round has each kind once, alone, in an order and at locations that the seed draws; and then
two of them at once. Up to δ lost cells in a row are bypassed. Over δ + 1 lost cells there is no
route: streams wait and continue when the cells are back.

A running cell that is cut off from all others is behind a *barrier*: its streams wait. A cell that
is cut off from one side of the tree only is an *island*: if brokers of that side know brokers of
the other side, the cell is fed over the latter. Links can be cut in one direction only: one of
them, those of an island, or all from one side of an edge to the other. A session needs both
directions, so over such an edge both directions wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from random import Random
from typing import Final, NamedTuple, TypeAlias

from gapless.core.ids import BrokerId, CellId
from gapless.core.parameters import DEFAULTS
from gapless.runtime.overlay_config import OverlayConfig
from gapless_lab.chaos.roles import longest_path

__all__ = [
    "ANOTHER_LEFT",
    "ONE_LEFT",
    "ONE_TOO_MANY",
    "SIDE_CUT",
    "Fault",
    "FaultAction",
    "count_kinds",
    "draw_faults",
]

ONE_LEFT: Final = "one left in each cell"
ANOTHER_LEFT: Final = "another one left"
ONE_TOO_MANY: Final = "δ + 1 cells in a row"
SIDE_CUT: Final = "one-way side cut"


class FaultAction(Enum):
    """What is done to brokers."""

    NOTHING = "nothing"
    KILL = "kill -9"
    FREEZE = "SIGSTOP"
    ISOLATE = "cut off from all others"


class Fault(NamedTuple):
    """A fault that heals after a while."""

    kind: str
    text: str
    action: FaultAction
    victims: tuple[BrokerId, ...]
    """The affected brokers."""
    cuts: tuple[tuple[BrokerId, BrokerId], ...]
    """The directions that are cut, as pairs of sender and receiver."""
    hold_s: float
    """Its least duration."""
    flap_s: float = 0.0
    """The interval at which the cut links heal and are cut again meanwhile; 0 if they are not."""


class _Draw:
    """Random choices of locations and times in one overlay."""

    def __init__(self, overlay: OverlayConfig, random: Random, session_timeout_ms: int) -> None:
        self._overlay = overlay
        self._random = random
        self._slowness = session_timeout_ms / DEFAULTS.session_timeout_ms
        """The ratio of the session time-out to the default."""
        self._brokers = {cell.name: cell.brokers for cell in overlay.topology.cells}
        self._survivors: frozenset[BrokerId] = frozenset()
        """The brokers that were left alone in their cells the last time."""

    def broker(self) -> BrokerId:
        return self._random.choice(self.all_brokers())

    def all_brokers(self) -> list[BrokerId]:
        return [broker for broker, _ in self._overlay.brokers]

    def brokers(self, cell: CellId) -> tuple[BrokerId, ...]:
        return self._brokers[cell]

    def hold_s(self) -> float:
        """Return a duration that is mostly longer than failure detection takes."""
        return round(self._random.uniform(1.0, 4.0) * self._slowness, 1)

    def long_s(self) -> float:
        """Return a duration that is always longer than failure detection takes."""
        return self.hold_s() + 2.0 * self._slowness

    def flap_s(self) -> float:
        """Return a duration around the session time-out."""
        return round(self._random.uniform(0.3, 2.5) * self._slowness, 1)

    def neighbours(self) -> tuple[BrokerId, BrokerId]:
        """Return two brokers of cells with an edge between them."""
        cell = self._random.choice(self._overlay.topology.cells)
        other = self._random.choice(cell.neighbours)
        return self._random.choice(cell.brokers), self._random.choice(self._brokers[other])

    def row(self, length: int) -> tuple[CellId, ...]:
        """Return this many cells in a row, with others at both ends if the tree is long enough."""
        path = longest_path(self._overlay)
        inner = path[1:-1] if len(path) >= length + 2 else path[1:]
        first = self._random.randrange(max(1, len(inner) - length + 1))
        return inner[first : first + length]

    def middle(self) -> CellId:
        """Return the cell in the middle, which has publishers and subscribers."""
        path = longest_path(self._overlay)
        return path[len(path) // 2]

    def action(self) -> FaultAction:
        return self._random.choice([FaultAction.KILL, FaultAction.FREEZE, FaultAction.ISOLATE])

    def lost(self, kind: str, cells: tuple[CellId, ...], action: FaultAction) -> Fault:
        """Return the loss of whole cells."""
        victims = tuple(broker for cell in cells for broker in self._brokers[cell])
        inside = set(victims)
        others = [broker for broker, _ in self._overlay.brokers if broker not in inside]
        cuts = _between(victims, others) if action is FaultAction.ISOLATE else ()
        what = "cells" if len(cells) > 1 else "cell"
        text = f"{what} {', '.join(cells)}: {action.value}"
        return Fault(kind, text, action, victims, cuts, self.hold_s())

    def side(self, cell: CellId) -> tuple[BrokerId, ...]:
        """Return the brokers of one side of a cell: all behind one of its neighbours."""
        topology = self._overlay.topology
        neighbours = topology.neighbourhood(cell, len(topology.cells)).neighbours
        return self._behind(cell, self._random.choice(neighbours))

    def sides(self) -> tuple[tuple[BrokerId, ...], tuple[BrokerId, ...]]:
        """Return the brokers of both sides of an edge of the longest path, in random order."""
        path = longest_path(self._overlay)
        first = self._random.randrange(len(path) - 1)
        here, there = path[first : first + 2]
        return self.in_any_order(self._behind(there, here), self._behind(here, there))

    def in_any_order(
        self, some: tuple[BrokerId, ...], others: tuple[BrokerId, ...]
    ) -> tuple[tuple[BrokerId, ...], tuple[BrokerId, ...]]:
        """Return both in random order."""
        return self._random.choice(((some, others), (others, some)))

    def _behind(self, cell: CellId, neighbour: CellId) -> tuple[BrokerId, ...]:
        """Return the brokers that a cell reaches over one of its neighbours, the neighbour's
        included.
        """
        topology = self._overlay.topology
        around = topology.neighbourhood(cell, len(topology.cells))
        return tuple(
            broker
            for each in around.cells[1:]
            if around.path(each.name)[0] == neighbour
            for broker in each.brokers
        )

    def remnant(self) -> tuple[BrokerId, ...]:
        """Return one broker of each cell, if possible not the one of the last time."""
        left = [
            self._random.choice(
                [each for each in brokers if each not in self._survivors] or brokers
            )
            for brokers in self._brokers.values()
        ]
        self._survivors = frozenset(left)
        return tuple(left)


_Links: TypeAlias = tuple[tuple[BrokerId, BrokerId], ...]


def _from_to(some: Sequence[BrokerId], others: Sequence[BrokerId]) -> _Links:
    """Return the links from each of some brokers to each of others."""
    return tuple((one, other) for one in some for other in others)


def _between(some: Sequence[BrokerId], others: Sequence[BrokerId]) -> _Links:
    """Return the links from each of some brokers to each of others, and back."""
    pairs = _from_to(some, others)
    return (*pairs, *(pair[::-1] for pair in pairs))


def _crash(draw: _Draw) -> Fault:
    broker = draw.broker()
    text = f"{FaultAction.KILL.value} {broker}"
    return Fault("crash", text, FaultAction.KILL, (broker,), (), draw.hold_s())


def _freeze(draw: _Draw) -> Fault:
    broker = draw.broker()
    text = f"{FaultAction.FREEZE.value} {broker}"
    return Fault("freeze", text, FaultAction.FREEZE, (broker,), (), draw.long_s())


def _one_way(draw: _Draw) -> Fault:
    source, target = draw.neighbours()
    text = f"no data passes from {source} to {target}, only back"
    return Fault("one-way cut", text, FaultAction.NOTHING, (), ((source, target),), draw.hold_s())


def _cut(draw: _Draw) -> Fault:
    source, target = draw.neighbours()
    text = f"no data passes between {source} and {target}"
    cuts = ((source, target), (target, source))
    return Fault("cut link", text, FaultAction.NOTHING, (), cuts, draw.hold_s())


def _flap(draw: _Draw) -> Fault:
    fault, flap_s = _cut(draw), draw.flap_s()
    text = f"{fault.text}, on and off every {flap_s} s"
    return fault._replace(kind="flapping link", text=text, hold_s=5 * flap_s, flap_s=flap_s)


def _cell(draw: _Draw) -> Fault:
    return draw.lost("lost cell", draw.row(1), draw.action())


def _barrier(draw: _Draw) -> Fault:
    return draw.lost("barrier", draw.row(1), FaultAction.ISOLATE)


def _island(draw: _Draw) -> Fault:
    cell = draw.middle()
    side = draw.side(cell)
    text = f"cell {cell}: cut off from one side, {', '.join(side)}"
    cuts = _between(draw.brokers(cell), side)
    return Fault("island", text, FaultAction.NOTHING, (), cuts, draw.hold_s())


def _one_way_island(draw: _Draw) -> Fault:
    cell = draw.middle()
    sources, targets = draw.in_any_order(draw.brokers(cell), draw.side(cell))
    return _silence("one-way island", sources, targets, draw.hold_s())


def _side_cut(draw: _Draw) -> Fault:
    """Cut the tree in two, in one direction, until the sessions over the edge have timed out."""
    return _silence(SIDE_CUT, *draw.sides(), draw.long_s())


def _silence(
    kind: str, sources: Sequence[BrokerId], targets: Sequence[BrokerId], hold_s: float
) -> Fault:
    """Return the cut of all links from some brokers to others, but not back."""
    text = f"no data passes from {', '.join(sources)} to {', '.join(targets)}, only back"
    return Fault(kind, text, FaultAction.NOTHING, (), _from_to(sources, targets), hold_s)


def _one_left(draw: _Draw) -> Fault:
    left = draw.remnant()
    victims = tuple(broker for broker in draw.all_brokers() if broker not in left)
    text = f"{FaultAction.KILL.value} all but {', '.join(left)}"
    return Fault(ONE_LEFT, text, FaultAction.KILL, victims, (), draw.hold_s())


def _another_left(draw: _Draw) -> Fault:
    """Kill the brokers that were left: a subscription that failed over to one fails over again."""
    return _one_left(draw)._replace(kind=ANOTHER_LEFT)


_Kind: TypeAlias = Callable[[_Draw], Fault]


def _kinds(overlay: OverlayConfig) -> list[_Kind]:
    kinds: list[_Kind] = [_crash, _freeze]
    if any(len(cell.brokers) > 1 for cell in overlay.topology.cells):
        kinds += [_one_left, _another_left]
    if len(overlay.topology.cells) < 2:
        return kinds
    kinds += [_one_way, _side_cut, _cut, _flap]
    if overlay.delta >= 1:
        kinds += [_cell, _barrier]
        if len(longest_path(overlay)) >= 3:  # else there is no other side
            kinds += [_island, _one_way_island]
    return kinds + _rows(overlay)


def _rows(overlay: OverlayConfig) -> list[_Kind]:
    """Return the kinds that lose several cells in a row: δ, which are bypassed, and δ + 1."""
    delta = overlay.delta

    def bypassed(draw: _Draw) -> Fault:
        return draw.lost(f"{delta} cells in a row", draw.row(delta), draw.action())

    def one_too_many(draw: _Draw) -> Fault:
        fault = draw.lost(ONE_TOO_MANY, draw.row(delta + 1), draw.action())
        return fault._replace(hold_s=draw.long_s())  # long enough to observe that streams wait

    kinds: list[_Kind] = []
    if delta >= 2:
        kinds.append(bypassed)
    if len(longest_path(overlay)) >= delta + 2:  # else no other cell is left
        kinds.append(one_too_many)
    return kinds


def count_kinds(overlay: OverlayConfig) -> int:
    """Return after how many faults every kind has occurred once."""
    return len(_kinds(overlay))


def draw_faults(
    overlay: OverlayConfig, random: Random, session_timeout_ms: int = DEFAULTS.session_timeout_ms
) -> Iterator[tuple[Fault, ...]]:
    """Draw faults without end; those in one tuple occur together.

    Their durations grow with the session time-out.
    """
    draw, kinds = _Draw(overlay, random, session_timeout_ms), _kinds(overlay)
    while True:
        random.shuffle(kinds)
        for kind in kinds:
            yield (kind(draw),)
        first, second = random.sample(kinds, 2)
        yield _apart(first(draw), second(draw))


def _apart(first: Fault, second: Fault) -> tuple[Fault, ...]:
    """Return two faults, the second without what the first does already."""
    if set(second.victims) & set(first.victims):
        return (first,)
    cuts = tuple(link for link in second.cuts if link not in first.cuts)
    return first, second._replace(cuts=cuts)
