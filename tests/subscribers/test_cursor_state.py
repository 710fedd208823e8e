"""The phases of a cursor: every phase with every input, and the class (R46 to R48)."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.messages.clients import Order, Seek, StartKind, StartPoint
from gapless.subscribers.cursor import Cursor
from gapless.subscribers.cursor_state import (
    NEXT_PHASES,
    NOT_STARTED,
    CursorInput,
    CursorPhase,
    Started,
)
from gapless_lab.sim.planted_bugs import patched
from tests.broker.harness import BrokerHarness, P

PHASES = st.sampled_from(CursorPhase)
INPUTS = st.sampled_from(CursorInput)

NO_START = {CursorPhase.PENDING, CursorPhase.GUARANTEED}
READS_LOG = {CursorPhase.CATCHING_UP, CursorPhase.JOINING}
LIVE = {CursorPhase.JOINING, CursorPhase.LIVE}


@cache
def some_cursor() -> Cursor:
    """Return a cursor of an idle broker."""
    world = BrokerHarness("p-n")
    world.publisher("p")
    world.subscriber("n", "x", "TRUE", durable=True)
    world.run(s=1)
    return world.cursor("n", "x")


# --- the table ------------------------------------------------------------------------------------


def test_every_phase_but_the_first_is_reached_from_another() -> None:
    reached = {phase for (before, _), found in NEXT_PHASES.items() for phase in found - {before}}
    assert reached == {*CursorPhase} - {CursorPhase.PENDING}


def test_every_input_happens_in_some_phase() -> None:
    assert {given for _, given in NEXT_PHASES} == {*CursorInput}


@given(PHASES, INPUTS)
def test_a_started_cursor_never_becomes_pending_again(
    phase: CursorPhase, given: CursorInput
) -> None:
    if phase not in NO_START:
        assert not NEXT_PHASES.get((phase, given), frozenset()) & NO_START


@given(PHASES)
def test_a_cursor_of_a_disconnected_client_is_not_live(phase: CursorPhase) -> None:
    following = NEXT_PHASES.get((phase, CursorInput.CLIENT_LEFT), frozenset())
    assert following <= {CursorPhase.DISCONNECTED}


@given(PHASES, INPUTS)
def test_a_cursor_joins_the_live_stream_only_from_the_log_or_at_its_start(
    phase: CursorPhase, given: CursorInput
) -> None:
    if NEXT_PHASES.get((phase, given), frozenset()) & LIVE:
        assert phase in READS_LOG | NO_START


@given(PHASES)
def test_a_cursor_that_leaves_the_live_phase_reads_the_log(phase: CursorPhase) -> None:
    for given_input in (CursorInput.SWITCHED, CursorInput.EXCLUDED, CursorInput.OVERFLOWED):
        following = NEXT_PHASES.get((phase, given_input))
        assert following == (frozenset({CursorPhase.CATCHING_UP}) if phase in LIVE else None)


# --- the class and the table ----------------------------------------------------------------------


@pytest.mark.parametrize("phase", CursorPhase)
def test_a_cursor_enters_exactly_the_phases_of_the_table(phase: CursorPhase) -> None:
    cursor = some_cursor()
    for given_input, following in product(CursorInput, CursorPhase):
        cursor.phase = phase
        if following in NEXT_PHASES.get((phase, given_input), frozenset()):
            cursor.enter(following, given_input)
            assert cursor.phase is following
        else:
            with pytest.raises(AssertionError, match=phase.name):
                cursor.enter(following, given_input)
            assert cursor.phase is phase


@given(PHASES)
def test_a_subend_finds_a_cursor_in_the_groups_of_its_phase(phase: CursorPhase) -> None:
    cursor = some_cursor()
    cursor.phase = phase
    cursor.subend.register(cursor)
    groups = cursor.subend.groups
    assert ("x" in groups.live) is (phase in LIVE)
    assert ("x" in groups.pending) is (phase in NO_START)
    assert ("x" in groups.behind) is (phase in READS_LOG)
    assert "x" in groups.all


class RandomSubscription:
    """A subscription with random inputs; its transitions are recorded."""

    def __init__(self, order: Order, *, durable: bool) -> None:
        self.world = BrokerHarness("p-n-q", prefetch_max=4, join_buffer_events_max=2, ack_ms=100)
        self.ann, self.bob = self.world.publisher("p"), self.world.publisher("q", "Q")
        start = StartPoint(StartKind.EARLIEST)
        self.x = self.world.subscriber(
            "n", "x", "TRUE", durable=durable, order=order, start=start, credit=9
        )
        self.durable = durable
        self.is_connected = True
        self.count = 0

    def publish(self) -> None:
        for _ in range(6):
            self.count += 1
            self.ann.send_event(f"e{self.count}")
            self.bob.send_event(f"f{self.count}")

    def give_credit(self) -> None:
        if self.is_connected:
            self.x.give_credit(9)

    def wait(self) -> None:
        self.world.run(ms=150)

    def leave(self) -> None:
        if self.is_connected and self.durable:
            self.x.leave()
            self.is_connected = False

    def come_back(self) -> None:
        if not self.is_connected:
            self.x.come_back()
            self.is_connected = True

    def change(self) -> None:
        if self.is_connected:
            self.count += 1
            self.x.set_filter(f"TRUE OR kind = {self.count}")

    def seek(self) -> None:
        if self.is_connected:
            self.x.request(Seek(self.x.number(), "x", StartPoint(StartKind.EARLIEST)))

    def cut(self) -> None:
        self.world.cut("p", "n")

    def heal(self) -> None:
        self.world.heal("p", "n")

    def check(self) -> None:
        """Check the invariants of a cursor's phases."""
        subscription = self.world["n"].components.registry.subscriptions.get("x")
        cursors = {} if subscription is None else subscription.cursors
        for cursor in cursors.values():
            is_started = isinstance(cursor.start, Started)
            assert is_started or cursor.start is NOT_STARTED
            if cursor.phase in LIVE:
                assert is_started
                assert cursor.subscription.client is not None
            if cursor.is_pending:
                assert not is_started
            if cursor.phase is CursorPhase.DISCONNECTED:
                assert cursor.subscription.client is None


STEPS = ("publish", "give_credit", "wait", "leave", "come_back", "change", "seek", "cut", "heal")


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.sampled_from(STEPS), max_size=14),
    st.sampled_from(Order),
    st.booleans(),
)
def test_with_random_inputs_the_cursors_of_a_subscription_follow_the_table(
    steps: list[str], order: Order, durable: bool
) -> None:
    taken = set()
    enter = Cursor.enter

    def record(cursor: Cursor, phase: CursorPhase, given_input: CursorInput) -> None:
        before = cursor.phase
        enter(cursor, phase, given_input)
        taken.add((before, given_input, phase))

    with patched(Cursor, "enter", record):
        scenario = RandomSubscription(order, durable=durable)
        for step in steps:
            getattr(scenario, step)()
            scenario.world.run(ms=20)
            scenario.check()
        scenario.heal()
        scenario.world.run(s=2)
        scenario.check()
    assert all(phase in NEXT_PHASES[before, given] for before, given, phase in taken)
    cursors = scenario.world.subscription("n", "x").cursors
    assert P in cursors
    settled = CursorPhase.LIVE if scenario.is_connected else CursorPhase.DISCONNECTED
    assert {cursor.phase for cursor in cursors.values()} <= {settled, *READS_LOG}
