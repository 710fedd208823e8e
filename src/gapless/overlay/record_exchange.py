"""The exchange of cell records between brokers (RS-4).

Theory of operation
-------------------
A broker that applies records tells its peers, the old and the new ones, in the same step: each peer
gets the records of the cells within Δ of it that have changed, and those of cells that were too far
from it before. What a peer was told in this session is not repeated.

A message may be lost with its session, so the records are compared as well. Hello and Heartbeat
carry a digest over the versions of the records of all cells within Δ of both ends. If it differs,
both ends send the list of versions that they hold, and the end with the newer record pushes it. At
rest the digests are equal, and nothing is sent but these numbers. A digest is computed once per
neighbourhood and cell.

A record is checked before anything reads it. A record of a wrong form is dropped, and so is one that
is no newer than the one held. The others go up to :mod:`gapless.reshape.operations`, which
decides and applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from gapless.core.context import Context
from gapless.core.ids import BrokerId, CellId
from gapless.core.overlay_limits import RECORDS_MAX
from gapless.core.parameters import microseconds
from gapless.messages.overlay import (
    CellRecord,
    RecordList,
    RecordPush,
    RecordWant,
    ShapeVersion,
    Term,
)
from gapless.overlay.cell_records import Records, by_name, versions_of, within, wrong_form
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree

__all__ = ["RecordExchange", "RecordListener"]

T = TypeVar("T")
Version = tuple[Term, ShapeVersion, int]


class RecordListener(Protocol):
    """Is called with records that are newer than those held."""

    def records_received(self, peer: BrokerId, records: tuple[CellRecord, ...]) -> None:
        """Records of the right form were received, which are newer or of unknown cells."""


class _Comparison(NamedTuple):
    """Two digests that differed, and when the list was sent for them."""

    own: int
    theirs: int
    at: int


class RecordExchange:
    """Sends the records that this broker holds, and checks those that it receives."""

    def __init__(
        self, context: Context, tree: Tree, peers: Peers, listener: RecordListener
    ) -> None:
        self._context = context
        self._tree = tree
        self._peers = peers
        self._listener = listener
        self._me = context.identity.broker
        self._radius = context.parameters.neighbourhood_radius
        self._degree_max = context.parameters.cell_degree_max
        self._repeat_us = microseconds(ms=context.parameters.retry_max_ms)
        self._told: dict[BrokerId, dict[CellId, Version]] = {}
        """By peer with a session: the versions that it was told, or has told, in this session."""
        self._compared: dict[BrokerId, _Comparison] = {}
        """By peer with a session whose digest differs: the last list that was sent."""
        self.handlers: Mapping[type, Callable[[BrokerId, Any], None]] = {
            RecordPush: self._pushed,
            RecordList: self._listed,
            RecordWant: self._wanted,
        }

    # --- sending -----------------------------------------------------------------------------

    def push(self, peer: BrokerId, cells: Collection[CellId]) -> None:
        """Send the records that this broker holds of some cells."""
        held = self._held()
        self._send_records(peer, [held[cell] for cell in cells if cell in held], held)

    def want(self, peer: BrokerId, cells: Collection[CellId]) -> None:
        """Ask for the records of some cells."""
        for part in _parts(cells):
            self._context.send(peer, RecordWant(part))

    def tell_step(self, old: Records, new: Records) -> None:
        """Tell all peers of a step, before sessions with brokers that are no peers any more end.

        ``old`` and ``new`` are all records known before and after the step, also of cells that are
        outside the neighbourhood now.
        """
        near: dict[CellId, list[CellRecord]] = {}
        neighbourhood = self._tree.neighbourhood
        for peer in self._peers.open_peers():
            cell = neighbourhood.cell_of(peer)
            if cell is None:
                continue
            if cell not in near:
                near[cell] = list(self._changed_near(cell, old, new))
            told = self._told.get(peer, {})
            unsent = [each for each in near[cell] if _is_newer(each, told.get(each.name))]
            self._send_records(peer, unsent, new)

    def _changed_near(self, cell: CellId, old: Records, new: Records) -> Iterator[CellRecord]:
        """Return the records near a cell that have changed, or that were too far from it before."""
        before = within(old, cell, self._radius)
        for name, record in within(new, cell, self._radius).items():
            if name not in before or before[name].version != record.version:
                yield record

    def _send_records(self, peer: BrokerId, records: list[CellRecord], held: Records) -> None:
        for part in _parts(records):
            self._context.send(peer, RecordPush(part))
        self._note_told(peer, records, held)

    def _note_told(self, peer: BrokerId, records: Iterable[CellRecord], held: Records) -> None:
        """Note what a peer with a session knows, of the cells that this broker holds."""
        if not self._peers.is_open(peer):
            return
        told = self._told.get(peer, {})
        told |= {each.name: each.version for each in records}
        self._told[peer] = {cell: told[cell] for cell in told if cell in held}

    # --- comparing ---------------------------------------------------------------------------

    def differ(self, peer: BrokerId, own: int, theirs: int) -> None:
        """The digests of this broker and of a peer differ: send the list of versions.

        The list is repeated after a while if neither digest has changed.
        """
        last, now = self._compared.get(peer), self._context.now
        is_same = last is not None and (last.own, last.theirs) == (own, theirs)
        if last is not None and is_same and now - last.at < self._repeat_us:
            return
        self._context.mark("records compared")
        self._compared[peer] = _Comparison(own, theirs, now)
        cell = self._tree.neighbourhood.cell_of(peer)
        versions = [] if cell is None else versions_of(self._near(cell).values())
        self._context.send(peer, RecordList(tuple(versions[:RECORDS_MAX])))

    def session_closed(self, peer: BrokerId) -> None:
        """Forget what was told in a session that has ended (R2)."""
        self._told.pop(peer, None)
        self._compared.pop(peer, None)

    # --- receiving ---------------------------------------------------------------------------

    def _pushed(self, peer: BrokerId, message: RecordPush) -> None:
        """Pass on the records that are newer than those held."""
        for record in message.records:
            fault = wrong_form(record, self._degree_max)
            if fault is not None:
                self._context.mark("record of a wrong form")
                return
        held = self._held()
        self._note_told(peer, message.records, held)
        newer = tuple(
            each
            for each in message.records
            if each.name not in held or each.version > held[each.name].version
        )
        if newer:
            self._listener.records_received(peer, newer)

    def _listed(self, peer: BrokerId, message: RecordList) -> None:
        """Push the records that are newer than those of the peer, or that its list does not have."""
        cell = self._tree.neighbourhood.cell_of(peer)
        listed = {each.cell: each.version for each in message.versions}
        near = {} if cell is None else self._near(cell)
        held = self._held()
        wanted = [name for name in held if name in listed or name in near]
        newer = [held[name] for name in wanted if _is_newer(held[name], listed.get(name))]
        self._send_records(peer, newer, held)

    def _wanted(self, peer: BrokerId, message: RecordWant) -> None:
        self.push(peer, dict.fromkeys(message.cells))

    # --- what is held ------------------------------------------------------------------------

    def _held(self) -> Records:
        return by_name(self._tree.neighbourhood.cells)

    def _near(self, cell: CellId) -> Records:
        """Return the records of the cells within Δ of another cell, as far as they are held."""
        return within(self._held(), cell, self._radius)


def _is_newer(record: CellRecord, than: Version | None) -> bool:
    return than is None or record.version > than


def _parts(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """Return items in parts that fit into one message; nearly always there is one part."""
    remaining = tuple(items)
    while remaining:
        yield remaining[:RECORDS_MAX]
        remaining = remaining[RECORDS_MAX:]
