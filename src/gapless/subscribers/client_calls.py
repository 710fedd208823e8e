"""What subscribers ask of their host: to subscribe, resume, seek, acknowledge, end (R46, R50).

A durable subscription belongs to its name. Whoever subscribes under that name takes it over: the
connection before it, which may be dead without anybody knowing, gets nothing more. Whatever comes
late from it is refused or ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from gapless.content.filter import Filter
from gapless.core.errors import FilterError
from gapless.core.ids import PubendId
from gapless.core.limits import NAME_MAX
from gapless.core.parameters import us
from gapless.core.ticks import Tick
from gapless.messages.clients import (
    Ack,
    Begin,
    BeginKind,
    Cause,
    Credit,
    Home,
    Order,
    Refused,
    Seek,
    SetFilter,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from gapless.subscribers.cursor import Strand
from gapless.subscribers.cursor_state import State
from gapless.subscribers.host import SubscriberHost
from gapless.subscribers.start_guarantee import Early, fault_of
from gapless.subscribers.subscription import Answer, Subscription, Told

__all__ = ["NEGATIVE", "Calls", "Moves", "sought"]

NEGATIVE = "a position cannot be negative; 0 is before the first event"


class Moves(Protocol):
    """Who knows of subscriptions that have moved."""

    def elsewhere(self, home: Home) -> Home | None:
        """Return where a subscription lives, if it has moved on since its client was told."""

    def ended(self, subscription: Subscription) -> None:
        """A subscription that had moved here was ended by its client."""

    def ended_elsewhere(self, home: Home) -> None:
        """A subscription that lives elsewhere was ended here by its client."""


class _NoMoves:
    """Nothing moves."""

    def elsewhere(self, home: Home) -> Home | None:
        del home
        return None

    def ended(self, subscription: Subscription) -> None:
        """Nobody has it elsewhere."""

    def ended_elsewhere(self, home: Home) -> None:
        """Nobody has it elsewhere."""


class Calls:
    """The calls of all clients of a subscriber host."""

    def __init__(self, host: SubscriberHost) -> None:
        self._host = host
        self._context = host.context
        self._by_client: dict[str, dict[str, Subscription]] = {}
        self._arrivals: dict[str, int] = {}
        """In which order clients came."""
        self._arrived = 0
        self._made = 0
        self.moves: Moves = _NoMoves()
        self._handlers: dict[type, Callable[[str, Any], None]] = {
            Subscribe: self._subscribe,
            SetFilter: self._set_filter,
            Seek: self._seek,
            Ack: self._ack,
            Credit: self._credit,
            Unsubscribe: self._unsubscribe,
        }

    def asked(self, client: str, request: Any) -> bool:
        """Take a request of a client; False if it is not one of a subscriber."""
        handler = self._handlers.get(type(request))
        if handler is not None:
            handler(client, request)
        return handler is not None

    def _refuse(self, client: str, request: int, reason: str, cause: Cause = Cause.OTHER) -> None:
        self._context.tell(client, Refused(request, reason, cause))

    def _filter(self, client: str, request: int, text: str) -> Filter | None:
        """Return the filter of a text, or refuse the request and say why."""
        try:
            return Filter(text)
        except FilterError as error:
            self._refuse(client, request, str(error))
            return None

    def _owned(self, client: str, name: str) -> Subscription | None:
        """Return a subscription if the client is the one that has it now."""
        return self._by_client.get(client, {}).get(name)

    # --- subscribing ---------------------------------------------------------------------------

    def _subscribe(self, client: str, call: Subscribe) -> None:
        reason = self._fault_of(call)
        if reason is not None:
            self._refuse(client, call.request, reason)
            return
        found = self._host.subscriptions.get(call.subscription)
        home = None if call.home is None else self.moves.elsewhere(call.home)
        if home is not None:
            reason = f"the subscription {call.subscription!r} has moved to {home.broker}"
            refused = Refused(call.request, reason, Cause.ELSEWHERE, home.broker, home)
            self._context.tell(client, refused)
            return
        texts = (call.filter, *(each.filter for each in call.earlier))
        filters = [self._filter(client, call.request, text) for text in texts]
        wanted = filters[0]
        if wanted is None or None in filters:
            return
        if found is not None:
            if self._is_older(client, found):
                reason = _taken_over(call.subscription)
                self._refuse(client, call.request, reason, Cause.TAKEN_OVER)
                return
            self._tell_taken_over(found, client)
        if found is not None and found.durable and not _is_outdated(found, call, wanted):
            is_moved = call.home is not None and _is_behind(found, call.home)
            if call.home is not None and is_moved:
                self._come_home(found, call, call.home)
                is_moved = call.home.broker != self._context.identity.broker
            self.disconnect(found)
            self._connect(found, client, call, exactly=is_moved)
            return
        if found is None:
            self._begin(client, call, wanted)
        else:
            self._begin_anew(found, client, call, wanted)

    def _begin_anew(
        self, found: Subscription, client: str, call: Subscribe, wanted: Filter
    ) -> None:
        """Make a subscription in the place of one of its name.

        On disk its record takes the place of the other: a crash between two writes would leave nothing.
        """
        let_go = self._host.keep_for(found)
        told, early = found.told, self._host.owed_of(found)
        self._take_down(found)
        self._begin(client, call, wanted, told, early)
        self._context.write((), let_go)

    def _fault_of(self, call: Subscribe) -> str | None:
        found = self._host.subscriptions.get(call.subscription)
        if not 0 < len(call.subscription) <= NAME_MAX:
            return f"a subscription's name has 1 to {NAME_MAX} characters"
        places = (call.begin.position, call.acked, *(each.ends for each in call.earlier))
        if any(tick < 0 for position in places for _, tick in position):
            return NEGATIVE
        most = self._context.parameters.segments_max
        if len(call.earlier) > most:
            return f"{len(call.earlier)} earlier filters are too many; {most} may be (segments_max)"
        if call.begin.others is BeginKind.POSITION:
            return "a beginning needs another way for streams of which it names no place"
        if call.owed is not None and (fault := fault_of(call.owed)) is not None:
            return fault
        if call.credit < 0:
            return f"credit cannot be negative ({call.credit})"
        if found is not None and found.durable != call.durable:
            kind = "durable" if found.durable else "not durable"
            return f"there is a subscription {call.subscription!r} that is {kind}; end it first"
        if found is not None and call.home is not None and found.birth != call.home.birth:
            return (
                f"this broker has another subscription {call.subscription!r}; "
                "end it, or take another name"
            )
        return None

    def _begin(
        self,
        client: str,
        call: Subscribe,
        wanted: Filter,
        told: Told | None = None,
        early: Mapping[PubendId, Early] | None = None,
    ) -> None:
        """Make a subscription; a durable one counts from when it is on disk (R46).

        What its client was ``told`` of an old form of it, and what that was owed, goes over to it.
        """
        host = self._host
        made = Subscription(
            host,
            call.subscription,
            durable=call.durable,
            order=call.order,
            begin=_kept_from(call),
            expiry_s=call.expiry_s,
        )
        host.subscriptions[made.name] = made
        if made.durable:
            made.birth, made.epoch = self._origin(call.home)
        if call.home is not None:
            self._bring(made, call)
            placed = dict(call.begin.position)
            made.acked_elsewhere = {each: tick for each, tick in call.acked if each in placed}
        host.own(host.make_segment(made, wanted))
        if made.durable and call.home is not None and call.owed is not None:
            host.owe(made, call.owed)
        if made.durable and early is not None:
            host.owe_as_before(made, told, early)
        if made.order is Order.TOTAL and call.begin.kind is BeginKind.POSITION:
            # before it has strands: none begins below what its client has merged (R51)
            made.merged = _merged(call.begin, dict(call.begin.position))
        self._connect(made, client, call)
        if made.durable:
            host.save(made, lambda: self._is_stored(made))
        else:
            host.look_at_all(made)

    def _come_home(self, found: Subscription, call: Subscribe, home: Home) -> None:
        """Go on with a subscription that was here before, moved, and is here again.

        Meanwhile its client may have come to pubends of which this host has not heard, or to which it
        came later. There it goes on from its place, with what it has not acknowledged. When that is on
        disk it is answered, and this is its home: after a crash before that its client brings it all again.
        """

        def returned() -> None:
            found.returning -= 1
            self._host.touch(found)

        if home.broker != self._context.identity.broker:
            if call.begin.kind is BeginKind.POSITION:
                self._bring_places(found, call)
            if call.owed is not None:
                placed = {pubend for pubend, _ in (*call.begin.position, *call.acked)}
                self._host.owe(found, call.owed, placed)
        found.seeks = max(found.seeks, call.seeks)
        found.epoch = home.epoch + 1
        found.returning += 1
        self._host.save(found, returned)

    def _bring_places(self, found: Subscription, call: Subscribe) -> None:
        earlier = zip(found.segments[:-1], call.earlier, strict=True)  # it is not outdated
        found.brought = [(segment, dict(each.ends)) for segment, each in earlier]
        self.disconnect(found)
        for pubend, tick in _kept_from(call).position:
            self._host.place(found, pubend, tick, seeks=call.seeks)
        found.brought = []
        for pubend, tick in call.acked:
            strand = found.strands.get(pubend)
            if strand is not None and strand.base is not None and strand.sought <= call.seeks:
                strand.acked = max(strand.acked, tick)

    def _bring(self, made: Subscription, call: Subscribe) -> None:
        """Take over what a subscription was told and asked for where it lived before."""
        made.seeks = call.seeks
        for each in call.earlier:
            segment = self._host.make_segment(made, Filter(each.filter))
            segment.owed_from = self._host.leaf.time
            made.brought.append((segment, dict(each.ends)))

    def _origin(self, home: Home | None) -> tuple[str, int]:
        """Return which subscription is made: a new one, or one that has moved here by force (MV-13)."""
        if home is not None:
            self._context.mark("subscription moved here")
            return home.birth, home.epoch + 1
        self._made += 1
        identity = self._context.identity
        return f"{identity.broker}/{identity.life}/{self._made}", 0

    def durable(self) -> list[Subscription]:
        """Return the durable subscriptions of this host."""
        return [each for each in self._host.subscriptions.values() if each.durable]

    def _is_stored(self, subscription: Subscription) -> None:
        if subscription.ended:
            return
        self._host.look_at_all(subscription)
        if subscription.answer is not None:
            # its client may be beyond what it has acknowledged, or below
            answer = subscription.answer
            self._resume_strands(subscription, answer.begin, answer.seeks, exactly=True)
        self._host.touch(subscription)

    def _connect(
        self, subscription: Subscription, client: str, call: Subscribe, *, exactly: bool = False
    ) -> None:
        """Give a subscription to a client and go on from where that is (R50)."""
        host = self._host
        subscription.client = client
        subscription.credit = call.credit
        self._by_client.setdefault(client, {})[subscription.name] = subscription
        if subscription.linger is not None:
            subscription.linger.cancel()
            subscription.linger = None
        host.own(subscription.newest)
        wait = us(ms=self._context.parameters.attach_timeout_ms)
        timer = self._context.after(wait, subscription.give_answer)
        subscription.answer = Answer(call.request, call.begin, call.seeks, timer)
        if subscription.stored:
            # a crash may have come between the record and the strands that it gives places to
            host.look_at_all(subscription)
        self._resume_strands(subscription, call.begin, call.seeks, exactly=exactly)
        host.touch(subscription)

    def _resume_strands(
        self, subscription: Subscription, begin: Begin, seeks: int, *, exactly: bool
    ) -> None:
        """Go on where the client is; ``exactly`` there, also below what it has acknowledged.

        One that comes from elsewhere may have been sought back: what lies between is governed by the
        filters that it brings, which are let go of where that is passed over.
        """
        position = dict(begin.position) if begin.kind is BeginKind.POSITION else {}
        for pubend in [*position]:
            strand = subscription.strands.get(pubend)
            if strand is not None and strand.sought > seeks:
                # from before an operator's seek, which it would undo
                self._context.mark("position from before a seek")
                del position[pubend]
        total = subscription.order is Order.TOTAL
        if total:
            subscription.merged = max(subscription.merged, _merged(begin, position))
        knows = begin.kind is BeginKind.POSITION
        for pubend, strand in subscription.strands.items():
            strand.told_base = False
            own = position.get(pubend)
            if strand.state is not State.WAITING:
                # a client that was never told of a strand gets it above what it has merged
                untold = total and knows and own is None and strand.untold
                own = subscription.merged if untold else own
                strand.resume(own, exactly=exactly)
            elif own is not None:
                strand.begin_in_past(own)
            else:
                strand.become(State.WAITING)
            strand.subend.review_eager()
            is_passed = pubend in begin.passed
            self._host.abandonment.review(strand, placed=own is not None, passed=is_passed)

    def _is_older(self, client: str, subscription: Subscription) -> bool:
        """Say whether a newer connection than this one has a subscription: it asks too late."""
        owner = self._arrivals.get(subscription.client or "", 0)
        return owner > self._arrivals.get(client, 0)

    def _tell_taken_over(self, subscription: Subscription, client: str) -> None:
        if subscription.client not in {client, None}:
            subscription.dismiss(_taken_over(subscription.name))

    # --- going ---------------------------------------------------------------------------------

    def client_up(self, client: str) -> None:
        """A client is there; what comes from one that was there before it is older."""
        self._arrived += 1
        self._arrivals[client] = self._arrived

    def client_down(self, client: str) -> None:
        """A client is gone."""
        self._arrivals.pop(client, None)
        self._host.go_on(client)
        for subscription in [*self._by_client.get(client, {}).values()]:
            self.disconnect(subscription)
        self._by_client.pop(client, None)

    def disconnect(self, subscription: Subscription) -> None:
        """Part a subscription from its client; one that is not durable ends (R50)."""
        client = subscription.client
        if client is None:
            return
        self._by_client.get(client, {}).pop(subscription.name, None)
        if not subscription.durable:
            self.end(subscription)
            return
        subscription.forget_client()
        subscription.away_since = self._context.now
        for strand in subscription.strands.values():
            strand.leave()
            strand.subend.review_eager()
        subscription.review_segments()
        subscription.dirty = True
        self.linger(subscription)

    def linger(self, subscription: Subscription) -> None:
        """Keep the filter of an absent client in the tables for a while (R17)."""

        def gone() -> None:
            subscription.linger = None
            if subscription.client is None and not subscription.ended:
                self._host.disown(subscription.newest)

        delay = us(s=self._context.parameters.linger_s)
        subscription.linger = self._context.after(delay, gone)

    def _unsubscribe(self, client: str, call: Unsubscribe) -> None:
        found, home = self._host.subscriptions.get(call.subscription), call.home
        if found is not None and home is not None and found.birth != home.birth:
            found = None  # another one of that name
        if found is not None and self._is_older(client, found):
            self._refuse(client, call.request, _not_yours(call.subscription))
            return
        if found is not None:
            self.end(found)
            if found.epoch:
                self.moves.ended(found)
        if home is not None and self._lives_elsewhere(found, home):
            self.moves.ended_elsewhere(home)
        # also if there is none: it may have been ended by a call whose answer was lost
        self._context.write((), lambda: self._context.tell(client, Unsubscribed(call.request)))

    def _lives_elsewhere(self, found: Subscription | None, home: Home) -> bool:
        """Say whether a subscription is, by what its client knows, not only here."""
        if found is not None:
            return _is_behind(found, home)
        here = self._context.identity.broker
        return home.broker != here or self.moves.elsewhere(home) is not None

    def expire(self) -> None:
        """End durable subscriptions whose clients have not come back in time."""
        for subscription in [*self._host.subscriptions.values()]:
            away = self._context.now - subscription.away_since
            if subscription.client is None and away > us(s=subscription.expiry_s):
                self._context.mark("durable subscription expired")
                self.end(subscription)

    def end(self, subscription: Subscription) -> None:
        """End a subscription, on disk too; until it is gone from there, the log is kept for it (I10)."""
        if subscription.durable:
            self._host.erase(subscription)
        self._take_down(subscription)

    def _take_down(self, subscription: Subscription) -> None:
        host = self._host
        if subscription.client is not None:
            self._by_client.get(subscription.client, {}).pop(subscription.name, None)
        subscription.forget_client()
        subscription.refuse_changes(f"the subscription {subscription.name!r} has ended")
        subscription.ended = True
        if subscription.linger is not None:
            subscription.linger.cancel()
        for strand in [*subscription.strands.values()]:
            host.drop_strand(strand)
            strand.subend.review_eager()
        for segment in subscription.segments:
            host.disown(segment)
        del host.subscriptions[subscription.name]

    # --- while it lasts ------------------------------------------------------------------------

    def _credit(self, client: str, call: Credit) -> None:
        found = self._owned(client, call.subscription)
        if found is not None and call.events > 0:
            found.credit += call.events
            self._host.touch(found)

    def _ack(self, client: str, call: Ack) -> None:
        found = self._owned(client, call.subscription)
        if found is None or not found.durable:
            return
        for pubend, tick in call.position:
            strand = found.strands.get(pubend)
            if strand is None:
                continue
            if strand.sought and tick > max(strand.last_told, found.progress.noted(pubend)):
                self._context.mark("acknowledgement from before a seek")
                continue
            strand.acknowledge(tick)
            strand.sought = 0  # it acknowledges what it was sent since
        found.dirty = True

    def _seek(self, client: str, call: Seek) -> None:
        found = self._owned(client, call.subscription)
        if found is None:
            self._refuse(client, call.request, _not_yours(call.subscription))
            return
        if any(tick < 0 for _, tick in call.begin.position):
            self._refuse(client, call.request, NEGATIVE)
            return
        if found.answer is not None:
            # it has no strands yet that could be moved
            found.answer.later.append(lambda: self._seek(client, call))
            return
        found.merged = 0
        position = []
        for pubend, strand in found.strands.items():
            tick = sought(call.begin, strand)
            if tick is not None and strand.base is not None:
                strand.drifting.sought(tick)
                strand.stay()
                strand.seek(tick)
                position.append((pubend, tick))
        self._context.tell(client, Subscribed(call.request, tuple(position), seeks=found.seeks))
        self._host.touch(found)

    def _set_filter(self, client: str, call: SetFilter) -> None:
        found = self._host.subscriptions.get(call.subscription)
        if found is None or found.client not in {client, None}:
            self._refuse(client, call.request, _not_yours(call.subscription))
            return
        wanted = self._filter(client, call.request, call.filter)
        if wanted is not None:
            found.ask_for_change(client, call.request, wanted)


def sought(begin: Begin, strand: Strand) -> Tick | None:
    """Return after which tick a strand goes on; None if it stays where it is."""
    match begin.kind:
        case BeginKind.LATEST:
            return max(strand.subend.horizon or 0, strand.frontier)
        case BeginKind.POSITION:
            return dict(begin.position).get(strand.pubend)
        case BeginKind.EARLIEST:
            return 0
        case BeginKind.TIME:
            return max(0, begin.clock - 1)


def _is_outdated(found: Subscription, call: Subscribe, wanted: Filter) -> bool:
    """Say whether a subscription has not heard that it moved, and has filters of before that."""
    if call.home is None or not _is_behind(found, call.home):
        return False
    if call.home.broker == found.host.context.identity.broker:
        return False  # it was answered nowhere else since
    texts = [each.filter for each in call.earlier]
    return found.newest.filter != wanted or texts != [each.text for each in found.segments[:-1]]


def _is_behind(found: Subscription, home: Home) -> bool:
    """Say whether a client may have gone on elsewhere since it left this form of its subscription."""
    here = found.host.context.identity.broker
    return found.epoch < home.epoch or (found.epoch == home.epoch and home.broker != here)


def _kept_from(call: Subscribe) -> Begin:
    """Return from where on logs are kept for a new subscription: one that moves keeps what is owed.

    Its client may have seen more than it has acknowledged. Should it forget what it has seen, that
    comes again, as it would have at the old home.
    """
    if call.home is None or call.begin.kind is not BeginKind.POSITION:
        return call.begin
    acked = dict(call.acked)
    position = (
        (pubend, min(tick, acked.get(pubend, tick))) for pubend, tick in call.begin.position
    )
    return msgspec.structs.replace(call.begin, position=tuple(position))


def _merged(begin: Begin, position: dict[PubendId, Tick]) -> Tick:
    """Return what a client was given up to that brings some places, in total order."""
    farthest = max(position.values(), default=0)
    return farthest if begin.merged is None else min(max(begin.merged, 0), farthest)


def _taken_over(name: str) -> str:
    return f"the subscription {name!r} was taken over by a newer connection"


def _not_yours(name: str) -> str:
    return f"this connection has no subscription {name!r}; subscribe first"
