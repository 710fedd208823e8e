"""Rules are removed, one at a time: then the oracle of the random runs finds a violation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from gapless.core.ids import PubendId, ShbId, VectorEntry
from gapless.messages.propagation import TableDelta
from gapless.propagation import (
    Edge,
    OutTable,
    SubscriptionTable,
    TableReceiver,
    TransferOutcome,
    leaf,
    stale_tables,
)
from gapless.propagation.sufficiency import TableChooser
from gapless.propagation.table import conjunction_of
from gapless.propagation.transfer import TableUpdate
from tests.propagation.runs import play

SEEDS = 1_000


def no_host_is_late(_table: OutTable, _groups: object) -> dict[PubendId, frozenset[ShbId]]:
    return {}


def claimed_if_known(
    _made: SubscriptionTable,
    _tables: Iterable[SubscriptionTable],
    _shb: ShbId,
    _pubend: PubendId,
    _version: int,
) -> bool:
    return True


def applied_at_any_version(receiver: TableReceiver, delta: TableDelta) -> TableUpdate:
    table = receiver.table
    if table is None or delta.version <= table.version:
        return TableUpdate(TransferOutcome.REQUEST)
    added = tuple(text for text in delta.added if text not in table.conjunctions)
    removed = tuple(text for text in delta.removed if text in table.conjunctions)
    arrived = tuple(shb for shb, _ in delta.entries if shb not in table.entries)
    missing = tuple(shb for shb in delta.removed_hosts if shb in table.entries)
    for text in removed:
        del table.conjunctions[text]
    for shb in missing:
        del table.entries[shb]
    table.conjunctions.update((text, conjunction_of(text)) for text in added)
    table.entries.update(delta.entries)
    table.known.update(delta.known)
    table.late.update((pubend, frozenset(shbs)) for pubend, shbs in delta.late)
    table.version, table.digest = delta.version, delta.digest
    return TableUpdate(
        TransferOutcome.APPLIED,
        tuple(map(conjunction_of, added)),
        tuple(map(conjunction_of, removed)),
        arrived,
        missing,
    )


def behind_if_any_table_has_an_entry(
    _chooser: TableChooser, shb: ShbId, edge: Edge, _receiver: object
) -> bool:
    return shb in edge.hosts


def elsewhere_if_another_cell_has_an_entry(
    _chooser: TableChooser, shb: ShbId, edge: Edge, cell: str
) -> bool:
    own = {shb for held in edge.held_of(cell) if held.table for shb in held.table.entries}
    return shb in edge.hosts and shb not in own


def claims_of_all_versions(
    table: SubscriptionTable, shb: ShbId, pubend: PubendId, _announcement_version: int
) -> VectorEntry | None:
    known = pubend in table.known and shb not in table.late.get(pubend, ())
    return table.entries.get(shb) if known or table.leaf else None


def started_already(table: leaf.LeafTable, _conjunction: object) -> int:
    return max(1, table.sender.table.version)


PLANTED_BUGS: dict[str, tuple[Any, str, Any]] = {
    "lists no host as late": (OutTable, "_late", no_host_is_late),
    "claims in a merged stale table what no part claimed": (
        stale_tables,
        "_is_claimed",
        claimed_if_known,
    ),
    "applies a delta at any version": (
        TableReceiver,
        "_take_delta",
        applied_at_any_version,
    ),
    "does not count hosts without a table entry": (
        TableChooser,
        "_counts",
        behind_if_any_table_has_an_entry,
    ),
    "locates hosts by tables from beyond a cell": (
        TableChooser,
        "_is_behind_a_sibling",
        elsewhere_if_another_cell_has_an_entry,
    ),
    "ignores the version of an advertisement": (
        SubscriptionTable,
        "claim",
        claims_of_all_versions,
    ),
    "gives a new conjunction the last version as start time": (
        leaf.LeafTable,
        "_new_start",
        started_already,
    ),
}


@pytest.mark.parametrize("bug", PLANTED_BUGS)
def test_a_removed_rule_causes_a_violation(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, wrong = PLANTED_BUGS[bug]
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(
        AssertionError, match=r"would miss|filters by|does not match|is not the table"
    ):
        play(range(SEEDS))
