"""The states of a pubend from open to tombstone: every state with every input (RS-32 to RS-34)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.ids import PubendId
from gapless.messages.clients import OpenPubend, PubendOpened
from gapless.messages.closing import CloseMode, ClosePubend, ClosePubendReply, ClosingState
from gapless.messages.overlay import Quality
from gapless.messages.records import TombstoneRecord
from gapless.pubend.closing_state import NEXT_STATES, PubendInput, PubendPhase
from tests.scenarios.brokers import Client, World

P = PubendId("P")
INPUTS = st.sampled_from(["close", "crash", "wait", "stop disk", "start disk"])


def test_every_state_is_reached_and_every_input_happens() -> None:
    reached = {state for found in NEXT_STATES.values() for state in found}
    assert reached == {*PubendPhase}
    assert {given for _, given in NEXT_STATES} == {*PubendInput}


def test_a_tombstone_stays_one() -> None:
    for given_input in PubendInput:
        following = NEXT_STATES.get((PubendPhase.TOMBSTONE, given_input), ())
        assert {*following} <= {PubendPhase.TOMBSTONE}


def test_no_state_but_those_with_a_pending_write_falls_by_a_crash() -> None:
    kept = (PubendPhase.OPEN, PubendPhase.SEALED, PubendPhase.TOMBSTONE)
    for phase in kept:
        assert NEXT_STATES[phase, PubendInput.CRASH] == (phase,)


@pytest.mark.parametrize("quality", Quality)
@settings(max_examples=25)
@given(steps=st.lists(INPUTS, max_size=8))
def test_a_pubend_takes_the_states_of_the_table(quality: Quality, steps: list[str]) -> None:
    world = World("p", retention_s=0)
    ann = world.publisher("p", quality=quality)
    operator = Client(world, "p", "op")
    before, is_down = PubendPhase.OPEN, False
    for step in steps:
        disk = world.nodes["p"].disk
        match step:
            case "close":
                operator.request(ClosePubend(operator.number(), P, CloseMode.DRAIN))
                world.run(ms=2)
            case "crash":
                world.restart("p")
                is_down = True
                operator.connect()
            case "wait":
                world.run(s=2)
            case "stop disk":
                disk.stopped = True
            case _:
                disk.stopped = False
                operator.request(OpenPubend(operator.number(), "other"))  # a write syncs the others
                world.run(ms=100)
        world.run(ms=5)
        broker = world.nodes["p"].broker
        if broker is None or not broker.is_running:
            continue
        found = broker.components.closings.phase_of(P)
        assert found is not None
        if not is_down:
            assert found.value >= before.value
        before, is_down = found, False
    disk = world.nodes["p"].disk
    if not disk.stopped:
        world.run(s=3)
        reply = operator.call(ClosePubend(operator.number(), P), s=5)
        world.run(s=3)
        reply = operator.call(ClosePubend(operator.number(), P), s=5)
        assert isinstance(reply, ClosePubendReply)
        assert reply.state is ClosingState.CLOSED
        assert TombstoneRecord.key_of(P) in disk.records
    assert isinstance(ann.answer(1), PubendOpened)
