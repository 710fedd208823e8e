"""A run: processes, attackers, measurements, the verdict."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

import msgspec
from rich.console import Console

from gapless_lab.demo.runs import until_signal
from gapless_lab.demo.screen import make_console
from gapless_lab.fuzz.attacks import Attack, AttackerRole, load_attacks, save_attacks
from gapless_lab.fuzz.hostile import PeerNumbers, perform_attack
from gapless_lab.fuzz.pair import Latencies, PairAudit
from gapless_lab.fuzz.planning import AttackPlanner
from gapless_lab.fuzz.probe import BrokerMeasurement, SlowStep
from gapless_lab.fuzz.processes import AttackedOverlay, EndedError
from gapless_lab.fuzz.recordings import record
from gapless_lab.fuzz.report import (
    FuzzOptions,
    FuzzReport,
    MemoryRow,
    SlowStepRow,
    show_report,
)
from gapless_lab.fuzz.tally import FuzzTally

__all__ = ["FuzzRun", "perform", "perform_and_show"]

EXIT_UNCLEAN: Final = 1
EXIT_INTERRUPTED: Final = 130

RECORDED_SEEDS: Final = 4
"""Runs of the simulator that are recorded."""

CLIENTS: Final = 5
"""Hostile clients at a time, over all brokers."""

PEER_TARGETS: Final = ("b1", "b2")
"""The neighbours of a0; it attacks them at the same time, over one link each."""

CLIENT_TARGETS: Final = ("b1", "b2", "b3")

MEASURE_S: Final = 1.0
"""How often steps are measured and progress is shown."""

WARM_UP: Final = 0.3
"""The share of the frames after which memory is measured first: names and caches are filled then."""

GROWTH_BYTES_MAX: Final = 4 * 1024 * 1024
"""How much more memory a broker may use after the attack: caches that were not full before."""

RECENT_ATTACKS: Final = 400
"""Attacks that are remembered, to name the frames of a slow step and to save them."""

SLOWEST_REPORTED: Final = 20

FRAMES_SHOWN: Final = 3
"""Frames that a slow step names."""


class FuzzRun:
    """One run."""

    def __init__(
        self,
        options: FuzzOptions,
        overlay: AttackedOverlay,
        saved: Path,
        say: Callable[[str], None],
    ) -> None:
        self._options = options
        self._overlay = overlay
        self._saved = saved
        self._say = say
        self.tally = FuzzTally()
        self.faults: list[str] = []
        self.files: list[str] = []
        self.slowest: list[SlowStepRow] = []
        self.memory: list[MemoryRow] = []
        self.audit: PairAudit | None = None
        self.calm: Latencies | None = None
        self.attacked: Latencies | None = None
        self.frames_read: dict[str, int] = {}
        self._numbers = PeerNumbers()
        self._recent: dict[int, Attack] = {}
        self._before: dict[str, BrokerMeasurement] = {}
        self._started_s = 0.0

    # --- the phases ------------------------------------------------------------------------------

    async def fuzz(self, planner: AttackPlanner) -> None:
        """Measure the pair alone, attack, rest, measure memory, attack, rest, audit."""
        options = self._options
        if options.judges_times:
            await self._measure_calm()
        with self._noting_ends():
            await self._attack(planner, int(options.frames * WARM_UP))
            self._before = await self._rest()
            await self._attack(planner, options.frames)
            await self._conclude()

    async def replay(self, attacks: list[Attack]) -> None:
        """Repeat saved attacks, one after the other."""
        with self._noting_ends():
            self._before = await self._measure(with_memory=True)
            for attack in attacks:
                await self._perform(attack, None)
                await self._measure()
            await self._conclude()

    async def _measure_calm(self) -> None:
        self._say("measuring the healthy pair without attack")
        pair = self._overlay.pair
        await pair.ask("latency", Latencies)
        await asyncio.sleep(self._options.calm_s)
        self.calm = await pair.ask("latency", Latencies)

    async def _conclude(self) -> None:
        """Measure what the attacks have left behind, and audit."""
        pair = self._overlay.pair
        self.attacked = await pair.ask("latency", Latencies)
        after = await self._rest()
        for name, found in after.items():
            before = self._before[name]
            assert before.memory is not None
            assert found.memory is not None
            self.memory.append(
                MemoryRow(
                    broker=name,
                    before=before.memory,
                    after=found.memory,
                    stored_before=before.stored,
                    stored_after=found.stored,
                )
            )
        self.audit = await pair.ask("audit", PairAudit)
        self._judge()

    def _judge(self) -> None:
        options = self._options
        for row in self.memory:
            if row.grown > GROWTH_BYTES_MAX:
                self.faults.append(
                    f"the memory of {row.broker} has grown by {row.grown / 2**20:.1f} MiB"
                )
        if self.audit is not None and not self.audit.is_clean:
            self.faults.append(f"the audit of the healthy pair is not clean: {self.audit}")
        for state, count in self.tally.unanswered.items():
            self.faults.append(f"{count} attacks got no answer in time ({state})")
        for text, count in self.tally.unreadable.items():
            self.faults.append(f"{count} frames of a broker cannot be read ({text})")
        if not options.judges_times or self.calm is None or self.attacked is None:
            return
        if self.attacked.p99_ms > options.latency_ratio_max * self.calm.p99_ms:
            self.faults.append(
                f"p99 is {self.attacked.p99_ms} ms, more than {options.latency_ratio_max:g} times "
                f"the {self.calm.p99_ms} ms without attack"
            )

    # --- attacking -------------------------------------------------------------------------------

    async def _attack(self, planner: AttackPlanner, frames: int) -> None:
        """Attack until so many frames were sent."""
        self._started_s = time.monotonic() - self.tally.sent / max(self._options.rate, 1.0)
        attackers = [
            self._keep_attacking(planner, frames, AttackerRole.CLIENT, CLIENT_TARGETS)
            for _ in range(CLIENTS)
        ] + [
            self._keep_attacking(planner, frames, AttackerRole.PEER, (target,))
            for target in PEER_TARGETS
        ]
        watching = asyncio.create_task(self._watch(frames))
        tasks = [asyncio.create_task(each) for each in attackers]
        try:
            waiting: set[asyncio.Task[None]] = {*tasks}
            while waiting:
                done, _ = await asyncio.wait(
                    {*waiting, watching}, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()  # an error ends the attack
                waiting -= done
        finally:
            for task in (*tasks, watching):
                task.cancel()
            await asyncio.gather(*tasks, watching, return_exceptions=True)
        await self._measure()

    async def _keep_attacking(
        self, planner: AttackPlanner, frames: int, role: AttackerRole, targets: tuple[str, ...]
    ) -> None:
        while self.tally.sent < frames:
            await self._perform(planner.next(role, targets), planner)
            await self._pace()

    async def _perform(self, attack: Attack, planner: AttackPlanner | None) -> None:
        self._recent[attack.number] = attack
        if len(self._recent) > RECENT_ATTACKS:
            del self._recent[next(iter(self._recent))]
        self.tally.attacks += 1
        planner = planner or AttackPlanner.without_recording()
        address = self._overlay.brokers[attack.target].address
        vocabulary = planner.vocabulary(attack.role)
        await perform_attack(attack, address, self.tally, vocabulary, self._numbers)

    async def _pace(self) -> None:
        rate = self._options.rate
        ahead_s = self.tally.sent / rate - (time.monotonic() - self._started_s) if rate else 0.0
        await asyncio.sleep(max(0.0, ahead_s))

    # --- measuring -------------------------------------------------------------------------------

    async def _watch(self, frames: int) -> None:
        """Measure the brokers and show progress; EndedError if a broker has ended."""
        while True:
            await asyncio.sleep(MEASURE_S)
            await self._measure()
            self._say(f"{self.tally.sent:,} of {frames:,} frames, {len(self.faults)} faults")

    async def _measure(self, *, with_memory: bool = False) -> dict[str, BrokerMeasurement]:
        found = {}
        for name, broker in self._overlay.brokers.items():
            found[name] = measured = await broker.measure(with_memory=with_memory)
            self.frames_read[name] = measured.frames
            for error in measured.errors:
                self._fault(f"{name} has an unhandled error: {error}", [*self._recent.values()])
            for step in measured.slowest:
                self._note_step(name, step)
        return found

    def _note_step(self, broker: str, step: SlowStep) -> None:
        if step.session is not None:
            number = self._numbers.attack_of(broker, step.session)
            step = msgspec.structs.replace(step, attack=number)
        attack = self._recent.get(step.attack or 0)
        row = SlowStepRow(broker=broker, step=step, frames=_frames_of(attack, step))
        self.slowest = sorted(
            [*self.slowest, row], key=lambda each: each.step.cpu_ms, reverse=True
        )[:SLOWEST_REPORTED]
        if self._options.judges_times and step.cpu_ms > self._options.step_ms_max:
            text = f"a step of {broker} took {step.cpu_ms:.0f} ms: {step.event}"
            self._fault(text, [*self._recent.values()] if attack is None else [attack])

    async def _rest(self) -> dict[str, BrokerMeasurement]:
        """Send nothing for a while, then measure memory."""
        self._say("resting, then measuring memory")
        await asyncio.sleep(self._options.rest_s)
        return await self._measure(with_memory=True)

    # --- faults ----------------------------------------------------------------------------------

    def _fault(self, text: str, attacks: list[Attack]) -> None:
        """Note a fault, and save the attacks that may have caused it."""
        self.faults.append(text)
        self._say(f"FAULT: {text}")
        path = self._saved / f"fuzz-{self._options.seed}-{len(self.files) + 1}.jsonl"
        self._saved.mkdir(parents=True, exist_ok=True)
        save_attacks(path, attacks)
        self.files.append(str(path))

    @contextlib.contextmanager
    def _noting_ends(self) -> Iterator[None]:
        """Note a process that has ended as a fault."""
        try:
            yield
        except EndedError as error:
            involved = [each for each in self._recent.values() if each.target == error.name]
            self._fault(str(error), involved or [*self._recent.values()])

    def report(self, seconds: float) -> FuzzReport:
        """Return the report."""
        tally = self.tally
        return FuzzReport(
            options=self._options,
            seconds=round(seconds, 1),
            frames_sent=tally.sent,
            frames_read=sum(self.frames_read.values()),
            attacks=tally.attacks,
            kinds=dict(tally.kinds),
            types=dict(tally.types),
            states=dict(tally.states),
            answers=dict(tally.answers),
            refusals=dict(tally.refusals),
            reasons=dict(tally.reasons),
            unanswered=dict(tally.unanswered),
            slowest=self.slowest,
            memory=self.memory,
            audit=self.audit,
            calm=self.calm,
            attacked=self.attacked,
            faults=self.faults,
            saved=self.files,
        )


def _frames_of(attack: Attack | None, step: SlowStep) -> list[str]:
    """Return the frames of an attack that a slow step may have handled."""
    if attack is None:
        return []
    shown = [
        f"{each.kind} {each.type} ({len(each.body):,} bytes)"
        for each in attack.frames
        if each.type in step.event or each.kind == "bomb"
    ]
    return shown[:FRAMES_SHOWN]


async def perform(
    options: FuzzOptions,
    saved: Path,
    say: Callable[[str], None],
    replayed: list[Attack] | None = None,
) -> FuzzReport:
    """Run and return the report; attacks behind a fault are saved in a directory."""
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gapless-fuzz-") as directory:
        say("starting brokers")
        overlay = AttackedOverlay(Path(directory) / "brokers")
        async with overlay:
            run = FuzzRun(options, overlay, saved, say)
            if replayed is not None:
                await run.replay(replayed)
            else:
                random = Random(options.seed)  # noqa: S311  # a seed gives the same attacks again
                seeds = range(options.seed, options.seed + RECORDED_SEEDS)
                recording = await asyncio.to_thread(record, seeds, random)
                now_us = time.time_ns() // 1_000
                await run.fuzz(AttackPlanner(options.seed, recording, now_us))
        return run.report(time.monotonic() - started_s)


def perform_and_show(
    options: FuzzOptions, saved: Path, *, replay: Path | None = None, as_json: bool = False
) -> int:
    """Run, print the report, and return the exit code: 0 only without a fault."""
    console = make_console()
    attacks = None if replay is None else load_attacks(replay)
    say = _Progress(console, quiet=as_json)
    report = asyncio.run(until_signal(perform(options, saved, say, attacks)))
    if report is None:
        return EXIT_INTERRUPTED
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n")
    else:
        show_report(console, report)
    return EXIT_UNCLEAN if report.faults else 0


class _Progress:
    """Prints progress with the time since the start."""

    def __init__(self, console: Console, *, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet
        self._started_s = time.monotonic()

    def __call__(self, text: str) -> None:
        """Print a line."""
        if not self._quiet:
            self._console.print(
                f"{time.monotonic() - self._started_s:6.0f} s  {text}", markup=False
            )
