"""Commands that can do without a broker: ``doctor``, ``explain``, ``protocol``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gapless.cli.options import URL_DEFAULT, URL_VARIABLE, AsJson, TokenFile, settle

__all__ = ["doctor", "explain", "protocol"]


def doctor(
    context: typer.Context,
    *,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Also check the data directory of a broker or of gapless up.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65_535, help="The port to check.")] = 7400,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar=URL_VARIABLE,
            show_default=URL_DEFAULT,
            help="The broker whose overlay is checked too, if one is running.",
        ),
    ] = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the versions of this installation, and whether a broker can run here.

    Of an overlay, names that several durable subscriptions have are shown.
    """
    from gapless.cli import doctor as command

    settle(context, as_json=as_json)
    command.run(data=data, port=port, url=url, token_file=token_file, as_json=as_json)


def explain(
    context: typer.Context,
    filter_text: Annotated[
        str,
        typer.Argument(metavar="FILTER", help="The filter's text; after -- if it begins with -."),
    ],
    event: Annotated[
        str | None,
        typer.Argument(metavar="EVENT", help="An event's attributes as a JSON object."),
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show what a filter means, how it is looked up, and whether and why an event matches it."""
    from gapless.cli import explain as command

    settle(context, as_json=as_json)
    command.run(filter_text, event, as_json=as_json)


def protocol(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Print every message between clients and brokers, as in docs/protocol.md."""
    from gapless.cli import protocol as command

    settle(context, as_json=as_json)
    command.run(as_json=as_json)
