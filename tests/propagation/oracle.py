"""Properties of tables, checked by every event of a small domain.

Sets of events are masks with a bit for each event, so "covers" is a comparison of numbers and does not
depend on the algebra that is tested.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

from gapless import Filter
from gapless.content import Conjunction
from gapless.content.values import Attributes
from gapless.core.ids import PubendId, ShbId, VectorEntry, VirtualTime
from gapless.propagation import StreamVector, SubscriptionTable
from gapless.propagation.sufficiency import TableChoice
from tests.propagation.world import Broker, World, cell_receiver, leaf_receiver

EVENTS: tuple[Attributes, ...] = tuple(
    {"kind": kind, "size": size, "place": place}
    for kind, size, place in product(("stock", "news"), range(6), ("here", "there"))
)

FILTERS = (
    "size > 1",
    "size > 3",
    "size = 2",
    "size BETWEEN 2 AND 4",
    "kind = 'stock'",
    "kind = 'news'",
    "kind = 'stock' AND size < 3",
    "kind = 'news' AND size IN (0, 5)",
    "kind = 'stock' AND place = 'here'",
    "place = 'there' OR size = 0",
    "kind = 'news' AND place = 'here' OR kind = 'stock' AND size = 5",
    "",
)

ADVERTISEMENTS = ("kind = 'stock'", "kind = 'news'", "size < 3", "")


@lru_cache
def of_conjunction(conjunction: Conjunction) -> int:
    return sum(1 << bit for bit, event in enumerate(EVENTS) if conjunction.matches(event))


@lru_cache
def of_filter(text: str) -> int:
    wanted = Filter(text)
    return sum(1 << bit for bit, event in enumerate(EVENTS) if wanted.matches(event))


def of_table(table: SubscriptionTable) -> int:
    mask = 0
    for conjunction in table.conjunctions.values():
        mask |= of_conjunction(conjunction)
    return mask


class Oracle:
    """The filters of all subscribers of the current incarnations, and their virtual start times."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.filtered = 0
        """How many routes were checked on which a required event had to pass a filter."""
        self.filters: dict[ShbId, dict[str, tuple[str, VirtualTime]]] = {}

    def expected(self, shb: ShbId, time: VirtualTime) -> int:
        """Return the events of the owners that have started at a virtual time of their SHB."""
        mask = 0
        for text, start in self.filters.get(shb, {}).values():
            if start <= time:
                mask |= of_filter(text)
        return mask

    # --- S-Λ (I4) --------------------------------------------------------------------------------

    def check_table(self, table: SubscriptionTable) -> None:
        """The conjunctions of a table cover its claims, within the pubend's advertisement."""
        covered = of_table(table)
        for pubend, version, shb, entry in self._claims(table):
            offered = of_filter(self.world.pubends[pubend][1][version])
            missing = self.expected(shb, entry.time) & offered & ~covered
            assert not missing, (
                f"{table!r} claims {shb} at {entry.time} for {pubend} and would miss "
                f"{EVENTS[missing.bit_length() - 1]}"
            )

    def _claims(self, table: SubscriptionTable) -> list[tuple[PubendId, int, ShbId, VectorEntry]]:
        if not table.leaf:
            return [(pubend, version, shb, entry) for shb, pubend, version, entry in table.claims()]
        return [
            (pubend, version, shb, entry)
            for pubend, (_, adverts) in self.world.pubends.items()
            for version in adverts
            for shb, entry in table.entries.items()
        ]

    # --- the purpose of sufficiency --------------------------------------------------------------

    def check_routes(self, broker: Broker, pubend: PubendId, vector: StreamVector) -> None:
        """No event is filtered that the vector promises to an SHB behind the receiver."""
        phb_cell, adverts = self.world.pubends[pubend]
        offered = of_filter(adverts[vector.announcement_version])
        expected = {
            shb: wanted
            for shb, entry in vector.entries.items()
            if (wanted := self.expected(shb, entry.time) & offered)
        }
        for cell in self.world.cells:
            if broker.paths.path_to(cell) and self._is_behind(cell, broker.cell, phb_cell):
                behind = {
                    shb: wanted
                    for shb, wanted in expected.items()
                    if self._is_behind(shb.cell, cell, phb_cell)
                }
                if behind:
                    self._check(broker, broker.choose(pubend, vector, cell_receiver(cell)), behind)
        for shb, wanted in expected.items():
            if shb.cell == broker.cell:
                choice = broker.choose(pubend, vector, leaf_receiver(shb))
                self._check(broker, choice, {shb: wanted})

    def _check(self, broker: Broker, choice: TableChoice, expected: dict[ShbId, int]) -> None:
        if choice.tables is None:
            return
        passed = 0
        for held in choice.tables:
            assert held.table is not None
            passed |= of_table(held.table)
        self.filtered += 1
        for shb, wanted in expected.items():
            missing = wanted & ~passed
            assert not missing, (
                f"{broker.name} filters by {choice.tables} an event that {shb} must receive: "
                f"{EVENTS[missing.bit_length() - 1]}"
            )

    def _is_behind(self, cell: str, other: str, phb_cell: str) -> bool:
        """Return whether a cell is another, or lies behind it as seen from the PHB cell."""
        return other == phb_cell or other in self.world.path(phb_cell, cell)

    def check_index(self, broker: Broker) -> None:
        """The index finds for every event exactly the tables that match it."""
        held = [held for edge in broker.table_store.edges.values() for held in edge.held()]
        wanted = {one.number: of_table(one.table) for one in held if one.table is not None}
        for bit, event in enumerate(EVENTS):
            tables = sum(1 << number for number, mask in wanted.items() if mask >> bit & 1)
            assert broker.table_store.index.match(event) == tables

    def check_copies(self, broker: Broker) -> None:
        """I5: a copy equals its sender's table of that version. I14: not too many of them."""
        for name, edge in broker.table_store.edges.items():
            tables = edge.tables()
            brokers = 1 if edge.leaf is not None else self._brokers_towards(broker, name)
            assert len(tables) <= brokers + 1
            for table in tables:
                assert table.digest == table.computed_digest(), (
                    f"{table!r} does not match its digest"
                )
                sender = self.world.brokers.get(table.name.broker)
                if sender is None or sender.incarnation != table.name.incarnation:
                    continue
                sent = self.world.sender(broker, sender)[1].table
                if sent.version == table.version:
                    same = (sent.name, sent.digest) == (table.name, table.digest)
                    assert same, f"{table!r} is not the table of its sender"

    def _brokers_towards(self, broker: Broker, direction: str) -> int:
        return sum(
            (broker.paths.path_to(cell) or ("",))[0] == direction
            for cell in self.world.cell_by_broker.values()
        )

    def check(self, vectors: dict[PubendId, list[StreamVector]]) -> None:
        """Check all tables, held and sent, and all routes for the given vectors."""
        for broker in self.world.brokers.values():
            self.check_copies(broker)
            for edge in broker.table_store.edges.values():
                for table in edge.tables():
                    self.check_table(table)
            for out in broker.table_store.out.values():
                self.check_table(out.sender.table)
            for pubend, known in vectors.items():
                for vector in known:
                    self.check_routes(broker, pubend, vector)
