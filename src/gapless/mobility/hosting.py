"""The hosting brokers of durable subscriptions that have moved (MV-13, MV-14, MV-16).

A claim is flooded like an announcement: to every broker, and again at every session start. The
former hosting broker may be down for days; when it returns, its first peer sends it the claim.
Other brokers forget a claim after ``tombstone_ttl_s``. So the hosting broker repeats the claim
before that, as long as it runs, also after the subscription has ended. Otherwise a distant former
hosting broker that was down for longer would never receive it.
"""

from __future__ import annotations

from typing import Final

from gapless.core.context import Context
from gapless.core.ids import BrokerId
from gapless.core.limits import HOSTING_BROKERS_MAX
from gapless.core.numbers import next_epoch
from gapless.core.parameters import microseconds
from gapless.messages.clients import HostingReference, RefusalCause
from gapless.messages.mobility import Superseded
from gapless.mobility.protocols import HostedSubscriptions
from gapless.overlay.peers import Peers
from gapless.subscribers.subscription import HostedSubscription

__all__ = ["HostingBrokers"]

_REPEATS_PER_TTL: Final = 4
"""How often a hosting broker repeats a claim in ``tombstone_ttl_s``."""


class HostingBrokers:
    """The claims that this broker knows, including its own."""

    def __init__(self, context: Context, peers: Peers, registry: HostedSubscriptions) -> None:
        self._context = context
        self._peers = peers
        self._registry = registry
        self._moves: dict[str, tuple[Superseded, int]] = {}
        """The newest claim of each subscription, by incarnation key, and when it was last received
        or sent; oldest first."""
        self._ttl_us = microseconds(s=context.parameters.tombstone_ttl_s)
        self._every_us = microseconds(ms=context.parameters.ack_ms)

    def start(self) -> None:
        """Start the periodic review of claims."""
        self._context.call_later(self._every_us, self._review)

    def claim_of(self, incarnation_key: str) -> Superseded | None:
        """Return the newest known claim of a subscription."""
        found, _ = self._moves.get(incarnation_key, (None, 0))
        return found

    # --- requests of clients -------------------------------------------------------------------

    def newer_hosting(self, hosting: HostingReference) -> HostingReference | None:
        """Return the newer reference if the subscription has moved since the client's (MV-16)."""
        found, _ = self._moves.get(hosting.incarnation_key, (None, 0))
        if found is None or found.broker == self._context.identity.broker:
            return None
        newer = found.rank > (hosting.epoch, hosting.broker)
        return HostingReference(found.incarnation_key, found.epoch, found.broker) if newer else None

    def forget_moved(self, subscription: HostedSubscription) -> None:
        """A subscription that moved here has ended: former hosting brokers end it (MV-14)."""
        self._claim(subscription)

    def end_remote(self, hosting: HostingReference) -> None:
        """End a subscription that other brokers host, with a claim of a greater epoch (MV-14)."""
        held, _ = self._moves.get(hosting.incarnation_key, (None, 0))
        last = hosting.epoch if held is None else max(held.epoch, hosting.epoch)
        me = self._context.identity.broker
        epoch = next_epoch(last)
        self._store(Superseded(hosting.incarnation_key, epoch, me, self._context.clock), None)

    # --- claims of other brokers ---------------------------------------------------------------

    def session_opened(self, peer: BrokerId) -> None:
        """Send a peer all claims: it may have missed some."""
        for move, _ in self._moves.values():
            self._context.send(peer, move)

    def received(self, peer: BrokerId, move: Superseded) -> None:
        """Store a claim, pass it on, and end a subscription that has moved away from here."""
        held, _ = self._moves.get(move.incarnation_key, (None, 0))
        if held is not None and (held.rank, held.sent_at) >= (move.rank, move.sent_at):
            if held.rank > move.rank and held.broker == self._context.identity.broker:
                self._context.send(peer, held)  # the peer has not received the claim of this broker
            return
        self._store(move, peer)
        for subscription in self._subscriptions_with_key(move.incarnation_key):
            if move.broker == self._context.identity.broker:
                # a crash lost the epoch of a return to this broker that was already claimed
                subscription.raise_epoch(move.epoch)
            elif (subscription.epoch, self._context.identity.broker) < move.rank:
                self._let_go(subscription, move)

    def _subscriptions_with_key(self, incarnation_key: str) -> list[HostedSubscription]:
        return [
            each for each in self._registry.durable() if each.incarnation_key == incarnation_key
        ]

    def _let_go(self, subscription: HostedSubscription, move: Superseded) -> None:
        self._context.mark("subscription moved away")
        reason = f"the subscription {subscription.name!r} has moved to {move.broker}"
        subscription.reply.send_ended(
            reason,
            RefusalCause.WRONG_BROKER,
            HostingReference(move.incarnation_key, move.epoch, move.broker),
        )
        self._registry.end(subscription)

    # --- claims of this broker -----------------------------------------------------------------

    def _review(self) -> None:
        """Claim subscriptions that moved here once their logs are kept.

        Repeat own claims in time, and forget claims of others that are not repeated.
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
        for subscription in self._registry.durable():
            if not subscription.epoch or not subscription.is_on_disk:
                continue
            if subscription.cursor_set.retains_logs:
                self._claim(subscription)

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
        for peer in self._peers.open_peers():
            if peer != source:
                self._context.send(peer, move)
