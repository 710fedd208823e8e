"""Simulated subscribers, durable or not: credit, acks, filter changes, seeks and resumption."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from gapless.core.ids import BrokerId, PubendId
from gapless.messages.clients import (
    Ack,
    Closed,
    Credit,
    Delivery,
    FilterSet,
    Gap,
    HostingReference,
    LeaveSubscription,
    Order,
    PastFilter,
    PositionTuple,
    Progress,
    RefusalCause,
    Refused,
    Seek,
    SetFilter,
    Stalled,
    StartGuarantees,
    StartKind,
    StartPoint,
    Subscribe,
    Subscribed,
    SubscriptionEnded,
    SubscriptionStarted,
    Unsubscribe,
    Unsubscribed,
)
from gapless_lab.sim.checkers import SubscriptionChecker
from gapless_lab.sim.clients import SimulatedClient
from gapless_lab.sim.restarting import HostSearch

if TYPE_CHECKING:
    from gapless_lab.sim.connections import SimulatedConnection
    from gapless_lab.sim.oracle import Oracle
    from gapless_lab.sim.world import SimulatedHost, World

__all__ = ["SimulatedSubscriber"]

LATEST = StartPoint()

_OF_A_SUBSCRIPTION: Final = (Delivery, Gap, Progress, Stalled, SubscriptionStarted)
"""The notices that a broker sends for a subscription of a client without a request."""


class SimulatedSubscriber(SimulatedClient):
    """A client with one subscription."""

    def __init__(
        self,
        world: World,
        oracle: Oracle,
        name: str,
        host: SimulatedHost,
        *,
        filter_text: str,
        durable: bool,
        order: Order = Order.PUBLISHER,
        start: StartPoint = LATEST,
        credit: int = 10,
    ) -> None:
        super().__init__(world, oracle, name, host)
        self.durable = durable
        self.checker = SubscriptionChecker(
            world, oracle, name, filter_text, durable=durable, order=order
        )
        self.slow = False
        self.done = False
        self._start = start
        self._window = credit
        self._credit = 0
        """The number of events that the machine may still send."""
        self._unreturned_credit = 0
        self._subscribing = 0
        self._answered = False
        """Whether a Subscribe was ever answered."""
        self._resuming = False
        self._requested_starts: list[StartPoint] = []
        """The requested starts since the last reply."""
        self._erased: dict[BrokerId, int] = {}
        """By broker: how often its record had been deleted there at the last reply or first visit.
        """
        self._hosting: HostingReference | None = None
        """Of a durable subscription: its hosting reference, as last confirmed."""
        self._resting: dict[PubendId, int] = {}
        """Of a durable subscription: the positions of streams that had started once and are pending
        now.
        """
        self._text = ""
        """Of a durable subscription: its present filter, as its hosting broker writes it."""
        self._past_filters: tuple[PastFilter, ...] = ()
        """Of a durable subscription: the past filters that still apply to some ticks."""
        self._start_guarantees: StartGuarantees | None = None
        """Of a durable subscription: the start guarantees for streams on which it has no position,
        for that filter.
        """
        self._change: SetFilter | None = None
        self._change_requests = 0
        """The number of times the present filter change was requested."""
        self._seek: Seek | None = None
        self._ending: Unsubscribe | None = None
        self._left: SimulatedConnection | None = None
        """The connection over which the client has left the subscription and not returned yet."""
        is_searched = durable and world.options.restarts > 0
        self._search = HostSearch(world, oracle, name, host) if is_searched else None
        """Of a program that may start again without its hosting reference."""

    @property
    def steady(self) -> bool:
        """Whether the subscription is established and no request for it is pending."""
        return (
            self.connection is not None
            and self._left is not self.connection
            and self._subscribing == 0
            and self._answered
            and self._change is None
            and self._seek is None
            and self._ending is None
            and not self.checker.changing
        )

    # --- connecting --------------------------------------------------------------------------

    def choose_host(self) -> None:
        """Choose the same broker or another; a durable subscription may fail over."""
        options, search = self.world.options, self._search
        if search is not None and self._may_start_again and search.may_restart():
            self._start_again(search)
        if search is not None and self._hosting is None:
            self._go_to(search.next_host())
        elif (
            not self.durable
            and self._answered
            and self.random.random() < options.reconnect_elsewhere
        ):
            self.host = self.random.choice(self.world.core)
        elif options.failover and self._may_fail_over and self.random.random() < options.failover:
            self._go_to(self.random.choice(self.world.core))
        elif self._hosting is not None:
            self._go_to(self.world.hosts[self._hosting.broker])

    @property
    def _may_start_again(self) -> bool:
        """Whether the program may lose its memory: its filter is the one of its code."""
        checker = self.checker
        is_idle = self._ending is None and self._change is None
        return self._answered and is_idle and checker.may_forget and not checker.has_changed

    def _start_again(self, search: HostSearch) -> None:
        """The program starts again and has only its addresses."""
        self.world.count_fault("program restart")
        search.restart()
        self.checker.forgot()
        self._resting = {}
        self._hosting = self._start_guarantees = None
        self._past_filters = ()
        self._change_requests = 0

    @property
    def _may_fail_over(self) -> bool:
        """Whether a durable subscription can fail over: all its filters are known."""
        idle = self._ending is None and not self.checker.changing
        return self._hosting is not None and idle and bool(self.checker.position())

    def _go_to(self, host: SimulatedHost) -> None:
        self.host = host
        self._erased.setdefault(host.broker, self._erasures())

    @property
    def _is_at_hosting_broker(self) -> bool:
        return self._hosting is not None and self._hosting.broker == self.host.broker

    def _erasures(self) -> int:
        return self.oracle.erased[self.host.broker, self.checker.name]

    def connected(self) -> None:
        """Subscribe, or resume from the client's position."""
        self._seek = None  # a seek without a reply is not repeated
        if self._ending is not None and not self.durable:
            self._finish()
            return
        if self._ending is not None:
            self.send_request(self._ending)
            return
        self.checker.stalls.clear()
        self._resuming = self._answered or bool(self.checker.position())
        search = self._search
        is_new_program = search is not None and search.restarted
        start = self._resume_start() if self._resuming and not is_new_program else self._start
        self._requested_starts.append(start)
        closed = tuple(self.checker.closed)
        named = start if not closed else msgspec.structs.replace(start, closed=closed)
        self._subscribing = self.next_request()
        self._credit, self._unreturned_credit = self._window, 0
        text = self.checker.old_filter
        if not self.durable:
            text = self.checker.filter
            self._change = None
            self.checker.restarted()
        hosting, past_filters = (
            self._hosting,
            () if start is LATEST else self._needed_past_filters(),
        )
        if hosting is not None and not self._is_at_hosting_broker:
            self._hosting = hosting.next_epoch()
        self.send_request(
            Subscribe(
                self._subscribing,
                self.checker.name,
                text,
                self.durable,
                named,
                self.checker.order,
                self._credit,
                self.world.options.expiry_s,
                hosting=hosting,
                acked=self._remembered_acks() if hosting is not None else (),
                past_filters=past_filters,
                start_guarantees=self._start_guarantees if hosting is not None else None,
                create=search is None,  # it has one address, so nobody else creates the name
            )
        )

    def _remembered_acks(self) -> PositionTuple:
        """Return the acknowledged ticks, none above the client's position.

        A client that lost its position does not know that it acknowledged more. It continues at the
        tick that its hosting broker knows, which may have lost acknowledgements in a crash.
        """
        position = dict(self.checker.position())
        return tuple(
            (pubend, min(tick, position.get(pubend, tick)))
            for pubend, tick in self.checker.acknowledged()
        )

    def _needed_past_filters(self) -> tuple[PastFilter, ...]:
        """Return the past filters that apply to ticks that are not acknowledged or will come again.

        A client that lost its position resumes before its acknowledged tick if its hosting broker
        lost that tick in a crash.
        """
        done = {**self._resting, **dict(self.checker.acknowledged())}
        for pubend, tick in self.checker.position():
            done[pubend] = min(tick, done[pubend])
        return tuple(
            each
            for each in self._past_filters
            if any(end > done.get(pubend, end) for pubend, end in each.ends)
        )

    def _resume_start(self) -> StartPoint:
        checker, options = self.checker, self.world.options
        forgetful = self._answered and checker.may_forget and self._is_at_hosting_broker
        if forgetful and self.random.random() < options.forgotten_positions:
            checker.forgot()
            self._resting = {}
            return LATEST
        start = LATEST if checker.has_changed else self._start
        position = {**dict(start.position), **self._resting, **dict(checker.position())}
        if not position:
            return start
        others = start.for_unnamed()
        return StartPoint(StartKind.POSITION, tuple(position.items()), others.clock, others.kind)

    # --- what comes --------------------------------------------------------------------------

    def take(self, notice: Any) -> None:
        """Check a notice and react to it."""
        if self._left is self.connection and isinstance(notice, _OF_A_SUBSCRIPTION):
            return  # sent before the broker knew that the client had left
        if isinstance(notice, Delivery):
            self._deliver(notice)
        elif isinstance(notice, SubscriptionStarted):
            self.checker.started(notice.pubend, notice.after)
        elif isinstance(notice, Stalled):
            self.checker.stalled(notice.pubend, notice.reason)
        elif isinstance(notice, Progress):
            self.checker.progressed(notice.position)
            self._ack_silence(notice.position)
        elif isinstance(notice, Closed):
            self.checker.pubend_closed(notice.pubend, notice.last)
            if self.durable and notice.last:
                self._acknowledge(((notice.pubend, notice.last + 1),))
        elif isinstance(notice, Gap):
            self.checker.gap(notice.pubend, notice.low, notice.high)
        elif isinstance(notice, Subscribed):
            self._subscribed(notice)
        elif isinstance(notice, FilterSet):
            self._filter_set(notice)
        elif isinstance(notice, Unsubscribed):
            if self._ending is not None and notice.request == self._ending.request:
                self._ended(self._ending)
        elif isinstance(notice, Refused):
            self._refused(notice)
        elif isinstance(notice, SubscriptionEnded) and notice.cause is RefusalCause.SLOW_CONSUMER:
            self.drop()  # then reconnect and resume from the client's position
        elif isinstance(notice, SubscriptionEnded) and notice.hosting is not None:
            self._follow(notice.hosting)

    def _follow(self, hosting: HostingReference) -> None:
        """Follow a subscription that moved, though the client did not get the reply."""
        last = self._hosting if self._answered else None
        self._hosting = (
            hosting
            if last is None
            else HostingReference(hosting.incarnation_key, hosting.epoch + 1, last.broker)
        )
        self._go_to(self.world.hosts[hosting.broker])
        self.drop()

    def _deliver(self, notice: Delivery) -> None:
        if notice.subscription != self.checker.name:
            self.world.violate("spurious", f"{self.name} gets {notice.subscription}")
            return
        self._credit -= len(notice.events)
        if self._credit < 0:
            self.world.violate("flooded", f"{self.name}: {-self._credit} more than its credit")
        self.checker.delivered(notice.events)
        self._unreturned_credit += len(notice.events)
        self.give_credit()
        if self.durable and self.random.random() < 0.5:
            self._ack()

    def give_credit(self) -> None:
        """Return the credit of consumed events, unless the client is slow now."""
        if self._unreturned_credit and not self.slow and self._ending is None:
            self._credit += self._unreturned_credit
            self.send(Credit(self.checker.name, self._unreturned_credit))
            self._unreturned_credit = 0

    def _ack(self) -> None:
        """Acknowledge the client's position, or a part of it."""
        position = self.checker.position()
        if self.random.random() < 0.3:
            position = tuple(each for each in position if self.random.random() < 0.5)
        self._acknowledge(position)

    def _ack_silence(self, position: PositionTuple) -> None:
        """Acknowledge silence on streams whose events are all acknowledged."""
        acked, views = dict(self.checker.acknowledged()), self.checker.views
        if self.durable:
            quiet = (each for each in position if views[each[0]].last_seen <= acked[each[0]])
            self._acknowledge(tuple(quiet))

    def _acknowledge(self, position: PositionTuple) -> None:
        if position and self._ending is None and self._seek is None:
            for pubend, tick in position:
                self.checker.acked[pubend] = max(tick, self.checker.acked.get(pubend, 0))
            self.send(Ack(self.checker.name, position))

    def _subscribed(self, notice: Subscribed) -> None:
        if self._seek is not None and notice.request == self._seek.request:
            self.checker.seek_done(self._seek.start, notice.position)
            self._seek = None
            return
        if notice.request != self._subscribing:
            return
        self._subscribing = 0
        self._left = None
        if self._search is not None:
            self._search.subscribed(notice)
        erased, was_at_hosting_broker = self._erasures(), self._is_at_hosting_broker
        self._hosting, self._text, self._past_filters = (
            notice.hosting,
            notice.filter,
            notice.past_filters,
        )
        self._start_guarantees = notice.start_guarantees
        pending = notice.pending
        self._resting = {each.pubend: each.after for each in pending if each.after is not None}
        has_ended = was_at_hosting_broker and erased > self._erased.get(self.host.broker, erased)
        if has_ended and LATEST in self._requested_starts:
            self.checker.expired(LATEST, notice.position)
        elif self._resuming:
            self.checker.resumed(notice.position)
        else:
            self.checker.subscribed(self._start, notice.position)
        self._answered = True
        self._erased = {self.host.broker: erased}
        self._requested_starts.clear()
        if self._change is not None:
            self._request_change()

    def _refused(self, notice: Refused) -> None:
        if self._change is not None and notice.request == self._change.request:
            if self._change_requests > 1:
                # perhaps the change was made before; and filters stay until their events are
                # acknowledged
                if self.durable:
                    self._acknowledge(self.checker.position())
                self.world.after(50_000, self._request_change)
            else:
                self._change = None
                self.checker.change_refused()
        elif self._seek is not None and notice.request == self._seek.request:
            self._seek = None
        elif notice.request in {self._subscribing, self._ending_by_name} and self._is_searching(
            notice
        ):
            self._search_on(notice)
        elif notice.request == self._subscribing and notice.hosting is not None:
            self._follow(notice.hosting)
        elif notice.request == self._subscribing:
            self.world.violate("refused", f"{self.name}: subscription refused: {notice.reason}")
        elif self._ending is not None and notice.request == self._ending.request:
            self.world.violate("refused", f"{self.name}: end refused: {notice.reason}")

    def _is_searching(self, notice: Refused) -> bool:
        """Return whether the program presented no reference, and is refused because of that."""
        causes = {RefusalCause.WRONG_BROKER, RefusalCause.HOST_UNKNOWN}
        return self._search is not None and self._hosting is None and notice.cause in causes

    def _search_on(self, notice: Refused) -> None:
        assert self._search is not None
        self._search.refused(notice)
        self.drop(disconnected_us=20_000)

    # --- requests of the workload ------------------------------------------------------------

    def set_filter(self, filter_text: str) -> None:
        """Change the filter; repeat the request until it is answered."""
        self._change = SetFilter(self.next_request(), self.checker.name, filter_text)
        self._change_requests = 0
        self.checker.change_requested(filter_text)
        self._request_change()

    def _request_change(self) -> None:
        if self._change is not None and self.connection is not None:
            self._change_requests += 1
            self.send_request(self._change)

    def _filter_set(self, notice: FilterSet) -> None:
        if self._change is not None and notice.request == self._change.request:
            wanted, self._change = self._change.filter, None
            if self.durable:
                self._start_guarantees = notice.start_guarantees
                self._note_switch(str(self.oracle.filter(wanted)), notice.position)
            self.checker.change_done(notice.position, exact=self._change_requests == 1)

    def _note_switch(self, text: str, position: PositionTuple) -> None:
        """Note that another filter applies, unless the reply to Subscribe already had it."""
        if text != self._text:
            self._past_filters += (PastFilter(self._text, position),)
            self._text = text

    def seek(self, start: StartPoint) -> None:
        """Seek to another position."""
        self._seek = Seek(self.next_request(), self.checker.name, start)
        self.send_request(self._seek)

    def leave_subscription(self, away_us: int) -> None:
        """Leave a durable subscription, and return to it later over the same connection (R50)."""
        connection = self._left = self.connection
        self.send(LeaveSubscription(self.checker.name))

        def come_back() -> None:
            if self.connection is connection is not None:
                self.connected()

        self.world.after(away_us, come_back)

    def unsubscribe(self, *, by_name: bool = False) -> None:
        """End the subscription; the end of a durable one is repeated until it is answered.

        ``by_name``: a new program ends it, which knows its name and its brokers only.
        """
        if by_name:
            self._hosting = None
        self._ending = Unsubscribe(
            self.next_request(), self.checker.name, self._hosting, durable=by_name
        )
        self._change = None
        if by_name and self._search is not None:
            self._search.start_again()
            self.drop()
        else:
            self.send_request(self._ending)

    @property
    def _ending_by_name(self) -> int:
        """The request that ends the subscription by its name; 0 if there is none."""
        ending = self._ending
        return ending.request if ending is not None and ending.durable else 0

    def _ended(self, ending: Unsubscribe) -> None:
        if self._search is not None and ending.durable:
            before = self._erased.get(self.host.broker, 0)
            self._search.ended(self.host, erased=self._erasures() > before)
        self._finish()

    def _finish(self) -> None:
        self.done = self.checker.ended = True
        # stay a moment, so that late notices are checked
        self.world.after(200_000, self.leave)

    # --- the end -----------------------------------------------------------------------------

    def unfinished(self, streams: list[Any]) -> list[str]:
        """Return what the subscription must receive and has not received."""
        if self.done:
            return []
        if self._search is not None and self._search.waits_for_the_dead:
            return []
        if self._ending is not None:
            return [f"{self.name}: its end is not answered"]
        if self.connection in {None, self._left} or self._subscribing:
            return [f"{self.name}: is not subscribed"]
        return self.checker.unfinished(streams)

    def unreported_stalls(self, streams: list[Any]) -> list[str]:
        """Return the corrupt streams for which the client got no reason (P8)."""
        if self.done or self.connection is None or self._subscribing:
            return []
        return [line for stream in streams for line in self.checker.unreported_stalls(stream)]
