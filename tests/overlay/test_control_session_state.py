"""A control session changes its state only by its table (RS-35)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.context import Context, Identity
from gapless.core.parameters import Parameters, microseconds
from gapless.messages.overlay import (
    CellMember,
    ControlFrame,
    Hello,
    PeerSessionId,
    RecordWant,
)
from gapless.overlay.control_session import ControlSession
from gapless.overlay.control_session_state import (
    NEXT_CONTROL_STATES,
    ControlInput,
    ControlState,
)
from gapless.overlay.control_sessions import ControlSessions
from gapless.overlay.neighbourhood import Topology
from gapless.overlay.session import PROTOCOL
from gapless.overlay.tree import Tree

PARAMETERS = Parameters(control_sessions_max=2, control_session_idle_ms=1_000)


class End:
    """The control sessions of a broker without neighbours; a test plays the other ends."""

    def __init__(self) -> None:
        self.context = Context(Identity("a", "a", 1), PARAMETERS)
        tree = Tree(Topology.of({"a": ["a"]}, []).neighbourhood("a", 1))
        self.sessions = ControlSessions(self.context, tree, self, {RecordWant}, self)
        self.notified: list[str] = []
        self.peers: set[str] = set()

    # peer sessions, and notifications
    def is_open(self, peer: str) -> bool:
        return peer in self.peers

    def link_up(self, peer: str) -> None:
        """Ignore it: there are no peers."""

    def received(self, peer: str, packet: Any) -> None:
        """Ignore it: there are no peers."""

    def control_session_opened(self, broker: str) -> None:
        self.notified.append(f"+{broker}")

    def control_session_closed(self, broker: str) -> None:
        self.notified.append(f"-{broker}")

    def control_received(self, broker: str, message: Any) -> None:
        """Ignore it."""

    # what a test does
    def hello(self, broker: str, number: int, *, confirms: bool) -> None:
        held = self.sessions._sessions.get(broker)
        received = held.session.mine if held is not None and confirms else None
        hello = Hello(broker, "z", PeerSessionId(1, number), received, PROTOCOL, 0)
        self.sessions.packet_received(broker, ControlFrame(hello))

    def time(self, ms: int) -> None:
        self.context.now += microseconds(ms=ms)
        self.context.run_timers()

    def state(self, broker: str) -> ControlState:
        held = self.sessions._sessions.get(broker)
        return ControlState.OVER if held is None else held.state


def in_state(state: ControlState) -> ControlSession:
    end = End()
    end.sessions.require("test", [CellMember("b")])
    held = end.sessions._sessions["b"]
    if state is ControlState.LINKED:
        held = ControlSession(held.session, 0)
        held.enter(ControlInput.LINK_UP)
    elif state is ControlState.OVER:
        held.enter(ControlInput.ENDED)
    elif state is not ControlState.UNLINKED:
        end.sessions.link_up("b")
    if state is ControlState.OPEN:
        end.hello("b", 1, confirms=True)
    assert held.state is state
    return held


@pytest.mark.parametrize("cause", ControlInput)
@pytest.mark.parametrize("state", ControlState)
def test_every_input_in_every_state_leads_to_the_state_of_the_table(
    state: ControlState, cause: ControlInput
) -> None:
    held = in_state(state)
    if (state, cause) in NEXT_CONTROL_STATES:
        held.enter(cause)
        assert held.state is NEXT_CONTROL_STATES[state, cause]
    else:
        with pytest.raises(AssertionError, match=cause.name):
            held.enter(cause)


BROKERS = st.sampled_from("bcd")
STEPS = st.one_of(
    st.tuples(st.sampled_from(["up", "down", "packet", "stranger", "peer"]), BROKERS),
    st.tuples(st.just("hello"), BROKERS, st.integers(1, 3), st.booleans()),
    st.tuples(st.just("require"), st.lists(BROKERS, max_size=3)),
    st.tuples(st.just("time"), st.integers(1, 2_000)),
)


@given(st.lists(STEPS, max_size=40))
def test_control_sessions_take_any_sequence_of_events(steps: list[Any]) -> None:
    end = End()
    sessions = end.sessions
    for step in steps:
        match step:
            case "up", broker:
                sessions.link_up(broker)
            case "down", broker:
                sessions.link_down(broker)
            case "packet", broker:
                sessions.packet_received(broker, ControlFrame("nonsense"))
            case "stranger", broker:
                sessions.packet_received(
                    broker, Hello(broker, "z", PeerSessionId(1, 1), None, PROTOCOL, 0)
                )
            case "peer", broker:
                end.peers ^= {broker}
            case "hello", broker, number, confirms:
                end.hello(broker, number, confirms=confirms)
            case "require", brokers:
                sessions.require("test", [CellMember(each) for each in brokers])
            case "time", ms:
                end.time(ms)
        assert len(sessions._sessions) <= PARAMETERS.control_sessions_max
        assert len(sessions._deferred) <= PARAMETERS.control_sessions_max
        for broker in "bcd":
            opened = [each for each in end.notified if each[1:] == broker]
            assert all(each[0] == "+-"[index % 2] for index, each in enumerate(opened))
            is_open = bool(len(opened) % 2)
            assert is_open == (end.state(broker) is ControlState.OPEN)
    sessions.require("test", [])
    end.peers = {*"bcd"}
    end.time(2_000)
    assert not sessions._sessions
