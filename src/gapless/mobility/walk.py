"""Walks: questions that pass over the tree to every broker of the overlay, and their answers.

Theory of operation
-------------------
A broker asks its cell peers and one broker of every neighbour cell. A broker that is asked from
another cell passes the question on likewise, away from that cell, and answers when all brokers
behind it have answered. This is how the name query of pubends works
(:mod:`gapless.directory.name_query`). There are three differences. A retired broker that has not
returned is never asked, however old its retirement: nobody else would ever answer for it. If no
broker of a cell has an open session, the cells behind it are asked directly as far as they are
known; a dead cell then hides nothing but itself. And the brokers that did not answer are named.

A broker waits a little less than the one that asked it, so the brokers nearest to the silent one
name it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from gapless.core.context import Context, Timer
from gapless.core.ids import BrokerId, CellId, ShbId
from gapless.core.limits import SILENT_NAMED_MAX, WALKS_MAX
from gapless.core.parameters import microseconds
from gapless.messages.mobility import (
    CollectSubscriptions,
    FindSubscription,
    SubscriptionFound,
    SubscriptionsCollected,
    WalkKey,
)
from gapless.mobility.protocols import AwayBrokers
from gapless.overlay.neighbourhood import CellRecord
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree

__all__ = ["Gathering", "Walks"]

_QUESTIONS: Final[dict[type, type]] = {
    SubscriptionFound: FindSubscription,
    SubscriptionsCollected: CollectSubscriptions,
}
"""The question of each answer."""

_WAIT_SHARE: Final = (9, 10)
"""The share of its own waiting time that a broker gives to those behind it."""


class Gathering(Protocol):
    """What one walk gathers."""

    @property
    def needs_all(self) -> bool:
        """Whether brokers without an open session are waited for too."""

    def take(self, answer: Any) -> bool:
        """Take the answer of a peer; return whether the other answers are not needed."""

    def end(self, silent: tuple[BrokerId, ...]) -> None:
        """The walk has ended; these brokers did not answer, or somebody did not reach them."""


class _Group(NamedTuple):
    """Brokers of which one must answer for all of them."""

    members: tuple[BrokerId, ...]
    cell: CellId


class _Walk:
    """One walk at this broker."""

    def __init__(self, question: Any, groups: list[_Group], gathering: Gathering) -> None:
        self.question = question
        self.gathering = gathering
        self._unsent = groups
        """The groups without an open session, or whose session closed before the answer."""
        self._awaited: dict[BrokerId, _Group] = {}
        """The brokers that have not answered, each with its group."""
        self.timer: Timer | None = None

    @property
    def key(self) -> tuple[type, WalkKey]:
        """Identifies the walk at this broker."""
        return type(self.question), self.question.key

    @property
    def is_complete(self) -> bool:
        """Whether no answer is waited for."""
        return not self._awaited and not (self._unsent and self.gathering.needs_all)

    @property
    def silent(self) -> tuple[BrokerId, ...]:
        """The brokers that have not answered. A cell of nobody to ask is named itself."""
        unreached = (name for each in self._unsent for name in each.members or (each.cell,))
        return (*self._awaited, *unreached)[:SILENT_NAMED_MAX]

    def send(self, context: Context, peers: Peers) -> None:
        """Send the question to one broker of each group that has an open session."""
        unsent, self._unsent = self._unsent, []
        for group in unsent:
            reached = [each for each in peers.open_in(group.members) if each not in self._awaited]
            if reached:
                self._awaited[reached[0]] = group
                context.send(reached[0], self.question)
            else:
                self._unsent.append(group)

    def answered(self, peer: BrokerId) -> bool:
        """Note an answer; return whether one was outstanding."""
        return self._awaited.pop(peer, None) is not None

    def session_closed(self, peer: BrokerId) -> bool:
        """Mark the group of a peer as unsent; return whether its answer was outstanding."""
        group = self._awaited.pop(peer, None)
        if group is not None:
            self._unsent.append(group)
        return group is not None


class Walks:
    """The walks that pass through this broker: its own and those of others."""

    def __init__(
        self, context: Context, tree: Tree, peers: Peers, retirements: AwayBrokers
    ) -> None:
        self._context = context
        self._tree = tree
        self._peers = peers
        self._retirements = retirements
        self._walks: dict[tuple[type, WalkKey], _Walk] = {}
        """By the kind of the question and its key, which the broker that asks has chosen."""
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether no further walk is accepted now."""
        return len(self._walks) >= WALKS_MAX

    def is_looped(self, key: WalkKey) -> bool:
        """Return whether a question that was received has the name of this broker: it is dropped.

        No question returns to the broker that asked it, and another walk could have its key.
        """
        is_own = key.requester == self._context.identity.broker
        if is_own:
            self._context.mark("own question returned")
        return is_own

    def next_key(self) -> WalkKey:
        """Return the key of a new walk of this broker."""
        identity = self._context.identity
        self._count += 1
        return WalkKey(identity.broker, identity.incarnation, self._count)

    def begin(
        self,
        ask: Callable[[int], FindSubscription | CollectSubscriptions],
        wait_ms: int,
        gathering: Gathering,
        *,
        source: CellId | None,
    ) -> None:
        """Ask all other brokers, or all except those in the direction of a cell.

        ``ask`` returns the question with the time that those behind this broker may wait.
        """
        share, of = _WAIT_SHARE
        wait_ms = min(wait_ms, self._context.parameters.find_timeout_ms)
        question = ask(wait_ms * share // of)
        walk = _Walk(question, self._groups(source), gathering)
        self._walks[walk.key] = walk
        walk.send(self._context, self._peers)
        if not self._end_if_complete(walk):
            timeout_us = max(1, microseconds(ms=wait_ms))
            walk.timer = self._context.call_later(timeout_us, lambda: self._time_out(walk))

    def stop(self, kind: type, key: WalkKey) -> None:
        """End a walk whose answers are not needed."""
        walk = self._walks.get((kind, key))
        if walk is not None:
            self._end(walk)

    # --- whom to ask ---------------------------------------------------------------------------

    def _groups(self, source: CellId | None) -> list[_Group]:
        neighbourhood = self._tree.neighbourhood
        if source == neighbourhood.own:
            return []  # the peer asks all other brokers too
        origin = None if source is None else neighbourhood.direction(source)
        own = neighbourhood.own
        groups = [_Group((peer,), own) for peer in self._living(neighbourhood.cells[0])]
        by_name = {cell.name: cell for cell in neighbourhood.cells}
        ahead = [each for each in neighbourhood.neighbours if each != origin]
        for name in ahead:
            cell = by_name.get(name)
            living = () if cell is None else self._living(cell)
            unknown_beyond = cell is None or any(each not in by_name for each in cell.neighbours)
            if self._peers.open_in(living):
                groups.append(_Group(living, name))
                continue
            if living or unknown_beyond:
                groups.append(_Group(living, name))
            ahead += neighbourhood.beyond(name)
        return groups

    def _living(self, cell: CellRecord) -> tuple[BrokerId, ...]:
        """Return the other brokers of a cell, except retired ones that have not returned."""
        return tuple(
            broker
            for broker in cell.brokers
            if broker != self._context.identity.broker
            and (
                self._peers.is_open(broker)
                or not self._retirements.is_away(ShbId(broker, cell.name))
            )
        )

    # --- answers and the end -------------------------------------------------------------------

    def answer(self, peer: BrokerId, answer: Any) -> None:
        """Answer a peer, unless its session has closed: then it asks again."""
        if self._peers.is_open(peer):
            self._context.send(peer, answer)

    def answered(self, peer: BrokerId, answer: Any) -> None:
        """Take the answer of a peer for itself and for all brokers behind it."""
        walk = self._walks.get((_QUESTIONS[type(answer)], answer.key))
        if walk is None or not walk.answered(peer):
            return
        if walk.gathering.take(answer):
            self._end(walk)
        else:
            self._end_if_complete(walk)

    def _end_if_complete(self, walk: _Walk) -> bool:
        if not walk.is_complete:
            return False
        self._end(walk)
        return True

    def _time_out(self, walk: _Walk) -> None:
        if self._walks.get(walk.key) is walk:
            self._context.mark("walk over the tree timed out")
            self._end(walk)

    def _end(self, walk: _Walk) -> None:
        del self._walks[walk.key]
        if walk.timer is not None:
            walk.timer.cancel()  # it would keep the answers in memory
        walk.gathering.end(walk.silent)

    # --- sessions ------------------------------------------------------------------------------

    def session_opened(self) -> None:
        """Send the questions that could not be sent before."""
        for walk in self._walks.values():
            walk.send(self._context, self._peers)

    def session_closed(self, peer: BrokerId) -> None:
        """Send the questions again whose answer may have been lost with the session."""
        for walk in [*self._walks.values()]:
            if walk.session_closed(peer):
                walk.send(self._context, self._peers)
                self._end_if_complete(walk)
