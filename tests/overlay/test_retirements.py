"""Retirement: told to everybody, again at every session, and forgotten in the end (R26)."""

from __future__ import annotations

from typing import Any

from gapless.core.ids import BrokerId, ShbId
from gapless.core.machine import Context, Identity, Send
from gapless.core.parameters import Parameters, us
from gapless.messages.overlay import Packet, Retire, TableState
from gapless.overlay.neighbourhood import Neighbourhood, Topology
from gapless.overlay.retirements import Retirements
from gapless.overlay.sessions import Sessions

GONE = ShbId("gone", "far away")
PARAMETERS = Parameters(tombstone_ttl_s=10)


class Hub:
    """A broker with retirements in the middle of a star; the test says who can be reached."""

    def __init__(self, *peers: BrokerId) -> None:
        names = ["hub", *peers]
        topology = Topology.of({name: [name] for name in names}, [("hub", name) for name in peers])
        self.context = Context(Identity("hub", "hub", 1), PARAMETERS)
        self.context.clock = 100
        self.sessions = _Open(self.context, topology.neighbourhood("hub", 1), self)
        self.sessions.reached = [*peers]
        self.retirements = Retirements(self.context, self.sessions)

    def told(self) -> dict[BrokerId, list[Any]]:
        """Return what was posted since the last call."""
        return dict(self.context.take_posted())

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
    assert hub.retirements.received("a", message)
    assert hub.told() == {"b": [message], "c": [message]}
    assert not hub.retirements.received("b", message)
    assert hub.told() == {}, "or it would go round for ever"


def test_a_retirement_is_not_told_to_the_retired() -> None:
    hub = Hub("a", "gone")
    hub.retirements.retire(GONE)
    assert hub.told().keys() == {"a"}


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
    assert not hub.retirements.received("a", Retire("gone", "far away", 9))
    assert hub.told() == {"b": [Retire("gone", "far away", 9)]}
    assert not hub.retirements.received("b", Retire("gone", "far away", 8))
    assert hub.told() == {}


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
    assert hub.retirements.received("a", Retire(GONE.broker, GONE.cell, us(s=94)))
    hub.later(s=3)
    assert GONE in hub.retirements
    hub.later(s=2)
    assert GONE not in hub.retirements


def test_what_is_over_is_not_heard_again() -> None:
    hub = Hub("a", "b")
    hub.context.clock = us(s=100)
    assert not hub.retirements.received("a", Retire(GONE.broker, GONE.cell, us(s=90)))
    assert hub.told() == {}
