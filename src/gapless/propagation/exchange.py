"""The exchange of tables with peers (R15, R18 to R21).

The other modules of :mod:`gapless.propagation` are passive; this one has sessions and timers. It
requests the tables of each edge from the sources (:mod:`.sources`). It sends changes in batches
(:mod:`.batch`) to the peers that requested them in the current session. A lost change is detected by the next
heartbeat and requested again.

When the neighbourhood changes, edges are added and removed with their tables. The out-tables then
describe other sets of SHBs in every direction, so they get new ids and are sent in full (R13).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from gapless.content import Conjunction
from gapless.content.filter import Filter
from gapless.content.merging import merge
from gapless.core.context import Context
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId, VirtualTime
from gapless.core.parameters import microseconds
from gapless.messages.overlay import FIRST_SHAPE, Announce, TableState
from gapless.messages.propagation import TableDelta, TableFull, TableRequest, TableStop
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree, TreeChange
from gapless.propagation import Edge, LeafTable, TableSender, TableStore, TransferOutcome
from gapless.propagation.batch import ChangeBatch
from gapless.propagation.sources import TableSources

__all__ = ["TableExchange"]


class TableListener(Protocol):
    """Callback for changes of tables."""

    def tables_changed(self) -> None:
        """A table of another broker has changed, and with it perhaps a claim."""


class TableExchange:
    """The tables of one broker: the held ones, its leaf table and its out-tables."""

    def __init__(
        self,
        context: Context,
        tree: Tree,
        peers: Peers,
        listener: TableListener,
    ) -> None:
        parameters, neighbourhood = context.parameters, tree.neighbourhood
        self._context = context
        self._tree = tree
        self._peers = peers
        self._listener = listener
        identity = context.identity
        self._sources = TableSources(identity.broker, tree, peers)
        self.table_store = TableStore(identity, parameters, tree)
        self.table_store.set_shape_version(neighbourhood.shape_version(identity.cell))
        self.leaf = LeafTable(
            identity.shb,
            identity.incarnation,
            budget=parameters.table_conjunctions_max,
            merge=merge,
            log_max=parameters.delta_log_max,
            bytes_max=parameters.frame_bytes_max,
        )
        for cell in neighbourhood.neighbours:
            self.table_store.add_cell(cell, neighbourhood.shape_version(cell))
        for peer in neighbourhood.peers:
            self.table_store.add_leaf(ShbId(peer, identity.cell))
        self._requesters: dict[str, dict[BrokerId, None]] = {}
        """By direction or leaf: the peers that requested the table in the current session."""
        self._requested_at: dict[BrokerId, int] = {}
        """The time of the last request to each source."""
        self._leaf_batch = ChangeBatch(context, parameters.change_batch_ms, self._flush_leaf)
        self._table_batch = ChangeBatch(context, parameters.table_flush_ms, self._flush)

    def start(self) -> None:
        """Publish the new incarnation and make the own leaf the first source."""
        me = self._context.identity.broker
        self._flush_leaf()
        self._take_source(self.table_store.edges[str(self._context.identity.shb)], me)
        self._context.call_later(
            microseconds(s=self._context.parameters.inactive_after_s), self._drop_stale
        )

    # --- changes of the neighbourhood (R13) ----------------------------------------------------

    def reshape(self, change: TreeChange) -> None:
        """Add and remove edges.

        The tables of a removed edge become stale tables of the edge behind which that cell is now;
        if there is none, they are deleted. A new edge that stands for a removed one is settled as
        that one was, because the same cells are behind both. If a new neighbour was behind another
        one before, the tables of that other one no longer prove locations. If operations were
        missed or undone, all edges of another epoch are unsettled (RS-37, section "SHIFT").
        """
        neighbourhood = change.new
        table_store, own = self.table_store, self._context.identity.cell
        table_store.set_shape_version(neighbourhood.shape_version(own))
        for cell in neighbourhood.neighbours:
            version = neighbourhood.shape_version(cell)
            if cell not in table_store.edges:
                table_store.add_cell(cell, version if change.forgets_everything else FIRST_SHAPE)
            elif cell in change.narrowed:
                table_store.edges[cell].distrust_before(version)
            elif change.forgets_everything and cell in change.retouched:
                table_store.edges[cell].distrust_before(version)
                table_store.edges[cell].unsettle()
        for peer in neighbourhood.peers:
            if str(ShbId(peer, own)) not in table_store.edges:
                table_store.add_leaf(ShbId(peer, own))
        self._remove_edges(change)
        self._forget_requesters()
        self._plan_flush()

    def _remove_edges(self, change: TreeChange) -> None:
        """Remove the edges to cells and leaves that are no longer next to this broker."""
        old, neighbourhood = change.old, change.new
        for cell in old.neighbours:
            if cell not in neighbourhood.neighbours:
                path = neighbourhood.extended_path(cell)
                heir = path[0] if path else None
                same = heir not in old.neighbours and change.is_one_operation
                self.table_store.remove(cell, heir, self._context.now, same=same)
        for peer in old.peers:
            if peer not in neighbourhood.peers:
                self.table_store.remove(str(ShbId(peer, self._context.identity.cell)))

    def _forget_requesters(self) -> None:
        """Remove requesters that are in another direction now; they will request its table."""
        neighbourhood = self._tree.neighbourhood
        for direction, requesters in self._requesters.items():
            for peer in [*requesters]:
                cell = neighbourhood.cell_of(peer)
                towards = None if cell is None else neighbourhood.direction(cell)
                if direction != str(self.leaf.shb) and direction != towards:
                    del requesters[peer]

    # --- the leaf ------------------------------------------------------------------------------

    @property
    def time(self) -> VirtualTime:
        """The virtual time of the leaf table's last version."""
        return self.leaf.time

    @property
    def roots(self) -> frozenset[Conjunction]:
        """The conjunctions that cover all others of the leaf."""
        return self.leaf.roots

    def own(self, owner: int, conjunctions: Iterable[Conjunction]) -> VirtualTime:
        """Add an owner of conjunctions; return its virtual start time (R16)."""
        start = self.leaf.own(owner, conjunctions)
        self._plan_leaf()
        return start

    def disown(self, owner: int) -> None:
        """Remove an owner."""
        self.leaf.disown(owner)
        self._plan_leaf()

    def _plan_leaf(self) -> None:
        if self.leaf.dirty:
            self._leaf_batch.plan()

    def _flush_leaf(self) -> None:
        delta = self.leaf.flush()
        if delta is not None:
            self._send(str(self.leaf.shb), delta)

    # --- sources (R20) -------------------------------------------------------------------------

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        """Drop the peer's requests of its former session; it may replace other sources now."""
        for requesters in self._requesters.values():
            requesters.pop(peer, None)
        edge = self._edge_of(peer, cell)
        if edge is not None and edge.leaf is not None:
            self._take_source(edge, peer)
        elif edge is not None:
            self._review_sources(edge)

    def session_closed(self, peer: BrokerId) -> None:
        """Mark the tables of an unreachable peer as stale (R21) and choose other sources."""
        for requesters in self._requesters.values():
            requesters.pop(peer, None)
        for edge in self.table_store.edges.values():
            edge.mark_stale(peer, self._context.now)
        self._review_sources_towards(peer)
        self._plan_flush()

    def set_fed(self, peer: BrokerId, *, fed: bool) -> None:
        """Note whether this broker feeds a broker of another cell, which makes it a source."""
        self._sources.set_fed(peer, fed=fed)
        self._review_sources_towards(peer)

    def reshaped(self) -> None:
        """Choose the sources of all edges to cells again; others are in another direction now."""
        neighbourhood = self._tree.neighbourhood
        for cell in neighbourhood.neighbours:
            edge = self.table_store.edges[cell]
            for sender, home in edge.senders():
                if home is None or neighbourhood.direction(home) != cell:
                    edge.merge_stale(sender, self._context.now)
            self._review_sources(edge)

    def _review_sources_towards(self, peer: BrokerId) -> None:
        """Choose the sources again for the direction of a broker of another cell."""
        cell = self._tree.neighbourhood.cell_of(peer)
        edge = None if cell is None else self._edge_of(peer, cell)
        if edge is not None and edge.leaf is None:
            self._review_sources(edge)

    def _review_sources(self, edge: Edge) -> None:
        """Request tables from new sources; send TableStop to those no longer needed."""
        current = edge.sources()
        wanted = self._sources.wanted(edge.name, current)
        for peer in wanted:
            if peer not in current:
                self._take_source(edge, peer)
        for peer in current:
            if peer not in wanted:
                edge.mark_stale(peer, self._context.now)
                self._context.send(peer, TableStop(self._direction(edge)))
                self._plan_flush()

    def _edge_of(self, peer: BrokerId, cell: CellId) -> Edge | None:
        """Return the edge of a peer's tables: that of its leaf, or that of its direction."""
        if cell == self._context.identity.cell:
            return self.table_store.edges.get(str(ShbId(peer, cell)))
        return self.table_store.edges.get(self._tree.neighbourhood.direction(cell) or "")

    def _take_source(self, edge: Edge, peer: BrokerId) -> None:
        cell = self._tree.neighbourhood.cell_of(peer)
        assert cell is not None
        request = edge.source(
            peer, cell, self._incarnation_of(peer), self._direction(edge), self._context.now
        )
        self._requested_at[peer] = self._context.now
        self._context.send(peer, request)

    def _incarnation_of(self, peer: BrokerId) -> int:
        identity = self._context.identity
        return identity.incarnation if peer == identity.broker else self._peers.incarnation_of(peer)

    def _direction(self, edge: Edge) -> str:
        """Return the direction to request: the leaf, or this broker's cell."""
        return self._context.identity.cell if edge.leaf is None else edge.name

    # --- messages ------------------------------------------------------------------------------

    @property
    def handlers(self) -> dict[type, Callable[[BrokerId, Any], None]]:
        """The messages of propagation, each with its handler."""
        return {
            TableFull: self._take,
            TableDelta: self._take,
            TableRequest: self._table_requested,
            TableStop: self._table_stopped,
        }

    def _table_stopped(self, peer: BrokerId, stop: TableStop) -> None:
        sender = self._sender(stop.direction, peer)
        if sender is not None:
            self._requesters.get(sender.table.name.direction, {}).pop(peer, None)

    def _sender(self, direction: str, peer: BrokerId) -> TableSender | None:
        """Return the table that a peer requests: the leaf table, or that of its direction."""
        if direction == str(self.leaf.shb):
            return self.leaf.sender
        cell = self._tree.neighbourhood.cell_of(peer)
        towards = None if cell is None else self._tree.neighbourhood.direction(cell)
        out = None if towards is None else self.table_store.out.get(towards)
        return None if out is None else out.sender

    def _table_requested(self, peer: BrokerId, request: TableRequest) -> None:
        sender = self._sender(request.direction, peer)
        if sender is None:
            self._context.mark("unknown table requested")
            return
        self._requesters.setdefault(sender.table.name.direction, {})[peer] = None
        for message in sender.answer(request):
            self._context.send(peer, message)

    def _take(self, peer: BrokerId, message: TableFull | TableDelta) -> None:
        cell = self._tree.neighbourhood.cell_of(peer)
        edge = None if cell is None else self._edge_of(peer, cell)
        if edge is not None:
            self._note(edge, peer, edge.receive(peer, message))

    def _note(self, edge: Edge, peer: BrokerId, outcome: TransferOutcome) -> None:
        if outcome is TransferOutcome.REQUEST:
            self._take_source(edge, peer)
        elif outcome is TransferOutcome.APPLIED:
            self.table_store.drop_stale(self._context.now)
            self._plan_flush()
            self._listener.tables_changed()

    def states(self, peer: BrokerId) -> tuple[TableState, ...]:
        """Return the states of the tables that are sent to a peer, for the heartbeat (R19)."""
        found = []
        for direction, requesters in self._requesters.items():
            if peer in requesters:
                sender = self._sender(direction, peer)
                if sender is not None:
                    found.append(sender.state())
        return tuple(found)

    def compare_states(self, peer: BrokerId, states: tuple[TableState, ...]) -> None:
        """Compare the copies of a peer's tables with the states in its heartbeat."""
        cell = self._tree.neighbourhood.cell_of(peer)
        edge = None if cell is None else self._edge_of(peer, cell)
        if edge is None or peer not in edge.sources():
            return
        if not states and self._has_had_time(peer):
            self._take_source(edge, peer)  # the request was lost
        for state in states:
            self._note(edge, peer, edge.compare_state(peer, state))

    def _has_had_time(self, peer: BrokerId) -> bool:
        """Return whether a source has had time to receive the last request.

        It sends its first heartbeat of a session before that; a second request would make it send
        the table twice.
        """
        interval = microseconds(ms=2 * self._context.parameters.heartbeat_ms)
        return self._context.now - self._requested_at.get(peer, 0) >= interval

    # --- out-tables ----------------------------------------------------------------------------

    def announced(
        self, pubend: PubendId, version: int, advertisement: Filter, direction: CellId | None
    ) -> None:
        """Add a pubend of a direction, or of the own cell if that is None."""
        self.table_store.announce(pubend, version, advertisement, direction or "")
        self._plan_flush()

    def announcement_received(self, peer: BrokerId, announce: Announce) -> None:
        """Note that a peer knows a pubend; for a peer of the own cell its leaf knows it too."""
        cell = self._tree.neighbourhood.cell_of(peer)
        if cell is None or announce.tombstone:
            return
        edge = self._edge_of(peer, cell)
        if edge is not None and edge.note_known(peer, announce.pubend, announce.version):
            self._plan_flush()

    def withdrawn(self, pubend: PubendId) -> None:
        """Remove a pubend that was ended."""
        self.table_store.withdraw(pubend)
        self._plan_flush()

    def _plan_flush(self) -> None:
        self._table_batch.plan()

    def _flush(self) -> None:
        for direction, delta in self.table_store.flush():
            self._send(direction, delta)

    def _send(self, direction: str, delta: TableDelta) -> None:
        for peer in self._requesters.get(direction, ()):
            self._context.send(peer, delta)

    def _drop_stale(self) -> None:
        self._context.call_later(
            microseconds(s=self._context.parameters.inactive_after_s), self._drop_stale
        )
        self.table_store.drop_stale(self._context.now)
        self._plan_flush()
