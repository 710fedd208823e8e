"""``gapless sim``: run simulated overlays, and show one run in detail."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import msgspec
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text

from gapless.cli.output import console, print_json
from gapless_lab.sim import digest as digests
from gapless_lab.sim.campaign import Summary, known_coverage_marks, run_many, summarise
from gapless_lab.sim.machine import BROKER, load_factory
from gapless_lab.sim.options import SimulationOptions, draw
from gapless_lab.sim.runner import RunResult, run_options, run_seed
from gapless_lab.sim.shrink import shrink
from gapless_lab.sim.trace_format import since_the_start

EXIT_VIOLATION = 1
"""The exit code of a run with a violation."""


class RunLine(msgspec.Struct, frozen=True):
    """One run of many, as JSON: its line, and the digest that identifies its trace."""

    seed: int
    steps: int
    virtual_ms: int
    faults: int
    publications: int
    deliveries: int
    gaps: int
    violations: list[str]
    """Names only; ``failures`` has the violations in full, with the options of the run."""
    trace_hash: str

    @classmethod
    def of(cls, result: RunResult) -> RunLine:
        """Return the line of a run."""
        return cls(
            seed=result.options.seed,
            steps=result.steps,
            virtual_ms=result.virtual_ms,
            faults=sum(result.faults.values()),
            publications=result.publications,
            deliveries=result.deliveries,
            gaps=result.gaps,
            violations=[violation.name for violation in result.violations],
            trace_hash=result.trace_hash,
        )


class SimulationReport(msgspec.Struct, frozen=True):
    """What ``run`` prints as JSON."""

    summary: Summary
    failures: list[RunResult]
    runs: list[RunLine]
    """All runs, in the order of their seeds."""


def run(
    *,
    seeds: int,
    start: int,
    workers: int,
    machine: str | None,
    invariants: bool,
    as_json: bool,
) -> int:
    """Run seeds; print one line per run and a summary. Return the exit code."""
    machine = machine or BROKER
    load_factory(machine)  # a missing machine is reported before the first run
    wanted = range(start, start + seeds)
    one = run_seed if invariants else partial(run_seed, observers=())
    return report(run_many(wanted, machine, workers=workers, run=one), seeds, as_json=as_json)


def report(made: Iterable[RunResult], seeds: int, *, as_json: bool) -> int:
    """Print one line per run as results come, then a summary. Return the exit code."""
    results: list[RunResult] = []
    failures: list[RunResult] = []
    lines: list[RunLine] = []
    for result in _shown(made, seeds, as_json=as_json):
        lines.append(RunLine.of(result))
        results.append(msgspec.structs.replace(result, violations=result.violations[:1]))
        if result.failed:
            failures.append(result)
    summary = summarise(results, known=known_coverage_marks())
    if as_json:
        print_json(SimulationReport(summary, failures, lines))
    else:
        _show_summary(summary, failures)
    return EXIT_VIOLATION if failures else 0


def _shown(results: Iterable[RunResult], total: int, *, as_json: bool) -> Iterable[RunResult]:
    """Yield results unchanged, and show each as a line, with a count below on a terminal."""
    if as_json:
        yield from results
        return
    out = console()
    columns = (TextColumn("{task.completed}/{task.total} seeds"),)
    with Progress(*columns, console=out, transient=True, disable=not out.is_terminal) as progress:
        task = progress.add_task("seeds", total=total)
        for result in results:
            progress.update(task, advance=1)
            out.print(Text(result.line(), style="red" if result.failed else ""))
            yield result


def _sent(summary: Summary) -> int:
    return sum(number for name, number in summary.messages.items() if name.startswith("out "))


def _show_summary(summary: Summary, failures: list[RunResult]) -> None:
    out = console()
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    faults = ", ".join(f"{kind} {count:,}" for kind, count in summary.faults.items())
    rows = [
        ("seeds", f"{summary.seeds:,}"),
        ("steps", f"{summary.steps:,} ({summary.steps_per_second:,.0f} a second and core)"),
        ("faults", faults or "none"),
        ("messages", f"{_sent(summary):,} sent between brokers"),
        ("publications", f"{summary.publications:,}"),
        ("deliveries", f"{summary.deliveries:,}"),
        ("gaps", f"{summary.gaps:,}"),
        ("never hit", ", ".join(summary.never_hit) or "none"),
        ("out of reach", ", ".join(summary.out_of_reach) or "none"),
    ]
    for name, fact in rows:
        table.add_row(name, Text(fact))
    found = sum(map(len, summary.violations.values()))
    table.add_row("violations", Text(str(found), style="bold red" if found else "green"))
    out.print(table)
    for name, seeds in summary.violations.items():
        shown = ", ".join(map(str, seeds[:20]))
        out.print(Text(f"  {name}: seeds {shown}", style="red"))
    for failure in failures[:3]:
        out.print(Text(f"  {failure.options.line()}", style="dim"))


def replay(
    seed: int,
    *,
    options_text: str | None,
    trace: bool,
    shrunk: bool,
    machine: str | None,
    as_json: bool,
) -> int:
    """Run one seed again; show its trace, or shrink it. Return the exit code."""
    options = draw(seed) if options_text is None else _read_options(options_text)
    machine = machine or BROKER
    load_factory(machine)
    lines = trace and not as_json
    result = run_options(options, machine, sink=_print_line if lines else None)
    if shrunk and result.failed:
        result = shrink(result, machine)
    if as_json:
        print_json(result)
    else:
        _show_result(result)
    return EXIT_VIOLATION if result.failed else 0


def _read_options(text: str) -> SimulationOptions:
    """Read options from JSON, or from a file with JSON."""
    path = Path(text)
    return SimulationOptions.of_json(
        text if text.lstrip().startswith("{") else path.read_text("utf-8")
    )


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")


def _show_result(result: RunResult) -> None:
    out = console()
    out.print(Text(result.line(), style="red" if result.failed else "green"))
    out.print(Text(f"options  {result.options.line()}"))
    out.print(Text(f"faults   {result.faults}"))
    speed = f"{result.steps_per_second:,.0f} steps a second"
    out.print(Text(f"trace    {result.trace_hash}, {result.virtual_ms:,} ms, {speed}"))
    for violation in result.violations[:10]:
        out.print(Text(since_the_start(str(violation)), style="red"))
    if result.failed:
        out.print(Text(f"json     {result.options.json()}", style="dim"))


class DigestReport(msgspec.Struct, frozen=True):
    """What ``digest`` prints as JSON."""

    seeds: int
    differing: list[int]
    """The seeds in which brokers decided differently from the recorded runs."""


def digest(seeds: range, file: Path, *, workers: int, record: bool, as_json: bool) -> int:
    """Record the digests of seeds, or compare them with recorded ones. Return the exit code."""
    recorded = {} if record and not file.exists() else digests.load(file)
    out = console()
    found: dict[int, str] = {}
    columns = (TextColumn("{task.completed}/{task.total} seeds"),)
    quiet = as_json or not out.is_terminal
    with Progress(*columns, console=out, transient=True, disable=quiet) as progress:
        task = progress.add_task("seeds", total=len(seeds))
        for seed, one in digests.digests_of(seeds, workers=workers):
            found[seed] = one
            progress.update(task, advance=1)
    if record:
        digests.save(file, recorded | found)
    differing = [] if record else digests.compare(recorded, found)
    if as_json:
        print_json(DigestReport(len(found), differing))
    else:
        _show_digests(len(found), differing, file, record=record)
    return EXIT_VIOLATION if differing else 0


def _show_digests(seeds: int, differing: list[int], file: Path, *, record: bool) -> None:
    out = console()
    if record:
        out.print(Text(f"recorded the digests of {seeds:,} seeds in {file}"))
    elif differing:
        shown = ", ".join(map(str, differing[:20]))
        out.print(Text(f"{len(differing):,} of {seeds:,} seeds differ: {shown}", style="red"))
    else:
        out.print(Text(f"{seeds:,} seeds: brokers decide as recorded", style="green"))
