"""``gapless chaos``: brokers whose processes and network fail under traffic, and an audit of it all."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from gapless.cli.options import AsJson, settle
from gapless.cli.output import print_note
from gapless.core.errors import UsageError
from gapless.core.limits import DELTA_MAX
from gapless.core.parameters import DEFAULTS
from gapless_lab.chaos.networks import ChaosNetworkKind

__all__ = ["chaos"]

SESSION_TIMEOUT_MIN_MS: Final = 300
"""A process that waits its turn on a busy computer must not be taken for dead all the time."""


def chaos(
    context: typer.Context,
    *,
    minutes: Annotated[
        float, typer.Option(min=0.05, help="How long things fail; each in turn, and once at least.")
    ] = 1.0,
    topology: Annotated[
        str, typer.Option(metavar="TREE", help="line:5x2, star:5x2, tree:2x3x2 or a .toml file.")
    ] = "line:5x2",
    delta: Annotated[
        int,
        typer.Option(
            min=0, max=DELTA_MAX, help="So many cells in a row may be lost and are bypassed."
        ),
    ] = 2,
    seed: Annotated[int, typer.Option(help="Of the faults and of the quotes.")] = 1,
    rate: Annotated[float, typer.Option(min=1, help="Events a second, of all publishers.")] = 100.0,
    session_timeout_ms: Annotated[
        int,
        typer.Option(
            min=SESSION_TIMEOUT_MIN_MS,
            max=DEFAULTS.link_idle_timeout_ms - 1,
            help="A neighbour that was not heard for so long is down; heartbeats go with it.",
        ),
    ] = DEFAULTS.session_timeout_ms,
    network: Annotated[
        ChaosNetworkKind,
        typer.Option(
            help="What is between brokers: namespaces where they are allowed, or proxies."
        ),
    ] = ChaosNetworkKind.AUTO,
    data: Annotated[
        Path | None,
        typer.Option(help="An empty directory to keep records and logs in, instead of none."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Kill, freeze and cut off brokers while events flow, and audit every delivery.

    One fault follows the other: a broker is killed or frozen, all but one of each cell are killed, a link
    is cut in one direction or both, all links over an edge of the tree in one, a cell is cut off from one side
    or from all, up to delta + 1 cells in a row are lost. Meanwhile subscriptions flee, begin and change. What
    still has a way must flow while the fault lasts, and everything when it has healed; how long that takes is
    reported. Exit code 1 if a stream stood still, or anything was lost, came twice, out of order or uncalled
    for, or a broker still lists a partition in the end.
    """
    from gapless_lab.chaos.run import perform_and_show
    from gapless_lab.chaos.verdict import ChaosOptions

    settle(context, as_json=as_json)
    options = ChaosOptions(
        minutes=minutes,
        topology=topology,
        delta=delta,
        seed=seed,
        rate=rate,
        session_timeout_ms=session_timeout_ms,
    )
    kind = _settled(network)
    raise typer.Exit(perform_and_show(options, kind, data, as_json=as_json))


def _settled(network: ChaosNetworkKind) -> ChaosNetworkKind:
    """Choose what is between brokers; for namespaces, begin again inside of some."""
    from gapless_lab.chaos.namespaces import enter, is_inside, why_not

    if network is ChaosNetworkKind.PROXIES or is_inside():
        return ChaosNetworkKind.NAMESPACES if is_inside() else network
    reason = why_not()
    if reason is None:
        enter(sys.argv[1:])
    if network is ChaosNetworkKind.NAMESPACES:
        raise UsageError(
            f"network namespaces are not allowed here: {reason}; use --network proxies"
        )
    print_note(f"proxies are between the brokers, as namespaces are not allowed here: {reason}")
    return ChaosNetworkKind.PROXIES
