"""Options that several commands share, and the settings of a run.

Every command imports this module, so it has no slow imports.
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
    """Settings of the whole run; every command finds them in ``context.obj``."""

    debug: bool = False
    as_json: bool = False

    def show_tracebacks(self, *, wanted: bool) -> None:
        """Set whether errors are printed with their tracebacks."""
        self.debug = wanted

    def print_as_json(self, *, wanted: bool) -> None:
        """Set whether results and errors are printed as JSON."""
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
        help="A file with a token; default: GAPLESS_TOKEN or GAPLESS_TOKEN_FILE.",
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
    """Set whether results and errors are printed as JSON; return all settings."""
    settings: CommandSettings = context.obj
    settings.print_as_json(wanted=as_json)
    return settings
