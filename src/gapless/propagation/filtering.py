"""Filtering: which subscription tables decide for a receiver, and which of them match an event (R25)."""

from __future__ import annotations

from collections.abc import Sequence

from gapless.core.ids import BrokerId, PubendId
from gapless.messages.streams import KnowledgeRange, Publication
from gapless.propagation.exchange import TableExchange
from gapless.propagation.sufficiency import Receiver
from gapless.stream.epochs import StreamVector

__all__ = ["TableFiltering"]


class TableFiltering:
    """The tables of this broker, as its router asks them."""

    def __init__(self, exchange: TableExchange) -> None:
        self._exchange = exchange
        self._table_store = exchange.table_store

    def tables_for(
        self,
        pubend: PubendId,
        knowledge: KnowledgeRange,
        vector: StreamVector | None,
        receiver: Receiver,
    ) -> int | None:
        """Return the tables that decide for a receiver, a bit each; None if no table may (R25)."""
        choose = self._table_store.chooser.choose
        choice = choose(pubend, vector, knowledge.control_version, receiver)
        return None if choice.tables is None else choice.mask

    def matching_tables(self, publications: Sequence[Publication]) -> list[int]:
        """Return for each publication the tables that match it, a bit each."""
        return self._table_store.index.match_batch([each.attributes for each in publications])

    def set_fed(self, peer: BrokerId, *, fed: bool) -> None:
        """Note that a broker of another cell is fed from now on, or is no longer fed."""
        self._exchange.set_fed(peer, fed=fed)
