"""A walk over the tree finds the records of all cells, or names those that are missing (RS-20)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gapless.core.ids import CellId
from gapless.inspection import tree as tree_module
from gapless.messages.clients import RefusalCause, Refused
from gapless.messages.operating import TreeWalked, WalkTree
from gapless.messages.overlay import CellRecord
from gapless.messages.unicast import UnicastReply, UnicastRequest, Walked
from gapless.requests import tree_walk
from tests.broker.harness import BrokerHarness, Requester
from tests.broker.hostile import HostileWorld
from tests.scenarios.brokers import of

CHAINS = ("a-b-c-d-e-f", "c-g-h")
"""Two branches; each broker knows the cells within delta + 1."""


def harness(*chains: str, delta: int = 0, **cells: list[str]) -> BrokerHarness:
    """Return a world with open sessions and complete tables."""
    world = BrokerHarness(*(chains or CHAINS), cells=cells or None, delta=delta)
    world.run(s=2)
    return world


def walked(world: BrokerHarness, broker: str, after: CellId = "", s: int = 30) -> TreeWalked:
    """Walk over the tree from a broker and return the answer to its client."""
    client = Requester(world, broker, f"operator of {broker} at {world.now}")
    answer = client.call(WalkTree(client.number(), after), s=s)
    assert isinstance(answer, TreeWalked), answer
    return answer


def names(answer: TreeWalked) -> str:
    """Return the names of the cells that were found."""
    return "".join(record.name for record in answer.records)


# --- the whole tree -------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", [0, 1, 2])
def test_every_broker_finds_the_same_whole_tree(delta: int) -> None:
    world = harness(delta=delta)
    answers = {broker: walked(world, broker) for broker in "abcdefgh"}
    assert len({answer.records for answer in answers.values()}) == 1
    assert names(answers["a"]) == "abcdefgh"
    assert answers["a"].records == world.topology.cells
    assert not any(answer.silent or answer.more for answer in answers.values())


def test_a_broker_that_knows_the_whole_tree_asks_nobody() -> None:
    world = harness("a-b-c")
    since = world.now
    assert names(walked(world, "b")) == "abc"
    assert not [each for at, *_, each in world.sent if at >= since and type(each) is UnicastRequest]


def test_a_walk_asks_a_cell_only_if_it_lists_a_cell_without_a_record() -> None:
    world = harness("a-b-c-d", "b-x", "c-y")
    since = world.now
    assert names(walked(world, "a")) == "abcdxy"
    asked = [
        each.to.broker
        for at, source, _, each in world.sent
        if at >= since and source == "a" and isinstance(each, UnicastRequest)
    ]
    assert asked == ["b", "c"]


def test_a_walk_after_a_shift_finds_the_new_tree() -> None:
    world = harness()
    world.shift("d", "c", "g")
    world.apply_tree(*world.nodes)
    world.run(s=10)
    assert {walked(world, broker).records for broker in "ah"} == {
        tuple(sorted(world.topology.cells, key=lambda record: record.name))
    }


def test_of_two_records_of_a_cell_the_newer_one_is_found() -> None:
    # c has heard of a change of d's members, and the others have not
    world = harness("a-b-c-d")
    cells = world["c"].neighbourhood.cells
    newer = tuple(
        replace(record, member_version=7) if record.name == "d" else record for record in cells
    )
    tree = world["c"].components.tree
    tree.replace(replace(tree.neighbourhood, cells=newer))
    found = {record.name: record.member_version for record in walked(world, "a").records}
    assert found == {"a": 1, "b": 1, "c": 1, "d": 7}


# --- brokers that do not answer -------------------------------------------------------------------


def test_cells_behind_a_dead_one_are_missing_and_named_with_it() -> None:
    world = harness()
    world.crash("d")
    world.run(s=2)
    answer = walked(world, "a")
    assert names(answer) == "abcdgh"
    assert answer.silent == ("d", "e")


def test_the_neighbours_of_a_dead_cell_are_asked_in_its_place() -> None:
    # with delta 1 the cell c holds the record of e, behind the dead cell d
    world = harness("a-b-c-d-e-f-g", delta=1)
    world.crash("d")
    world.run(s=2)
    answer = walked(world, "a")
    assert names(answer) == "abcdefg"
    assert answer.silent == ()


def test_if_one_broker_of_a_cell_does_not_answer_the_next_is_asked() -> None:
    world = harness("a-b-c-d", c=["c1", "c2", "c3"])
    world.lose(of(UnicastReply, source="c1"))
    world.crash("c2")
    world.run(s=2)
    since = world.now
    assert names(walked(world, "a")) == "abcd"
    assert world.now - since < 3_000_000


def test_a_lost_hop_delays_a_walk_and_does_not_end_it() -> None:
    world = harness()
    lost = world.lose(of(UnicastRequest, source="c", target="d"))
    client = Requester(world, "a", "operator")
    client.request(WalkTree(1))
    world.run(ms=500)
    assert client.answer(1) is None
    lost.end()
    world.run(s=2)
    assert names(client.answer(1)) == "abcdefgh"


# --- pages and limits -----------------------------------------------------------------------------


def test_the_records_of_a_large_neighbourhood_take_several_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tree_walk, "SHOWN_ENTRIES_MAX", 2)
    world = harness("a-b-c-d", "c-m", "c-n", "c-o")
    since = world.now
    assert names(walked(world, "a")) == "abcdmno"
    pages = [
        each.body
        for each in world.sent_over(UnicastReply, "c", "b", since)
        if isinstance(each.body, Walked)
    ]
    assert [len(page.records) for page in pages] == [2, 2, 2]
    assert [page.more for page in pages] == [True, True, False]


def test_a_large_record_has_a_page_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_walk, "UNICAST_BODY_BYTES_MAX", 20)
    world = harness("a-b-c-d")
    assert names(walked(world, "a")) == "abcd"


def test_a_client_gets_the_tree_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.inspection.show.SHOWN_ENTRIES_MAX", 3)
    world = harness()
    answers = [walked(world, "a", after) for after in ("", "c", "f", "h")]
    assert [names(answer) for answer in answers] == ["abc", "def", "gh", ""]
    assert [answer.more for answer in answers] == [True, True, False, False]


def test_more_simultaneous_walks_than_the_limit_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tree_module, "TREE_WALKS_MAX", 1)
    world = harness()
    client = Requester(world, "a", "operator")
    client.request(WalkTree(1))
    client.request(WalkTree(2))
    world.run(s=1)
    refused = client.answer(2)
    assert isinstance(refused, Refused)
    assert refused.cause is RefusalCause.UNAVAILABLE
    assert isinstance(client.answer(1), TreeWalked)
    assert isinstance(client.call(WalkTree(3)), TreeWalked)


def test_a_walk_asks_no_more_cells_at_once_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_walk, "WALK_QUESTIONS_MAX", 1)
    world = harness("a-b", "b-c-d", "b-e-f", "b-g-h")
    client = Requester(world, "a", "operator")
    client.request(WalkTree(1))
    unicast = world["a"].components.unicast
    for _ in range(50):
        world.run(ms=1)
        assert unicast.statistics()["active"] <= 1
    assert names(client.answer(1)) == "abcdefgh"


def test_a_cancelled_walk_ends_its_requests() -> None:
    world = harness()
    found: list[Any] = []
    walk = world["a"].components.tree_walks.begin(found.append)
    world.run(ms=5)
    walk.cancel()
    world.run(s=5)
    assert found == []
    assert world["a"].components.unicast.statistics()["active"] == 0
    before = world["a"].components.tree_walks.begin(found.append)
    before.cancel()
    world.run(s=5)
    assert found == []


# --- hostile answers ------------------------------------------------------------------------------


def hostile() -> tuple[HostileWorld, Any]:
    """Return broker b2, whose client walks, and the request that its neighbour b1 has received."""
    world = HostileWorld("line:6", "b3", 0)
    for peer in world.peers:
        world.connect(peer)
    world.broker.components.tree_walks.begin(world.notices.append)
    world.pass_time(1_000)
    return world, last_request(world)


def last_request(world: HostileWorld) -> Any:
    """Return the last unicast request that the broker sent, with the peer."""
    return [(peer, each) for peer, each in world.sent if isinstance(each, UnicastRequest)][-1]


def answer(world: HostileWorld, *records: CellRecord, more: bool = False) -> None:
    """Answer the last request with records."""
    peer, request = last_request(world)
    world.send(peer, UnicastReply(request.request, ("b3",), Walked(records, more)))
    world.pass_time(1_000)


def invented(number: int) -> CellRecord:
    """Return a record of a cell that does not exist and lists another such cell."""
    return CellRecord.first(f"x{number:06}", ["b9"], [f"x{number + 1:06}"])


def test_a_broker_that_invents_cells_does_not_make_a_walk_endless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tree_walk, "WALK_CELLS_MAX", 50)
    world, _ = hostile()
    for number in range(100):
        if world.notices:
            break
        answer(world, invented(number), more=True)
    (found,) = world.notices
    assert len(found.records) <= 50
    assert found.silent
    assert world.broker.coverage_marks["walk over the tree found too much"] == 1
    assert world.broker.components.unicast.statistics()["active"] == 0


def test_a_broker_that_sends_large_records_ends_the_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_walk, "WALK_BYTES_MAX", 100)
    world, _ = hostile()
    answer(world, *map(invented, range(50)))
    (found,) = world.notices
    assert found.silent


@pytest.mark.parametrize("order", [[2, 1], [1, 1], [3, 2, 1]])
def test_a_page_out_of_order_is_no_answer(order: list[int]) -> None:
    world, _ = hostile()
    answer(world, *map(invented, order))
    assert world.broker.coverage_marks["invalid page of cell records"] == 1
    world.pass_time(20_000_000)
    (found,) = world.notices
    assert not any(record.name.startswith("x") for record in found.records)
    assert found.silent
