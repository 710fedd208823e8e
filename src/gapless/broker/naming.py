"""Names of new pubends: the whole overlay is asked before one is given.

Two brokers that make a pubend of one name at the same time would make two logs with one identity, of
which everybody sees one; what the other one acknowledges would be lost. No broker knows all others. So
one that wants to make a pubend asks its peers, and a broker of every neighbour cell. That one asks its own
peers and the cells beyond in the same way, and answers when all have answered. A name is free if every
broker of the overlay says so.

Of two brokers that ask for one name at once each is asked by the other, and the one whose own name comes
first wins: it says *taken*, the other gives up. So not both can hear that the name is free.

Who is down or cut off does not answer, and may have a pubend of that name. Then nobody knows, and nobody
waits for long: the pubend is made all the same, with a number behind its name that no other broker gives and no
earlier life gave. An island can go on publishing so, and when it is joined again both streams are there.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

from gapless.core.ids import BrokerId, CellId, PubendId, ShbId
from gapless.core.limits import NAME_QUERIES_MAX
from gapless.core.machine import Identity
from gapless.core.parameters import microseconds
from gapless.messages.overlay import NameQuery, NameReply, NameStatus

if TYPE_CHECKING:
    from gapless.broker.entry import Broker

__all__ = ["PubendNaming", "Then", "numbered"]

FREE, TAKEN, UNKNOWN = NameStatus.FREE, NameStatus.TAKEN, NameStatus.UNKNOWN

_NUMBER_BYTES: Final = 6
"""Of the number behind a name: large enough to meet no other, and exact in every language."""

Then: TypeAlias = Callable[[NameStatus, BrokerId], None]
"""Who goes on with the answer: the verdict, and who has the name."""

NameQueryPeers: TypeAlias = tuple[BrokerId, ...]
"""Brokers of which one has to be asked."""


def numbered(name: str, identity: Identity) -> PubendId:
    """Return a pubend of that name that no other broker makes, and that no earlier life made."""
    text = f"{identity.broker}/{identity.incarnation}/{name}"
    digest = blake2b(text.encode(), digest_size=_NUMBER_BYTES).digest()
    return PubendId(name, 2 + int.from_bytes(digest))


class _PendingNameQuery:
    """A question that was asked on, until all have answered."""

    def __init__(self, query: NameQuery, groups: list[NameQueryPeers], then: Then) -> None:
        self.query = query
        self.unsent = groups
        """Of whom nobody is in reach, or who was asked and went away."""
        self.awaited: dict[BrokerId, NameQueryPeers] = {}
        """Who has not answered, each with those for whom it was asked."""
        self.verdict = FREE
        self.thens = [then]
        """Who wants to know: more than one, if another broker of the same cell asks the same."""


class PubendNaming:
    """The questions for names that are under way at this broker, its own and those of others."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._context = broker.context
        self._sessions = broker.sessions
        self._queries: dict[tuple[BrokerId, int, int], _PendingNameQuery] = {}
        self._own: dict[str, _PendingNameQuery] = {}
        """Those of this broker, by the name."""
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether no more questions are taken for a while."""
        return len(self._queries) >= NAME_QUERIES_MAX

    def is_querying(self, name: str) -> bool:
        """Say whether this broker asks for a name."""
        return name in self._own

    def query(self, name: str, then: Then) -> None:
        """Ask all others whether a name is free."""
        identity = self._context.identity
        self._count += 1
        query = NameQuery(name, identity.broker, identity.incarnation, self._count)
        pending = self._own[name] = _PendingNameQuery(query, self._groups(None), then)
        self._start(pending)

    def _groups(self, source: CellId | None) -> list[NameQueryPeers]:
        """Return who has to be asked by who was asked from a cell, or from nowhere."""
        neighbourhood = self._broker.neighbourhood
        if source == neighbourhood.own:
            return []  # the peer that asks has asked all others too
        groups: list[NameQueryPeers] = [(peer,) for peer in self._living(neighbourhood.own)]
        for cell in neighbourhood.neighbours:
            living = self._living(cell)
            if cell != source and (living or not neighbourhood.is_leaf(cell)):
                groups.append(living)
        return groups

    def _living(self, cell: CellId) -> NameQueryPeers:
        """Return the other brokers of a cell, without those that never return."""
        return tuple(
            broker
            for broker in self._broker.neighbourhood.brokers(cell)
            if broker != self._context.identity.broker
            and (
                self._sessions.is_open(broker)
                or not self._broker.retirements.is_recent(ShbId(broker, cell))
            )
        )

    def _start(self, pending: _PendingNameQuery) -> None:
        self._queries[pending.query.key] = pending
        self._send_query(pending)
        if not self._end_if_answered(pending):
            patience = max(1, microseconds(ms=self._context.parameters.name_query_timeout_ms))
            self._context.call_later(patience, lambda: self._give_up(pending))

    def _send_query(self, pending: _PendingNameQuery) -> None:
        """Ask those who were not asked, if they are in reach now."""
        unsent, pending.unsent = pending.unsent, []
        for group in unsent:
            reached = self._sessions.open_in(group)
            if reached:
                pending.awaited[reached[0]] = group
                self._context.send(reached[0], pending.query)
            else:
                pending.unsent.append(group)

    def _end_if_answered(self, pending: _PendingNameQuery) -> bool:
        """Go on if all have answered; say whether they have."""
        if pending.awaited or pending.unsent:
            return False
        self._end(pending, pending.verdict)
        return True

    def _give_up(self, pending: _PendingNameQuery) -> None:
        if self._queries.get(pending.query.key) is pending:
            self._context.mark("name query timed out")
            self._end(pending, UNKNOWN)

    def _end(self, pending: _PendingNameQuery, verdict: NameStatus, broker: BrokerId = "") -> None:
        query = pending.query
        del self._queries[query.key]
        if self._own.get(query.name) is pending:
            del self._own[query.name]
        for then in pending.thens:
            then(verdict, broker)

    # --- what others say -----------------------------------------------------------------------

    def query_received(self, peer: BrokerId, query: NameQuery) -> None:
        """Answer a peer when all behind have answered; at once if the name is taken."""
        cell = self._broker.neighbourhood.cell_of(peer)
        if cell is None:
            return

        def answer(verdict: NameStatus, broker: BrokerId) -> None:
            if self._sessions.is_open(peer):
                self._context.send(peer, NameReply(query.key, verdict, broker))

        if query.key in self._queries:
            self._queries[query.key].thens.append(answer)
            return
        verdict, broker = self._known(query)
        rival = self._own.get(query.name)
        if verdict is FREE and rival is not None:
            verdict, broker = self._contest(rival, query)
        if verdict is not FREE:
            answer(verdict, broker)
        elif self.is_full:
            answer(UNKNOWN, "")
        else:
            self._start(_PendingNameQuery(query, self._groups(cell), answer))

    def _known(self, query: NameQuery) -> tuple[NameStatus, BrokerId]:
        """Return what this broker knows of a name."""
        where = self._broker.pubends.broker_of_name(query.name)
        if where not in {None, query.requester}:
            return TAKEN, where or ""
        if where is not None or self._broker.pubends.is_remembered(query.name):
            self._context.mark("name of a former pubend")
            return UNKNOWN, ""
        return FREE, ""

    def _contest(self, rival: _PendingNameQuery, query: NameQuery) -> tuple[NameStatus, BrokerId]:
        """Decide between this broker and another, which both ask for a name; one gives up."""
        self._context.mark("two brokers query one name")
        me = rival.query.requester
        if me < query.requester:
            return TAKEN, me
        self._end(rival, TAKEN, query.requester)
        return FREE, ""

    def reply_received(self, peer: BrokerId, answer: NameReply) -> None:
        """Take what a peer and all behind it say."""
        pending = self._queries.get(answer.key)
        if pending is None or pending.awaited.pop(peer, None) is None:
            return
        if answer.status is TAKEN:
            self._end(pending, TAKEN, answer.broker)
            return
        if answer.status is UNKNOWN:
            pending.verdict = UNKNOWN
        self._end_if_answered(pending)

    # --- sessions ------------------------------------------------------------------------------

    def session_opened(self) -> None:
        """Somebody came into reach."""
        for pending in self._queries.values():
            self._send_query(pending)

    def session_closed(self, peer: BrokerId) -> None:
        """What was asked, or the answer, may be lost with a session: it is asked again in time."""
        for pending in self._queries.values():
            group = pending.awaited.pop(peer, None)
            if group is not None:
                pending.unsent.append(group)
                self._send_query(pending)
