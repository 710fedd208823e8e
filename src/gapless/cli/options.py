"""Options that several commands share, and the settings of a run.

Every command imports this module, so it has no slow imports.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from gapless.core.errors import UsageError

__all__ = [
    "AsJson",
    "CommandSettings",
    "DataDirectory",
    "Deadline",
    "TokenFile",
    "Url",
    "Wait",
    "optional_store_directory",
    "settle",
    "store_directories",
    "store_directory",
]

_DATABASE = "broker.db"
_STORE = "store"
_SHOWN = 8
"""So many brokers of an overlay are named."""

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

Wait = Annotated[
    float,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0.0,
        help="How long to wait for a broker that does not listen yet.",
    ),
]


def store_directories(path: Path) -> list[Path]:
    """Return the directories with data: ``path`` itself, ``store`` in it, or those of an overlay.

    ``gapless up`` makes a directory for each broker, with its file and its log beside ``store``.
    """
    for found in (path, path / _STORE):
        if (found / _DATABASE).exists():
            return [found]
    return sorted(each.parent for each in path.glob(f"*/{_STORE}/{_DATABASE}")) or [path]


def store_directory(path: Path) -> Path:
    """Return the directory with the data of one broker."""
    found = store_directories(path)
    if len(found) > 1:
        names = ", ".join(str(each.parent) for each in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        problem = f"{path} has the data of several brokers; choose one: {names}{more}"
        raise UsageError(problem)
    return found[0]


def optional_store_directory(path: Path | None) -> Path | None:
    """Return the directory with the data of a broker, or None if no directory is given."""
    return None if path is None else store_directory(path)


DataDirectory = Annotated[
    Path,
    typer.Argument(
        metavar="DIRECTORY",
        help="The data directory of a broker or of gapless up; it may be in use.",
        exists=False,
    ),
]


def settle(context: typer.Context, *, as_json: bool) -> CommandSettings:
    """Set whether results and errors are printed as JSON; return all settings."""
    settings: CommandSettings = context.obj
    settings.print_as_json(wanted=as_json)
    return settings
