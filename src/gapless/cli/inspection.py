"""``gapless status``, ``topo show``, ``subscriptions``, ``partitions``, ``retire``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.broker_calls import (
    DEADLINE_S,
    Listed,
    call_broker,
    every_pubend,
    list_subscriptions,
)
from gapless.cli.options import URL_DEFAULT, AsJson, Deadline, TokenFile, Url, settle
from gapless.cli.output import (
    console,
    counted,
    facts,
    listing,
    print_json,
    print_listing,
    print_note,
    records,
    size,
    span,
    styled,
    timestamp,
)
from gapless.cli.whole_tree import show_tree
from gapless.core.limits import SHOWN_REASONS_MAX
from gapless.core.printable import printable_line

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table
    from rich.tree import Tree

    from gapless.client import Session
    from gapless.messages.operating import (
        BrokerReply,
        PartitionTable,
        PeerState,
        PubendState,
        SubscriptionState,
        TopologyReply,
    )
    from gapless.messages.overlay import Partition

__all__ = [
    "connection",
    "lag_text",
    "partitions",
    "retire",
    "show_subscriptions",
    "status",
    "subscriptions",
    "topology",
]

# --- status -------------------------------------------------------------------------------------


def status(
    context: typer.Context,
    *,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Show the state of a broker: its sessions, its pubends, its subscriptions."""
    settle(context, as_json=as_json)
    broker, pubends = call_broker(url, _fetch_status, deadline_s=deadline, token_file=token_file)
    if as_json:
        print_json({**records(broker), "pubends": records(pubends)})
        return
    out = console()
    out.print(_broker_table(broker))
    if pubends:
        out.print()
        out.print(_pubend_table(pubends, broker.clock))
    for each in pubends:
        if each.hosted is not None and each.hosted.corruption:
            out.print(
                f"\nthe log of {each.pubend} is corrupt: {each.hosted.corruption}", style="red"
            )


async def _fetch_status(session: Session) -> tuple[BrokerReply, list[PubendState]]:
    from gapless.messages.operating import GetBroker

    broker = await session.request(GetBroker(0), changes=False)
    return broker, [each async for each in every_pubend(session, hosted=True)]


def _broker_table(broker: BrokerReply) -> Table:
    up = [_peer_text(each) for each in broker.peers if each.open]
    down = [each.broker for each in broker.peers if not each.open]
    slow = [each.broker for each in broker.peers if each.congested]
    connected = f"{broker.connected:,} connected, {broker.durable:,} durable"
    rows = [
        ("broker", f"{broker.broker} in the cell {broker.cell}"),
        ("version", f"{broker.version}, protocol {', '.join(map(str, broker.protocols))}"),
        ("incarnation", f"{broker.incarnation} (since {timestamp(broker.incarnation)})"),
        ("connected to", ", ".join(up) or "none"),
        ("not connected to", ", ".join(down) or "none"),
        ("congested", ", ".join(slow) or "none"),
        ("rerouted", _reroutes(broker)),
        (
            "subscriptions",
            f"{broker.subscriptions:,} ({connected}), {counted(broker.clients, 'client')}",
        ),
        ("streams", _streams(broker)),
        ("pubends", f"{broker.pubends_hosted:,} here, {broker.pubends_known:,} known"),
        ("logs", size(broker.log_bytes)),
        ("retention", _retention(broker)),
        ("cache", size(broker.cache_bytes)),
    ]
    return facts(rows)


def _retention(broker: BrokerReply) -> str:
    """How long events are kept for replay, and up to which size of a log."""
    kept = span(broker.retention_s * 1_000_000)
    return f"{kept} (retention_s), at most {size(broker.log_bytes_max)} in each log (log_bytes_max)"


def _streams(broker: BrokerReply) -> str:
    """The number of joined streams, and of those that are cut off."""
    cut = f", {broker.streams_cut_off:,} cut off: see gapless subscriptions"
    return f"{broker.streams_joined:,} joined" + (cut if broker.streams_cut_off else "")


def _reroutes(broker: BrokerReply) -> str:
    """The streams that take a bypass or a relay, and the number of partitions."""
    parts = [
        counted(broker.feeds_bypassing, "stream") + " past unreachable cells",
        counted(broker.feeds_relayed, "stream") + " over relays",
    ]
    numbers = (broker.feeds_bypassing, broker.feeds_relayed)
    found = [part for part, number in zip(parts, numbers, strict=True) if number]
    if broker.partitions:
        found.append(counted(broker.partitions, "partition") + " known: see gapless partitions")
    return ", ".join(found) or "nothing"


def _peer_text(peer: PeerState) -> str:
    return f"{peer.broker}{_over(peer.via)}"


def _over(relays: Sequence[str]) -> str:
    """The brokers that relay a session, if there are any."""
    return f" (over {', '.join(relays)})" if relays else ""


def _pubend_table(pubends: list[PubendState], clock: int) -> Table:
    rows = []
    for each in pubends:
        hosted = each.hosted
        kind = each.quality.name.lower().replace("_", " ")
        if hosted is None:
            rows.append((str(each.pubend), kind, "", "", "", "", each.advertisement))
            continue
        behind = span(max(0, clock - hosted.top))
        members = f"{len(hosted.members) + hosted.members_omitted:,}"
        rows.append(
            (
                str(each.pubend),
                "corrupt" if hosted.corruption else kind,
                f"{behind} ago",
                timestamp(hosted.released),
                size(hosted.log_bytes),
                members,
                each.advertisement,
            )
        )
    columns = ("pubend", "quality", "top", "released up to", "log", "members", "advertises")
    return listing(*columns, rows=rows)


# --- the tree -----------------------------------------------------------------------------------

topology = typer.Typer(help="Show the tree of cells, and change it.", no_args_is_help=True)


@topology.command("show")
def _show_topology(
    context: typer.Context,
    *,
    whole: Annotated[
        bool, typer.Option("--all", help="All cells of the tree; the answer of every broker.")
    ] = False,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Show the cells around a broker, and the brokers that it has sessions with.

    No broker knows the whole tree: it knows the cells of its neighbourhood. With --all the broker
    asks others for theirs, neighbourhood by neighbourhood.
    """
    settle(context, as_json=as_json)
    if whole:
        tree = call_broker(
            url, lambda session: session.overlay.tree(), deadline_s=deadline, token_file=token_file
        )
        show_tree(tree, as_json=as_json)
        return
    shown, cells = call_broker(url, _fetch_cells, deadline_s=deadline, token_file=token_file)
    if as_json:
        print_json({**records(shown), "cells": records(cells), "more": False})
    else:
        console().print(_tree(shown, cells))


async def _fetch_cells(session: Session) -> tuple[TopologyReply, list[Any]]:
    from gapless.messages.operating import GetTopology

    cells: list[Any] = []
    while True:
        shown = await session.request(GetTopology(0, len(cells)), changes=False)
        cells += shown.cells
        if not shown.more or not shown.cells:
            return shown, cells


def _tree(shown: TopologyReply, cells: list[Any]) -> Tree:
    """The cells as a tree with the broker's own cell at the top."""
    from rich.tree import Tree

    known = {each.cell: each for each in cells}
    branches: dict[str, Tree] = {}
    for cell in cells:  # nearest first
        label = styled(cell.cell, "bold")
        relayed = dict(cell.relayed)
        for broker in cell.brokers:
            style = "green" if broker in cell.reached else "red"
            style = "yellow" if broker in relayed else style
            label.append_text(styled(f"  {broker}", style))
            if broker == shown.broker:
                label.append(" (this one)", style="dim")
            elif broker not in cell.reached:
                label.append(" (no session)", style="dim")
            label.append_text(styled(_over(relayed.get(broker, ())), "dim"))
        parents = [branches[each] for each in cell.neighbours if each in branches]
        branches[cell.cell] = parents[0].add(label) if parents else Tree(label)
        beyond = len([each for each in cell.neighbours if each not in known])
        if beyond:
            branches[cell.cell].add(styled(f"… {beyond} more, outside the neighbourhood", "dim"))
    return branches[shown.cell]


# --- subscriptions ------------------------------------------------------------------------------


NamePattern = Annotated[
    str,
    typer.Argument(
        metavar="[PATTERN]",
        show_default=False,
        help="Only names that match it: * is any characters, ? is one. Quote it.",
    ),
]
Limit = Annotated[
    int, typer.Option("--limit", metavar="N", min=0, help="List at most N; 0 lists all.")
]


def subscriptions(
    context: typer.Context,
    pattern: NamePattern = "",
    *,
    limit: Limit = 0,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """List the subscriptions of a broker, also those that are not durable."""
    settle(context, as_json=as_json)
    listed = Listed(pattern=pattern, limit=limit, whole=as_json)
    show_subscriptions(url, listed, deadline_s=deadline, as_json=as_json, token_file=token_file)


def show_subscriptions(
    url: str, listed: Listed, *, deadline_s: float, as_json: bool, token_file: Path | None = None
) -> None:
    """Fetch subscriptions and list them."""
    found, more = call_broker(
        url,
        lambda session: list_subscriptions(session, listed),
        deadline_s=deadline_s,
        token_file=token_file,
    )
    if as_json:
        print_json(records(found))
    else:
        none = f"no subscriptions match {listed.pattern}" if listed.pattern else "no subscriptions"
        if found:
            _print_subscriptions(found)
        else:
            console().print(none)
        reasons = _reasons(found)
        for line in reasons[:SHOWN_REASONS_MAX]:
            console().print(printable_line(line))
        if len(reasons) > SHOWN_REASONS_MAX:
            console().print(f"{len(reasons) - SHOWN_REASONS_MAX:,} more streams: see --json")
    if more:
        print_note(f"the first {len(found):,} are listed: there are more")


def _print_subscriptions(found: list[SubscriptionState]) -> None:
    rows = []
    for each in found:
        pending, streams = each.streams_pending, f"{each.streams:,}"
        rows.append(
            (
                each.name,
                "durable" if each.durable else "",
                each.order.name.lower(),
                connection(each),
                f"{streams} ({pending} pending)" if pending else streams,
                *lag_text(each.lag_events, each.lag_s),
                each.filter,
            )
        )
    columns = (
        *("subscription", "kind", "order", "client", "streams"),
        *("events behind", "time behind", "filter"),
    )
    print_listing(*columns, rows=rows)


def _reasons(found: list[SubscriptionState]) -> list[str]:
    """Why no events can come from some streams, a line each."""
    cursors = ((each.name, cursor) for each in found for cursor in each.cursors)
    return [
        f"{name} waits for {cursor.pubend}: {cursor.pending_reason}"
        for name, cursor in cursors
        if cursor.pending_reason is not None
    ]


def lag_text(events: int | None, seconds: float | None) -> tuple[str, str]:
    """How far a subscription or a stream is behind, in events and in time.

    >>> lag_text(0, 0.0), lag_text(1_200, 7.5), lag_text(None, None)
    (('0', ''), ('1,200', '7.5 s'), ('unknown', 'unknown'))
    """
    if events is None or seconds is None:
        return "unknown", "unknown"
    return f"{events:,}", span(round(seconds * 1_000_000)) if events else ""


def connection(state: SubscriptionState) -> str:
    """The client of a subscription, or since when it has none."""
    if state.client is not None:
        return state.client
    return f"disconnected since {timestamp(state.disconnected_since or 0)}"


# --- partitions and retired brokers -------------------------------------------------------------


def partitions(
    context: typer.Context,
    *,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """List the unreachable cells that a broker knows of.

    A partition is named by the broker that found it and a number. A broker finds one when its last
    session with a cell ends, and announces it to all brokers within 2δ cells. It ends when one of
    its cells is reached again.
    """
    from gapless.messages.operating import ListPartitions

    settle(context, as_json=as_json)

    async def call(session: Session) -> Any:
        return await session.request(ListPartitions(0), changes=False)

    table: PartitionTable = call_broker(url, call, deadline_s=deadline, token_file=token_file)
    since = table.since or (0,) * len(table.entries)  # an older broker does not send it
    found = [*zip(table.entries, since, strict=True)]
    if as_json:
        shown = [{"pid": pid_of(each), **records(each), "since": at or None} for each, at in found]
        print_json(shown)
    elif not found:
        console().print("no partitions are known to this broker")
    else:
        rows = [
            (pid_of(each), each.detector, ", ".join(each.cells), timestamp(at) if at else "")
            for each, at in found
        ]
        columns = ("partition", "seen by", "cells that it cannot reach", "since")
        console().print(listing(*columns, rows=rows))


def pid_of(partition: Partition) -> str:
    """The name of a partition for operators: the broker that found it, and its number there."""
    return f"{partition.detector}/{partition.counter}"


def retire(
    context: typer.Context,
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="The broker to retire.")],
    *,
    cell: Annotated[str, typer.Option("--cell", help="The cell that it was in.")],
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Declare that a broker will never return: its subscriptions are no longer served.

    Its durable subscriptions lose the events that they have not received. A broker that is alive,
    or that the called broker does not know, is refused.
    """
    from gapless.messages.operating import RetireBroker

    settle(context, as_json=as_json)

    async def call(session: Session) -> Any:
        return await session.request(RetireBroker(0, broker, cell))

    call_broker(url, call, deadline_s=deadline, token_file=token_file)
    if as_json:
        print_json({"retired": broker, "cell": cell})
    else:
        console().print(f"{broker} in {cell} is retired: all reachable brokers are informed")
