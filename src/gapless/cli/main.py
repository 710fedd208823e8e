"""The entry point: options of all subcommands, exit codes, and what happens to errors.

Exit codes: 0 done, 1 the simulator found a violation, 2 the command or its input was wrong, 130 interrupted.
"""

from __future__ import annotations

import dataclasses
import shlex
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from gapless import __version__
from gapless.cli import doctor, explain
from gapless.cli.output import print_error
from gapless.core.errors import GaplessError, shortened

EXIT_WRONG_INPUT = 2
EXIT_INTERRUPTED = 128 + signal.SIGINT


@dataclasses.dataclass
class Settings:
    """What the options say about the whole run; every command finds it in ``context.obj``."""

    debug: bool = False
    as_json: bool = False


app = typer.Typer(
    name="gapless",
    help="Content-based publish/subscribe without gaps.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    context.obj.debug = debug


@app.command("doctor")
def _doctor(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what this installation is made of, and which matching kernel it uses."""
    context.obj.as_json = as_json
    doctor.run(as_json=as_json)


@app.command("explain")
def _explain(
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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a filter means, and whether and why an event matches it."""
    context.obj.as_json = as_json
    explain.run(filter_text, event, as_json=as_json)


simulator = typer.Typer(
    help="Run simulated overlays with faults, and check every promise.",
    no_args_is_help=True,
)
app.add_typer(simulator, name="sim")


@simulator.command("run")
def _sim_run(
    context: typer.Context,
    *,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 100,
    start: Annotated[int, typer.Option(help="The first seed.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes to run them in.")] = 1,
    machine: Annotated[
        str | None, typer.Option(help="What to simulate, as module:name; the broker if not given.")
    ] = None,
    probes: Annotated[
        bool, typer.Option(help="Check the invariants inside the brokers at every step.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run seeds; print a line a run and a summary."""
    from gapless.cli import sim  # other commands should not wait for it

    context.obj.as_json = as_json
    code = sim.run(
        seeds=seeds,
        start=start,
        workers=workers,
        machine=machine,
        probes=probes,
        as_json=as_json,
    )
    raise typer.Exit(code)


@simulator.command("replay")
def _sim_replay(
    context: typer.Context,
    seed: Annotated[int, typer.Argument(help="The seed to run again.")],
    *,
    trace: Annotated[bool, typer.Option("--trace", help="Show every step.")] = False,
    shrunk: Annotated[
        bool, typer.Option("--shrink", help="Look for a smaller run that fails the same way.")
    ] = False,
    options_text: Annotated[
        str | None,
        typer.Option("--options", help="Options as JSON or a file with it, instead of a draw."),
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="What to simulate, as module:name; the broker if not given.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run one seed again and show what happens."""
    from gapless.cli import sim  # other commands should not wait for it

    context.obj.as_json = as_json
    code = sim.replay(
        seed,
        options_text=options_text,
        trace=trace,
        shrunk=shrunk,
        machine=machine,
        as_json=as_json,
    )
    raise typer.Exit(code)


def _filter_read_as_option(arguments: Sequence[str]) -> str | None:
    """Find the argument of ``explain`` that begins like an option and is none."""
    if "explain" not in arguments or "--" in arguments:
        return None
    behind = arguments[arguments.index("explain") + 1 :]
    known = ("--json", "-h", "--help")
    return next((each for each in behind if each.startswith("-") and each not in known), None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    settings = Settings()
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        app(args=arguments, obj=settings, prog_name="gapless")
    except SystemExit as exit_:
        if exit_.code == EXIT_WRONG_INPUT and (mistaken := _filter_read_as_option(arguments)):
            sys.stderr.write(
                "hint: a filter that begins with - comes after --: "
                f"gapless explain -- {shlex.quote(shortened(mistaken))}\n"
            )
        return exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
    except GaplessError as error:
        if settings.debug:
            traceback.print_exc()
        print_error(str(error), as_json=settings.as_json)
        return EXIT_WRONG_INPUT
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough.
        sys.stdout = None
        return 0
    return 0
