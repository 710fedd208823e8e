"""The parameters of simulated brokers: all times shorter, and some limits tiny.

Shorter times make timeouts act within a short run. Tiny limits (a window of one, no cache) reach
branches that normal sizes never reach.
"""

from __future__ import annotations

from random import Random
from typing import Final

from gapless.core.parameters import Parameters

__all__ = ["PACED_MS", "TINY", "draw_limits", "paced", "tiny_backlog"]

PACED_MS: Final = tuple(name for name in Parameters.__struct_fields__ if name.endswith("_ms"))
"""The parameters that the pace shortens."""

TINY: Final[dict[str, tuple[int, ...]]] = {
    "ack_groups": (1, 2),
    "cache_bytes": (0, 300, 2_000),
    "curious_ranges_max": (1, 3),
    "delta_log_max": (0, 1, 3),
    "frame_events_max": (1, 2),
    "join_buffer_events_max": (0, 1, 3),
    "nack_ranges_max": (1, 2),
    "nack_span_ms": (1, 5),
    "nack_window": (1, 2),
    "prefetch_max": (1, 3),
    "publisher_window": (1, 4),
    "queue_bytes_max": (300, 3_000),
    "read_chunk_bytes": (1, 300),
    "reads_per_shb_max": (1, 2),
    "stream_epochs_kept": (1, 2),
    "segments_max": (1, 2),
    "sets_per_session_max": (1, 2),
    "table_conjunctions_max": (1, 3),
    "stream_epochs_max": (1, 2, 4),
}
"""Limits, and the small values that a seed may give them."""


def paced(pace: float, *, expiry: bool, retention_s: int) -> dict[str, int]:
    """Return the times of all brokers at a pace; they keep the relations of the defaults."""
    defaults = Parameters()
    times = {name: max(1, round(getattr(defaults, name) * pace)) for name in PACED_MS}
    # in seconds: longer than the longest paced time that they must exceed, and within a run
    inactive_s = 1 + times["attach_expiry_ms"] // 1_000
    times.update(
        inactive_after_s=inactive_s,
        stale_table_ttl_s=4 * inactive_s,
        member_grace_s=1,
        ended_membership_ttl_s=inactive_s + 1,
        interest_grace_s=1,
        filter_change_timeout_s=1,
        slow_consumer_timeout_s=1,
        # both often enough to matter within a run
        progress_ms=max(1, round(400 * pace)),
        partition_renew_ms=max(1, round(5_000 * pace)),
        log_hold_ttl_s=2 * inactive_s if expiry else 86_400,
        member_expiry_s=3 * inactive_s if expiry else 604_800,
        tombstone_ttl_s=86_400,
        retention_s=retention_s,
        log_bytes_max=68_719_476_736,
    )
    return times


def draw_limits(random: Random) -> dict[str, int]:
    """Draw the tiny limits of a seed: none in half of the seeds."""
    if random.random() < 0.5:
        return {}
    drawn = {name: random.choice(values) for name, values in TINY.items() if random.random() < 0.2}
    return drawn | tiny_backlog(drawn.get("prefetch_max"))


def tiny_backlog(prefetch_max: int | None) -> dict[str, int]:
    """Return the backlog limit for a tiny prefetch_max: nothing, or some events."""
    if prefetch_max is None:
        return {}
    return {"backlog_bytes": 0 if prefetch_max == 1 else 1_200}
