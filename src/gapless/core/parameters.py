"""Every time and size that an operator may set, with its default and the relations they must keep.

Names end in their unit. Times are in milliseconds or seconds here, as people write them; rooms ask
for microseconds (:func:`us`), the unit of all clocks inside.
"""

from __future__ import annotations

import msgspec

from gapless.core.errors import UsageError
from gapless.core.limits import DELTA_MAX

__all__ = ["DEFAULTS", "Parameters", "microseconds"]


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of one broker. All brokers of an overlay should have the same ``delta``."""

    # overlay
    delta: int = 1
    """How many unreachable cells in a row are bypassed."""
    heartbeat_ms: int = 250
    session_timeout_ms: int = 1_500
    ordered_sessions: bool = True
    """Whether links keep the order; then a gap in a session's numbers ends the session."""
    relay_hops_max: int = 3
    tombstone_ttl_s: int = 86_400
    partition_renew_ms: int = 30_000
    """How often a broker says again which partitions it sees; not heard of for four times as long, they
    are taken to be over."""
    name_query_timeout_ms: int = 3_000
    """How long a broker waits for all others to say that the name of a new pubend is free."""

    # feeds
    attach_timeout_ms: int = 1_000
    retry_ms: int = 100
    retry_max_ms: int = 5_000
    attach_refresh_ms: int = 2_000
    attach_expiry_ms: int = 6_000
    feed_switch_delay_ms: int = 5_000
    attachments_max: int = 20_000

    # silence and curiosity
    silence_ms: int = 100
    idle_silence_max_ms: int = 1_000
    eager_silence_ms: int = 5
    gct_ms: int = 20
    """Gap curiosity threshold: how long a gap may stay before it is asked for (GD 3.2)."""
    nrt_min_ms: int = 50
    """Nack repetition threshold: its least value; the rest is estimated (GD 3.2)."""
    nrt_max_ms: int = 10_000
    dct_ms: int = 3_000
    """Delay curiosity threshold: how long a stream may stand still (GD 3.2)."""
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
    """Broker and client say something at least so often; after four such times one is given up."""
    connections_max: int = 10_000
    handshake_timeout_ms: int = 5_000
    """How long the other side of a new connection may take to introduce itself."""
    link_idle_timeout_ms: int = 15_000
    """A link on which nothing came for so long is closed and dialled anew."""
    redial_ms: int = 50
    redial_max_ms: int = 1_000
    """The longest wait before a peer is dialled again: a peer that restarts is back as soon as one
    that only fell silent would have been given up (``session_timeout_ms``)."""
    pending_write_bytes_max: int = 33_554_432
    """While more waits for the disk, nothing more is read from those who publish."""
    shutdown_timeout_ms: int = 5_000
    """How long a broker that stops waits for its disk and for what is being sent."""

    # propagation
    change_batch_ms: int = 10
    table_flush_ms: int = 5
    delta_log_max: int = 256
    stale_table_ttl_s: int = 1_800
    table_conjunctions_max: int = 20_000
    stream_epoch_interval_ms: int = 20
    stream_epochs_kept: int = 16

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
    """What a client that reads a log of this broker may ask for at once."""
    reads_per_shb_max: int = 16
    join_window_ms: int = 200
    join_buffer_events_max: int = 1_000
    filter_change_timeout_s: int = 10
    segments_max: int = 8
    interest_grace_s: int = 30
    prefetch_max: int = 10_000
    """Events that may always wait in memory for a subscription."""
    backlog_bytes: int = 67_108_864
    """What may wait beyond that, for all subscriptions together; one that lets more wait reads the
    log."""
    slow_consumer_timeout_s: int = 30
    """A subscription that is not durable and fell behind ends if it is still behind after so long."""
    progress_ms: int = 30_000
    """How often a client is told how far streams are of which nothing comes for it."""

    # pubends
    ceiling_step_ms: int = 1_000
    tick_lead_ms: int = 5_000
    publisher_window: int = 64
    """Batches of a publisher whose ticks are remembered; so many may be unanswered at once."""
    publisher_ttl_s: int = 604_800
    log_bytes_max: int = 68_719_476_736
    retention_s: int = 3_600
    """How long a log is kept for replay beyond what members need."""
    staged_bytes_max: int = 268_435_456
    """What may be staged at a broker, for all writers together; it is in memory too."""
    staged_ttl_s: int = 3_600
    """After so long without another chunk what is staged of a batch is erased."""
    commit_ttl_s: int = 2_592_000
    """For so long a writer may repeat its last commit and be told that it is done: 30 days."""

    def __post_init__(self) -> None:
        """Refuse parameters under which the protocols would work against each other."""
        for smaller, larger, why in _RELATIONS:
            if not _value(self, smaller) < _value(self, larger):
                raise UsageError(
                    f"{smaller} ({_value(self, smaller):g} ms) must be less than "
                    f"{larger} ({_value(self, larger):g} ms): {why}"
                )
        if not 0 <= self.delta <= DELTA_MAX:
            raise UsageError(f"delta is {self.delta}, and must be 0 to {DELTA_MAX}")

    @property
    def neighbourhood_radius(self) -> int:
        """How far a broker's neighbourhood goes: one cell more than may fail (Δ = δ + 1)."""
        return self.delta + 1


_RELATIONS = (
    ("4 heartbeat_ms", "session_timeout_ms", "one lost heartbeat must not end a session"),
    ("3 ack_ms", "ack_report_ttl_ms", "a report must be repeated before it is forgotten"),
    (
        "ack_report_ttl_ms",
        "ended_membership_ttl_s",
        "an old report must not bring back a host that left",
    ),
    (
        "session_timeout_ms",
        "attach_expiry_ms",
        "an attachment must outlive the session's last sign",
    ),
    (
        "attach_expiry_ms",
        "inactive_after_s",
        "a member must not become inactive while it is still attached",
    ),
    (
        "inactive_after_s",
        "stale_table_ttl_s",
        "stale tables must last until the members they speak for are inactive",
    ),
    ("silence_ms", "dct_ms", "a silent stream must not look dead"),
    (
        "session_timeout_ms",
        "link_idle_timeout_ms",
        "a session must die before its link is given up",
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
