"""Notifications: the object through which components call the components above them.

It is created before the components and bound to them once. Each notification calls its listeners in
a fixed order. The order affects the behaviour, because listeners send messages and set timers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.core.ids import BrokerId, CellId, PubendId, ShbId
from gapless.core.ticks import Tick
from gapless.messages.overlay import CellRecord, Quality, TableState
from gapless.messages.unicast import UnicastBody
from gapless.requests.unicast import UnicastAnswer

if TYPE_CHECKING:
    from gapless.broker.assembly import Components
    from gapless.broker.dispatch import Dispatch

__all__ = ["Notifications"]


class Notifications:
    """Calls the listeners of each notification."""

    _components: Components
    _dispatch: Dispatch

    def bind(self, components: Components, dispatch: Dispatch) -> None:
        """Bind the listeners, once."""
        assert not hasattr(self, "_components"), "notifications are bound once"
        self._components = components
        self._dispatch = dispatch

    # --- peer sessions -------------------------------------------------------------------------

    def session_opened(self, peer: BrokerId, cell: CellId) -> None:
        """A peer session is open (R2)."""
        each = self._components
        each.announcements.session_opened(peer, cell)
        each.retirements.session_opened(peer)
        each.hosting.session_opened(peer)
        each.walks.session_opened()
        each.name_queries.session_opened()
        each.partitions.session_opened(peer, cell)
        each.exchange.session_opened(peer, cell)
        each.reports.session_opened(peer)
        each.router.session_opened(peer, cell)
        each.subends.session_opened()
        each.requests.session_opened()
        each.unicast.session_opened()
        each.operations.session_opened(peer)

    def session_closed(self, peer: BrokerId) -> None:
        """A peer session has ended."""
        each = self._components
        cell = each.tree.neighbourhood.cell_of(peer)
        if cell is not None:
            each.partitions.session_closed(peer, cell)
        each.record_exchange.session_closed(peer)
        each.name_queries.session_closed(peer)
        each.walks.session_closed(peer)
        each.lookups.session_closed()
        each.exchange.session_closed(peer)
        each.reports.session_closed(peer)
        each.router.session_closed(peer)
        each.subends.session_closed(peer)

    def received(self, peer: BrokerId, message: Any) -> None:
        """A message has arrived in a peer session."""
        self._dispatch.message(peer, message)

    def unicast_requested(
        self, requester: BrokerId, body: UnicastBody, answer: UnicastAnswer
    ) -> None:
        """A broker requests something of this one (D9)."""
        self._dispatch.unicast(requester, body, answer)

    def unsent(self, peer: BrokerId, messages: list[Any]) -> None:
        """There is no peer session for messages: a control session may carry them (RS-35)."""
        self._components.control_sessions.unsent(peer, messages)

    def packet_received_outside(self, peer: BrokerId, packet: Any) -> None:
        """A packet of no peer session has arrived."""
        self._components.control_sessions.packet_received(peer, packet)

    def control_received(self, broker: BrokerId, message: Any) -> None:
        """A message has arrived in a control session."""
        self._dispatch.message(broker, message)

    def control_session_opened(self, broker: BrokerId) -> None:
        """A control session is open."""
        self._components.operations.session_opened(broker)

    def control_session_closed(self, broker: BrokerId) -> None:
        """A control session has ended."""

    def peer_congested(self, peer: BrokerId) -> None:
        """Too much is queued for a peer (R40)."""
        self._components.router.pause_peer(peer)

    def peer_drained(self, peer: BrokerId) -> None:
        """A peer accepts messages again."""
        self._components.router.resume_peer(peer)

    def table_states(self, peer: BrokerId) -> tuple[TableState, ...]:
        """Return the states of the tables that are sent to a peer, for the heartbeat (R19)."""
        return self._components.exchange.states(peer)

    def table_states_received(self, peer: BrokerId, states: tuple[TableState, ...]) -> None:
        """A heartbeat of a peer contains the states of the tables that it sends."""
        self._components.exchange.compare_states(peer, states)

    # --- records of cells ----------------------------------------------------------------------

    def records_differ(self, peer: BrokerId, own: int, theirs: int) -> None:
        """The digests of the records near this broker and a peer differ (RS-4)."""
        self._components.record_exchange.differ(peer, own, theirs)

    def records_received(self, peer: BrokerId, records: tuple[CellRecord, ...]) -> None:
        """A broker has sent records that are newer than those held."""
        self._components.operations.records_received(peer, records)

    # --- tables, pubends, retirements ----------------------------------------------------------

    def tables_changed(self) -> None:
        """A subscription table of another broker has changed."""
        self._components.pubends.update_stream_epochs()

    def pubend_announced(self, pubend: PubendId) -> None:
        """The properties of a pubend, its path or its existence have changed."""
        each = self._components
        known = each.announcements.known.get(pubend)
        if known is None or known.tombstone:
            each.exchange.withdrawn(pubend)
            if known is not None:
                self._pubend_ended(pubend, known.sealed or 0, known.last_event)
            return
        properties = known.properties
        each.retirement.located(pubend, ShbId(properties.broker, properties.cell))
        advertisement = each.announcements.advertisement_of(known)
        each.exchange.announced(pubend, known.version, advertisement, known.direction)
        best_effort = properties.quality is Quality.BEST_EFFORT
        each.registry.announced(pubend, advertisement, known.version, best_effort=best_effort)
        if known.sealed is not None:
            each.subends.pubend_sealed(pubend, known.sealed)

    def _pubend_ended(self, pubend: PubendId, last: Tick, last_event: Tick) -> None:
        """A pubend is a tombstone (RS-34)."""
        each = self._components
        each.router.end(pubend)
        each.registry.pubend_ended(pubend, last, last_event)
        each.reads.pubend_ended(pubend)
        each.requests.pubend_ended(pubend)

    def pubend_redirected(self, pubend: PubendId) -> None:
        """A pubend lies in another direction."""
        self._components.router.turn(pubend)

    def retirement_changed(self, shb: ShbId) -> None:
        """A broker was retired or has returned, or its retirement is no longer recent or known."""
        self._components.retirement.changed(shb)
