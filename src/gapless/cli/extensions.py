"""Subcommands of other packages, found by entry points.

A package adds a command with an entry point of the group ``gapless.commands``. Its name is the command's words
(``sim``, ``spark sweep``), its object a function or a :class:`typer.Typer`. The product knows none of them by name, so
it is complete without them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer

from gapless.core.errors import UsageError

__all__ = ["GROUP", "add_commands"]

GROUP = "gapless.commands"
_PANEL = "Try and prove"


def add_commands(app: typer.Typer, groups: Mapping[str, typer.Typer]) -> None:
    """Add the commands of all installed packages; ``groups`` are those that have subcommands."""
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        *group, name = entry.name.split()
        parent = groups[group[0]] if group else app
        _add(parent, name, entry, panel=None if group else _PANEL)


def _add(parent: typer.Typer, name: str, entry: EntryPoint, *, panel: str | None) -> None:
    try:
        command = entry.load()
    except ImportError as error:
        command = _missing(name, entry, error)
    if isinstance(command, typer.Typer):
        parent.add_typer(command, name=name, rich_help_panel=panel)
    else:
        parent.command(name, rich_help_panel=panel)(command)


def _missing(name: str, entry: EntryPoint, error: ImportError) -> Callable[..., Any]:
    """Return a command that says what must be installed before it can run."""

    def command(_: typer.Context) -> None:
        package = error.name or str(error)
        extra = f'"gapless[{entry.extras[0]}]"' if entry.extras else package
        raise UsageError(
            f"gapless {name} needs the package {package}, which is not installed: "
            f"pip install {extra}"
        )

    command.__doc__ = "Not available: a package that it needs is not installed."
    return command
