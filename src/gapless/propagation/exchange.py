"""Tables on their way: whom this broker asks for them, and whom it tells (R15, R18 to R21).

The parts in :mod:`gapless.propagation` are passive; here they get sessions and time. Each edge has
sources (:mod:`.sources`), who are asked for their tables. What changes is sent to those who asked in
the present session, batched; what was lost shows in the next heartbeat and is asked for.

When the tree around changes, edges appear and vanish with their tables. What this broker says then
means something else in every direction, so it is said anew and whole, under a new name (R13).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gapless.content import Conjunction
from gapless.content.filter import Filter
from gapless.content.merging import merge
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId, VirtualTime
from gapless.core.machine import Context
from gapless.core.parameters import us
from gapless.messages.overlay import TableState
from gapless.messages.propagation import TableDelta, TableFull, TableStop, TableWant
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.propagation import Edge, Holdings, LeafTable, Outcome, TableSender
from gapless.propagation.sources import Sources

__all__ = ["Tables"]


class _Around:
    """The neighbourhood as propagation asks for it."""

    def __init__(self, neighbourhood: Neighbourhood) -> None:
        self.neighbourhood = neighbourhood

    @property
    def version(self) -> int:
        return self.neighbourhood.version

    def path_to(self, cell: CellId) -> tuple[CellId, ...] | None:
        return self.neighbourhood.find_path(cell)


class Tables:
    """The tables of one broker: those it holds, its own leaf table, and what it tells others."""

    def __init__(
        self,
        context: Context,
        neighbourhood: Neighbourhood,
        life_of: Callable[[BrokerId], int],
        sources: Sources,
        changed: Callable[[], None],
    ) -> None:
        parameters = context.parameters
        self._context = context
        self._neighbourhood = neighbourhood
        self._life_of = life_of
        self._sources = sources
        self._changed = changed
        identity = context.identity
        self._around = _Around(neighbourhood)
        self.holdings = Holdings(identity, parameters, self._around)
        self.holdings.take_shape(neighbourhood.shape_version(identity.cell))
        self.leaf = LeafTable(
            identity.shb,
            identity.life,
            budget=parameters.table_conjunctions_max,
            merge=merge,
            log_max=parameters.delta_log_max,
            bytes_max=parameters.frame_bytes_max,
        )
        for cell in neighbourhood.neighbours:
            self.holdings.add_cell(cell, neighbourhood.shape_version(cell))
        for peer in neighbourhood.peers:
            self.holdings.add_leaf(ShbId(peer, identity.cell))
        self._askers: dict[str, dict[BrokerId, None]] = {}
        """By direction, or leaf, who holds a copy of this broker's table in the present session."""
        self._asked_at: dict[BrokerId, int] = {}
        """When each source was asked last."""
        self._leaf_due = False
        self._flush_due = False

    def begin(self) -> None:
        """Say the new life, and take the own leaf as the first source."""
        me = self._context.identity.broker
        self._flush_leaf()
        self._take_source(self.holdings.edges[str(self._context.identity.shb)], me)
        self._context.after(us(s=self._context.parameters.park_after_s), self._tidy)

    # --- the tree around (R13) -----------------------------------------------------------------

    def reshape(self, neighbourhood: Neighbourhood, *, gained: bool) -> None:
        """Add and remove edges.

        What came over a removed edge stays as old tables of the edge behind which that cell lies
        now; if there is none, it is deleted. If a neighbour was ``gained`` that lay behind another
        one before, what that one has said so far no longer shows who is behind it.
        """
        old, self._neighbourhood = self._neighbourhood, neighbourhood
        self._around.neighbourhood = neighbourhood
        self._sources.reshape(neighbourhood)
        holdings, own = self.holdings, self._context.identity.cell
        holdings.take_shape(neighbourhood.shape_version(own))
        for cell in neighbourhood.neighbours:
            version = neighbourhood.shape_version(cell)
            if cell not in holdings.edges:
                holdings.add_cell(cell)
            elif gained and version > old.shape_version(cell):
                holdings.edges[cell].doubt(version)
        for peer in neighbourhood.peers:
            if str(ShbId(peer, own)) not in holdings.edges:
                holdings.add_leaf(ShbId(peer, own))
        self._remove_edges(old)
        self._forget_askers()
        self._plan_flush()

    def _remove_edges(self, old: Neighbourhood) -> None:
        """Remove the edges to cells and leaves that are no longer next to this broker."""
        around = self._neighbourhood
        for cell in old.neighbours:
            if cell not in around.neighbours:
                way = around.way(cell)
                self.holdings.remove(cell, way[0] if way else None, self._context.now)
        for peer in old.peers:
            if peer not in around.peers:
                self.holdings.remove(str(ShbId(peer, self._context.identity.cell)))

    def _forget_askers(self) -> None:
        """Tell a table no more to who lies in another direction now; it will ask for the right one."""
        around = self._neighbourhood
        for direction, asked in self._askers.items():
            for peer in [*asked]:
                cell = around.cell_of(peer)
                towards = None if cell is None else around.direction(cell)
                if direction != str(self.leaf.shb) and direction != towards:
                    del asked[peer]

    # --- the leaf ------------------------------------------------------------------------------

    @property
    def time(self) -> VirtualTime:
        """The virtual time of what the leaf has said."""
        return self.leaf.time

    @property
    def roots(self) -> frozenset[Conjunction]:
        """What covers all that the leaf wants."""
        return self.leaf.roots

    def own(self, owner: int, conjunctions: Iterable[Conjunction]) -> VirtualTime:
        """Let an owner want conjunctions; return its virtual start time (R16)."""
        start = self.leaf.own(owner, conjunctions)
        self._plan_leaf()
        return start

    def disown(self, owner: int) -> None:
        """Let an owner want nothing more."""
        self.leaf.disown(owner)
        self._plan_leaf()

    def _plan_leaf(self) -> None:
        if not self._leaf_due and self.leaf.dirty:
            self._leaf_due = True
            batch = max(1, us(ms=self._context.parameters.change_batch_ms))
            self._context.after(batch, self._flush_leaf)

    def _flush_leaf(self) -> None:
        self._leaf_due = False
        delta = self.leaf.flush()
        if delta is not None:
            self._tell(str(self.leaf.shb), delta)

    # --- sources (R20) -------------------------------------------------------------------------

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        """A peer has forgotten what it asked for; it may be a source now, perhaps instead of others."""
        for asked in self._askers.values():
            asked.pop(peer, None)
        edge = self._edge_of(peer, cell)
        if edge is not None and edge.leaf is not None:
            self._take_source(edge, peer)
        elif edge is not None:
            self._review_sources(edge)

    def session_closed(self, peer: BrokerId) -> None:
        """Tables of a peer that cannot be reached are old (R21); others speak in its place."""
        for asked in self._askers.values():
            asked.pop(peer, None)
        for edge in self.holdings.edges.values():
            edge.lapse(peer, self._context.now)
        self._review_sources_around(peer)
        self._plan_flush()

    def set_fed(self, peer: BrokerId, *, fed: bool) -> None:
        """Note whether a broker of another cell is fed here: then it is a source."""
        self._sources.set_fed(peer, fed=fed)
        self._review_sources_around(peer)

    def find_sources(self) -> None:
        """Take the sources that all edges to cells should have."""
        for cell in self._neighbourhood.neighbours:
            self._review_sources(self.holdings.edges[cell])

    def _review_sources_around(self, peer: BrokerId) -> None:
        """See who should be asked in the direction of a broker of another cell."""
        cell = self._neighbourhood.cell_of(peer)
        edge = None if cell is None else self._edge_of(peer, cell)
        if edge is not None and edge.leaf is None:
            self._review_sources(edge)

    def _review_sources(self, edge: Edge) -> None:
        """Ask who should be asked and is not; let go who is not needed any more."""
        current = edge.sources()
        wanted = self._sources.wanted(edge.name, current)
        for peer in wanted:
            if peer not in current:
                self._take_source(edge, peer)
        for peer in current:
            if peer not in wanted:
                edge.lapse(peer, self._context.now)
                self._context.post(peer, TableStop(self._direction(edge)))
                self._plan_flush()

    def _edge_of(self, peer: BrokerId, cell: CellId) -> Edge | None:
        """Return the edge over which a peer's tables come: its leaf's, or that of its direction."""
        if cell == self._context.identity.cell:
            return self.holdings.edges.get(str(ShbId(peer, cell)))
        return self.holdings.edges.get(self._neighbourhood.direction(cell) or "")

    def _take_source(self, edge: Edge, peer: BrokerId) -> None:
        cell = self._neighbourhood.cell_of(peer)
        assert cell is not None
        want = edge.source(
            peer, cell, self._life_of(peer), self._direction(edge), self._context.now
        )
        self._asked_at[peer] = self._context.now
        self._context.post(peer, want)

    def _direction(self, edge: Edge) -> str:
        """Return what to ask a source for: its leaf, or its table for this broker's direction."""
        return self._context.identity.cell if edge.leaf is None else edge.name

    # --- messages ------------------------------------------------------------------------------

    def received(self, peer: BrokerId, message: Any) -> bool:
        """Take a message of propagation; False for others."""
        if isinstance(message, TableFull | TableDelta):
            self._take(peer, message)
        elif isinstance(message, TableWant):
            self._wanted(peer, message)
        elif isinstance(message, TableStop):
            sender = self._sender(message.direction, peer)
            if sender is not None:
                self._askers.get(sender.table.name.direction, {}).pop(peer, None)
        else:
            return False
        return True

    def _sender(self, direction: str, peer: BrokerId) -> TableSender | None:
        """Return the table that a peer asks for: the leaf's, or that of the peer's direction."""
        if direction == str(self.leaf.shb):
            return self.leaf.sender
        cell = self._neighbourhood.cell_of(peer)
        towards = None if cell is None else self._neighbourhood.direction(cell)
        out = None if towards is None else self.holdings.out.get(towards)
        return None if out is None else out.sender

    def _wanted(self, peer: BrokerId, want: TableWant) -> None:
        sender = self._sender(want.direction, peer)
        if sender is None:
            self._context.mark("table wanted that is not here")
            return
        self._askers.setdefault(sender.table.name.direction, {})[peer] = None
        for message in sender.answer(want):
            self._context.post(peer, message)

    def _take(self, peer: BrokerId, message: TableFull | TableDelta) -> None:
        cell = self._neighbourhood.cell_of(peer)
        edge = None if cell is None else self._edge_of(peer, cell)
        if edge is not None:
            self._note(edge, peer, edge.receive(peer, message))

    def _note(self, edge: Edge, peer: BrokerId, outcome: Outcome) -> None:
        if outcome is Outcome.WANT:
            self._take_source(edge, peer)
        elif outcome is Outcome.APPLIED:
            self.holdings.tidy(self._context.now)
            self._plan_flush()
            self._changed()

    def states(self, peer: BrokerId) -> tuple[TableState, ...]:
        """Return which tables are sent to a peer, for the heartbeat (R19)."""
        found = []
        for direction, asked in self._askers.items():
            if peer in asked:
                sender = self._sender(direction, peer)
                if sender is not None:
                    found.append(sender.state())
        return tuple(found)

    def heard(self, peer: BrokerId, states: tuple[TableState, ...]) -> None:
        """Compare the copies of a peer's tables with what its heartbeat says."""
        cell = self._neighbourhood.cell_of(peer)
        edge = None if cell is None else self._edge_of(peer, cell)
        if edge is None or peer not in edge.sources():
            return
        if not states and self._has_had_time(peer):
            self._take_source(edge, peer)  # the asking itself was lost
        for state in states:
            self._note(edge, peer, edge.told(peer, state))

    def _has_had_time(self, peer: BrokerId) -> bool:
        """Say whether a source has had time to hear that it was asked.

        The first that it says in a session it says before that; asked again, it would send again.
        """
        patience = us(ms=2 * self._context.parameters.heartbeat_ms)
        return self._context.now - self._asked_at.get(peer, 0) >= patience

    # --- out-tables ----------------------------------------------------------------------------

    def announced(
        self, pubend: PubendId, version: int, advertisement: Filter, direction: CellId | None
    ) -> None:
        """A pubend lies in a direction, None at home."""
        self.holdings.announce(pubend, version, advertisement, direction or "")
        self._plan_flush()

    def peer_knows(self, peer: BrokerId, cell: CellId, pubend: PubendId, version: int) -> None:
        """A broker has said that it knows a pubend; if it is of the own cell, so does its host."""
        edge = self._edge_of(peer, cell)
        if edge is not None and edge.hear(peer, pubend, version):
            self._plan_flush()

    def withdrawn(self, pubend: PubendId) -> None:
        """A pubend is gone."""
        self.holdings.withdraw(pubend)
        self._plan_flush()

    def _plan_flush(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            wait = max(1, us(ms=self._context.parameters.table_flush_ms))
            self._context.after(wait, self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        for direction, delta in self.holdings.flush():
            self._tell(direction, delta)

    def _tell(self, direction: str, delta: TableDelta) -> None:
        for peer in self._askers.get(direction, ()):
            self._context.post(peer, delta)

    def _tidy(self) -> None:
        self._context.after(us(s=self._context.parameters.park_after_s), self._tidy)
        self.holdings.tidy(self._context.now)
        self._plan_flush()
