"""The entry point of the broker machine: ``step(event, now)``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from gapless.broker.assembly import Components, assemble, start
from gapless.broker.configuration import configuration_of, refuse_other_configuration
from gapless.broker.dispatch import Dispatch, MessageObserver
from gapless.broker.notifications import Notifications
from gapless.core.context import Context, Identity, StepTime, nothing
from gapless.core.effects import Effect
from gapless.core.events import MachineEvent, Written
from gapless.core.ids import BrokerId, CellId, PubendId
from gapless.core.limits import MATCH_WORK_MAX, SHOWN_EVENT_MAX
from gapless.core.message_counts import MessageCounts
from gapless.core.parameters import Parameters
from gapless.messages.overlay import CellRecord
from gapless.messages.records import IncarnationRecord, PutRecord, Record
from gapless.messages.stored import StoredState
from gapless.mobility.find import ClientAddresses
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.overlay.tree import Tree
from gapless.reshape.step import stored_neighbourhood

__all__ = ["Broker", "Running", "Starting", "next_incarnation"]


def next_incarnation(stored: StoredState, clock: int) -> int:
    """Return the number of the incarnation that starts now.

    The clock alone is not enough: if it was set back, old claims would seem to cover new
    subscriptions (A9).
    """
    return max(1, clock, stored.incarnation + 1)


class Starting:
    """A broker whose incarnation is not on disk yet. It sends nothing, and events wait (R1)."""

    def __init__(self, context: Context, stored: StoredState) -> None:
        self._context = context
        self.stored = stored
        self.deferred: list[MachineEvent] = []

    def take(self, event: MachineEvent) -> None:
        """Complete the write of the incarnation; keep other events for later."""
        if isinstance(event, Written):
            self._context.resume(event)
        elif event is not None:
            self.deferred.append(event)

    def begin(self) -> None:
        """Match nothing."""

    def settle(self) -> None:
        """Send nothing."""


class Running:
    """A broker with all its components."""

    def __init__(self, context: Context, components: Components, dispatch: Dispatch) -> None:
        self._context = context
        self._me = context.identity.broker
        self._dispatch = dispatch
        self.components = components
        self.take = dispatch.event
        self._match_work = (
            components.filters.match_work,
            components.exchange.table_store.index.match_work,
        )
        self.begin()

    def begin(self) -> None:
        """Give the searches of a step their allowance."""
        for work in self._match_work:
            work.renew(MATCH_WORK_MAX)

    def settle(self) -> None:
        """Deliver the messages of this broker to itself until there are none, then send the others.

        Only components with pending work are called.
        """
        components, context = self.components, self._context
        registry, reports = components.registry, components.reports
        while True:
            if registry.step_end.touched or registry.slow_consumers.due:
                registry.flush()
            if reports.is_urgent:
                reports.flush()
            messages = context.take_messages_to(self._me)
            if not messages:
                break
            for message in messages:
                self._dispatch.message(self._me, message)
        if context.has_messages:
            components.sessions.flush()


class Broker:
    """One incarnation of a broker, created from the records of its disk."""

    def __init__(
        self,
        broker: BrokerId,
        cell: CellId,
        parameters: Parameters,
        neighbourhood: Neighbourhood,
        records: Iterable[Record],
        now: StepTime,
        corrupt_pubends: Mapping[PubendId, str] | None = None,
        corrupt_subscriptions: Mapping[str, str] | None = None,
        addresses: ClientAddresses | None = None,
        overlay: str = "",
        *,
        may_join: bool = False,
    ) -> None:
        """Start an incarnation. Corrupt state is not restored; each part has a reason (P8).

        Clients are redirected to the ``addresses`` of other brokers. With ``may_join`` the broker is
        alone and waits to be appended to a tree (RS-15).
        Raises UsageError if the records belong to another broker or to another tree.
        """
        stored = StoredState.of(records)
        configuration = configuration_of(broker, parameters.delta, neighbourhood, overlay)
        store_it = refuse_other_configuration(configuration, stored)
        incarnation = next_incarnation(stored, now.clock)
        self.context = Context(Identity(broker, cell, incarnation), parameters)
        self.context.begin_step(now)
        self._configured = neighbourhood
        self._may_join = may_join
        radius = parameters.neighbourhood_radius
        self._tree = Tree(stored_neighbourhood(neighbourhood, stored.neighbourhood, broker, radius))
        self._corrupt_pubends = dict(corrupt_pubends or {})
        self._corrupt_subscriptions = dict(corrupt_subscriptions or {})
        self._addresses = {} if addresses is None else addresses
        self._state: Starting | Running = Starting(self.context, stored)
        self.observers: list[MessageObserver] = []
        """Called with all messages, also those to itself; for simulators and tests."""
        changes = (
            PutRecord(IncarnationRecord(incarnation)),
            *((PutRecord(configuration),) if store_it else ()),
        )
        self.context.write(changes, self._start)

    def _start(self) -> None:
        """The incarnation is on disk: create the components, then handle the waiting events."""
        starting = self._state
        assert isinstance(starting, Starting)
        notifications = Notifications()
        components = assemble(
            self.context,
            notifications,
            self._tree,
            starting.stored,
            self._corrupt_pubends,
            self._corrupt_subscriptions,
            self._addresses,
            may_join=self._may_join,
        )
        dispatch = Dispatch(self.context, components, self.observers)
        notifications.bind(components, dispatch)
        start(components, starting.stored, self._configured)
        self._state = Running(self.context, components, dispatch)
        for event in starting.deferred:
            self._state.take(event)

    # --- the entry point -----------------------------------------------------------------------

    def step(self, event: MachineEvent, now: StepTime) -> list[Effect]:
        """Take an event, or None if only time has passed; return the effects."""
        return self.step_all((event,), now)

    def step_all(self, events: Iterable[MachineEvent], now: StepTime) -> list[Effect]:
        """Take several events in one step; return their effects together.

        The driver uses it for writes that became durable together, and for publications that
        arrived together.
        """
        context = self.context
        context.begin_step(now)
        self._state.begin()
        for event in events:
            try:
                self._state.take(event)
            except Exception as error:
                error.add_note(f"{event!r}"[:SHOWN_EVENT_MAX])  # several events may be one step
                raise
        context.run_timers()
        self._state.settle()
        return context.take_effects()

    def next_timer(self) -> int | None:
        """Return the time at which a step is due without an event, or None."""
        return self.context.next_timer()

    # --- state for drivers and operators -------------------------------------------------------

    @property
    def components(self) -> Components:
        """The components of a broker that has started."""
        assert isinstance(self._state, Running), "the broker has not started"
        return self._state.components

    @property
    def is_running(self) -> bool:
        """Whether the incarnation is on disk."""
        return isinstance(self._state, Running)

    @property
    def coverage_marks(self) -> Mapping[str, int]:
        """How often rare branches were taken."""
        return self.context.coverage_marks

    @property
    def message_counts(self) -> MessageCounts:
        """The messages to and from peers, by kind."""
        return self.context.message_counts

    @property
    def neighbourhood(self) -> Neighbourhood:
        """The cells within Δ of the own cell."""
        return self._tree.neighbourhood

    def apply_records(
        self, records: Collection[CellRecord], then: Callable[[], None] = nothing
    ) -> None:
        """Apply records of cells in one durable step, then call ``then`` (R13)."""
        self.components.step.apply(records, then=then)
