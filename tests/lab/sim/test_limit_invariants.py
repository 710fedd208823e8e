"""A broker that ignores a limit breaks the invariant I14."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gapless_lab.sim.invariants import InvariantMonitor
from gapless_lab.sim.invariants.limits import LimitInvariant
from gapless_lab.sim.options import SimulatedNetworkKind
from gapless_lab.sim.runner import SimulationRun
from tests.lab.sim.test_invariants import options

LOSSY: dict[str, Any] = {
    "network": SimulatedNetworkKind.DATAGRAM,
    "rates": {"loss": 20.0, "client loss": 2.0},
    "publish_rate": 200.0,
}
"""A world with many losses and nacks."""

SLOW: dict[str, Any] = {
    "rates": {"slow client": 20.0, "client loss": 4.0},
    "publish_rate": 300.0,
    "credit_max": 1,
}
"""A world in which clients are slower than the publications."""

NARROW = {"prefetch_max": 1, "frame_events_max": 1, "read_chunk_bytes": 1}
"""Limits under which little may be queued for them."""


def found_without(limit: str, value: int, limits: dict[str, int], **changes: Any) -> str:
    """Return the violation that is found if brokers ignore a tiny limit."""
    for seed in range(20):
        made = options(seed, limits={**limits, limit: value}, **changes)
        run = SimulationRun(made, observers=[lambda run: InvariantMonitor(run, [LimitInvariant])])
        factory = run.world._factory

        def careless(broker: Any, cell: Any, parameters: Any, *rest: Any) -> Any:
            far = msgspec.structs.replace(parameters, **{limit: 1_000_000})
            return factory(broker, cell, far, *rest)  # noqa: B023 - called within the loop

        run.world._factory = careless
        run.start()
        run.world.run_until(run.options.safety_ms * 1_000)
        for violation in run.world.violations[:1]:
            assert violation.name != "exception", violation.detail
            if violation.name == "I14":
                return violation.detail
    return "nothing"


@pytest.mark.parametrize(
    ("limit", "value", "what", "limits", "changes"),
    [
        ("attachments_max", 1, "attachments", {}, {}),
        ("curious_ranges_max", 1, "curious ranges", {}, LOSSY),
        ("segments_max", 1, "segments", {}, {"churn_rate": 100.0, "durable": 1.0}),
        ("join_buffer_events_max", 0, "events held while joining", {}, SLOW),
        ("backlog_bytes", 0, "the bytes of the backlog", NARROW, SLOW),
        ("reads_per_shb_max", 1, "reads of", {}, {"past": 1.0, "subscribers": 12}),
        ("staged_bytes_max", 100, "staged bytes", {}, {"staged_writers": 2, "stage_rate": 50.0}),
        ("delta_log_max", 1, "deltas", {}, {}),
        ("stream_epochs_kept", 1, "stream epochs of", {}, {}),
        ("sets_per_session_max", 3, "sets of", {}, {}),
        ("sets_per_session_max", 1, "sets named to", {}, LOSSY),
        ("ack_groups", 1, "groups of hosts", {}, {}),
        ("table_conjunctions_max", 1, "conjunctions of", {}, {}),
        ("nack_window", 1, "ticks that an SHB nacks", {"nack_span_ms": 1}, LOSSY),
        ("frame_bytes_max", 40, "bytes of a part of a table", {}, {"rates": {"cut": 10.0}}),
        ("frame_bytes_max", 100, "bytes of a reply", {}, LOSSY),
    ],
)
def test_ignoring_a_limit_breaks_i14(
    limit: str, value: int, what: str, limits: dict[str, int], changes: dict[str, Any]
) -> None:
    assert what in found_without(limit, value, limits, **changes)
