"""VT on start points (4.1.8), reliable delivery (3.1, 3.3) and recovery (4.3).

VT: Zhao: Routing and dissemination of control information in content-based publish-subscribe systems;
virtual time vectors. Here with whole brokers; ``test_vt_propagation`` has the tables and the figures.
Where a rule of the paper is removed, a test shows how its promise breaks.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Any

import msgspec
import pytest

from gapless.content.filter import Filter
from gapless.core.ids import BrokerId, PubendId, ShbId, VectorEntry, VirtualTime
from gapless.core.ticks import Tick
from gapless.messages.propagation import TableDelta, TableFull
from gapless.messages.records import StreamEpochRecord
from gapless.propagation import SubscriptionTable, TableChooser, TransferOutcome
from gapless.propagation.exchange import TableExchange
from gapless.propagation.sufficiency import TableChoice
from gapless.propagation.transfer import TableReceiver, TableUpdate
from gapless.pubend.members import Claim, Members
from gapless.subscribers import subend as subend_module
from gapless.subscribers.groups import CursorGroups
from gapless.subscribers.subend import Subend
from gapless_lab.sim.planted_bugs import patched
from tests.cases import scaled
from tests.propagation.oracle import EVENTS, FILTERS, of_filter, of_table
from tests.scenarios.brokers import Publisher, Subscriber, World, of, shb

P = PubendId("P")


def start_time(world: World, broker: BrokerId, name: str) -> VirtualTime:
    """Return the virtual start time of a subscription."""
    start = world[broker].components.registry.subscriptions[name].newest.start
    assert start is not None
    return start


def served_from(world: World, host: BrokerId, time: VirtualTime) -> Tick:
    """Return the first tick of P whose V^m serves a host up to a virtual time."""
    return min(
        record.start
        for record in world.pubend("p", P).stream_epochs
        for listed, entry in record.entries
        if listed == shb(host) and entry.time >= time
    )


# --- 4.1.8: the start point -----------------------------------------------------------------------


class NewSubscription:
    """s1 has started; s2 is new and its table update is late; messages come before and after."""

    def __init__(self) -> None:
        world = World("p-n", retention_s=600)
        ann = world.publisher("p")
        world.subscriber("n", "s1", "symbol = 'ibm'")
        world.run(s=1)
        table_updates = world.hold(of(TableDelta, source="n", target="p"))
        s2 = self.s2 = world.subscriber("n", "s2", "symbol = 't'")
        world.run(ms=50)
        ann.publish("m1", symbol="t")
        ann.publish("m2", symbol="ibm")
        table_updates.release()
        world.run(ms=200)
        ann.publish("m3", symbol="t")
        world.run(s=1)
        self.expected = served_from(world, "n", start_time(world, "n", "s2"))
        self.missed = [
            label
            for label in ("m1", "m3")
            if ann.ticks[label] > s2.starts[P] and label not in s2.events
        ]


def test_a_subscription_starts_with_the_first_message_whose_vector_has_its_start_time() -> None:
    """4.1.8, example 4.10."""
    scenario = NewSubscription()
    assert scenario.s2.starts[P] + 1 == scenario.expected
    assert scenario.s2.events == ["m3"]
    assert scenario.missed == []


def test_a_subscription_that_starts_with_any_message_misses_those_that_were_filtered() -> None:
    """4.1.8: "there is no guarantee a later message will not be filtered out"."""

    def start_now(subend: Subend, low: Tick, _time: VirtualTime | None) -> None:
        for cursor in [*subend.groups.pending.values()]:
            cursor.start_if_served(low, VirtualTime(2**62, 0))

    with (
        patched(subend_module, "start_cursors", start_now),
        patched(CursorGroups, "is_covered", lambda _groups, _time: True),
    ):
        scenario = NewSubscription()
    assert scenario.missed == ["m1"]


def covered_subscription() -> tuple[int, list[str]]:
    """Add a subscription that another one covers; return its table messages and its events."""
    world = World("p-n")
    ann = world.publisher("p")
    world.subscriber("n", "wide", "price > 10")
    world.run(s=1)
    since = world.now
    narrow = world.subscriber("n", "narrow", "price > 100")
    world.run(ms=1)
    ann.publish("e1", price=200)
    world.run(s=1)
    return len(world.sent_over(TableDelta, "n", "p", since)), narrow.events


def test_a_covered_subscription_starts_at_once_and_sends_nothing() -> None:
    """4.1.3: it has the virtual start time of the conjunction that covers it."""
    assert covered_subscription() == (0, ["e1"])


# --- 3.2.4: theorem 3.1 ---------------------------------------------------------------------------


def dishonest(world: World) -> list[str]:
    """Return tables that claim a host and do not cover its filters: broken S-Λ invariants."""
    wanted: list[tuple[ShbId, VirtualTime, str]] = [
        (shb(name), segment.start, segment.text)
        for name, node in world.nodes.items()
        if node.broker is not None
        for segment in node.broker.components.filters.segments.values()
        if segment.start is not None
    ]
    return [
        f"{name}: {table} lacks {text} of {host}"
        for name, node in world.nodes.items()
        if node.broker is not None
        for edge in node.broker.components.exchange.table_store.edges.values()
        for table in edge.tables()
        for host, start, text in wanted
        if _claims(table, host, start) and of_filter(text) & ~of_table(table)
    ]


def _claims(table: SubscriptionTable, host: ShbId, start: VirtualTime) -> bool:
    claim = table.claim(host, P, 1)
    return claim is not None and claim.time >= start


class Turmoil:
    """Subscriptions start and end while links are cut, brokers restart and messages come.

    Every subscriber must receive the matching events published after its confirmed start.
    """

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.world = World("p-a-c", "a-b-d")
        self.ann = self.world.publisher("p")
        self.dishonest: list[str] = []
        self.subscribers: list[Subscriber] = []
        self.sent: dict[str, int] = {}
        for number in range(24):
            self._change(number)
            for _ in range(self.dice.randrange(1, 30)):
                self._pass(5)
        for one, other in (("p", "a"), ("a", "c"), ("a", "b"), ("b", "d")):
            self.world.heal(one, other)
        for _ in range(40):
            self._pass(100)

    def _change(self, number: int) -> None:
        act = self.dice.random()
        if act < 0.6:
            broker = self.dice.choice("pacbd")
            wanted = self.dice.choice(FILTERS) or "TRUE"
            self.subscribers.append(self.world.subscriber(broker, f"s{number}", wanted))
        elif act < 0.8:
            one, other = self.dice.choice((("p", "a"), ("a", "c"), ("a", "b"), ("b", "d")))
            self.world.cut(one, other)
            self._pass(200)
            self.world.heal(one, other)
        elif act < 0.9:
            router = self.dice.choice("ab")
            self.world.restart(router)
            self.subscribers = [each for each in self.subscribers if each.broker != router]
        elif self.subscribers:
            self.subscribers.pop(self.dice.randrange(len(self.subscribers))).leave()

    def _pass(self, ms: int) -> None:
        number = self.dice.randrange(len(EVENTS))
        label = f"e{len(self.sent)}"
        self.sent[label] = number
        self.ann.send_values(label, EVENTS[number])
        self.world.run(ms=ms)
        self.dishonest += dishonest(self.world)

    def missing(self) -> list[str]:
        """Return events that a subscriber must receive and did not, or received without a match."""
        return [
            f"{each.name}: {each.events} instead of {expected}"
            for each in self.subscribers
            if (expected := self._expected(each)) != each.events
        ]

    def _expected(self, subscriber: Subscriber) -> list[str]:
        start = subscriber.starts.get(P)
        assert start is not None, f"{subscriber.name} has not started"
        wanted = of_filter(subscriber.wanted)
        return [
            label
            for label, tick in self.ann.ticks.items()
            if tick > start and wanted >> self.sent[label] & 1
        ]


@pytest.mark.parametrize("seed", range(scaled(8)))
def test_theorem_3_1_events_after_the_start_point_are_delivered_without_a_gap(
    seed: int,
) -> None:
    """Conditions 1 (S-Λ) and 3 (it starts once failures end), and the conclusion from all four."""
    scenario = Turmoil(seed)
    assert scenario.dishonest == []
    assert len(scenario.ann.ticks) == len(scenario.sent)
    assert any(each.events for each in scenario.subscribers)
    assert scenario.missing() == []


def test_theorem_3_1_needs_condition_1() -> None:
    """Tables that claim more than they cover lose messages."""
    claim_too_much = table_that_takes_any_delta()
    scenario = LostChange(claim_too_much)
    assert scenario.dishonest
    assert scenario.missed == ["y1"]


def router_restarts() -> list[str]:
    """Restart a router without tables; a message comes before it has received them again."""
    world = World("p-n-c")
    ann = world.publisher("p")
    x = world.subscriber("c", "x", "kind = 'X'")
    world.run(s=1)
    table_updates = world.hold(of(TableDelta, TableFull, source="c", target="n"))
    world.restart("n")
    world.run(s=2)
    ann.publish("x1", kind="X")
    world.run(s=1)
    table_updates.release()
    world.run(s=1)
    ann.publish("x2", kind="X")
    world.run(s=1)
    return x.events


def test_theorem_3_1_a_broker_that_lags_forwards() -> None:
    """Condition 2: sufficiency-directed routing."""
    assert router_restarts() == ["x1", "x2"]


def test_theorem_3_1_needs_condition_2() -> None:
    """A broker that filters by insufficient tables loses messages."""

    def by_what_is_there(
        chooser: TableChooser, _pubend: object, _vector: object, _version: object, receiver: Any
    ) -> TableChoice:
        edge = chooser._edge(receiver)
        tables = () if edge is None else tuple(edge.held())
        return TableChoice(tables, sum(1 << held.number for held in tables))

    with patched(TableChooser, "choose", by_what_is_there):
        assert router_restarts() == ["x2"]


def test_theorem_3_1_needs_condition_3() -> None:
    """With vectors that stay at a host's first entry, a later subscription there never starts."""

    def as_first_listed(members: Members, claim: Claim, now: int) -> dict[ShbId, VectorEntry]:
        listed = {row.shb: VectorEntry(row.time) for row in members.rows() if not row.inactive}
        return {**vector(members, claim, now), **listed}

    vector = Members.vector
    with patched(Members, "vector", as_first_listed):
        scenario = Turmoil(1)
    assert scenario.dishonest == [], "condition 1 holds as before"
    omitted = [each for each in scenario.subscribers if P not in each.starts]
    assert omitted
    assert [each.events for each in omitted] == [[]] * len(omitted)


class InactiveHost:
    """A host is cut off until V^m no longer contains it, and brokers above have lost its tables."""

    def __init__(self) -> None:
        world = World("p-n-z", inactive_after_s=7)
        ann = world.publisher("p")
        self.x = world.subscriber("z", "x", "kind = 'Z'")
        world.run(s=1)
        world.cut("n", "z")
        world.restart("n")
        world.restart("p")
        ann.connect()
        world.run(s=12)
        ann.open()
        ann.publish("z1", kind="Z")
        self.listed = [
            entry
            for record in world.pubend("p", P).stream_epochs[-1:]
            for entry in record.entries
            if entry[0] == shb("z")
        ]
        table_updates = world.hold(of(TableDelta, TableFull, source="n", target="p"))
        world.heal("n", "z")
        world.run(s=3)
        table_updates.release()
        world.run(s=2)
        ann.publish("z2", kind="Z")
        world.run(s=1)


def test_theorem_3_1_a_host_accepts_only_messages_whose_vector_has_its_subscriptions() -> None:
    """Condition 4: ticks with another vector are not accepted; here they are read from the log."""
    scenario = InactiveHost()
    assert scenario.listed == []
    assert scenario.x.events == ["z1", "z2"]


def test_theorem_3_1_needs_condition_4() -> None:
    """A host that accepts silence of any vector loses messages."""
    with patched(CursorGroups, "is_covered", lambda _groups, _time: True):
        scenario = InactiveHost()
    assert scenario.x.events == ["z2"]
    assert scenario.x.gaps == []


@pytest.mark.parametrize("crashes", [1, 3])
def test_theorem_3_1_vectors_never_fall_although_the_pubend_crashes(crashes: int) -> None:
    """4.3.1: V^m is on disk, "in order to assign monotonically non-decreasing V^m vectors"."""
    world = World("p-n", retention_s=600)
    ann = world.publisher("p")
    for number in range(crashes):
        world.subscriber("n", f"s{number}", f"x = {number}")
        world.run(s=1)
        world.restart("p")
        ann.connect()
        world.run(ms=300)
    world.subscriber("n", "last", "x < 0")  # at least one stream epoch follows the last crash
    world.run(s=1)
    times = [
        dict(record.entries)[shb("n")].time
        for record in world.nodes["p"].disk.load()
        if isinstance(record, StreamEpochRecord)
    ]
    assert len(times) > crashes
    assert times == sorted(times)


# --- 3.4: theorem 3.3 -----------------------------------------------------------------------------


def conjunctions_left(seed: int) -> tuple[set[str], set[str]]:
    """Start and end subscriptions; return the conjunctions in tables, and those with owners."""
    dice = Random(seed)
    world = World("p-a-c", "a-d")
    world.publisher("p")
    live: list[Subscriber] = []
    for number in range(30):
        if live and dice.random() < 0.5:
            live.pop(dice.randrange(len(live))).end()
        else:
            wanted = dice.choice(FILTERS) or "TRUE"
            live.append(world.subscriber(dice.choice("pacd"), f"s{number}", wanted))
        world.run(ms=dice.randrange(1, 40))
    while len(live) > 1:
        live.pop().end()
    world.run(s=2)
    held = {
        text
        for name in world.nodes
        for edge in world[name].components.exchange.table_store.edges.values()
        for table in edge.tables()
        for text in table.conjunctions
    }
    wanted_now = {
        str(conjunction) for each in live for conjunction in Filter(each.wanted).conjunctions
    }
    return held, wanted_now


@pytest.mark.parametrize("seed", range(scaled(6)))
def test_theorem_3_3_no_conjunction_is_left_without_a_live_subscription(seed: int) -> None:
    held, wanted = conjunctions_left(seed)
    assert held <= wanted
    assert held


def test_theorem_3_3_without_removal_conjunctions_stay() -> None:
    with patched(TableExchange, "disown", lambda _tables, _owner: None):
        held, wanted = conjunctions_left(1)
    assert not held <= wanted


# --- 4.3: changes that are lost, repeated, reordered ----------------------------------------------


def table_that_takes_any_delta() -> AbstractContextManager[None]:
    """Remove the base version from R19: a later change is applied though a former one was lost."""

    def take(receiver: TableReceiver, delta: TableDelta) -> TableUpdate:
        table = receiver.table
        if table is None or delta.table != table.name:
            return TableUpdate(TransferOutcome.REQUEST)
        based = msgspec.structs.replace(delta, base=table.version)
        digest = table._digest_after(based)
        if digest is None or delta.version <= table.version:
            return TableUpdate(TransferOutcome.STALE)
        return take_delta(receiver, msgspec.structs.replace(based, digest=digest))

    take_delta = TableReceiver._take_delta
    return patched(TableReceiver, "_take_delta", take)


class LostChange:
    """The change that adds y is lost, the next one, for z, is not."""

    def __init__(self, rules: AbstractContextManager[None]) -> None:
        with rules:
            world = World(
                "p-n",
                heartbeat_ms=2_000,
                session_timeout_ms=9_000,
                replay_buffer_ms=9_500,
                attach_expiry_ms=10_000,
            )
            ann = world.publisher("p")
            world.subscriber("n", "x", "kind = 'stock'")
            world.run(s=2)
            lost = world.lose(of(TableDelta, source="n", target="p"))
            y = world.subscriber("n", "y", "size > 3")
            world.run(ms=50)
            lost.end()
            world.subscriber("n", "z", "place = 'there'")
            world.run(ms=100)
            self.dishonest = dishonest(world)
            ann.publish("y1", kind="news", size=4, place="here")
            world.run(s=6)
            ann.publish("y2", kind="news", size=4, place="here")
            world.run(s=1)
        assert len(lost.messages) == 1
        self.y = y
        self.missed = missed(ann, y, "y1", "y2")


def missed(ann: Publisher, subscriber: Subscriber, *labels: str) -> list[str]:
    """Return the events after the start of a subscriber that it did not receive."""
    start = subscriber.starts.get(P, 2**62)
    return [
        label for label in labels if ann.ticks[label] > start and label not in subscriber.events
    ]


def test_4_3_2_a_lost_change_is_requested_when_the_next_one_arrives() -> None:
    """4.3.2: "receives a subscription change with a constraint vector" that is ahead."""
    scenario = LostChange(nullcontext())
    assert scenario.dishonest == []
    assert scenario.missed == []
    assert "y2" in scenario.y.events


def only_change_lost() -> list[str]:
    """The last change is lost, and no other follows."""
    world = World("p-a-n")
    ann = world.publisher("p")
    lost = world.lose(of(TableDelta))
    y = world.subscriber("n", "y", "kind = 'Y'")
    world.run(ms=60)
    lost.end()
    world.run(s=3)
    ann.publish("y1", kind="Y")
    world.run(s=1)
    assert lost.messages
    return y.events


def test_4_3_2_the_loss_of_the_last_change_is_detected_by_heartbeats() -> None:
    """4.3.2: a broker whose V^b is out of date finds that out."""
    assert only_change_lost() == ["y1"]


def test_4_3_2_without_heartbeats_of_tables_a_subscription_never_starts() -> None:
    with patched(TableExchange, "compare_states", lambda _tables, _peer, _states: None):
        assert only_change_lost() == []


class Disordered:
    """Changes arrive in reverse order, some twice; x ends, y starts, ends, starts, z starts."""

    def __init__(self) -> None:
        world = World("p-a-n")
        ann = world.publisher("p")
        x = world.subscriber("n", "x", "kind = 'X'")
        world.run(s=1)
        twice = world.repeat(of(TableDelta, TableFull))
        held = world.hold(of(TableDelta, source="n", target="a"))
        x.end()
        y = world.subscriber("n", "y", "kind = 'Y'")
        world.run(ms=30)
        y.end()
        world.run(ms=30)
        self.y = world.subscriber("n", "y", "kind = 'Y'")
        world.run(ms=30)
        self.z = world.subscriber("n", "z", "kind = 'Z'")
        world.run(ms=30)
        self.changes = len(held.messages)
        held.release(reverse=True)
        world.run(s=1)
        twice.end()
        for label in "XYZ":
            ann.publish(label, kind=label)
        world.run(s=1)
        edges = [
            world[one].components.exchange.table_store.edges[other] for one, other in ("pa", "an")
        ]
        self.tables = [
            sorted(text for table in edge.tables() for text in table.conjunctions) for edge in edges
        ]


def test_4_3_3_and_4_3_4_reordered_and_repeated_changes_are_repaired() -> None:
    """4.3.3, 4.3.4: detected by their virtual times; out-of-date ones and copies are discarded."""
    scenario = Disordered()
    assert scenario.changes >= 3
    assert scenario.tables == [["kind = 'Y'", "kind = 'Z'"]] * 2
    assert (scenario.y.events, scenario.z.events) == (["Y"], ["Z"])


def test_4_3_3_changes_that_are_applied_in_any_order_leave_a_wrong_table() -> None:
    with table_that_takes_any_delta(), patched(TableExchange, "compare_states", lambda *_: None):
        scenario = Disordered()
    assert scenario.tables[1] != ["kind = 'Y'", "kind = 'Z'"]
