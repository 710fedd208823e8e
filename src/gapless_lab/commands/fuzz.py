"""``gapless fuzz``: hostile clients and a hostile neighbour, beside a healthy pair."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gapless.cli.options import AsJson, settle

__all__ = ["fuzz"]


def fuzz(
    context: typer.Context,
    *,
    frames: Annotated[
        int, typer.Option(min=100, help="How many hostile frames are sent.")
    ] = 20_000,
    seed: Annotated[int, typer.Option(help="The seed of the frames.")] = 1,
    rate: Annotated[
        float, typer.Option(min=0, help="Hostile frames per second at most; 0 is no limit.")
    ] = 2_000.0,
    times: Annotated[
        bool,
        typer.Option("--times/--no-times", help="Whether slow steps and latencies are faults."),
    ] = True,
    replay: Annotated[
        Path | None, typer.Option(help="Repeat the attacks of a file that a run has saved.")
    ] = None,
    saved: Annotated[Path, typer.Option(help="The directory for attacks behind a fault.")] = Path(
        "fuzz-results"
    ),
    as_json: AsJson = False,
) -> None:
    """Attack three brokers as clients and as a neighbour broker, beside a healthy pair.

    The frames are messages of every type in every state with plausible and extreme values, recorded
    sessions with changed values or bytes, and msgpack bombs. Exit code 1 if a broker ended, had an
    unhandled error, made a step above 100 ms or kept memory, if the healthy publisher and
    its subscribers lost, repeated or reordered an event, or if their p99 latency was above
    three times that without attack.
    """
    from gapless_lab.fuzz.report import FuzzOptions
    from gapless_lab.fuzz.run import perform_and_show

    settle(context, as_json=as_json)
    options = FuzzOptions(frames=frames, seed=seed, rate=rate, judges_times=times)
    raise typer.Exit(perform_and_show(options, saved, replay=replay, as_json=as_json))
