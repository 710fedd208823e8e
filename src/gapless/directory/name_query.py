"""Name queries: a broker queries the whole overlay before it creates a pubend of a new name.

Theory of operation
-------------------
Two brokers that create a pubend of one name at the same time would create two logs with one
identity. Every receiver would see only one of them, and events that the other acknowledged would be
lost. No broker knows all others. So a broker that wants to create a pubend sends a query to its
cell peers and to one broker of every neighbour cell. A broker that receives a query from another
cell passes it on likewise, away from that cell, and replies when all brokers behind it have
replied. A name is free if every broker of the overlay replies so. :mod:`.name_query_state` has the
states of a query.

A broker that is down or partitioned does not reply, and may have a pubend of that name. The query
then ends after ``name_query_timeout_ms`` with an unknown result. The pubend is created with a
number behind its name that no other broker and no earlier incarnation assigns. So an island can
continue to publish, and both streams exist when the partition heals.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, TypeAlias

from gapless.core.context import Context, Identity
from gapless.core.ids import BrokerId, CellId, PubendId, ShbId
from gapless.core.limits import NAME_QUERIES_MAX
from gapless.core.parameters import microseconds
from gapless.directory.name_query_state import (
    FINAL,
    NameQueryInput,
    NameQueryState,
    next_state,
)
from gapless.directory.names import PubendNames
from gapless.directory.protocols import RetiredBrokers
from gapless.messages.overlay import NameQuery, NameReply, NameStatus
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree

__all__ = ["NameQueries", "NameQueryDone", "numbered"]

_NUMBER_BYTES: Final = 6
"""The size of the number behind a name: large enough to be unique, and exact in every language."""

NameQueryDone: TypeAlias = Callable[[NameStatus, BrokerId], None]
"""Called with the result of a query and the broker that has the name."""

NameQueryGroup: TypeAlias = tuple[BrokerId, ...]
"""Brokers of which one must reply for all of them."""

_INPUTS: Final = {
    NameStatus.FREE: NameQueryInput.REPLY_FREE,
    NameStatus.UNKNOWN: NameQueryInput.REPLY_UNKNOWN,
    NameStatus.TAKEN: NameQueryInput.REPLY_TAKEN,
}
_RESULTS: Final = {
    NameQueryState.FREE: NameStatus.FREE,
    NameQueryState.UNKNOWN: NameStatus.UNKNOWN,
    NameQueryState.TAKEN: NameStatus.TAKEN,
}


def numbered(name: str, identity: Identity, closed: int = 0) -> PubendId:
    """Return a pubend of a name with a number that no other broker or incarnation assigns.

    ``closed`` counts the pubends that this incarnation has closed: their numbers are not given again.
    """
    text = f"{identity.broker}/{identity.incarnation}/{name}"
    if closed:
        text += f"/{closed}"
    digest = blake2b(text.encode(), digest_size=_NUMBER_BYTES).digest()
    return PubendId(name, 2 + int.from_bytes(digest))


class _PendingNameQuery:
    """A query that this broker has sent and that has not ended."""

    def __init__(self, query: NameQuery, groups: list[NameQueryGroup], done: NameQueryDone) -> None:
        self.query = query
        self.state = NameQueryState.WAITING
        self._unsent = groups
        """The groups without an open session, or whose session closed before the reply."""
        self._awaited: dict[BrokerId, NameQueryGroup] = {}
        """The brokers that have not replied, each with its group."""
        self._done = [done]
        """The receivers of the result: several if brokers of one cell sent the same query."""

    @property
    def is_answered(self) -> bool:
        """Whether no reply is outstanding."""
        return not self._awaited and not self._unsent

    def take(self, happened: NameQueryInput) -> bool:
        """Change the state; return whether the query has ended."""
        self.state = next_state(self.state, happened)
        return self.state in FINAL

    def also_report_to(self, done: NameQueryDone) -> None:
        """Give the result to one more receiver."""
        self._done.append(done)

    def report(self, broker: BrokerId) -> None:
        """Give the result to all receivers."""
        for done in self._done:
            done(_RESULTS[self.state], broker)

    def send(self, context: Context, peers: Peers) -> None:
        """Send the query to one broker of each group that has an open session."""
        unsent, self._unsent = self._unsent, []
        for group in unsent:
            reached = peers.open_in(group)
            if reached:
                self._awaited[reached[0]] = group
                context.send(reached[0], self.query)
            else:
                self._unsent.append(group)

    def replied(self, peer: BrokerId) -> bool:
        """Note a reply; return whether one was outstanding."""
        return self._awaited.pop(peer, None) is not None

    def session_closed(self, peer: BrokerId) -> bool:
        """Mark the group of a peer as unsent; return whether its reply was outstanding."""
        group = self._awaited.pop(peer, None)
        if group is not None:
            self._unsent.append(group)
        return group is not None


class NameQueries:
    """The name queries that pass through this broker: its own and those of others."""

    def __init__(
        self,
        context: Context,
        tree: Tree,
        peers: Peers,
        retirements: RetiredBrokers,
        names: PubendNames,
    ) -> None:
        self._context = context
        self._tree = tree
        self._peers = peers
        self._retirements = retirements
        self._names = names
        self._queries: dict[tuple[BrokerId, int, int], _PendingNameQuery] = {}
        self._own: dict[str, _PendingNameQuery] = {}
        """The queries of this broker by their names."""
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether no further query is accepted now."""
        return len(self._queries) >= NAME_QUERIES_MAX

    def query(self, name: str, done: NameQueryDone) -> None:
        """Query all other brokers whether a name is free."""
        identity = self._context.identity
        self._count += 1
        query = NameQuery(name, identity.broker, identity.incarnation, self._count)
        pending = self._own[name] = _PendingNameQuery(query, self._groups(None), done)
        self._start(pending)

    def _groups(self, source: CellId | None) -> list[NameQueryGroup]:
        """Return the groups to query, for a query from a cell or from this broker."""
        neighbourhood = self._tree.neighbourhood
        if source == neighbourhood.own:
            return []  # the peer sends its query to all other brokers too
        groups: list[NameQueryGroup] = [(peer,) for peer in self._living(neighbourhood.own)]
        for cell in neighbourhood.neighbours:
            living = self._living(cell)
            if cell != source and (living or not neighbourhood.is_leaf(cell)):
                groups.append(living)
        return groups

    def _living(self, cell: CellId) -> NameQueryGroup:
        """Return the other brokers of a cell, except recently retired ones without a session."""
        return tuple(
            broker
            for broker in self._tree.neighbourhood.brokers(cell)
            if broker != self._context.identity.broker
            and (
                self._peers.is_open(broker) or not self._retirements.is_recent(ShbId(broker, cell))
            )
        )

    def _start(self, pending: _PendingNameQuery) -> None:
        self._queries[pending.query.key] = pending
        pending.send(self._context, self._peers)
        if not self._end_if_answered(pending):
            timeout_us = max(1, microseconds(ms=self._context.parameters.name_query_timeout_ms))
            self._context.call_later(timeout_us, lambda: self._time_out(pending))

    def _end_if_answered(self, pending: _PendingNameQuery) -> bool:
        """End a query if no reply is outstanding; return whether it has ended."""
        if not pending.is_answered:
            return False
        self._end(pending, NameQueryInput.ALL_REPLIED)
        return True

    def _time_out(self, pending: _PendingNameQuery) -> None:
        if self._queries.get(pending.query.key) is pending:
            self._context.mark("name query timed out")
            self._end(pending, NameQueryInput.TIMEOUT)

    def _end(
        self, pending: _PendingNameQuery, happened: NameQueryInput, broker: BrokerId = ""
    ) -> None:
        has_ended = pending.take(happened)
        assert has_ended
        query = pending.query
        del self._queries[query.key]
        if self._own.get(query.name) is pending:
            del self._own[query.name]
        pending.report(broker)

    # --- messages of peers ---------------------------------------------------------------------

    def query_received(self, peer: BrokerId, query: NameQuery) -> None:
        """Reply when all brokers behind this one have replied, or at once if the name is taken."""
        cell = self._tree.neighbourhood.cell_of(peer)
        if cell is None:
            return
        if query.requester == self._context.identity.broker:
            self._context.mark("own question returned")  # a query of this broker may have its key
            return

        def reply(status: NameStatus, broker: BrokerId) -> None:
            if self._peers.is_open(peer):
                self._context.send(peer, NameReply(query.key, status, broker))

        if query.key in self._queries:
            self._queries[query.key].also_report_to(reply)
            return
        status, broker = self._known(query)
        rival = self._own.get(query.name)
        if status is NameStatus.FREE and rival is not None:
            status, broker = self._contest(rival, query)
        if status is not NameStatus.FREE:
            reply(status, broker)
        elif self.is_full:
            reply(NameStatus.UNKNOWN, "")
        else:
            self._start(_PendingNameQuery(query, self._groups(cell), reply))

    def _known(self, query: NameQuery) -> tuple[NameStatus, BrokerId]:
        """Return the status of a name that this broker knows itself."""
        where = self._names.broker_of_name(query.name)
        if where not in {None, query.requester}:
            return NameStatus.TAKEN, where or ""
        if where is not None or self._names.is_remembered(query.name):
            self._context.mark("name of a former pubend")
            return NameStatus.UNKNOWN, ""
        return NameStatus.FREE, ""

    def _contest(self, rival: _PendingNameQuery, query: NameQuery) -> tuple[NameStatus, BrokerId]:
        """Decide between two brokers that query the same name: the lesser broker name wins."""
        self._context.mark("two brokers query one name")
        me = rival.query.requester
        if me < query.requester:
            return NameStatus.TAKEN, me
        self._end(rival, NameQueryInput.OUTRANKED, query.requester)
        return NameStatus.FREE, ""

    def reply_received(self, peer: BrokerId, reply: NameReply) -> None:
        """Process the reply of a peer for itself and for all brokers behind it."""
        pending = self._queries.get(reply.key)
        if pending is None or not pending.replied(peer):
            return
        if reply.status is NameStatus.TAKEN:
            self._end(pending, NameQueryInput.REPLY_TAKEN, reply.broker)
            return
        pending.take(_INPUTS[reply.status])
        self._end_if_answered(pending)

    # --- sessions ------------------------------------------------------------------------------

    def session_opened(self) -> None:
        """Send the queries that could not be sent before."""
        for pending in self._queries.values():
            pending.send(self._context, self._peers)

    def session_closed(self, peer: BrokerId) -> None:
        """Send the queries again whose reply may have been lost with the session."""
        for pending in self._queries.values():
            if pending.session_closed(peer):
                pending.send(self._context, self._peers)
