"""GD on knowledge (2.1), subends (2.3) and filter edges (2.4, 3.1), sentence by sentence.

GD: Bhola, Strom, Bagchi, Zhao, Auerbach: Exactly-once delivery in a content-based publish-subscribe
system, 2002. Runs A7 and A14 are those that broke an earlier reading of it.
"""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.ids import PubendId
from gapless.messages.streams import KnowledgeRange, Publication, Released
from gapless.stream.horizon import DoubtHorizon
from gapless.stream.istream import IStream
from gapless.stream.ranges import KnowledgeConflictError, TickState, filtered, joined
from tests.cases import scaled
from tests.stream.model import (
    PUBEND,
    TICKS,
    knowledge_range,
    publication,
    random_range,
    silence,
    states,
    true_range,
)

single_ranges = st.builds(lambda seed: random_range(Random(seed)), st.integers(0, 10**6))
several = st.lists(single_ranges, max_size=8)


def stream_of(parts: list[KnowledgeRange]) -> IStream:
    stream = IStream(PUBEND)
    for part in parts:
        stream.accumulate(part)
    return stream


# --- 2.1 the lattice ----------------------------------------------------------------------------


def test_lack_of_knowledge_is_least_and_data_is_greatest() -> None:
    """Figure 2, with S and D* folded into F."""
    assert TickState.Q < TickState.F < TickState.D


@pytest.mark.parametrize(("one", "other"), [*itertools.product([None, False, True], repeat=2)])
def test_a_tick_becomes_the_least_upper_bound_of_its_old_state_and_the_new_value(
    one: bool | None, other: bool | None
) -> None:
    """2.1: "The node changes its state to the lattice least upper bound"."""
    stream = IStream(PUBEND)
    expected = TickState.Q
    for value in (one, other):
        if value is not None:
            stream.accumulate(knowledge_range(5, 5, 5) if value else silence(5, 5))
            expected = max(expected, TickState.D if value else TickState.F)
    assert stream.state(5) is expected


@given(parts=several)
def test_states_become_monotonically_higher_by_accumulation(parts: list[KnowledgeRange]) -> None:
    """2.1: "becoming monotonically higher by knowledge accumulation"."""
    stream = IStream(PUBEND)
    before = {tick: stream.state(tick) for tick in TICKS}
    for part in parts:
        stream.accumulate(part)
        after = {tick: stream.state(tick) for tick in TICKS}
        assert all(before[tick] <= after[tick] for tick in TICKS)
        before = after


@given(parts=several, data=st.data())
def test_order_and_repetition_of_messages_do_not_matter(
    parts: list[KnowledgeRange], data: st.DataObject
) -> None:
    """2.1: links "can deliver values of ticks out of order"; the bound is commutative, idempotent."""
    again = data.draw(st.permutations(parts + parts))
    assert list(states(stream_of(again))) == list(states(stream_of(parts)))


@given(left=several, right=several)
def test_the_route_of_accumulation_does_not_matter(
    left: list[KnowledgeRange], right: list[KnowledgeRange]
) -> None:
    """2.1: the bound is associative, so a broker may accumulate already accumulated knowledge."""
    gathered = stream_of(list(stream_of(left)) + list(stream_of(right)))
    assert list(states(gathered)) == list(states(stream_of(left + right)))


@given(parts=several, low=st.sampled_from(TICKS), length=st.integers(0, 6))
def test_a_tick_can_drop_from_its_value_to_q_and_be_learned_again(
    parts: list[KnowledgeRange], low: int, length: int
) -> None:
    """2.1: "each knowledge tick can drop from its current value to Q"."""
    stream = stream_of(parts)
    before = list(states(stream))
    stream.forget(low, low + length)
    assert all(stream.state(tick) is TickState.Q for tick in range(low, low + length + 1))
    outside = [item for item in before if not low <= item[0] <= low + length]
    assert list(states(stream)) == outside
    for part in parts:
        stream.accumulate(part)
    assert list(states(stream)) == before


def test_two_different_data_messages_at_one_tick_are_the_error_state() -> None:
    """2.1: "E: error — this state should never be reached"."""
    stream = stream_of([knowledge_range(1, 9, 5)])
    other = Publication(5, "another", 1, {}, b"")
    with pytest.raises(KnowledgeConflictError, match="pubend stocks, tick 5"):
        stream.accumulate(KnowledgeRange(5, 5, 1, 0, (other,)))


def test_data_for_a_filtered_tick_replaces_f() -> None:
    """2.1 has D* here, then F; F is no acknowledgement here, so D is the greater state."""
    for parts in itertools.permutations([silence(1, 9), knowledge_range(4, 6, 5)]):
        assert stream_of(list(parts)).state(5) is TickState.D


# --- 2.3 the doubt horizon ----------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(scaled(50)))
def test_a_subend_delivers_each_message_once_in_tick_order_with_no_gap(seed: int) -> None:
    """2.3 safety: a delivered tick is later than those before; liveness: all are delivered.

    The link loses, repeats and reorders, the cache forgets; gaps are nacked until they close.
    """
    chance = Random(seed)
    data = [tick for tick in TICKS if chance.random() < 0.5]
    stream, horizon = IStream(PUBEND), DoubtHorizon(0)
    delivered: list[int] = []
    for turn in range(400):
        if turn < 200:
            low = chance.choice(TICKS)
            stream.accumulate(true_range(low, min(TICKS[-1], low + chance.randrange(4)), data))
            if chance.random() < 0.3:
                stream.forget_lowest()
        else:
            doubts = horizon.unknown_ranges(stream, TICKS[-1])
            if doubts:
                stream.accumulate(true_range(*chance.choice(doubts), data))
        known = {tick for tick, _ in states(stream)}
        for part in horizon.next_ranges(stream):
            assert set(range(horizon.tick + 1, part.high + 1)) <= known
            delivered += [one.tick for one in part.publications]
            horizon.pass_over(part)
        assert delivered == [tick for tick in data if tick <= horizon.tick]
    assert horizon.tick == TICKS[-1]


def test_data_later_than_the_horizon_waits_until_the_q_ticks_are_resolved() -> None:
    """2.3: "we delay delivering their data until the Q ticks have been resolved"."""
    stream, horizon = IStream(PUBEND), DoubtHorizon(20)
    stream.accumulate(knowledge_range(31, 40, 36))
    assert horizon.next_ranges(stream) == []
    stream.accumulate(knowledge_range(21, 30, 27))
    (only,) = horizon.next_ranges(stream)
    assert [one.tick for one in only.publications] == [27, 36]


# --- 2.4 and 3.1 filter edges -------------------------------------------------------------------


@given(part=single_ranges, wanted=st.sets(st.sampled_from(TICKS)))
def test_a_filter_passes_matching_data_turns_other_data_into_f_and_passes_f(
    part: KnowledgeRange, wanted: set[int]
) -> None:
    """2.4: "passes a D tick unchanged if it matches …, otherwise it converts it to an F"."""
    result = dict(states([filtered(part, lambda one: one.tick in wanted)]))
    for tick, state in states([part]):
        passes = state is TickState.D and tick in wanted
        assert result.pop(tick) is (TickState.D if passes else TickState.F)
    assert not result


def test_a_data_message_becomes_a_silence_message_if_its_data_is_filtered_out() -> None:
    """3.1: "A first-time data message can be transformed into a first-time silence message"."""
    assert filtered(knowledge_range(1, 9, 5), lambda _: False) == silence(1, 9)


@given(parts=several, wanted=st.sets(st.sampled_from(TICKS)))
def test_filtering_before_or_after_accumulation_gives_the_same_knowledge(
    parts: list[KnowledgeRange], wanted: set[int]
) -> None:
    """2.4: a filter edge may be applied to each change of a stream, as it comes."""

    def passes(one: Publication) -> bool:
        return one.tick in wanted

    before = stream_of([filtered(part, passes) for part in parts])
    after = [filtered(part, passes) for part in stream_of(parts)]
    assert list(states(before)) == list(states(after))


@given(parts=several)
def test_a_receiver_that_gets_every_change_knows_what_its_feeder_knows(
    parts: list[KnowledgeRange],
) -> None:
    """2.4: "Whenever knowledge changes at a stream, the change is propagated"."""
    feeder, receiver = IStream(PUBEND), IStream(PUBEND)
    for part in parts:
        for change in feeder.accumulate(part):
            receiver.accumulate(change)
    assert list(states(receiver)) == list(states(feeder))


# --- runs that broke an earlier reading ---------------------------------------------------------


def test_silences_of_different_stream_epochs_are_never_merged() -> None:
    """A7: joined under the later epoch, a subscription would start on ticks filtered before it."""
    parts = [silence(1, 10, 4), silence(11, 20, 5)]
    for order in itertools.permutations(parts):
        assert list(stream_of(list(order))) == parts
    assert joined(parts, 1_000) == parts
    stream = stream_of(parts)
    assert [one.stream_epoch for one in stream.known(7, 15)] == [4, 5]
    assert stream.known_through(1) == 20


def test_released_ticks_are_sent_by_another_message_than_silence() -> None:
    """A14: a gap is not silence; no range contains released ticks, so none becomes F."""
    released = Released(PubendId("stocks"), 100)
    assert not isinstance(released, KnowledgeRange)
    stream = stream_of([silence(101, 120)])
    assert stream.state(100) is TickState.Q
    assert stream.known_through(51) == 50
    horizon = DoubtHorizon(50)
    horizon.skip_to(released.up_to)
    assert horizon.next_ranges(stream) == [silence(101, 120)]


def test_a_copy_from_another_broker_is_the_same_message() -> None:
    """2.1: a repeated D is no error; only another D is."""
    stream = stream_of([KnowledgeRange(1, 9, 1, 0, (publication(5),))])
    assert stream.accumulate(KnowledgeRange(1, 9, 1, 0, (publication(5),))) == []
