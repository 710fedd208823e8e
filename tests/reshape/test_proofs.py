"""Which records prove the commit of an operation to a participant in doubt (RS-8)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gapless.messages.overlay import CellMember, CellRecord, Term
from gapless.messages.reshape import OperationKind
from gapless.overlay.neighbourhood import Topology
from gapless.reshape.changes import appended, detached, shifted
from gapless.reshape.proofs import completed, given_epochs, proves_commit
from tests.shape_versions import shape

CELLS = {
    each.name: each
    for each in Topology.of(
        {"i": ["i1"], "j": ["j1"], "k": ["k1"], "x": ["x1"]}, [("i", "j"), ("j", "k"), ("j", "x")]
    ).cells
}
SHIFTED = shifted(CELLS["i"], CELLS["j"], CELLS["k"])
SHIFT, APPEND, DETACH = OperationKind.SHIFT, OperationKind.APPEND, OperationKind.DETACH


@pytest.mark.parametrize("own", ["i", "j", "k"])
@pytest.mark.parametrize("record", SHIFTED)
def test_each_record_of_an_operation_proves_it_to_each_participant(
    own: str, record: CellRecord
) -> None:
    assert proves_commit(SHIFT, record, SHIFTED, own)
    taken_over = replace(record, term=Term(7, "z"))
    assert proves_commit(SHIFT, taken_over, SHIFTED, own), "a takeover raises terms"


@pytest.mark.parametrize("own", ["i", "j", "k"])
def test_a_record_from_before_proves_nothing(own: str) -> None:
    assert not any(proves_commit(SHIFT, each, SHIFTED, own) for each in CELLS.values())


def test_another_operation_of_the_same_coordinator_proves_nothing() -> None:
    # SHIFT(i, j, k) was aborted and i missed it; then SHIFT(x, j, k) gives j the same shape version
    _, j, k = shifted(CELLS["x"], CELLS["j"], CELLS["k"])
    assert j.shape_version == SHIFTED[1].shape_version
    assert j.epoch("k") == SHIFTED[1].epoch("k")
    assert not proves_commit(SHIFT, j, SHIFTED, "i")
    assert not proves_commit(SHIFT, k, SHIFTED, "i")


def test_a_later_record_proves_an_edge_that_needs_the_own_cell() -> None:
    _, _, k = SHIFTED
    later = replace(k, shape_version=shape(9))
    assert proves_commit(SHIFT, later, SHIFTED, "i")
    assert not proves_commit(SHIFT, later, SHIFTED, "x")


def test_an_edge_to_a_newcomer_proves_its_append_to_everybody() -> None:
    proposed = appended("n#j1.4", (CellMember("n1"),), CELLS["j"])
    later = replace(proposed[1], shape_version=shape(9))
    assert proves_commit(APPEND, later, proposed, "x")
    assert not proves_commit(APPEND, CELLS["j"], proposed, "x")


def test_a_later_record_without_the_cell_proves_its_detach_to_that_cell_only() -> None:
    proposed = detached(CELLS["i"], CELLS["j"])
    later = replace(proposed[1], shape_version=shape(9))
    assert proves_commit(DETACH, later, proposed, "i")
    assert not proves_commit(DETACH, later, proposed, "x"), "a SHIFT may have removed the edge"
    assert not proves_commit(DETACH, CELLS["j"], proposed, "i")


def test_a_hand_over_is_proven_by_its_term_and_a_readmission_by_its_members() -> None:
    j = CELLS["j"]
    led = replace(j, leader="j2", term=Term(1, "j1"))
    assert proves_commit(OperationKind.HAND_OVER, led, (led,), "x")
    assert not proves_commit(OperationKind.HAND_OVER, j, (led,), "x")
    more = replace(j, members=(CellMember("j1"), CellMember("j2")), member_version=2)
    assert proves_commit(OperationKind.READMIT, more, (more,), "x")
    assert not proves_commit(OperationKind.READMIT, j, (more,), "x")


def test_a_proposed_record_is_completed_with_newer_members() -> None:
    i = SHIFTED[0]
    known = replace(CELLS["i"], members=(CellMember("i1"), CellMember("i2")), member_version=2)
    assert completed(i, known).brokers == ("i1", "i2")
    assert completed(i, known).edges == i.edges
    assert completed(i, None) is completed(i, CELLS["i"]) is i


def test_a_shift_gives_epochs_to_the_edges_that_it_makes_or_renews() -> None:
    assert dict(given_epochs(SHIFTED)) == {("i", "k"): shape(2), ("j", "k"): shape(2)}
