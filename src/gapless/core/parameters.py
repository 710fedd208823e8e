"""The times and sizes that an operator may set, with their defaults and required relations.

Names end in their unit. Times are in milliseconds or seconds. The components convert them to
microseconds (:func:`microseconds`), the unit of all internal clocks.
"""

from __future__ import annotations

from typing import Final

import msgspec

from gapless.core.errors import UsageError
from gapless.core.limits import DELTA_MAX, NACK_RANGES_MAX, PARAMETER_MAX, PARAMETER_TIME_MAX
from gapless.core.plan_limits import PLAN_EXACT_CELLS_MAX

__all__ = ["DEFAULTS", "Parameters", "allowed", "microseconds"]


IDLE_INTERVALS: Final = 3
"""After so many intervals of an idle stream what was not repeated is forgotten."""


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one broker. All brokers of an overlay should have the same ``delta``."""

    # overlay
    delta: int = 1
    """How many consecutive unreachable cells are bypassed."""
    heartbeat_ms: int = 250
    session_timeout_ms: int = 1_500
    ordered_sessions: bool = True
    """Whether links are ordered. Then a gap in a session's numbers ends the session."""
    relay_hops_max: int = 3
    tombstone_ttl_s: int = 86_400
    cell_degree_max: int = 32
    """The most edges of a cell. A record with more is refused."""
    control_sessions_max: int = 64
    """The most control sessions of a broker with brokers outside its neighbourhood."""
    control_session_idle_ms: int = 30_000
    """How long a control session that nothing needs may be idle before it is closed."""
    partition_renew_ms: int = 30_000
    """How often a broker repeats the partitions that it detects. A partition that is not repeated
    for four times as long counts as healed."""
    name_query_timeout_ms: int = 3_000
    """How long a broker waits for the replies to a name query."""
    name_query_retry_ms: int = 50
    """The pause before a name is queried anew because the tree has changed (RS-15a)."""
    find_timeout_ms: int = 3_000
    """How long a broker waits for the answers to a search for a durable subscription."""
    walk_timeout_ms: int = 3_000
    """How long a walk over the tree waits for the brokers of one cell."""

    # plans
    settle_ms: int = 5_000
    """How long a plan waits between two operations on common cells for their edges to settle."""
    plan_exact_cells: int = 7
    """Trees of so many cells get a shortest plan."""
    plan_replans: int = 5
    """How often a plan is made anew because another operator has changed the tree."""

    # operations on the tree
    op_prepare_ms: int = 10_000
    """How long a coordinator waits for the locks of an operation before it aborts it."""
    op_inquire_ms: int = 5_000
    """How long a locked broker hears nothing before it asks for the outcome. Messages of decided
    operations are repeated as often."""
    op_backoff_ms: int = 100
    """The longest wait before the second attempt of a refused operation. It doubles."""
    op_backoff_max_ms: int = 3_200
    op_attempts: int = 8
    """How often a coordinator attempts an operation that participants refuse."""
    op_request_ms: int = 60_000
    """How long a broker waits for the leader that carries out an operation for an operator."""

    # feeds
    attach_timeout_ms: int = 1_000
    retry_ms: int = 100
    retry_max_ms: int = 5_000
    attach_defer_ms: int = 2_000
    """How long an Attach waits for newer cell records before it is refused, and how long the Hello
    of a broker that is no neighbour yet is kept."""
    attach_refresh_ms: int = 2_000
    attach_expiry_ms: int = 6_000
    feed_switch_delay_ms: int = 5_000
    attachments_max: int = 20_000

    # replay of best effort
    replay_buffer_bytes: int = 262_144
    """The newest publications of a best-effort pubend that a router keeps for receivers that attach
    again."""
    replay_buffers_bytes: int = 16_777_216
    """The same for all pubends together."""
    replay_buffer_ms: int = 5_000
    """How long they are kept."""
    replay_requests_max: int = 16
    """How often in ``replay_buffer_ms`` a router may request a stream anew from a lower position."""

    # silence and curiosity
    silence_ms: int = 100
    idle_silence_max_ms: int = 10_000
    eager_silence_ms: int = 5
    gct_ms: int = 20
    """Gap curiosity threshold: how long a gap may last before a nack is sent (GD 3.2)."""
    nrt_min_ms: int = 50
    """Least nack repetition threshold. The actual one is estimated (GD 3.2)."""
    nrt_max_ms: int = 10_000
    dct_ms: int = 3_000
    """Delay curiosity threshold: how long a stream may be without progress (GD 3.2)."""
    aet_ms: int = 10_000
    """Acknowledgement expected threshold (GD 3.2)."""
    nack_span_ms: int = 1_000
    nack_ranges_max: int = 64
    nack_window: int = 8
    curious_ranges_max: int = 1_024

    # caches, frames, queues
    frame_bytes_max: int = 1_048_576
    frame_events_max: int = 1_000
    cache_bytes: int = 67_108_864
    queue_bytes_max: int = 8_388_608

    # connections
    keepalive_ms: int = 5_000
    """Broker and client send a frame at least this often. After four periods without one the
    connection is closed."""
    connections_max: int = 10_000
    handshake_timeout_ms: int = 5_000
    """How long the handshake of a new connection may take."""
    link_idle_timeout_ms: int = 15_000
    """A link that received nothing for this time is closed and dialled again."""
    redial_ms: int = 50
    redial_max_ms: int = 1_000
    """The longest wait before a peer is dialled again. It is below ``session_timeout_ms``, so a
    restarted peer is connected before a silent one would time out."""
    pending_write_bytes_max: int = 33_554_432
    """While more bytes wait for the disk, nothing is read from publishing clients."""
    shutdown_timeout_ms: int = 5_000
    """How long a stopping broker waits for its disk and its send queues."""

    # propagation
    change_batch_ms: int = 10
    table_flush_ms: int = 5
    delta_log_max: int = 256
    stale_table_ttl_s: int = 1_800
    table_conjunctions_max: int = 20_000
    stream_epoch_interval_ms: int = 20
    stream_epochs_kept: int = 16
    stream_epochs_max: int = 256
    """How many stream epochs a pubend keeps, of those that ended within ``inactive_after_s``."""

    # acknowledgement and membership
    ack_ms: int = 500
    ack_report_ttl_ms: int = 2_000
    ack_groups: int = 8
    sets_per_session_max: int = 256
    inactive_after_s: int = 120
    member_expiry_s: int = 604_800
    member_grace_s: int = 30
    ended_membership_ttl_s: int = 60
    log_hold_ttl_s: int = 600

    # subscriptions and replay
    read_chunk_bytes: int = 262_144
    read_bytes_max: int = 4_194_304
    """How much of a log a client may read with one request."""
    reads_per_shb_max: int = 16
    join_window_ms: int = 200
    join_buffer_events_max: int = 1_000
    filter_change_timeout_s: int = 10
    segments_max: int = 8
    interest_grace_s: int = 30
    prefetch_max: int = 10_000
    """Events that may wait in memory for each subscription."""
    backlog_bytes: int = 67_108_864
    """Bytes that may wait beyond ``prefetch_max``, for all subscriptions together. What does not
    fit is read from the log later."""
    slow_consumer_timeout_s: int = 30
    """A subscription that is not durable ends when it is behind for this time."""
    progress_ms: int = 30_000
    """How often a client is sent the progress of streams without events for it."""

    # pubends
    ceiling_step_ms: int = 1_000
    tick_lead_ms: int = 5_000
    publisher_window: int = 64
    """Batches of a publisher whose ticks are kept. As many may be unanswered at once."""
    publisher_ttl_s: int = 604_800
    log_bytes_max: int = 0
    """The bytes of one log. 0: as many as ``all_logs_bytes_max``."""
    all_logs_bytes_max: int = 0
    """The bytes of all logs of a broker together. 0: the driver sets it to a share of the disk. The
    machine itself takes 0 for no limit."""
    retention_s: int = 604_800
    """How long a log is retained for replay beyond what members need, as far as it fits."""
    close_wait_s: int = 60
    """How long a pubend that is closed at once still waits for members and log holds."""
    disk_free_bytes_min: int = 0
    """The broker warns if less is free on its disk. 0: a tenth of the disk, at most 10 GiB."""
    staged_bytes_max: int = 268_435_456
    """Bytes that may be staged at a broker, for all writers together. They are also in memory."""
    staged_ttl_s: int = 3_600
    """A staged batch without a new chunk for this time is deleted."""
    commit_ttl_s: int = 2_592_000
    """How long a writer may repeat its last commit and have it recognized: 30 days."""

    def __post_init__(self) -> None:
        """Refuse parameters that violate a required relation."""
        for name in self.__struct_fields__:
            value = getattr(self, name)
            expected = allowed(name, value)
            if expected is not None:
                raise UsageError(f"parameters.{name} is {value}: it must be {expected}")
        for smaller, larger, why in _RELATIONS:
            if not _value(self, smaller) < _value(self, larger):
                raise UsageError(
                    f"parameters: {smaller} ({_value(self, smaller):g} ms) must be less than "
                    f"{larger} ({_value(self, larger):g} ms): {why}"
                )

    @property
    def neighbourhood_radius(self) -> int:
        """The distance of the farthest cells of a neighbourhood: one more than may fail (Δ = δ +
        1).
        """
        return self.delta + 1

    @property
    def idle_us(self) -> int:
        """How often an idle stream is looked after: silence, attachments, reports and reviews.

        Members must be heard of much sooner than after ``inactive_after_s``.
        """
        longest_us = microseconds(ms=self.idle_silence_max_ms)
        return max(min(longest_us, self.longest_idle_us), microseconds(ms=self.silence_ms))

    @property
    def attach_expiry_us(self) -> int:
        """How long an attachment lasts without a refresh; those of idle streams come seldom."""
        return max(microseconds(ms=self.attach_expiry_ms), IDLE_INTERVALS * self.longest_idle_us)

    @property
    def report_ttl_us(self) -> int:
        """How long an ack report counts; those about idle streams come seldom."""
        return max(microseconds(ms=self.ack_report_ttl_ms), IDLE_INTERVALS * self.longest_idle_us)

    @property
    def longest_idle_us(self) -> int:
        """The longest idle interval that another broker may have: ``idle_silence_max_ms`` may differ."""
        return microseconds(s=self.inactive_after_s) // 4


_MAY_BE_ZERO: Final = frozenset(
    {
        *("delta", "ordered_sessions", "relay_hops_max", "retention_s", "cache_bytes"),
        *("backlog_bytes", "attachments_max", "reads_per_shb_max", "member_grace_s"),
        *("interest_grace_s", "join_window_ms", "join_buffer_events_max", "tick_lead_ms"),
        *("staged_bytes_max", "shutdown_timeout_ms", "delta_log_max", "curious_ranges_max"),
        *("log_bytes_max", "all_logs_bytes_max", "disk_free_bytes_min"),
    }
)
"""Parameters for which 0 means: none, at once, or a share of the disk. Any other would be a timer
without a delay or a limit that nothing fits into."""


_GREATEST = {
    "delta": DELTA_MAX,
    "nack_ranges_max": NACK_RANGES_MAX,
    "plan_exact_cells": PLAN_EXACT_CELLS_MAX,
}
"""The greatest values of parameters with limits of their own."""


def allowed(name: str, value: object) -> str | None:
    """Return which values a parameter may have, or None if it may have this one.

    >>> allowed("delta", 99), allowed("delta", 1), allowed("ordered_sessions", 1)
    ('a whole number from 0 to 16', None, 'true or false')
    """
    if name == "ordered_sessions":
        return None if isinstance(value, bool) else "true or false"
    least = 0 if name in _MAY_BE_ZERO else 1
    most = PARAMETER_TIME_MAX if name.endswith(("_ms", "_s")) else PARAMETER_MAX
    most = _GREATEST.get(name, most)
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return None
    return f"a whole number from {least} to {most:,}"


_RELATIONS = (
    ("4 heartbeat_ms", "session_timeout_ms", "one lost heartbeat must not end a session"),
    ("3 ack_ms", "ack_report_ttl_ms", "a report must be repeated before it is forgotten"),
    (
        "ack_report_ttl_ms",
        "ended_membership_ttl_s",
        "an old report must not restore a membership that has ended",
    ),
    (
        "attach_timeout_ms",
        "attach_defer_ms",
        "a receiver must try other feeders while its request waits for cell records",
    ),
    (
        "session_timeout_ms",
        "attach_expiry_ms",
        "an attachment must not expire before the session",
    ),
    (
        "attach_expiry_ms",
        "inactive_after_s",
        "a member must not become inactive while it is still attached",
    ),
    (
        "session_timeout_ms",
        "replay_buffer_ms",
        "a receiver whose session has timed out must find what it has missed",
    ),
    (
        "inactive_after_s",
        "stale_table_ttl_s",
        "stale tables must last until their members are inactive",
    ),
    ("op_backoff_ms", "op_backoff_max_ms", "the wait before another attempt must be able to grow"),
    ("silence_ms", "dct_ms", "a silent stream must not cause a nack"),
    (
        "session_timeout_ms",
        "link_idle_timeout_ms",
        "a session must time out before its link is closed",
    ),
    (
        "stream_epoch_interval_ms",
        "silence_ms",
        "a new stream epoch must not wait for the next silence",
    ),
)


def _value(parameters: Parameters, name: str) -> float:
    """Return ``"4 heartbeat_ms"`` as a number of milliseconds."""
    factor, _, field = name.rpartition(" ")
    scale = 1_000 if field.endswith("_s") else 1
    value: int = getattr(parameters, field)
    return int(factor or 1) * value * scale


def microseconds(*, ms: float = 0, s: float = 0) -> int:
    """Return a time in microseconds.

    >>> microseconds(ms=5), microseconds(s=2)
    (5000, 2000000)
    """
    return round(ms * 1_000 + s * 1_000_000)


DEFAULTS = Parameters()
