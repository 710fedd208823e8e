"""Pauses of streams in steps of the tree, as a router measures them (HA, section V)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.context import Context, Identity, StepTime
from gapless.core.ids import PubendId
from gapless.core.parameters import Parameters
from gapless.messages.streams import KnowledgeRange
from gapless.routing.pauses import StreamPauses
from tests.routing.test_reshape import fed, reshape
from tests.stream.small_streams import STOCKS, event, knowledge_range

NOTHING = {"paused": 0, "resumed": 0, "time_us": 0, "longest_us": 0, "publications": 0}


class Meter:
    """The pauses of a router whose time is set by a test."""

    def __init__(self) -> None:
        self._context = Context(Identity("n", "n", 1), Parameters())
        self.pauses = StreamPauses(self._context)
        self.at(1_000)

    def at(self, now: int) -> StreamPauses:
        self._context.begin_step(StepTime(now, now))
        return self.pauses


def test_a_stream_that_missed_nothing_has_resumed_with_the_reply_of_its_feeder() -> None:
    meter = Meter()
    meter.pauses.begin(STOCKS)
    assert meter.pauses.statistics() == NOTHING | {"paused": 1}
    meter.at(4_000).found(STOCKS, at=10, top=10)
    assert meter.pauses.statistics() == NOTHING | {
        "resumed": 1,
        "time_us": 3_000,
        "longest_us": 3_000,
    }
    assert not meter.pauses.under_way


def test_a_stream_resumes_with_the_first_missing_range_and_all_its_missing_events_waited() -> None:
    meter = Meter()
    meter.pauses.begin(STOCKS)
    meter.at(2_000).found(STOCKS, at=20, top=10)
    meter.at(3_000).received(STOCKS, [knowledge_range(21, 25, event(23, 0))])
    assert meter.pauses.paused == 1, "what is above the reply leaves the gap"
    meter.at(5_000).received(STOCKS, [knowledge_range(11, 15, event(12, 0), event(13, 0))])
    meter.at(9_000).received(STOCKS, [knowledge_range(16, 25, event(20, 0), event(22, 0))])
    assert meter.pauses.statistics() == {
        "paused": 0,
        "resumed": 1,
        "time_us": 4_000,
        "longest_us": 4_000,
        "publications": 3,
    }
    assert not meter.pauses.under_way


def test_a_stream_that_is_touched_again_continues_its_pause() -> None:
    meter = Meter()
    meter.pauses.begin(STOCKS)
    meter.at(3_000).begin(STOCKS)
    meter.at(4_000).found(STOCKS, at=10, top=10)
    assert meter.pauses.time_us == 3_000
    assert meter.pauses.resumed == 1


def test_a_best_effort_stream_resumes_with_the_reply_and_what_is_replayed_waited() -> None:
    meter = Meter()
    meter.pauses.begin(STOCKS)
    meter.at(3_000).found_best_effort(STOCKS)
    meter.pauses.received(STOCKS, [knowledge_range(11, 15, event(12, 0))])
    meter.at(4_000).received(STOCKS, [knowledge_range(16, 20, event(17, 0))])
    assert (meter.pauses.time_us, meter.pauses.waited) == (2_000, 1)
    assert not meter.pauses.under_way


def test_a_router_whose_stream_went_another_way_measures_the_time_without_it() -> None:
    line, node = fed()
    assert node.router.pauses.statistics() == NOTHING
    began = line.now
    reshape(line, node, wider=True)
    assert node.router.pauses.paused == 1
    line.run(ms=20)
    line.publish(knowledge_range(11, 20, event(15, 0)))
    line.run(ms=20)
    found = node.router.pauses.statistics()
    assert (found["paused"], found["resumed"]) == (0, 1)
    assert 0 < found["time_us"] == found["longest_us"] <= line.now - began
    assert not node.router.pauses.under_way


INPUTS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "found", "best effort", "received", "forget"]),
        st.sampled_from([PubendId("a"), PubendId("b")]),
        st.integers(0, 20),
        st.integers(0, 20),
    ),
    max_size=40,
)


@given(INPUTS)
def test_every_input_keeps_the_sums_true_and_pauses_within_the_known_streams(
    inputs: list[tuple[str, PubendId, int, int]],
) -> None:
    meter = Meter()
    for number, (what, pubend, one, other) in enumerate(inputs):
        pauses = meter.at(1_000 * (number + 2))
        match what:
            case "begin":
                pauses.begin(pubend)
            case "found":
                pauses.found(pubend, one, other)
            case "best effort":
                pauses.found_best_effort(pubend)
            case "received":
                low, high = min(one, other) + 1, max(one, other) + 1
                pauses.received(pubend, [KnowledgeRange(low, high, 1, 0, ())])
            case _:
                pauses.forget(pubend)
        assert 0 <= pauses.paused <= len(pauses.under_way) <= 2
        assert pauses.longest_us <= pauses.time_us <= pauses.resumed * pauses.longest_us
