"""Links follow what both ends want (effect SetPeers, RS-35)."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.effects import LinkTarget, Send, SetPeers
from gapless.core.events import LinkDown, LinkUp
from gapless.core.ids import BrokerId
from gapless_lab.sim.options import SimulatedNetworkKind
from gapless_lab.sim.world import SimulatedHost, World
from tests.lab.sim.recorder import do, machine, make_world, pass_ms

BOTH = pytest.mark.parametrize("network", list(SimulatedNetworkKind))


def line(**options: Any) -> tuple[World, SimulatedHost, SimulatedHost, SimulatedHost]:
    """Return n0 - n1 - n2 with links between neighbours only, and its hosts."""
    world = make_world(cells=3, delta=0, half_open=0.0, stall=0.0, **options)
    a, b, c = world.hosts.values()
    return world, a, b, c


def want(
    world: World,
    host: SimulatedHost,
    *peers: BrokerId,
    control: tuple[BrokerId, ...] = (),
    admitted: tuple[BrokerId, ...] = (),
) -> None:
    targets = tuple(map(LinkTarget, peers)), tuple(map(LinkTarget, control))
    do(world, host, [SetPeers(*targets, admitted)])


def events(host: SimulatedHost, peer: BrokerId) -> list[str]:
    """Return what a host was told of its link with another."""
    found = machine(host).events(LinkUp, LinkDown)
    return [type(each).__name__ for each in found if each.peer == peer]  # type: ignore[union-attr]


@BOTH
def test_new_neighbours_get_a_link_when_the_one_that_dials_wants_it(
    network: SimulatedNetworkKind,
) -> None:
    world, a, _, c = line(network=network)
    want(world, c, "n1a", "n0a")
    pass_ms(world, 300)
    assert events(a, "n2a") == [], "of two neighbours the one whose name comes first dials"
    want(world, a, "n1a", "n2a")
    pass_ms(world, 300)
    assert events(a, "n2a") == events(c, "n0a") == ["LinkUp"]
    do(world, a, [Send("n2a", 7)])
    pass_ms(world, 300)
    assert machine(c).packets() == [7]


@BOTH
def test_a_control_link_exists_where_one_end_dials(network: SimulatedNetworkKind) -> None:
    world, a, _, c = line(network=network)
    want(world, c, "n1a", control=("n0a",))
    pass_ms(world, 300)
    assert events(a, "n2a") == events(c, "n0a") == ["LinkUp"]
    want(world, a, "n1a", admitted=("n2a",))
    pass_ms(world, 300)
    assert events(a, "n2a") == ["LinkUp"], "an end that has admitted the link keeps it"


@BOTH
def test_both_ends_learn_that_one_of_them_has_closed_a_link(network: SimulatedNetworkKind) -> None:
    world, a, b, _ = line(network=network)
    want(world, b, "n2a")
    pass_ms(world, 20)
    assert events(a, "n1a") == events(b, "n0a") == ["LinkUp", "LinkDown"]


def test_what_was_sent_before_a_link_is_closed_arrives() -> None:
    world, a, b, _ = line(delay_us_min=5_000, delay_us_max=5_000)
    do(world, a, [Send("n1a", 7), SetPeers(())])
    pass_ms(world, 100)
    assert machine(b).packets() == [7]
    assert events(b, "n0a") == ["LinkUp", "LinkDown"]


def test_an_end_that_still_dials_gets_a_new_link_when_the_other_wants_it_again() -> None:
    world, a, b, _ = line()
    want(world, b, "n2a")
    pass_ms(world, 20)
    want(world, b, "n0a", "n2a")
    pass_ms(world, 500)
    assert events(a, "n1a") == ["LinkUp", "LinkDown", "LinkUp"]


@BOTH
def test_a_link_that_nobody_dials_is_not_struck_by_faults(network: SimulatedNetworkKind) -> None:
    world, a, b, _ = line(network=network)
    assert len(world.network.dialled_pairs()) == 2
    want(world, a)
    want(world, b, "n2a")
    pass_ms(world, 100)
    assert len(world.network.dialled_pairs()) == 1


@BOTH
def test_a_cut_stays_while_a_link_is_not_wanted(network: SimulatedNetworkKind) -> None:
    world, a, b, _ = line(network=network)
    link = world.network.links["n0a"]["n1a"]
    want(world, a)
    want(world, b, "n2a")
    world.network.cut(link)
    want(world, b, "n0a", "n2a")
    want(world, a, "n1a")
    pass_ms(world, 300)
    do(world, a, [Send("n1a", 7)])
    pass_ms(world, 300)
    assert machine(b).packets() == []


@BOTH
def test_a_restarted_host_wants_the_links_of_its_configuration(
    network: SimulatedNetworkKind,
) -> None:
    world, a, _, c = line(network=network)
    want(world, a, "n1a", "n2a")
    pass_ms(world, 300)
    world.crash(a)
    world.start(a)
    pass_ms(world, 300)
    assert events(a, "n1a") == ["LinkUp"]
    assert events(a, "n2a") == []
    assert events(c, "n0a") == ["LinkUp", "LinkDown"]


@BOTH
def test_a_host_that_comes_during_the_run_has_links_when_it_dials(
    network: SimulatedNetworkKind,
) -> None:
    world, a, _, _ = line(network=network)
    alone = world.options.topology().neighbourhood("n0", radius=0)
    host = world.add_host("x", alone)
    world.start(host)
    want(world, host, control=("n0a",))
    pass_ms(world, 300)
    assert events(host, "n0a") == events(a, "x") == ["LinkUp"]
