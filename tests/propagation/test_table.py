"""Tables, their digests and their transfer: R14, R19; VT 4.3.2 to 4.3.4 for losses."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from gapless import Filter
from gapless.content.conjunction import EVERYTHING
from gapless.core.ids import PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.limits import TABLE_PARTS_MAX
from gapless.messages.overlay import TableState
from gapless.messages.propagation import TableDelta, TableFull, TableId, TableRequest
from gapless.propagation import SubscriptionTable, TableReceiver, TableSender, TransferOutcome
from gapless.propagation.table import conjunction_of, rank, text_of
from gapless.propagation.transfer import full_parts

NAME = TableId("b", 7, "up")
LEAF = TableId("b", 7, "b@c")
S, T = ShbId("s", "x"), ShbId("t", "y")
P, Q = PubendId("stocks"), PubendId("weather", 2)


def entry(counter: int, *, control_version: int = 0, retired: bool = False) -> VectorEntry:
    return VectorEntry(VirtualTime(1, counter), control_version, retired)


def sender(name: TableId = NAME, *, log_max: int = 8, bytes_max: int = 10_000) -> TableSender:
    return TableSender(name, 1, log_max=log_max, bytes_max=bytes_max)


def advance(source: TableSender, **change: object) -> TableDelta:
    delta = source.table.difference(**change)  # type: ignore[arg-type]
    assert delta is not None
    return source.advance(delta)


def copy_of(source: TableSender) -> TableReceiver:
    copy = TableReceiver()
    for part in source.answer(TableRequest("up")):
        copy.take(part)
    assert copy.table is not None
    return copy


def same(left: SubscriptionTable | None, right: SubscriptionTable) -> bool:
    return left is not None and all(
        getattr(left, field) == getattr(right, field) for field in SubscriptionTable.__slots__
    )


# --- claims ---------------------------------------------------------------------------------------


def test_an_entry_is_claimed_for_known_pubends_at_their_versions() -> None:
    source = sender()
    advance(source, entries={S: entry(4)}, known={P: 2})
    assert source.table.claim(S, P, 1) == source.table.claim(S, P, 2) == entry(4)
    assert source.table.claim(S, P, 3) is None
    assert source.table.claim(S, Q, 1) is None
    assert source.table.claim(T, P, 1) is None


def test_an_unknown_pubend_is_not_claimed_at_any_version() -> None:
    source = sender()
    advance(source, entries={S: entry(4)})
    assert source.table.claim(S, P, 0) is None


def test_a_host_that_is_late_for_a_pubend_is_claimed_for_others_only() -> None:
    source = sender()
    advance(
        source, entries={S: entry(4), T: entry(1)}, known={P: 1, Q: 1}, late={P: frozenset({S})}
    )
    assert source.table.claim(S, P, 1) is None
    assert source.table.claim(S, Q, 1) == entry(4)
    assert source.table.claim(T, P, 1) == entry(1)


def test_a_leafs_table_claims_for_every_pubend() -> None:
    source = sender(LEAF)
    advance(source, entries={S: entry(4)})
    assert source.table.claim(S, P, 9) == entry(4)


def test_a_retired_host_is_claimed_for_every_pubend() -> None:
    source = sender()
    advance(source, entries={S: entry(4, retired=True)})
    assert source.table.claim(S, P, 1) == entry(4, retired=True)


def test_retired_outranks_every_other_entry_of_a_host() -> None:
    assert rank(entry(1, retired=True)) > rank(entry(9, control_version=9))
    assert rank(entry(2)) > rank(entry(1, control_version=9))


# --- deltas ---------------------------------------------------------------------------------------


def test_a_delta_applies_at_exactly_its_base_version() -> None:
    source = sender()
    copy = copy_of(source)
    first = advance(source, added=["a > 1"], entries={S: entry(1)})
    second = advance(source, added=["a > 2"], removed=["a > 1"], entries={S: entry(2)})
    assert copy.take(second).outcome is TransferOutcome.REQUEST
    assert copy.table is not None
    assert not copy.table.entries
    assert copy.take(first).outcome is TransferOutcome.APPLIED
    assert copy.take(first).outcome is TransferOutcome.STALE
    assert copy.take(second).outcome is TransferOutcome.APPLIED
    assert same(copy.table, source.table)


def test_a_delta_of_another_table_does_not_apply() -> None:
    source, other = sender(), sender(TableId("b", 8, "up"))
    copy = copy_of(source)
    assert copy.take(advance(other, added=["a > 1"])).outcome is TransferOutcome.REQUEST


def test_a_copy_that_a_delta_does_not_fit_is_dropped_and_requested_whole() -> None:
    source = sender()
    advance(source, added=["a > 1"], entries={S: entry(1)})
    copy = copy_of(source)
    assert copy.table is not None
    del copy.table.conjunctions["a > 1"]  # corruption
    update = copy.take(advance(source, removed=["a > 1"], entries={S: entry(2)}))
    assert update.outcome is TransferOutcome.REQUEST
    assert update.removed_hosts == (S,)
    assert copy.request("up") == TableRequest("up")


def test_a_delta_with_a_wrong_digest_changes_nothing() -> None:
    source = sender()
    copy = copy_of(source)
    good = advance(source, added=["a > 1"], entries={S: entry(1)})
    bad = TableDelta(NAME, 1, 2, ("a > 5",), (), good.entries, (), (), (), (), good.digest)
    table = copy.table
    assert table is not None
    assert not table.apply(bad)
    assert (table.version, table.conjunctions, table.entries) == (1, {}, {})


def test_without_a_difference_there_is_no_delta() -> None:
    source = sender()
    advance(source, added=["a > 1"], entries={S: entry(1)}, known={P: 1}, late={P: frozenset({S})})
    table = source.table
    assert table.difference(entries={S: entry(1)}, known={P: 1}, late={P: frozenset({S})}) is None


def test_deltas_follow_every_random_change_and_so_do_full_tables() -> None:
    for seed in range(200):
        dice = random.Random(seed)
        source = sender(log_max=dice.randint(1, 4), bytes_max=dice.choice((1, 200, 10_000)))
        copy = copy_of(source)
        for _ in range(20):
            advance_at_random(source, dice)
            assert source.table.digest == source.table.computed_digest()
            if dice.random() < 0.5:
                for message in source.answer(copy.request("up")):
                    copy.take(message)
                assert same(copy.table, source.table)


def advance_at_random(source: TableSender, dice: random.Random) -> None:
    table = source.table
    pool = [f"a > {number}" for number in range(6)]
    delta = table.difference(
        added=[text for text in pool if text not in table.conjunctions and dice.random() < 0.3],
        removed=[text for text in table.conjunctions if dice.random() < 0.3],
        entries={shb: entry(dice.randint(1, 3)) for shb in (S, T) if dice.random() < 0.7},
        known={pubend: dice.randint(1, 2) for pubend in (P, Q) if dice.random() < 0.7},
        late={
            pubend: frozenset(dice.sample((S, T), 1)) for pubend in (P, Q) if dice.random() < 0.5
        },
    )
    if delta is not None:
        source.advance(delta)


# --- full tables and the log ----------------------------------------------------------------------


def big_sender() -> TableSender:
    source = sender(bytes_max=150)
    advance(
        source,
        added=[f"a = {number}" for number in range(20)],
        entries={S: entry(3), T: entry(1)},
        known={P: 1, Q: 2},
        late={P: frozenset({S, T})},
    )
    return source


def test_parts_are_staged_and_applied_together_in_any_order() -> None:
    source = big_sender()
    parts = list(full_parts(source.table, 150))
    assert len(parts) > 5
    random.Random(3).shuffle(parts)
    copy = TableReceiver()
    for part in parts[:-1]:
        assert copy.take(part).outcome is TransferOutcome.STAGED
        assert copy.take(part).outcome is TransferOutcome.STAGED
        assert copy.table is None
    assert copy.take(parts[-1]).outcome is TransferOutcome.APPLIED
    assert same(copy.table, source.table)


def test_parts_of_different_versions_are_never_mixed() -> None:
    source = big_sender()
    old = full_parts(source.table, 150)
    advance(source, removed=["a = 3"], entries={S: entry(4), T: entry(1)})
    new = full_parts(source.table, 150)
    copy = TableReceiver()
    for part in (*old[:-1], *new[:-1]):
        assert copy.take(part).outcome is TransferOutcome.STAGED
    assert copy.take(old[-1]).outcome is TransferOutcome.STALE
    assert copy.take(new[-1]).outcome is TransferOutcome.APPLIED
    assert same(copy.table, source.table)


def test_a_full_table_replaces_the_copy_and_returns_the_changes() -> None:
    source = sender()
    advance(source, added=["a > 1", "b > 1"], entries={S: entry(1)})
    copy = copy_of(source)
    advance(source, added=["a > 2"], removed=["a > 1"], entries={T: entry(1)})
    (part,) = full_parts(source.table, 10_000)
    assert isinstance(part, TableFull)
    update = copy.take(part)
    assert [str(one) for one in update.added] == ["a > 2"]
    assert [str(one) for one in update.removed] == ["a > 1"]
    assert (update.added_hosts, update.removed_hosts) == ((T,), (S,))
    assert copy.take(part).outcome is TransferOutcome.STALE


def test_a_full_table_that_does_not_match_its_digest_is_refused() -> None:
    source = big_sender()
    first, *rest = full_parts(source.table, 150)
    corrupt = TableFull(NAME, first.version, 0, first.parts, (), (), (), (), first.digest)
    copy = TableReceiver()
    outcomes = [copy.take(part).outcome for part in (corrupt, *rest)]
    assert outcomes[-1] is TransferOutcome.REQUEST
    assert copy.table is None


def test_more_parts_than_the_limit_are_refused() -> None:
    parts = TABLE_PARTS_MAX + 1
    part = TableFull(NAME, 1, 0, parts, (), (), (), (), 0)
    assert TableReceiver().take(part).outcome is TransferOutcome.REFUSED


@pytest.mark.parametrize(("behind", "expected"), [(0, 0), (1, 1), (3, 3), (4, 1)])
def test_a_requester_gets_the_missing_deltas_or_the_whole_table(behind: int, expected: int) -> None:
    source = sender(log_max=3)
    for number in range(6):
        advance(source, added=[f"a = {number}"])
    answer = source.answer(TableRequest("up", NAME, source.table.version - behind))
    assert len(answer) == expected
    kind = TableFull if behind > 3 else TableDelta
    assert all(isinstance(message, kind) for message in answer)


def test_a_requester_of_another_incarnation_gets_the_whole_table() -> None:
    source = sender()
    advance(source, added=["a = 1"])
    (answer,) = source.answer(TableRequest("up", TableId("b", 6, "up"), 1))
    assert isinstance(answer, TableFull)


def test_a_heartbeat_detects_lost_deltas_and_corrupt_copies() -> None:
    source = sender()
    advance(source, added=["a > 1"])
    copy = copy_of(source)
    assert copy.compare_state(source.state()).outcome is TransferOutcome.STALE
    assert copy.compare_state(TableState("up", 1, 0)).outcome is TransferOutcome.STALE
    advance(source, added=["a > 2"])
    assert copy.compare_state(source.state()).outcome is TransferOutcome.REQUEST
    assert copy.table is not None
    for message in source.answer(copy.request("up")):
        copy.take(message)
    copy.table.digest ^= 1
    assert copy.compare_state(source.state()).outcome is TransferOutcome.REQUEST
    assert copy.table is None


# --- texts and digests ----------------------------------------------------------------------------


def test_a_conjunction_can_be_restored_from_its_text() -> None:
    (conjunction,) = Filter("symbol = 'IBM' AND price > 90.5").conjunctions
    assert conjunction_of(text_of(conjunction)) == conjunction


@pytest.mark.parametrize("text", ["price >", "a = 1 OR b = 2", "FALSE", "@@"])
def test_a_text_that_is_no_conjunction_matches_everything(text: str) -> None:
    assert conjunction_of(text) == EVERYTHING


def test_digests_are_the_same_in_every_process() -> None:
    program = (
        "from tests.propagation.test_table import big_sender, full_parts\n"
        "parts = full_parts(big_sender().table, 150)\n"
        "import hashlib; print(hashlib.sha256(repr(parts).encode()).hexdigest())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
