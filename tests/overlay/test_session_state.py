"""The states of a peer session and of a peer: every state with every input (R1 to R3)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.context import Context, Identity
from gapless.core.ids import BrokerId
from gapless.core.parameters import Parameters, microseconds
from gapless.messages.overlay import Heartbeat, Hello, Packet, PeerSessionId
from gapless.overlay.peer import Peer
from gapless.overlay.session import PROTOCOL, PeerSession
from gapless.overlay.session_state import (
    NEXT_PEER_STATES,
    NEXT_SESSION_STATES,
    PeerConnectivity,
    PeerInput,
    PeerRoute,
    PeerSessionInput,
    PeerSessionState,
)

PARAMETERS = Parameters()
THEIRS = PeerSessionId(7, 1)


class End:
    """One end of a session; a test plays the other end."""

    def __init__(self, route: tuple[str, ...] = ()) -> None:
        self.context = Context(Identity("a", "a", 1), PARAMETERS)
        self.notified: list[PeerSessionState] = []
        """The state of the session when its owner was notified that it opened or closed."""
        self.session = PeerSession(
            self.context, self, "b", "b", itertools.count(1), lambda *_: None, route
        )

    def digest(self, peer: BrokerId) -> int:  # noqa: ARG002
        return 0

    def opened(self, session: PeerSession) -> None:
        self.notified.append(session.state)

    def closed(self, session: PeerSession) -> None:
        self.notified.append(session.state)

    def heartbeat_received(self, session: PeerSession, heartbeat: Heartbeat) -> None:
        del session, heartbeat

    def message_received(self, session: PeerSession, message: Any) -> None:
        del session, message

    # what a test does
    def hello(self, own: PeerSessionId, received: PeerSessionId | None) -> None:
        self.session.received(Hello("b", "b", own, received, PROTOCOL, 0))

    def open(self) -> None:
        self.session.start()
        self.hello(THEIRS, self.session.mine)


def in_state(state: PeerSessionState) -> End:
    end = End()
    if state is not PeerSessionState.CLOSED:
        end.session.start()
    if state is PeerSessionState.OPEN:
        end.hello(THEIRS, end.session.mine)
    assert end.session.state is state
    return end


# --- a session -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cause", PeerSessionInput)
@pytest.mark.parametrize("state", PeerSessionState)
def test_every_input_of_a_session_in_every_state_leads_to_the_state_of_the_table(
    state: PeerSessionState, cause: PeerSessionInput
) -> None:
    session = in_state(state).session
    if (state, cause) in NEXT_SESSION_STATES:
        session._enter(cause)
        assert session.state is NEXT_SESSION_STATES[state, cause]
    else:
        with pytest.raises(AssertionError, match=cause.name):
            session._enter(cause)


@pytest.mark.parametrize("act", [PeerSession.start, PeerSession.end])
def test_an_open_session_is_lost_before_it_restarts_or_ends(
    act: Callable[[PeerSession], None],
) -> None:
    end = in_state(PeerSessionState.OPEN)
    act(end.session)
    assert end.notified == [PeerSessionState.OPEN, PeerSessionState.OPENING]
    assert not end.session.is_open


def test_a_direct_session_that_dies_opens_again_and_a_relayed_one_is_closed() -> None:
    for route, after in (
        ((), PeerSessionState.OPENING),
        (("a", "r", "b"), PeerSessionState.CLOSED),
    ):
        end = End(route)
        end.open()
        end.context.now += 1 + microseconds(ms=PARAMETERS.session_timeout_ms)
        assert not end.session.is_alive()
        assert end.session.state is after


STEPS = st.one_of(
    st.sampled_from(["start", "end", "is_alive"]),
    st.tuples(st.just("hello"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("packet"), st.integers(1, 2), st.booleans()),
    st.tuples(st.just("time"), st.integers(1, 20_000)),
)


@given(st.lists(STEPS, max_size=40), st.booleans())
def test_a_session_changes_its_state_only_by_the_table(steps: list[Any], relayed: bool) -> None:
    end = End(("a", "r", "b") if relayed else ())
    session = end.session
    allowed = {
        state: {after for (before, _), after in NEXT_SESSION_STATES.items() if before is state}
        | {PeerSessionState.CLOSED, state}
        for state in PeerSessionState
    }
    for step in steps:
        before, count = session.state, len(end.notified)
        match step:
            case "start":
                session.start()
            case "end":
                session.end()
            case "is_alive":
                session.is_alive()
            case "hello", number, received:
                end.hello(PeerSessionId(7, number), session.mine if received else None)
            case "packet", sequence, fits:
                mine = session.mine if fits else PeerSessionId(0, 9)
                packet = Packet(session.theirs or THEIRS, mine, sequence, ())
                session.received(packet)
            case "time", ms:
                end.context.now += microseconds(ms=ms)
        was_open, is_open = before is PeerSessionState.OPEN, session.is_open
        changes = [each is PeerSessionState.OPEN for each in end.notified[count:]]
        assert changes[-1:] == ([is_open] if changes else [])
        assert len(changes) >= (was_open != is_open), "the owner is notified of every change"
        if not changes:
            assert session.state in allowed[before] - {PeerSessionState.OPEN} | {before}


# --- a peer --------------------------------------------------------------------------------------

PEER_STATES = [
    PeerConnectivity(route, congested) for route in PeerRoute for congested in (False, True)
]


def peer_in(state: PeerConnectivity) -> Peer:
    """Return a peer in a state, by the inputs that lead there."""
    peer = Peer(End().session, 0)
    peer.set_relayed(End(("a", "r", "b")).session)
    assert peer.relayed is not None
    relayed = peer.relayed
    peer.take(relayed if state.route is PeerRoute.RELAYED else peer.direct)
    if state.is_congested:
        peer.set_congested(True)
    if state.route is PeerRoute.NONE:
        peer.lose()
    assert peer.state == state
    return peer


def act(peer: Peer, cause: PeerInput) -> None:
    match cause:
        case PeerInput.DIRECT_TAKEN:
            peer.take(peer.direct)
        case PeerInput.RELAYED_TAKEN:
            peer.take(End(("a", "r", "b")).session)
        case PeerInput.LOST:
            peer.lose()
        case PeerInput.CONGESTED | PeerInput.DRAINED:
            assert peer.set_congested(cause is PeerInput.CONGESTED), cause.name


@pytest.mark.parametrize("cause", PeerInput)
@pytest.mark.parametrize("state", PEER_STATES)
def test_every_input_of_a_peer_in_every_state_leads_to_the_state_of_the_table(
    state: PeerConnectivity, cause: PeerInput
) -> None:
    peer = peer_in(state)
    if (state, cause) in NEXT_PEER_STATES:
        act(peer, cause)
        assert peer.state == NEXT_PEER_STATES[state, cause]
        assert (peer.active is None) == (peer.state.route is PeerRoute.NONE)
        assert peer.is_direct == (peer.state.route is PeerRoute.DIRECT)
    else:
        with pytest.raises(AssertionError, match=cause.name):
            act(peer, cause)


def test_the_tables_name_every_state_and_every_input() -> None:
    assert {cause for _, cause in NEXT_SESSION_STATES} == set(PeerSessionInput)
    assert {state for state, _ in NEXT_SESSION_STATES} == set(PeerSessionState)
    assert {cause for _, cause in NEXT_PEER_STATES} == set(PeerInput)
    assert {state for state, _ in NEXT_PEER_STATES} == set(PEER_STATES)


def test_a_peer_with_a_direct_session_needs_no_relayed_one() -> None:
    peer = peer_in(PeerConnectivity(PeerRoute.RELAYED))
    peer.lose()
    peer.take(peer.direct)
    assert peer.relayed is None
