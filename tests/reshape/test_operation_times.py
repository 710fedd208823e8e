"""Times of operations at their coordinator (HA, section V: operation time)."""

from __future__ import annotations

from gapless.core.reshape_limits import OPERATION_TIMES_SHOWN, OPERATIONS_KEPT
from gapless.messages.reshape import OperationId, OperationKind, OperationRequestId
from gapless.reshape.operation_times import OperationTimes
from tests.reshape.world import MS, World


def line() -> World:
    cells = {name: [f"{name}1"] for name in "abcd"}
    return World(cells, [("a", "b"), ("b", "c"), ("c", "d")])


def test_a_finished_operation_is_measured_from_its_request_and_shown_by_its_id() -> None:
    world = line()
    world.request("b1", OperationKind.SHIFT, "a", "b", "c")
    began = world.now
    world.run_until(lambda: bool(world.replies("b1")))
    times = world["b1"].operations.calls.times
    (found,) = times.newest
    assert found.op == world.replies("b1")[0].op
    assert found.kind is OperationKind.SHIFT
    assert found.time_us == times.time_us == times.longest_us
    assert 10 * MS <= found.time_us <= world.now - began
    assert world["b1"].operations.statistics()["ended done"] == 1


def test_a_refused_operation_has_no_time() -> None:
    world = line()
    world.request("b1", OperationKind.SHIFT, "a", "b", "d")
    world.run_until(lambda: bool(world.replies("b1")))
    times = world["b1"].operations.calls.times
    assert (times.done, times.time_us, times.newest) == (0, 0, ())
    assert times.ended == {"stale": 1}


def test_only_the_newest_times_are_kept_and_fewer_are_shown() -> None:
    times = OperationTimes()
    requests = [OperationRequestId("plan", number) for number in range(OPERATIONS_KEPT + 3)]
    for request in requests:
        times.finished(request, OperationId("b1", request.step), OperationKind.SHIFT, 1_000)
    assert times.done == times.ended["done"] == len(requests)
    shown = [each.op.counter for each in times.newest]
    assert shown == [request.step for request in requests[-OPERATION_TIMES_SHOWN:]]
    assert [times.of(request) for request in requests[2:4]] == [0, 1_000]
