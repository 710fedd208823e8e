"""``gapless sub``: events become JSON lines.

An event of a durable subscription is acknowledged when its line was written: the reader of the
lines has it, or it comes again.
"""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Coroutine
from enum import Enum
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.logs import event_line
from gapless.cli.options import URL_DEFAULT, Deadline, TokenFile, Url, Wait, settle
from gapless.cli.output import json_text, print_note
from gapless.cli.positions import HELP, read_position

if TYPE_CHECKING:
    from gapless.client import Session, Subscription
    from gapless.core.errors import GapError

__all__ = ["sub"]

READER_S = 0.2
"""How often to check whether the output is still read."""

PENDING_INTERVAL_S = 2.0
"""How often to query which streams are cut off."""

EXIT_GAP = 1
"""The exit code if the subscription had gaps."""


class _Order(Enum):
    PUBLISHER = "publisher"
    TOTAL = "total"


def sub(
    context: typer.Context,
    filter_text: Annotated[
        str | None,
        typer.Argument(
            metavar="FILTER",
            help="Which events, by default all; after -- if it begins with -. An existing durable "
            "subscription keeps its filter if none is given.",
            show_default=False,
        ),
    ] = None,
    *,
    durable: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Continue the durable subscription of this name."),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Even if a client has it: that client loses it."),
    ] = False,
    create: Annotated[
        bool,
        typer.Option(
            "--create", help="Create the durable subscription also if a broker does not answer."
        ),
    ] = False,
    start: Annotated[str, typer.Option(metavar="POSITION", help=HELP)] = "latest",
    order: Annotated[
        _Order | None,
        typer.Option(
            help="Of each publisher (the default), or one order of all events for everyone."
        ),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many events.")] = None,
    url: Url = URL_DEFAULT,
    token_file: TokenFile = None,
    deadline: Deadline = 30.0,
    wait: Wait = 0.0,
    _as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON lines; this is the default.")
    ] = False,
) -> None:
    """Print matching events as JSON lines, until Ctrl-C.

    The events of a durable subscription are acknowledged when they are printed: they are not
    received again. To look at them only, use gapless durable peek.

    A payload that is not text is under payload_base64. A range that a log no longer has is a line
    {"gap": {"pubend": …, "low": …, "high": …}}, and the exit code is 1 in the end.
    """
    from gapless.cli.broker_calls import call_broker

    settle(context, as_json=_as_json)
    position = read_position(start)
    writer = _Writer(sys.stdout.buffer, count)

    async def work(session: Session) -> None:
        options: dict[str, Any] = {"ack": "manual", "on_gap": "raise"}
        options["order"] = None if order is None else order.value
        options |= {"take_over": take_over, "create": create, "start": position}
        made = session.subscribe(filter_text, durable=durable, **options)
        async with made as subscription:
            if subscription.is_new:
                print_note(f"{durable} is a new subscription, at the broker {session.broker}")
            copying = _copy(subscription, writer, acknowledge=durable is not None)
            reporting = asyncio.ensure_future(_report_pending(subscription))
            try:
                await _while_read(copying, sys.stdout)
            finally:
                reporting.cancel()
                await asyncio.gather(reporting, return_exceptions=True)

    call_broker(url, work, deadline_s=deadline, token_file=token_file, wait_s=wait)
    if writer.gaps:
        raise typer.Exit(EXIT_GAP)


async def _report_pending(subscription: Subscription) -> None:
    """Report from which pubends no events can come and why, and when they continue."""
    from gapless.core.errors import GaplessError

    reported: dict[str, str] = {}
    pending = subscription.pending
    is_alone = False
    while True:
        for pubend in reported.keys() - pending.keys():
            print_note(f"{pubend} continues")
        for pubend, reason in pending.items():
            if reported.get(pubend) != reason:
                print_note(f"waiting for {pubend}: {reason}")
        reported = dict(pending)
        await asyncio.sleep(PENDING_INTERVAL_S)
        try:
            pending = await subscription.fetch_pending(deadline_s=PENDING_INTERVAL_S)
        except GaplessError as error:  # the call that waits for events raises it
            if not is_alone:
                print_note(f"no broker answers: {error}")
            is_alone = True
        else:
            if is_alone:
                print_note("a broker answers again")
            is_alone = False


class _Writer:
    """Writes events and counts them."""

    def __init__(self, out: IO[bytes], count: int | None) -> None:
        self._out = out
        self.left = count
        """How many more events to write; None for all."""
        self.gaps = 0

    def write(self, events: list[Any]) -> None:
        """Write and flush events."""
        lines = [event_line(each.pubend, each.publication) for each in events]
        self._out.write(b"".join(lines))
        self._out.flush()
        if self.left is not None:
            self.left -= len(events)

    def write_gap(self, gap: GapError) -> None:
        """Write a line for a gap."""
        self.gaps += 1
        line = {"gap": {"pubend": gap.pubend, "low": gap.low, "high": gap.high}}
        self._out.write(json_text(line).encode() + b"\n")
        self._out.flush()
        print_note(f"warning: {gap}")


async def _while_read(work: Coroutine[Any, Any, None], out: IO[str]) -> None:
    """Run until the work is done, or until the output is no longer read."""
    copying = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_until_unread(out))
    try:
        await asyncio.wait({copying, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not copying.done():
            raise BrokenPipeError
        await copying
    finally:
        for task in (copying, watching):
            task.cancel()
        await asyncio.gather(copying, watching, return_exceptions=True)


async def _until_unread(out: IO[str]) -> None:
    """Return when the pipe of the output has no reader; a file needs none."""
    poll = select.poll()
    try:
        poll.register(out.fileno(), 0)  # errors are always reported
    except OSError:
        await asyncio.Event().wait()  # the output is not a file
    while not poll.poll(0):  # noqa: ASYNC110 - there is no notification for this
        await asyncio.sleep(READER_S)


async def _copy(subscription: Subscription, writer: _Writer, *, acknowledge: bool) -> None:
    """Write events until enough have come."""
    from gapless.core.errors import GapError

    while writer.left != 0:
        try:
            events = await subscription.next_batch(writer.left)
        except GapError as gap:
            writer.write_gap(gap)
        else:
            if not events:
                return  # it was closed
            writer.write(events)
        if acknowledge:
            await subscription.ack()
