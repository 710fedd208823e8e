"""``gapless spark audit`` and ``profile``: evaluation of audit logs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.options import AsJson, settle
from gapless.cli.output import (
    console,
    counted,
    facts,
    listing,
    plain,
    print_json,
    print_json_line,
    print_note,
    records,
)
from gapless.cli.spark_sessions import session, tasks_shown
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from gapless.spark.jobs.auditing import AuditReport
    from gapless.spark.jobs.profiling import Profile
    from gapless.spark.jobs.rights_audit import RightsReport

__all__ = ["add_audit_commands", "show_audit", "show_profile"]

FLOWS_SHOWN = 20
"""Pairs of cells that are shown; all are in --json."""

FILTERS_SHOWN = 3
"""Filters of a cell that are shown; all are in --json."""

Directories = Annotated[
    list[str],
    typer.Argument(metavar="DIRECTORY...", help="Audit logs of brokers and clients; or patterns."),
]
Master = Annotated[
    str,
    typer.Option(
        metavar="MASTER",
        envvar="GAPLESS_SPARK_MASTER",
        help="Where Spark runs: local[*], spark://host:7077, yarn, k8s://…",
    ),
]


def add_audit_commands(commands: typer.Typer) -> None:
    """Add the commands of this module."""
    commands.command("audit")(_audit)
    commands.command("profile")(_profile)


def _audit(
    context: typer.Context,
    directories: Directories,
    *,
    tail: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0, help="How late an event may be before it counts as lost."
        ),
    ] = 60.0,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="DIRECTORY", help="Keeps what was read; each closed segment is read once."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="With --state: repeat until Ctrl-C.")
    ] = False,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, help="With --follow: how often.")
    ] = 60.0,
    events: Annotated[
        str | None,
        typer.Option(
            metavar="DIRECTORY", help="An archive of the events; needed if logs have no attributes."
        ),
    ] = None,
    rights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rules, in TOML: also report publications and deliveries that they do not allow.",
        ),
    ] = None,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Compare published, expected and delivered events, as brokers and clients have recorded them.

    Exit code 1 if an event was lost, duplicated, out of order or delivered to a subscription that
    it does not match; with --rights also if an event was published or delivered against the rules.
    """
    from rich.console import Console

    from gapless.spark.jobs.audit_logs import NoClosedSegmentError
    from gapless.spark.jobs.auditing import audit
    from gapless.spark.jobs.backtesting import events_at
    from gapless.spark.jobs.rights import load_rights

    settle(context, as_json=as_json)
    rules = None if rights is None else load_rights(rights)
    if follow and state is None:
        raise UsageError("--follow needs the state of earlier runs: name a directory with --state")
    screen = Console(stderr=True, quiet=as_json)
    with (
        session(master, "audit") as made,
        screen.status("reading audit logs") as status,
        tasks_shown(made, status),
    ):

        def look() -> AuditReport:
            # an archive is opened again each time: a DataFrame keeps its version
            known = None if events is None else events_at(made, events)
            return audit(made, directories, tail_s=tail, state=state, events=known, rights=rules)

        while follow:
            try:
                _print_audit(look(), as_json=as_json, in_line=True)
            except NoClosedSegmentError as nothing:
                print_note(f"nothing to audit yet: {nothing}")
            time.sleep(every)
        found = look()
    _print_audit(found, as_json=as_json, in_line=False)
    raise typer.Exit(0 if found.is_clean else 1)


def _print_audit(found: AuditReport, *, as_json: bool, in_line: bool) -> None:
    if not as_json:
        show_audit(found)
        return
    document = {"clean": found.is_clean, **records(found)}
    if in_line:
        print_json_line(document)
    else:
        print_json(document)


def show_audit(found: AuditReport) -> None:
    """Print the result of an audit, one line per subscription."""
    out = console()
    running = sum(not each.is_closed for each in found.logs)
    rows = [
        ("published", f"{found.published:,}"),
        ("logs", f"{len(found.logs):,}, of which {running:,} did not end in order or still grow"),
    ]
    if found.given is not None:
        rows.append(("in the streams", f"{found.given:,} of them"))
    if found.undescribed:
        first = ", ".join(found.undescribed_first)
        said = "neither a log nor the events have their attributes"
        rows.append(("not judged", f"{found.undescribed:,} of them, {first} first: {said}"))
    if found.unsure:
        rows.append(("perhaps published", f"{found.unsure:,}, by brokers that crashed meanwhile"))
    if found.unlogged:
        rows.append(("acknowledged only", f"{found.unlogged:,} are in no log of a broker"))
    cut = [each.name for each in found.logs if not each.is_whole]
    if cut:
        rows.append(("cut", f"older segments are missing: {', '.join(sorted(set(cut)))}"))
    rows.append(("rights", _rights_text(found.rights)))
    out.print(facts(rows))
    names = [
        "expected",
        "delivered",
        "lost",
        "duplicates",
        "out_of_order",
        "spurious",
        "gaps",
        "in_flight",
        "unauthorised",
    ]
    shown = [
        (each.subscription, each.side, *(_number(getattr(each, name)) for name in names))
        for each in (*found.rows, found.total)
    ]
    out.print(listing("subscription", "log", *(n.replace("_", " ") for n in names), rows=shown))
    for example in found.examples:
        out.print(plain(example), style="red")
    verdict = "clean: every promise was kept" if found.is_clean else "not clean"
    if found.is_clean and found.undescribed:
        verdict = "clean as far as could be judged"
    out.print(plain(verdict), style="green" if found.is_clean else "bold red")


def _number(count: int | None) -> str:
    return "not judged" if count is None else f"{count:,}"


def _rights_text(found: RightsReport | None) -> str:
    if found is None:
        return "not judged: no rules were given"
    text = (
        f"{counted(found.rules, 'rule')}; unauthorised: publications "
        f"{found.unauthorised_publications:,}, deliveries {found.unauthorised_deliveries:,}, "
        f"reads of logs {found.unauthorised_reads:,}"
    )
    each = ", ".join(row.principal or "without a principal" for row in found.principals)
    text += f" ({each})" if each else ""
    return text + (f"; {found.unjudged:,} could not be judged" if found.unjudged else "")


# --- profile --------------------------------------------------------------------------------------


def _profile(
    context: typer.Context,
    directories: Directories,
    *,
    topology: Annotated[
        str, typer.Option(metavar="TREE", help="The current tree: a .toml file, or line:3, …")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write the proposed tree here, as TOML."),
    ] = None,
    degree: Annotated[
        int, typer.Option(min=1, help="How many neighbours a cell may have at most.")
    ] = 3,
    master: Master = "local[*]",
    as_json: AsJson = False,
) -> None:
    """Find a tree over which the traffic in audit logs of brokers travels fewer hops.

    The written file is for gapless up --topology FILE. If the current tree has more neighbours than
    --degree allows, the proposed tree may cost more; the report shows it.
    """
    from rich.console import Console

    from gapless.runtime.overlay_config import overlay_of
    from gapless.spark.jobs.profiling import profile

    settle(context, as_json=as_json)
    present = overlay_of(topology)
    if out is not None and out.suffix != ".toml":
        raise UsageError(f"{out} must end in .toml, so that gapless up reads it as a file")
    screen = Console(stderr=True, quiet=as_json)
    with (
        session(master, "profile") as made,
        screen.status("reading audit logs") as status,
        tasks_shown(made, status),
    ):
        found = profile(made, directories, present, degree=degree)
    if out is not None:
        out.write_text(found.overlay(present).to_toml(), encoding="utf-8")
        print_note(f"written: {out}{'' if found.is_better else _not_better(found)}")
    if as_json:
        said = {"saving": found.saving, "is_within_degree": found.is_within_degree}
        print_json({**said, **records(found)})
    else:
        show_profile(found)


def show_profile(found: Profile) -> None:
    """Print the traffic between cells and the proposed tree."""
    out = console()
    shown = [
        (
            each.source,
            each.target,
            f"{each.events:,}",
            "not known" if each.wanted is None else f"{each.wanted:,}",
        )
        for each in found.flows[:FLOWS_SHOWN]
    ]
    out.print(listing("published in", "delivered in", "events", "wanted there", rows=shown))
    if len(found.flows) > FLOWS_SHOWN:
        out.print(plain(f"… {len(found.flows) - FLOWS_SHOWN:,} more; --json has all"))
    interests = [
        (each.cell, f"{each.subscriptions:,}", f"{len(each.filters):,}", _filters(each.filters))
        for each in found.interests
    ]
    if interests:
        out.print(listing("cell", "subscriptions", "filters", "such as", rows=interests))
    now = f"{found.present_hops:,}, at most {found.present_degree} neighbours"
    if not found.is_within_degree:
        now += f": more than the {found.degree} that are allowed"
    then = f"{found.proposed_hops:,}, at most {found.degree} neighbours allowed"
    then += f" ({found.saving:.1%} fewer)" if found.is_better else _not_better(found)
    rows = [
        ("events", f"{found.events:,}"),
        ("hops now", now),
        ("hops then", then),
        ("edges out", _edges(found.removed)),
        ("edges in", _edges(found.added)),
    ]
    out.print(facts(rows))


def _not_better(found: Profile) -> str:
    """Describe a tree that saves nothing."""
    if found.proposed_hops == found.present_hops:
        return " (no fewer than now)"
    return (
        f" ({-found.saving:.1%} more: keeping the current tree costs {found.present_hops:,} hops, "
        f"and needs --degree {found.present_degree})"
    )


def _filters(texts: list[str]) -> str:
    more = " …" if len(texts) > FILTERS_SHOWN else ""
    return "; ".join(texts[:FILTERS_SHOWN]) + more


def _edges(edges: list[tuple[str, str]]) -> str:
    return ", ".join(f"{left} - {right}" for left, right in edges) or "none"
