"""``gapless up``: an overlay on this computer; ``gapless broker``: one broker of any overlay."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.options import AsJson, settle
from gapless.cli.output import console, listing, print_json_line, print_note
from gapless.core.limits import DELTA_MAX

if TYPE_CHECKING:
    from gapless.runtime.broker_process import ProcessEvent
    from gapless.runtime.supervisor import Supervisor

__all__ = ["broker", "up"]

TopologyOption = Annotated[
    str | None,
    typer.Option(
        metavar="TREE",
        show_default="that of the data directory, else line:3",
        help="line:3, star:5, tree:2x3; with the number of brokers in every cell line:3x2, "
        "star:5x2, tree:2x3x2; or the name of an overlay's .toml file.",
    ),
]
Delta = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=DELTA_MAX,
        help="How many unreachable cells in a row are bypassed; default: 1 or the file's.",
    ),
]
Retention = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="How long logs keep events for replay, such as 2h or 7d: --parameter retention_s.",
    ),
]
ParameterOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        "-P",
        metavar="NAME=VALUE",
        help="A parameter of all brokers, with or without a unit; =default removes it.",
    ),
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Write files of the data directory also if they were edited; keep them as .edited.",
    ),
]


def up(
    context: typer.Context,
    *,
    topology: TopologyOption = None,
    delta: Delta = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The data directory; by default one that is deleted at the end."),
    ] = None,
    port: Annotated[
        int,
        typer.Option(min=0, max=65_535, help="The port of the first broker; 0 chooses free ports."),
    ] = 7400,
    retention: Retention = None,
    parameter: ParameterOptions = None,
    overwrite: Overwrite = False,
    restart: Annotated[
        bool,
        typer.Option("--restart/--no-restart", help="Restart a broker that has died."),
    ] = True,
    audit: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Write audit logs of publications and deliveries."),
    ] = None,
    tokens: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Require a token of this file (gapless token)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run an overlay of brokers on this computer, one process each, until Ctrl-C.

    With --json the first line of the output lists the brokers as soon as all are ready; every
    further line is an event of one broker.
    """
    from gapless.audit.options import AuditOptions
    from gapless.runtime.overlay_choice import choose_overlay
    from gapless.runtime.process import run_loop
    from gapless.runtime.supervisor import Supervisor, supervise

    settle(context, as_json=as_json)
    options = [*(parameter or []), *([] if retention is None else [f"retention_s={retention}"])]
    overlay = choose_overlay(topology, data, delta=delta, parameters=options)
    with _kept_in(data) as directory:
        reporter = _OverlayReporter(as_json=as_json)
        supervisor = Supervisor(
            overlay,
            directory,
            port=port,
            audit=None if audit is None else AuditOptions.of(audit),
            tokens=tokens,
            overwrite=overwrite,
            restart=restart,
            on_event=reporter.process_changed,
        )
        run_loop(supervise(supervisor, ready=reporter.ready))
        reporter.stopped()


@contextlib.contextmanager
def _kept_in(data: Path | None) -> Iterator[Path]:
    """Provide the data directory, or a temporary one."""
    if data is not None:
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="gapless-") as directory:
        yield Path(directory)


class _OverlayReporter:
    """Prints the events of an overlay."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._supervisor: Supervisor | None = None

    def ready(self, supervisor: Supervisor) -> None:
        """All brokers are ready."""
        self._supervisor = supervisor
        for path in supervisor.kept_files:
            print_note(f"{path} was edited: it is used as it is, and options do not change it")
        parameters = supervisor.overlay.parameters
        if self._as_json:
            brokers = [
                {
                    "name": each.name,
                    "cell": each.cell,
                    "url": each.url,
                    "pid": each.pid,
                    "metrics": each.metrics_url,
                }
                for each in supervisor.brokers
            ]
            document = {"brokers": brokers, "data": str(supervisor.data), "parameters": parameters}
            print_json_line(document)
            return
        rows = [
            (each.name, each.cell, each.url, str(each.pid), each.metrics_url or "")
            for each in supervisor.brokers
        ]
        out = console()
        out.print(listing("broker", "cell", "url", "process", "metrics", rows=rows))
        if parameters:
            out.print("\nparameters: " + ", ".join(f"{k} = {v}" for k, v in parameters.items()))
        out.print(f"\ndata in {supervisor.data}; Ctrl-C stops all")
        sys.stdout.flush()

    def process_changed(self, event: ProcessEvent) -> None:
        """Print a change of a broker's stage; nothing before all are ready."""
        from gapless.runtime.broker_process import ProcessStage

        if self._supervisor is None:
            return
        broker = self._supervisor[event.broker]
        if self._as_json:
            line = {
                "broker": event.broker,
                "stage": event.stage.value,
                "pid": broker.pid,
                "metrics": broker.metrics_url,
                "detail": event.detail,
            }
            with contextlib.suppress(BrokenPipeError):  # no reader; the overlay continues
                print_json_line(line)
        elif event.stage is not ProcessStage.STARTING:
            metrics = f"metrics {broker.metrics_url}" if broker.metrics_url else ""
            parts = (event.broker, event.stage.value, event.detail, metrics)
            print_note(" ".join(filter(None, parts)))

    def stopped(self) -> None:
        """All brokers have stopped."""
        if not self._as_json:
            print_note("all brokers have stopped")


def broker(
    context: typer.Context,
    *,
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="Its configuration file, in TOML.")
    ],
) -> None:
    """Run one broker until SIGTERM or Ctrl-C.

    The file has its name, its addresses and its data directory; see the manual. Exit codes: 0
    stopped on request, 1 the broker failed, 2 the file or an address cannot be used, 3 the disk
    failed.
    """
    from gapless.runtime.process import run_broker

    del context
    raise typer.Exit(run_broker(config))
