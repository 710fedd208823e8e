"""``gapless pubend``: list pubends, and close them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.broker_calls import DEADLINE_S, call_broker, every_pubend
from gapless.cli.inspection import Limit, NamePattern
from gapless.cli.options import URL_DEFAULT, AsJson, Deadline, TokenFile, Url, settle
from gapless.cli.output import (
    console,
    print_json,
    print_listing,
    print_note,
    records,
    timestamp,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.client import PubendClosing, Session
    from gapless.messages.operating import PubendState

__all__ = ["pubends"]

pubends = typer.Typer(help="List pubends, and close them.", no_args_is_help=True)


@pubends.command("ls")
def _ls(
    context: typer.Context,
    pattern: NamePattern = "",
    *,
    limit: Limit = 0,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """List the pubends that a broker knows, closed ones included for a day.

    Only the broker of a pubend knows for which members its log is kept.
    """
    settle(context, as_json=as_json)

    async def fetch(session: Session) -> tuple[list[PubendState], bool]:
        from gapless.inspection.subscriptions import name_pattern

        matches = name_pattern(pattern or "*").matches
        found: list[PubendState] = []
        async for each in every_pubend(session, closed=True):
            if matches(str(each.pubend)):
                if limit and len(found) == limit:
                    return found, True
                found.append(each)
        return found, False

    found, more = call_broker(url, fetch, deadline_s=deadline, token_file=token_file)
    if as_json:
        print_json({"pubends": [_record(each) for each in found], "more": more})
        return
    if found:
        rows = [_row(each) for each in found]
        columns = ("pubend", "broker", "quality", "state", "last tick", "kept for")
        print_listing(*columns, rows=rows)
    else:
        console().print("no pubends")
    if more:
        print_note(f"the first {len(found):,} are listed: there are more")


def _state(state: PubendState) -> str:
    if state.closed:
        return "closed"
    return "open" if state.sealed is None else "sealed"


def _kept_for(state: PubendState) -> list[str] | None:
    """Return the members for which the log is kept; None if this broker does not know them."""
    hosted = state.hosted
    if hosted is None:
        return None
    last = hosted.top if state.sealed is None else state.sealed
    return [each.shb.broker for each in hosted.members if each.ack_floor < last]


def _row(state: PubendState) -> tuple[str, ...]:
    waiting = _kept_for(state)
    last = "" if not state.sealed else f"{state.sealed} ({timestamp(state.sealed)})"
    quality = state.quality.name.lower().replace("_", " ")
    kept_for = "" if waiting is None else ", ".join(waiting) or "nobody"
    return str(state.pubend), state.broker, quality, _state(state), last, kept_for


def _record(state: PubendState) -> dict[str, Any]:
    return {
        "pubend": str(state.pubend),
        "broker": state.broker,
        "quality": records(state.quality),
        "state": _state(state),
        "last": state.sealed,
        "kept_for": _kept_for(state),
    }


@pubends.command("close")
def _close(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The pubend, with its number if any.")
    ],
    *,
    discard_history: Annotated[
        bool,
        typer.Option("--discard-history", help="Keep nothing for replay (retention_s)."),
    ] = False,
    now: Annotated[
        bool,
        typer.Option(
            "--now",
            help="Give subscriptions up that have not received everything after close_wait_s: "
            "they lose the rest, as a gap.",
        ),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait/--no-wait", help="Wait until it is closed, and not only sealed."),
    ] = True,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = 120.0,
    as_json: AsJson = False,
) -> None:
    """Close a pubend for ever, wherever it is: it accepts nothing any more.

    It is sealed at once. It is closed when all its subscriptions have received everything and the
    retention is over. The command shows what it waits for, and may be interrupted: the pubend stays
    sealed and is closed later. Repeat the command to see the state, or to wait for less.
    """
    settle(context, as_json=as_json)

    async def close(session: Session) -> PubendClosing:
        return await session.close_pubend(
            name,
            discard_history=discard_history,
            now=now,
            wait=wait,
            on_progress=_progress(as_json=as_json),
        )

    closing = call_broker(url, close, deadline_s=deadline, token_file=token_file)
    if as_json:
        print_json(
            {
                "pubend": closing.pubend,
                "state": "closed" if closing.is_closed else "sealed",
                "last": closing.last,
                "waits_for": [*closing.waits_for],
            }
        )
    elif closing.is_closed:
        console().print(f"{closing.pubend} is closed")
    else:
        console().print(f"{closing.pubend} is sealed{_waiting(closing)}")


def _waiting(closing: PubendClosing) -> str:
    return f"; it waits for {'; '.join(closing.waits_for)}" if closing.waits_for else ""


def _progress(*, as_json: bool) -> Callable[[PubendClosing], None]:
    """Return a callback that prints a note whenever the pubend waits for something else."""
    shown: list[tuple[str, ...]] = []

    def show(closing: PubendClosing) -> None:
        if not as_json and [closing.waits_for] != shown:
            shown[:] = [closing.waits_for]
            print_note(f"{closing.pubend} is sealed{_waiting(closing)}")

    return show
