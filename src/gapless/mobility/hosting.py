"""Where durable subscriptions live that have moved (MV-13, MV-14, MV-16).

Told like an announcement: to everybody, and again at the start of every session. The old home may be
down for days; whoever meets it first when it comes back tells it. Others forget a move after
``tombstone_ttl_s``, so the home tells it anew well before that, for as long as it lives, also when the
subscription has ended: else an old home that is far away and was down for longer would never hear of it.
"""

from __future__ import annotations

from typing import Final

from gapless.core.ids import BrokerId
from gapless.core.limits import HOSTING_BROKERS_MAX
from gapless.core.machine import Context
from gapless.core.parameters import microseconds
from gapless.messages.clients import HostingReference, RefusalCause
from gapless.messages.mobility import Superseded
from gapless.overlay.sessions import PeerSessions
from gapless.subscribers import SubscriberCalls
from gapless.subscribers.cursor_state import CursorPhase
from gapless.subscribers.subscription import HostedSubscription

__all__ = ["HostingBrokers"]

_REPEATS_PER_TTL: Final = 4
"""How often a home says where a subscription is before others forget it."""


class HostingBrokers:
    """The moves that this broker has heard of, its own among them."""

    def __init__(self, context: Context, sessions: PeerSessions, calls: SubscriberCalls) -> None:
        self._context = context
        self._sessions = sessions
        self._calls = calls
        self._moves: dict[str, tuple[Superseded, int]] = {}
        """The last move of each subscription, by its birth, and when it was heard last; oldest first."""
        self._ttl_us = microseconds(s=context.parameters.tombstone_ttl_s)
        self._every_us = microseconds(ms=context.parameters.ack_ms)
        calls.hosting = self
        context.call_later(self._every_us, self._review)

    # --- what is asked -------------------------------------------------------------------------

    def newer_hosting(self, hosting: HostingReference) -> HostingReference | None:
        """Return where a subscription lives, if it has moved on since its client was told (MV-16)."""
        found, _ = self._moves.get(hosting.incarnation_key, (None, 0))
        if found is None or found.broker == self._context.identity.broker:
            return None
        newer = found.rank > (hosting.epoch, hosting.broker)
        return HostingReference(found.incarnation_key, found.epoch, found.broker) if newer else None

    def forget_moved(self, subscription: HostedSubscription) -> None:
        """A subscription that had moved here is over, so it is where it was before (MV-14)."""
        self._claim(subscription)

    def end_remote(self, hosting: HostingReference) -> None:
        """A client ends a subscription that does not live here: who has it lets it go (MV-14)."""
        held, _ = self._moves.get(hosting.incarnation_key, (None, 0))
        last = hosting.epoch if held is None else max(held.epoch, hosting.epoch)
        me = self._context.identity.broker
        self._store(Superseded(hosting.incarnation_key, last + 1, me, self._context.clock), None)

    # --- what is heard -------------------------------------------------------------------------

    def session_opened(self, peer: BrokerId) -> None:
        """Tell a peer what it may have missed."""
        for move, _ in self._moves.values():
            self._context.send(peer, move)

    def received(self, peer: BrokerId, move: Superseded) -> None:
        """Take the news of a move, pass it on, and let go what has moved away from here."""
        held, _ = self._moves.get(move.incarnation_key, (None, 0))
        if held is not None and (held.rank, held.sent_at) >= (move.rank, move.sent_at):
            if held.rank > move.rank and held.broker == self._context.identity.broker:
                self._context.send(peer, held)  # who told it has not heard that it is here
            return
        self._store(move, peer)
        for subscription in self._subscriptions_with_key(move.incarnation_key):
            if move.broker == self._context.identity.broker:
                # a crash took back what was told already: that it had come here again
                subscription.epoch = max(subscription.epoch, move.epoch)
                subscription.dirty = True
            elif (subscription.epoch, self._context.identity.broker) < move.rank:
                self._let_go(subscription, move)

    def _subscriptions_with_key(self, incarnation_key: str) -> list[HostedSubscription]:
        return [each for each in self._calls.durable() if each.incarnation_key == incarnation_key]

    def _let_go(self, subscription: HostedSubscription, move: Superseded) -> None:
        self._context.mark("subscription moved away")
        reason = f"the subscription {subscription.name!r} has moved to {move.broker}"
        subscription.notify_ended(
            reason,
            RefusalCause.WRONG_BROKER,
            HostingReference(move.incarnation_key, move.epoch, move.broker),
        )
        self._calls.end(subscription)

    # --- what is told --------------------------------------------------------------------------

    def _review(self) -> None:
        """Say of subscriptions that came here that they live here, once their logs are kept.

        Say it again while others may remember it, and forget what nobody says any more.
        """
        self._context.call_later(self._every_us, self._review)
        now = self._context.now
        for incarnation_key, (move, since) in [*self._moves.items()]:
            if move.broker == self._context.identity.broker:
                if now - since >= self._ttl_us // _REPEATS_PER_TTL:
                    again = Superseded(
                        incarnation_key, move.epoch, move.broker, self._context.clock
                    )
                    self._store(again, None)
            elif now - since >= self._ttl_us:
                del self._moves[incarnation_key]
        for subscription in self._calls.durable():
            if subscription.epoch and subscription.is_on_disk and self._retains_logs(subscription):
                self._claim(subscription)

    def _retains_logs(self, subscription: HostedSubscription) -> bool:
        """Say whether this broker keeps all logs that the subscription needs.

        Also of pubends that it knows and is owed by moments of former homes: those may keep them for it. For one that
        is abandoned nobody waits (R26). Should it be back, its rows of former homes are still there.
        """
        abandoned, cursors = subscription.host.abandonment, subscription.cursors
        positioned = {pubend for pubend, _ in subscription.start.position}
        # one that this broker has not heard of may never come, and may not concern the subscription at all
        guaranteed = {
            each
            for each, guarantee in subscription.guarantees.items()
            if guarantee.former_host_times and each in cursors
        }
        started = {
            pubend for pubend, each in cursors.items() if each.phase is not CursorPhase.PENDING
        }
        return all(
            pubend in abandoned or (pubend in cursors and cursors[pubend].is_resumable)
            for pubend in positioned | guaranteed | started
        )

    def _claim(self, subscription: HostedSubscription) -> None:
        me = self._context.identity.broker
        held, _ = self._moves.get(subscription.incarnation_key, (None, 0))
        move = Superseded(subscription.incarnation_key, subscription.epoch, me, self._context.clock)
        if held is None or held.rank < move.rank:
            self._store(move, None)

    def _store(self, move: Superseded, source: BrokerId | None) -> None:
        self._moves.pop(move.incarnation_key, None)
        self._moves[move.incarnation_key] = (move, self._context.now)
        if len(self._moves) > HOSTING_BROKERS_MAX:
            del self._moves[next(iter(self._moves))]
        for peer in self._sessions.open_peers():
            if peer != source:
                self._context.send(peer, move)
