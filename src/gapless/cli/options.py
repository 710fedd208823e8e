"""What several commands have in common: their options, and what the whole run was told.

It is imported by every command, so it imports nothing that is slow.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsJson", "CommandSettings", "DataDirectory", "Deadline", "TokenFile", "Url", "settle"]

URL_VARIABLE = "GAPLESS_URL"
URL_DEFAULT = "gapless://127.0.0.1:7400"


@dataclasses.dataclass
class CommandSettings:
    """What the options say about the whole run; every command finds it in ``context.obj``."""

    debug: bool = False
    as_json: bool = False

    def show_tracebacks(self, *, wanted: bool) -> None:
        """Note whether errors of this run are printed with their tracebacks."""
        self.debug = wanted

    def print_as_json(self, *, wanted: bool) -> None:
        """Note how results and errors of this run are printed."""
        self.as_json = wanted


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

Url = Annotated[
    str,
    typer.Option(
        "--url",
        metavar="URL",
        envvar=URL_VARIABLE,
        show_default=URL_DEFAULT,
        help="The broker; several, separated by commas, are tried in turn.",
    ),
]

TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="A file with your token, for brokers that ask; else GAPLESS_TOKEN or GAPLESS_TOKEN_FILE.",
    ),
]

Deadline = Annotated[
    float,
    typer.Option("--deadline", metavar="SECONDS", min=0.01, help="How long a call may take."),
]

DataDirectory = Annotated[
    Path,
    typer.Argument(
        metavar="DIRECTORY", help="A broker's data directory; it may be in use.", exists=False
    ),
]


def settle(context: typer.Context, *, as_json: bool) -> CommandSettings:
    """Note how results and errors of this run are printed."""
    settings: CommandSettings = context.obj
    settings.print_as_json(wanted=as_json)
    return settings
