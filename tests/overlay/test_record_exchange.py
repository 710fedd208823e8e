"""What one broker sends of its records, and which records it takes (RS-4)."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gapless.core.context import Context, Identity
from gapless.core.ids import BrokerId, CellId
from gapless.core.parameters import Parameters, microseconds
from gapless.messages.overlay import (
    CellEdge,
    CellMember,
    CellRecord,
    RecordList,
    RecordPush,
    RecordVersion,
    RecordWant,
)
from gapless.overlay.cell_records import RecordDigests, by_name, merged
from gapless.overlay.neighbourhood import Neighbourhood, Topology
from gapless.overlay.record_exchange import RecordExchange
from gapless.overlay.tree import Tree
from tests.shape_versions import shape

LINE = Topology.of({c: [c] for c in "abcde"}, [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")])
NEWER_B = replace(by_name(LINE.cells)["b"], member_version=2)


class Broker:
    """The exchange of one broker, with open sessions to all its neighbourhood."""

    def __init__(self, cell: CellId, delta: int = 1) -> None:
        self.context = Context(Identity(cell, cell, 1), Parameters(delta=delta))
        self.tree = Tree(LINE.neighbourhood(cell, delta + 1))
        self.received: list[tuple[BrokerId, tuple[CellRecord, ...]]] = []
        self.exchange = RecordExchange(self.context, self.tree, self, self)

    def records_received(self, peer: BrokerId, records: tuple[CellRecord, ...]) -> None:
        self.received.append((peer, records))

    def open_peers(self) -> list[BrokerId]:
        me = self.context.identity.broker
        return [each for each in self.tree.neighbourhood.all_brokers() if each != me]

    def is_open(self, peer: BrokerId) -> bool:
        return peer in self.open_peers()

    def is_direct(self, peer: BrokerId) -> bool:
        return self.is_open(peer)

    def open_in(self, brokers: Any) -> list[BrokerId]:
        return [each for each in brokers if self.is_open(each)]

    def route(self, peer: BrokerId) -> tuple[BrokerId, ...]:
        del peer
        return ()

    def incarnation_of(self, peer: BrokerId) -> int:
        del peer
        return 1

    def clock_view(self) -> int:
        return 0

    def give(self, peer: BrokerId, message: Any) -> None:
        """Hand a message to the exchange."""
        self.exchange.handlers[type(message)](peer, message)

    def sent(self) -> dict[BrokerId, list[Any]]:
        """Return the messages sent since the last call."""
        return dict(self.context.take_messages())

    def told(self) -> dict[BrokerId, list[CellId]]:
        """Return the cells whose records were pushed since the last call."""
        return {
            peer: [record.name for push in pushes for record in push.records]
            for peer, pushes in self.sent().items()
        }

    def step(self, *records: CellRecord) -> None:
        """Apply records."""
        near = self.tree.neighbourhood
        old = by_name(near.cells)
        new = merged(old, records)
        self.exchange.tell_step(old, new)
        cells = tuple(new[each.name] for each in near.cells)
        self.tree.replace(Neighbourhood(near.own, near.version + 1, cells))


# --- telling ----------------------------------------------------------------------------------------


def test_a_step_is_told_to_each_peer_that_is_near_enough_to_the_changed_cell() -> None:
    broker = Broker("b")
    broker.step(NEWER_B)
    assert broker.told() == {"a": ["b"], "c": ["b"], "d": ["b"]}
    broker = Broker("c")
    newer_a = replace(by_name(LINE.cells)["a"], member_version=2)
    broker.step(newer_a)
    assert broker.told() == {"b": ["a"], "a": ["a"]}, "a is too far from d and e"


def test_a_peer_is_not_told_what_it_has_told() -> None:
    broker = Broker("b")
    broker.give("a", RecordPush((NEWER_B,)))
    assert broker.received == [("a", (NEWER_B,))]
    broker.step(NEWER_B)
    assert broker.told() == {"c": ["b"], "d": ["b"]}


def test_a_peer_is_told_again_in_the_next_session() -> None:
    broker = Broker("b")
    broker.give("a", RecordPush((NEWER_B,)))
    broker.exchange.session_closed("a")
    broker.step(NEWER_B)
    assert set(broker.told()) == {"a", "c", "d"}


def test_wanted_records_are_pushed_as_far_as_they_are_held() -> None:
    broker = Broker("a")
    broker.give("b", RecordWant(("c", "z", "c")))
    assert broker.told() == {"b": ["c"]}
    broker.exchange.want("b", ["x", "y"])
    assert broker.sent() == {"b": [RecordWant(("x", "y"))]}
    broker.exchange.push("b", ["z"])
    assert broker.sent() == {}


# --- comparing --------------------------------------------------------------------------------------


def test_two_brokers_with_equal_records_have_equal_digests() -> None:
    digests = {cell: RecordDigests(LINE.neighbourhood(cell, 2).cells, 2) for cell in "abcde"}
    for one, others in (("a", "bc"), ("b", "acd"), ("c", "abde")):
        for other in others:
            assert digests[one].of(other) == digests[other].of(one)
    assert digests["b"].of("a") != digests["b"].of("d"), "other cells are within Δ of both"


def test_a_newer_record_changes_the_digest() -> None:
    cells = LINE.neighbourhood("a", 2).cells
    newer = (cells[0], NEWER_B, cells[2])
    assert RecordDigests(cells, 2).of("b") != RecordDigests(newer, 2).of("b")


def test_the_side_with_the_newer_record_pushes_it_when_digests_differ() -> None:
    a, b = Broker("a"), Broker("b")
    b.step(NEWER_B)
    b.sent()
    a.exchange.differ("b", 1, 2)
    b.exchange.differ("a", 2, 1)
    (from_a,), (from_b,) = a.sent()["b"], b.sent()["a"]
    assert isinstance(from_a, RecordList)
    b.give("a", from_a)
    a.give("b", from_b)
    assert b.sent() == {"a": [RecordPush((NEWER_B,))]}
    assert a.sent() == {}


def test_a_record_that_the_list_does_not_have_is_pushed() -> None:
    a = Broker("a")
    listed = [each for each in LINE.neighbourhood("b", 2).cells if each.name != "c"]
    a.give("b", RecordList(tuple(RecordVersion(each.name, *each.version) for each in listed)))
    assert a.told() == {"b": ["c"]}


def test_a_list_is_repeated_only_after_a_while_or_a_change() -> None:
    a = Broker("a")
    a.exchange.differ("b", 1, 7)
    assert a.sent()
    a.exchange.differ("b", 1, 7)
    assert a.sent() == {}
    a.exchange.differ("b", 1, 8)
    assert a.sent()
    a.context.now += microseconds(ms=Parameters().retry_max_ms)
    a.exchange.differ("b", 1, 8)
    assert a.sent()


# --- receiving --------------------------------------------------------------------------------------


def test_only_newer_records_are_passed_on() -> None:
    broker = Broker("a")
    held = by_name(LINE.cells)
    broker.give("b", RecordPush((held["a"], held["c"])))
    assert broker.received == []
    broker.give("b", RecordPush((held["a"], NEWER_B)))
    assert broker.received == [("b", (NEWER_B,))]


def test_a_push_with_a_record_of_a_wrong_form_is_dropped_as_a_whole() -> None:
    broker = Broker("a")
    forged = replace(NEWER_B, edges=(CellEdge("b", shape(9)),))
    other = replace(by_name(LINE.cells)["c"], member_version=2)
    broker.give("b", RecordPush((other, forged)))
    assert broker.received == []
    assert broker.context.coverage_marks["record of a wrong form"] == 1


def test_what_a_peer_tells_of_unknown_cells_is_not_remembered() -> None:
    broker = Broker("a")
    for number in range(1_000):
        far = CellRecord(f"x{number}", (CellMember(f"x{number}"),), ())
        broker.give("b", RecordPush((far,)))
    assert len(broker.exchange._told["b"]) <= len(broker.tree.neighbourhood.cells)
