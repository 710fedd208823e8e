"""The entry point: the commands, the exit codes and the handling of errors.

Exit codes:

====  =============================================================================================
0     done
1     a fault was found: a violation by the simulator, corruption in a log, a gap in a stream; or a
      broker failed
2     the command or its input was wrong
3     a disk or a data directory cannot be used
4     no broker could be reached, or none answered in time
5     the broker refused the request or the token
130   interrupted
====  =============================================================================================
"""

from __future__ import annotations

import shlex
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, TextIO

import typer
import typer.core

from gapless import __version__
from gapless.cli import (
    bench,
    durable,
    inspection,
    logs,
    pub,
    pubends,
    spark,
    sub,
    tokens,
    tools,
    topo,
    topo_cells,
    up,
)
from gapless.cli.extensions import add_commands
from gapless.cli.options import CommandSettings
from gapless.cli.output import print_error, print_note, print_traceback, while_read
from gapless.core.errors import (
    AuthenticationError,
    ConnectionLostError,
    CorruptionError,
    DeadlineError,
    FilterWarning,
    GapError,
    GaplessError,
    OutcomeUnknownError,
    ProtocolError,
    RefusedError,
    StorageError,
    UnavailableError,
    shortened,
)

__all__ = ["app", "main"]

EXIT_FOUND = 1
EXIT_WRONG_INPUT = 2
EXIT_DISK = 3
EXIT_NO_BROKER = 4
EXIT_REFUSED = 5
EXIT_INTERRUPTED = 128 + signal.SIGINT

_EXIT_CODES: tuple[tuple[tuple[type[GaplessError], ...], int], ...] = (
    # the first match applies
    ((CorruptionError, GapError), EXIT_FOUND),
    ((StorageError,), EXIT_DISK),
    (
        (
            ConnectionLostError,
            DeadlineError,
            OutcomeUnknownError,
            ProtocolError,
            UnavailableError,
        ),
        EXIT_NO_BROKER,
    ),
    ((AuthenticationError, RefusedError), EXIT_REFUSED),
)


class _Commands(typer.core.TyperGroup):
    """All commands: each ends without an error when its output is no longer read."""

    def invoke(self, ctx: Any) -> Any:
        with while_read():
            return super().invoke(ctx)


app = typer.Typer(
    name="gapless",
    cls=_Commands,
    help="Content-based publish/subscribe without gaps.",
    epilog="Exit codes: 0 done, 1 fault found (corruption, a gap, a violation), 2 wrong command "
    "or input, 3 disk, 4 no broker reached or no answer in time, 5 refused, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_LOCAL = "Run brokers"
_CLIENTS = "Publish and subscribe"
_OPERATE = "Operate"
_TOOLS = "Tools"

app.command("up", rich_help_panel=_LOCAL)(up.up)
app.command("broker", rich_help_panel=_LOCAL)(up.broker)
app.command("pub", rich_help_panel=_CLIENTS)(pub.pub)
app.command("sub", rich_help_panel=_CLIENTS)(sub.sub)
app.command("status", rich_help_panel=_OPERATE)(inspection.status)
inspection.topology.command("plan")(topo.plan)
inspection.topology.command("apply")(topo.apply)
inspection.topology.command("abort")(topo.abort)
inspection.topology.command("shift")(topo_cells.shift)
inspection.topology.command("append")(topo_cells.append)
inspection.topology.command("detach")(topo_cells.detach)
inspection.topology.command("insert")(topo_cells.insert)
inspection.topology.command("delete")(topo_cells.delete)
inspection.topology.command("takeover")(topo_cells.takeover)
inspection.topology.command("readmit")(topo_cells.readmit)
app.add_typer(inspection.topology, name="topo", rich_help_panel=_OPERATE)
app.command("subscriptions", rich_help_panel=_OPERATE)(inspection.subscriptions)
app.add_typer(durable.durable, name="durable", rich_help_panel=_OPERATE)
app.add_typer(pubends.pubends, name="pubend", rich_help_panel=_OPERATE)
app.command("partitions", rich_help_panel=_OPERATE)(inspection.partitions)
app.command("retire", rich_help_panel=_OPERATE)(inspection.retire)
app.add_typer(logs.log, name="log", rich_help_panel=_OPERATE)
app.add_typer(tokens.token, name="token", rich_help_panel=_OPERATE)
app.command("doctor", rich_help_panel=_TOOLS)(tools.doctor)
app.command("explain", rich_help_panel=_TOOLS)(tools.explain)
app.command("bench", rich_help_panel=_TOOLS)(bench.bench)
app.command("protocol", rich_help_panel=_TOOLS)(tools.protocol)
app.add_typer(spark.spark, name="spark", rich_help_panel=_TOOLS)
add_commands(app, {"spark": spark.spark})


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gapless {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Content-based publish/subscribe without gaps."""
    context.obj.show_tracebacks(wanted=debug)


def _filter_read_as_option(arguments: Sequence[str]) -> tuple[str, str] | None:
    """Find a filter that was read as an option because it begins with -."""
    command = next((each for each in arguments if each in {"explain", "sub"}), None)
    if command is None or "--" in arguments:
        return None
    behind = arguments[arguments.index(command) + 1 :]
    found = (each for each in behind if each.startswith("-") and not each.startswith("--"))
    mistaken = next((each for each in found if each not in {"-h", "-"}), None)
    return None if mistaken is None else (command, mistaken)


def exit_code(error: GaplessError) -> int:
    """Return the exit code for an error; a BrokerStartError has its own."""
    own: int | None = getattr(error, "exit_code", None)
    if own is not None:
        return own
    return next((code for kinds, code in _EXIT_CODES if isinstance(error, kinds)), EXIT_WRONG_INPUT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", FilterWarning)
        warnings.showwarning = _show_warning
        return _run(sys.argv[1:] if arguments is None else list(arguments))


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of a filter as a note; another one as Python does."""
    if issubclass(category, FilterWarning):
        print_note(f"warning: {message}")
    else:
        text = warnings.formatwarning(message, category, filename, lineno, line)
        (file or sys.stderr).write(text)


def _run(arguments: Sequence[str]) -> int:
    settings = CommandSettings()
    try:
        app(args=arguments, obj=settings, prog_name="gapless")
    except SystemExit as exit_:
        if exit_.code == EXIT_WRONG_INPUT and (found := _filter_read_as_option(arguments)):
            command, mistaken = found
            sys.stderr.write(
                "hint: a filter that begins with - comes after --: "
                f"gapless {command} -- {shlex.quote(shortened(mistaken))}\n"
            )
        return exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except GaplessError as error:
        if settings.debug:
            print_traceback()
        print_error(str(error), as_json=settings.as_json)
        return exit_code(error)
    except OSError as error:
        if settings.debug:
            print_traceback()
        where = "" if error.filename is None else f"{error.filename}: "
        print_error(
            f"{where}{error.strerror or str(error) or type(error).__name__}",
            as_json=settings.as_json,
        )
        return EXIT_DISK
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED
    return 0
