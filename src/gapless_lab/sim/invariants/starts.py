"""Beginnings: who was there before a pubend gets all of it that was published with its news there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gapless.broker import Broker
from gapless.core.ids import BrokerId, PubendId, ShbId, VirtualTime
from gapless.core.machine import ClientRequest, MachineEvent
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
    """The tables of a pubend's broker had the news of a host up to a time, from after a tick on."""

    time: VirtualTime
    after: Tick
    until: Tick | None = None
    """The last event of that life of the broker, when it is over."""


class _Confirmed(NamedTuple):
    """What the client of a subscription was last told of it."""

    form: HostedSubscription | str
    text: str
    time: VirtualTime | None


class _Resumed(NamedTuple):
    """What the client of a subscription that came from elsewhere was told there."""

    form: HostedSubscription | str
    text: str
    start_guarantees: StartGuarantees


class _ExpectedStart(NamedTuple):
    """A subscription whose client was told that it has begun before its host heard of a pubend."""

    name: str
    form: HostedSubscription | str
    """Which of that name: itself, or of a durable one, which outlives a crash, its birth and epoch."""
    pubend: PubendId
    needed: tuple[HostTime, ...]
    """When it was made, or had the filter that its client knew of by then; also at former homes."""


class StartInvariant(Invariant):
    """R46: a subscription whose client was told that it has begun, before its host ever heard of a
    pubend, misses nothing of that which was published when the tables of the pubend's broker had the
    news of the subscription. In total order it may: there nothing begins below what was merged. If its
    filter was changed before it has begun there, the new one says what it must not miss.

    A client that fled and comes back may have been given the pubend elsewhere. Then it goes on from its
    own place; what it was given up to there is for the checkers to say, which know it from all homes.
    Of a pubend that no home of it had heard of, it misses nothing that came when the news of one of them was
    there, as its client was told.
    """

    def __init__(self, global_state: GlobalState) -> None:
        super().__init__(global_state)
        self._facts: dict[PubendId, dict[ShbId, list[_Fact]]] = {}
        self._looked: dict[BrokerId, tuple[int, ...]] = {}
        """By what it is seen that tables or pubends of a broker have changed."""
        self._known_pubends: dict[BrokerId, set[PubendId]] = {
            each: set() for each in self.world.hosts
        }
        """The pubends that a broker has ever heard of."""
        self._confirmed: dict[BrokerId, dict[str, _Confirmed]] = {
            each: {} for each in self.world.hosts
        }
        """Whose clients were told, by name."""
        self._notified_clients: list[str] = []
        self._client_positions: dict[BrokerId, set[tuple[str, PubendId]]] = {
            each: set() for each in self.world.hosts
        }
        """The pubends on which a client of a subscription had its own place when it came."""
        self._resumed: dict[BrokerId, dict[str, _Resumed]] = {each: {} for each in self.world.hosts}
        """What clients that came from elsewhere have brought along, by name."""
        self._expected_starts: dict[BrokerId, list[_ExpectedStart]] = {
            each: [] for each in self.world.hosts
        }

    def message_handlers(self) -> Mapping[type, MessageHandler]:
        """Look at what clients are told."""
        return {
            Subscribed: self._client_notified,
            FilterSet: self._client_notified,
            FilterChanged: self._client_notified,
        }

    def started(self, world: World, process: SimulatedProcess) -> None:
        """What a broker knew is gone with its life; what was published then is still owed."""
        del world
        me = process.host.broker
        self._looked.pop(me, None)
        # of a pubend that it has heard of and not joined, a broker knows nothing after a crash
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
        """Note what is known and told since the step before, and look at what has begun."""
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
                        del self._resumed[me][name]  # its filter was changed since it came
            self._notified_clients.clear()

    def _note_resumed(self, me: BrokerId, machine: Broker, client: str, call: Subscribe) -> None:
        """Note what a client brings to a new home, and look at the pubends that are known there."""
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
        """Return the moments of former homes by which it is owed a pubend.

        One that a home has heard of may have advertised more since: what was known before is forgotten.
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
        """Note who was told before, if there is a pubend that this broker has never heard of."""
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

    # --- what has begun ----------------------------------------------------------------------

    def _is_over(self, me: BrokerId, machine: Broker, expected: _ExpectedStart) -> bool:
        """Look at a subscription on a pubend; say whether there is nothing more to see."""
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
            )  # else it has yet to be heard of, after a crash
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
                        f"but {stream.ticks[index]} came when its filter was known there, since {fact}",
                    )
                    return


def _form(subscription: HostedSubscription) -> HostedSubscription | str:
    return (
        f"{subscription.incarnation_key}/{subscription.epoch}"
        if subscription.durable
        else subscription
    )
