"""Situations: rare cases, made common in some seeds.

Most seeds stay as they were drawn. In three of ten one *situation* is added, from its own random
numbers, so that a new situation changes no seed that does not have it. A situation changes options
only. The events of the run remain random.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from gapless.core.parameters import Parameters
from gapless_lab.sim.limits import tiny_backlog

if TYPE_CHECKING:
    from gapless_lab.sim.options import SimulationOptions

__all__ = ["SITUATIONS", "add_situation"]

SHARE: Final = 0.3
"""The share of seeds with a situation."""


def add_situation(options: SimulationOptions) -> SimulationOptions:
    """Return the options with the situation of their seed, if it has one."""
    random = Random(f"{options.seed}/situation")  # noqa: S311
    if random.random() >= SHARE:
        return options
    return SITUATIONS[random.choice(list(SITUATIONS))](options, random)


def inactive(options: SimulationOptions, random: Random) -> SimulationOptions:
    """Hosts are unreachable for longer than members stay active and stale tables are kept (R21,
    R54).

    When such a host returns with clients that noticed nothing, the present stream epochs do not
    serve it. Crashes would end its live subscriptions, so hosts pause or are cut off. The run is
    longer and has fewer operations.
    """
    far = _small(options, random)
    stale_s = far.parameters().inactive_after_s + 1
    least_ms = stale_s * 1_000 + 500
    return far.with_(
        limits={**far.limits, "stale_table_ttl_s": stale_s},
        rates={"pause": 0.5, "cut": 0.5, "client loss": 0.2},
        quiet=0.0,
        down_ms_min=least_ms,
        down_ms_max=least_ms + 2_000,
        safety_ms=2 * least_ms + 4_000,
        publish_rate=far.publish_rate / 2,
        churn_rate=far.churn_rate / 4,
        whole_core=1.0,
    )


def expired(options: SimulationOptions, random: Random) -> SimulationOptions:
    """Hosts are unreachable until their memberships expire (R55): a gap, reported as one."""
    far = inactive(options, random)
    inactive_s = far.parameters().inactive_after_s
    return far.with_(
        expiry=True,
        retention_s=0,
        limits={**far.limits, "member_expiry_s": inactive_s + 1, "log_hold_ttl_s": inactive_s},
    )


def small_log(options: SimulationOptions, random: Random) -> SimulationOptions:
    """A log reaches its limit: publications are refused, and lagging members lose events (R58)."""
    return options.with_(
        limits={**options.limits, "log_bytes_max": random.choice((1_000, 3_000, 10_000))},
        rates=_also(options, "slow client", 2.0) if random.random() < 0.5 else options.rates,
        durable=max(0.5, options.durable),
        pubends=min(2, options.pubends),
    )


def widened(options: SimulationOptions, random: Random) -> SimulationOptions:
    """Advertisements widen while everything else continues (A22)."""
    return options.with_(
        widen_rate=random.choice((2.0, 5.0, 10.0)) * 0.1 / options.pace,
        outside=max(0.02, options.outside),
        best_effort=0.0,
    )


def abandoned(options: SimulationOptions, random: Random) -> SimulationOptions:
    """Clients of durable subscriptions are disconnected until these expire."""
    far = _small(options, random)
    return far.with_(
        expiry_s=1,
        rates=_also(far, "client loss", 1.0),
        down_ms_max=4_000,
        safety_ms=far.safety_ms + 5_000,
        publish_rate=far.publish_rate / 2,
        churn_rate=far.churn_rate / 2,
        durable=max(0.5, far.durable),
    )


def repeated(options: SimulationOptions, random: Random) -> SimulationOptions:
    """Publishers repeat batches answered long ago: the log still has them, or has released them
    (R27).
    """
    window = random.choice((1, 4, 16))
    chunk = random.choice((1, 300, Parameters().read_chunk_bytes))
    return options.with_(
        repeat_rate=random.choice((2.0, 10.0)) * 0.1 / options.pace,
        limits={**options.limits, "publisher_window": window, "read_chunk_bytes": chunk},
        retention_s=random.choice((0, 3_600)),
        best_effort=0.0,
    )


def skipped_packets(options: SimulationOptions, random: Random) -> SimulationOptions:
    """A transport loses something in the middle: one packet of a connection, or many datagrams."""
    ordered = options.network == "session"
    kind, strikes = ("skipped packet", 20.0) if ordered else ("loss", 6.0)
    return options.with_(
        rates=_also(options, kind, random.choice((0.3, 1.0)) * strikes),
        limits={
            **options.limits,
            "sets_per_session_max": random.choice((1, 2, 256)),
            "frame_bytes_max": random.choice((20, 100, 1_048_576)),
        },
    )


def corrupt(options: SimulationOptions, random: Random) -> SimulationOptions:
    """A row of a log cannot be read while clients read it (P8)."""
    return options.with_(
        rates=_also(options, "damage", random.choice((0.5, 2.0))),
        reads=4.0 * 0.1 / options.pace,
        past=max(0.3, options.past),
        retention_s=3_600,
    )


def flooded(options: SimulationOptions, random: Random) -> SimulationOptions:
    """Clients, and in half of these seeds links too, are slower than the events come (R33, R40,
    R48).
    """
    flooding = options.with_(
        limits={
            **options.limits,
            "prefetch_max": (prefetch := random.choice((1, 3))),
            "join_buffer_events_max": 1,
            **tiny_backlog(prefetch),
        },
        rates=_also(options, "slow client", 4.0),
        best_effort=random.choice((0.0, 0.5)),
        credit_max=random.choice((1, 5)),
        batch_max=8,
    )
    if random.random() < 0.5:
        return flooding
    # every message fills a link for long, and missing ticks are requested in many small ranges
    return flooding.with_(
        limits={**flooding.limits, "queue_bytes_max": 300, "nack_span_ms": 1},
        cells=random.randint(2, 3),
        inner_cuts=0.0,  # so slow a link cannot relay
        delay_us_min=2_500,
        delay_us_max=5_000,
        rates=_also(flooding, "one-way cut", 4.0),
        publish_rate=80 * 0.1 / options.pace,
        whole_core=1.0,
        durable=0.0,
        best_effort=0.0,
        total=0.5,
    )


SITUATIONS: Final[dict[str, Callable[[SimulationOptions, Random], SimulationOptions]]] = {
    "inactive": inactive,
    "expired": expired,
    "small log": small_log,
    "widened": widened,
    "abandoned": abandoned,
    "repeated": repeated,
    "skipped packets": skipped_packets,
    "corrupt": corrupt,
    "flooded": flooded,
}
"""By name: what each situation adds to a seed; a new one changes all seeds that have a situation.
"""


def _also(options: SimulationOptions, kind: str, strikes: float) -> dict[str, float]:
    """Return the rates of faults with one more kind."""
    return {**options.rates, kind: round(strikes * 0.1 / options.pace, 3)}


def _small(options: SimulationOptions, random: Random) -> SimulationOptions:
    """Return a world that is small enough for a long run, with different filters."""
    cells = random.randint(2, 5)
    return options.with_(
        pace=0.1,
        cells=cells,
        domain=4,
        subscribers=random.randint(2, 5),
        period_ms=500,
        publish_rate=options.publish_rate * options.pace / 0.1,
        churn_rate=options.churn_rate * options.pace / 0.1,
        reads=options.reads * options.pace / 0.1,
    )
