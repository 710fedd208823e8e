"""Name queries: a broker queries the whole overlay before it creates a pubend of a new name.

Theory of operation
-------------------
Two brokers that create a pubend of one name at the same time would create two logs with one
identity. Every receiver would see only one of them, and events that the other acknowledged would be
lost. No broker knows all others. So a broker that wants to create a pubend sends a query to its
cell peers and to one broker of every neighbour cell. A broker that receives a query from another
cell passes it on likewise, away from that cell, and replies when all brokers behind it have
replied (:mod:`gapless.overlay.questions`). A name is free if every broker of the overlay replies so.
:mod:`.name_query_state` has the states of a query.

A broker that is down or partitioned does not reply, and may have a pubend of that name. The query
then ends after ``name_query_timeout_ms`` with an unknown result. The pubend is created with a
number behind its name that no other broker and no earlier incarnation assigns. So an island can
continue to publish, and both streams exist when the partition heals.

A query whose tree has changed ends with RETRY. The requester queries anew after
``name_query_retry_ms``, under another key, until ``name_query_timeout_ms`` has passed (RS-15a).
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from msgspec.structs import replace

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
from gapless.overlay.questions import AskedGroup, QuestionKey, Questions
from gapless.overlay.tree import Tree, TreeChange

__all__ = ["NameQueries", "NameQueryDone", "NameQueryResult", "numbered"]

_NUMBER_BYTES: Final = 6
"""The size of the number behind a name: large enough to be unique, and exact in every language."""

NameQueryDone: TypeAlias = Callable[[NameStatus, BrokerId], None]
"""Called with the result of a query and the broker that has the name."""


class NameQueryResult(NamedTuple):
    """The result of a query, and the broker that has the name."""

    status: NameStatus
    broker: BrokerId = ""


_INPUTS: Final = {
    NameStatus.FREE: NameQueryInput.REPLY_FREE,
    NameStatus.UNKNOWN: NameQueryInput.REPLY_UNKNOWN,
    NameStatus.TAKEN: NameQueryInput.REPLY_TAKEN,
    NameStatus.RETRY: NameQueryInput.REPLY_RETRY,
}
_RESULTS: Final = {
    NameQueryState.FREE: NameStatus.FREE,
    NameQueryState.UNKNOWN: NameStatus.UNKNOWN,
    NameQueryState.TAKEN: NameStatus.TAKEN,
    NameQueryState.RETRY: NameStatus.RETRY,
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


class _NameGathering:
    """The replies to one query that has not ended."""

    def __init__(self) -> None:
        self.state = NameQueryState.WAITING
        self._broker: BrokerId = ""
        """The broker that has the name."""

    @property
    def needs_all(self) -> bool:
        """A broker that cannot be reached may have the name."""
        return True

    def take(self, reply: NameReply) -> bool:
        """Take the reply of a peer; return whether the query has ended."""
        return self._advance(_INPUTS[reply.status], reply.broker)

    def outrank(self, rival: BrokerId) -> None:
        """A broker of a lesser name queries the same name."""
        self._advance(NameQueryInput.OUTRANKED, rival)

    def tree_stepped(self) -> None:
        """The edges of the own cell have changed."""
        self._advance(NameQueryInput.TREE_STEPPED)

    def end(self, silent: tuple[BrokerId, ...]) -> NameQueryResult:
        """Return the result."""
        if self.state not in FINAL:
            self._advance(NameQueryInput.TIMEOUT if silent else NameQueryInput.ALL_REPLIED)
        return NameQueryResult(_RESULTS[self.state], self._broker)

    def _advance(self, happened: NameQueryInput, broker: BrokerId = "") -> bool:
        self.state = next_state(self.state, happened)
        if self.state is NameQueryState.TAKEN:
            self._broker = broker
        return self.state in FINAL


class _OwnQuery(NamedTuple):
    """The query that this broker has under way for a name."""

    key: QuestionKey
    gathering: _NameGathering


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
        self._questions = Questions(context, tree, peers, NAME_QUERIES_MAX)
        self._own: dict[str, _OwnQuery] = {}
        """The queries of this broker by their names."""
        self._paused = 0
        """The queries of this broker that are repeated after a pause."""

    @property
    def is_full(self) -> bool:
        """Whether no further query is accepted now."""
        return self._questions.count + self._paused >= NAME_QUERIES_MAX

    # --- queries of this broker ----------------------------------------------------------------

    def query(self, name: str, done: NameQueryDone) -> None:
        """Query all other brokers whether a name is free."""
        timeout_us = microseconds(ms=self._context.parameters.name_query_timeout_ms)
        self._query(name, self._context.now + timeout_us, done)

    def _query(self, name: str, deadline: int, done: NameQueryDone) -> None:
        key = self._questions.next_key()
        own = self._own[name] = _OwnQuery(key, _NameGathering())

        def ended(result: NameQueryResult) -> None:
            if self._own.get(name) is own:
                del self._own[name]
            if result.status is NameStatus.RETRY:
                self._query_anew(name, deadline, done)
            else:
                done(*result)

        wait_us = deadline - self._context.now
        self._begin(NameQuery(name, *key), None, own.gathering, ended, wait_us)

    def _query_anew(self, name: str, deadline: int, done: NameQueryDone) -> None:
        """Query again after a pause; the result is unknown if no time is left for it."""
        pause_us = microseconds(ms=self._context.parameters.name_query_retry_ms)
        if self._context.now + pause_us >= deadline:
            done(NameStatus.UNKNOWN, "")
            return

        def query() -> None:
            self._paused -= 1
            self._query(name, deadline, done)

        self._paused += 1
        self._context.call_later(pause_us, query)

    def _begin(
        self,
        query: NameQuery,
        source: CellId | None,
        gathering: _NameGathering,
        receiver: Callable[[NameQueryResult], None],
        wait_us: int,
    ) -> None:
        self._questions.begin(
            NameQuery,
            query.key,
            lambda epochs: replace(query, path_epochs=epochs),
            self._groups(source),
            gathering,
            receiver,
            wait_us,
        )

    def _groups(self, source: CellId | None) -> list[AskedGroup]:
        """Return the groups to query, for a query from a cell or from this broker."""
        neighbourhood = self._tree.neighbourhood
        own = neighbourhood.own
        if source == own:
            return []  # the peer sends its query to all other brokers too
        groups = [AskedGroup((peer,), own) for peer in self._living(own)]
        for cell in neighbourhood.neighbours:
            living = self._living(cell)
            if cell != source and (living or not neighbourhood.is_leaf(cell)):
                groups.append(AskedGroup(living, cell))
        return groups

    def _living(self, cell: CellId) -> tuple[BrokerId, ...]:
        """Return the other brokers of a cell, except recently retired ones without a session."""
        return tuple(
            broker
            for broker in self._tree.neighbourhood.brokers(cell)
            if broker != self._context.identity.broker
            and (
                self._peers.is_open(broker) or not self._retirements.is_recent(ShbId(broker, cell))
            )
        )

    # --- messages of peers ---------------------------------------------------------------------

    def query_received(self, peer: BrokerId, query: NameQuery) -> None:
        """Reply when all brokers behind this one have replied, or at once if the name is taken."""
        cell = self._tree.neighbourhood.cell_of(peer)
        if cell is None or self._questions.is_looped(query.key):
            return

        def reply(result: NameQueryResult) -> None:
            self._questions.answer(peer, NameReply(query.key, *result))

        if not self._questions.crosses_known_edges(cell, query.path_epochs):
            reply(NameQueryResult(NameStatus.RETRY))
            return
        if self._questions.join(NameQuery, query.key, reply):
            return
        known = self._known(query)
        if known.status is NameStatus.FREE and query.name in self._own:
            known = NameQueryResult(*self._contest(self._own[query.name], query))
        if known.status is not NameStatus.FREE:
            reply(known)
        elif self.is_full:
            reply(NameQueryResult(NameStatus.UNKNOWN))
        else:
            timeout_us = microseconds(ms=self._context.parameters.name_query_timeout_ms)
            self._begin(query, cell, _NameGathering(), reply, timeout_us)

    def _known(self, query: NameQuery) -> NameQueryResult:
        """Return the status of a name that this broker knows itself."""
        where = self._names.broker_of_name(query.name)
        if where not in {None, query.requester}:
            return NameQueryResult(NameStatus.TAKEN, where or "")
        if where is not None or self._names.is_remembered(query.name):
            self._context.mark("name of a former pubend")
            return NameQueryResult(NameStatus.UNKNOWN)
        return NameQueryResult(NameStatus.FREE)

    def _contest(self, rival: _OwnQuery, query: NameQuery) -> tuple[NameStatus, BrokerId]:
        """Decide between two brokers that query the same name: the lesser broker name wins."""
        self._context.mark("two brokers query one name")
        me = self._context.identity.broker
        if me < query.requester:
            return NameStatus.TAKEN, me
        rival.gathering.outrank(query.requester)
        self._questions.stop(NameQuery, rival.key)
        return NameStatus.FREE, ""

    def reply_received(self, peer: BrokerId, reply: NameReply) -> None:
        """Process the reply of a peer for itself and for all brokers behind it."""
        self._questions.answered(NameQuery, peer, reply)

    # --- sessions and the tree -----------------------------------------------------------------

    def session_opened(self) -> None:
        """Send the queries that could not be sent before."""
        self._questions.session_opened()

    def session_closed(self, peer: BrokerId) -> None:
        """Send the queries again whose reply may have been lost with the session."""
        self._questions.session_closed(peer)

    def reshape(self, change: TreeChange) -> None:
        """End the queries under way if edges of the own cell have changed (RS-15a)."""
        self._questions.reshape(change)
