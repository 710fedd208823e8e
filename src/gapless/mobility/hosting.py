"""Where durable subscriptions live that have moved (MV-13, MV-14, MV-16).

Told like an announcement: to everybody, and again at the start of every session. The old home may be
down for days; whoever meets it first when it comes back tells it. Others forget a move after
``tombstone_ttl_s``, so the home tells it anew well before that, for as long as it lives, also when the
subscription has ended: else an old home that is far away and was down for longer would never hear of it.
"""

from __future__ import annotations

from typing import Final

from gapless.core.ids import BrokerId
from gapless.core.limits import MOVES_MAX
from gapless.core.machine import Context
from gapless.core.parameters import us
from gapless.messages.clients import Cause, Home
from gapless.messages.mobility import Superseded
from gapless.overlay.sessions import Sessions
from gapless.subscribers import Calls
from gapless.subscribers.cursor_state import State
from gapless.subscribers.subscription import Subscription

__all__ = ["Homes"]

_TELLINGS: Final = 4
"""How often a home says where a subscription is before others forget it."""


class Homes:
    """The moves that this broker has heard of, its own among them."""

    def __init__(self, context: Context, sessions: Sessions, calls: Calls) -> None:
        self._context = context
        self._sessions = sessions
        self._calls = calls
        self._moves: dict[str, tuple[Superseded, int]] = {}
        """The last move of each subscription, by its birth, and when it was heard last; oldest first."""
        self._ttl_us = us(s=context.parameters.tombstone_ttl_s)
        self._every_us = us(ms=context.parameters.ack_ms)
        calls.moves = self
        context.after(self._every_us, self._review)

    # --- what is asked -------------------------------------------------------------------------

    def elsewhere(self, home: Home) -> Home | None:
        """Return where a subscription lives, if it has moved on since its client was told (MV-16)."""
        found, _ = self._moves.get(home.birth, (None, 0))
        if found is None or found.home == self._context.identity.broker:
            return None
        newer = found.rank > (home.epoch, home.broker)
        return Home(found.birth, found.epoch, found.home) if newer else None

    def ended(self, subscription: Subscription) -> None:
        """A subscription that had moved here is over, so it is where it was before (MV-14)."""
        self._claim(subscription)

    def ended_elsewhere(self, home: Home) -> None:
        """A client ends a subscription that does not live here: who has it lets it go (MV-14)."""
        held, _ = self._moves.get(home.birth, (None, 0))
        last = home.epoch if held is None else max(held.epoch, home.epoch)
        me = self._context.identity.broker
        self._store(Superseded(home.birth, last + 1, me, self._context.clock), None)

    # --- what is heard -------------------------------------------------------------------------

    def session_opened(self, peer: BrokerId) -> None:
        """Tell a peer what it may have missed."""
        for move, _ in self._moves.values():
            self._context.post(peer, move)

    def received(self, peer: BrokerId, move: Superseded) -> None:
        """Take the news of a move, pass it on, and let go what has moved away from here."""
        held, _ = self._moves.get(move.birth, (None, 0))
        if held is not None and (held.rank, held.told) >= (move.rank, move.told):
            if held.rank > move.rank and held.home == self._context.identity.broker:
                self._context.post(peer, held)  # who told it has not heard that it is here
            return
        self._store(move, peer)
        for subscription in self._born(move.birth):
            if move.home == self._context.identity.broker:
                # a crash took back what was told already: that it had come here again
                subscription.epoch = max(subscription.epoch, move.epoch)
                subscription.dirty = True
            elif (subscription.epoch, self._context.identity.broker) < move.rank:
                self._let_go(subscription, move)

    def _born(self, birth: str) -> list[Subscription]:
        return [each for each in self._calls.durable() if each.birth == birth]

    def _let_go(self, subscription: Subscription, move: Superseded) -> None:
        self._context.mark("subscription moved away")
        reason = f"the subscription {subscription.name!r} has moved to {move.home}"
        subscription.dismiss(reason, Cause.ELSEWHERE, Home(move.birth, move.epoch, move.home))
        self._calls.end(subscription)

    # --- what is told --------------------------------------------------------------------------

    def _review(self) -> None:
        """Say of subscriptions that came here that they live here, once their logs are kept.

        Say it again while others may remember it, and forget what nobody says any more.
        """
        self._context.after(self._every_us, self._review)
        now = self._context.now
        for birth, (move, since) in [*self._moves.items()]:
            if move.home == self._context.identity.broker:
                if now - since >= self._ttl_us // _TELLINGS:
                    again = Superseded(birth, move.epoch, move.home, self._context.clock)
                    self._store(again, None)
            elif now - since >= self._ttl_us:
                del self._moves[birth]
        for subscription in self._calls.durable():
            if subscription.epoch and subscription.is_on_disk and self._is_kept(subscription):
                self._claim(subscription)

    def _is_kept(self, subscription: Subscription) -> bool:
        """Say whether this broker keeps all logs that the subscription needs.

        Also of pubends that it knows and is owed by moments of former homes: those may keep them for it. For one that
        is abandoned nobody waits (R26). Should it be back, its rows of former homes are still there.
        """
        abandoned, strands = subscription.host.abandonment, subscription.strands
        placed = {pubend for pubend, _ in subscription.begin.position}
        # one that this broker has not heard of may never come, and may not concern the subscription at all
        owed = {
            each for each, early in subscription.early.items() if early.moments and each in strands
        }
        begun = {pubend for pubend, each in strands.items() if each.state is not State.WAITING}
        return all(
            pubend in abandoned or (pubend in strands and strands[pubend].settled)
            for pubend in placed | owed | begun
        )

    def _claim(self, subscription: Subscription) -> None:
        me = self._context.identity.broker
        held, _ = self._moves.get(subscription.birth, (None, 0))
        move = Superseded(subscription.birth, subscription.epoch, me, self._context.clock)
        if held is None or held.rank < move.rank:
            self._store(move, None)

    def _store(self, move: Superseded, source: BrokerId | None) -> None:
        self._moves.pop(move.birth, None)
        self._moves[move.birth] = (move, self._context.now)
        if len(self._moves) > MOVES_MAX:
            del self._moves[next(iter(self._moves))]
        for peer in self._sessions.open_peers():
            if peer != source:
                self._context.post(peer, move)
