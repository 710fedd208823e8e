"""Subcommands of other packages, found by entry points.

A package adds a command with an entry point of the group ``gapless.commands``. Its name is the
command's words (``sim``, ``spark sweep``), its object a function or a :class:`typer.Typer`. The
product does not depend on any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

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
        _add_unavailable(parent, name, _remedy(entry, error), panel=panel)
        return
    if isinstance(command, typer.Typer):
        parent.add_typer(command, name=name, rich_help_panel=panel)
    else:
        parent.command(name, rich_help_panel=panel)(command)


def _add_unavailable(parent: typer.Typer, name: str, remedy: str, *, panel: str | None) -> None:
    """Add a command that takes any arguments and says what it lacks."""

    @parent.command(
        name,
        help="Not available: a package that it needs is not installed, or cannot be loaded.",
        rich_help_panel=panel,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def command(context: typer.Context) -> None:
        raise UsageError(f"{context.command_path} {remedy}")


def _remedy(entry: EntryPoint, error: ImportError) -> str:
    """Return what a command lacks and how to install it, with the extras of its entry point."""
    if not isinstance(error, ModuleNotFoundError):
        return f"cannot be loaded: {error}"  # what it needs is there, but of another version
    package = error.name.partition(".")[0] if error.name else str(error)
    distribution = "gapless" if entry.dist is None else entry.dist.name
    wanted = f'"{distribution}[{",".join(entry.extras)}]"' if entry.extras else package
    return f"needs the package {package}, which is not installed: pip install {wanted}"
