"""The report of a run: a table for the screen and for readers, numbers as JSON, a plot."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.streams.counted import Counted, differences
from benchmarks.streams.idle import Idle
from benchmarks.streams.measure import (
    BEST_EFFORT,
    GUARANTEED,
    RELAY,
    Latency,
    Memory,
    Throughput,
)
from benchmarks.streams.subscribing import CALLS, KINDS, PRESENT, Subscribing

__all__ = [
    "RESULTS",
    "Findings",
    "Verdict",
    "counted",
    "idle",
    "markdown",
    "subscribing",
    "verdicts",
    "write",
]

RESULTS: Final = Path(__file__).resolve().parent.parent / "results"
_NAME: Final = "streams"

METHOD: Final = """\
Every contender runs as processes of its own on this machine: one that publishes, one that
subscribes, and one a hop. Events have four attributes and 250 bytes of payload. The **bare relay** is
the floor: it reads the same frames (500 events, as many as our publisher puts into one under load),
looks up one attribute in a set, writes them on, and promises nothing. **Best effort** and
**guaranteed** are gapless with its own client; guaranteed events are synced to disk before they are
acknowledged or delivered. Rates are published events a second from the first send to the last
delivery; what best effort has lost does not count. Contenders take turns, and every figure of a row is
the median of its rounds. Processor time is of all relays or brokers together, by published event.
"""

SUBSCRIBING_METHOD: Final = """\
The time until `subscribe` or `set_filter` returns, at the last broker of a line, for the stream of the
first. A filter is covered by that of another subscription there, or not. The stream is idle, or carries
500 events a second. Between two calls there is a pause, except in a row. Rounds are of all commits in
turn; the machine has other work, so compare commits with each other, and with a single publish, which
is one write: a filter that is not covered costs one too.
"""


COUNTED_METHOD: Final = """\
The messages between the brokers of a line while 200 events a second flow to a subscriber at each and
nothing changes, by kind. The brokers run in the simulator, in virtual time and from one seed: what is not
equal is a difference of the code. The processor time is that of the steps of all brokers, the median of
the rounds.
"""

IDLE_METHOD: Final = """\
The processor time of each broker of a line while nothing is published, as a share of a core: the host of
the pubends first. It is taken from the system, over a fixed time, after everything has settled.
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target and whether it was met."""

    subject: str
    target: str
    measured: str
    met: bool


@dataclass(slots=True)
class Findings:
    """All measurements of a run."""

    rounds: list[Throughput] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)
    memory: Memory | None = None
    subscribing: list[Subscribing] = field(default_factory=list)
    idle: list[Idle] = field(default_factory=list)
    counted: list[Counted] = field(default_factory=list)

    def call_times(self, commit: str, kind: str, hops: int, busy: bool) -> list[float]:
        """Return the times of one kind of call in one setting, of all rounds."""
        setting = (commit, kind, hops, busy)
        return [
            time
            for each in self.subscribing
            if (each.commit, each.kind, each.hops, each.busy) == setting
            for time in each.times
        ]

    def of(
        self, contender: str, hops: int, subscriptions: int = 1, idle: int = 0
    ) -> list[Throughput]:
        """Return the rounds of one contender in one setting."""
        wanted = (contender, hops, subscriptions, idle)
        return [
            each
            for each in self.rounds
            if (each.contender, each.hops, each.subscriptions, each.idle) == wanted
        ]

    def rate(self, *setting: str | int) -> float:
        """Return the median rate of a setting; 0 if it was not measured."""
        rounds = self.of(*setting)  # type: ignore[arg-type]
        return statistics.median(each.rate for each in rounds) if rounds else 0.0

    def cpu_us(self, *setting: str | int) -> float:
        """Return the median processor time of a setting, of all hops, in microseconds an event."""
        rounds = self.of(*setting)  # type: ignore[arg-type]
        return statistics.median(sum(each.hop_cpu) / each.published * 1e6 for each in rounds)

    def late(self, contender: str) -> list[Latency]:
        """Return the latencies of a contender, by round."""
        return [each for each in self.latencies if each.contender == contender]

    def age_ms(self, contender: str, share: float) -> float:
        """Return the latency that a share of the events does not exceed, the median of all rounds."""
        return statistics.median(each.percentile(share) for each in self.late(contender))


def verdicts(found: Findings) -> list[Verdict]:
    """Compare the measurements with the targets."""
    judged = []
    for hops in (1, 3):
        if found.of(GUARANTEED, hops) and found.of(BEST_EFFORT, hops):
            ratio = found.rate(GUARANTEED, hops) / found.rate(BEST_EFFORT, hops)
            subject = f"guaranteed against best effort, {_hops(hops)}"
            judged.append(Verdict(subject, "0.85", f"{ratio:.2f}", ratio >= 0.85))
    if found.of(RELAY, 1):
        for contender in (BEST_EFFORT, GUARANTEED):
            ratio = found.rate(contender, 1) / found.rate(RELAY, 1)
            subject = f"{contender} against the bare relay, one broker"
            judged.append(Verdict(subject, "0.35", f"{ratio:.2f}", ratio >= 0.35))
    idle = [each for each in found.rounds if each.idle]
    if idle:
        ratio = found.rate(GUARANTEED, 1, 1, idle[0].idle) / found.rate(GUARANTEED, 1)
        subject = f"guaranteed beside {idle[0].idle:,} idle subscriptions"
        judged.append(Verdict(subject, "0.85", f"{ratio:.2f}", ratio >= 0.85))
    judged += _many(found)
    judged += _late(found)
    judged += _called(found)
    if found.memory is not None:
        held = found.memory.resident
        third = max(held[: max(1, len(held) // 3)])
        growth = held[-1] / third
        subject = "memory of a broker beside a stuck subscriber, at the end against the first third"
        judged.append(Verdict(subject, "1.25", f"{growth:.2f}", growth <= 1.25))
    return judged


def _many(found: Findings) -> list[Verdict]:
    """Check whether the cost of a guarantee grows with the number of subscriptions (GD 4.1)."""
    if not found.of(GUARANTEED, 1, 1_000) or not found.of(BEST_EFFORT, 1, 1_000):
        return []
    costs = [
        found.cpu_us(GUARANTEED, 1, count) - found.cpu_us(BEST_EFFORT, 1, count)
        for count in (1, 1_000)
    ]
    subject = "processor time that a guarantee adds, 1 and 1,000 subscriptions"
    measured = f"{costs[0]:.2f} and {costs[1]:.2f} µs an event"
    return [Verdict(subject, "does not grow", measured, costs[1] <= 1.25 * max(costs[0], 0.1))]


def _late(found: Findings) -> list[Verdict]:
    ours = found.late(GUARANTEED)
    if not ours or not found.late(RELAY):
        return []
    floor, median = found.age_ms(RELAY, 0.5), found.age_ms(GUARANTEED, 0.5)
    sync = statistics.median(each.sync_ms for each in ours)
    limit = 3 * floor + sync
    subject = f"p50 at {ours[0].rate:,.0f} events/s over {_hops(ours[0].hops)}"
    target = f"{limit:.2f} ms (3 times the relay's {floor:.2f}, and a sync of {sync:.2f})"
    return [Verdict(subject, target, f"{median:.2f} ms", median <= limit)]


def _called(found: Findings) -> list[Verdict]:
    """Compare the calls of subscribers with their targets: 3 ms over one broker, 6 ms over three."""
    judged = []
    for hops, limit in ((1, 3.0), (3, 6.0)):
        medians = [
            statistics.median(times)
            for kind in CALLS
            for busy in (False, True)
            if (times := found.call_times(PRESENT, kind, hops, busy))
        ]
        if medians:
            subject = f"median of subscribe and set_filter over {_hops(hops)}, the slowest kind"
            measured = f"{max(medians):.1f} ms"
            judged.append(Verdict(subject, f"{limit:.0f} ms", measured, max(medians) <= limit))
    return judged


def _hops(hops: int) -> str:
    return "one broker" if hops == 1 else f"{hops} brokers"


# --- tables -------------------------------------------------------------------------------------


def _rows(found: Findings) -> Iterable[tuple[str, ...]]:
    settings = dict.fromkeys(
        (each.contender, each.hops, each.subscriptions, each.idle) for each in found.rounds
    )
    for setting in settings:
        rounds = found.of(*setting)
        lost = 1 - sum(each.delivered for each in rounds) / sum(each.expected for each in rounds)
        contender, hops, subscriptions, idle = setting
        yield (
            contender,
            str(hops),
            f"{subscriptions:,}" + (f" and {idle:,} idle" if idle else ""),
            f"{found.rate(*setting):,.0f}",
            f"{statistics.median(each.delivery_rate for each in rounds):,.0f}",
            f"{found.cpu_us(*setting):.1f}",
            f"{lost:.1%}" if lost else "0",
        )


_HEADS: Final = ("contender", "hops", "subscriptions", "events/s", "deliveries/s", "µs CPU", "lost")
_LATE_HEADS: Final = ("contender", "hops", "p50 ms", "p95 ms", "p99 ms", "max ms")


def _late_rows(found: Findings) -> Iterable[tuple[str, ...]]:
    hops = {each.contender: each.hops for each in found.latencies}
    for contender, count in hops.items():
        shares = [f"{found.age_ms(contender, share):.2f}" for share in (0.5, 0.95, 0.99, 1.0)]
        yield (contender, str(count), *shares)


def _called_rows(found: Findings) -> Iterable[tuple[str, ...]]:
    commits = dict.fromkeys(each.commit for each in found.subscribing)
    settings = dict.fromkeys((each.kind, each.hops, each.busy) for each in found.subscribing)
    for kind, hops, busy in sorted(settings, key=lambda each: (KINDS.index(each[0]), *each[1:])):
        for commit in commits:
            times = sorted(found.call_times(commit, kind, hops, busy))
            figures = (times[len(times) // 10], statistics.median(times), times[-1])
            yield (
                kind,
                str(hops),
                "busy" if busy else "idle",
                commit,
                *(f"{each:.1f}" for each in figures),
            )


_CALLED_HEADS: Final = ("call", "hops", "stream", "commit", "p10 ms", "p50 ms", "max ms")


def subscribing(found: Findings) -> str:
    """Return the part of the report about the calls of subscribers."""
    return "\n\n".join(
        (
            "## Subscribing",
            SUBSCRIBING_METHOD,
            _table(_CALLED_HEADS, _called_rows(found)),
        )
    )


_IDLE_HEADS: Final = ("commit", "hops", "idle pubends", "", "each broker", "rounds")


def _idle_rows(found: Findings) -> Iterable[tuple[str, ...]]:
    settings = dict.fromkeys(
        (each.hops, each.pubends, each.kind, each.commit) for each in found.idle
    )
    for setting in settings:
        hops, pubends, kind, commit = setting
        shares = [
            each.shares
            for each in found.idle
            if (each.hops, each.pubends, each.kind, each.commit) == setting
        ]
        medians = [statistics.median(each) for each in zip(*shares, strict=True)]
        each_broker = ", ".join(f"{share:.1%}" for share in medians)
        yield commit, f"{hops}", f"{pubends:,}", kind, each_broker, f"{len(shares)}"


def idle(found: Findings) -> str:
    """Return the part of the report about idle brokers."""
    return "\n\n".join(("## Idle pubends", IDLE_METHOD, _table(_IDLE_HEADS, _idle_rows(found))))


def _counted_rows(found: Findings) -> Iterable[tuple[str, ...]]:
    commits = dict.fromkeys(each.commit for each in found.counted)
    for hops in dict.fromkeys(each.hops for each in found.counted):
        of = {
            commit: [e for e in found.counted if (e.commit, e.hops) == (commit, hops)]
            for commit in commits
        }
        cpu = (statistics.median(each.cpu_us for each in rounds) for rounds in of.values())
        yield str(hops), "µs CPU an event", *(f"{each:,.0f}" for each in cpu)
        kinds = sorted({kind for rounds in of.values() for kind in rounds[0].messages})
        for kind in kinds:
            counts = (rounds[0].messages.get(kind, 0) for rounds in of.values())
            yield str(hops), kind, *(f"{each:,}" for each in counts)


def counted(found: Findings) -> str:
    """Return the part of the report about messages by kind."""
    commits = dict.fromkeys(each.commit for each in found.counted)
    different = [
        f"{kind} ({hops} hops)"
        for hops, kinds in differences(found.counted).items()
        for kind in kinds
    ]
    verdict = f"Different: {', '.join(different)}." if different else "All counts are equal."
    if len(commits) == 1:
        verdict = "Only one commit was measured."
    heads = ("hops", "what", *commits)
    parts = ("## Messages at rest", COUNTED_METHOD, _table(heads, _counted_rows(found)), verdict)
    return "\n\n".join(parts)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, *rows)]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


def markdown(found: Findings) -> str:
    """Return the report."""
    judged = [
        (each.subject, each.target, each.measured, "yes" if each.met else "**no**")
        for each in verdicts(found)
    ]
    parts = [
        "# Streams: the cost of a broker and its guarantees",
        METHOD,
        _table(_HEADS, _rows(found)),
        f"![events a second]({_NAME}.png)",
        "## Targets",
        _table(("what", "target", "measured", "met"), judged),
    ]
    if found.latencies:
        rate = found.latencies[0].rate
        parts += [
            f"## Latency of single events, {rate:,.0f} a second",
            _table(_LATE_HEADS, _late_rows(found)),
        ]
    if found.memory is not None:
        held = ", ".join(f"{each / 2**20:.0f}" for each in _thinned(found.memory.resident))
        parts += [
            "## Memory beside a stuck subscriber",
            f"MiB held by the broker while {found.memory.published:,} events were published: {held}.",
        ]
    if found.subscribing:
        parts.append(subscribing(found))
    if found.idle:
        parts.append(idle(found))
    if found.counted:
        parts.append(counted(found))
    parts.append(
        f"Rounds: {len(found.of(RELAY, 1))}, of latencies {len(found.late(RELAY))}. Python {platform.python_version()} on {platform.machine()}, two cores shared with other work. "
        "Made by `make bench-streams`."
    )
    return "\n\n".join(parts) + "\n"


def _thinned(values: list[int], count: int = 12) -> list[int]:
    step = max(1, len(values) // count)
    return values[::step]


def write(found: Findings, folder: Path = RESULTS) -> None:
    """Write the report, the numbers and the plot."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{_NAME}.md").write_text(markdown(found), encoding="utf-8")
    numbers = [asdict(each) | {"rate": each.rate} for each in found.rounds]
    (folder / f"{_NAME}.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    _plot(found, folder / f"{_NAME}.png")


def _plot(found: Findings, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    settings = ((1, 1), (3, 1), (1, 1_000), (3, 1_000))
    figure, axes = plt.subplots(figsize=(8, 4))
    for index, contender in enumerate((RELAY, BEST_EFFORT, GUARANTEED)):
        rates = [found.rate(contender, hops, count) for hops, count in settings]
        spots = [each + 0.27 * (index - 1) for each in range(len(settings))]
        axes.bar(
            spots, rates, 0.25, label=contender, color=("#8c8c8c", "#6fa8dc", "#0b5394")[index]
        )
    labels = [f"{_hops(hops)}\n{count:,} subscriptions" for hops, count in settings]
    axes.set_xticks(range(len(settings)), labels)
    axes.set_ylabel("published events a second")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
