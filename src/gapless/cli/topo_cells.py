"""``gapless topo shift``, ``append``, ``detach``, ``insert``, ``delete``, ``takeover``, ``readmit``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.broker_calls import call_broker
from gapless.cli.options import URL_DEFAULT, AsJson, Deadline, TokenFile, Url, settle
from gapless.cli.output import counted, print_json, print_note, records

if TYPE_CHECKING:
    from gapless.client import Session
    from gapless.client.overlay import AppliedOperation
    from gapless.client.tree_orders import AppliedPlan

__all__ = ["append", "delete", "detach", "insert", "readmit", "shift", "takeover"]

OPERATION_DEADLINE_S = 60.0
"""The default deadline of an operation."""

Cell = Annotated[str, typer.Argument(metavar="CELL", help="A cell, by its id or its name.")]
NewCell = Annotated[str, typer.Argument(metavar="CELL", help="The name of the new cell.")]
Broker = Annotated[
    str, typer.Option("--broker", metavar="NAME", help="The broker of the new cell.")
]
BrokerAddress = Annotated[
    str | None,
    typer.Option(
        "--address", metavar="HOST:PORT", help="Where it listens; not needed with --start."
    ),
]
Start = Annotated[
    bool, typer.Option("--start", help="Let gapless up start the broker; needs --data.")
]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIRECTORY", help="The data directory of gapless up."),
]


def shift(
    context: typer.Context,
    moved: Annotated[str, typer.Argument(metavar="I", help="The cell that is rewired.")],
    old: Annotated[str, typer.Argument(metavar="J", help="Its present neighbour.")],
    new: Annotated[str, typer.Argument(metavar="K", help="A neighbour of J, its next one.")],
    *,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = OPERATION_DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Replace the edge between I and J by one between I and K."""
    settle(context, as_json=as_json)
    done = call_broker(
        url,
        lambda session: session.overlay.shift(moved, old, new, deadline_s=deadline),
        deadline_s=deadline,
        token_file=token_file,
    )
    _show(done, as_json=as_json)


def append(
    context: typer.Context,
    cell: NewCell,
    *,
    broker: Broker,
    at: Annotated[str, typer.Option("--at", metavar="CELL", help="Its neighbour.")],
    address: BrokerAddress = None,
    start: Start = False,
    data: Data = None,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = OPERATION_DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Append a new cell with one broker.

    The broker runs already, with join = true in its file, or `gapless up` starts it (--start).
    """
    settle(context, as_json=as_json)

    async def work(session: Session, addresses: list[str]) -> AppliedOperation:
        return await session.overlay.append(cell, broker, addresses, at=at, deadline_s=deadline)

    done = _with_newcomer(
        work, cell, broker, address, data if start else None, url, token_file, deadline, start=start
    )
    _show(done, as_json=as_json)


def detach(
    context: typer.Context,
    cell: Cell,
    *,
    data: Data = None,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = OPERATION_DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Detach an empty outer cell. With --data `gapless up` stops its broker then."""
    settle(context, as_json=as_json)

    async def work(session: Session) -> tuple[AppliedOperation, tuple[str, ...]]:
        brokers = (await session.overlay.tree()).cell(cell).brokers
        return await session.overlay.detach(cell, deadline_s=deadline), brokers

    done, brokers = call_broker(url, work, deadline_s=deadline, token_file=token_file)
    _stop(data, brokers, url, token_file)
    _show(done, as_json=as_json)


def insert(
    context: typer.Context,
    cell: NewCell,
    neighbours: Annotated[
        list[str], typer.Argument(metavar="NEIGHBOUR…", help="The cells that it is put between.")
    ],
    *,
    broker: Broker,
    address: BrokerAddress = None,
    start: Start = False,
    data: Data = None,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = OPERATION_DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Append a new cell, and make it a neighbour of several cells."""
    settle(context, as_json=as_json)

    async def work(session: Session, addresses: list[str]) -> AppliedPlan:
        from gapless.cli.planning import plan_progress

        with plan_progress(shown=not as_json) as progress:
            return await session.overlay.insert(cell, broker, addresses, neighbours, progress)

    done = _with_newcomer(
        work, cell, broker, address, data if start else None, url, token_file, deadline, start=start
    )
    _show_plan(done, as_json=as_json)


def delete(
    context: typer.Context,
    cell: Cell,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="CELL",
            help="The neighbour that gets its edges.",
            show_default="the first",
        ),
    ] = "",
    data: Data = None,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = OPERATION_DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Take an empty cell out of the tree: its edges go to a neighbour, then it is detached."""
    settle(context, as_json=as_json)

    async def work(session: Session) -> tuple[AppliedPlan, tuple[str, ...]]:
        from gapless.cli.planning import plan_progress

        brokers = (await session.overlay.tree()).cell(cell).brokers
        with plan_progress(shown=not as_json) as progress:
            return await session.overlay.delete(cell, to, progress), brokers

    done, brokers = call_broker(url, work, deadline_s=deadline, token_file=token_file)
    _stop(data, brokers, url, token_file)
    _show_plan(done, as_json=as_json)


def takeover(
    context: typer.Context,
    cell: Cell,
    *,
    replaced: Annotated[
        list[str] | None,
        typer.Option(
            "--replaced", metavar="BROKER", help="A broker that will not return. Repeatable."
        ),
    ] = None,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = OPERATION_DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Let another member lead a cell whose leader is gone.

    To declare a living broker is a mistake: what one of two leaders does is undone later. Run one
    takeover at a time.
    """
    settle(context, as_json=as_json)
    done = call_broker(
        url,
        lambda session: session.overlay.takeover(cell, replaced or (), deadline_s=deadline),
        deadline_s=deadline,
        token_file=token_file,
    )
    if as_json:
        print_json(records(done))
    else:
        print_note(
            f"{done.term.broker} leads {', '.join(done.cells) or cell} in term {done.term.number}"
        )


def readmit(
    context: typer.Context,
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="A replaced member of a cell.")],
    *,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = OPERATION_DEADLINE_S,
    as_json: AsJson = False,
) -> None:
    """Make a replaced member of a cell active again."""
    settle(context, as_json=as_json)
    done = call_broker(
        url,
        lambda session: session.overlay.readmit(broker, deadline_s=deadline),
        deadline_s=deadline,
        token_file=token_file,
    )
    _show(done, as_json=as_json)


# --- the brokers of gapless up ------------------------------------------------------------------


def _with_newcomer(
    work: Callable[[Session, list[str]], Awaitable[Any]],
    cell: str,
    broker: str,
    address: str | None,
    data: Path | None,
    url: str,
    token_file: Path | None,
    deadline: float,
    *,
    start: bool,
) -> Any:
    """Do work with a new broker that runs, or that ``gapless up`` starts and, if it fails, stops."""
    from gapless.core.errors import GaplessError, OutcomeUnknownError, UsageError
    from gapless.runtime.overlay_socket import request_supervisor

    if start and data is None:
        raise UsageError("--start needs --data, the data directory of gapless up")
    if not start and address is None:
        raise UsageError("name the --address of the broker, or let gapless up --start it")
    if data is None:
        assert address is not None
        found = [address]
        return call_broker(
            url, lambda session: work(session, found), deadline_s=deadline, token_file=token_file
        )
    reply = request_supervisor(data, {"do": "start", "broker": broker, "cell": cell})
    found = [reply["address"]]
    try:
        done = call_broker(
            url, lambda session: work(session, found), deadline_s=deadline, token_file=token_file
        )
    except OutcomeUnknownError:
        raise  # the broker may be appended later
    except GaplessError:
        request_supervisor(data, {"do": "stop", "broker": broker})
        raise
    _rewrite(data, url, token_file)
    return done


def _stop(data: Path | None, brokers: tuple[str, ...], url: str, token_file: Path | None) -> None:
    """Let ``gapless up`` stop the brokers of a cell that has left."""
    from gapless.runtime.overlay_socket import request_supervisor

    if data is None:
        return
    _rewrite(data, url, token_file)
    for broker in brokers:
        request_supervisor(data, {"do": "stop", "broker": broker})


def _rewrite(data: Path, url: str, token_file: Path | None) -> None:
    """Let ``gapless up`` write the present tree to its files."""
    from gapless.runtime.overlay_socket import request_supervisor

    tree = call_broker(
        url,
        lambda session: session.overlay.tree(),
        token_file=token_file,
        wait_s=OPERATION_DEADLINE_S,
    )
    tree.shape()
    document = {
        "do": "tree",
        "cells": {each.name: [*each.brokers] for each in tree.cells},
        "edges": [[*edge] for edge in tree.shape().edges],
    }
    reply = request_supervisor(data, document)
    for path in reply.get("kept", ()):
        print_note(f"{path} was edited and is kept as it is: write the new tree there yourself")


# --- the output ---------------------------------------------------------------------------------


def _show(done: AppliedOperation, *, as_json: bool) -> None:
    if as_json:
        print_json(records(done))
    else:
        cells = f"({', '.join(done.cells)})" if done.cells else ""
        print_note(f"{done.kind.upper()}{cells} is done in {done.time_us / 1_000:,.1f} ms")


def _show_plan(done: AppliedPlan, *, as_json: bool) -> None:
    from gapless.cli.planning import applied_document, show_applied

    if as_json:
        print_json(applied_document(done))
    elif done.steps:
        show_applied(done)
    else:
        print_note(f"done: {counted(done.done, 'operation')}")
