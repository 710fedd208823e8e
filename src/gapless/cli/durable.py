"""``gapless durable``: durable subscriptions by name, connected or not."""

from __future__ import annotations

import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.all_durable import (
    AllDurable,
    all_durable,
    entry_at,
    matching,
    print_table,
    refuse_duplicates,
    warnings,
)
from gapless.cli.broker_calls import (
    DEADLINE_S,
    Listed,
    call_broker,
    durable_subscription,
    request_at_host,
)
from gapless.cli.inspection import (
    Limit,
    NamePattern,
    connection,
    lag_text,
    show_subscriptions,
)
from gapless.cli.logs import event_line
from gapless.cli.options import (
    URL_DEFAULT,
    AsJson,
    Deadline,
    TokenFile,
    Url,
    optional_store_directory,
    settle,
)
from gapless.cli.output import (
    console,
    facts,
    listing,
    print_json,
    print_note,
    records,
    span,
    timestamp,
)
from gapless.cli.peek import Peek
from gapless.cli.positions import HELP, read_position
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from gapless.client import Session
    from gapless.messages.operating import SubscriptionState

__all__ = ["durable"]

durable = typer.Typer(
    help="Show durable subscriptions, and change them, wherever they are hosted.",
    no_args_is_help=True,
)

EXIT_GAP = 1
"""The exit code if logs no longer have a part of the events."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of the subscription.")]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        metavar="DIRECTORY",
        help="The data directory of a stopped broker, in place of a URL.",
        callback=optional_store_directory,
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Even if a client has it: the client's subscription ends."),
]


@durable.command("ls")
def _ls(
    context: typer.Context,
    pattern: NamePattern = "",
    *,
    everywhere: Annotated[
        bool, typer.Option("--all", help="Of all brokers of the overlay, not only of this one.")
    ] = False,
    limit: Limit = 0,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """List durable subscriptions; names that several subscriptions have are reported."""
    settle(context, as_json=as_json)
    if everywhere:
        found = call_broker(url, all_durable, deadline_s=deadline, token_file=token_file)
        _show_all(matching(found, pattern), limit, as_json=as_json)
        return
    listed = Listed(durable=True, pattern=pattern, limit=limit, whole=as_json)
    show_subscriptions(url, listed, deadline_s=deadline, as_json=as_json, token_file=token_file)


def _show_all(found: AllDurable, limit: int, *, as_json: bool) -> None:
    shown = found.entries[:limit] if limit else found.entries
    if as_json:
        print_json({"subscriptions": records(shown), "silent": found.silent})
    elif shown:
        print_table(shown)
    else:
        console().print("no subscriptions")
    if len(shown) < len(found.entries):
        print_note(f"the first {len(shown):,} are listed: there are more")
    for line in () if as_json else warnings(found):
        print_note(f"warning: {line}")


@durable.command("info")
def _info(
    context: typer.Context,
    name: Name,
    *,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Show one durable subscription and its progress on every stream."""
    settle(context, as_json=as_json)

    state = call_broker(
        url,
        lambda session: durable_subscription(session, name),
        deadline_s=deadline,
        token_file=token_file,
    ).entry
    if as_json:
        print_json(records(state))
    else:
        _show(state)


def _show(state: SubscriptionState) -> None:
    out = console()
    rows = [
        ("subscription", state.name),
        ("filter", state.filter + (" (changing)" if state.changing else "")),
        ("order", state.order.name.lower()),
        ("client", connection(state)),
        ("ends", f"if no client has it for {span(state.expiry_s * 1_000_000)}"),
    ]
    out.print(facts(rows))
    if state.cursors:
        out.print()
        lines = [
            (
                str(each.pubend),
                each.state if each.pending_reason is None else f"pending: {each.pending_reason}",
                str(each.acked),
                timestamp(each.acked),
                *lag_text(each.lag_events, each.lag_s),
                f"{each.buffered:,}",
            )
            for each in state.cursors
        ]
        columns = (
            *("pubend", "state", "acknowledged", "time"),
            *("events behind", "time behind", "waits for credit"),
        )
        out.print(listing(*columns, rows=lines))


@durable.command("peek")
def _peek(
    context: typer.Context,
    name: Name,
    *,
    count: Annotated[int, typer.Option(min=1, help="How many events at most.")] = 10,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    _as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines; this is the default.")
    ] = False,
) -> None:
    """Print the next events of a durable subscription as JSON lines.

    Nothing is acknowledged, and a client that has the subscription keeps it. The events are those
    that are not acknowledged, also if that client has received them. They are in the order of their
    ticks.
    """
    settle(context, as_json=_as_json)

    async def show(session: Session) -> Peek:
        peek, left = Peek(session, name), count
        async with aclosing(peek.events()) as events:
            async for event in events:
                sys.stdout.buffer.write(event_line(event.pubend, event.publication))
                left -= 1
                if not left:
                    break
        sys.stdout.buffer.flush()
        return peek

    peek = call_broker(url, show, deadline_s=deadline, token_file=token_file)
    if peek.error is not None:
        raise peek.error
    if peek.gaps:
        raise typer.Exit(EXIT_GAP)


@durable.command("seek")
def _seek(
    context: typer.Context,
    name: Name,
    position: Annotated[str, typer.Argument(metavar="POSITION", help=HELP)],
    *,
    force: Force = False,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Continue a durable subscription from another position, backward or forward.

    A position that its client has stored before the seek does not undo the seek.
    """
    from gapless.client.starts import start_point_of

    settle(context, as_json=as_json)
    start_point = start_point_of(read_position(position))

    async def call(session: Session) -> Any:
        from gapless.messages.operating import SeekDurable

        return await request_at_host(session, name, SeekDurable(0, name, start_point, force))

    answer = call_broker(url, call, deadline_s=deadline, token_file=token_file)
    if as_json:
        pending = {str(each.pubend): each.reason for each in answer.pending}
        print_json({"position": _position(answer.position), "pending": pending})
        return
    _show_position(f"{name} continues after", answer.position)
    for each in answer.pending:
        print_note(f"warning: {each.pubend}: {each.reason}")


@durable.command("set-filter")
def _set_filter(
    context: typer.Context,
    name: Name,
    filter_text: Annotated[str, typer.Argument(metavar="FILTER", help="The new filter.")],
    *,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = 30.0,
    as_json: AsJson = False,
) -> None:
    """Change the filter of a durable subscription; print the position after which it applies."""
    settle(context, as_json=as_json)

    async def call(session: Session) -> Any:
        from gapless.client.arguments import check_filter
        from gapless.messages.operating import SetDurableFilter

        check_filter("FILTER", filter_text)
        return await request_at_host(session, name, SetDurableFilter(0, name, filter_text))

    answer = call_broker(url, call, deadline_s=deadline, token_file=token_file)
    if as_json:
        print_json({"position": _position(answer.position)})
    else:
        _show_position(f"the new filter of {name} applies after", answer.position)


@durable.command("rm")
def _rm(
    context: typer.Context,
    name: Name,
    *,
    at: Annotated[
        str | None,
        typer.Option(metavar="BROKER", help="The one at this broker, if several have the name."),
    ] = None,
    force: Force = False,
    directory: Directory = None,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """End a durable subscription, wherever it is.

    The events that it has not received are no longer kept for it.
    """
    settle(context, as_json=as_json)
    if directory is not None:
        if at is not None:
            raise UsageError("--directory names the broker; leave --at out")
        from gapless.cli.stopped import remove_durable

        remove_durable(directory, name, as_json=as_json)
        return

    async def call(session: Session) -> Any:
        from gapless.messages.operating import RemoveDurable

        message = RemoveDurable(0, name, force, here=at is not None)
        if at is None:
            await refuse_duplicates(session, name)
            return await request_at_host(session, name, message)
        host = (await entry_at(session, name, at)).host
        return await session.request_at_broker(host.broker, host.addresses, message)

    call_broker(url, call, deadline_s=deadline, token_file=token_file)
    if as_json:
        print_json({"removed": name})
    else:
        console().print(f"{name} is removed")


def _position(position: Any) -> dict[str, int]:
    return {str(pubend): tick for pubend, tick in position}


def _show_position(what: str, position: Any) -> None:
    from gapless.client import Position

    found = Position(_position(position))
    console().print(f"{what} {str(found) or 'nothing: it has not started on any stream'}")
