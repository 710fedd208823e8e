"""Requests to named brokers are routed hop by hop, answered by the recorded route, repeated (D9)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, Final, cast, get_args

import msgspec
import pytest

from gapless.core.context import Context, Identity
from gapless.core.errors import ProtocolError
from gapless.core.ids import BrokerId, CellId, ShbId
from gapless.core.parameters import Parameters, microseconds
from gapless.core.request_limits import UNICAST_BODY_BYTES_MAX
from gapless.messages.overlay import CellRecord
from gapless.messages.unicast import (
    REPLY_BODIES,
    UnicastBody,
    UnicastReply,
    UnicastReplyBody,
    UnicastRequest,
    Walk,
    Walked,
)
from gapless.overlay.neighbourhood import Topology
from gapless.overlay.peers import Peers
from gapless.overlay.tree import Tree
from gapless.requests import unicast as unicast_module
from gapless.requests.unicast import UnicastAnswer, UnicastRequests
from gapless.wire.codec import LINK_PACKETS
from gapless_lab.fuzz.taming import as_packet
from tests.broker.harness import BrokerHarness
from tests.scenarios.brokers import shb

ANSWER: Final = Walked((CellRecord.first("x", ["x"], []),))


class BrokerView:
    """What one broker sees: its sessions, and the locations that its tables prove."""

    def __init__(self, net: Net, name: BrokerId) -> None:
        self._net = net
        self._name = name
        self.places: dict[ShbId, list[CellId]] = {}
        self.served: list[tuple[BrokerId, Any]] = []
        self.waiting: list[UnicastAnswer] = []

    def is_open(self, peer: BrokerId) -> bool:
        return (self._name, peer) not in self._net.closed and peer not in self._net.down

    def open_in(self, brokers: Iterable[BrokerId]) -> list[BrokerId]:
        return [each for each in brokers if each != self._name and self.is_open(each)]

    def placing(self, to: ShbId) -> list[CellId]:
        return self.places.get(to, [])

    def unicast_requested(
        self, requester: BrokerId, body: UnicastBody, answer: UnicastAnswer
    ) -> None:
        self.served.append((requester, body))
        if self._net.at_once:
            answer(ANSWER)
        else:
            self.waiting.append(answer)


class Net:
    """A tree of brokers; each knows the cells beside its own. Messages take a millisecond."""

    def __init__(self, *chains: str, cells: dict[CellId, list[BrokerId]] | None = None) -> None:
        self.now = microseconds(s=5)
        self.at_once = True
        self.down: set[BrokerId] = set()
        self.closed: set[tuple[BrokerId, BrokerId]] = set()
        """Pairs of brokers without a session."""
        self.lost: set[tuple[BrokerId, BrokerId]] = set()
        self.sent: list[tuple[int, BrokerId, BrokerId, Any]] = []
        self.flying: list[tuple[BrokerId, BrokerId, Any]] = []
        edges = [pair for chain in chains for pair in itertools.pairwise(chain.split("-"))]
        names = {cell: [cell] for chain in chains for cell in chain.split("-")} | (cells or {})
        topology = Topology.of(names, edges)
        self.contexts: dict[BrokerId, Context] = {}
        self.views: dict[BrokerId, BrokerView] = {}
        self.requests: dict[BrokerId, UnicastRequests] = {}
        for cell in topology.cells:
            tree = Tree(topology.neighbourhood(cell.name, 1))
            for name in cell.brokers:
                context = self.contexts[name] = Context(Identity(name, cell.name, 1), Parameters())
                context.now = self.now
                view = self.views[name] = BrokerView(self, name)
                self.requests[name] = UnicastRequests(context, tree, cast(Peers, view), view, view)

    def ask(self, source: BrokerId, to: ShbId, **options: bool) -> list[Any]:
        """Request something of a broker; return the list of answers, filled later."""
        answers: list[Any] = []
        self.requests[source].request(to, Walk(), answers.append, **options)
        return answers

    def run(self, ms: int = 20) -> None:
        """Let time pass."""
        for _ in range(ms):
            self._collect()
            self.now += microseconds(ms=1)
            for context in self.contexts.values():
                context.now = self.now
            arriving, self.flying = self.flying, []
            for source, target, message in arriving:
                self.receive(target, source, message)
            for context in self.contexts.values():
                context.run_timers()
        self._collect()

    def receive(self, target: BrokerId, source: BrokerId, message: Any) -> None:
        """Pass a message to its handler."""
        self.requests[target].handlers[type(message)](source, message)

    def _collect(self) -> None:
        for name, context in self.contexts.items():
            for peer, messages in context.take_messages():
                for message in messages:
                    self.sent.append((self.now, name, peer, message))
                    if (name, peer) not in self.lost and peer not in self.down:
                        self.flying.append((name, peer, message))

    def hops(self, kind: type) -> list[str]:
        """Return the hops that messages of a kind made."""
        return [f"{one}{other}" for _, one, other, each in self.sent if isinstance(each, kind)]

    def marks(self, name: BrokerId) -> dict[str, int]:
        return self.contexts[name].coverage_marks


def line() -> Net:
    """Return a-b-c-d-e, in which every broker places every other one correctly."""
    net = Net("a-b-c-d-e")
    names = "abcde"
    for index, name in enumerate(names):
        for other_index, other in enumerate(names):
            if abs(index - other_index) > 1:
                step = 1 if other_index > index else -1
                net.views[name].places[shb(other)] = [names[index + step]]
    return net


# --- the way there and back -----------------------------------------------------------------------


def test_a_request_follows_the_tables_hop_by_hop_and_its_reply_the_recorded_route() -> None:
    net = line()
    answers = net.ask("a", shb("e"))
    net.run()
    assert net.hops(UnicastRequest) == ["ab", "bc", "cd", "de"]
    assert net.hops(UnicastReply) == ["ed", "dc", "cb", "ba"]
    assert answers == [ANSWER]
    assert net.views["e"].served == [("a", Walk())]
    assert net.requests["a"].statistics() == {"active": 0, "ids": 0}


def test_a_broker_of_the_neighbourhood_is_asked_directly() -> None:
    net = line()
    net.views["a"].places[shb("b")] = []
    assert net.ask("a", shb("b")) == []
    net.run()
    assert net.hops(UnicastRequest) == ["ab"]


def test_a_request_to_the_broker_itself_is_served_in_a_later_step_without_a_message() -> None:
    net = line()
    answers = net.ask("a", shb("a"))
    assert answers == []
    net.run(1)
    assert answers == [ANSWER]
    assert net.sent == []


def test_a_reply_takes_the_recorded_route_although_the_tables_have_changed() -> None:
    net = line()
    net.at_once = False
    answers = net.ask("a", shb("e"))
    net.run()
    for view in net.views.values():
        view.places.clear()
    net.views["e"].waiting.pop()(ANSWER)
    net.run()
    assert answers == [ANSWER]


def test_a_broker_in_another_cell_than_the_request_names_does_not_serve_it() -> None:
    net = line()
    answers = net.ask("a", ShbId("e", "elsewhere"))
    net.run()
    assert answers == []
    assert not any(view.served for view in net.views.values())


def test_a_request_goes_through_a_cell_peer_where_the_broker_itself_has_no_session() -> None:
    net = Net("c-d", cells={"c": ["c1", "c2"], "d": ["d1"]})
    net.closed = {("c1", "d1")}
    answers = net.ask("c1", ShbId("d1", "d"))
    net.run()
    assert net.hops(UnicastRequest) == ["c1c2", "c2d1"]
    assert answers == [ANSWER]


# --- the loss of a hop, and wrong tables ----------------------------------------------------------


def test_a_request_whose_hop_dies_is_repeated_over_another_hop() -> None:
    # the id of an attempt selects the hop, so a dead one is not met for ever
    net = Net("a-b-c", cells={"b": ["b1", "b2"]})
    net.views["a"].places[shb("c")] = ["b"]
    net.lost = {("b1", "c"), ("c", "b1")}
    answers = [net.ask("a", shb("c")), net.ask("a", shb("c"))]
    net.run(1_200)
    assert answers == [[ANSWER], [ANSWER]]
    assert {"ab1", "ab2"} <= set(net.hops(UnicastRequest))


def test_of_two_edges_that_place_a_broker_each_attempt_takes_one_in_turn() -> None:
    # Run 27: during a SHIFT two edges name the target, one of them wrongly
    net = Net("a-l", "a-m", "m-t")
    net.views["a"].places[shb("t")] = ["l", "m"]
    answers = net.ask("a", shb("t"))
    net.run(1_200)
    assert answers == [ANSWER]
    by_time: dict[int, set[BrokerId]] = {}
    for at, one, other, each in net.sent:
        if one == "a" and isinstance(each, UnicastRequest):
            by_time.setdefault(at, set()).add(other)
    assert all(len(targets) == 1 for targets in by_time.values()), "never over both at once"
    assert set().union(*by_time.values()) <= {"l", "m"}


@pytest.mark.parametrize("count", range(1, 5))
def test_a_request_reaches_a_broker_that_no_table_places(count: int) -> None:
    # Run 39: the source of a move is behind an edge that has no table of it yet
    net = Net(*(f"a-{name}" for name in "lmno"[:count]), f"{'lmno'[count - 1]}-t")
    answers = net.ask("a", shb("t"))
    net.run(40_000)
    assert answers == [ANSWER]


def test_a_hop_sends_no_request_back_to_where_it_came_from() -> None:
    net = Net("a-b-c", "b-d")
    net.views["a"].places[ShbId("z", "z")] = ["b"]
    net.views["b"].places[ShbId("z", "z")] = ["a"]
    net.ask("a", ShbId("z", "z"))
    net.run()
    assert net.hops(UnicastRequest)[0] == "ab"
    assert "ba" not in net.hops(UnicastRequest)


def test_a_request_bypasses_a_dead_cell_if_cells_behind_it_are_known() -> None:
    topology = Topology.of({name: [name] for name in "abcd"}, [("a", "b"), ("b", "c"), ("c", "d")])
    net = Net("a-b-c-d")
    net.down = {"b"}
    context, view = net.contexts["a"], net.views["a"]
    wide = Tree(topology.neighbourhood("a", 2))
    net.requests["a"] = UnicastRequests(context, wide, cast(Peers, view), view, view)
    view.places[shb("d")] = ["b"]
    net.ask("a", shb("d"))
    net.run()
    assert net.hops(UnicastRequest)[:2] == ["ac", "cd"]


# --- repetition -----------------------------------------------------------------------------------


def pauses_ms(net: Net) -> list[int]:
    times = [at for at, one, _, each in net.sent if one == "a" and isinstance(each, UnicastRequest)]
    return [(later - earlier) // 1_000 for earlier, later in itertools.pairwise(times)]


def test_a_request_is_repeated_under_new_ids_after_growing_pauses() -> None:
    net = line()
    net.lost = {("d", "e")}
    answers = net.ask("a", shb("e"))
    net.run(20_000)
    assert pauses_ms(net) == [1_000, 2_000, 4_000, 5_000, 5_000]
    ids = [each.request for _, one, _, each in net.sent if one == "a"]
    assert ids == sorted(set(ids))
    net.lost.clear()
    net.run(6_000)
    assert answers == [ANSWER]


def test_the_pauses_of_a_duty_without_an_end_grow_to_a_minute() -> None:
    net = line()
    net.lost = {("d", "e")}
    net.ask("a", shb("e"), forever=True)
    net.run(200_000)
    assert pauses_ms(net) == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]


def test_a_request_without_a_route_is_sent_when_a_session_opens() -> None:
    net = line()
    net.down = {"b"}
    answers = net.ask("a", shb("e"))
    net.run()
    assert net.sent == []
    net.down = set()
    net.requests["a"].session_opened()
    net.run()
    assert answers == [ANSWER]


def test_a_cancelled_request_is_neither_repeated_nor_called_back() -> None:
    net = line()
    net.at_once = False
    answers: list[Any] = []
    pending = net.requests["a"].request(shb("e"), Walk(), answers.append)
    net.run()
    pending.cancel()
    net.views["e"].waiting.pop()(ANSWER)
    net.run(5_000)
    assert answers == []
    assert len(net.hops(UnicastRequest)) == 4
    assert net.marks("a")["reply to an ended request"] == 1


def test_a_broker_that_has_many_requests_makes_none_for_clients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unicast_module, "UNICAST_REQUESTS_MAX", 2)
    net = line()
    found = []
    for _ in range(2):
        found.append(net.requests["a"].is_full)
        net.ask("a", shb("e"))
    found.append(net.requests["a"].is_full)
    net.run()
    assert [*found, net.requests["a"].is_full] == [False, False, True, False]


# --- hostile input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requester", "route"),
    [
        ("z", ()),
        ("a", ("z",)),
        ("b", ("b",)),
        ("a", ("c", "b")),
        ("a", (*(f"x{number}" for number in range(130)), "b")),
    ],
)
def test_a_request_with_a_forged_route_is_dropped(
    requester: BrokerId, route: tuple[BrokerId, ...]
) -> None:
    net = line()
    net.receive("c", "b", UnicastRequest(shb("c"), 1, requester, route, Walk()))
    net.run()
    assert net.sent == []
    assert net.views["c"].served == []
    assert sum(net.marks("c").values()) == 1


@pytest.mark.parametrize("route", [(), ("a",), ("a", "b"), ("c", "c"), ("b", "b", "c")])
def test_a_reply_with_a_forged_route_is_dropped(route: tuple[BrokerId, ...]) -> None:
    net = line()
    net.receive("c", "d", UnicastReply(1, route, ANSWER))
    net.run()
    assert net.sent == []


@pytest.mark.parametrize("body", [None, ANSWER])
def test_a_reply_to_no_request_or_of_another_kind_is_dropped(body: Any) -> None:
    net = line()
    net.at_once = False
    answers = net.ask("a", shb("e"))
    net.run()
    (request,) = {each.request for _, one, _, each in net.sent if one == "a"}
    net.receive("a", "b", UnicastReply(request + (0 if body is None else 1), ("a",), body))
    assert answers == []
    net.views["e"].waiting.pop()(ANSWER)
    net.run()
    assert answers == [ANSWER]


def big() -> Walked:
    """Return a body above the limit that passes the codec."""
    records = tuple(
        CellRecord.first(f"{number:06}" + "x" * 200, ["b" * 255], [])
        for number in range(UNICAST_BODY_BYTES_MAX // 400)
    )
    return Walked(records)


def test_a_body_above_the_limit_is_not_sent_and_not_forwarded() -> None:
    net = line()
    net.at_once = False
    answers = net.ask("a", shb("e"))
    net.run()
    net.views["e"].waiting.pop()(big())
    net.run()
    assert net.hops(UnicastReply) == []
    net.receive("c", "d", UnicastReply(1, ("a", "b", "c"), big()))
    net.run()
    assert net.hops(UnicastReply) == []
    assert net.marks("c")["unicast body above its limit"] == 1
    assert answers == []


def test_a_body_that_is_not_of_the_union_does_not_pass_the_codec() -> None:
    request = ["UnicastRequest", ["e", "e"], 1, "a", [], ["Retire", "b", "c", 1]]
    with pytest.raises(ProtocolError, match="malformed"):
        LINK_PACKETS.decode(as_packet(msgspec.msgpack.encode(request)))


def members(union: Any) -> set[type]:
    return set(get_args(union)) or {union}


def test_every_request_body_is_served_and_every_reply_body_answers_one() -> None:
    servers = BrokerHarness("a")["a"].components.unicast_servers
    served = {kind for server in servers for kind in server.unicast_handlers}
    assert served == members(UnicastBody)
    assert set(REPLY_BODIES) <= members(UnicastBody)
    assert set(REPLY_BODIES.values()) == members(UnicastReplyBody)
