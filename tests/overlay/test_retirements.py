"""Retirement: told to everybody, again at every session, and forgotten in the end (R26)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gapless.core.ids import BrokerId, ShbId
from gapless.core.machine import Context, Identity, Send, Write, Written
from gapless.core.parameters import Parameters, us
from gapless.core.ticks import Tick
from gapless.messages.overlay import Packet, Retire, TableState
from gapless.messages.records import Record, RetirementRecord
from gapless.overlay.neighbourhood import Neighbourhood, Topology
from gapless.overlay.retirements import Retirements
from gapless.overlay.sessions import Sessions

GONE = ShbId("gone", "far away")
ME = ShbId("hub", "hub")
PARAMETERS = Parameters(tombstone_ttl_s=10)


class Hub:
    """A broker with retirements in the middle of a star; the test says who can be reached."""

    def __init__(
        self, *peers: BrokerId, records: Iterable[Record] = (), last_tick: Tick = 0
    ) -> None:
        names = ["hub", *peers]
        topology = Topology.of({name: [name] for name in names}, [("hub", name) for name in peers])
        self.context = Context(Identity("hub", "hub", 1), PARAMETERS)
        self.context.clock = 100
        self.sessions = _Open(self.context, topology.neighbourhood("hub", 1), self)
        self.sessions.reached = [*peers]
        self.changes: list[ShbId] = []
        self.retirements = Retirements(
            self.context, self.sessions, records, self.changes.append, lambda: last_tick
        )

    def told(self) -> dict[BrokerId, list[Any]]:
        """Return what was posted since the last call."""
        return dict(self.context.take_posted())

    def write(self) -> None:
        """Let everything be on disk."""
        for effect in [each for each in self.context.effects if isinstance(each, Write)]:
            self.context.resume(Written(effect.ticket))
        self.context.effects = []

    def later(self, s: int) -> None:
        self.context.now += us(s=s)
        self.context.run_timers()
        self.context.effects = [each for each in self.context.effects if type(each) is not Send]
        self.context.take_posted()

    def session_opened(self, peer: BrokerId, cell: str) -> None:
        del cell
        self.retirements.session_opened(peer)

    def session_closed(self, peer: BrokerId) -> None:
        del peer

    def way_full(self, peer: BrokerId) -> None:
        del peer

    def way_free(self, peer: BrokerId) -> None:
        del peer

    def received(self, peer: BrokerId, message: Any) -> None:
        assert not isinstance(message, Packet)
        self.retirements.received(peer, message)

    def table_states(self, peer: BrokerId) -> tuple[TableState, ...]:
        del peer
        return ()

    def tables_heard(self, peer: BrokerId, states: tuple[TableState, ...]) -> None:
        del peer, states


class _Open(Sessions):
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
    assert hub.told() == {"a": [message], "b": [message]}
    assert GONE in hub.retirements
    assert ShbId("gone", "elsewhere") not in hub.retirements


def test_a_retirement_is_passed_on_once_and_not_back() -> None:
    hub = Hub("a", "b", "c")
    message = Retire("gone", "far away", 7)
    hub.retirements.received("a", message)
    assert hub.told() == {"b": [message], "c": [message]}
    hub.retirements.received("b", message)
    assert hub.told() == {}, "or it would go round for ever"
    assert hub.changes == [GONE]


def test_a_retirement_is_told_to_the_retired_too_for_it_may_live() -> None:
    hub = Hub("a", "gone")
    hub.retirements.retire(GONE)
    assert hub.told().keys() == {"a", "gone"}


def test_who_comes_later_is_told_what_it_has_missed() -> None:
    # section 17: otherwise it never crosses a cell that is down
    hub = Hub("a")
    hub.retirements.retire(GONE)
    hub.told()
    hub.retirements.session_opened("late")
    assert hub.told() == {"late": [Retire("gone", "far away", 100)]}


def test_a_retirement_that_is_repeated_by_an_operator_is_passed_on_but_is_no_news() -> None:
    hub = Hub("a", "b")
    hub.retirements.received("a", Retire("gone", "far away", 7))
    hub.told()
    hub.retirements.received("a", Retire("gone", "far away", 9))
    assert hub.told() == {"b": [Retire("gone", "far away", 9)]}
    hub.retirements.received("b", Retire("gone", "far away", 8))
    assert hub.told() == {}
    assert hub.changes == [GONE]


def test_a_retirement_is_forgotten_after_a_while() -> None:
    # R26: tombstone_ttl_s
    hub = Hub("a")
    hub.retirements.retire(GONE)
    hub.later(s=9)
    assert GONE in hub.retirements
    hub.later(s=2)
    assert GONE not in hub.retirements
    hub.retirements.session_opened("late")
    assert hub.told() == {}


def test_a_repeated_retirement_is_remembered_from_its_repetition_on() -> None:
    hub = Hub("a")
    hub.retirements.received("a", Retire("gone", "far away", 7))
    hub.later(s=6)
    hub.retirements.received("a", Retire("gone", "far away", 9))
    hub.later(s=6)
    assert GONE in hub.retirements
    hub.later(s=6)
    assert GONE not in hub.retirements


def test_what_is_heard_late_counts_for_the_rest_of_its_time() -> None:
    hub = Hub("a")
    hub.context.clock = us(s=100)
    hub.retirements.received("a", Retire(GONE.broker, GONE.cell, us(s=94)))
    hub.later(s=3)
    assert GONE in hub.retirements
    hub.later(s=2)
    assert GONE not in hub.retirements


def test_what_is_over_is_not_heard_again() -> None:
    hub = Hub("a", "b")
    hub.context.clock = us(s=100)
    hub.retirements.received("a", Retire(GONE.broker, GONE.cell, us(s=90)))
    assert hub.told() == {}
    assert GONE not in hub.retirements


# --- to be back -------------------------------------------------------------------------------------


def test_who_hears_of_its_own_retirement_says_that_it_is_back_and_which_ticks_it_has_given() -> (
    None
):
    hub = Hub("a", "b", last_tick=500)
    hub.retirements.received("a", Retire("hub", "hub", 7))
    back = Retire("hub", "hub", 7, 500)
    assert hub.told() == {"a": [back], "b": [back]}
    assert ME not in hub.retirements
    hub.retirements.received("b", Retire("hub", "hub", 7))
    assert hub.told() == {"b": [back]}, "b has not heard of it yet"


def test_to_be_back_ends_a_retirement_when_it_is_on_disk() -> None:
    hub = Hub("a", "b")
    hub.retirements.received("a", Retire("gone", "far away", 7))
    hub.told()
    back = Retire("gone", "far away", 7, 90)
    hub.retirements.received("b", back)
    assert hub.told() == {"a": [back]}
    assert hub.changes == [GONE]
    assert GONE not in hub.retirements
    hub.write()
    assert hub.changes == [GONE, GONE]
    assert (hub.retirements.is_back(GONE), hub.retirements.back_at("gone")) == (True, 90)


def test_a_retirement_that_is_over_because_its_broker_is_back_is_not_heard_again() -> None:
    hub = Hub("a", "b")
    hub.retirements.received("a", Retire("gone", "far away", 7, 90))
    hub.told()
    hub.retirements.received("b", Retire("gone", "far away", 7))
    assert hub.told() == {}
    assert GONE not in hub.retirements


def test_who_was_back_can_be_retired_again_also_where_the_clock_is_behind() -> None:
    hub = Hub("a")
    hub.retirements.received("a", Retire("gone", "far away", 1_000, 90))
    hub.told()
    hub.retirements.retire(GONE)
    assert hub.told() == {"a": [Retire("gone", "far away", 1_001)]}
    assert GONE in hub.retirements


def test_retirements_and_that_they_are_over_outlive_a_crash() -> None:
    records = [RetirementRecord(GONE, 7, 0), RetirementRecord(ShbId("b", "b"), 8, 90)]
    hub = Hub("a", records=records)
    assert hub.retirements.all() == [GONE]
    hub.retirements.received("a", Retire("b", "b", 8))
    assert hub.retirements.all() == [GONE]
    hub.later(s=11)
    assert hub.retirements.all() == []
    assert hub.retirements.is_back(ShbId("b", "b")), "or an older retirement could be heard again"
