"""The choice of the subscription tables for a receiver, and the match of events by them (R25)."""

from __future__ import annotations

from collections.abc import Sequence

from gapless.core.ids import BrokerId, PubendId
from gapless.messages.streams import KnowledgeRange, Publication
from gapless.propagation.exchange import TableExchange
from gapless.propagation.sufficiency import Receiver
from gapless.stream.epochs import StreamVector

__all__ = ["TableFiltering"]


class TableFiltering:
    """The router's access to the tables of this broker."""

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
        """Return the mask of the tables that decide for a receiver, None if all passes (R25)."""
        choose = self._table_store.chooser.choose
        choice = choose(pubend, vector, knowledge.control_version, receiver)
        return None if choice.tables is None else choice.mask

    def best_effort_tables(self, pubend: PubendId, receiver: Receiver) -> int | None:
        """Return the mask of the tables that decide under best effort, None if all passes."""
        version = self._table_store.announced_version(pubend)
        choice = self._table_store.chooser.choose_best_effort(pubend, version, receiver)
        return None if choice.tables is None else choice.mask

    def matching_tables(self, publications: Sequence[Publication]) -> list[int]:
        """Return for each publication the mask of the tables that match it."""
        return self._table_store.index.match_batch([each.attributes for each in publications])

    def set_fed(self, peer: BrokerId, *, fed: bool) -> None:
        """Note whether this broker feeds a broker of another cell."""
        self._exchange.set_fed(peer, fed=fed)
