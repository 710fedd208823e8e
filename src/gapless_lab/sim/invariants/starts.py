"""Starts: a subscription older than a pubend receives every event published after the PHB learned
of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gapless.broker import Broker
from gapless.core.events import ClientRequest, MachineEvent
from gapless.core.ids import BrokerId, PubendId, ShbId, VirtualTime
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    FilterChanged,
    FilterSet,
    HostTime,
    Order,
    StartGuarantees,
    StartKind,
    Subscribe,
    Subscribed,
)
from gapless.messages.records import JoinedPubendRecord
from gapless.pubend.pubend import Pubend
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import Started
from gapless.subscribers.subscription import HostedSubscription
from gapless_lab.sim.invariants.global_state import GlobalState
from gapless_lab.sim.invariants.monitor import Invariant, MessageHandler

if TYPE_CHECKING:
    from gapless_lab.sim.world import SimulatedProcess, World

__all__ = ["StartInvariant"]


class _Fact(msgspec.Struct):
    """The tables of a PHB knew an SHB up to a virtual time, for the events after a tick."""

    time: VirtualTime
    after: Tick
    until: Tick | None = None
    """The last event of that incarnation of the PHB, or None while it runs."""


class _Confirmed(NamedTuple):
    """What was last confirmed to the client of a subscription."""

    form: HostedSubscription | str
    text: str
    time: VirtualTime | None


class _Resumed(NamedTuple):
    """What a former hosting broker confirmed to the client of a subscription."""

    form: HostedSubscription | str
    text: str
    start_guarantees: StartGuarantees


class _ExpectedStart(NamedTuple):
    """A subscription that was confirmed to its client before its SHB heard of a pubend."""

    name: str
    form: HostedSubscription | str
    """The subscription object; for a durable one, which outlives a crash, its incarnation key and
    epoch."""
    pubend: PubendId
    needed: tuple[HostTime, ...]
    """The host times, also of former hosting brokers, at which the confirmed filter was set."""


class StartInvariant(Invariant):
    """R46: a subscription was confirmed to its client before its SHB heard of a pubend. It then
    receives every event that was published after the tables of the PHB knew the subscription. In
    total order it may miss some, because nothing starts below what was merged. If its filter was
    changed before the start, the new filter applies.

    A client that failed over and returns may have received the pubend at another broker. Then it
    continues from its own position, and the checkers check what it received up to there, because
    they know all its hosting brokers. If no hosting broker had heard of a pubend, the subscription
    receives every event published after the PHB knew it from one of them, as confirmed to its
    client.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._facts: dict[PubendId, dict[ShbId, list[_Fact]]] = {}
        self._looked: dict[BrokerId, tuple[int, ...]] = {}
        """State from which a change of a broker's tables or pubends is detected."""
        self._known_pubends: dict[BrokerId, set[PubendId]] = defaultdict(set)
        """All pubends that a broker has heard of."""
        self._confirmed: dict[BrokerId, dict[str, _Confirmed]] = defaultdict(dict)
        """What was last confirmed to the client, by the name of the subscription."""
        self._notified_clients: list[str] = []
        self._client_positions: dict[BrokerId, set[tuple[str, PubendId]]] = defaultdict(set)
        """The pubends for which the client of a subscription presented a position."""
        self._resumed: dict[BrokerId, dict[str, _Resumed]] = defaultdict(dict)
        """What clients that came from another broker have presented, by the name of the
        subscription."""
        self._expected_starts: dict[BrokerId, list[_ExpectedStart]] = defaultdict(list)

    def message_handlers(self) -> Mapping[type, MessageHandler]:
        """Handle the notices that confirm a subscription."""
        return {
            Subscribed: self._client_notified,
            FilterSet: self._client_notified,
            FilterChanged: self._client_notified,
        }

    def started(self, world: World, process: SimulatedProcess) -> None:
        """A restarted broker knows nothing; events published before it stopped must still be
        received.
        """
        del world
        me = process.host.broker
        self._looked.pop(me, None)
        # after a crash a broker does not know a pubend that it had not joined
        records = process.host.disk.load()
        joined = {each.pubend for each in records if isinstance(each, JoinedPubendRecord)}
        lasting = [each for each in self._expected_starts[me] if isinstance(each.form, str)]
        self._expected_starts[me] = [each for each in lasting if each.pubend in joined]
        for pubend, hosts in self._facts.items():
            stream = self.oracle.streams[pubend]
            if stream.broker == me:
                last = stream.ticks[-1] if stream.ticks else 0
                for fact in [fact for facts in hosts.values() for fact in facts]:
                    fact.until = last if fact.until is None else fact.until

    def _client_notified(self, process: SimulatedProcess, client: str, notice: Any) -> None:
        del process, notice
        self._notified_clients.append(client)

    def moved(self, process: SimulatedProcess, machine: Broker, event: MachineEvent) -> None:
        """Record what was learned and confirmed in this step, and check the cursors that have
        started.
        """
        me = process.host.broker
        if isinstance(event, ClientRequest) and isinstance(event.request, Subscribe):
            call = event.request
            self._client_positions[me].update(
                (call.subscription, each) for each, _ in call.start.position
            )
            self._note_resumed(me, machine, event.client, call)
        self._note_facts(me, machine)
        self._note_new_pubends(me, machine)
        self._note_confirmed(me, machine)
        if self._expected_starts[me]:
            self._expected_starts[me] = [
                each for each in self._expected_starts[me] if not self._is_over(me, machine, each)
            ]

    # --- what is known -----------------------------------------------------------------------

    def _note_facts(self, me: BrokerId, machine: Broker) -> None:
        if not machine.components.hosted:
            return
        edges = machine.components.exchange.table_store.edges.values()
        looked = (len(machine.components.hosted), *[edge.revision for edge in edges])
        if self._looked.get(me) == looked:
            return
        self._looked[me] = looked
        for pubend, hosted in machine.components.hosted.items():
            if isinstance(hosted, Pubend):
                facts = self._facts.setdefault(pubend, {})
                for edge in edges:
                    for shb in edge.hosts:
                        entry = edge.entry(shb)
                        if entry is not None and not entry.retired:
                            self._note_fact(facts.setdefault(shb, []), entry.time, hosted.last)

    def _note_fact(self, facts: list[_Fact], time: VirtualTime, last: Tick) -> None:
        if not facts or facts[-1].until is not None or facts[-1].time < time:
            facts.append(_Fact(time, last))

    def _note_confirmed(self, me: BrokerId, machine: Broker) -> None:
        if self._notified_clients:
            for name, subscription in machine.components.registry.subscriptions.items():
                if subscription.client in self._notified_clients:
                    newest = subscription.newest
                    self._confirmed[me][name] = _Confirmed(
                        _form(subscription), newest.text, newest.required_from
                    )
                    resumed = self._resumed[me].get(name)
                    if resumed is not None and resumed.text != newest.text:
                        del self._resumed[me][name]  # its filter was changed since the failover
            self._notified_clients.clear()

    def _note_resumed(self, me: BrokerId, machine: Broker, client: str, call: Subscribe) -> None:
        """Record the resume state of a client, and the starts to expect on pubends known here."""
        subscription = machine.components.registry.subscriptions.get(call.subscription)
        if subscription is None or subscription.client != client or call.hosting is None:
            return
        if (
            call.start_guarantees is None
            or call.hosting.broker == me
            or call.hosting.epoch >= subscription.epoch
        ):
            return
        form = _form(subscription)
        text = subscription.newest.text
        self._resumed[me][call.subscription] = _Resumed(form, text, call.start_guarantees)
        for pubend, offer in machine.components.filters.announced_pubends.items():
            needed = self._needed_elsewhere(me, subscription, pubend)
            cursor = subscription.cursors.get(pubend)
            has_started = cursor is not None and isinstance(cursor.start, Started)
            could_match = subscription.newest.filter.intersects(offer.advertisement)
            if (
                needed
                and could_match
                and not has_started
                and self._is_checked(subscription, pubend)
            ):
                self._expected_starts[me].append(
                    _ExpectedStart(call.subscription, form, pubend, needed)
                )

    def _is_checked(self, subscription: HostedSubscription, pubend: PubendId) -> bool:
        latest = subscription.start.on(pubend) is StartKind.LATEST
        return latest and subscription.order is Order.PUBLISHER

    def _needed_elsewhere(
        self, me: BrokerId, subscription: HostedSubscription, pubend: PubendId
    ) -> tuple[HostTime, ...]:
        """Return the host times of former hosting brokers that guarantee a start on a pubend.

        A pubend that a hosting broker knew may have widened its advertisement since; then its host
        time is not used, because the earlier advertisement is not recorded.
        """
        resumed = self._resumed[me].get(subscription.name)
        if resumed is None or resumed.form != _form(subscription):
            return ()
        host_times = dict(resumed.start_guarantees.by_pubend).get(
            pubend, resumed.start_guarantees.default
        )
        widens = self.world.options.widen_rate > 0
        return tuple(
            each
            for each in host_times
            if not widens or pubend not in self._known_pubends.get(each.host.broker, ())
        )

    def _note_new_pubends(self, me: BrokerId, machine: Broker) -> None:
        """Record the starts to expect on a pubend that this broker has just heard of."""
        offers, known = machine.components.filters.announced_pubends, self._known_pubends[me]
        if len(offers) <= len(known) and known.issuperset(offers):
            return
        for pubend in [each for each in offers if each not in known]:
            known.add(pubend)
            for name, subscription in machine.components.registry.subscriptions.items():
                confirmed = self._confirmed[me].get(name)
                if confirmed is None or confirmed.form != _form(subscription):
                    continue
                could_match = self.oracle.filter(confirmed.text).intersects(
                    offers[pubend].advertisement
                )
                if could_match and self._is_checked(subscription, pubend):
                    shb = ShbId(me, self.world.hosts[me].cell)
                    own = () if confirmed.time is None else (HostTime(shb, confirmed.time),)
                    elsewhere = self._needed_elsewhere(me, subscription, pubend)
                    needed = (*own, *elsewhere)
                    self._expected_starts[me].append(
                        _ExpectedStart(name, confirmed.form, pubend, needed)
                    )

    # --- what has started --------------------------------------------------------------------

    def _is_over(self, me: BrokerId, machine: Broker, expected: _ExpectedStart) -> bool:
        """Check the start of a subscription on a pubend; return whether the check is over."""
        name, form, pubend, needed = expected
        subscription = machine.components.registry.subscriptions.get(name)
        if subscription is None or _form(subscription) != form:
            return True
        if (name, pubend) in self._client_positions[me]:
            return True
        cursor = subscription.cursors.get(pubend)
        if cursor is None:
            return (
                pubend in machine.components.filters.announced_pubends
            )  # else the broker has not heard of it since a crash
        if not isinstance(cursor.start, Started):
            return False
        self._check(me, cursor, cursor.start.after, needed)
        return True

    def _check(
        self, me: BrokerId, cursor: Cursor, base: Tick, needed: tuple[HostTime, ...]
    ) -> None:
        for host_time in needed:
            self._check_since(me, cursor, base, host_time)

    def _check_since(self, me: BrokerId, cursor: Cursor, base: Tick, host_time: HostTime) -> None:
        stream, segment = self.oracle.streams[cursor.pubend], cursor.segments.current
        for fact in self._facts.get(cursor.pubend, {}).get(host_time.host, ()):
            if fact.time < host_time.time:
                continue
            high = base if fact.until is None else min(base, fact.until)
            for index in range(stream.after(fact.after), stream.after(high)):
                if self.oracle.matches(stream, segment.text, index):
                    self.world.violate(
                        "R46",
                        f"{me}: {cursor.subscription.name} starts on {stream.pubend} after {base}, "
                        f"but {stream.ticks[index]} was published after its filter was known there, by {fact}",
                    )
                    return


def _form(subscription: HostedSubscription) -> HostedSubscription | str:
    return (
        f"{subscription.incarnation_key}/{subscription.epoch}"
        if subscription.durable
        else subscription
    )
