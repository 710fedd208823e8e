"""Walks: questions about durable subscriptions that pass over the whole tree.

:mod:`gapless.overlay.questions` passes questions on and waits for the answers. There are two
differences to name queries of pubends. A retired broker that has not returned is never asked,
however old its retirement: nobody else would ever answer for it. If no broker of a cell has an open
session, the cells behind it are asked directly as far as they are known; a dead cell then hides
nothing but itself. The brokers that did not answer are named.

A broker waits a little less than the one that asked it, so the brokers nearest to the silent one
name it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gapless.core.context import Context
from gapless.core.ids import BrokerId, CellId, ShbId
from gapless.core.limits import WALKS_MAX
from gapless.core.parameters import microseconds
from gapless.messages.mobility import CollectSubscriptions, FindSubscription, WalkKey
from gapless.messages.overlay import PathEpochs
from gapless.mobility.protocols import AwayBrokers
from gapless.overlay.neighbourhood import CellRecord
from gapless.overlay.peers import Peers
from gapless.overlay.questions import AskedGroup, Gathering, Questions
from gapless.overlay.tree import Tree, TreeChange

__all__ = ["Gathering", "Walks"]

_WAIT_SHARE: Final = (9, 10)
"""The share of its own waiting time that a broker gives to those behind it."""


class Walks:
    """The walks that pass through this broker: its own and those of others."""

    def __init__(
        self, context: Context, tree: Tree, peers: Peers, retirements: AwayBrokers
    ) -> None:
        self._context = context
        self._tree = tree
        self._peers = peers
        self._retirements = retirements
        self._questions = Questions(context, tree, peers, WALKS_MAX)

    @property
    def is_full(self) -> bool:
        """Whether no further walk is accepted now."""
        return self._questions.is_full

    def next_key(self) -> WalkKey:
        """Return the key of a new walk of this broker."""
        return WalkKey(*self._questions.next_key())

    def source_of(
        self, peer: BrokerId, asked: FindSubscription | CollectSubscriptions
    ) -> CellId | None:
        """Return the cell from which a peer has asked; None if the question is dropped."""
        is_looped = self._questions.is_looped(asked.key)
        return None if is_looped else self._tree.neighbourhood.cell_of(peer)

    def crosses_known_edges(self, source: CellId, epochs: PathEpochs) -> bool:
        """Return whether this broker knows the edges that a question from a cell has crossed."""
        return self._questions.crosses_known_edges(source, epochs)

    def join(self, kind: type, key: WalkKey, receiver: Callable[[Any], None]) -> bool:
        """Give the result of a walk to one more receiver; return whether it is under way."""
        return self._questions.join(kind, key, receiver)

    def begin(
        self,
        kind: type,
        key: WalkKey,
        ask: Callable[[int, PathEpochs], FindSubscription | CollectSubscriptions],
        wait_ms: int,
        gathering: Gathering,
        receiver: Callable[[Any], None],
        *,
        source: CellId | None,
    ) -> None:
        """Ask all other brokers, or all except those in the direction of a cell.

        ``ask`` returns the question with the time that those behind this broker may wait, and with
        the epochs of the edges that it crosses.
        """
        share, of = _WAIT_SHARE
        wait_ms = min(wait_ms, self._context.parameters.find_timeout_ms)
        self._questions.begin(
            kind,
            key,
            lambda epochs: ask(wait_ms * share // of, epochs),
            self._groups(source),
            gathering,
            receiver,
            microseconds(ms=wait_ms),
        )

    def stop(self, kind: type, key: WalkKey) -> None:
        """End a walk whose answers are not needed."""
        self._questions.stop(kind, key)

    # --- whom to ask ---------------------------------------------------------------------------

    def _groups(self, source: CellId | None) -> list[AskedGroup]:
        neighbourhood = self._tree.neighbourhood
        if source == neighbourhood.own:
            return []  # the peer asks all other brokers too
        origin = None if source is None else neighbourhood.direction(source)
        own = neighbourhood.own
        groups = [AskedGroup((peer,), own) for peer in self._living(neighbourhood.cells[0])]
        by_name = {cell.name: cell for cell in neighbourhood.cells}
        ahead = [each for each in neighbourhood.neighbours if each != origin]
        for name in ahead:
            cell = by_name.get(name)
            living = () if cell is None else self._living(cell)
            unknown_beyond = cell is None or any(each not in by_name for each in cell.neighbours)
            if self._peers.open_in(living):
                groups.append(AskedGroup(living, name))
                continue
            if living or unknown_beyond:
                groups.append(AskedGroup(living, name))
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

    # --- answers, sessions, the tree -----------------------------------------------------------

    def answer(self, peer: BrokerId, answer: Any) -> None:
        """Answer a peer, unless its session has closed: then it asks again."""
        self._questions.answer(peer, answer)

    def answered(self, kind: type, peer: BrokerId, answer: Any) -> None:
        """Take the answer of a peer for itself and for all brokers behind it."""
        self._questions.answered(kind, peer, answer)

    def session_opened(self) -> None:
        """Send the questions that could not be sent before."""
        self._questions.session_opened()

    def session_closed(self, peer: BrokerId) -> None:
        """Send the questions again whose answer may have been lost with the session."""
        self._questions.session_closed(peer)

    def reshape(self, change: TreeChange) -> None:
        """End the walks under way if edges of the own cell have changed (RS-15a)."""
        self._questions.reshape(change)
