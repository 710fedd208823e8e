"""Beginnings: who was there before a pubend gets all of it that was published with its news there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gapless.broker import Broker
from gapless.core.ids import BrokerId, PubendId, ShbId, VirtualTime
from gapless.core.machine import Asked, Event
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    BeginKind,
    FilterSet,
    Moment,
    Order,
    Owed,
    Subscribe,
    Subscribed,
    Switched,
)
from gapless.messages.records import JoinRecord
from gapless.pubend.pubend import Pubend
from gapless.subscribers.cursor import Strand
from gapless.subscribers.subscription import Subscription
from gapless_lab.sim.invariants.global_state import Insight
from gapless_lab.sim.invariants.monitor import Handler, Invariant

if TYPE_CHECKING:
    from gapless_lab.sim.world import Process, World

__all__ = ["Beginnings"]


class _Fact(msgspec.Struct):
    """The tables of a pubend's broker had the news of a host up to a time, from after a tick on."""

    time: VirtualTime
    after: Tick
    until: Tick | None = None
    """The last event of that life of the broker, when it is over."""


class _Told(NamedTuple):
    """What the client of a subscription was last told of it."""

    form: Subscription | str
    text: str
    time: VirtualTime | None


class _Brought(NamedTuple):
    """What the client of a subscription that came from elsewhere was told there."""

    form: Subscription | str
    text: str
    owed: Owed


class _Early(NamedTuple):
    """A subscription whose client was told that it has begun before its host heard of a pubend."""

    name: str
    form: Subscription | str
    """Which of that name: itself, or of a durable one, which outlives a crash, its birth and epoch."""
    pubend: PubendId
    needed: tuple[Moment, ...]
    """When it was made, or had the filter that its client knew of by then; also at former homes."""


class Beginnings(Invariant):
    """R46: a subscription whose client was told that it has begun, before its host ever heard of a
    pubend, misses nothing of that which was published when the tables of the pubend's broker had the
    news of the subscription. In total order it may: there nothing begins below what was merged. If its
    filter was changed before it has begun there, the new one says what it must not miss.

    A client that fled and comes back may have been given the pubend elsewhere. Then it goes on from its
    own place; what it was given up to there is for the checkers to say, which know it from all homes.
    Of a pubend that no home of it had heard of, it misses nothing that came when the news of one of them was
    there, as its client was told.
    """

    def __init__(self, insight: Insight) -> None:
        super().__init__(insight)
        self._facts: dict[PubendId, dict[ShbId, list[_Fact]]] = {}
        self._looked: dict[BrokerId, tuple[int, ...]] = {}
        """By what it is seen that tables or pubends of a broker have changed."""
        self._heard: dict[BrokerId, set[PubendId]] = {each: set() for each in self.world.hosts}
        """The pubends that a broker has ever heard of."""
        self._told: dict[BrokerId, dict[str, _Told]] = {each: {} for each in self.world.hosts}
        """Whose clients were told, by name."""
        self._telling: list[str] = []
        self._placed: dict[BrokerId, set[tuple[str, PubendId]]] = {
            each: set() for each in self.world.hosts
        }
        """The pubends on which a client of a subscription had its own place when it came."""
        self._brought: dict[BrokerId, dict[str, _Brought]] = {each: {} for each in self.world.hosts}
        """What clients that came from elsewhere have brought along, by name."""
        self._early: dict[BrokerId, list[_Early]] = {each: [] for each in self.world.hosts}

    def said(self) -> Mapping[type, Handler]:
        """Look at what clients are told."""
        return {Subscribed: self._said, FilterSet: self._said, Switched: self._said}

    def started(self, world: World, process: Process) -> None:
        """What a broker knew is gone with its life; what was published then is still owed."""
        del world
        me = process.host.broker
        self._looked.pop(me, None)
        # of a pubend that it has heard of and not joined, a broker knows nothing after a crash
        records = process.host.disk.load()
        joined = {each.pubend for each in records if isinstance(each, JoinRecord)}
        lasting = [each for each in self._early[me] if isinstance(each.form, str)]
        self._early[me] = [each for each in lasting if each.pubend in joined]
        for pubend, hosts in self._facts.items():
            stream = self.truth.streams[pubend]
            if stream.broker == me:
                last = stream.ticks[-1] if stream.ticks else 0
                for fact in [fact for facts in hosts.values() for fact in facts]:
                    fact.until = last if fact.until is None else fact.until

    def _said(self, process: Process, client: str, notice: Any) -> None:
        del process, notice
        self._telling.append(client)

    def moved(self, process: Process, machine: Broker, event: Event) -> None:
        """Note what is known and told since the step before, and look at what has begun."""
        me = process.host.broker
        if isinstance(event, Asked) and isinstance(event.request, Subscribe):
            call = event.request
            self._placed[me].update((call.subscription, each) for each, _ in call.begin.position)
            self._note_brought(me, machine, event.client, call)
        self._note_facts(me, machine)
        self._note_news(me, machine)
        self._note_told(me, machine)
        if self._early[me]:
            self._early[me] = [
                each for each in self._early[me] if not self._is_over(me, machine, each)
            ]

    # --- what is known -----------------------------------------------------------------------

    def _note_facts(self, me: BrokerId, machine: Broker) -> None:
        if not machine.pubends.hosted:
            return
        edges = machine.tables.holdings.edges.values()
        looked = (len(machine.pubends.hosted), *[edge.revision for edge in edges])
        if self._looked.get(me) == looked:
            return
        self._looked[me] = looked
        for pubend, hosted in machine.pubends.hosted.items():
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

    def _note_told(self, me: BrokerId, machine: Broker) -> None:
        if self._telling:
            for name, subscription in machine.host.subscriptions.items():
                if subscription.client in self._telling:
                    newest = subscription.newest
                    self._told[me][name] = _Told(_form(subscription), newest.text, newest.owed_from)
                    brought = self._brought[me].get(name)
                    if brought is not None and brought.text != newest.text:
                        del self._brought[me][name]  # its filter was changed since it came
            self._telling.clear()

    def _note_brought(self, me: BrokerId, machine: Broker, client: str, call: Subscribe) -> None:
        """Note what a client brings to a new home, and look at the pubends that are known there."""
        subscription = machine.host.subscriptions.get(call.subscription)
        if subscription is None or subscription.client != client or call.home is None:
            return
        if call.owed is None or call.home.broker == me or call.home.epoch >= subscription.epoch:
            return
        form = _form(subscription)
        text = subscription.newest.text
        self._brought[me][call.subscription] = _Brought(form, text, call.owed)
        for pubend, offer in machine.host._offers.items():
            needed = self._needed_elsewhere(me, subscription, pubend)
            strand = subscription.strands.get(pubend)
            is_begun = strand is not None and strand.base is not None
            could_match = subscription.newest.filter.intersects(offer.advertisement)
            if needed and could_match and not is_begun and self._is_checked(subscription, pubend):
                self._early[me].append(_Early(call.subscription, form, pubend, needed))

    def _is_checked(self, subscription: Subscription, pubend: PubendId) -> bool:
        latest = subscription.begin.on(pubend) is BeginKind.LATEST
        return latest and subscription.order is Order.PUBLISHER

    def _needed_elsewhere(
        self, me: BrokerId, subscription: Subscription, pubend: PubendId
    ) -> tuple[Moment, ...]:
        """Return the moments of former homes by which it is owed a pubend.

        One that a home has heard of may have advertised more since: what was known before is forgotten.
        """
        brought = self._brought[me].get(subscription.name)
        if brought is None or brought.form != _form(subscription):
            return ()
        moments = dict(brought.owed.others).get(pubend, brought.owed.since)
        widens = self.world.options.widen_rate > 0
        return tuple(
            each
            for each in moments
            if not widens or pubend not in self._heard.get(each.host.broker, ())
        )

    def _note_news(self, me: BrokerId, machine: Broker) -> None:
        """Note who was told before, if there is a pubend that this broker has never heard of."""
        offers, heard = machine.host._offers, self._heard[me]
        if len(offers) <= len(heard) and heard.issuperset(offers):
            return
        for pubend in [each for each in offers if each not in heard]:
            heard.add(pubend)
            for name, subscription in machine.host.subscriptions.items():
                told = self._told[me].get(name)
                if told is None or told.form != _form(subscription):
                    continue
                could_match = self.truth.filter(told.text).intersects(offers[pubend].advertisement)
                if could_match and self._is_checked(subscription, pubend):
                    shb = ShbId(me, self.world.hosts[me].cell)
                    own = () if told.time is None else (Moment(shb, told.time),)
                    elsewhere = self._needed_elsewhere(me, subscription, pubend)
                    needed = (*own, *elsewhere)
                    self._early[me].append(_Early(name, told.form, pubend, needed))

    # --- what has begun ----------------------------------------------------------------------

    def _is_over(self, me: BrokerId, machine: Broker, early: _Early) -> bool:
        """Look at a subscription on a pubend; say whether there is nothing more to see."""
        name, form, pubend, needed = early
        subscription = machine.host.subscriptions.get(name)
        if subscription is None or _form(subscription) != form:
            return True
        if (name, pubend) in self._placed[me]:
            return True
        strand = subscription.strands.get(pubend)
        if strand is None:
            return pubend in machine.host._offers  # else it has yet to be heard of, after a crash
        if strand.base is None:
            return False
        self._check(me, strand, strand.base, needed)
        return True

    def _check(self, me: BrokerId, strand: Strand, base: Tick, needed: tuple[Moment, ...]) -> None:
        for moment in needed:
            self._check_since(me, strand, base, moment)

    def _check_since(self, me: BrokerId, strand: Strand, base: Tick, moment: Moment) -> None:
        stream, segment = self.truth.streams[strand.pubend], strand.segment
        for fact in self._facts.get(strand.pubend, {}).get(moment.host, ()):
            if fact.time < moment.time:
                continue
            high = base if fact.until is None else min(base, fact.until)
            for place in range(stream.after(fact.after), stream.after(high)):
                if self.truth.matches(stream, segment.text, place):
                    self.world.violate(
                        "R46",
                        f"{me}: {strand.subscription.name} begins on {stream.pubend} after {base}, "
                        f"but {stream.ticks[place]} came when its news was there, since {fact}",
                    )
                    return


def _form(subscription: Subscription) -> Subscription | str:
    return f"{subscription.birth}/{subscription.epoch}" if subscription.durable else subscription
