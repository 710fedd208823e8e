"""Swarm options: everything that distinguishes one run from another, drawn from its seed.

Each seed draws its own world: the number of cells and the shape of their tree, the network, the
faults and their rates, tiny limits, the operations of clients. About a tenth of the seeds have no
faults at all, so that a bug of a healthy overlay is not blamed on a fault. Options print in one
line and are stored as JSON. ``with_`` changes some for shrinking.
"""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import Any, Final

import msgspec

from gapless.core.parameters import Parameters
from gapless.overlay.neighbourhood import Topology
from gapless_lab.sim.limits import draw_limits, paced
from gapless_lab.sim.regions import with_regions
from gapless_lab.sim.reshaping import with_reshaping
from gapless_lab.sim.shapes import SHAPES, tree
from gapless_lab.sim.situations import add_situation

__all__ = [
    "BROKERS_MAX",
    "FAULT_KINDS",
    "RARE_FAULT_KINDS",
    "SimulatedNetworkKind",
    "SimulationOptions",
    "draw",
    "draw_ordinary",
    "with_redundancy",
]

FAULT_KINDS: Final = (
    "crash",
    "crash inside a sync",
    "pause",
    "cut",
    "one-way cut",
    "permanent cut",
    "reset",
    "loss",
    "clock jump",
    "client loss",
    "slow client",
    "full disk",
    "damage",
)
"""Every kind of fault that has a rate; a rate is the number of strikes a second of virtual time in
the whole world.
"""

RARE_FAULT_KINDS: Final = ("skipped packet",)
"""Kinds that only some situations have (:mod:`.situations`)."""


BROKERS_MAX: Final = 15
"""The maximum number of brokers in a world; larger worlds are slow and find few more bugs."""

STAGING_SHARE: Final = 0.125
"""The share of seeds with writers that stage."""

RELAYED_DELAY_US: Final = 1_500
"""The usual maximum delay of a packet, at the usual pace, in worlds where links stay cut."""

CONFLICTING_NAMES_SHARE: Final = 0.15
"""The share of seeds in which publishers open one pubend at several brokers."""

FAILOVER_SHARE: Final = 0.1
"""The share of seeds in which clients often fail over."""


LEAVING_SHARE: Final = 0.25
"""The share of seeds whose clients leave durable subscriptions, if they have any."""
CLOSINGS_SHARE: Final = 0.1
"""The share of seeds in which clients close pubends."""

RESTARTS_SHARE: Final = 0.15
"""The share of seeds in which programs start again and look for their durable subscriptions."""


class SimulatedNetworkKind(StrEnum):
    """How links fail."""

    SESSION = "session"
    DATAGRAM = "datagram"


class SimulationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One run. The defaults are a small world without faults."""

    seed: int = 0

    # the overlay
    cells: int = 3
    shape: str = "line"
    fan_out: int = 2
    brokers_per_cell: int = 1
    mixed_cells: bool = False
    """Whether the number of brokers in a cell varies from one to ``brokers_per_cell``."""
    delta: int = 1
    pace: float = 0.1
    """The factor by which the parameters' times are shortened."""
    limits: dict[str, int] = {}
    """Parameters that differ from the paced defaults."""

    # the network and the disks
    network: SimulatedNetworkKind = SimulatedNetworkKind.SESSION
    delay_us_min: int = 200
    delay_us_max: int = 2_000
    duplicate: float = 0.0
    half_open: float = 0.3
    """How often an end is not notified that its connection broke."""
    stall: float = 0.3
    """How often a cut only stalls a connection, which resumes when the cut heals."""
    sync_us_min: int = 100
    sync_us_max: int = 2_000
    together: bool = False
    """Whether a machine gets the completions of one sync in one step, as the running system does.
    """
    survive: float = 0.5
    """How often a crash leaves unsynced writes on the disk."""
    torn: float = 0.2
    clock_error_us: int = 0
    """The maximum error of wall clocks at the start."""

    # faults
    rates: dict[str, float] = {}
    quiet: float = 0.25
    """The share of the periods in which no fault strikes."""
    period_ms: int = 200
    down_ms_min: int = 0
    down_ms_max: int = 600
    outage_ms: int = 600
    """The maximum duration of an outage of whole cells."""
    relapse: float = 0.0
    """How likely another fault strikes the cells that recover from an outage."""
    whole_core: float = 0.5
    """How likely the whole overlay heals; otherwise a part of it does."""
    inner_losses: float = 0.0
    """How likely a cell of the core has lost brokers for ever, up to δ whole cells in a row."""
    inner_cuts: float = 0.0
    """How likely a link in the core stays cut, if a route over other links exists."""

    # the tree
    reshape_rate: float = 0.0
    """Operations on the tree, a second."""

    # the phases
    safety_ms: int = 2_000
    liveness_ms: int = 30_000

    # the workload
    operations_max: int = 1_000_000
    """After this number of operations clients start no new ones; shrinking lowers it."""
    domain: int = 3
    """The number of values of an attribute: small, so that filters overlap."""
    pubends: int = 2
    publishers: int = 3
    subscribers: int = 4
    publish_rate: float = 60.0
    batch_max: int = 3
    churn_rate: float = 5.0
    """Subscribing, unsubscribing, changing filters, seeking: operations a second."""
    durable: float = 0.5
    total: float = 0.2
    past: float = 0.3
    """How often a subscription starts in the past."""
    best_effort: float = 0.0
    late_pubends: float = 0.3
    conflicting_names: float = 0.0
    """How likely a publisher opens its pubend at another broker than the others of that pubend."""
    outside: float = 0.02
    """How often a publication lies outside its advertisement."""
    widen_rate: float = 0.0
    """Advertisements widened, a second."""
    repeat_rate: float = 0.0
    """Batches that a publisher sends again after their replies, a second."""
    staged_writers: int = 0
    """Writers that stage and commit."""
    stage_rate: float = 0.0
    """Batches that these writers start, a second."""
    close_rate: float = 0.0
    """Pubends that clients close, a second."""
    forgotten_positions: float = 0.1
    """How often a durable client reconnects without its own position."""
    reads: float = 1.0
    """Reads of a log by a client, a second."""
    reconnect_elsewhere: float = 0.2
    """How often a client without a durable subscription reconnects to another broker."""
    failover: float = 0.0
    """How often a client with a durable subscription reconnects to another broker."""
    ends_by_name: float = 0.0
    """Durable subscriptions that a program ends by their names alone, a second."""
    leave_rate: float = 0.0
    """Durable subscriptions that clients leave and return to over the same connection, a second."""
    restarts: float = 0.0
    """How often a client with a durable subscription is a new process that has only its list of
    brokers."""
    credit_max: int = 20
    expiry: bool = False
    """Whether members and log holds may expire, so that gaps are lawful."""
    expiry_s: int = 604_800
    """The time without their client after which durable subscriptions end."""
    retention_s: int = 0
    """The time for which logs are kept beyond the needs of members: mostly none."""

    @property
    def calm(self) -> bool:
        """Whether no fault ever strikes."""
        return not any(self.rates.values())

    @property
    def forgiving(self) -> bool:
        """Whether a log may release events that a subscription needs; a reported gap is then
        lawful.
        """
        return self.expiry or "log_bytes_max" in self.limits or self.expiry_s < DEFAULTS.expiry_s

    def with_(self, **changes: Any) -> SimulationOptions:
        """Return a copy with some options changed."""
        return msgspec.structs.replace(self, **changes)

    def line(self) -> str:
        """Return the options that differ from the defaults, in one line."""
        return " ".join(
            f"{name}={_short(value)}"
            for name, value in msgspec.structs.asdict(self).items()
            if name == "seed" or value != getattr(DEFAULTS, name)
        )

    def json(self) -> str:
        """Return the options as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of_json(cls, text: str) -> SimulationOptions:
        """Read options that ``json`` wrote."""
        return msgspec.json.decode(text, type=cls)

    def parameters(self) -> Parameters:
        """Return the parameters of all brokers."""
        times: dict[str, Any] = paced(self.pace, expiry=self.expiry, retention_s=self.retention_s)
        ordered = self.network is SimulatedNetworkKind.SESSION
        return Parameters(**{**times, **self.limits}, delta=self.delta, ordered_sessions=ordered)

    def topology(self) -> Topology:
        """Return the tree of cells."""
        return tree(
            self.shape,
            self.cells,
            self.fan_out,
            self.brokers_per_cell,
            self.seed,
            mixed=self.mixed_cells,
        )

    def down_us(self, random: Random) -> int:
        """Draw the duration of a failure: mostly short, sometimes long."""
        span = max(0, self.down_ms_max - self.down_ms_min)
        return 1_000 + self.down_ms_min * 1_000 + int(span * 1_000 * random.random() ** 2)

    def outage_us(self, random: Random) -> int:
        """Draw the duration of an outage of whole cells."""
        return int(self.outage_ms * 1_000 * (0.1 + 0.9 * random.random()))


DEFAULTS = SimulationOptions()


def draw(seed: int) -> SimulationOptions:
    """Return the options of a seed."""
    together = Random(f"{seed}/together").random() < 0.5  # noqa: S311
    ordinary = with_redundancy(draw_ordinary(seed))
    rare = _also_staging(add_situation(ordinary).with_(together=together))
    drawn = with_regions(_with_conflicting_names(_often_failing_over(rare)))
    drawn = _with_leaving_clients(_with_restarting_programs(drawn))
    return with_reshaping(_with_closings(drawn))


def with_redundancy(options: SimulationOptions) -> SimulationOptions:
    """Return the options with cells of several brokers, and with losses that never heal."""
    random = Random(f"{options.seed}/redundancy")  # noqa: S311
    brokers = random.choice((1, 1, 2, 2, 3))
    calm = options.calm
    redundant = options.with_(
        brokers_per_cell=brokers,
        cells=min(options.cells, BROKERS_MAX // brokers),
        delta=random.choice((0, 1, 1, 2, 3, 4)),
        inner_losses=0.0 if calm else random.choice((0.0, 0.2, 0.5)),
        inner_cuts=0.0 if calm else random.choice((0.0, 0.2, 0.5)),
        failover=random.choice((0.0, 0.0, 0.2, 0.5)),
    )
    return _near(redundant) if redundant.inner_cuts else redundant


def _near(options: SimulationOptions) -> SimulationOptions:
    """Return the options with links that are quick enough for routes over relays.

    Such a route has several hops, and on a busy link the slowest of a hundred packets delays all
    others. If that delay exceeded the session timeout, no relayed session could last.
    """
    slowest = int(RELAYED_DELAY_US * options.pace / 0.1)
    return options.with_(
        delay_us_min=min(options.delay_us_min, slowest // 2),
        delay_us_max=min(options.delay_us_max, slowest),
    )


def _also_staging(options: SimulationOptions) -> SimulationOptions:
    """Return the options with writers that stage, in one seed of eight; others do not change."""
    random = Random(f"{options.seed}/staging")  # noqa: S311
    if random.random() >= STAGING_SHARE:
        return options
    rate = random.choice((5.0, 20.0)) * 0.1 / options.pace
    limits = random.choice(({}, {}, {"staged_ttl_s": 1}, {"staged_bytes_max": 3_000}))
    return options.with_(
        staged_writers=random.randint(1, 2), stage_rate=rate, limits={**options.limits, **limits}
    )


def _with_conflicting_names(options: SimulationOptions) -> SimulationOptions:
    """Return the options with publishers that open one pubend at several brokers, in some seeds."""
    random = Random(f"{options.seed}/rivals")  # noqa: S311
    if random.random() >= CONFLICTING_NAMES_SHARE:
        return options
    return options.with_(
        conflicting_names=0.5, publishers=max(3, options.publishers), cells=max(2, options.cells)
    )


def _often_failing_over(options: SimulationOptions) -> SimulationOptions:
    """Return the options with clients that often fail over, return, and change filters between, in
    some seeds; other seeds do not change.
    """
    random = Random(f"{options.seed}/fleeing")  # noqa: S311
    if random.random() >= FAILOVER_SHARE:
        return options
    often = 0.1 / options.pace
    return options.with_(
        cells=max(2, options.cells),
        failover=random.choice((0.5, 0.8)),
        durable=1.0,
        forgotten_positions=0.3,
        churn_rate=max(options.churn_rate, 5 * often),
        rates={**options.rates, "crash": 2.0 * often, "client loss": 4.0 * often},
    )


def _with_restarting_programs(options: SimulationOptions) -> SimulationOptions:
    """Return the options with programs that start again without a memory, in some seeds.

    A subscription that may expire may lawfully be created anew, so such seeds do not change.
    """
    random = Random(f"{options.seed}/restarting")  # noqa: S311
    may_expire = options.expiry_s < DEFAULTS.expiry_s
    if random.random() >= RESTARTS_SHARE or options.calm or may_expire:
        return options
    often = 0.1 / options.pace
    return options.with_(
        cells=max(2, options.cells),
        durable=1.0,
        failover=0.5,
        restarts=0.5,
        ends_by_name=often,
        # a program whose filter was changed does not start again
        churn_rate=min(options.churn_rate, 0.5 * often),
        subscribers=max(6, options.subscribers),
        rates={**options.rates, "crash": 2.0 * often, "client loss": 15.0 * often},
    )


def _with_leaving_clients(options: SimulationOptions) -> SimulationOptions:
    """Return the options with clients that leave durable subscriptions and return, in some seeds."""
    random = Random(f"{options.seed}/leaving")  # noqa: S311
    if random.random() >= LEAVING_SHARE or not options.durable:
        return options
    return options.with_(leave_rate=random.choice((1.0, 5.0, 20.0)) * 0.1 / options.pace)


def _with_closings(options: SimulationOptions) -> SimulationOptions:
    """Return the options with clients that close pubends, in some seeds; others do not change.

    Writers that stage and publishers that conflict about names have seeds of their own.
    """
    random = Random(f"{options.seed}/closings")  # noqa: S311
    if random.random() >= CLOSINGS_SHARE or options.staged_writers or options.conflicting_names:
        return options
    return options.with_(
        close_rate=random.choice((0.5, 2.0)) * 0.1 / options.pace,
        pubends=max(2, options.pubends),
        publishers=max(3, options.publishers),
        durable=max(0.5, options.durable),
        limits={**options.limits, "close_wait_s": 1},
    )


def draw_ordinary(seed: int) -> SimulationOptions:
    """Return the options of a seed, before anything rare is added (:mod:`.situations`)."""
    random = Random(f"{seed}/options")  # noqa: S311
    pace = random.choice((0.1, 0.1, 0.2, 0.5))
    shape = random.choice(SHAPES)
    cells = random.choice((1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10, 12, 15))
    network = random.choice(
        (SimulatedNetworkKind.SESSION, SimulatedNetworkKind.SESSION, SimulatedNetworkKind.DATAGRAM)
    )
    calm = random.random() < 0.1
    delay_max = random.choice((500, 2_000, 2_000, 5_000, 10_000))
    busy = random.choice((0.3, 1.0, 1.0, 2.0)) * 0.1 / pace
    expiry = random.random() < 0.15
    return SimulationOptions(
        seed=seed,
        cells=cells,
        shape=shape,
        fan_out=random.randint(2, 4),
        delta=random.choice((0, 1, 1, 1, 2, 3)),
        pace=pace,
        limits=draw_limits(random),
        network=network,
        delay_us_min=random.choice((50, 200, delay_max // 2)),
        delay_us_max=delay_max,
        duplicate=0.0 if calm else random.choice((0.0, 0.01, 0.1)),
        half_open=random.choice((0.0, 0.3, 0.8)),
        stall=random.choice((0.0, 0.3, 0.8)),
        sync_us_min=random.choice((20, 100, 1_000)),
        sync_us_max=random.choice((1_000, 2_000, 20_000)),
        survive=random.choice((0.0, 0.5, 1.0)),
        torn=random.choice((0.0, 0.2)),
        clock_error_us=random.choice((0, 1_000, 100_000, 10_000_000)),
        rates={} if calm else _draw_rates(random, pace, network),
        quiet=random.choice((0.1, 0.25, 0.4)),
        period_ms=int(random.choice((1_000, 2_000, 4_000)) * pace),
        down_ms_max=_down_ms(seed, int(random.choice((500, 3_000, 8_000)) * pace), pace),
        whole_core=random.choice((0.0, 0.5, 1.0)),
        safety_ms=int(random.choice((10_000, 20_000, 30_000)) * pace),
        liveness_ms=int(150_000 * pace) + 30_000,
        domain=random.randint(2, 4),
        pubends=random.randint(1, 4),
        publishers=random.randint(1, 5),
        subscribers=random.randint(1, 8),
        publish_rate=40.0 * busy,
        batch_max=random.choice((1, 3, 8)),
        churn_rate=random.choice((0.5, 3.0, 10.0)) * busy,
        durable=random.choice((0.0, 0.5, 0.5, 1.0)),
        total=random.choice((0.0, 0.0, 0.2, 0.5)),
        past=random.choice((0.0, 0.3, 0.6)),
        best_effort=random.choice((0.0, 0.0, 0.0, 0.3)),
        late_pubends=random.choice((0.0, 0.3, 0.6)),
        outside=random.choice((0.0, 0.02)),
        forgotten_positions=random.choice((0.0, 0.1, 0.3)),
        reads=random.choice((0.0, 2.0)) * busy,
        reconnect_elsewhere=random.choice((0.0, 0.2, 0.5)),
        credit_max=random.choice((1, 5, 20, 100)),
        expiry=expiry,
        retention_s=random.choice((0, 0, 1, 3_600)),
    )


def _down_ms(seed: int, usual: int, pace: float) -> int:
    """Draw the maximum duration of failures; in some seeds members become inactive (R54)."""
    random = Random(f"{seed}/long")  # noqa: S311
    return int(40_000 * pace) if random.random() < 0.15 else usual


def _draw_rates(random: Random, pace: float, network: SimulatedNetworkKind) -> dict[str, float]:
    """Draw the kinds of faults and their rates."""
    busy = 0.1 / pace  # slower parameters make the run longer but do not add faults
    rates: dict[str, float] = {}
    unknown = "loss" if network is SimulatedNetworkKind.SESSION else "reset"
    for kind in FAULT_KINDS:
        if kind == unknown:
            continue
        rare = kind in {"damage", "full disk"}
        if random.random() < (0.05 if rare else 0.5):
            strikes = 0.3 if rare else random.choice((0.5, 1.5, 4.0))
            rates[kind] = round(strikes * busy, 3)
    return rates


def _short(value: Any) -> str:
    if isinstance(value, dict):
        inner = ",".join(f"{_dashed(name)}:{each:g}" for name, each in value.items())
        return f"{{{inner}}}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _dashed(name: str) -> str:
    return name.replace(" ", "-")
