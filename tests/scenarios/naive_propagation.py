"""Naive rules, one for each run that breaks it, and common parts of the runs.

A run is played by the rules, and again with its rule replaced by the naive one: then it must fail.
An event is *lost* if a broker filters it for a receiver behind which a started subscription matches
it; a *flood* is an event that is forwarded although no subscription behind matches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from gapless.content import Conjunction
from gapless.content.values import Attributes
from gapless.core.ids import PubendId, ShbId, VectorEntry, VirtualTime
from gapless.messages.propagation import TableDelta, TableFull
from gapless.propagation import (
    Edge,
    LeafTable,
    OutTable,
    StreamVector,
    SubscriptionTable,
    TableChooser,
    TransferOutcome,
)
from gapless.propagation.edge import HeldTable
from tests.propagation.world import World, cell_receiver, tree

P = PubendId("P")
STOCK: Attributes = {"type": "stock", "symbol": "IBM", "news": True}
OTHER: Attributes = {"type": "stock", "symbol": "T", "news": False}

Patches = list[tuple[Any, str, Any]]


def run_by_the_rules_and_without(
    scenario: Callable[[], None], patches: Patches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scenario passes, and fails once its rule is removed."""
    scenario()
    for owner, name, naive in patches:
        monkeypatch.setattr(owner, name, naive)
    with pytest.raises(AssertionError, match=r"lost|flood"):
        scenario()


def vector_of(world: World, broker: str, stream_epoch: int = 1) -> StreamVector:
    """Return the vector that a broker's tables allow for the SHBs with subscribers (R31)."""
    members = {one.shb for one in world.brokers.values() if one.leaf.statistics()["owners"]}
    claims = world[broker].claims(P)
    return StreamVector(stream_epoch, 1, {host: claims[host] for host in claims if host in members})


def at(counter: int, *, incarnation: int = 1, control_version: int = 0) -> VectorEntry:
    return VectorEntry(VirtualTime(incarnation, counter), control_version)


def shb(name: str) -> ShbId:
    return ShbId(name, name)


# --- naive rules ----------------------------------------------------------------------------------


def counts_if_a_table_of_the_edge_has_it(
    _chooser: TableChooser, host: ShbId, edge: Edge, _receiver: object
) -> bool:
    return host in edge.hosts


def no_host_is_late(_table: OutTable, _groups: object) -> dict[PubendId, frozenset[ShbId]]:
    return {}


claim_by_the_rule = SubscriptionTable.claim


def claims_when_no_host_is_late(
    table: SubscriptionTable, host: ShbId, pubend: PubendId, version: int
) -> VectorEntry | None:
    """Claim a pubend's hosts only when all of them can be claimed, as one marker for all would."""
    return None if table.late.get(pubend) else claim_by_the_rule(table, host, pubend, version)


def marked_for_ever(
    table: SubscriptionTable, host: ShbId, _pubend: PubendId, _version: int
) -> VectorEntry | None:
    return table.entries.get(host)


def dominated_in_vectors(edge: Edge, _matters: object) -> None:
    """Drop stale tables when current ones have as great entries, whatever they claim."""
    current: dict[ShbId, VectorEntry] = {}
    for held in edge.held():
        if held.current and held.table is not None:
            current |= held.table.entries
    for held in tuple(edge.held()):
        old = {} if held.current or held.table is None else held.table.entries
        if old and all(current.get(host, at(0)) >= entry for host, entry in old.items()):
            edge._discard(held)


def claims_without_control_version(
    held: HeldTable, host: ShbId, pubend: PubendId, vector: StreamVector, _control_version: int
) -> bool:
    assert held.table is not None
    claim = held.table.claim(host, pubend, vector.announcement_version)
    return claim is not None and claim.time >= vector.entries[host].time


_own = LeafTable.own


def own_only_the_newest_form(
    leaf: LeafTable, owner: str, conjunctions: Iterable[Conjunction]
) -> VirtualTime:
    """Let the newest form of a subscription replace the former ones; owners are "x at 11"."""
    start = _own(leaf, owner, conjunctions)
    name, _, _ = owner.partition(" at ")
    for other in map(str, [*leaf._owners]):
        if other != owner and other.startswith(f"{name} at "):
            leaf.disown(other)
    return start


def elsewhere_if_another_table_has_it(
    _chooser: TableChooser, host: ShbId, edge: Edge, cell: str
) -> bool:
    own = [held.table for held in edge.held_of(cell) if held.table is not None]
    return host in edge.hosts and not any(host in table.entries for table in own)


def never_behind_a_sibling(_chooser: TableChooser, _host: ShbId, _edge: Edge, _cell: str) -> bool:
    return False


def forgotten_at_once(edge: Edge, sender: str, _now: int) -> None:
    """Drop a table when its source is lost, instead of keeping it as stale."""
    held = edge._held.get(sender)
    if held is not None:
        edge._discard(held)


class Speaker:
    """One table for a whole cell: its conjunctions, with the greatest vector ever received."""

    def __init__(self) -> None:
        self.vector: dict[tuple[int, ShbId], VectorEntry] = {}
        self.receive = Edge.receive

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def mark_stale(edge: Edge, sender: str, now: int) -> None:
            self.mark_stale(edge, sender, now)

        def receive(edge: Edge, sender: str, message: TableFull | TableDelta) -> TransferOutcome:
            return self.receive_and_mix(edge, sender, message)

        monkeypatch.setattr(Edge, "mark_stale", mark_stale)
        monkeypatch.setattr(Edge, "receive", receive)

    def mark_stale(self, edge: Edge, sender: str, now: int) -> None:
        for table in edge.tables():
            self.vector.update(((id(edge), host), entry) for host, entry in table.entries.items())
        forgotten_at_once(edge, sender, now)

    def receive_and_mix(
        self, edge: Edge, sender: str, message: TableFull | TableDelta
    ) -> TransferOutcome:
        outcome = self.receive(edge, sender, message)
        for table in edge.tables():
            for host, entry in table.entries.items():
                table.entries[host] = max(entry, self.vector.get((id(edge), host), entry))
        return outcome


# --- a tree in which no part of a subscription was propagated ------------------------------------


def pruned_world() -> World:
    """Return z-c-n-p with only weather at p; s at z matches IBM, so it was not propagated."""
    world = World(tree("z-c-n-p"))
    world.advertise("W", "p", "type = 'weather'", known_to=world.brokers)
    world["z"].subscribe("x", "type = 'stock' AND symbol = 'IBM'")
    world.settle()
    assert not world["p"].table_store.edges["n"].conjunctions
    assert shb("z") in world["p"].table_store.edges["n"].hosts
    return world


def check_that_what_is_claimed_passes(world: World) -> None:
    promised = vector_of(world, "p")
    if shb("z") in promised.entries:
        assert world["p"].passes(P, promised, cell_receiver("n"), STOCK), "lost"
