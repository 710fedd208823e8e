"""``gapless chaos``: brokers with faults of processes and network under traffic, and an audit."""

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
"""A process that waits for a busy processor must not be taken for dead all the time."""


def chaos(
    context: typer.Context,
    *,
    minutes: Annotated[
        float,
        typer.Option(min=0.05, help="How long faults continue; each kind occurs at least once."),
    ] = 1.0,
    topology: Annotated[
        str, typer.Option(metavar="TREE", help="line:5x2, star:5x2, tree:2x3x2 or a .toml file.")
    ] = "line:5x2",
    delta: Annotated[
        int,
        typer.Option(min=0, max=DELTA_MAX, help="How many lost cells in a row are bypassed."),
    ] = 2,
    seed: Annotated[int, typer.Option(help="The seed of the faults and of the quotes.")] = 1,
    rate: Annotated[float, typer.Option(min=1, help="Events a second, of all publishers.")] = 100.0,
    session_timeout_ms: Annotated[
        int,
        typer.Option(
            min=SESSION_TIMEOUT_MIN_MS,
            max=DEFAULTS.link_idle_timeout_ms - 1,
            help="A neighbour is down after this silence; heartbeats follow it.",
        ),
    ] = DEFAULTS.session_timeout_ms,
    network: Annotated[
        ChaosNetworkKind,
        typer.Option(
            help="The network between brokers: namespaces if they are allowed, or proxies."
        ),
    ] = ChaosNetworkKind.AUTO,
    data: Annotated[
        Path | None,
        typer.Option(help="An empty directory in which records and logs are kept."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Kill, freeze and cut off brokers while events flow, and audit every delivery.

    One fault follows the other: a broker is killed or frozen; all brokers but one of each cell are
    killed; a link is cut in one direction or both; all links over an edge of the tree are cut in
    one direction; a cell is cut off from one side or from all; up to delta + 1 cells in a row are
    lost. Meanwhile subscriptions fail over, start and change their filters. Events that still have
    a route must flow during the fault, and all events after the heal; the times are reported. Exit
    code 1 if a stream stopped, if an event was lost, duplicated, out of order or spurious, or if a
    broker still lists a partition at the end.
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
    """Choose the network between brokers; for namespaces, start this command again inside them."""
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
    print_note(f"using proxies, because network namespaces are not allowed here: {reason}")
    return ChaosNetworkKind.PROXIES
