"""Retirement: sent to all brokers, again at every session, and never forgotten (R26)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from gapless.core.context import Context, Identity
from gapless.core.effects import Send, Write
from gapless.core.events import Written
from gapless.core.ids import BrokerId, PubendId, ShbId
from gapless.core.parameters import Parameters, microseconds
from gapless.core.ticks import Tick
from gapless.messages.overlay import Packet, Retire, TableState
from gapless.messages.records import DeleteRecord, PutRecord, Record, RetirementRecord
from gapless.overlay import retirements
from gapless.overlay.neighbourhood import Neighbourhood, Topology
from gapless.overlay.retirements import Retirements
from gapless.overlay.sessions import PeerSessions

GONE = ShbId("gone", "far away")
ME = ShbId("hub", "hub")
P, Q = PubendId("P"), PubendId("Q")
PARAMETERS = Parameters(tombstone_ttl_s=10)


class Hub:
    """A broker with retirements in the centre of a star; the test opens and closes sessions."""

    def __init__(
        self,
        *peers: BrokerId,
        records: Iterable[Record] = (),
        last_tick: Tick = 0,
        pubends: tuple[PubendId, ...] = (),
        clock: int = 100,
    ) -> None:
        names = ["hub", *peers]
        topology = Topology.of({name: [name] for name in names}, [("hub", name) for name in peers])
        self.context = Context(Identity("hub", "hub", 1), PARAMETERS)
        self.context.clock = clock
        self.sessions = _Open(self.context, topology.neighbourhood("hub", 1), self)
        self.sessions.reached = [*peers]
        self.changes: list[ShbId] = []
        self.disk: dict[tuple[str, ...], Record] = {}
        self.retirements = Retirements(
            self.context,
            self.sessions,
            [each for each in records if isinstance(each, RetirementRecord)],
            self,
            self,
        )
        self.last_tick, self.on_disk = last_tick, pubends
        self.sessions.start()
        self.retirements.start()

    def retirement_changed(self, shb: ShbId) -> None:
        self.changes.append(shb)

    def posted(self) -> dict[BrokerId, list[Any]]:
        """Return the messages sent since the last call."""
        return dict(self.context.take_messages())

    def write(self) -> None:
        """Make all writes durable."""
        for effect in [each for each in self.context.effects if isinstance(each, Write)]:
            for change in effect.changes:
                if isinstance(change, PutRecord):
                    self.disk[change.record.key] = change.record
                elif isinstance(change, DeleteRecord):
                    self.disk.pop(change.key, None)
            self.context.resume(Written(effect.write_id))
        self.context.effects = []

    def stored(self) -> list[Record]:
        """Make all writes durable and return the records on disk."""
        self.write()
        return [*self.disk.values()]

    def later(self, s: int) -> None:
        self.context.now += microseconds(s=s)
        self.context.run_timers()
        self.context.effects = [each for each in self.context.effects if type(each) is not Send]
        self.context.take_messages()

    def session_opened(self, peer: BrokerId, cell: str) -> None:
        del cell
        self.retirements.session_opened(peer)

    def session_closed(self, peer: BrokerId) -> None:
        del peer

    def peer_congested(self, peer: BrokerId) -> None:
        del peer

    def peer_drained(self, peer: BrokerId) -> None:
        del peer

    def records_differ(self, peer: BrokerId, own: int, theirs: int) -> None:
        del peer, own, theirs

    def packet_received_outside(self, peer: BrokerId, packet: Any) -> None:
        del peer, packet

    def unsent(self, peer: BrokerId, messages: list[Any]) -> None:
        del peer, messages

    def received(self, peer: BrokerId, message: Any) -> None:
        assert not isinstance(message, Packet)
        self.retirements.received(peer, message)

    def table_states(self, peer: BrokerId) -> tuple[TableState, ...]:
        del peer
        return ()

    def table_states_received(self, peer: BrokerId, states: tuple[TableState, ...]) -> None:
        del peer, states


class _Open(PeerSessions):
    """Sessions that a test opens and closes."""

    def __init__(self, context: Context, neighbourhood: Neighbourhood, hub: Hub) -> None:
        super().__init__(context, neighbourhood, hub)
        self.reached: list[BrokerId] = []

    def open_peers(self) -> list[BrokerId]:
        return self.reached


def test_a_retirement_is_sent_to_all_reachable_peers() -> None:
    hub = Hub("a", "b", "c")
    hub.sessions.reached = ["a", "b"]
    hub.retirements.retire(GONE)
    message = Retire("gone", "far away", 100)
    assert hub.posted() == {"a": [message], "b": [message]}
    assert GONE in hub.retirements
    assert ShbId("gone", "elsewhere") not in hub.retirements


def test_a_retirement_is_forwarded_once_and_not_back() -> None:
    hub = Hub("a", "b", "c")
    message = Retire("gone", "far away", 7)
    hub.retirements.received("a", message)
    assert hub.posted() == {"b": [message], "c": [message]}
    hub.retirements.received("b", message)
    assert hub.posted() == {}, "otherwise it would circle for ever"
    assert hub.changes == [GONE]


def test_a_retirement_is_sent_to_the_retired_broker_since_it_may_be_up() -> None:
    hub = Hub("a", "gone")
    hub.retirements.retire(GONE)
    assert hub.posted().keys() == {"a", "gone"}


def test_retirements_are_sent_when_a_session_opens() -> None:
    # R26: otherwise it never crosses a cell that is down
    hub = Hub("a")
    hub.retirements.retire(GONE)
    hub.posted()
    hub.retirements.session_opened("late")
    assert hub.posted() == {"late": [Retire("gone", "far away", 100)]}


def test_a_repeated_retirement_is_forwarded_but_not_reported_as_a_change() -> None:
    hub = Hub("a", "b")
    hub.retirements.received("a", Retire("gone", "far away", 7))
    hub.posted()
    hub.retirements.received("a", Retire("gone", "far away", 9))
    assert hub.posted() == {"b": [Retire("gone", "far away", 9)]}
    hub.retirements.received("b", Retire("gone", "far away", 8))
    assert hub.posted() == {}
    assert hub.changes == [GONE]


def test_a_retirement_is_not_forgotten_and_is_recent_only_for_its_ttl() -> None:
    # R26: tombstone_ttl_s
    hub = Hub("a")
    hub.retirements.retire(GONE)
    hub.later(s=9)
    assert hub.retirements.is_recent(GONE)
    hub.later(s=2)
    assert not hub.retirements.is_recent(GONE)
    assert hub.changes == [GONE, GONE], "its reports are accepted again"
    assert GONE in hub.retirements
    hub.retirements.session_opened("late")
    assert hub.posted() == {"late": [Retire("gone", "far away", 100)]}


def test_a_repeated_retirement_is_recent_from_its_repetition_on() -> None:
    hub = Hub("a")
    hub.retirements.received("a", Retire("gone", "far away", 7))
    hub.later(s=6)
    hub.context.clock += microseconds(s=6)
    hub.retirements.received("a", Retire("gone", "far away", microseconds(s=6)))
    hub.later(s=6)
    assert hub.retirements.is_recent(GONE)
    hub.later(s=6)
    assert not hub.retirements.is_recent(GONE)


def test_a_retirement_received_with_delay_is_recent_for_the_rest_of_its_ttl() -> None:
    hub = Hub("a")
    hub.context.clock = microseconds(s=100)
    hub.retirements.received("a", Retire(GONE.broker, GONE.cell, microseconds(s=94)))
    hub.later(s=3)
    assert hub.retirements.is_recent(GONE)
    hub.later(s=2)
    assert not hub.retirements.is_recent(GONE)


def test_an_expired_retirement_has_no_effect_but_is_forwarded_to_the_retired_broker() -> None:
    hub = Hub("a", "gone")
    hub.context.clock = microseconds(s=100)
    message = Retire(GONE.broker, GONE.cell, microseconds(s=90))
    hub.retirements.received("a", message)
    assert hub.posted() == {"gone": [message]}
    assert GONE not in hub.retirements
    assert not hub.retirements.has("gone")
    assert (hub.retirements.all(), hub.changes) == ([], [])
    (record,) = hub.stored()
    assert Hub("a", records=[record]).retirements.all() == [], "nor is it retired after a crash"
    hub.retirements.retire(GONE)
    assert hub.retirements.is_recent(GONE), "an operator may retire it again"


def test_a_retirement_stays_in_effect_if_its_repetition_arrives_too_late() -> None:
    hub = Hub("a")
    hub.context.clock = microseconds(s=100)
    hub.retirements.received("a", Retire(GONE.broker, GONE.cell, microseconds(s=95)))
    hub.later(s=100)
    hub.context.clock = microseconds(s=200)
    hub.retirements.received("a", Retire(GONE.broker, GONE.cell, microseconds(s=150)))
    assert GONE in hub.retirements
    assert not hub.retirements.is_recent(GONE)


def test_a_retirement_by_a_fast_clock_is_recent_once_and_not_after_every_crash() -> None:
    hub = Hub("a")
    hub.context.clock = microseconds(s=100)
    hub.retirements.received("a", Retire(GONE.broker, GONE.cell, microseconds(s=9_000)))
    (record,) = hub.stored()
    assert hub.retirements.is_recent(GONE)
    again = Hub("a", records=[record], clock=microseconds(s=111))
    assert GONE in again.retirements
    assert not again.retirements.is_recent(GONE)


def test_above_the_limit_the_oldest_retirement_is_forgotten_and_not_accepted_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retirements, "RETIREMENTS_MAX", 2)
    hub = Hub("a")
    for version, name in enumerate("xyz", 10):
        hub.retirements.received("a", Retire(name, name, version))
    hub.write()
    assert hub.retirements.all() == [ShbId("y", "y"), ShbId("z", "z")]
    assert hub.changes[2:] == [ShbId("x", "x"), ShbId("z", "z")], "brokers wait for x again"
    hub.retirements.received("a", Retire("x", "x", 10))
    assert not hub.retirements.has("x")
    assert hub.context.coverage_marks["retirement beyond the limit"] == 2
    again = Hub("a", records=hub.disk.values())
    assert again.retirements.all() == hub.retirements.all()


def test_above_the_limit_a_returned_broker_is_not_retired_again_by_an_older_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retirements, "RETIREMENTS_MAX", 2)
    hub = Hub("a")
    hub.retirements.received("a", Retire("x", "x", 10, 500))
    for version, name in enumerate("yz", 11):
        hub.retirements.received("a", Retire(name, name, version))
    hub.retirements.received("a", Retire("x", "x", 10))
    assert not hub.retirements.has("x")


def test_above_the_limit_a_retirement_by_an_operator_with_a_slow_clock_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retirements, "RETIREMENTS_MAX", 2)
    hub = Hub("a")
    for version, name in enumerate("xy", 1_000):
        hub.retirements.received("a", Retire(name, name, version))
    hub.retirements.retire(GONE)
    assert hub.retirements.all() == [ShbId("y", "y"), GONE]


def test_above_the_limit_a_broker_remembers_its_own_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retirements, "RETIREMENTS_MAX", 1)
    hub = Hub("a")
    hub.retirements.received("a", Retire("hub", "hub", 7))
    for version, name in enumerate("xy", 1_000):
        hub.retirements.received("a", Retire(name, name, version))
    hub.posted()
    hub.retirements.received("a", Retire("hub", "hub", 7))
    assert hub.posted() == {"a": [Retire("hub", "hub", 7, 100, True, ())]}


# --- return ---------------------------------------------------------------------------------------


def test_a_broker_that_receives_its_own_retirement_announces_its_return_with_its_ticks() -> None:
    hub = Hub("a", "b", last_tick=500, pubends=(Q, P))
    hub.retirements.received("a", Retire("hub", "hub", 7))
    back = Retire("hub", "hub", 7, 500, False, (P, Q))
    assert hub.posted() == {"a": [back], "b": [back]}
    assert ME not in hub.retirements
    hub.retirements.received("b", Retire("hub", "hub", 7))
    assert hub.posted() == {"b": [back]}, "b has not received it yet"


def test_a_return_without_pubends_is_announced_as_such() -> None:
    hub = Hub("a")
    hub.retirements.received("a", Retire("hub", "hub", 7))
    assert hub.posted() == {"a": [Retire("hub", "hub", 7, 100, True, ())]}
    other = Hub("a")
    other.retirements.received("a", Retire("gone", "far away", 7, 90, True))
    assert other.retirements.returned() == [GONE]
    assert other.retirements.returned_without(GONE, P)


def test_a_returned_broker_has_exactly_the_pubends_that_it_names() -> None:
    hub = Hub("a")
    hub.retirements.received("a", Retire("gone", "far away", 7, 90, False, (P,)))
    hub.write()
    again = Hub("a", records=hub.disk.values())
    for each in (hub.retirements, again.retirements):
        assert (each.returned_without(GONE, P), each.returned_without(GONE, Q)) == (False, True)
        assert (each.returned_with(GONE, P), each.returned_with(GONE, Q)) == (True, False)
    again.retirements.received("a", Retire("gone", "far away", 8))
    assert not again.retirements.returned_without(GONE, Q), "it is retired with all its pubends"


def test_a_returned_broker_with_too_many_pubends_names_none_and_lacks_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retirements, "RETURNED_PUBENDS_MAX", 1)
    hub = Hub("a", pubends=(P, Q))
    hub.retirements.received("a", Retire("hub", "hub", 7))
    (back,) = hub.posted()["a"]
    assert back == Retire("hub", "hub", 7, 100)
    assert not back.returned_without(P)
    assert not back.returned_with(P)


def test_a_return_ends_a_retirement_when_it_is_on_disk() -> None:
    hub = Hub("a", "b")
    hub.retirements.received("a", Retire("gone", "far away", 7))
    hub.posted()
    back = Retire("gone", "far away", 7, 90)
    hub.retirements.received("b", back)
    assert hub.posted() == {"a": [back]}
    assert hub.changes == [GONE]
    assert GONE not in hub.retirements
    hub.write()
    assert hub.changes == [GONE, GONE]
    assert (hub.retirements.is_back(GONE), hub.retirements.returned_at("gone")) == (True, 90)


def test_a_retirement_ended_by_a_return_is_not_accepted_again() -> None:
    hub = Hub("a", "b")
    hub.retirements.received("a", Retire("gone", "far away", 7, 90))
    hub.posted()
    hub.retirements.received("b", Retire("gone", "far away", 7))
    assert hub.posted() == {}
    assert GONE not in hub.retirements


def test_a_return_is_known_although_an_older_retirement_arrives_too_late() -> None:
    # in total order other brokers may have continued without it up to there
    hub = Hub("a")
    hub.retirements.received("a", Retire("gone", "far away", 7, 90))
    hub.context.clock = microseconds(s=100)
    hub.retirements.received("a", Retire("gone", "far away", microseconds(s=50)))
    assert GONE not in hub.retirements
    assert hub.retirements.returned_at("gone") == 90
    again = Hub("a", records=hub.stored())
    assert again.retirements.returned_at("gone") == 90


def test_a_returned_broker_can_be_retired_again_by_a_slow_clock() -> None:
    hub = Hub("a")
    hub.retirements.received("a", Retire("gone", "far away", 1_000, 90))
    hub.posted()
    hub.retirements.retire(GONE)
    assert hub.posted() == {"a": [Retire("gone", "far away", 1_001)]}
    assert GONE in hub.retirements


def test_retirements_and_returns_survive_a_crash() -> None:
    records = [RetirementRecord(GONE, 7, 0), RetirementRecord(ShbId("b", "b"), 8, 90)]
    hub = Hub("a", records=records)
    assert hub.retirements.all() == [GONE]
    hub.retirements.received("a", Retire("b", "b", 8))
    assert hub.retirements.all() == [GONE]
    hub.later(s=11)
    assert hub.retirements.all() == [GONE]
    assert hub.retirements.is_back(ShbId("b", "b")), (
        "otherwise an older retirement could apply again"
    )
