"""Retirement: told to everybody, again at every session, and never forgotten (R26)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from gapless.core.ids import BrokerId, PubendId, ShbId
from gapless.core.machine import Context, Identity, Send, Write, Written
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
    """A broker with retirements in the middle of a star; the test says who can be reached."""

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
        """Return what was posted since the last call."""
        return dict(self.context.take_messages())

    def write(self) -> None:
        """Let everything be on disk."""
        for effect in [each for each in self.context.effects if isinstance(each, Write)]:
            for change in effect.changes:
                if isinstance(change, PutRecord):
                    self.disk[change.record.key] = change.record
                elif isinstance(change, DeleteRecord):
                    self.disk.pop(change.key, None)
            self.context.resume(Written(effect.write_id))
        self.context.effects = []

    def stored(self) -> list[Record]:
        """Return what is on disk when everything is."""
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

    def received(self, peer: BrokerId, message: Any) -> None:
        assert not isinstance(message, Packet)
        self.retirements.received(peer, message)

    def table_states(self, peer: BrokerId) -> tuple[TableState, ...]:
        del peer
        return ()

    def table_states_received(self, peer: BrokerId, states: tuple[TableState, ...]) -> None:
        del peer, states


class _Open(PeerSessions):
    """Sessions that are open as a test says."""

    def __init__(self, context: Context, neighbourhood: Neighbourhood, hub: Hub) -> None:
        super().__init__(context, neighbourhood, hub)
        self.reached: list[BrokerId] = []

    def open_peers(self) -> list[BrokerId]:
        return self.reached


def test_a_retirement_is_told_to_all_who_can_be_reached() -> None:
    hub = Hub("a", "b", "c")
    hub.sessions.reached = ["a", "b"]
    hub.retirements.retire(GONE)
    message = Retire("gone", "far away", 100)
    assert hub.posted() == {"a": [message], "b": [message]}
    assert GONE in hub.retirements
    assert ShbId("gone", "elsewhere") not in hub.retirements


def test_a_retirement_is_passed_on_once_and_not_back() -> None:
    hub = Hub("a", "b", "c")
    message = Retire("gone", "far away", 7)
    hub.retirements.received("a", message)
    assert hub.posted() == {"b": [message], "c": [message]}
    hub.retirements.received("b", message)
    assert hub.posted() == {}, "or it would go round for ever"
    assert hub.changes == [GONE]


def test_a_retirement_is_told_to_the_retired_too_for_it_may_live() -> None:
    hub = Hub("a", "gone")
    hub.retirements.retire(GONE)
    assert hub.posted().keys() == {"a", "gone"}


def test_who_comes_later_is_told_what_it_has_missed() -> None:
    # section 17: otherwise it never crosses a cell that is down
    hub = Hub("a")
    hub.retirements.retire(GONE)
    hub.posted()
    hub.retirements.session_opened("late")
    assert hub.posted() == {"late": [Retire("gone", "far away", 100)]}


def test_a_retirement_that_is_repeated_by_an_operator_is_passed_on_but_is_no_news() -> None:
    hub = Hub("a", "b")
    hub.retirements.received("a", Retire("gone", "far away", 7))
    hub.posted()
    hub.retirements.received("a", Retire("gone", "far away", 9))
    assert hub.posted() == {"b": [Retire("gone", "far away", 9)]}
    hub.retirements.received("b", Retire("gone", "far away", 8))
    assert hub.posted() == {}
    assert hub.changes == [GONE]


def test_a_retirement_is_not_forgotten_and_costs_logs_only_for_a_while() -> None:
    # R26: tombstone_ttl_s
    hub = Hub("a")
    hub.retirements.retire(GONE)
    hub.later(s=9)
    assert hub.retirements.is_recent(GONE)
    hub.later(s=2)
    assert not hub.retirements.is_recent(GONE)
    assert hub.changes == [GONE, GONE], "its reports are heard again"
    assert GONE in hub.retirements
    hub.retirements.session_opened("late")
    assert hub.posted() == {"late": [Retire("gone", "far away", 100)]}


def test_a_repeated_retirement_is_fresh_from_its_repetition_on() -> None:
    hub = Hub("a")
    hub.retirements.received("a", Retire("gone", "far away", 7))
    hub.later(s=6)
    hub.context.clock += microseconds(s=6)
    hub.retirements.received("a", Retire("gone", "far away", microseconds(s=6)))
    hub.later(s=6)
    assert hub.retirements.is_recent(GONE)
    hub.later(s=6)
    assert not hub.retirements.is_recent(GONE)


def test_what_is_heard_with_delay_is_fresh_for_the_rest_of_its_time() -> None:
    hub = Hub("a")
    hub.context.clock = microseconds(s=100)
    hub.retirements.received("a", Retire(GONE.broker, GONE.cell, microseconds(s=94)))
    hub.later(s=3)
    assert hub.retirements.is_recent(GONE)
    hub.later(s=2)
    assert not hub.retirements.is_recent(GONE)


def test_what_is_heard_too_late_does_not_count_but_is_told_for_the_retired_may_live() -> None:
    hub = Hub("a", "gone")
    hub.context.clock = microseconds(s=100)
    message = Retire(GONE.broker, GONE.cell, microseconds(s=90))
    hub.retirements.received("a", message)
    assert hub.posted() == {"gone": [message]}
    assert GONE not in hub.retirements
    assert not hub.retirements.has("gone")
    assert (hub.retirements.all(), hub.changes) == ([], [])
    (record,) = hub.stored()
    assert Hub("a", records=[record]).retirements.all() == [], "nor after a crash"
    hub.retirements.retire(GONE)
    assert hub.retirements.is_recent(GONE), "an operator may say it again"


def test_a_retirement_that_counts_still_does_if_its_repetition_is_heard_too_late() -> None:
    hub = Hub("a")
    hub.context.clock = microseconds(s=100)
    hub.retirements.received("a", Retire(GONE.broker, GONE.cell, microseconds(s=95)))
    hub.later(s=100)
    hub.context.clock = microseconds(s=200)
    hub.retirements.received("a", Retire(GONE.broker, GONE.cell, microseconds(s=150)))
    assert GONE in hub.retirements
    assert not hub.retirements.is_recent(GONE)


def test_a_retirement_by_a_clock_that_is_ahead_is_fresh_once_and_not_after_every_crash() -> None:
    hub = Hub("a")
    hub.context.clock = microseconds(s=100)
    hub.retirements.received("a", Retire(GONE.broker, GONE.cell, microseconds(s=9_000)))
    (record,) = hub.stored()
    assert hub.retirements.is_recent(GONE)
    again = Hub("a", records=[record], clock=microseconds(s=111))
    assert GONE in again.retirements
    assert not again.retirements.is_recent(GONE)


def test_of_too_many_retirements_the_oldest_is_forgotten_and_not_heard_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retirements, "RETIREMENTS_MAX", 2)
    hub = Hub("a")
    for version, name in enumerate("xyz", 10):
        hub.retirements.received("a", Retire(name, name, version))
    hub.write()
    assert hub.retirements.all() == [ShbId("y", "y"), ShbId("z", "z")]
    assert hub.changes[2:] == [ShbId("x", "x"), ShbId("z", "z")], "x is waited for again"
    hub.retirements.received("a", Retire("x", "x", 10))
    assert not hub.retirements.has("x")
    assert hub.context.coverage_marks["retirement beyond the limit"] == 2
    again = Hub("a", records=hub.disk.values())
    assert again.retirements.all() == hub.retirements.all()


def test_of_too_many_who_is_back_is_not_retired_again_by_what_was_said_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retirements, "RETIREMENTS_MAX", 2)
    hub = Hub("a")
    hub.retirements.received("a", Retire("x", "x", 10, 500))
    for version, name in enumerate("yz", 11):
        hub.retirements.received("a", Retire(name, name, version))
    hub.retirements.received("a", Retire("x", "x", 10))
    assert not hub.retirements.has("x")


def test_an_operator_is_heard_also_if_there_are_too_many_and_the_clock_is_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retirements, "RETIREMENTS_MAX", 2)
    hub = Hub("a")
    for version, name in enumerate("xy", 1_000):
        hub.retirements.received("a", Retire(name, name, version))
    hub.retirements.retire(GONE)
    assert hub.retirements.all() == [ShbId("y", "y"), GONE]


def test_that_it_is_back_itself_a_broker_does_not_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retirements, "RETIREMENTS_MAX", 1)
    hub = Hub("a")
    hub.retirements.received("a", Retire("hub", "hub", 7))
    for version, name in enumerate("xy", 1_000):
        hub.retirements.received("a", Retire(name, name, version))
    hub.posted()
    hub.retirements.received("a", Retire("hub", "hub", 7))
    assert hub.posted() == {"a": [Retire("hub", "hub", 7, 100, True, ())]}


# --- to be back -------------------------------------------------------------------------------------


def test_who_hears_of_its_own_retirement_says_that_it_is_back_and_which_ticks_it_has_given() -> (
    None
):
    hub = Hub("a", "b", last_tick=500, pubends=(Q, P))
    hub.retirements.received("a", Retire("hub", "hub", 7))
    back = Retire("hub", "hub", 7, 500, False, (P, Q))
    assert hub.posted() == {"a": [back], "b": [back]}
    assert ME not in hub.retirements
    hub.retirements.received("b", Retire("hub", "hub", 7))
    assert hub.posted() == {"b": [back]}, "b has not heard of it yet"


def test_who_is_back_without_any_pubend_says_so() -> None:
    hub = Hub("a")
    hub.retirements.received("a", Retire("hub", "hub", 7))
    assert hub.posted() == {"a": [Retire("hub", "hub", 7, 100, True, ())]}
    other = Hub("a")
    other.retirements.received("a", Retire("gone", "far away", 7, 90, True))
    assert other.retirements.returned() == [GONE]
    assert other.retirements.returned_without(GONE, P)


def test_who_is_back_has_the_pubends_that_it_names_and_no_others_also_after_a_crash() -> None:
    hub = Hub("a")
    hub.retirements.received("a", Retire("gone", "far away", 7, 90, False, (P,)))
    hub.write()
    again = Hub("a", records=hub.disk.values())
    for each in (hub.retirements, again.retirements):
        assert (each.returned_without(GONE, P), each.returned_without(GONE, Q)) == (False, True)
        assert (each.returned_with(GONE, P), each.returned_with(GONE, Q)) == (True, False)
    again.retirements.received("a", Retire("gone", "far away", 8))
    assert not again.retirements.returned_without(GONE, Q), "it is away with all that it had"


def test_who_is_back_with_too_many_pubends_names_none_and_lacks_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retirements, "RETURNED_PUBENDS_MAX", 1)
    hub = Hub("a", pubends=(P, Q))
    hub.retirements.received("a", Retire("hub", "hub", 7))
    (back,) = hub.posted()["a"]
    assert back == Retire("hub", "hub", 7, 100)
    assert not back.returned_without(P)
    assert not back.returned_with(P)


def test_to_be_back_ends_a_retirement_when_it_is_on_disk() -> None:
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


def test_a_retirement_that_is_over_because_its_broker_is_back_is_not_heard_again() -> None:
    hub = Hub("a", "b")
    hub.retirements.received("a", Retire("gone", "far away", 7, 90))
    hub.posted()
    hub.retirements.received("b", Retire("gone", "far away", 7))
    assert hub.posted() == {}
    assert GONE not in hub.retirements


def test_that_somebody_was_back_is_known_also_if_an_older_retirement_is_heard_too_late() -> None:
    # in total order others may have gone on without it up to there
    hub = Hub("a")
    hub.retirements.received("a", Retire("gone", "far away", 7, 90))
    hub.context.clock = microseconds(s=100)
    hub.retirements.received("a", Retire("gone", "far away", microseconds(s=50)))
    assert GONE not in hub.retirements
    assert hub.retirements.returned_at("gone") == 90
    again = Hub("a", records=hub.stored())
    assert again.retirements.returned_at("gone") == 90


def test_who_was_back_can_be_retired_again_also_where_the_clock_is_behind() -> None:
    hub = Hub("a")
    hub.retirements.received("a", Retire("gone", "far away", 1_000, 90))
    hub.posted()
    hub.retirements.retire(GONE)
    assert hub.posted() == {"a": [Retire("gone", "far away", 1_001)]}
    assert GONE in hub.retirements


def test_retirements_and_that_they_are_over_outlive_a_crash() -> None:
    records = [RetirementRecord(GONE, 7, 0), RetirementRecord(ShbId("b", "b"), 8, 90)]
    hub = Hub("a", records=records)
    assert hub.retirements.all() == [GONE]
    hub.retirements.received("a", Retire("b", "b", 8))
    assert hub.retirements.all() == [GONE]
    hub.later(s=11)
    assert hub.retirements.all() == [GONE]
    assert hub.retirements.is_back(ShbId("b", "b")), "or an older retirement could be heard again"
