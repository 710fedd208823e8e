"""Questions that pass over the tree to every broker of the overlay, and their answers (RS-15a).

Theory of operation
-------------------
A broker asks its cell peers and one broker of every neighbour cell. A broker that is asked from
another cell passes the question on likewise, away from that cell, and answers when all brokers
behind it have answered. A broker that is asked by a cell peer asks nobody, because the peer asks all
others itself. The component that asks chooses the groups of brokers of which one must answer for all
of them, and gathers the answers.

The tree may change meanwhile. A cell is missed if it moves from behind a broker that is still to be
asked to behind one that has answered. So a question carries the epochs of the edges that it crosses,
and a broker that knows others answers that the question must be asked anew. A step that changes
edges of the own cell ends all questions under way at a broker in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeAlias

from gapless.core.context import Context, Timer
from gapless.core.ids import BrokerId, CellId
from gapless.core.limits import SILENT_NAMED_MAX
from gapless.messages.overlay import PathEpochs
from gapless.overlay.neighbourhood import Neighbourhood
from gapless.overlay.path_epochs import epochs_to
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree, TreeChange

__all__ = ["AskedGroup", "Gathering", "QuestionKey", "Questions"]

QuestionKey: TypeAlias = tuple[BrokerId, int, int]
"""Identifies a question: its requester, the incarnation of that, and a number."""

Receiver: TypeAlias = Callable[[Any], None]
"""Called with the result of a question."""


class AskedGroup(NamedTuple):
    """Brokers of which one must answer for all of them."""

    members: tuple[BrokerId, ...]
    cell: CellId


class Gathering(Protocol):
    """What the answers to one question give."""

    @property
    def needs_all(self) -> bool:
        """Whether brokers without an open session are waited for too."""

    def take(self, answer: Any) -> bool:
        """Take the answer of a peer; return whether the other answers are not needed."""

    def tree_stepped(self) -> None:
        """The edges of the own cell have changed: the question must be asked anew."""

    def end(self, silent: tuple[BrokerId, ...]) -> Any:
        """Return the result. These brokers did not answer, or somebody did not reach them."""


class _UnderWay:
    """One question under way at this broker."""

    def __init__(
        self,
        kind: type,
        key: QuestionKey,
        ask: Callable[[PathEpochs], Any],
        groups: list[AskedGroup],
        gathering: Gathering,
        receiver: Receiver,
    ) -> None:
        self.id = kind, key
        self.gathering = gathering
        self.receivers = [receiver]
        """Several if brokers of one cell have passed on the same question."""
        self._ask = ask
        self._unsent = groups
        """The groups without an open session, or whose session closed before the answer."""
        self._awaited: dict[BrokerId, AskedGroup] = {}
        """The brokers that have not answered, each with its group."""
        self._timer: Timer | None = None

    @property
    def is_complete(self) -> bool:
        """Whether no answer is waited for."""
        return not self._awaited and not (self._unsent and self.gathering.needs_all)

    @property
    def silent(self) -> tuple[BrokerId, ...]:
        """The brokers that have not answered. A cell of nobody to ask is named itself."""
        unreached = (name for each in self._unsent for name in each.members or (each.cell,))
        return (*self._awaited, *unreached)[:SILENT_NAMED_MAX]

    def send(self, context: Context, peers: Peers, neighbourhood: Neighbourhood) -> None:
        """Send the question to one broker of each group that has an open session."""
        unsent, self._unsent = self._unsent, []
        for group in unsent:
            reached = [each for each in peers.open_in(group.members) if each not in self._awaited]
            if reached:
                self._awaited[reached[0]] = group
                epochs = epochs_to(neighbourhood, group.cell)
                context.send(reached[0], self._ask(epochs))
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

    def report_to(self, receiver: Receiver) -> None:
        """Give the result to one more receiver."""
        self.receivers.append(receiver)

    def end_at(self, timer: Timer) -> None:
        """Set the timer that ends the question."""
        self._timer = timer

    def stop_timer(self) -> None:
        """Cancel the timer, which would keep the answers in memory."""
        if self._timer is not None:
            self._timer.cancel()


class Questions:
    """The questions of one or several kinds that pass through this broker: its own and others'."""

    def __init__(self, context: Context, tree: Tree, peers: Peers, limit: int) -> None:
        self._context = context
        self._tree = tree
        self._peers = peers
        self._limit = limit
        self._under_way: dict[tuple[type, QuestionKey], _UnderWay] = {}
        """By the kind of the question and its key, which the broker that asks has chosen."""
        self._count = 0

    @property
    def count(self) -> int:
        """The number of questions under way."""
        return len(self._under_way)

    @property
    def is_full(self) -> bool:
        """Whether no further question is accepted now."""
        return len(self._under_way) >= self._limit

    def is_looped(self, key: QuestionKey) -> bool:
        """Return whether a question that was received has the name of this broker: it is dropped.

        No question returns to the broker that asked it, and another one could have its key.
        """
        is_own = key[0] == self._context.identity.broker
        if is_own:
            self._context.mark("own question returned")
        return is_own

    def crosses_known_edges(self, source: CellId, epochs: PathEpochs) -> bool:
        """Return whether this broker knows the edges that a question from a cell has crossed."""
        tree = self._tree.neighbourhood
        is_known = source in tree and epochs_to(tree, source) == epochs
        if not is_known:
            self._context.mark("question over an edge with another epoch")
        return is_known

    def next_key(self) -> QuestionKey:
        """Return the key of a new question of this broker."""
        identity = self._context.identity
        self._count += 1
        return identity.broker, identity.incarnation, self._count

    def gathering(self, kind: type, key: QuestionKey) -> Gathering | None:
        """Return what gathers the answers to a question, or None if it is not under way."""
        found = self._under_way.get((kind, key))
        return None if found is None else found.gathering

    def join(self, kind: type, key: QuestionKey, receiver: Receiver) -> bool:
        """Give the result of a question to one more receiver; return whether it is under way."""
        found = self._under_way.get((kind, key))
        if found is not None:
            found.report_to(receiver)
        return found is not None

    def begin(
        self,
        kind: type,
        key: QuestionKey,
        ask: Callable[[PathEpochs], Any],
        groups: Iterable[AskedGroup],
        gathering: Gathering,
        receiver: Receiver,
        wait_us: int,
    ) -> None:
        """Ask one broker of each group, and wait for the answers.

        ``ask`` returns the question with the epochs of the edges that it crosses.
        """
        asked = _UnderWay(kind, key, ask, [*groups], gathering, receiver)
        self._under_way[asked.id] = asked
        self._send(asked)
        if not self._end_if_complete(asked):
            asked.end_at(self._context.call_later(max(1, wait_us), lambda: self._time_out(asked)))

    def stop(self, kind: type, key: QuestionKey) -> None:
        """End a question whose answers are not needed."""
        asked = self._under_way.get((kind, key))
        if asked is not None:
            self._end(asked)

    # --- answers and the end -------------------------------------------------------------------

    def answer(self, peer: BrokerId, answer: Any) -> None:
        """Answer a peer, unless its session has closed: then it asks again."""
        if self._peers.is_open(peer):
            self._context.send(peer, answer)

    def answered(self, kind: type, peer: BrokerId, answer: Any) -> None:
        """Take the answer of a peer for itself and for all brokers behind it."""
        asked = self._under_way.get((kind, answer.key))
        if asked is None or not asked.answered(peer):
            return
        if asked.gathering.take(answer):
            self._end(asked)
        else:
            self._end_if_complete(asked)

    def _send(self, asked: _UnderWay) -> None:
        asked.send(self._context, self._peers, self._tree.neighbourhood)

    def _end_if_complete(self, asked: _UnderWay) -> bool:
        if not asked.is_complete:
            return False
        self._end(asked)
        return True

    def _time_out(self, asked: _UnderWay) -> None:
        if self._under_way.get(asked.id) is asked:
            self._context.mark("question to the overlay timed out")
            self._end(asked)

    def _end(self, asked: _UnderWay) -> None:
        del self._under_way[asked.id]
        asked.stop_timer()
        result = asked.gathering.end(asked.silent)
        for receiver in asked.receivers:
            receiver(result)

    # --- sessions and the tree -----------------------------------------------------------------

    def session_opened(self) -> None:
        """Send the questions that could not be sent before."""
        for asked in self._under_way.values():
            self._send(asked)

    def session_closed(self, peer: BrokerId) -> None:
        """Send the questions again whose answer may have been lost with the session."""
        for asked in [*self._under_way.values()]:
            if asked.session_closed(peer):
                self._send(asked)
                self._end_if_complete(asked)

    def reshape(self, change: TreeChange) -> None:
        """End all questions under way if edges of the own cell have changed."""
        if not change.changes_own_edges:
            return
        for asked in [*self._under_way.values()]:
            self._context.mark("question ended by a step of the tree")
            asked.gathering.tree_stepped()
            self._end(asked)
