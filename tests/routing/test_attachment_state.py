"""The states of an attachment: every state with every input, and the class (R10, R40)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.parameters import DEFAULTS
from gapless.messages.streams import AttachKind
from gapless.propagation.sufficiency import Receiver
from gapless.routing.attachment import Attachment
from gapless.routing.attachment_state import NEXT_STATES, AttachmentInput, AttachmentState
from gapless.stream.curiosity import RequestedTicks

INPUTS: dict[AttachmentInput, Callable[[Attachment], object]] = {
    AttachmentInput.SOURCE_FOUND: lambda attachment: attachment.start(10),
    AttachmentInput.SOURCE_LOST: Attachment.wait,
    AttachmentInput.CONGESTED: Attachment.hold,
    AttachmentInput.DRAINED: lambda attachment: attachment.resume(20),
}


def attachment(*, is_congested: bool = False) -> Attachment:
    receiver = Receiver(AttachKind.CELL, "r")
    return Attachment("r", 2, receiver, RequestedTicks(DEFAULTS), is_congested=is_congested)


def in_state(state: AttachmentState, *, is_congested: bool = False) -> Attachment:
    made = attachment(is_congested=is_congested or state is AttachmentState.HELD)
    if state is not AttachmentState.WAITING:
        made.start(5)
    return made


@pytest.mark.parametrize("cause", AttachmentInput)
@pytest.mark.parametrize("state", AttachmentState)
def test_every_input_in_every_state_leads_to_the_state_of_the_table(
    state: AttachmentState, cause: AttachmentInput
) -> None:
    made = in_state(state)
    assert made.state is state
    if (state, cause) in NEXT_STATES:
        INPUTS[cause](made)
        assert made.state in NEXT_STATES[state, cause]
    else:
        with pytest.raises(AssertionError, match=cause.name):
            INPUTS[cause](made)


def test_a_waiting_attachment_of_a_congested_session_is_paused_when_a_source_is_found() -> None:
    made = attachment(is_congested=True)
    made.start(7)
    assert (made.state, made.sent) == (AttachmentState.HELD, 7)


def test_a_paused_attachment_resumes_above_the_known_ticks_when_its_session_has_drained() -> None:
    made = in_state(AttachmentState.HELD)
    assert made.resume(30)
    assert (made.state, made.sent) == (AttachmentState.FED, 30)


def test_a_waiting_attachment_was_sent_nothing_when_its_session_has_drained() -> None:
    made = attachment(is_congested=True)
    assert not made.resume(30)
    assert (made.state, made.sent) == (AttachmentState.WAITING, 0)


@given(st.lists(st.sampled_from([*AttachmentInput])))
def test_with_random_inputs_the_class_follows_the_table(causes: list[AttachmentInput]) -> None:
    made, has_source, is_congested = attachment(), False, False
    for cause in causes:
        if (made.state, cause) not in NEXT_STATES:
            continue
        before = made.state
        INPUTS[cause](made)
        assert made.state in NEXT_STATES[before, cause]
        has_source = cause is AttachmentInput.SOURCE_FOUND or (
            has_source and cause is not AttachmentInput.SOURCE_LOST
        )
        is_congested = cause is AttachmentInput.CONGESTED or (
            is_congested and cause is not AttachmentInput.DRAINED
        )
        fed = AttachmentState.HELD if is_congested else AttachmentState.FED
        assert made.state is (fed if has_source else AttachmentState.WAITING)
        assert made.is_congested == is_congested
